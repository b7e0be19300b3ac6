//! Writes a graph with its initializers: small ones inside, the others in one data file beside it.

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Result, ensure};
use fs_err::File;
use prost::Message;
use prost::bytes::Bytes;

use super::planned::{Content, Planned};
use crate::onnx::Source;
use crate::onnx::proto::{GraphProto, ModelProto, StringStringEntryProto, TensorProto};

/// Initializers with more bytes than this go to the data file.
const INSIDE: u64 = 1024;
/// The alignment of initializers in the data file, so that they can be used from there without a copy.
const ALIGNMENT: u64 = 64;

/// Writes `graph` with `initializers` to `destination` and, if one is large, `<stem>.data` beside it.
pub(super) fn write(
    source: &Source,
    mut graph: GraphProto,
    initializers: &[Planned],
    destination: &Path,
) -> Result<()> {
    let mut data = DataFile { path: &destination.with_extension("data"), out: None, written: 0 };
    for planned in initializers {
        graph.initializers.push(tensor(source, planned, &mut data)?);
    }
    if let Some(mut out) = data.out {
        out.flush()?;
    }
    // From version 4 on, an initializer need not be an input too.
    let ir_version = source.model.ir_version.max(4);
    let model = ModelProto { ir_version, graph: Some(graph), ..source.model.clone() };
    Ok(fs_err::write(destination, model.encode_to_vec())?)
}

/// The file for large initializers, which exists once there is one.
struct DataFile<'a> {
    path: &'a Path,
    out: Option<BufWriter<File>>,
    written: u64,
}

impl DataFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.out.is_none() {
            self.out = Some(BufWriter::with_capacity(1 << 20, File::create(self.path)?));
        }
        self.written += bytes.len() as u64;
        self.out.as_mut().map_or(Ok(()), |out| out.write_all(bytes))?;
        Ok(())
    }
}

fn tensor(source: &Source, planned: &Planned, data: &mut DataFile<'_>) -> Result<TensorProto> {
    let (name, dims) = (planned.name.clone(), planned.dims.clone());
    let new = TensorProto { name, dims, data_type: planned.element(source), ..TensorProto::default() };
    let as_numbers = |place: usize| {
        let tensor = &source.graph.initializers[place];
        ensure!(
            tensor.external_data.is_empty(),
            "initializer {:?} is external data of element type {}, which is not known",
            tensor.name,
            tensor.data_type
        );
        Ok(TensorProto { name: new.name.clone(), dims: new.dims.clone(), ..tensor.clone() })
    };
    if planned.size_bytes(source).is_none_or(|size| size <= INSIDE) {
        let mut values = Vec::new();
        let is_written = planned.write(source, &mut |bytes| {
            values.extend_from_slice(bytes);
            Ok(())
        })?;
        return match planned.content {
            Content::Same(place) if !is_written => as_numbers(place),
            _ => Ok(TensorProto { raw_data: Some(Bytes::from(values)), ..new }),
        };
    }
    let begin = data.written.next_multiple_of(ALIGNMENT);
    data.write(&vec![0; (begin - data.written) as usize])?;
    let is_written = planned.write(source, &mut |bytes| data.write(bytes))?;
    match planned.content {
        Content::Same(place) if !is_written => as_numbers(place),
        _ => {
            let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value };
            let external_data = vec![
                entry("location", data.path.file_name().unwrap_or_default().to_string_lossy().into_owned()),
                entry("offset", begin.to_string()),
                entry("length", (data.written - begin).to_string()),
            ];
            Ok(TensorProto { external_data, data_location: 1, ..new })
        }
    }
}
