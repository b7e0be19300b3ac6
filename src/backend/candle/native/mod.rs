//! Models as candle's users run them: the modules of `candle-transformers`, on the same weights.
//!
//! A module is used where it computes what the model does. Models that are published with transformers have a
//! `config.json` in their folder, as transformers writes it. What a module lacks of a model's outputs is added with
//! candle's own layers.
//!
//! Two modules are left out, because they compute something else. T5's decoder takes the encoder's buckets of distances,
//! which are others from a distance of 8 on. Whisper's computes the positions of its encoder instead of reading them,
//! approximates GELU, and has no cache of its decoder's own keys and values.

mod clip;
mod decoders;
mod spanned_resnet;
mod spans;

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;
use candle_core::{DType, Device, IndexOp, Module, Tensor, bail};
use candle_nn::{Conv2d, Conv2dConfig, Linear, VarBuilder};
use candle_transformers::models::clip::div_l2_norm;
use candle_transformers::models::{bert, resnet, vit};
use serde::de::DeserializeOwned;

use self::decoders::{Decoder, load_llama, load_qwen2};
pub use self::spans::Spans;
use super::tensor::{Forward, Place, dtype_of, placement};
use crate::backend::generation::{GenerationSession, Generator};
use crate::backend::graphs;
use crate::backend::interface::{LoadRequest, Placement, Session};
use crate::backend::runtime::Runtime;
use crate::backend::shared::Shared;
use crate::definition::{CaseFailure, Dtype, Origin, Phase};
use crate::fixture::HostTensor;

/// A session of the model's module; `None` if candle has no module of the model. The operators of its calls are those of `spans`.
///
/// # Errors
/// The module cannot be loaded; `unsupported` if it has to have spans, and has none.
pub fn open_profiled(
    request: &LoadRequest<'_>,
    device: &Device,
    spans: &Spans,
) -> Result<Option<Box<dyn Session>>, CaseFailure> {
    let session = spans.listen(|| open_session(request, device, Some(spans)))?;
    if session.is_some() && spans.is_empty() {
        let family = &request.model.family;
        return Err(CaseFailure::unsupported(format!("candle's module of {family} has no spans around its layers")));
    }
    Ok(session)
}

/// A session of the model's module; `None` if candle has no module of the model.
///
/// # Errors
/// The module cannot be loaded.
pub fn open_session(
    request: &LoadRequest<'_>,
    device: &Device,
    spans: Option<&Spans>,
) -> Result<Option<Box<dyn Session>>, CaseFailure> {
    let (Origin::Packaged { folder, .. }, Some(file)) = (&request.model.origin, &request.artifacts.weights) else {
        return Ok(None);
    };
    let dtype = match request.dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::Bf16 => DType::BF16,
        Dtype::I8 => return Ok(None),
    };
    let place = Place { device: device.clone(), dtype };
    let weights = || -> Result<_, CaseFailure> {
        if request.instances > 1 {
            static WEIGHTS: Shared<HashMap<String, Tensor>> = Shared::new();
            let key = format!("{} {dtype:?} {device:?}", file.display());
            let shared = WEIGHTS.get(key, || {
                let tensors = candle_core::safetensors::load(file, device)?.into_iter();
                Ok(tensors
                    .map(|(name, tensor)| Ok((name, tensor.to_dtype(dtype)?)))
                    .collect::<candle_core::Result<_>>()?)
            })?;
            return Ok(VarBuilder::from_tensors((*shared).clone(), dtype, device));
        }
        // SAFETY: the file is read only, and a prepared file is never changed in place: its folder is replaced as a whole.
        let weights = unsafe {
            match spans {
                Some(spans) => spans.weights(file, dtype, device),
                None => VarBuilder::from_mmaped_safetensors(&[file], dtype, device),
            }
        };
        Ok(weights?)
    };
    let config = folder.join("config.json");
    let family = request.model.family.as_str();
    let executor = if family == "cnn" { "candle-nn".to_owned() } else { format!("candle-transformers {family}") };
    let placement = Placement { artifacts: vec![file.clone()], ..placement(request, dtype_of(dtype), executor) };
    // The number of classes is that of the last layer's biases.
    let with_classes = |bias: &str| -> Result<_, CaseFailure> {
        let weights = weights()?;
        Ok((weights.get_unchecked(bias)?.dim(0)?, weights))
    };
    let module = match (family, request.phase, config.is_file()) {
        ("bert", Phase::Forward, true) => {
            let outputs = request.model.output_names(request.phase);
            load_bert(read(&config)?, weights()?, outputs.first().map(String::as_str).unwrap_or_default())?
        }
        ("clip", Phase::Forward, true) => clip::load(&read(&config)?, weights()?)?,
        ("vit", Phase::Forward, true) => {
            let (classes, weights) = with_classes("classifier.bias")?;
            let model = vit::Model::new(&read(&config)?, classes, weights)?;
            of_pictures(move |pictures| model.forward(pictures))
        }
        ("resnet", Phase::Forward, false) => {
            let (classes, weights) = with_classes("fc.bias")?;
            match spans {
                Some(spans) => of_pictures(spanned_resnet::resnet50(classes, &weights, spans)?),
                None => {
                    let model = resnet::resnet50(classes, weights)?;
                    of_pictures(move |pictures| model.forward(pictures))
                }
            }
        }
        // With graphs, it is evaluated as any other.
        ("cnn", Phase::Forward, false) if !cfg!(feature = "candle-onnx") => match load_digits(weights()?)? {
            Some(module) => module,
            None => return Ok(None),
        },
        ("llama", Phase::Prefill | Phase::Decode, true) => {
            let decoder = load_llama(read(&config)?, weights()?)?;
            return Ok(Some(Box::new(GenerationSession::new(request, place, decoder, placement)?)));
        }
        ("qwen2", Phase::Prefill | Phase::Decode, true) => {
            let decoder = load_qwen2(read(&config)?, weights()?)?;
            return Ok(Some(Box::new(GenerationSession::new(request, place, decoder, placement)?)));
        }
        _ => return Ok(None),
    };
    let parts: Vec<_> = request.model.parts.iter().map(|part| (part, file.as_path())).collect();
    graphs::open_session(request, place, &parts, vec![module], placement).map(Some)
}

