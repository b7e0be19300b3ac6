//! The configuration of decoders whose only input is tokens.

use candle_core::{Error, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, from_value};

/// `config.json` of Llama and Qwen2.
#[derive(Deserialize)]
pub struct Config {
    rope_parameters: RopeParameters,
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

#[derive(Deserialize)]
struct RopeParameters {
    rope_type: String,
    rope_theta: f64,
}

impl Config {
    /// candle's own type. It looks for the rotation's base where transformers no longer writes it, and Llama's takes another
    /// one in silence, so the base is put there.
    ///
    /// # Errors
    /// The frequencies are not the base's powers alone, or the configuration lacks something.
    pub fn into_candle<C: DeserializeOwned>(mut self) -> Result<C> {
        let RopeParameters { rope_type, rope_theta } = self.rope_parameters;
        if rope_type != "default" {
            candle_core::bail!("rotary embeddings of type {rope_type:?} are not supported");
        }
        self.others.insert("rope_theta".into(), rope_theta.into());
        from_value(self.others.into()).map_err(Error::wrap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_transformers::models::llama::LlamaConfig;

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
        assert_eq!(plain.into_candle::<LlamaConfig>().unwrap().rope_theta, 1e6);
        let scaled = config(r#"{"rope_type": "llama3", "rope_theta": 500000.0}"#).unwrap();
        assert!(scaled.into_candle::<LlamaConfig>().unwrap_err().to_string().contains("not supported"));
        assert!(config("{}").is_err());
    }
}
