//! What the decoders of tokens alone have in common.

use candle_core::{Result, Tensor};
use candle_nn::Activation;
use serde::Deserialize;

/// `config.json` of Llama and Qwen2. candle's own types look for the rotation's base where transformers no longer writes
/// it, and Llama's takes another one in silence.
#[derive(Deserialize)]
pub struct Config {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    pub max_position_embeddings: usize,
    pub rms_norm_eps: f64,
    pub tie_word_embeddings: bool,
    pub hidden_act: Activation,
    #[serde(default)]
    pub use_sliding_window: bool,
    rope_parameters: RopeParameters,
}

#[derive(Deserialize)]
struct RopeParameters {
    rope_type: String,
    rope_theta: f64,
}

impl Config {
    /// The base of the rotation.
    ///
    /// # Errors
    /// The frequencies are not the base's powers alone.
    pub fn rope_theta(&self) -> Result<f64> {
        let RopeParameters { rope_type, rope_theta } = &self.rope_parameters;
        if rope_type != "default" {
            candle_core::bail!("rotary embeddings of type {rope_type:?} are not supported");
        }
        Ok(*rope_theta)
    }
}

/// The only input of such a model.
///
/// # Errors
/// There are more, or none.
pub fn prompt(inputs: &[Tensor]) -> Result<&Tensor> {
    let [tokens] = inputs else { candle_core::bail!("{} inputs instead of 1", inputs.len()) };
    Ok(tokens)
}
