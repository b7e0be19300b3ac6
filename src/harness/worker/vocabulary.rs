//! What is known about a model's tokens: which are blank or end a text, and which words they form.

use std::collections::HashMap;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::boxes::best;
use crate::definition::{Model, Origin, is_scores};
use crate::fixture::HostTensor;
use crate::gguf::Header;
use crate::run_data::{Transcript, files};

/// What `vocab.json` and `config.json` beside a model, and a GGUF file itself, say about the model's tokens.
#[derive(Default)]
pub struct Vocabulary {
    /// The texts of tokens, if there is a `vocab.json`.
    texts: Option<HashMap<i64, String>>,
    /// The blank token of connectionist temporal classification.
    blank: i64,
    /// The tokens that end a text.
    pub ends: Vec<i64>,
}

impl Vocabulary {
    /// Reads the files beside the model, or above a hub's folder `onnx`.
    pub fn beside(model: &Model) -> Self {
        let mut beside = Self::read(&model.folders());
        if let Origin::Gguf { file } = &model.origin {
            let ends = Header::read(file).map(|header| ends_of(&header)).unwrap_or_default();
            beside.ends = if ends.is_empty() { beside.ends } else { ends };
        }
        // Only a decoder ends a text with a token. In the vocabulary of another model, its id may be that of a letter.
        if model.generation.is_none() {
            beside.ends.clear();
        }
        beside
    }

    fn read(folders: &[PathBuf]) -> Self {
        let config: Value = first_of(folders, "config.json").unwrap_or_default();
        let ids: Option<HashMap<String, i64>> = first_of(folders, "vocab.json");
        let named =
            |names: [&str; 3]| ids.as_ref().and_then(|ids| names.iter().find_map(|name| ids.get(*name)).copied());
        let ends = match &config["eos_token_id"] {
            Value::Array(ends) => ends.iter().filter_map(Value::as_i64).collect(),
            end => end.as_i64().into_iter().collect(),
        };
        Vocabulary {
            blank: named(["<pad>", "[PAD]", "<blank>"]).or(config["pad_token_id"].as_i64()).unwrap_or(0),
            ends,
            texts: ids.map(|ids| ids.into_iter().map(|(text, id)| (id, text)).collect()),
        }
    }

    /// The transcript of tokens up to the first that ends a text.
    pub fn transcript(&self, tokens: &[i64]) -> Transcript {
        let end = tokens.iter().position(|token| self.ends.contains(token)).unwrap_or(tokens.len());
        let tokens = tokens[..end].to_vec();
        Transcript { words: self.words(&tokens), tokens }
    }

    /// The words of tokens; `|`, `Ġ` and `▁` separate words. Tokens such as `<unk>` and `[PAD]` are left out.
    fn words(&self, tokens: &[i64]) -> Option<Vec<String>> {
        let texts = self.texts.as_ref()?;
        let is_special = |text: &&String| {
            [("<", ">"), ("[", "]")].iter().any(|(first, last)| text.starts_with(first) && text.ends_with(last))
        };
        let said = tokens.iter().filter_map(|token| texts.get(token)).filter(|text| !is_special(text));
        let text: String =
            said.flat_map(|text| text.chars()).map(|c| if "|Ġ▁".contains(c) { ' ' } else { c }).collect();
        Some(text.split_whitespace().map(str::to_owned).collect())
    }

    /// Decodes logits `[batch, frames, tokens]` greedily: the likeliest token of each frame, without repetitions and
    /// then without blanks (Graves et al. 2006, "Connectionist temporal classification"). The logits are the output
    /// that is named so, or else the first of this shape. Returns `None` if no output has this shape.
    pub fn greedy(&self, names: &[String], outputs: &[HostTensor]) -> Option<Vec<Transcript>> {
        let fits = |&place: &usize| outputs[place].shape.len() == 3 && !outputs[place].is_integer();
        let places = || (0..outputs.len()).filter(fits);
        let named = places().find(|&place| names.get(place).is_some_and(|name| is_scores(name)));
        let logits = &outputs[named.or_else(|| places().next())?];
        let [batch, frames, width] = logits.shape[..] else { return None };
        let likeliest: Vec<i64> = logits.to_f64().chunks_exact(width.max(1)).map(|row| best(row).1).collect();
        let transcript = |sample: usize| {
            let mut tokens = likeliest[sample * frames..(sample + 1) * frames].to_vec();
            tokens.dedup();
            tokens.retain(|token| *token != self.blank);
            Transcript { words: self.words(&tokens), tokens }
        };
        Some((0..batch).map(transcript).collect())
    }
}

