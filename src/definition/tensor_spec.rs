//! The shape and element type of a model's inputs and outputs, with symbolic dimensions.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString};

/// The element type of an input or output tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display, EnumString)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ElementType {
    F32,
    F16,
    Bf16,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
}

impl ElementType {
    /// The names of all types.
    pub(crate) const NAMES: &str = "f32, f16, bf16, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool";

    /// Whether the elements are floating-point numbers.
    pub(crate) fn is_floating(self) -> bool {
        matches!(self, ElementType::F32 | ElementType::F16 | ElementType::Bf16 | ElementType::F64)
    }

    /// Bytes of one element.
    pub(crate) fn bytes(self) -> usize {
        match self {
            ElementType::F64 | ElementType::I64 | ElementType::U64 => 8,
            ElementType::F32 | ElementType::I32 | ElementType::U32 => 4,
            ElementType::F16 | ElementType::Bf16 | ElementType::I16 | ElementType::U16 => 2,
            ElementType::I8 | ElementType::U8 | ElementType::Bool => 1,
        }
    }
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
        if let Dimension::Fixed(size) = self { Some(*size) } else { None }
    }
}

/// The name of the dimension whose size is a case's batch size.
pub const BATCH: &str = "batch";

/// The name of the dimension whose size is a case's sequence length: tokens, or samples of audio.
pub const SEQUENCE: &str = "sequence";

/// Stands for all dimensions of an input, if not even their number is known.
pub const ANY_SHAPE: &str = "...";

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
    /// The seeded values of an integer input are from 0 to below this, such as a vocabulary's size. The default is 2;
    /// integers of 8 and 16 bits have any value of their type.
    pub below: Option<u64>,
    /// Every element of the input has this value, such as 1 in a mask.
    pub constant: Option<f64>,
}

impl TensorSpec {
    /// A tensor without restrictions on its values.
    pub fn new(name: impl Into<String>, dtype: ElementType, shape: Vec<Dimension>) -> Self {
        TensorSpec { name: name.into(), dtype, shape, below: None, constant: None }
    }

    /// The shape with the case's sizes.
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

    /// A tensor whose number of dimensions is unknown.
    pub(crate) fn of_any_shape(name: impl Into<String>, dtype: ElementType) -> Self {
        Self::new(name, dtype, vec![Dimension::Symbol(ANY_SHAPE.into())])
    }

    /// Whether not even the number of dimensions is known.
    pub(crate) fn has_any_shape(&self) -> bool {
        self.shape == [Dimension::Symbol(ANY_SHAPE.into())]
    }

    /// Returns true if a tensor of that shape can be the input.
    pub fn takes(&self, shape: &[usize]) -> bool {
        let fits = |(dimension, size): (&Dimension, &usize)| dimension.fixed().is_none_or(|fixed| fixed == *size);
        self.has_any_shape() || self.shape.len() == shape.len() && self.shape.iter().zip(shape).all(fits)
    }

    /// The same with these sizes, except for the batch if it stays open.
    #[must_use]
    pub fn with_sizes(&self, shape: &[usize], is_batch_open: bool) -> Self {
        let size = |(place, &size): (usize, &usize)| {
            let is_batch = place == 0 && is_batch_open && self.is_batched();
            if is_batch { self.shape[0].clone() } else { Dimension::Fixed(size) }
        };
        TensorSpec { shape: shape.iter().enumerate().map(size).collect(), ..self.clone() }
    }

    /// Whether the first dimension is the batch size, so that row `i` belongs to sample `i`.
    pub fn is_batched(&self) -> bool {
        self.shape.first() == Some(&Dimension::Symbol(BATCH.into()))
    }

    /// Whether a case has to give a sequence length.
    pub fn has_sequence(&self) -> bool {
        self.shape.contains(&Dimension::Symbol(SEQUENCE.into()))
    }
}

/// Gives open dimensions their sizes: by name, by input and place as in `x.2`, or as a sum of known sizes.
#[must_use]
pub fn with_dimensions(mut specs: Vec<TensorSpec>, sizes: &BTreeMap<String, usize>) -> Vec<TensorSpec> {
    let size = |text: &str| sizes.get(text).copied().or_else(|| text.parse().ok());
    for TensorSpec { name, shape, .. } in &mut specs {
        for (place, dimension) in shape.iter_mut().enumerate() {
            let Dimension::Symbol(symbol) = dimension else { continue };
            let sum = || symbol.split('+').try_fold(0, |sum: usize, term| sum.checked_add(size(term.trim())?));
            let named = sizes.get(&format!("{name}.{place}")).or_else(|| sizes.get(symbol.as_str())).copied();
            if let Some(size) = named.or_else(sum) {
                *dimension = Dimension::Fixed(size);
            }
        }
    }
    specs
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dimension::Fixed(size) => size.fmt(f),
            Dimension::Symbol(symbol) => symbol.fmt(f),
        }
    }
}

