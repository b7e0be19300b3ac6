//! How a model's answers to samples are judged: as its definition says, or else by its family and the names of its outputs.

use serde::{Deserialize, Serialize};

use super::tensor_spec::{Dimension, TensorSpec};

/// What a model's answers are, which decides how they are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Judge {
    /// A score per class, or any other numbers.
    Classes,
    /// Boxes, each with a class and a score.
    Boxes,
    /// A vector per sample.
    Embedding,
    /// Tokens that follow a prompt.
    Text,
    /// Tokens of what is said in audio.
    Speech,
    /// The class of each pixel, or a score per class and pixel.
    Segmentation,
    /// The depth of each pixel.
    Depth,
    /// The score of an item that a user may choose.
    Recommendation,
    /// A signal, such as an image without its noise, or the noise.
    Denoising,
}

/// Words in the names of families that transcribe speech.
const SPEECH: [&str; 4] = ["wav2vec2", "whisper", "hubert", "wavlm"];
/// Words in the names of families for other judges.
const SEGMENTATION: [&str; 6] = ["segformer", "segment", "unet", "deeplab", "upernet", "fcn"];
const DEPTH: [&str; 3] = ["depth", "dpt", "midas"];
const RECOMMENDATION: [&str; 3] = ["dlrm", "deepfm", "recommend"];
const DENOISING: [&str; 3] = ["diffusion", "denois", "restoration"];

impl Judge {
    /// The judge of a model whose definition names none. A generative model has speech if it takes audio, and text
    /// otherwise. For any other model, its family and its outputs decide; the default is classes.
    pub fn usual(family: &str, modality: &str, is_generative: bool, outputs: &[TensorSpec]) -> Self {
        let is_named =
            |word: &str| outputs.is_empty() || outputs.iter().any(|output| output.name.to_lowercase().contains(word));
        // One number per class, not the similarity of pairs.
        let is_score_per_class = |output: &TensorSpec| {
            let is_vector = matches!(output.shape.as_slice(), [_, Dimension::Fixed(2..)]);
            is_vector && is_scores(&output.name)
        };
        let family = family.to_lowercase();
        let is_one_of = |words: &[&str]| words.iter().any(|word| family.contains(word));
        let has_output = |is_it: fn(&str, &[Dimension]) -> bool| {
            outputs.iter().any(|output| is_it(&output.name.to_lowercase(), &output.shape))
        };
        let is_of_family = |words: &[&str], is_it: fn(&str, &[Dimension]) -> bool| {
            is_one_of(words) && (outputs.is_empty() || has_output(is_it))
        };
        let is_speech = is_one_of(&SPEECH);
        let has_classes = outputs.iter().any(is_score_per_class);
        match is_generative {
            true if is_speech || modality == "audio" => Judge::Speech,
            true => Judge::Text,
            // Speech has logits per frame, and a classifier of sounds has them per sample.
            false if is_speech && is_named("logits") && !has_classes => Judge::Speech,
            false if family == "detr" || !outputs.is_empty() && is_named("boxes") => Judge::Boxes,
            false if has_classes => Judge::Classes,
            false if has_output(is_mask) || is_of_family(&SEGMENTATION, is_map_of_classes) => Judge::Segmentation,
            false if has_output(is_depth) || is_of_family(&DEPTH, is_map) => Judge::Depth,
            false if is_of_family(&RECOMMENDATION, is_number) => Judge::Recommendation,
            false if modality == "table" && has_output(|name, shape| is_number(name, shape) && is_scores(name)) => {
                Judge::Recommendation
            }
            false if family == "embedding" || outputs.iter().any(|output| is_embedding(&output.name)) => {
                Judge::Embedding
            }
            false if has_output(is_noise) || is_of_family(&DENOISING, is_map) => Judge::Denoising,
            false => Judge::Classes,
        }
    }
}

/// A score per class and pixel, or a mask.
fn is_mask(name: &str, shape: &[Dimension]) -> bool {
    let is_one_pixel = matches!(shape, [_, _, Dimension::Fixed(1), Dimension::Fixed(1)]);
    let is_called_mask = (name.contains("mask") || name.contains("segment")) && !name.contains("attention");
    is_map(name, shape) && !is_one_pixel && (is_called_mask || is_scores(name) && shape.len() == 4)
}

