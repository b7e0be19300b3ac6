//! Models as candle's users run them: the modules of `candle-transformers`, on the same weights.
//!
//! A module is used where it computes what the model does. Models that are published with transformers have a
//! `config.json` in their folder, as transformers writes it. What a module lacks of a model's outputs is added with
//! candle's own layers.
//!
//! Two modules are left out, because they compute something else. T5's decoder takes the encoder's buckets of distances,
//! which are others from a distance of 8 on. Whisper's computes the positions of its encoder instead of reading them,
//! approximates GELU, and has no cache of its decoder's own keys and values.

mod bert;
mod causal_lm;
mod clip;
mod image_classifiers;
mod llama;
mod module;
mod qwen2;

use std::path::Path;

use anyhow::Context;
use candle_core::{DType, Device, DeviceLocation, Tensor};
use candle_nn::VarBuilder;
use serde::de::DeserializeOwned;

use self::module::{Decoder, Forward};
use super::tensor::{dtype_of, greedy, to_host, to_tensor};
use crate::backend::generation::{GenerationSession, Generator};
use crate::backend::graphs::{GraphSession, Runtime};
use crate::backend::interface::{LoadRequest, Placement, Session};
use crate::definition::{CaseFailure, Dtype, Origin, Phase, device_index, device_kind};
use crate::fixture::HostTensor;

/// A session of the model's module; `None` if candle has no module of the model.
///
/// # Errors
/// The configuration or the weights cannot be read, or are not those of candle's module.
pub fn open_session(request: &LoadRequest<'_>, device: &Device) -> Result<Option<Box<dyn Session>>, CaseFailure> {
    let (Origin::Packaged { folder, .. }, Some(weights)) = (&request.model.origin, &request.artifacts.weights) else {
        return Ok(None);
    };
    let dtype = match request.dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::Bf16 => DType::BF16,
        Dtype::I8 => return Ok(None),
    };
    let place = Place { device: device.clone(), dtype };
    let weights = || place.open(weights);
    let config = folder.join("config.json");
    Ok(Some(match (request.model.family.as_str(), request.phase, config.is_file()) {
        ("bert", Phase::Forward, true) => forward(request, &place, "bert", bert::load(read(&config)?, weights()?)?),
        ("clip", Phase::Forward, true) => forward(request, &place, "clip", clip::load(read(&config)?, weights()?)?),
        ("vit", Phase::Forward, true) => {
            forward(request, &place, "vit", image_classifiers::load_vit(read(&config)?, weights()?)?)
        }
        ("resnet", Phase::Forward, false) if folder.ends_with("resnet50") => {
            forward(request, &place, "resnet", image_classifiers::load_resnet50(weights()?)?)
        }
        ("llama", Phase::Prefill | Phase::Decode, true) => {
            generate(request, &place, "llama", llama::load(read(&config)?, weights()?)?)?
        }
        ("qwen2", Phase::Prefill | Phase::Decode, true) => {
            generate(request, &place, "qwen2", qwen2::load(read(&config)?, weights()?)?)?
        }
        _ => return Ok(None),
    }))
}

/// Reads a module's configuration.
fn read<C: DeserializeOwned>(config: &Path) -> anyhow::Result<C> {
    serde_json::from_str(&fs_err::read_to_string(config)?).with_context(|| config.display().to_string())
}

/// Where a module computes, and in what.
#[derive(Clone)]
struct Place {
    device: Device,
    dtype: DType,
}

impl Place {
    fn open(&self, weights: &Path) -> candle_core::Result<VarBuilder<'static>> {
        // SAFETY: the file is read only, and a prepared file is never changed in place: its folder is replaced as a whole.
        unsafe { VarBuilder::from_mmaped_safetensors(&[weights], self.dtype, &self.device) }
    }
}

fn placement(request: &LoadRequest<'_>, place: &Place, module: &str) -> Placement {
    let is_asked_for = match place.device.location() {
        DeviceLocation::Cpu => request.device == "cpu",
        DeviceLocation::Cuda { gpu_id } => {
            device_kind(request.device) == "cuda" && device_index(request.device) == gpu_id
        }
        DeviceLocation::Metal { .. } => request.device == "mps",
    };
    Placement {
        effective_device: if is_asked_for { request.device.into() } else { format!("{:?}", place.device.location()) },
        effective_dtype: dtype_of(place.dtype),
        providers: "candle".into(),
        threads: Some(candle_core::utils::get_num_threads()),
        artifacts: request.artifacts.weights.iter().cloned().collect(),
        executor: Some(format!("candle-transformers {module}")),
        serves_other_sizes: true,
        ..Placement::default()
    }
}

fn forward(request: &LoadRequest<'_>, place: &Place, name: &str, module: Forward) -> Box<dyn Session> {
    let inputs = (0..request.model.inputs.len()).collect();
    Box::new(GraphSession::new(place.clone(), module, inputs, None, placement(request, place, name)))
}

fn generate(
    request: &LoadRequest<'_>,
    place: &Place,
    name: &str,
    decoder: impl Decoder + 'static,
) -> Result<Box<dyn Session>, CaseFailure> {
    let generator = ModuleGenerator { decoder, place: place.clone() };
    Ok(Box::new(GenerationSession::new(request, generator, placement(request, place, name))?))
}

/// Runs a module as one graph of its own.
impl Runtime for Place {
    type Graph = Forward;
    type Value = Tensor;

    /// Floating-point numbers are in the dtype of the weights.
    fn upload(&self, tensor: &HostTensor) -> Result<Tensor, CaseFailure> {
        let tensor = to_tensor(tensor, &self.device)?;
        Ok(if tensor.dtype() == DType::F32 { tensor.to_dtype(self.dtype)? } else { tensor })
    }

    fn download(&self, value: &Tensor) -> Result<HostTensor, CaseFailure> {
        to_host(value)
    }

    fn run(&self, module: &mut Forward, inputs: &[&Tensor]) -> Result<Vec<Tensor>, CaseFailure> {
        let inputs: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
        Ok(module(&inputs)?)
    }

    fn greedy(&self, logits: &Tensor) -> Result<Tensor, CaseFailure> {
        greedy(logits)
    }

    fn sync(&self) -> Result<(), CaseFailure> {
        Ok(self.device.synchronize()?)
    }
}

struct ModuleGenerator<D> {
    decoder: D,
    place: Place,
}

impl<D: Decoder> Generator for ModuleGenerator<D> {
    type Value = Tensor;
    type Inputs = Vec<Tensor>;
    type Cache = D::Cache;

    fn upload(&mut self, inputs: &[HostTensor]) -> Result<Vec<Tensor>, CaseFailure> {
        inputs.iter().map(|input| self.place.upload(input)).collect()
    }

    fn prefill(&mut self, inputs: &Vec<Tensor>) -> Result<(Tensor, D::Cache), CaseFailure> {
        Ok(self.decoder.prefill(inputs)?)
    }

    fn step(&mut self, tokens: &Tensor, position: usize, cache: &mut D::Cache) -> Result<Tensor, CaseFailure> {
        Ok(self.decoder.step(tokens, position, cache)?)
    }

    fn greedy(&mut self, logits: &Tensor) -> Result<Tensor, CaseFailure> {
        greedy(logits)
    }

    fn download(&self, value: &Tensor) -> Result<HostTensor, CaseFailure> {
        to_host(value)
    }

    fn sync(&mut self) -> Result<(), CaseFailure> {
        self.place.sync()
    }
}
