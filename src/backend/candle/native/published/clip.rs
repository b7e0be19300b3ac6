//! CLIP for pairs of a picture and a text.
//!
//! candle's module returns the similarity of every picture with every text. The similarity of each pair and the
//! embeddings are computed here from the module's features. The module takes no mask of padding: it uses the state at
//! the end of the text, which does not see the padding behind it.

use candle_core::Result;
use candle_nn::VarBuilder;
use candle_transformers::models::clip::text_model::{Activation, ClipTextConfig};
use candle_transformers::models::clip::vision_model::ClipVisionConfig;
use candle_transformers::models::clip::{ClipConfig, ClipModel, div_l2_norm};
use serde_json::Value;

use crate::backend::candle::tensor::Forward;

/// The configuration of candle's module from `config.json`, from which candle's own types cannot be read.
fn candle_config(config: &Value) -> Result<ClipConfig> {
    let number = |part: &str, key: &str| match config.pointer(&format!("/{part}{key}")).and_then(Value::as_u64) {
        Some(number) => Ok(number as usize),
        None => candle_core::bail!("config.json has no whole number {part}{key}"),
    };
    for part in ["text_config", "vision_config"] {
        let (activation, epsilon) = (&config[part]["hidden_act"], &config[part]["layer_norm_eps"]);
        if activation != "quick_gelu" || epsilon.as_f64() != Some(1e-5) {
            candle_core::bail!("{activation} with an epsilon of {epsilon} is not supported by candle's clip");
        }
    }
    let text = |key| number("text_config/", key);
    let vision = |key| number("vision_config/", key);
    Ok(ClipConfig {
        text_config: ClipTextConfig {
            vocab_size: text("vocab_size")?,
            embed_dim: text("hidden_size")?,
            activation: Activation::QuickGelu,
            intermediate_size: text("intermediate_size")?,
            max_position_embeddings: text("max_position_embeddings")?,
            pad_with: None,
            num_hidden_layers: text("num_hidden_layers")?,
            num_attention_heads: text("num_attention_heads")?,
            projection_dim: number("", "projection_dim")?,
        },
        vision_config: ClipVisionConfig {
            embed_dim: vision("hidden_size")?,
            activation: Activation::QuickGelu,
            intermediate_size: vision("intermediate_size")?,
            num_hidden_layers: vision("num_hidden_layers")?,
            num_attention_heads: vision("num_attention_heads")?,
            projection_dim: number("", "projection_dim")?,
            num_channels: vision("num_channels")?,
            image_size: vision("image_size")?,
            patch_size: vision("patch_size")?,
        },
        logit_scale_init_value: config["logit_scale_init_value"].as_f64().unwrap_or_default() as f32,
        image_size: vision("image_size")?,
    })
}

/// transformers' `CLIPModel`: tokens and mask `[batch, sequence]` and pictures `[batch, 3, height, width]` to the
/// similarity of each pair, `[batch]`, and the embeddings of pictures and texts, `[batch, projection]`.
pub fn load(config: &Value, weights: VarBuilder) -> Result<Forward> {
    let config = candle_config(config)?;
    let logit_scale = weights.get((), "logit_scale")?;
    let model = ClipModel::new(weights, &config)?;
    Ok(Box::new(move |inputs| {
        let [tokens, _mask, pixels] = inputs else { candle_core::bail!("{} inputs instead of 3", inputs.len()) };
        let image = div_l2_norm(&model.get_image_features(pixels)?)?;
        let text = div_l2_norm(&model.get_text_features(tokens)?)?;
        let logits = (&image * &text)?.sum(1)?.broadcast_mul(&logit_scale.exp()?)?;
        Ok(vec![logits, image, text])
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_activation_or_epsilon_is_refused() {
        let refusal = |activation: &str, epsilon: f64| {
            let part = serde_json::json!({ "hidden_act": activation, "layer_norm_eps": epsilon });
            let config = serde_json::json!({ "text_config": part, "vision_config": part });
            candle_config(&config).unwrap_err().to_string()
        };
        assert!(refusal("quick_gelu", 1e-5).contains("no whole number"), "what is refused is something else");
        assert!(refusal("gelu", 1e-5).contains("not supported"));
        assert!(refusal("quick_gelu", 1e-6).contains("not supported"));
    }
}