/// A map that is neither called noise nor depth.
fn is_map_of_classes(name: &str, shape: &[Dimension]) -> bool {
    is_map(name, shape) && !is_noise(name, shape) && !is_depth(name, shape)
}

fn is_depth(name: &str, shape: &[Dimension]) -> bool {
    is_map(name, shape) && name.contains("depth")
}

fn is_noise(name: &str, shape: &[Dimension]) -> bool {
    is_map(name, shape) && ["noise", "denois", "out_sample"].iter().any(|word| name.contains(word))
}

/// A number per pixel, or several.
fn is_map(_name: &str, shape: &[Dimension]) -> bool {
    matches!(shape.len(), 3 | 4)
}

/// One number per sample.
fn is_number(_name: &str, shape: &[Dimension]) -> bool {
    matches!(shape, [_] | [_, Dimension::Fixed(1)])
}

/// Whether an output of this name holds a score per class or token.
pub fn is_scores(name: &str) -> bool {
    ["logits", "prob"].iter().any(|word| name.to_lowercase().contains(word))
}

/// Whether an output of this name holds a vector per sample.
pub fn is_embedding(name: &str) -> bool {
    ["embed", "pool", "mean_state"].iter().any(|word| name.to_lowercase().contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::ElementType;

    #[test]
    fn a_model_is_judged_by_its_family_and_the_names_of_its_outputs() {
        let output = |name: &str, shape: &[usize]| {
            let shape = shape.iter().map(|&size| Dimension::Fixed(size)).collect();
            TensorSpec::new(name, ElementType::F32, shape)
        };
        let judge = |family: &str, outputs: &[TensorSpec]| Judge::usual(family, "unknown", false, outputs);
        assert_eq!(judge("net", &[output("logits", &[1, 10])]), Judge::Classes);
        assert_eq!(judge("net", &[]), Judge::Classes);
        assert_eq!(judge("clip", &[output("logits", &[1]), output("image_embeds", &[1, 64])]), Judge::Embedding);
        assert_eq!(judge("net", &[output("logits", &[1, 10]), output("embeddings", &[1, 64])]), Judge::Classes);
        assert_eq!(judge("bert", &[output("pooler_output", &[1, 64])]), Judge::Embedding);
        assert_eq!(judge("net", &[output("logits", &[1, 9, 3]), output("pred_boxes", &[1, 9, 4])]), Judge::Boxes);
        assert_eq!(judge("wav2vec2", &[output("logits", &[1, 9, 32])]), Judge::Speech);
        assert_eq!(judge("wav2vec2", &[output("last_hidden_state", &[1, 9, 32])]), Judge::Classes);
        assert_eq!(judge("wav2vec2", &[output("logits", &[1, 12])]), Judge::Classes);
        assert_eq!(judge("net", &[output("logits", &[1, 8, 16, 16])]), Judge::Segmentation);
        assert_eq!(judge("net", &[output("logits", &[1, 8, 1, 1])]), Judge::Classes);
        assert_eq!(judge("net", &[output("pred_masks", &[1, 16, 16])]), Judge::Segmentation);
        assert_eq!(judge("deeplabv3", &[output("out", &[1, 21, 64, 64])]), Judge::Segmentation);
        assert_eq!(judge("unet", &[]), Judge::Segmentation);
        assert_eq!(judge("unet", &[output("out_sample", &[1, 4, 16, 16])]), Judge::Denoising);
        assert_eq!(judge("depth_anything", &[output("predicted_depth", &[1, 56, 56])]), Judge::Depth);
        assert_eq!(judge("dpt", &[output("logits", &[1, 150, 56, 56])]), Judge::Segmentation);
        assert_eq!(judge("dlrm", &[output("probability", &[1, 1])]), Judge::Recommendation);
        assert_eq!(judge("net", &[output("probability", &[1, 1])]), Judge::Classes);
        let click = [output("probability", &[1])];
        assert_eq!(Judge::usual("net", "table", false, &click), Judge::Recommendation);
        assert_eq!(judge("diffusion", &[output("noise", &[1, 4, 16, 16])]), Judge::Denoising);
        assert_eq!(judge("diffusion", &[output("last_hidden_state", &[1, 77]),]), Judge::Classes);
        assert_eq!(Judge::usual("whisper", "audio", true, &[]), Judge::Speech);
        assert_eq!(Judge::usual("llama", "text", true, &[]), Judge::Text);
    }
}
