//! The vision transformer that classifies.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::vit::{Config, Model};

use super::Module;

struct Vit(Model);

/// transformers' `ViTForImageClassification`: pictures to logits.
///
/// # Errors
/// The configuration is not one of candle's module, or the weights do not fit it.
pub fn load(config: Config, weights: VarBuilder) -> Result<impl Module + use<>> {
    let classes = weights.get_unchecked("classifier.bias")?.dim(0)?;
    Ok(Vit(Model::new(&config, classes, weights)?))
}

impl Module for Vit {
    fn forward(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let [pixels] = inputs else { candle_core::bail!("{} inputs instead of 1", inputs.len()) };
        Ok(vec![self.0.forward(pixels)?])
    }
}
