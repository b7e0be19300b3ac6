//! Models that compute in one pass: BERT, the vision transformer and torchvision's resnet50.

use candle_core::{IndexOp, Module, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{bert, resnet, vit};

use crate::backend::candle::tensor::Forward;

/// The input of a model that has one.
///
/// # Errors
/// There are more, or none.
pub fn only_input(inputs: &[Tensor]) -> Result<&Tensor> {
    let [input] = inputs else { candle_core::bail!("{} inputs instead of 1", inputs.len()) };
    Ok(input)
}

/// transformers' `BertModel`: tokens and mask, both `[batch, sequence]`, to the pooled state of the first token,
/// `[batch, hidden]`. `candle-transformers` lacks the pooler.
///
/// # Errors
/// The configuration is not one of candle's module, or the weights do not fit it.
pub fn load_bert(config: bert::Config, weights: VarBuilder) -> Result<Forward> {
    let pooler = candle_nn::linear(config.hidden_size, config.hidden_size, weights.pp("pooler.dense"))?;
    let model = bert::BertModel::load(weights, &config)?;
    Ok(Box::new(move |inputs| {
        let [tokens, mask] = inputs else { candle_core::bail!("{} inputs instead of 2", inputs.len()) };
        let states = model.forward(tokens, &tokens.zeros_like()?, Some(mask))?;
        Ok(vec![states.i((.., 0))?.contiguous()?.apply(&pooler)?.tanh()?])
    }))
}

/// torchvision's `resnet50`: pictures `[batch, 3, height, width]` to logits `[batch, classes]`.
///
/// # Errors
/// The weights do not fit.
pub fn load_resnet50(weights: VarBuilder<'static>) -> Result<Forward> {
    let model = resnet::resnet50(weights.get_unchecked("fc.bias")?.dim(0)?, weights)?;
    Ok(Box::new(move |inputs| Ok(vec![model.forward(only_input(inputs)?)?])))
}

/// transformers' `ViTForImageClassification`: pictures `[batch, 3, height, width]` to logits `[batch, classes]`.
///
/// # Errors
/// The configuration is not one of candle's module, or the weights do not fit it.
pub fn load_vit(config: vit::Config, weights: VarBuilder) -> Result<Forward> {
    let classes = weights.get_unchecked("classifier.bias")?.dim(0)?;
    let model = vit::Model::new(&config, classes, weights)?;
    Ok(Box::new(move |inputs| Ok(vec![model.forward(only_input(inputs)?)?])))
}
