//! Writes a graph with its initializers: small ones inside, the others in one data file beside it.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use prost::Message;
use prost::bytes::Bytes;

use super::planned::{Content, Planned};
use crate::onnx::Source;
use crate::onnx::proto::{GraphProto, ModelProto, StringStringEntryProto, TensorProto};

/// Initializers with more bytes than this go to the data file.
const INSIDE: u64 = 1024;
/// Where an initializer begins in the data file, so that it can be used from there without a copy.
const ALIGNMENT: u64 = 64;

/// Writes `graph` with `initializers` to `destination` and, where one is large, `<stem>.data` beside it. Each file is
/// there whole or not at all, the data first.
pub(super) fn write(
    source: &Source,
    mut graph: GraphProto,
    initializers: &[Planned],
    destination: &Path,
) -> Result<(), String> {
    let named = |path: &Path| {
        let path = path.to_owned();
        move |error: std::io::Error| format!("{}: {error}", path.display())
    };
    let data_path = destination.with_extension("data");
    let data_name = data_path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let [partial, partial_data] = [destination, &data_path].map(partial_path);
    let write_all = || -> Result<(), String> {
        let mut data = None;
        for planned in initializers {
            graph.initializers.push(tensor(source, planned, &data_name, &mut data, &partial_data)?);
        }
        // From version 4 on, an initializer need not be an input too.
        let ir_version = source.model.ir_version.max(4);
        let model = ModelProto { ir_version, graph: Some(graph), ..source.model.clone() };
        let mut bytes = Vec::with_capacity(model.encoded_len());
        model.encode(&mut bytes).map_err(|error| format!("{}: {error}", destination.display()))?;
        write_whole(&partial, &bytes).map_err(named(&partial))?;
        match data {
            Some(data) => {
                let file = data.out.into_inner().map_err(|error| named(&partial_data)(error.into_error()))?;
                file.sync_all().map_err(named(&partial_data))?;
                std::fs::rename(&partial_data, &data_path).map_err(named(&data_path))?;
            }
            None => drop(std::fs::remove_file(&data_path)),
        }
        std::fs::rename(&partial, destination).map_err(named(destination))
    };
    write_all().inspect_err(|_| {
        let _ = std::fs::remove_file(&partial);
        let _ = std::fs::remove_file(&partial_data);
    })
}

struct DataFile {
    out: BufWriter<File>,
    written: u64,
}

fn partial_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn tensor(
    source: &Source,
    planned: &Planned,
    data_name: &str,
    data: &mut Option<DataFile>,
    data_path: &Path,
) -> Result<TensorProto, String> {
    let empty = TensorProto {
        name: planned.name.clone(),
        dims: planned.dims.clone(),
        data_type: planned.element(source),
        ..TensorProto::default()
    };
    let as_numbers = |place: usize| {
        let tensor = &source.graph.initializers[place];
        if !tensor.external_data.is_empty() {
            let (name, element) = (&tensor.name, tensor.data_type);
            return Err(format!("initializer {name:?} is external data of element type {element}, which is not known"));
        }
        Ok(TensorProto { name: planned.name.clone(), dims: planned.dims.clone(), ..tensor.clone() })
    };
    let size = planned.size_bytes(source);
    if size.is_none_or(|size| size <= INSIDE) {
        let mut values = Vec::new();
        let is_written = planned.write(source, &mut |bytes| {
            values.extend_from_slice(bytes);
            Ok(())
        })?;
        return match planned.content {
            Content::Same(place) if !is_written => as_numbers(place),
            _ => Ok(TensorProto { raw_data: Some(Bytes::from(values)), ..empty }),
        };
    }
    let named = |error: std::io::Error| format!("{}: {error}", data_path.display());
    let file = match data {
        Some(file) => file,
        None => {
            let out = BufWriter::with_capacity(1 << 20, File::create(data_path).map_err(named)?);
            data.insert(DataFile { out, written: 0 })
        }
    };
    let begin = file.written.next_multiple_of(ALIGNMENT);
    file.out.write_all(&vec![0; (begin - file.written) as usize]).map_err(named)?;
    file.written = begin;
    let is_written = planned.write(source, &mut |bytes| {
        file.written += bytes.len() as u64;
        file.out.write_all(bytes).map_err(named)
    })?;
    match planned.content {
        Content::Same(place) if !is_written => as_numbers(place),
        _ => {
            let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value };
            let external_data = vec![
                entry("location", data_name.to_owned()),
                entry("offset", begin.to_string()),
                entry("length", (file.written - begin).to_string()),
            ];
            Ok(TensorProto { external_data, data_location: 1, ..empty })
        }
    }
}
