//! BERT with the pooler of the first token, which `candle-transformers` lacks.

use candle_core::{IndexOp, Result};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};

use super::module::Forward;

/// transformers' `BertModel`: tokens and mask, both `[batch, sequence]`, to the pooled state of the first token,
/// `[batch, hidden]`.
///
/// # Errors
/// The configuration is not one of candle's module, or the weights do not fit it.
pub fn load(config: Config, weights: VarBuilder) -> Result<Forward> {
    let pooler = candle_nn::linear(config.hidden_size, config.hidden_size, weights.pp("pooler.dense"))?;
    let model = BertModel::load(weights, &config)?;
    Ok(Box::new(move |inputs| {
        let [tokens, mask] = inputs else { candle_core::bail!("{} inputs instead of 2", inputs.len()) };
        let states = model.forward(tokens, &tokens.zeros_like()?, Some(mask))?;
        Ok(vec![states.i((.., 0))?.contiguous()?.apply(&pooler)?.tanh()?])
    }))
}
