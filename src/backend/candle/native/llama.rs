//! Llama.

use candle_core::{Result, Tensor};
use candle_nn::{Activation, VarBuilder};
use candle_transformers::models::llama::{Cache, Config, Llama};

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
    if config.hidden_act != Activation::Silu {
        candle_core::bail!("the activation {:?} is not supported by candle's llama", config.hidden_act);
    }
    let config = Config {
        rope_theta: config.rope_theta()? as f32,
        hidden_size: config.hidden_size,
        intermediate_size: config.intermediate_size,
        vocab_size: config.vocab_size,
        num_hidden_layers: config.num_hidden_layers,
        num_attention_heads: config.num_attention_heads,
        num_key_value_heads: config.num_key_value_heads,
        rms_norm_eps: config.rms_norm_eps,
        max_position_embeddings: config.max_position_embeddings,
        tie_word_embeddings: config.tie_word_embeddings,
        use_flash_attn: false,
        rope_scaling: None,
        bos_token_id: None,
        eos_token_id: None,
    };
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
