//! Models that classify pictures: torchvision's resnet50 and the vision transformer.

use candle_core::{Module, Result};
use candle_nn::VarBuilder;
use candle_transformers::models::resnet::resnet50;
use candle_transformers::models::vit::{Config, Model};

use super::module::{Forward, only_input};

/// torchvision's `resnet50`: pictures `[batch, 3, height, width]` to logits `[batch, classes]`.
///
/// # Errors
/// The weights do not fit.
pub fn load_resnet50(weights: VarBuilder<'static>) -> Result<Forward> {
    let model = resnet50(weights.get_unchecked("fc.bias")?.dim(0)?, weights)?;
    Ok(Box::new(move |inputs| Ok(vec![model.forward(only_input(inputs)?)?])))
}

/// transformers' `ViTForImageClassification`: pictures `[batch, 3, height, width]` to logits `[batch, classes]`.
///
/// # Errors
/// The configuration is not one of candle's module, or the weights do not fit it.
pub fn load_vit(config: Config, weights: VarBuilder) -> Result<Forward> {
    let classes = weights.get_unchecked("classifier.bias")?.dim(0)?;
    let model = Model::new(&config, classes, weights)?;
    Ok(Box::new(move |inputs| Ok(vec![model.forward(only_input(inputs)?)?])))
}
