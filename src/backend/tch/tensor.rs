//! Converts libtorch's tensors, weights and errors to and from the types that all backends share.

use std::rc::Rc;

use safetensors::tensor::TensorView;
use tch::{Device, IValue, Kind, TchError, Tensor};

use crate::backend::failure::classify;
use crate::definition::{CaseFailure, Dtype};
use crate::fixture::{HostTensor, TensorData};

impl From<TchError> for CaseFailure {
    fn from(error: TchError) -> Self {
        let text = error.to_string();
        // If the error is in an archive's code, the last line says what happened, and the others say where.
        match text.lines().find_map(|line| line.strip_prefix("RuntimeError: ")) {
            Some(what) if what.contains("Double") => CaseFailure::unsupported(format!(
                "the archive computes in f64, and its inputs have to say so, as in `--input 'x:f64[batch,3]'`: {what}"
            )),
            Some(what) if what.contains("same dtype") || what.contains("should be the same") => {
                CaseFailure::unsupported(format!("the archive converts to f32 inside: {what}"))
            }
            what => classify(what.unwrap_or(&text)),
        }
    }
}

/// The dtype of a case; `None` for an element type that no case can have.
pub fn dtype_of(kind: Kind) -> Option<Dtype> {
    match kind {
        Kind::Float => Some(Dtype::F32),
        Kind::Half => Some(Dtype::F16),
        Kind::BFloat16 => Some(Dtype::Bf16),
        _ => None,
    }
}

/// A weight of a safetensors file on the host, of the same shape.
pub fn weight(view: &TensorView<'_>) -> Result<Tensor, CaseFailure> {
    let kind = match view.dtype() {
        safetensors::Dtype::F64 => Kind::Double,
        safetensors::Dtype::F32 => Kind::Float,
        safetensors::Dtype::F16 => Kind::Half,
        safetensors::Dtype::BF16 => Kind::BFloat16,
        other => return Err(CaseFailure::unsupported(format!("a weight has the element type {other:?}"))),
    };
    let shape: Vec<i64> = view.shape().iter().map(|&size| size as i64).collect();
    Ok(Tensor::f_from_data_size(view.data(), &shape, kind)?)
}

pub fn as_tensor(value: &IValue) -> Result<&Tensor, CaseFailure> {
    match value {
        IValue::Tensor(tensor) => Ok(tensor),
        other => Err(CaseFailure::failed(format!("{other:?} is not a tensor"))),
    }
}

/// A tensor on the host, of the same shape.
pub fn to_tensor(tensor: &HostTensor) -> Result<Tensor, CaseFailure> {
    let shape: Vec<i64> = tensor.shape.iter().map(|&size| size as i64).collect();
    let flat = match &tensor.data {
        TensorData::F32(values) => Tensor::from_slice(values),
        TensorData::F16(values) => Tensor::from_slice(values),
        // The crate would take bf16 for f16.
        TensorData::Bf16(values) => {
            let wide: Vec<f32> = values.iter().map(|value| value.to_f32()).collect();
            Tensor::from_slice(&wide).to_kind(Kind::BFloat16)
        }
        TensorData::F64(values) => Tensor::from_slice(values),
        TensorData::I8(values) => Tensor::from_slice(values),
        TensorData::I16(values) => Tensor::from_slice(values),
        TensorData::I32(values) => Tensor::from_slice(values),
        TensorData::I64(values) => Tensor::from_slice(values),
        TensorData::U8(values) => Tensor::from_slice(values),
        TensorData::Bool(values) => Tensor::from_slice(values),
        TensorData::U16(_) | TensorData::U32(_) | TensorData::U64(_) => {
            let dtype = tensor.element_type();
            return Err(CaseFailure::unsupported(format!("an input has the element type {dtype}, which tch lacks")));
        }
    };
    Ok(flat.f_reshape(&shape)?)
}

/// Collects the tensors of an output, in order, from any nested containers.
pub fn collect_outputs(value: IValue, outputs: &mut Vec<Rc<IValue>>) -> Result<(), CaseFailure> {
    match value {
        IValue::Tensor(_) => outputs.push(Rc::new(value)),
        IValue::TensorList(tensors) => {
            outputs.extend(tensors.into_iter().map(|tensor| Rc::new(IValue::Tensor(tensor))));
        }
        IValue::Tuple(values) | IValue::GenericList(values) => {
            values.into_iter().try_for_each(|value| collect_outputs(value, outputs))?;
        }
        IValue::GenericDict(entries) => {
            entries.into_iter().try_for_each(|(_, value)| collect_outputs(value, outputs))?;
        }
        IValue::None => {}
        other => return Err(CaseFailure::unsupported(format!("an output is {other:?} and not a tensor"))),
    }
    Ok(())
}

/// A copy on the host, of the same shape.
pub fn to_host(tensor: &Tensor) -> Result<HostTensor, CaseFailure> {
    let shape = tensor.size().into_iter().map(|size| size as usize).collect();
    let flat = tensor.to_device(Device::Cpu).contiguous().view(-1);
    let data = match tensor.kind() {
        Kind::Float | Kind::Half | Kind::BFloat16 => TensorData::F32(Vec::try_from(&flat.to_kind(Kind::Float))?),
        Kind::Double => TensorData::F64(Vec::try_from(&flat)?),
        Kind::Int8 => TensorData::I8(Vec::try_from(&flat)?),
        Kind::Int16 => TensorData::I16(Vec::try_from(&flat)?),
        Kind::Int => TensorData::I32(Vec::try_from(&flat)?),
        Kind::Int64 => TensorData::I64(Vec::try_from(&flat)?),
        Kind::Uint8 => TensorData::U8(Vec::try_from(&flat)?),
        Kind::Bool => TensorData::Bool(Vec::try_from(&flat)?),
        other => return Err(CaseFailure::unsupported(format!("an output has the element type {other:?}"))),
    };
    Ok(HostTensor { shape, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_read_in_its_own_element_type() {
        super::super::library::load().unwrap();
        let numbers = [1.5_f32, -2.0, 0.25, 8.0];
        let half: Vec<u8> = numbers.iter().flat_map(|&number| half::f16::from_f32(number).to_le_bytes()).collect();
        let view = TensorView::new(safetensors::Dtype::F16, vec![2, 2], &half).unwrap();
        let tensor = weight(&view).unwrap();
        assert_eq!((tensor.size(), tensor.kind()), (vec![2, 2], Kind::Half));
        assert_eq!(to_host(&tensor).unwrap().data, TensorData::F32(numbers.to_vec()));
        let integers = TensorView::new(safetensors::Dtype::I8, vec![1], &[1]).unwrap();
        assert!(weight(&integers).unwrap_err().message.contains("I8"));
    }
}
