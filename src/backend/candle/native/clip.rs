//! CLIP for pairs of a picture and a text.
//!
//! candle's module returns the similarity of every picture with every text. The similarity of each pair and the embeddings
//! are computed here out of the module's features. The module takes no mask of padding: it uses the state at the end of the
//! text, which does not see the padding behind it.

use candle_core::Result;
use candle_nn::VarBuilder;
use candle_transformers::models::clip::text_model::{Activation, ClipTextConfig};
use candle_transformers::models::clip::vision_model::ClipVisionConfig;
use candle_transformers::models::clip::{ClipConfig, ClipModel, div_l2_norm};
use serde::Deserialize;

use super::module::Forward;

/// `config.json`; candle's own type cannot be read from it.
#[derive(Deserialize)]
pub struct Config {
    projection_dim: usize,
    logit_scale_init_value: f32,
    text_config: TextConfig,
    vision_config: VisionConfig,
}

#[derive(Deserialize)]
struct TextConfig {
    vocab_size: usize,
    max_position_embeddings: usize,
    #[serde(flatten)]
    encoder: EncoderConfig,
}

#[derive(Deserialize)]
struct VisionConfig {
    num_channels: usize,
    image_size: usize,
    patch_size: usize,
    #[serde(flatten)]
    encoder: EncoderConfig,
}

#[derive(Deserialize)]
struct EncoderConfig {
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    hidden_act: String,
    layer_norm_eps: f64,
}

impl EncoderConfig {
    /// candle's module has one activation and one epsilon.
    fn check(&self) -> Result<()> {
        if self.hidden_act != "quick_gelu" || self.layer_norm_eps != 1e-5 {
            let (activation, epsilon) = (&self.hidden_act, self.layer_norm_eps);
            candle_core::bail!("{activation} with an epsilon of {epsilon:e} is not supported by candle's clip");
        }
        Ok(())
    }
}

/// transformers' `CLIPModel`: tokens and mask `[batch, sequence]` and pictures `[batch, 3, height, width]` to the similarity
/// of each pair, `[batch]`, and the embeddings of pictures and texts, `[batch, projection]`.
///
/// # Errors
/// The configuration is not one of candle's module, or the weights do not fit it.
pub fn load(config: Config, weights: VarBuilder) -> Result<Forward> {
    let (text, vision) = (&config.text_config.encoder, &config.vision_config.encoder);
    text.check()?;
    vision.check()?;
    let candle_config = ClipConfig {
        text_config: ClipTextConfig {
            vocab_size: config.text_config.vocab_size,
            embed_dim: text.hidden_size,
            activation: Activation::QuickGelu,
            intermediate_size: text.intermediate_size,
            max_position_embeddings: config.text_config.max_position_embeddings,
            pad_with: None,
            num_hidden_layers: text.num_hidden_layers,
            num_attention_heads: text.num_attention_heads,
            projection_dim: config.projection_dim,
        },
        vision_config: ClipVisionConfig {
            embed_dim: vision.hidden_size,
            activation: Activation::QuickGelu,
            intermediate_size: vision.intermediate_size,
            num_hidden_layers: vision.num_hidden_layers,
            num_attention_heads: vision.num_attention_heads,
            projection_dim: config.projection_dim,
            num_channels: config.vision_config.num_channels,
            image_size: config.vision_config.image_size,
            patch_size: config.vision_config.patch_size,
        },
        logit_scale_init_value: config.logit_scale_init_value,
        image_size: config.vision_config.image_size,
    };
    let logit_scale = weights.get((), "logit_scale")?;
    let model = ClipModel::new(weights, &candle_config)?;
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
        let config = |hidden_act: &str, layer_norm_eps| EncoderConfig {
            hidden_size: 8,
            intermediate_size: 16,
            num_hidden_layers: 1,
            num_attention_heads: 2,
            hidden_act: hidden_act.into(),
            layer_norm_eps,
        };
        assert!(config("quick_gelu", 1e-5).check().is_ok());
        assert!(config("gelu", 1e-5).check().is_err());
        assert!(config("quick_gelu", 1e-6).check().is_err());
    }
}
