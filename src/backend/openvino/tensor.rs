//! Converts tensors between the host and OpenVINO.

use openvino::{ElementType, Shape, Tensor};

use crate::backend::runtime::output_of_bytes;
use crate::definition::CaseFailure;
use crate::fixture::{HostTensor, TensorData};

pub(super) fn to_tensor(tensor: &HostTensor) -> Result<Tensor, CaseFailure> {
    let dimensions: Vec<i64> = tensor.shape.iter().map(|&size| size as i64).collect();
    if dimensions.is_empty() {
        return Err(CaseFailure::unsupported(
            "an input has no dimensions, and OpenVINO's C interface makes no such tensors",
        ));
    }
    let shape = Shape::new(&dimensions)?;
    macro_rules! fill {
        ($element:ident, $values:expr) => {{
            let mut made = Tensor::new(ElementType::$element, &shape)?;
            // An empty tensor may have no memory that a slice could point to.
            if !$values.is_empty() {
                made.get_data_mut()?.copy_from_slice($values);
            }
            made
        }};
    }
    Ok(match &tensor.data {
        TensorData::F32(values) => fill!(F32, values),
        TensorData::F16(values) => fill!(F16, values),
        TensorData::Bf16(values) => fill!(Bf16, values),
        TensorData::F64(values) => fill!(F64, values),
        TensorData::I8(values) => fill!(I8, values),
        TensorData::I16(values) => fill!(I16, values),
        TensorData::I32(values) => fill!(I32, values),
        TensorData::I64(values) => fill!(I64, values),
        TensorData::U8(values) => fill!(U8, values),
        TensorData::U16(values) => fill!(U16, values),
        TensorData::U32(values) => fill!(U32, values),
        TensorData::U64(values) => fill!(U64, values),
        TensorData::Bool(values) => fill!(Boolean, &values.iter().map(|&value| u8::from(value)).collect::<Vec<_>>()),
    })
}

pub(super) fn to_host(tensor: &Tensor) -> Result<HostTensor, CaseFailure> {
    let shape = shape(tensor)?;
    let kind = match tensor.get_element_type()? {
        ElementType::Boolean => "bool".to_owned(),
        other => other.to_string().to_lowercase(),
    };
    // An empty tensor may have no memory that a slice could point to.
    let bytes: &[u8] = if shape.contains(&0) { &[] } else { tensor.get_raw_data()? };
    output_of_bytes(&kind, shape, bytes)
}

pub(super) fn shape(tensor: &Tensor) -> Result<Vec<usize>, CaseFailure> {
    let shape = match tensor.get_shape() {
        Ok(shape) => shape,
        // The C interface has no shape without dimensions.
        Err(_) if tensor.get_size()? == 1 => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    Ok(shape.get_dimensions().iter().map(|&size| size.max(0) as usize).collect())
}

#[cfg(test)]
mod tests {
    use super::super::library::core;
    use super::*;
    use crate::definition::Status;

    #[test]
    fn tensors_of_every_element_type_come_back() {
        if let Err(why) = core().map(drop) {
            eprintln!("left out: {why}");
            return;
        }
        let tensors = [
            (vec![2, 2], TensorData::F32(vec![1.5, -0.0, f32::MIN, 3.0])),
            (vec![2], TensorData::F64(vec![0.1, -1e300])),
            (vec![1, 2], TensorData::I32(vec![i32::MIN, 7])),
            (vec![2, 1], TensorData::I64(vec![i64::MAX, -7])),
            (vec![3], TensorData::I8(vec![-128, 1, 127])),
            (vec![2], TensorData::I16(vec![i16::MIN, 7])),
            (vec![3], TensorData::U8(vec![0, 1, 255])),
            (vec![2], TensorData::U16(vec![0, u16::MAX])),
            (vec![2], TensorData::U32(vec![0, u32::MAX])),
            (vec![2], TensorData::U64(vec![0, u64::MAX])),
            (vec![3], TensorData::Bool(vec![true, false, true])),
            (vec![1, 4, 0, 8], TensorData::F32(Vec::new())),
            (vec![0], TensorData::Bool(Vec::new())),
        ];
        for (shape, data) in tensors {
            let tensor = HostTensor { shape, data };
            assert_eq!(to_host(&to_tensor(&tensor).unwrap()).unwrap(), tensor);
        }
        let number = HostTensor { shape: Vec::new(), data: TensorData::I64(vec![5]) };
        assert_eq!(to_tensor(&number).map(drop).unwrap_err().status, Status::Unsupported);
    }
}
