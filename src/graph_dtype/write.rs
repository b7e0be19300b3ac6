//! Writes a graph with its initializers: small ones inside, the others in one data file beside it.

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Result, ensure};
use fs_err::File;
use prost::Message;

use super::Rewritten;
use super::planned::Content;
use crate::onnx::Source;
use crate::onnx::proto::{ModelProto, StringStringEntryProto, TensorProto};

/// Initializers with more bytes than this go to the data file.
const INSIDE: usize = 1024;
/// The alignment of initializers in the data file, so that they can be used from there without a copy.
const ALIGNMENT: u64 = 64;

/// Writes the graph to `destination` and, if an initializer is large, `<stem>.data` beside it.
pub(super) fn write(source: &Source, rewritten: Rewritten, destination: &Path) -> Result<()> {
    let Rewritten { mut graph, initializers, .. } = rewritten;
    let data_path = destination.with_extension("data");
    let mut data: Option<BufWriter<File>> = None;
    let mut written: u64 = 0;
    for planned in initializers {
        let bytes = planned.bytes(source)?;
        let new = TensorProto {
            name: planned.name,
            dims: planned.dims,
            data_type: planned.element,
            ..TensorProto::default()
        };
        graph.initializers.push(match (bytes, planned.content) {
            (Some(bytes), _) if bytes.len() <= INSIDE => TensorProto { raw_data: Some(bytes), ..new },
            (Some(bytes), _) => {
                let out = match &mut data {
                    Some(out) => out,
                    None => data.insert(BufWriter::with_capacity(1 << 20, File::create(&data_path)?)),
                };
                let begin = written.next_multiple_of(ALIGNMENT);
                out.write_all(&vec![0; (begin - written) as usize])?;
                out.write_all(&bytes)?;
                written = begin + bytes.len() as u64;
                let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value };
                let external_data = vec![
                    entry("location", data_path.file_name().unwrap_or_default().to_string_lossy().into_owned()),
                    entry("offset", begin.to_string()),
                    entry("length", bytes.len().to_string()),
                ];
                TensorProto { external_data, data_location: 1, ..new }
            }
            (None, Content::Same(place)) => {
                let TensorProto { name, dims, data_type, .. } = new;
                let tensor = source.graph.initializers[place].clone();
                ensure!(
                    tensor.external_data.is_empty(),
                    "initializer {name:?} is external data of element type {data_type}, which is not known"
                );
                TensorProto { name, dims, ..tensor }
            }
            (None, Content::Made(_)) => new,
        });
    }
    if let Some(mut out) = data {
        out.flush()?;
    }
    // From version 4 on, an initializer need not be an input too.
    let ir_version = source.model.ir_version.max(4);
    let model = ModelProto { ir_version, graph: Some(graph), ..source.model.clone() };
    Ok(fs_err::write(destination, model.encode_to_vec())?)
}
