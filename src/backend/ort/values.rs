//! ONNX Runtime's values and errors in the words of the other backends.

use ort::memory::AllocationDevice;
use ort::value::{DynTensor, DynTensorValueType, DynValue, Tensor, TensorElementType, ValueType};

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
    macro_rules! extract {
        ($element:ty, $variant:ident, $convert:expr) => {{
            let (shape, values) = value.try_extract_tensor::<$element>()?;
            let shape = shape.iter().map(|&size| size.max(0) as usize).collect();
            HostTensor { shape, data: TensorData::$variant(values.iter().map($convert).collect()) }
        }};
    }
    Ok(match ty {
        TensorElementType::Float32 => extract!(f32, F32, |&value| value),
        TensorElementType::Float16 => extract!(half::f16, F32, |value| value.to_f32()),
        TensorElementType::Bfloat16 => extract!(half::bf16, F32, |value| value.to_f32()),
        TensorElementType::Float64 => extract!(f64, F64, |&value| value),
        TensorElementType::Int32 => extract!(i32, I32, |&value| value),
        TensorElementType::Int64 => extract!(i64, I64, |&value| value),
        TensorElementType::Uint8 => extract!(u8, U8, |&value| value),
        TensorElementType::Bool => extract!(bool, Bool, |&value| value),
        other => return Err(CaseFailure::unsupported(format!("an output has the element type {other}"))),
    })
}
