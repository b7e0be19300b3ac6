//! The shape and element type of a model's inputs and outputs, with symbolic dimensions.

use std::fmt;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use strum::Display;

/// The element type of an input or output tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ElementType {
    F32,
    F16,
    F64,
    I32,
    I64,
    U8,
    Bool,
}

/// One dimension: a number, or a name that a case or a definition gives a number to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Dimension {
    Fixed(usize),
    Symbol(String),
}

impl Dimension {
    /// The number, if it is one.
    pub fn fixed(&self) -> Option<usize> {
        match self {
            Dimension::Fixed(size) => Some(*size),
            Dimension::Symbol(_) => None,
        }
    }
}

/// The dimension that a case's batch size stands for.
pub const BATCH: &str = "batch";

/// The dimension that a case's sequence length stands for: tokens, or samples of sound.
pub const SEQUENCE: &str = "sequence";

/// The sizes that a case gives to the symbolic dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub batch: usize,
    pub sequence: Option<usize>,
}

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorSpec {
    pub name: String,
    pub dtype: ElementType,
    pub shape: Vec<Dimension>,
    /// The seeded values of an integer input are below this, such as a vocabulary's size. The default is 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<u64>,
    /// Every element of the input has this value, such as 1 in a mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constant: Option<i64>,
}

impl TensorSpec {
    /// A tensor without restrictions on its values.
    pub fn new(name: impl Into<String>, dtype: ElementType, shape: Vec<Dimension>) -> Self {
        TensorSpec { name: name.into(), dtype, shape, below: None, constant: None }
    }

    /// The shape with the case's sizes put in.
    ///
    /// # Errors
    /// A dimension has no size; the message names it.
    pub fn concrete_shape(&self, sizes: Sizes) -> Result<Vec<usize>> {
        self.shape
            .iter()
            .map(|dimension| match dimension {
                Dimension::Fixed(size) => Ok(*size),
                Dimension::Symbol(symbol) => {
                    let size = match symbol.as_str() {
                        BATCH => Some(sizes.batch),
                        SEQUENCE => sizes.sequence,
                        _ => None,
                    };
                    size.with_context(|| format!("dimension {symbol:?} of {:?} has no size", self.name))
                }
            })
            .collect()
    }

    /// Whether the first dimension is the batch size, so that row `i` belongs to sample `i`.
    pub fn is_batched(&self) -> bool {
        self.shape.first() == Some(&Dimension::Symbol(BATCH.into()))
    }

    /// Whether a case has to say a sequence length.
    pub fn has_sequence(&self) -> bool {
        self.shape.contains(&Dimension::Symbol(SEQUENCE.into()))
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<String> = self
            .shape
            .iter()
            .map(|dimension| match dimension {
                Dimension::Fixed(size) => size.to_string(),
                Dimension::Symbol(symbol) => symbol.clone(),
            })
            .collect();
        write!(f, "{} {}[{}]", self.name, self.dtype, shape.join("×"))
    }
}
