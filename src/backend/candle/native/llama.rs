//! Llama.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Llama, LlamaConfig};

use super::causal_lm;
use super::module::{Decoder, only_input};

struct LlamaDecoder {
    model: Llama,
    /// Before the first token.
    empty: Cache,
}

/// transformers' `LlamaForCausalLM`.
///
/// # Errors
/// The configuration is not one of candle's module, or the weights do not fit it.
pub fn load(config: causal_lm::Config, weights: VarBuilder) -> Result<impl Decoder + use<>> {
    let activation = config.others.get("hidden_act");
    if activation.is_none_or(|activation| activation != "silu") {
        candle_core::bail!("the activation {activation:?} is not supported by candle's llama");
    }
    let config = config.into_candle::<LlamaConfig>()?.into_config(false);
    let empty = Cache::new(true, weights.dtype(), &config, weights.device())?;
    Ok(LlamaDecoder { model: Llama::load(weights, &config)?, empty })
}

impl Decoder for LlamaDecoder {
    type Cache = Cache;

    fn prefill(&self, inputs: &[Tensor]) -> Result<(Tensor, Cache)> {
        let mut cache = self.empty.clone();
        Ok((self.model.forward(only_input(inputs)?, 0, &mut cache)?, cache))
    }

    fn step(&self, tokens: &Tensor, position: usize, cache: &mut Cache) -> Result<Tensor> {
        self.model.forward(tokens, position, cache)
    }
}