/// Reads the file of this name from the first folder that has it.
fn first_of<T: DeserializeOwned>(folders: &[PathBuf], name: &str) -> Option<T> {
    folders.iter().find_map(|folder| files::read_json(&folder.join(name)).ok())
}

/// The tokens that end a text or a turn, as a GGUF file says.
fn ends_of(header: &Header) -> Vec<i64> {
    let id = |key: &str| header.number(&format!("tokenizer.ggml.{key}_token_id")).and_then(|id| i64::try_from(id).ok());
    ["eos", "eot", "eom"].into_iter().filter_map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Generation;
    use crate::fixture::TensorData;

    fn floats(shape: &[usize], values: &[f32]) -> HostTensor {
        HostTensor { shape: shape.to_vec(), data: TensorData::F32(values.to_vec()) }
    }

    #[test]
    fn repeated_frames_and_blanks_say_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let vocabulary = r#"{"<pad>": 0, "<unk>": 1, "|": 2, "A": 3, "B": 4}"#;
        std::fs::write(folder.path().join("vocab.json"), vocabulary).unwrap();
        let vocabulary = Vocabulary::read(&[folder.path().to_owned()]);
        let frames = [0, 3, 3, 0, 3, 2, 2, 1, 4, 0];
        let mut values = vec![0.0; frames.len() * 5];
        frames.iter().enumerate().for_each(|(frame, token)| values[frame * 5 + token] = 1.0);
        let hidden = floats(&[1, 2, 8], &[1.0; 16]);
        let names = ["hidden", "logits"].map(str::to_owned);
        let said = vocabulary.greedy(&names, &[hidden, floats(&[1, frames.len(), 5], &values)]).unwrap();
        assert_eq!(said[0].tokens, [3, 3, 2, 1, 4]);
        assert_eq!(said[0].words.as_deref(), Some(&["AA".to_owned(), "B".to_owned()][..]));
        assert_eq!(Vocabulary::default().transcript(&[5, 6]).words, None);
    }

    #[test]
    fn a_gguf_file_says_where_texts_and_turns_end() {
        let key = |name: &str, id| (format!("tokenizer.ggml.{name}_token_id"), crate::gguf::Value::Integer(id));
        let values = [key("bos", 1), key("eos", 7), key("eot", 9), key("eom", -1)].into();
        assert_eq!(ends_of(&Header { values, tensors: Vec::new(), file_bytes: 0 }), [7, 9]);
    }

    /// The vocabulary of the model in this file.
    fn beside(file: PathBuf, generation: Option<Generation>) -> Vocabulary {
        let origin = Origin::Files { onnx: Some(file), torchscript: None, reference: None, quantization: None };
        Vocabulary::beside(&Model { origin, generation, ..Model::of_tensors("m", Vec::new(), Vec::new()) })
    }

    #[test]
    fn a_text_ends_at_its_end() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), r#"{"eos_token_id": [7, 9]}"#).unwrap();
        std::fs::write(folder.path().join("vocab.json"), r#"{"Ġthe": 1, "Ġc": 2, "at": 3, "<|end|>": 9}"#).unwrap();
        // A hub has these files above its folder of graphs.
        for file in ["net.onnx", "onnx/net.onnx"] {
            let said = beside(folder.path().join(file), Some(Generation::default())).transcript(&[1, 2, 3, 9, 1]);
            assert_eq!(
                (said.tokens.as_slice(), said.words.unwrap()),
                (&[1, 2, 3][..], vec!["the".to_owned(), "cat".into()])
            );
        }
    }

    #[test]
    fn a_text_does_not_end_at_a_letter() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), r#"{"eos_token_id": 2}"#).unwrap();
        std::fs::write(folder.path().join("vocab.json"), r#"{"a": 1, "c": 2, "t": 3, "[PAD]": 4}"#).unwrap();
        let said = beside(folder.path().join("net.onnx"), None).transcript(&[2, 1, 3]);
        assert_eq!(said.words.unwrap(), ["cat"]);
    }
}
