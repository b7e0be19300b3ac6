//! Models that generate tokens: Llama and Qwen2. Their only input is tokens.

use candle_core::{Error, Result};
use candle_nn::VarBuilder;
use candle_transformers::models::{llama, qwen2};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, from_value};

use crate::backend::candle::tensor::Decoder;

/// `config.json` of Llama and Qwen2.
#[derive(Deserialize)]
pub struct Config {
    rope_parameters: RopeParameters,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
struct RopeParameters {
    rope_type: String,
    rope_theta: f64,
    #[serde(flatten)]
    scaling: Map<String, Value>,
}

impl Config {
    /// Converts to candle's own type. It looks for the rotation's base where transformers no longer writes it, and
    /// Llama's silently takes a default instead. So the base is put there.
    fn into_candle<C: DeserializeOwned>(mut self) -> Result<C> {
        let RopeParameters { rope_type, rope_theta, .. } = self.rope_parameters;
        if rope_type != "default" {
            candle_core::bail!("rotary embeddings of type {rope_type:?} are not supported");
        }
        self.others.insert("rope_theta".into(), rope_theta.into());
        from_value(self.others.into()).map_err(Error::wrap)
    }
}

/// The name of the scaling of rotations in Llama 3.1 and later.
const LLAMA3: &str = "llama3";

/// transformers' `LlamaForCausalLM`.
pub fn load_llama(mut config: Config, weights: VarBuilder) -> Result<Decoder<llama::Cache>> {
    // candle reads this scaling where transformers used to write it.
    if config.rope_parameters.rope_type == LLAMA3 {
        let mut scaling = std::mem::take(&mut config.rope_parameters.scaling);
        scaling.insert("rope_type".into(), LLAMA3.into());
        config.others.insert("rope_scaling".into(), scaling.into());
        config.rope_parameters.rope_type = "default".into();
    }
    let activation = config.others.get("hidden_act").unwrap_or(&Value::Null);
    if activation != "silu" {
        candle_core::bail!("the activation {activation} is not supported by candle's llama");
    }
    // The module would ignore these biases.
    for biases in ["attention_bias", "mlp_bias"] {
        if config.others.get(biases) == Some(&true.into()) {
            candle_core::bail!("{biases} is not supported by candle's llama");
        }
    }
    let head_dim = config.others.get("head_dim").and_then(Value::as_u64);
    let config = config.into_candle::<llama::LlamaConfig>()?.into_config(false);
    // The module divides the width by the number of heads.
    let (width, heads) = (config.hidden_size as u64, config.num_attention_heads as u64);
    if let Some(size) = head_dim.filter(|size| size.checked_mul(heads) != Some(width)) {
        candle_core::bail!(
            "a head_dim of {size} is not supported by candle's llama: {heads} heads have a width of {width}"
        );
    }
    let empty = llama::Cache::new(true, weights.dtype(), &config, weights.device())?;
    let model = llama::Llama::load(weights, &config)?;
    Ok(Decoder { empty, forward: Box::new(move |tokens, position, cache| model.forward(tokens, position, cache)) })
}

/// transformers' `Qwen2ForCausalLM`.
pub fn load_qwen2(mut config: Config, weights: VarBuilder) -> Result<Decoder<qwen2::ModelForCausalLM>> {
    if config.others.get("use_sliding_window") == Some(&true.into()) {
        candle_core::bail!("a sliding window is not supported by candle's qwen2 in steps");
    }
    // The module always takes a window: this one is as wide as the longest text.
    for (name, same_as) in [("sliding_window", "max_position_embeddings"), ("max_window_layers", "num_hidden_layers")] {
        config.others.insert(name.into(), config.others.get(same_as).cloned().unwrap_or_default());
    }
    config.others.insert("use_sliding_window".into(), false.into());
    let config: qwen2::Config = config.into_candle()?;
    // The module holds the cache itself; its clones share the weights.
    let empty = qwen2::ModelForCausalLM::new(&config, weights)?;
    Ok(Decoder { empty, forward: Box::new(|tokens, position, model| model.forward(tokens, position)?.squeeze(1)) })
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

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
        assert_eq!(plain.into_candle::<llama::LlamaConfig>().unwrap().rope_theta, 1e6);
        let scaled = config(r#"{"rope_type": "llama3", "rope_theta": 500000.0}"#).unwrap();
        assert!(scaled.into_candle::<llama::LlamaConfig>().unwrap_err().to_string().contains("not supported"));
        assert!(config("{}").is_err());
        let load = |rope: &str| load_llama(config(rope).unwrap(), VarBuilder::zeros(DType::F32, &Device::Cpu)).is_ok();
        let llama3 = r#"{"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 16}"#;
        assert!(load(llama3) && !load(r#"{"rope_type": "llama3", "rope_theta": 500000.0}"#));
    }

    #[test]
    fn another_activation_or_size_of_heads_is_refused_and_biases_of_projections_are_not_left_out() {
        let load = |name: &str, value: Value| {
            let mut config = config(r#"{"rope_type": "default", "rope_theta": 10000.0}"#).unwrap();
            config.others.insert(name.into(), value);
            load_llama(config, VarBuilder::zeros(DType::F32, &Device::Cpu)).err().map(|error| error.to_string())
        };
        let refused = load("hidden_act", "relu".into()).unwrap();
        assert!(refused.starts_with("the activation \"relu\" is not supported by candle's llama"), "{refused}");
        for name in ["attention_bias", "mlp_bias"] {
            assert!(load(name, true.into()).is_some_and(|why| why.contains("not supported")), "{name}");
            assert_eq!(load(name, false.into()), None);
        }
        let wide = load("head_dim", 8.into()).unwrap();
        assert!(wide.starts_with("a head_dim of 8 is not supported by candle's llama"), "{wide}");
        assert_eq!(load("head_dim", 4.into()), None);
    }
}
