//! candle as a runtime: converts its tensors, devices and errors to and from the types that all backends share.

use candle_core::{D, DType, Device, Tensor};

use crate::backend::failure::classify;
use crate::backend::generation::Generator;
use crate::backend::interface::{LoadRequest, Placement};
use crate::backend::runtime::Runtime;
use crate::definition::{CaseFailure, Dtype, device_index, device_kind};
use crate::fixture::{HostTensor, TensorData};

impl From<candle_core::Error> for CaseFailure {
    fn from(error: candle_core::Error) -> Self {
        classify(error)
    }
}

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

/// The dtype of a case; `None` for an element type that no case can have.
pub fn dtype_of(dtype: DType) -> Option<Dtype> {
    match dtype {
        DType::F32 => Some(Dtype::F32),
        DType::F16 => Some(Dtype::F16),
        DType::BF16 => Some(Dtype::Bf16),
        _ => None,
    }
}

/// The placement of a session in which floating-point numbers are of this dtype.
pub fn placement(request: &LoadRequest<'_>, effective_dtype: Option<Dtype>, executor: String) -> Placement {
    Placement {
        effective_device: request.device.into(),
        effective_dtype,
        providers: "candle".into(),
        threads: Some(candle_core::utils::get_num_threads()),
        executor: Some(executor),
        serves_other_sizes: true,
        ..Placement::default()
    }
}

/// Adds a bias if there is one.
pub fn add_bias(output: Tensor, bias: &Option<Tensor>) -> candle_core::Result<Tensor> {
    match bias {
        Some(bias) => output.broadcast_add(bias),
        None => Ok(output),
    }
}

/// Computes a model's outputs from its inputs, both in the order of the definition; fails if an input does not fit.
pub type Forward = Box<dyn Fn(&[Tensor]) -> candle_core::Result<Vec<Tensor>>>;

/// A model with a cache of the keys and values of all positions so far.
pub struct Decoder<C> {
    /// The cache before the first token; a clone of a cache does not copy its tensors.
    pub empty: C,
    /// Computes the logits `[batch, vocabulary]` after tokens, i64 `[batch, positions]`, whose first is at the given
    /// position.
    pub forward: Continue<C>,
}

type Continue<C> = Box<dyn Fn(&Tensor, usize, &mut C) -> candle_core::Result<Tensor>>;

impl<C: Clone> Generator<Place> for Decoder<C> {
    type Inputs = Tensor;
    type Cache = C;

    fn upload(&self, place: &Place, inputs: &[HostTensor]) -> Result<Tensor, CaseFailure> {
        let [tokens] = inputs else { return Err(CaseFailure::failed(format!("{} inputs instead of 1", inputs.len()))) };
        place.upload(tokens)
    }

    fn prefill(&mut self, _place: &Place, tokens: &Tensor) -> Result<(Tensor, C), CaseFailure> {
        let mut cache = self.empty.clone();
        Ok(((self.forward)(tokens, 0, &mut cache)?, cache))
    }

    fn step(&mut self, _: &Place, tokens: &Tensor, position: usize, cache: &mut C) -> Result<Tensor, CaseFailure> {
        Ok((self.forward)(tokens, position, cache)?)
    }
}

/// The device and the dtype in which graphs and modules compute.
pub struct Place {
    pub device: Device,
    /// The dtype to which f32 inputs are converted.
    pub dtype: DType,
}

impl Runtime for Place {
    type Graph = Forward;
    type Value = Tensor;

    fn upload(&self, tensor: &HostTensor) -> Result<Tensor, CaseFailure> {
        let shape = tensor.shape.as_slice();
        let uploaded = match &tensor.data {
            TensorData::F32(values) => Tensor::from_slice(values, shape, &self.device)?,
            TensorData::F16(values) => Tensor::from_slice(values, shape, &self.device)?,
            TensorData::Bf16(values) => Tensor::from_slice(values, shape, &self.device)?,
            TensorData::F64(values) => Tensor::from_slice(values, shape, &self.device)?,
            TensorData::I16(values) => Tensor::from_slice(values, shape, &self.device)?,
            // candle cannot gather rows by indices of i32, and `candle-onnx` computes with i64 instead.
            TensorData::I32(values) => {
                let values: Vec<i64> = values.iter().map(|&value| value.into()).collect();
                Tensor::from_slice(&values, shape, &self.device)?
            }
            TensorData::I64(values) => Tensor::from_slice(values, shape, &self.device)?,
            TensorData::U8(values) => Tensor::from_slice(values, shape, &self.device)?,
            TensorData::U32(values) => Tensor::from_slice(values, shape, &self.device)?,
            // candle has u8 for bool.
            TensorData::Bool(values) => {
                let values: Vec<u8> = values.iter().map(|&value| value.into()).collect();
                Tensor::from_slice(&values, shape, &self.device)?
            }
            TensorData::I8(_) | TensorData::U16(_) | TensorData::U64(_) => {
                let dtype = tensor.element_type();
                return Err(CaseFailure::unsupported(format!(
                    "an input has the element type {dtype}, which candle lacks"
                )));
            }
        };
        Ok(if uploaded.dtype() == DType::F32 { uploaded.to_dtype(self.dtype)? } else { uploaded })
    }

    fn download(&self, value: &Tensor) -> Result<HostTensor, CaseFailure> {
        let shape = value.dims().to_vec();
        let flat = value.flatten_all()?;
        let data = match value.dtype() {
            DType::F32 | DType::F16 | DType::BF16 => TensorData::F32(flat.to_dtype(DType::F32)?.to_vec1()?),
            DType::F64 => TensorData::F64(flat.to_vec1()?),
            DType::I64 => TensorData::I64(flat.to_vec1()?),
            DType::I32 => TensorData::I32(flat.to_vec1()?),
            DType::I16 => TensorData::I16(flat.to_vec1()?),
            DType::U8 => TensorData::U8(flat.to_vec1()?),
            DType::U32 => TensorData::U32(flat.to_vec1()?),
            other => return Err(CaseFailure::unsupported(format!("an output has the element type {other:?}"))),
        };
        Ok(HostTensor { shape, data })
    }

    fn run(&self, forward: &mut Forward, inputs: &[&Tensor]) -> Result<Vec<Tensor>, CaseFailure> {
        let inputs: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
        Ok(forward(&inputs)?)
    }

    fn greedy(&self, logits: &Tensor) -> Result<Tensor, CaseFailure> {
        let last = match logits.dims() {
            [_, positions, _] => logits.narrow(1, positions.saturating_sub(1), 1)?.squeeze(1)?,
            _ => logits.clone(),
        };
        Ok(last.argmax_keepdim(D::Minus1)?.to_dtype(DType::I64)?)
    }

    fn sync(&self) -> Result<(), CaseFailure> {
        Ok(self.device.synchronize()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_i32_may_be_places_in_a_table() {
        let place = Place { device: Device::Cpu, dtype: DType::F32 };
        let places = place.upload(&HostTensor { shape: vec![2], data: TensorData::I32(vec![1, 0]) }).unwrap();
        let table = Tensor::new(&[0.5_f32, 1.5], &Device::Cpu).unwrap();
        assert_eq!(table.index_select(&places, 0).unwrap().to_vec1::<f32>().unwrap(), [1.5, 0.5]);
    }
}
