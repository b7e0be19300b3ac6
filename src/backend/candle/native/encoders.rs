//! Models that compute in one pass: BERT, the vision transformer and torchvision's resnet50.

use candle_core::{IndexOp, Module, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::clip::div_l2_norm;
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

/// transformers' `BertModel`: tokens and mask, both `[batch, sequence]`, to `[batch, hidden]`: by the name of the output, the
/// pooled state of the first token, the mean of the states of all tokens, or this mean with length 1, as sentence-transformers
/// has it. `candle-transformers` lacks all three.
///
/// # Errors
/// The output has another name, the configuration is not one of candle's module, or the weights do not fit it.
pub fn load_bert(config: bert::Config, weights: VarBuilder, output: &str) -> Result<Forward> {
    let is_unit = match output {
        "pooler_output" | "mean_state" => false,
        "sentence_embedding" => true,
        other => candle_core::bail!("the output {other} is not one that is made of candle's bert"),
    };
    let dense = || candle_nn::linear(config.hidden_size, config.hidden_size, weights.pp("pooler.dense"));
    let pooler = (output == "pooler_output").then(dense).transpose()?;
    let model = bert::BertModel::load(weights, &config)?;
    Ok(Box::new(move |inputs| {
        let [tokens, mask] = inputs else { candle_core::bail!("{} inputs instead of 2", inputs.len()) };
        let states = model.forward(tokens, &tokens.zeros_like()?, Some(mask))?;
        if let Some(pooler) = &pooler {
            return Ok(vec![states.i((.., 0))?.contiguous()?.apply(pooler)?.tanh()?]);
        }
        let tokens = mask.to_dtype(states.dtype())?.unsqueeze(2)?;
        let mean = states.broadcast_mul(&tokens)?.sum(1)?.broadcast_div(&tokens.sum(1)?)?;
        Ok(vec![if is_unit { div_l2_norm(&mean)? } else { mean }])
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
