//! Initializers of a new graph before their values are there.

use anyhow::Result;
use prost::bytes::Bytes;

use crate::onnx::Source;
use crate::onnx::proto::{TensorProto, element_bytes};

/// A new initializer.
pub(super) struct Planned {
    pub name: String,
    pub dims: Vec<i64>,
    pub element: i32,
    pub content: Content,
}

/// Where the values of a new initializer come from.
pub(super) enum Content {
    /// An initializer of the source as it is, by its place.
    Same(usize),
    /// Its bytes are computed from the source's values.
    Made(Compute),
}

type Compute = Box<dyn Fn(&Source) -> Result<Vec<u8>>>;

impl Content {
    pub fn made(bytes: impl Fn(&Source) -> Result<Vec<u8>> + 'static) -> Self {
        Content::Made(Box::new(bytes))
    }
}

impl Planned {
    /// The number of bytes of its values, if they are stored as bytes.
    pub fn size_bytes(&self) -> Option<u64> {
        let elements = TensorProto { dims: self.dims.clone(), ..TensorProto::default() }.elements()?;
        elements.checked_mul(element_bytes(self.element)? as u64)
    }

    /// The values; `None` if they are not stored as bytes.
    ///
    /// # Errors
    /// The source's values are missing or do not fit their shape.
    pub fn bytes(&self, source: &Source) -> Result<Option<Bytes>> {
        match &self.content {
            Content::Made(bytes) => Ok(Some(bytes(source)?.into())),
            Content::Same(place) => match element_bytes(self.element) {
                Some(width) => source.bytes(&source.graph.initializers[*place], width),
                None => Ok(None),
            },
        }
    }
}
