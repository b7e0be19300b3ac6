//! candle's tensors, devices and errors in the words of the other backends.

use candle_core::{D, DType, Device, Tensor};

use crate::backend::failure::classify;
use crate::definition::{CaseFailure, Dtype, device_index, device_kind};
use crate::fixture::{HostTensor, TensorData};

impl From<candle_core::Error> for CaseFailure {
    fn from(error: candle_core::Error) -> Self {
        classify(error)
    }
}

/// The device of that name.
///
/// # Errors
/// `unavailable`: candle has no such device here.
pub fn device_of(name: &str) -> Result<Device, CaseFailure> {
    let unavailable = |feature: &str, error: candle_core::Error| {
        let first = error.to_string();
        let first = first.lines().next().unwrap_or_default();
        CaseFailure::unavailable(format!("{first} (a build with `--features {feature}` has it)"))
    };
    match device_kind(name) {
        "cpu" => Ok(Device::Cpu),
        "cuda" => Device::new_cuda(device_index(name)).map_err(|error| unavailable("candle-cuda", error)),
        "mps" => Device::new_metal(0).map_err(|error| unavailable("candle-metal", error)),
        other => Err(CaseFailure::unavailable(format!("candle has no device {other:?}"))),
    }
}

/// The dtype of case ids; `None` for element types that are no dtype of a case.
pub fn dtype_of(dtype: DType) -> Option<Dtype> {
    match dtype {
        DType::F32 => Some(Dtype::F32),
        DType::F16 => Some(Dtype::F16),
        DType::BF16 => Some(Dtype::Bf16),
        _ => None,
    }
}

/// A tensor on the device, of the same shape.
///
/// # Errors
/// `unsupported`: candle has no such element type.
pub fn to_tensor(tensor: &HostTensor, device: &Device) -> Result<Tensor, CaseFailure> {
    let shape = tensor.shape.as_slice();
    Ok(match &tensor.data {
        TensorData::F32(values) => Tensor::from_slice(values, shape, device)?,
        TensorData::F64(values) => Tensor::from_slice(values, shape, device)?,
        TensorData::I64(values) => Tensor::from_slice(values, shape, device)?,
        TensorData::U8(values) => Tensor::from_slice(values, shape, device)?,
        TensorData::I32(values) => Tensor::from_slice(values, shape, device)?,
        TensorData::Bool(_) => return Err(CaseFailure::unsupported("candle has no bool tensors")),
    })
}

/// A copy on the host, of the same shape.
///
/// # Errors
/// `unsupported`: the host has no such element type.
pub fn to_host(tensor: &Tensor) -> Result<HostTensor, CaseFailure> {
    let shape = tensor.dims().to_vec();
    let flat = tensor.flatten_all()?;
    let data = match tensor.dtype() {
        DType::F32 | DType::F16 | DType::BF16 => TensorData::F32(flat.to_dtype(DType::F32)?.to_vec1()?),
        DType::F64 => TensorData::F64(flat.to_vec1()?),
        DType::I64 => TensorData::I64(flat.to_vec1()?),
        DType::U8 => TensorData::U8(flat.to_vec1()?),
        other => return Err(CaseFailure::unsupported(format!("an output has the element type {other:?}"))),
    };
    Ok(HostTensor { shape, data })
}

/// The tokens of the largest logits: `[batch, vocabulary]` to i64 `[batch, 1]`.
///
/// # Errors
/// The logits have no last dimension.
pub fn greedy(logits: &Tensor) -> Result<Tensor, CaseFailure> {
    Ok(logits.argmax_keepdim(D::Minus1)?.to_dtype(DType::I64)?)
}
