//! The facts about a tensor before it is computed: its shape, and the values of the small whole numbers that shapes are
//! made of.

use crate::onnx::proto::{TensorProto, element};
use anyhow::{Context, Result};

/// Longer tensors are no shapes.
const MOST_KNOWN: usize = 4096;

/// A tensor of a graph whose inputs have sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Value {
    pub shape: Vec<usize>,
    /// The elements, where they are whole numbers that do not depend on the inputs' values.
    pub known: Option<Vec<i64>>,
}

impl Value {
    pub fn of_shape(shape: Vec<usize>) -> Self {
        Value { shape, known: None }
    }

    /// A vector of whole numbers.
    pub fn vector(numbers: Vec<i64>) -> Self {
        Value { shape: vec![numbers.len()], known: Some(numbers) }
    }

    /// With these elements, if they are as many as the shape says and few enough to be of use.
    pub fn with_known(shape: Vec<usize>, known: Option<Vec<i64>>) -> Self {
        let known = known.filter(|known| known.len() <= MOST_KNOWN && elements(&shape) == Some(known.len() as u64));
        Value { shape, known }
    }

    /// A constant of the graph; its values only where they are in the graph's file.
    ///
    /// # Errors
    /// A size is negative.
    pub fn of_tensor(tensor: &TensorProto) -> Result<Self> {
        let wrong = || format!("the constant {:?} has a size below 0", tensor.name);
        let shape: Option<Vec<usize>> = tensor.dims.iter().map(|&size| usize::try_from(size).ok()).collect();
        Ok(Value::with_known(shape.with_context(wrong)?, whole_numbers(tensor)))
    }
}

/// The number of elements. Returns `None` if it is more than a `u64` holds.
pub(super) fn elements(shape: &[usize]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |elements, &size| elements.checked_mul(size as u64))
}

/// Whether the type holds whole numbers, or truth.
pub(super) fn is_whole(data_type: i64) -> bool {
    matches!(data_type, 2..=7 | 9 | 12 | 13)
}

fn whole_numbers(tensor: &TensorProto) -> Option<Vec<i64>> {
    if tensor.data_location != 0 || tensor.elements()? > MOST_KNOWN as u64 {
        return None;
    }
    let raw = tensor.raw_data.as_ref();
    match tensor.data_type {
        element::INT64 => Some(match raw {
            Some(raw) => raw.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect(),
            None => tensor.int64_data.clone(),
        }),
        element::INT32 | element::BOOL => Some(match raw {
            Some(raw) if tensor.data_type == element::BOOL => raw.iter().map(|&byte| byte.into()).collect(),
            Some(raw) => raw.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes).into()).collect(),
            None => tensor.int32_data.iter().map(|&number| number.into()).collect(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use prost::bytes::Bytes;

    use super::*;

    #[test]
    fn constants_are_known_where_they_are_whole_and_in_the_file() {
        let raw = Bytes::copy_from_slice(&[2_i64, -1].map(i64::to_le_bytes).concat());
        let tensor =
            TensorProto { dims: vec![2], data_type: 7, raw_data: Some(raw), name: "s".into(), ..Default::default() };
        assert_eq!(Value::of_tensor(&tensor).unwrap(), Value::vector(vec![2, -1]));
        let typed = TensorProto { int64_data: vec![2, -1], raw_data: None, ..tensor.clone() };
        assert_eq!(Value::of_tensor(&typed).unwrap(), Value::vector(vec![2, -1]));
        let elsewhere = TensorProto { data_location: 1, raw_data: None, ..tensor.clone() };
        assert_eq!(Value::of_tensor(&elsewhere).unwrap(), Value::of_shape(vec![2]));
        let cut_short = TensorProto { dims: vec![3], ..tensor.clone() };
        assert_eq!(Value::of_tensor(&cut_short).unwrap(), Value::of_shape(vec![3]));
        assert!(Value::of_tensor(&TensorProto { dims: vec![-1], ..tensor }).is_err());
    }

    #[test]
    fn more_elements_than_a_number_holds_are_none() {
        assert_eq!(elements(&[3, 0, 5]), Some(0));
        assert_eq!(elements(&[usize::MAX, 3]), None);
    }
}
