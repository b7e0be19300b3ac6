//! What each input of a model of texts holds, and where its tokenizer is looked for.

use std::path::{Path, PathBuf};

use super::model::{Model, Origin};
use super::tensor_spec::{Dimension, ElementType, SEQUENCE, TensorSpec};

/// What an input `[batch, tokens]` of a model of texts holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextInput {
    /// The ids of the tokens.
    Tokens,
    /// 1 for each token of a text, and 0 after its end.
    Mask,
    /// Which of two texts a token belongs to.
    Types,
    /// 0, 1, 2, ….
    Positions,
}

impl TextInput {
    /// What an input holds, by its name as Hugging Face's exporters write it: `input_ids`, `attention_mask`, `token_type_ids`,
    /// `position_ids`.
    fn of(input: &TensorSpec) -> Option<Self> {
        let name = input.name.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        let is_list = matches!(input.dtype, ElementType::I64 | ElementType::I32) && input.shape.len() == 2;
        match is_list {
            true if has(&["mask"]) => Some(TextInput::Mask),
            true if has(&["type", "segment"]) => Some(TextInput::Types),
            true if has(&["position"]) => Some(TextInput::Positions),
            true if has(&["ids", "token"]) => Some(TextInput::Tokens),
            _ => None,
        }
    }
}

/// The file of a tokenizer of the library `tokenizers`.
const TOKENIZER: &str = "tokenizer.json";

impl Model {
    /// What each input holds, if the model reads one text per sample and makes no tokens.
    pub(crate) fn text_inputs(&self) -> Option<Vec<TextInput>> {
        let inputs = self.inputs.iter().map(TextInput::of).collect::<Option<Vec<_>>>()?;
        let tokens = inputs.iter().filter(|input| **input == TextInput::Tokens).count();
        (self.generation.is_none() && tokens == 1).then_some(inputs)
    }

    /// The input of the tokens' ids of a model of texts.
    pub(crate) fn token_input(&self) -> Option<&TensorSpec> {
        let place = self.text_inputs()?.iter().position(|input| *input == TextInput::Tokens)?;
        self.inputs.get(place)
    }

    /// The prompt of a model that makes tokens, if that is its only input.
    pub(crate) fn prompt_input(&self) -> Option<&TensorSpec> {
        let tokens = &self.generation.as_ref()?.tokens;
        let [input] = self.inputs.as_slice() else { return None };
        (input.name == *tokens).then_some(input)
    }

    /// The same model of texts, with the length of the texts as its sequence if that is open under another name.
    #[must_use]
    pub(crate) fn with_texts_as_sequence(self) -> Self {
        if self.text_inputs().is_none() {
            return self;
        }
        let mut inputs = self.inputs.clone();
        for TensorSpec { shape, .. } in &mut inputs {
            if shape[1].fixed().is_none() {
                shape[1] = Dimension::Symbol(SEQUENCE.into());
            }
        }
        self.with_inputs(inputs)
    }

    /// Where files that describe the model are looked for, in this order: beside its files, and above a hub's folder
    /// `onnx`.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let packaged = if let Origin::Packaged { folder, .. } = &self.origin { Some(folder.as_path()) } else { None };
        let beside = self.origin.files().filter_map(|file| file.parent());
        let mut folders: Vec<PathBuf> = packaged.into_iter().chain(beside).map(Path::to_owned).collect();
        let above = folders.iter().filter(|folder| folder.ends_with("onnx")).filter_map(|folder| folder.parent());
        folders.extend(above.map(Path::to_owned).collect::<Vec<_>>());
        folders.dedup();
        folders
    }

    /// Where the model's tokenizer is looked for.
    pub(crate) fn tokenizer_files(&self) -> Vec<PathBuf> {
        self.folders().into_iter().map(|folder| folder.join(TOKENIZER)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_known_by_their_names() {
        let of = |text: &str| TextInput::of(&text.parse().unwrap());
        assert_eq!(of("input_ids:i64[batch,sequence]"), Some(TextInput::Tokens));
        assert_eq!(of("tokens:i32[1,128]"), Some(TextInput::Tokens));
        assert_eq!(of("attention_mask:i64[batch,sequence]"), Some(TextInput::Mask));
        assert_eq!(of("token_type_ids:i64[batch,sequence]"), Some(TextInput::Types));
        assert_eq!(of("position_ids:i64[batch,sequence]"), Some(TextInput::Positions));
        for other in ["pixel_values:f32[batch,3]", "attention_mask:f32[batch,sequence]", "input_ids:i64[batch]"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
