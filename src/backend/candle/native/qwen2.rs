//! Qwen2.

use candle_core::Result;
use candle_nn::VarBuilder;
use candle_transformers::models::qwen2::{Config, ModelForCausalLM};

use super::causal_lm;
use super::module::Decoder;

/// transformers' `Qwen2ForCausalLM`.
///
/// # Errors
/// The configuration is not one of candle's module, or the weights do not fit it.
pub fn load(mut config: causal_lm::Config, weights: VarBuilder) -> Result<Decoder<ModelForCausalLM>> {
    // The module takes a window always, and its type has no default.
    config.others.insert("sliding_window".into(), 0.into());
    config.others.insert("max_window_layers".into(), 0.into());
    config.others.entry("use_sliding_window").or_insert(false.into());
    let mut config: Config = config.into_candle()?;
    if config.use_sliding_window {
        candle_core::bail!("a sliding window is not supported by candle's qwen2 in steps");
    }
    // As wide as the longest text.
    config.sliding_window = config.max_position_embeddings;
    config.max_window_layers = config.num_hidden_layers;
    // The module holds the cache itself; its clones share the weights.
    let empty = ModelForCausalLM::new(&config, weights)?;
    Ok(Decoder { empty, forward: Box::new(|tokens, position, model| model.forward(tokens, position)?.squeeze(1)) })
}
