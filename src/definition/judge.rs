//! How a model's answers to samples are judged: as its definition says, or else by its family and the names of its outputs.

use serde::{Deserialize, Serialize};

use super::tensor_spec::{Dimension, TensorSpec};

/// What a model's answers are, for those who judge them.
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
    /// Tokens of what is said in a sound.
    Speech,
}

/// Parts of the names of families that transcribe sound.
const SPEECH: [&str; 4] = ["wav2vec2", "whisper", "hubert", "wavlm"];

impl Judge {
    /// The judge of a model whose definition names none: of a generative model speech if it takes sound, and otherwise text; of
    /// another one by what its outputs are called; or classes.
    pub fn usual(family: &str, modality: &str, is_generative: bool, outputs: &[TensorSpec]) -> Self {
        let is_named =
            |word: &str| outputs.is_empty() || outputs.iter().any(|output| output.name.to_lowercase().contains(word));
        // One number per class, and not the likeness of pairs.
        let is_score_per_class = |output: &TensorSpec| {
            let is_vector = matches!(output.shape.as_slice(), [_, Dimension::Fixed(2..)]);
            is_vector && is_scores(&output.name)
        };
        let is_speech = SPEECH.iter().any(|word| family.to_lowercase().contains(word));
        match is_generative {
            true if is_speech || modality == "audio" => Judge::Speech,
            true => Judge::Text,
            false if is_speech && is_named("logits") => Judge::Speech,
            false if family == "detr" || !outputs.is_empty() && is_named("boxes") => Judge::Boxes,
            false if outputs.iter().any(is_score_per_class) => Judge::Classes,
            false if family == "embedding" || outputs.iter().any(|output| is_embedding(&output.name)) => {
                Judge::Embedding
            }
            false => Judge::Classes,
        }
    }
}

/// Whether a name is one of an output that holds a score per class or token.
pub fn is_scores(name: &str) -> bool {
    ["logits", "prob"].iter().any(|word| name.to_lowercase().contains(word))
}

/// Whether a name is one of an output that holds a vector per sample.
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
        assert_eq!(Judge::usual("whisper", "audio", true, &[]), Judge::Speech);
        assert_eq!(Judge::usual("llama", "text", true, &[]), Judge::Text);
    }
}