/// Reads a module's configuration.
fn read<C: DeserializeOwned>(config: &Path) -> anyhow::Result<C> {
    serde_json::from_str(&fs_err::read_to_string(config)?).with_context(|| config.display().to_string())
}

/// transformers' `BertModel`: tokens and mask, both `[batch, sequence]`, to `[batch, hidden]`: by the name of the output, the
/// pooled state of the first token, the mean of the states of all tokens, or this mean with length 1, as sentence-transformers
/// has it. `candle-transformers` lacks all three.
fn load_bert(config: bert::Config, weights: VarBuilder, output: &str) -> candle_core::Result<Forward> {
    let is_unit = match output {
        "pooler_output" | "mean_state" => false,
        "sentence_embedding" => true,
        other => bail!("the output {other} is not one that is made of candle's bert"),
    };
    let dense = || candle_nn::linear(config.hidden_size, config.hidden_size, weights.pp("pooler.dense"));
    let pooler = (output == "pooler_output").then(dense).transpose()?;
    let model = bert::BertModel::load(weights, &config)?;
    Ok(Box::new(move |inputs| {
        let [tokens, mask] = inputs else { bail!("{} inputs instead of 2", inputs.len()) };
        let states = model.forward(tokens, &tokens.zeros_like()?, Some(mask))?;
        if let Some(pooler) = &pooler {
            return Ok(vec![states.i((.., 0))?.contiguous()?.apply(pooler)?.tanh()?]);
        }
        let tokens = mask.to_dtype(states.dtype())?.unsqueeze(2)?;
        let mean = states.broadcast_mul(&tokens)?.sum(1)?.broadcast_div(&tokens.sum(1)?)?;
        Ok(vec![if is_unit { div_l2_norm(&mean)? } else { mean }])
    }))
}

/// `digits`, a network of this package, in any widths: pictures `[batch, 1, 8, 8]` to logits `[batch, classes]`. Returns `None` if
/// the weights are of another network.
fn load_digits(weights: VarBuilder) -> candle_core::Result<Option<Forward>> {
    let layers = ["conv1", "conv2", "fc1", "fc2"].map(|name| weights.pp(name));
    if !layers.iter().all(|layer| layer.contains_tensor("weight") && layer.contains_tensor("bias")) {
        return Ok(None);
    }
    let tensors = |layer: &VarBuilder| Ok((layer.get_unchecked("weight")?, layer.get_unchecked("bias")?));
    let tensors = layers.iter().map(tensors).collect::<candle_core::Result<Vec<_>>>()?;
    let padded = Conv2dConfig { padding: 1, ..Conv2dConfig::default() };
    let conv = |(weight, bias): &(Tensor, Tensor)| Conv2d::new(weight.clone(), Some(bias.clone()), padded);
    let linear = |(weight, bias): &(Tensor, Tensor)| Linear::new(weight.clone(), Some(bias.clone()));
    let (convs, linears) = ([conv(&tensors[0]), conv(&tensors[1])], [linear(&tensors[2]), linear(&tensors[3])]);
    Ok(Some(of_pictures(move |pictures| {
        let seen = convs.iter().try_fold(pictures.clone(), |seen, conv| seen.apply(conv)?.relu()?.max_pool2d(2))?;
        seen.flatten_from(1)?.apply(&linears[0])?.relu()?.apply(&linears[1])
    })))
}

/// torchvision's `resnet50`, or transformers' `ViTForImageClassification`: pictures `[batch, 3, height, width]` to logits
/// `[batch, classes]`.
fn of_pictures(model: impl Fn(&Tensor) -> candle_core::Result<Tensor> + 'static) -> Forward {
    Box::new(move |inputs| {
        let [pictures] = inputs else { bail!("{} inputs instead of 1", inputs.len()) };
        Ok(vec![model(pictures)?])
    })
}

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
