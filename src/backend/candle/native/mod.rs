//! Models as candle's users run them: the modules of `candle-transformers`, on the same weights.
//!
//! A module is used where the model is one that `candle-transformers` has. Those that are published with transformers
//! have a `config.json` in the model's folder, as transformers writes it; what candle leaves out of it is checked here.
//! What a module lacks of the model's outputs is added with candle's own layers.

mod bert;
mod clip;
mod resnet;
mod vit;

use std::hint::black_box;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use serde::de::DeserializeOwned;

use super::{to_host, to_tensor};
use crate::backend::{Placement, Session, classify};
use crate::definition::{Dtype, Model, Origin, Shortfall};
use crate::fixture::{Artifacts, HostTensor};

/// A model whose outputs are computed in one pass.
pub trait Module {
    /// The outputs in the model's order, out of the inputs in the model's order.
    ///
    /// # Errors
    /// An input does not fit.
    fn forward(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>>;
    /// The name of its code in `candle-transformers`.
    fn name(&self) -> &'static str;
}

/// The model's module with its weights, where there is one.
///
/// # Errors
/// The configuration or the weights are not what the module needs.
pub fn load(model: &Model, artifacts: &Artifacts) -> Option<std::result::Result<Box<dyn Module>, Shortfall>> {
    let Origin::Packaged { folder, .. } = &model.origin else { return None };
    let weights = artifacts.weights.as_deref()?;
    let config = folder.join("config.json");
    Some(match (model.family.as_str(), config.is_file()) {
        ("bert", true) => read(&config, weights, bert::load),
        ("clip", true) => read(&config, weights, clip::load),
        ("vit", true) => read(&config, weights, vit::load),
        ("resnet", false) if folder.ends_with("resnet50") => {
            open(weights).and_then(|weights| resnet::load(weights).map_err(classify))
        }
        _ => return None,
    })
}

/// Loads a module that has a configuration.
fn read<C: DeserializeOwned>(
    config: &Path,
    weights: &Path,
    load: impl FnOnce(&C, VarBuilder) -> Result<Box<dyn Module>>,
) -> std::result::Result<Box<dyn Module>, Shortfall> {
    let failed = |error: &dyn std::fmt::Display| Shortfall::failed(format!("{}: {error}", config.display()));
    let text = std::fs::read_to_string(config).map_err(|error| failed(&error))?;
    let parsed: C = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    load(&parsed, open(weights)?).map_err(classify)
}

fn open(weights: &Path) -> std::result::Result<VarBuilder<'static>, Shortfall> {
    // SAFETY: the file is read only, and nothing changes a prepared file in place: it is replaced as a whole.
    unsafe { VarBuilder::from_mmaped_safetensors(&[weights], DType::F32, &Device::Cpu) }.map_err(classify)
}

/// A module and its inputs.
pub struct NativeSession {
    module: Box<dyn Module>,
    bound: Vec<Vec<Tensor>>,
    artifact: Option<PathBuf>,
}

impl NativeSession {
    /// A session of a module whose weights come from the file `artifact`.
    pub fn new(module: Box<dyn Module>, artifact: Option<PathBuf>) -> NativeSession {
        NativeSession { module, bound: Vec::new(), artifact }
    }

    fn forward(&self, binding: usize) -> std::result::Result<Vec<Tensor>, Shortfall> {
        self.module.forward(&self.bound[binding]).map_err(classify)
    }
}

impl Session for NativeSession {
    fn bind(&mut self, inputs: &[HostTensor]) -> std::result::Result<usize, Shortfall> {
        self.bound.push(inputs.iter().map(to_tensor).collect::<std::result::Result<_, _>>()?);
        Ok(self.bound.len() - 1)
    }

    fn run(&mut self, binding: usize) -> std::result::Result<(), Shortfall> {
        self.forward(binding).map(|outputs| drop(black_box(outputs)))
    }

    fn sync(&mut self) -> std::result::Result<(), Shortfall> {
        // candle computes on the CPU before it returns.
        Ok(())
    }

    fn outputs(&mut self, binding: usize) -> std::result::Result<Vec<HostTensor>, Shortfall> {
        self.forward(binding)?.iter().map(to_host).collect()
    }

    fn placement(&self) -> Placement {
        Placement {
            effective_device: "cpu".into(),
            effective_dtype: Some(Dtype::F32),
            providers: "candle".into(),
            threads: Some(candle_core::utils::get_num_threads()),
            artifact: self.artifact.clone(),
            executor: Some(format!("candle-transformers {}", self.module.name())),
        }
    }
}
