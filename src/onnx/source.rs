//! Reads an ONNX file and the values of its initializers, inside the file or in data files beside it.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fs_err::File;
use memmap2::Mmap;
use prost::Message;
use prost::bytes::Bytes;

use super::proto::{GraphProto, ModelProto, TensorProto, element, element_bytes};

/// An ONNX file that was read. `graph` holds its graph, and `model.graph` is absent.
pub(crate) struct Source {
    path: PathBuf,
    pub model: ModelProto,
    pub graph: GraphProto,
}

const EXTERNAL: i32 = 1;

impl Source {
    /// Reads the file; data files beside it are opened when a tensor's values are asked for.
    pub fn read(path: &Path) -> Result<Self> {
        let whose = || path.display().to_string();
        let model = ModelProto::decode(Bytes::from_owner(map_file(path)?)).ok();
        let model = model.context("not a whole ONNX model (cut short, or another format)");
        let mut model = model.with_context(whose)?;
        let graph = model.graph.take().context("an ONNX model without a graph").with_context(whose)?;
        Ok(Source { path: path.to_owned(), model, graph })
    }

    /// The version of ONNX's own opset.
    pub fn opset(&self) -> i64 {
        let own = self.model.opset_imports.iter().find(|import| matches!(import.domain.as_str(), "" | "ai.onnx"));
        own.map_or(1, |import| import.version)
    }

    /// The names of the files with external data, each once, relative to the graph; those of graphs inside nodes are
    /// included. A file outside the graph's folder may be any file of the machine: it is left out, and its values are
    /// never read.
    pub fn data_file_names(&self) -> Vec<String> {
        let flat = self.graph.flat();
        let external = flat.initializers.iter().filter(|tensor| tensor.data_location == EXTERNAL);
        let names: BTreeSet<&str> = external.filter_map(|tensor| external_entry(tensor, "location")).collect();
        names.into_iter().filter(|name| is_beside(name)).map(str::to_owned).collect()
    }

    /// The bytes of a tensor's elements, little-endian and without gaps.
    pub fn bytes(&self, tensor: &TensorProto) -> Result<Bytes> {
        self.stored_bytes(tensor).with_context(|| format!("{}: initializer {:?}", self.path.display(), tensor.name))
    }

    fn stored_bytes(&self, tensor: &TensorProto) -> Result<Bytes> {
        let unknown = || format!("elements of the type {} are not read", element::name(tensor.data_type));
        let width = element_bytes(tensor.data_type).with_context(unknown)?;
        let wanted = tensor.elements().and_then(|elements| elements.checked_mul(width as u64));
        let wanted = wanted.and_then(|bytes| usize::try_from(bytes).ok());
        let wanted = wanted.with_context(|| format!("impossible shape {:?}", tensor.dims))?;
        let bytes = match tensor.inside() {
            Some(bytes) => bytes,
            None => self.external_bytes(tensor, wanted)?,
        };
        let length = bytes.len();
        ensure!(length == wanted, "{length} bytes of data, but shape {:?} needs {wanted}", tensor.dims);
        Ok(bytes)
    }

    /// The numbers of a tensor of f32.
    pub fn floats(&self, tensor: &TensorProto) -> Result<Vec<f32>> {
        Ok(self.bytes(tensor)?.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect())
    }

    fn external_bytes(&self, tensor: &TensorProto, wanted: usize) -> Result<Bytes> {
        let location = external_entry(tensor, "location").context("external data without a `location`")?;
        let number = |key: &str, default: usize| {
            let text = external_entry(tensor, key);
            text.map_or(Ok(default), str::parse).with_context(|| format!("`{key}` is {text:?} and not a number"))
        };
        let (begin, length) = (number("offset", 0)?, number("length", wanted)?);
        ensure!(is_beside(location), "data file {location:?} is not in the folder of the graph, where ONNX wants it");
        let file = Bytes::from_owner(map_file(&self.path.with_file_name(location)).context("data file")?);
        let end = begin.checked_add(length).filter(|&end| end <= file.len()).with_context(|| {
            format!(
                "{length} bytes at {begin} are beyond the end of {location} ({} bytes): is it cut short?",
                file.len()
            )
        })?;
        Ok(file.slice(begin..end))
    }
}

/// Whether a data file of this name is in the folder of its graph.
fn is_beside(location: &str) -> bool {
    let mut components = Path::new(location).components();
    components.all(|component| matches!(component, Component::Normal(_) | Component::CurDir))
}

/// Maps a file into memory.
pub(crate) fn map_file(path: &Path) -> Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: the map is read only. If another process cuts the file short meanwhile, this process ends, as any other
    // reader of weights would.
    unsafe { Mmap::map(file.file()) }.with_context(|| path.display().to_string())
}

impl TensorProto {
    /// The range of the elements in the data file of this name and length, if they are in it.
    pub(crate) fn external_range(&self, location: &str, file: usize) -> Option<std::ops::Range<usize>> {
        let is_there = self.data_location == EXTERNAL && external_entry(self, "location") == Some(location);
        let number = |key: &str| external_entry(self, key).and_then(|text| text.parse::<usize>().ok());
        let wanted = || usize::try_from(self.elements()?).ok()?.checked_mul(element_bytes(self.data_type)?);
        let begin = number("offset").unwrap_or(0);
        let end = begin.checked_add(number("length").or_else(wanted)?)?;
        (is_there && end <= file).then_some(begin..end)
    }
}

fn external_entry<'a>(tensor: &'a TensorProto, key: &str) -> Option<&'a str> {
    tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
}
