//! Qwen2.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::qwen2::{Config, ModelForCausalLM};

use super::causal_lm;
use super::module::{Decoder, only_input};

/// The model before the first token. candle's module holds the cache itself; its clones share the weights.
struct Qwen2Decoder(ModelForCausalLM);

/// transformers' `Qwen2ForCausalLM`.
///
/// # Errors
/// The configuration is not one of candle's module, or the weights do not fit it.
pub fn load(config: causal_lm::Config, weights: VarBuilder) -> Result<impl Decoder + use<>> {
    if config.use_sliding_window {
        candle_core::bail!("a sliding window is not supported by candle's qwen2 in steps");
    }
    let config = Config {
        rope_theta: config.rope_theta()?,
        vocab_size: config.vocab_size,
        hidden_size: config.hidden_size,
        intermediate_size: config.intermediate_size,
        num_hidden_layers: config.num_hidden_layers,
        num_attention_heads: config.num_attention_heads,
        num_key_value_heads: config.num_key_value_heads,
        max_position_embeddings: config.max_position_embeddings,
        tie_word_embeddings: config.tie_word_embeddings,
        rms_norm_eps: config.rms_norm_eps,
        hidden_act: config.hidden_act,
        // As wide as the longest text: the module takes a window always.
        sliding_window: config.max_position_embeddings,
        max_window_layers: config.num_hidden_layers,
        use_sliding_window: false,
    };
    Ok(Qwen2Decoder(ModelForCausalLM::new(&config, weights)?))
}

impl Decoder for Qwen2Decoder {
    type Cache = ModelForCausalLM;

    fn prefill(&self, inputs: &[Tensor]) -> Result<(Tensor, ModelForCausalLM)> {
        let mut model = self.0.clone();
        Ok((model.forward(only_input(inputs)?, 0)?.squeeze(1)?, model))
    }

    fn step(&self, tokens: &Tensor, position: usize, cache: &mut ModelForCausalLM) -> Result<Tensor> {
        cache.forward(tokens, position)?.squeeze(1)
    }
}
