//! ONNX Runtime's values and errors in the words of the other backends.

use ort::memory::AllocationDevice;
use ort::value::{
    DynTensor, DynTensorValueType, DynValue, PrimitiveTensorElementType, Tensor, TensorElementType, ValueType,
};

use crate::backend::failure::classify;
use crate::definition::CaseFailure;
use crate::fixture::{HostTensor, TensorData, with_values};

impl<T> From<ort::Error<T>> for CaseFailure {
    fn from(error: ort::Error<T>) -> Self {
        classify(error)
    }
}

/// A tensor in the host's memory, of the same shape.
///
/// # Errors
/// ONNX Runtime refuses the shape.
pub fn to_value(tensor: &HostTensor) -> ort::Result<DynTensor> {
    let shape = tensor.shape.clone();
    Ok(with_values!(&tensor.data, values => Tensor::from_array((shape, values.clone()))?.upcast()))
}

/// A copy on the host, of the same shape, from whatever memory the tensor is in.
///
/// # Errors
/// `unsupported`: it is no tensor, or the host has no such element type.
pub fn to_host(value: &DynValue) -> Result<HostTensor, CaseFailure> {
    let ValueType::Tensor { ty, .. } = value.dtype() else {
        return Err(CaseFailure::unsupported(format!("an output is {} and not a tensor", value.dtype())));
    };
    let tensor = value.view().downcast::<DynTensorValueType>()?;
    if !tensor.memory_info().is_cpu_accessible() {
        return to_host(&tensor.to(AllocationDevice::CPU, 0)?.into_dyn());
    }
    fn widened<T: PrimitiveTensorElementType + Copy + Into<f32>>(value: &DynValue) -> ort::Result<TensorData> {
        let values: Vec<f32> = value.try_extract_tensor::<T>()?.1.iter().map(|&value| value.into()).collect();
        Ok(values.into())
    }
    let data = match ty {
        TensorElementType::Float32 => value.try_extract_tensor::<f32>()?.1.to_vec().into(),
        TensorElementType::Float16 => widened::<half::f16>(value)?,
        TensorElementType::Bfloat16 => widened::<half::bf16>(value)?,
        TensorElementType::Float64 => value.try_extract_tensor::<f64>()?.1.to_vec().into(),
        TensorElementType::Int32 => value.try_extract_tensor::<i32>()?.1.to_vec().into(),
        TensorElementType::Int64 => value.try_extract_tensor::<i64>()?.1.to_vec().into(),
        TensorElementType::Uint8 => value.try_extract_tensor::<u8>()?.1.to_vec().into(),
        TensorElementType::Bool => value.try_extract_tensor::<bool>()?.1.to_vec().into(),
        other => return Err(CaseFailure::unsupported(format!("an output has the element type {other}"))),
    };
    Ok(HostTensor { shape: tensor.shape().iter().map(|&size| size.max(0) as usize).collect(), data })
}
