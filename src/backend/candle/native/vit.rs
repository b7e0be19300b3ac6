//! The vision transformer that classifies.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::vit::{Config, Model};

use super::Module;

struct Vit(Model);

/// transformers' `ViTForImageClassification`: pictures to logits.
pub fn load(config: &Config, weights: VarBuilder) -> Result<Box<dyn Module>> {
    let classes = weights.get_unchecked("classifier.bias")?.dim(0)?;
    Ok(Box::new(Vit(Model::new(config, classes, weights)?)))
}

impl Module for Vit {
    fn forward(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let [pixels] = inputs else { candle_core::bail!("{} inputs instead of 1", inputs.len()) };
        Ok(vec![self.0.forward(pixels)?])
    }

    fn name(&self) -> &'static str {
        "vit"
    }
}
