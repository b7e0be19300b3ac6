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
mod llama;
mod qwen2;
mod resnet;
mod vit;

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use candle_core::{DType, Device, DeviceLocation, Tensor};
use candle_nn::VarBuilder;
use serde::de::DeserializeOwned;

use super::{CandleRuntime, dtype_of, to_host, to_tensor};
use crate::backend::generation::{GenerationSession, Generator};
use crate::backend::graphs::Runtime;
use crate::backend::{LoadRequest, Placement, Session, Stages, classify};
use crate::definition::{CaseFailure, Dtype, Origin, Phase, device_index, device_kind};
use crate::fixture::HostTensor;

/// A model whose outputs are computed in one pass.
pub trait Module {
    /// The outputs in the model's order, out of the inputs in the model's order.
    ///
    /// # Errors
    /// An input does not fit.
    fn forward(&self, inputs: &[Tensor]) -> candle_core::Result<Vec<Tensor>>;
}

/// A model that makes tokens, with a cache.
pub trait Decoder {
    /// Keys and values of all positions so far; a clone does not copy them.
    type Cache: Clone;

    /// The logits of the first new token, `[batch, vocabulary]`, and the cache of all before it.
    ///
    /// # Errors
    /// An input does not fit.
    fn prefill(&self, inputs: &[Tensor]) -> candle_core::Result<(Tensor, Self::Cache)>;
    /// The logits after `tokens`, i64 `[batch, 1]`, at `position`, counted from 0.
    ///
    /// # Errors
    /// The position is beyond the last.
    fn step(&self, tokens: &Tensor, position: usize, cache: &mut Self::Cache) -> candle_core::Result<Tensor>;
}

/// A session of the model's module, where there is one.
pub fn open_session(request: &LoadRequest<'_>, device: &Device) -> Option<Result<Box<dyn Session>, CaseFailure>> {
    let Origin::Packaged { folder, .. } = &request.model.origin else { return None };
    let weights = request.artifacts.weights.as_deref()?;
    let dtype = match request.dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::Bf16 => DType::BF16,
        Dtype::I8 => return None,
    };
    let place = Place { device: device.clone(), dtype };
    let open = |weights: &Path| place.open(weights);
    let config = folder.join("config.json");
    Some(match (request.model.family.as_str(), request.phase, config.is_file()) {
        ("bert", Phase::Forward, true) => {
            read(&config, open(weights), bert::load).map(|it| forward(request, &place, "bert", it))
        }
        ("clip", Phase::Forward, true) => {
            read(&config, open(weights), clip::load).map(|it| forward(request, &place, "clip", it))
        }
        ("vit", Phase::Forward, true) => {
            read(&config, open(weights), vit::load).map(|it| forward(request, &place, "vit", it))
        }
        ("resnet", Phase::Forward, false) if folder.ends_with("resnet50") => {
            open(weights).and_then(resnet::load).map_err(classify).map(|it| forward(request, &place, "resnet", it))
        }
        ("llama", Phase::Prefill | Phase::Decode, true) => {
            read(&config, open(weights), llama::load).and_then(|it| generate(request, &place, "llama", it))
        }
        ("qwen2", Phase::Prefill | Phase::Decode, true) => {
            read(&config, open(weights), qwen2::load).and_then(|it| generate(request, &place, "qwen2", it))
        }
        _ => return None,
    })
}

/// Loads what has a configuration.
fn read<C: DeserializeOwned, M>(
    config: &Path,
    weights: candle_core::Result<VarBuilder<'static>>,
    load: impl FnOnce(C, VarBuilder) -> candle_core::Result<M>,
) -> Result<M, CaseFailure> {
    let failed = |error: &dyn std::fmt::Display| CaseFailure::failed(format!("{}: {error}", config.display()));
    let text = std::fs::read_to_string(config).map_err(|error| failed(&error))?;
    let config = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    weights.and_then(|weights| load(config, weights)).map_err(classify)
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

    /// A tensor on the device; floating-point numbers in the dtype of the weights.
    fn upload(&self, tensor: &HostTensor) -> Result<Tensor, CaseFailure> {
        let tensor = to_tensor(tensor, &self.device)?;
        if tensor.dtype() == DType::F32 { tensor.to_dtype(self.dtype).map_err(classify) } else { Ok(tensor) }
    }

    fn upload_all(&self, tensors: &[HostTensor]) -> Result<Vec<Tensor>, CaseFailure> {
        tensors.iter().map(|tensor| self.upload(tensor)).collect()
    }

    /// Returns when the device has nothing left to do; the CPU never has.
    fn sync(&self) -> Result<(), CaseFailure> {
        self.device.synchronize().map_err(classify)
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
        ..Placement::default()
    }
}

fn forward(request: &LoadRequest<'_>, place: &Place, name: &str, module: impl Module + 'static) -> Box<dyn Session> {
    let placement = placement(request, place, name);
    Box::new(ModuleSession { module, place: place.clone(), bound: Vec::new(), placement })
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

struct ModuleSession<M> {
    module: M,
    place: Place,
    bound: Vec<Vec<Tensor>>,
    placement: Placement,
}

impl<M: Module> ModuleSession<M> {
    fn forward(&self, binding: usize) -> Result<Vec<Tensor>, CaseFailure> {
        self.module.forward(&self.bound[binding]).map_err(classify)
    }
}

impl<M: Module> Session for ModuleSession<M> {
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, CaseFailure> {
        self.bound.push(self.place.upload_all(inputs)?);
        Ok(self.bound.len() - 1)
    }

    fn rebind(&mut self, binding: usize, inputs: &[HostTensor]) -> Result<(), CaseFailure> {
        self.bound[binding] = self.place.upload_all(inputs)?;
        Ok(())
    }

    fn run(&mut self, binding: usize) -> Result<(), CaseFailure> {
        self.forward(binding).map(|outputs| drop(black_box(outputs)))
    }

    fn sync(&mut self) -> Result<(), CaseFailure> {
        self.place.sync()
    }

    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, CaseFailure> {
        self.forward(binding)?.iter().map(to_host).collect()
    }

    fn call_from_host(&mut self, binding: usize, inputs: &[HostTensor]) -> Result<Stages, CaseFailure> {
        let begin = Instant::now();
        self.rebind(binding, inputs)?;
        self.place.sync()?;
        let uploaded = Instant::now();
        let outputs = self.forward(binding)?;
        self.place.sync()?;
        let computed = Instant::now();
        for output in &outputs {
            black_box(to_host(output)?);
        }
        let to_host = computed.elapsed();
        Ok(Stages { to_device: uploaded - begin, compute: computed - uploaded, to_host })
    }

    fn placement(&self) -> Placement {
        self.placement.clone()
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
        self.place.upload_all(inputs)
    }

    fn prefill(&mut self, inputs: &Vec<Tensor>) -> Result<(Tensor, D::Cache), CaseFailure> {
        self.decoder.prefill(inputs).map_err(classify)
    }

    fn step(&mut self, tokens: &Tensor, position: usize, cache: &mut D::Cache) -> Result<Tensor, CaseFailure> {
        self.decoder.step(tokens, position, cache).map_err(classify)
    }

    fn greedy(&mut self, logits: &Tensor) -> Result<Tensor, CaseFailure> {
        CandleRuntime.greedy(logits)
    }

    fn download(&self, value: &Tensor) -> Result<HostTensor, CaseFailure> {
        to_host(value)
    }

    fn sync(&mut self) -> Result<(), CaseFailure> {
        self.place.sync()
    }
}
