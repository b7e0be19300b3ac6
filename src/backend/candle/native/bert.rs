//! BERT with the pooler of the first token, which `candle-transformers` has not.

use candle_core::{IndexOp, Result, Tensor};
use candle_nn::{Linear, VarBuilder};
use candle_transformers::models::bert::{BertModel, Config};

use super::Module;

struct Bert {
    model: BertModel,
    pooler: Linear,
}

/// transformers' `BertModel`: tokens and mask to the pooled state of the first token.
///
/// # Errors
/// The configuration is not one of candle's module, or the weights do not fit it.
pub fn load(config: Config, weights: VarBuilder) -> Result<impl Module + use<>> {
    let pooler = candle_nn::linear(config.hidden_size, config.hidden_size, weights.pp("pooler.dense"))?;
    Ok(Bert { model: BertModel::load(weights, &config)?, pooler })
}

impl Module for Bert {
    fn forward(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let [tokens, mask] = inputs else { candle_core::bail!("{} inputs instead of 2", inputs.len()) };
        let states = self.model.forward(tokens, &tokens.zeros_like()?, Some(mask))?;
        Ok(vec![states.i((.., 0))?.contiguous()?.apply(&self.pooler)?.tanh()?])
    }
}
