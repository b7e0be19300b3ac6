//! The configuration of decoders whose only input is tokens.

use candle_core::Result;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn config(rope_parameters: &str) -> serde_json::Result<Config> {
        serde_json::from_str(&format!(
            r#"{{"vocab_size": 10, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
                "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32, "rms_norm_eps": 1e-6,
                "tie_word_embeddings": true, "hidden_act": "silu", "rope_parameters": {rope_parameters}}}"#
        ))
    }

    #[test]
    fn the_base_of_the_rotation_is_never_guessed() {
        let plain = config(r#"{"rope_type": "default", "rope_theta": 1000000.0}"#).unwrap();
        assert_eq!(plain.rope_theta().unwrap(), 1e6);
        let scaled = config(r#"{"rope_type": "llama3", "rope_theta": 500000.0}"#).unwrap();
        assert!(scaled.rope_theta().unwrap_err().to_string().contains("not supported"));
        assert!(config("{}").is_err());
    }
}