/// The text of `--input`: `x:f32[batch,3,224,224]`, `ids:i64[batch,128]<30522` or `sr:i64[]=16000`.
impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<String> = self.shape.iter().map(Dimension::to_string).collect();
        write!(f, "{}:{}[{}]", self.name, self.dtype, shape.join(","))?;
        match (self.constant, self.below) {
            (Some(constant), _) => write!(f, "={constant}"),
            (None, Some(below)) => write!(f, "<{below}"),
            (None, None) => Ok(()),
        }
    }
}

impl FromStr for TensorSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let read = || {
            // The name may have a colon inside.
            let (name, rest) = text.rsplit_once(':')?;
            let (dtype, rest) = rest.split_once('[')?;
            let (shape, values) = rest.split_once(']')?;
            let dimension = |text: &str| match text.parse() {
                Ok(size) => Dimension::Fixed(size),
                Err(_) => Dimension::Symbol(text.to_owned()),
            };
            let shape: Vec<Dimension> =
                shape.split(',').map(str::trim).filter(|text| !text.is_empty()).map(dimension).collect();
            if shape.contains(&Dimension::Fixed(0)) {
                return None;
            }
            let mut spec = TensorSpec::new(name, dtype.parse().ok()?, shape);
            match values.split_at_checked(1) {
                None => {}
                Some(("=", constant)) => {
                    spec.constant = Some(constant.parse().ok().filter(|number: &f64| number.is_finite())?)
                }
                Some(("<", below)) => spec.below = Some(below.parse().ok()?),
                Some(_) => return None,
            }
            Some(spec)
        };
        read().with_context(|| {
            format!(
                "{text:?} is not an input; write NAME:TYPE[SIZES], as in `x:f32[batch,3,224,224]`, followed by `<30522` for integers \
                 below that number, or by `=1` for that number in every element; the types are {}",
                ElementType::NAMES
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_written_as_it_is_read() {
        for text in ["x:f32[batch,3,height,640]", "a:0:i64[batch,128]<30522", "sr:i64[]=16000", "gain:f32[1]=0.5"] {
            assert_eq!(text.parse::<TensorSpec>().unwrap().to_string(), text);
        }
        for wrong in ["x", "x:f32", "x:f33[1]", "f32[1,2]", "x:f32[1", "x:f32[1]>2", "x:i64[2]<many", "x:f32[0,3]"] {
            let error = wrong.parse::<TensorSpec>().unwrap_err().to_string();
            assert!(error.contains("as in `x:f32[batch,3,224,224]`"), "{error}");
        }
    }

    #[test]
    fn every_type_is_read_by_its_name() {
        assert!(ElementType::NAMES.split(", ").all(|name| name.parse::<ElementType>().unwrap().to_string() == name));
    }

    #[test]
    fn sizes_are_put_in_by_name_by_place_and_as_sums() {
        let spec: TensorSpec = "x:f32[batch,time,x.2,past + time,3]".parse().unwrap();
        let sizes = [("time", 16), ("x.2", 48), ("past", 4)].map(|(name, size)| (name.to_owned(), size));
        let known = with_dimensions(vec![spec.clone()], &BTreeMap::from(sizes));
        assert_eq!(known[0].to_string(), "x:f32[batch,16,48,20,3]");
        let by_name = with_dimensions(vec![spec.clone()], &BTreeMap::from([("past + time".to_owned(), 9)]));
        assert_eq!(by_name[0].to_string(), "x:f32[batch,time,x.2,9,3]");
        let endless: TensorSpec = "x:f32[18446744073709551615 + 1]".parse().unwrap();
        assert_eq!(with_dimensions(vec![endless.clone()], &BTreeMap::new()), [endless]);
        let by_place = with_dimensions(vec![spec], &BTreeMap::from([("x.1".to_owned(), 7)]));
        assert_eq!(by_place[0].to_string(), "x:f32[batch,7,x.2,past + time,3]");
    }
}
