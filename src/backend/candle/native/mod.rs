//! Models as candle's users run them: the modules of `candle-transformers`, on the same weights.
//!
//! A module is used where it computes what the model does. Models that are published with transformers have a
//! `config.json` in their folder, as transformers writes it. Outputs that a module lacks are computed with candle's own
//! layers.
//!
//! Two modules are left out, because they compute something else. T5's decoder takes the encoder's buckets of
//! distances, which differ from a distance of 8 on. Whisper's module computes the positions of its encoder instead of
//! reading them, approximates GELU, and has no cache of its decoder's own keys and values.

#[cfg(feature = "candle-transformers")]
mod published;
mod spans;

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor, bail};
use candle_nn::{Conv2d, Conv2dConfig, Linear, VarBuilder};

pub use self::spans::Spans;
use super::tensor::{Forward, Place, dtype_of, placement};
use crate::backend::graphs;
use crate::backend::interface::{LoadRequest, Placement, Session};
use crate::backend::shared::Shared;
use crate::definition::{CaseFailure, Dtype, Origin, Phase};

/// A session of the model's module, whose operators `spans` notes. Returns `None` if candle has no module of the model.
///
/// # Errors
/// The module cannot be loaded; `unsupported` if it has no spans.
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

/// A session of the model's module. Returns `None` if candle has no module of the model.
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
        // SAFETY: the file is read only, and a prepared file is never changed in place: its folder is replaced as a
        // whole.
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
    // A build that evaluates graphs runs this network as a graph.
    if family == "cnn" && request.phase == Phase::Forward && !config.is_file() && !cfg!(feature = "candle-onnx") {
        return match load_digits(weights()?)? {
            Some(module) => of_module(request, place, module, placement).map(Some),
            None => Ok(None),
        };
    }
    #[cfg(feature = "candle-transformers")]
    return published::open_session(request, place, placement, &config, &weights);
    #[cfg(not(feature = "candle-transformers"))]
    return Ok(None);
}

/// Reads the weights of a request.
#[cfg(feature = "candle-transformers")]
type Weights<'w> = dyn Fn() -> Result<VarBuilder<'static>, CaseFailure> + 'w;

fn of_module(
    request: &LoadRequest<'_>,
    place: Place,
    module: Forward,
    placement: Placement,
) -> Result<Box<dyn Session>, CaseFailure> {
    let file = placement.artifacts[0].clone();
    let parts: Vec<_> = request.model.parts.iter().map(|part| (part, file.as_path())).collect();
    graphs::open_session(request, place, &parts, vec![module], placement)
}

/// `digits`, a network of this package, in any widths: pictures `[batch, 1, 8, 8]` to logits `[batch, classes]`.
/// Returns `None` if the weights are of another network.
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

/// A classifier: pictures `[batch, channels, height, width]` to logits `[batch, classes]`.
fn of_pictures(model: impl Fn(&Tensor) -> candle_core::Result<Tensor> + 'static) -> Forward {
    Box::new(move |inputs| {
        let [pictures] = inputs else { bail!("{} inputs instead of 1", inputs.len()) };
        Ok(vec![model(pictures)?])
    })
}
