//! Llama.

use candle_core::Result;
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Llama, LlamaConfig};

use super::causal_lm;
use super::module::Decoder;

/// transformers' `LlamaForCausalLM`.
///
/// # Errors
/// The configuration is not one of candle's module, or the weights do not fit it.
pub fn load(config: causal_lm::Config, weights: VarBuilder) -> Result<Decoder<Cache>> {
    let activation = config.others.get("hidden_act");
    if activation.is_none_or(|activation| activation != "silu") {
        candle_core::bail!("the activation {activation:?} is not supported by candle's llama");
    }
    let config = config.into_candle::<LlamaConfig>()?.into_config(false);
    let empty = Cache::new(true, weights.dtype(), &config, weights.device())?;
    let model = Llama::load(weights, &config)?;
    Ok(Decoder { empty, forward: Box::new(move |tokens, position, cache| model.forward(tokens, position, cache)) })
}
