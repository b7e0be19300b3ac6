//! Reads an ONNX file and the values of its initializers, inside the file or in data files beside it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use memmap2::Mmap;
use prost::Message;
use prost::bytes::Bytes;

use super::proto::{GraphProto, ModelProto, TensorProto, element};
use crate::definition::Dtype;

/// An ONNX file that was read; `model.graph` is absent, `graph` has it.
pub(crate) struct Source {
    path: PathBuf,
    pub model: ModelProto,
    pub graph: GraphProto,
    data_files: RefCell<BTreeMap<String, Rc<Mmap>>>,
}

/// The bytes of a tensor, little-endian and without gaps.
pub(crate) enum TensorBytes<'a> {
    Inside(Cow<'a, [u8]>),
    External { file: Rc<Mmap>, begin: usize, end: usize },
}

impl TensorBytes<'_> {
    pub fn as_slice(&self) -> &[u8] {
        match self {
            TensorBytes::Inside(bytes) => bytes,
            TensorBytes::External { file, begin, end } => &file[*begin..*end],
        }
    }
}

const EXTERNAL: i32 = 1;

impl Source {
    /// Reads the file; data files beside it are opened when a tensor's values are asked for.
    ///
    /// # Errors
    /// It cannot be read, or is not a whole ONNX model.
    pub fn read(path: &Path) -> Result<Self, String> {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let file = File::open(path).map_err(|error| named(&error))?;
        // SAFETY: as for data files. Weights inside the file are not read before they are asked for.
        let map = unsafe { Mmap::map(&file) }.map_err(|error| named(&error))?;
        let mut model = ModelProto::decode(Bytes::from_owner(map))
            .map_err(|_| named(&"not a whole ONNX model (cut short, or another format)"))?;
        let graph = model.graph.take().ok_or_else(|| named(&"an ONNX model without a graph"))?;
        Ok(Source { path: path.to_owned(), model, graph, data_files: RefCell::default() })
    }

    /// Version of ONNX's own operator set.
    pub fn opset(&self) -> i64 {
        let own = self.model.opset_imports.iter().find(|import| matches!(import.domain.as_str(), "" | "ai.onnx"));
        own.map_or(1, |import| import.version)
    }

    /// The names of the files with external data, each once.
    pub fn data_file_names(&self) -> Vec<&str> {
        let external = self.graph.initializers.iter().filter(|tensor| tensor.data_location == EXTERNAL);
        let mut names: Vec<&str> = external.filter_map(|tensor| external_entry(tensor, "location")).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The bytes of a tensor of which one element takes `width` bytes; none for one that stores its values as numbers
    /// of another kind.
    ///
    /// # Errors
    /// The data file is missing or too short, or the data do not fit the shape.
    pub fn bytes<'a>(&self, tensor: &'a TensorProto, width: usize) -> Result<Option<TensorBytes<'a>>, String> {
        let named = |error: String| format!("{}: initializer {:?}: {error}", self.path.display(), tensor.name);
        let elements = tensor.elements().ok_or_else(|| named(format!("impossible shape {:?}", tensor.dims)))?;
        let wanted = elements.checked_mul(width as u64).and_then(|bytes| usize::try_from(bytes).ok());
        let wanted = wanted.ok_or_else(|| named(format!("impossible shape {:?}", tensor.dims)))?;
        let bytes = if tensor.data_location == EXTERNAL {
            self.external_bytes(tensor, wanted).map_err(named)?
        } else if let Some(raw) = &tensor.raw_data {
            TensorBytes::Inside(Cow::Borrowed(raw))
        } else if tensor.data_type == element::FLOAT && (!tensor.float_data.is_empty() || wanted == 0) {
            let floats = tensor.float_data.iter().flat_map(|value| value.to_le_bytes());
            TensorBytes::Inside(Cow::Owned(floats.collect()))
        } else if tensor.data_type != element::FLOAT && width <= 4 && !tensor.int32_data.is_empty() {
            // Numbers of fewer bytes lie in these too.
            let numbers = tensor.int32_data.iter().flat_map(|value| value.to_le_bytes().into_iter().take(width));
            TensorBytes::Inside(Cow::Owned(numbers.collect()))
        } else {
            return Ok(None);
        };
        let length = bytes.as_slice().len();
        if length != wanted {
            return Err(named(format!("{length} bytes of data, but shape {:?} needs {wanted}", tensor.dims)));
        }
        Ok(Some(bytes))
    }

    /// The bytes of a tensor of f32.
    ///
    /// # Errors
    /// As [`Self::bytes`], or there are none.
    pub fn float_bytes<'a>(&self, tensor: &'a TensorProto) -> Result<TensorBytes<'a>, String> {
        self.bytes(tensor, 4)?
            .ok_or_else(|| format!("{}: initializer {:?} has no data", self.path.display(), tensor.name))
    }

    fn external_bytes(&self, tensor: &TensorProto, wanted: usize) -> Result<TensorBytes<'static>, String> {
        let location = external_entry(tensor, "location").ok_or("external data without a `location`")?;
        let number = |key: &str| match external_entry(tensor, key) {
            Some(text) => text.parse::<usize>().map(Some).map_err(|_| format!("`{key}` is {text:?} and not a number")),
            None => Ok(None),
        };
        let begin = number("offset")?.unwrap_or(0);
        let length = number("length")?.unwrap_or(wanted);
        let file = self.data_file(location)?;
        let end = begin.checked_add(length).filter(|&end| end <= file.len()).ok_or_else(|| {
            format!(
                "{length} bytes at {begin} are beyond the end of {location} ({} bytes): is it cut short?",
                file.len()
            )
        })?;
        Ok(TensorBytes::External { file, begin, end })
    }

    fn data_file(&self, location: &str) -> Result<Rc<Mmap>, String> {
        if let Some(file) = self.data_files.borrow().get(location) {
            return Ok(Rc::clone(file));
        }
        let relative = Path::new(location);
        if !relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(format!("data file {location:?} is not in the folder of the graph, where ONNX wants it"));
        }
        let path = self.path.parent().unwrap_or(Path::new("")).join(relative);
        let named = |error: std::io::Error| format!("data file {}: {error}", path.display());
        let file = File::open(&path).map_err(named)?;
        // SAFETY: the map is read only; a file that another process cuts short meanwhile would end this one, as for
        // every other reader of weights.
        let map = Rc::new(unsafe { Mmap::map(&file) }.map_err(named)?);
        self.data_files.borrow_mut().insert(location.to_owned(), Rc::clone(&map));
        Ok(map)
    }
}

/// What a file says of the type that it computes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nature {
    pub dtype: Dtype,
    /// Files with weights, relative to the graph.
    pub data_files: Vec<String>,
}

/// Reads the type that a file computes in.
///
/// # Errors
/// The file cannot be read or is not a whole ONNX model.
pub fn read_nature(path: &Path) -> Result<Nature, String> {
    let source = Source::read(path)?;
    let dtype = source.graph.dtype();
    Ok(Nature { dtype, data_files: source.data_file_names().into_iter().map(str::to_owned).collect() })
}

/// The numbers that little-endian bytes stand for.
pub(crate) fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk))
}

fn external_entry<'a>(tensor: &'a TensorProto, key: &str) -> Option<&'a str> {
    tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
}
