//! The texts of a file, one per line, as the tokens that a model takes.
//!
//! It takes a file, and the tokenizer of a model. It gives tensors of tokens. Prompts that are seeded, not read, are
//! in `fixture`.
//!
//! The tokenizer is the model's own: that in a GGUF file, or `tokenizer.json`, as the library `tokenizers` writes it.
//! `tokenizer_config.json` and `config.json` beside it say how many tokens the model takes at most; longer texts are
//! cut as the tokenizer cuts them.

#[cfg(feature = "text")]
mod gguf_tokenizer;
mod tokenizer;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use self::tokenizer::ModelTokenizer;
pub use self::tokenizer::Tokens;
use crate::definition::{Model, Origin};

/// The texts of a file for one model. A text is not tokenised before [`tokens`](Self::tokens) asks for it.
#[derive(Clone)]
pub struct Texts {
    path: PathBuf,
    /// Lines that are not blank.
    lines: Vec<String>,
    tokenizer: ModelTokenizer,
    tokenizer_file: PathBuf,
    /// The number of tokens that the model knows, if its definition gives it.
    vocabulary: Option<u64>,
    longest: Option<usize>,
}

impl Texts {
    /// Reads the file and the tokenizer of the model. Texts are cut to `at_most` tokens, and to what the model takes.
    /// Those for a model that makes tokens stay whole, because cutting would keep the token that ends them.
    ///
    /// # Errors
    /// The model takes no texts, it has no tokenizer, a file cannot be read, or there is no text; the message says what
    /// to do.
    pub fn open(path: &Path, model: &Model, at_most: Option<usize>) -> Result<Self> {
        let input = model.token_input().or_else(|| model.prompt_input()).with_context(|| {
            format!(
                "{} takes no texts: its inputs are not the tokens' ids and perhaps a mask, types and positions, all of \
                 [batch, tokens]",
                model.name
            )
        })?;
        let text = fs_err::read_to_string(path)?;
        let text = text.trim_start_matches('\u{feff}').lines().map(str::trim).filter(|line| !line.is_empty());
        let lines: Vec<String> = text.map(str::to_owned).collect();
        ensure!(!lines.is_empty(), "{} has no text: write one text per line", path.display());
        let (mut tokenizer, file) = own_tokenizer(model)?;
        let of_model = match &model.origin {
            Origin::Gguf { .. } => model.generation.as_ref().and_then(|generation| generation.positions),
            _ => longest_of_model(&file),
        };
        let limits = [tokenizer.longest(), of_model, input.shape[1].fixed(), at_most];
        let longest = limits.into_iter().flatten().min().filter(|_| model.generation.is_none());
        tokenizer.cut_at(longest).with_context(|| file.display().to_string())?;
        Ok(Texts { path: path.to_owned(), lines, tokenizer, tokenizer_file: file, vocabulary: input.below, longest })
    }

    /// The number of texts.
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// The text at a place below [`len`](Self::len) as tokens, cut as [`open`](Self::open) says.
    ///
    /// # Errors
    /// The tokenizer fails, or belongs to another model; the message names the text.
    pub fn tokens(&self, place: usize) -> Result<Tokens> {
        let whose = || format!("text {} of {}", place + 1, self.path.display());
        let tokens = self.tokenizer.encode(&self.lines[place]).with_context(whose)?;
        let unknown = tokens.ids.iter().find(|&&id| self.vocabulary.is_some_and(|known| u64::from(id) >= known));
        if let (Some(id), Some(known)) = (unknown, self.vocabulary) {
            bail!(
                "{}: a token has the id {id}, and the model knows {known} tokens: {} is that of another model",
                whose(),
                self.tokenizer_file.display()
            );
        }
        Ok(tokens)
    }

    /// The id that pads a text to the length of another.
    pub fn padding(&self) -> u32 {
        self.tokenizer.padding()
    }

    /// The lengths into which the texts are sorted, as the largest number of tokens of each: `asked`, or powers of two
    /// from 8, the last one limited by what the model takes. A length without a text is left out.
    pub fn buckets(&self, asked: Option<&[usize]>) -> Result<Vec<usize>> {
        let lengths = (0..self.len()).map(|place| Ok(self.tokens(place)?.ids.len())).collect::<Result<Vec<_>>>()?;
        Ok(buckets(&lengths, asked, self.longest))
    }
}

/// Counts the tokens of texts that a model makes, by a tokenizer that a user names.
#[derive(Clone)]
pub struct TokenCounter {
    tokenizer: ModelTokenizer,
    /// The file, with the beginning of its SHA-256.
    name: String,
}

impl TokenCounter {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// The file cannot be read, or is not a tokenizer.
    pub fn open(file: &Path) -> Result<Self> {
        let mut tokenizer = ModelTokenizer::read(file)?;
        tokenizer.cut_at(None)?;
        let sum = Sha256::digest(fs_err::read(file)?);
        let sum: String = sum.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        Ok(TokenCounter { tokenizer, name: format!("tokenizer {}, SHA-256 {sum}…", file.display()) })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of a text's tokens, without the special tokens around it.
    ///
    /// # Errors
    /// A part of the text is not a token, and the tokenizer has no token for unknown parts.
    pub fn count(&self, text: &str) -> Result<usize> {
        self.tokenizer.count(text)
    }
}

/// The tokenizer of a model, and its file: that in a GGUF file, or a `tokenizer.json`.
fn own_tokenizer(model: &Model) -> Result<(ModelTokenizer, PathBuf)> {
    // In a build that reads no texts, no file would help.
    #[cfg(not(feature = "text"))]
    ModelTokenizer::read(Path::new(""))?;
    let inside = match &model.origin {
        Origin::Gguf { file } => ModelTokenizer::of_gguf(file).map(|inside| Some((inside?, file.clone()))),
        _ => Ok(None),
    };
    if let Ok(Some(inside)) = inside {
        return Ok(inside);
    }
    let files = model.tokenizer_files();
    if let Some(file) = files.iter().find(|file| file.is_file()) {
        return Ok((ModelTokenizer::read(file)?, file.clone()));
    }
    let places = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" or ");
    if let Err(why) = inside {
        bail!("{why:#}; put the model's tokenizer.json beside the file: there is no {places}");
    }
    bail!(
        "{} has no tokenizer: there is no {places}; put the model's tokenizer.json there, as `inferbench import` does",
        model.name
    );
}

fn buckets(lengths: &[usize], asked: Option<&[usize]>, limit: Option<usize>) -> Vec<usize> {
    const SHORTEST: usize = 8;
    let bucket = |&length: &usize| match asked {
        // A text that is longer than all of them is cut to the longest.
        Some(asked) => asked.iter().copied().filter(|&most| most >= length).min().or(asked.iter().copied().max()),
        None => {
            let most = length.next_power_of_two().max(SHORTEST);
            Some(limit.map_or(most, |limit| most.min(limit)))
        }
    };
    lengths.iter().filter_map(bucket).collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

/// How many tokens the model takes, by the files beside its tokenizer.
fn longest_of_model(tokenizer: &Path) -> Option<usize> {
    /// From this number on, a limit is none.
    const NONE: f64 = 1e6;
    /// Parts of the names of the architectures whose positions begin after the padding's id.
    const AFTER_PADDING: [&str; 8] =
        ["roberta", "camembert", "mpnet", "longformer", "data2vec-text", "layoutlmv3", "luke", "ibert"];
    #[derive(Deserialize)]
    struct Config {
        model_max_length: Option<f64>,
        model_type: Option<String>,
        /// Some files write -1 for none.
        pad_token_id: Option<i64>,
        max_position_embeddings: Option<usize>,
    }
    let read = |name: &str| serde_json::from_slice::<Config>(&fs_err::read(tokenizer.with_file_name(name)).ok()?).ok();
    let of_tokenizer = read("tokenizer_config.json").and_then(|config| config.model_max_length);
    let of_tokenizer = of_tokenizer.filter(|longest| (1.0..NONE).contains(longest));
    let of_positions = || {
        let Config { model_type, pad_token_id, max_position_embeddings, .. } = read("config.json")?;
        let skips = model_type.is_some_and(|kind| AFTER_PADDING.iter().any(|it| kind.contains(it)));
        let skipped = if skips { pad_token_id.unwrap_or(1).saturating_add(1) } else { 0 };
        max_position_embeddings.map(|positions| positions.saturating_sub(usize::try_from(skipped).unwrap_or(0)))
    };
    let limits = [of_tokenizer.map(|longest| longest as usize), of_positions()];
    limits.into_iter().flatten().filter(|&longest| longest > 0).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "text")]
    use crate::definition::TensorSpec;

    /// The ids of `the`, `water`, `look`, `##ed`, `.` and `of`.
    #[cfg(feature = "text")]
    const TOKENS: [u32; 6] = [91, 107, 53, 125, 127, 68];

    #[test]
    fn lengths_are_powers_of_two_or_those_that_are_asked_for() {
        assert_eq!(buckets(&[3, 5, 9, 40, 60], None, None), [8, 16, 64]);
        assert_eq!(buckets(&[3, 60, 77], None, Some(77)), [8, 64, 77]);
        assert_eq!(buckets(&[3, 60, 77], Some(&[64, 16, 32]), None), [16, 64]);
    }

    #[cfg(feature = "text")]
    fn texts_of(model: &Model, text: &str, at_most: Option<usize>) -> Result<Texts> {
        let folder = tempfile::tempdir().unwrap();
        let (file, own) = (folder.path().join("texts.txt"), folder.path().join("net.onnx"));
        std::fs::write(&file, text).unwrap();
        let tokenizer = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer.json");
        std::fs::copy(tokenizer, folder.path().join("tokenizer.json")).unwrap();
        let origin = Origin::Files { onnx: Some(own), torchscript: None, reference: None, quantization: None };
        Texts::open(&file, &Model { origin, ..model.clone() }, at_most)
    }

    #[cfg(feature = "text")]
    #[test]
    fn texts_are_the_tokens_of_the_models_own_tokenizer() {
        let zoo = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/zoo/bert-small/model.toml");
        let zoo: toml::Table = toml::from_str(&std::fs::read_to_string(zoo).unwrap()).unwrap();
        let mut inputs: Vec<TensorSpec> = zoo["inputs"].clone().try_into().unwrap();
        let mut model = Model::of_tensors("bert", inputs.clone(), Vec::new());
        let text = "\u{feff}The water looked.\r\n\n  Unheard of \n";
        let texts = texts_of(&model, text, None).unwrap();
        // As `BertTokenizerFast` of transformers gives them; the file asks for 128 tokens each, which is for batches.
        let tokens = (0..texts.len()).map(|place| texts.tokens(place).unwrap().ids).collect::<Vec<_>>();
        assert_eq!(
            tokens,
            [vec![2, TOKENS[0], TOKENS[1], TOKENS[2], TOKENS[3], TOKENS[4], 3], vec![2, 1, TOKENS[5], 3]]
        );
        assert_eq!(texts.buckets(None).unwrap(), [8]);
        // The token at the end stays when a text is cut.
        let cut = texts_of(&model, text, Some(5)).unwrap();
        assert_eq!(cut.tokens(0).unwrap().ids, [2, TOKENS[0], TOKENS[1], TOKENS[2], 3]);
        assert_eq!((cut.buckets(None).unwrap(), cut.buckets(Some(&[4])).unwrap()), (vec![5], vec![4]));
        let error = format!("{:#}", texts_of(&model, text, Some(2)).err().unwrap());
        assert!(error.ends_with("leave no room beside the 2 special tokens"), "{error}");
        inputs[0].below = Some(100);
        model = model.with_inputs(inputs);
        let error = texts_of(&model, text, None).unwrap().tokens(0).unwrap_err().to_string();
        assert!(error.contains("text 1 of ") && error.contains("the model knows 100 tokens"), "{error}");
    }

    #[cfg(feature = "text")]
    #[test]
    fn tokens_of_an_answer_are_counted_without_a_limit_and_without_those_around_it() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer.json");
        let counter = TokenCounter::open(&file).unwrap();
        assert_eq!(counter.count("The water looked.").unwrap(), 5);
        // The file cuts texts to 128 tokens.
        assert_eq!(counter.count(&"water ".repeat(1000)).unwrap(), 1000);
        assert!(counter.name().contains("tokenizer.json, SHA-256 "), "{}", counter.name());
        assert!(TokenCounter::open(Path::new("no such file")).is_err());
    }

    #[test]
    fn the_limit_is_that_of_the_files_beside_the_tokenizer() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let longest = || longest_of_model(&folder.path().join("tokenizer.json"));
        assert_eq!(longest(), None);
        write("config.json", r#"{"model_type": "bert", "max_position_embeddings": 512, "pad_token_id": 0}"#);
        assert_eq!(longest(), Some(512));
        write("config.json", r#"{"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}"#);
        assert_eq!(longest(), Some(512));
        write("config.json", r#"{"model_type": "longformer", "max_position_embeddings": 4098, "pad_token_id": 1}"#);
        assert_eq!(longest(), Some(4096));
        write("config.json", r#"{"model_type": "llama", "max_position_embeddings": 512, "pad_token_id": -1}"#);
        assert_eq!(longest(), Some(512));
        write("tokenizer_config.json", r#"{"model_max_length": 1000000000000000019884624838656}"#);
        assert_eq!(longest(), Some(512));
        write("tokenizer_config.json", r#"{"model_max_length": 4096}"#);
        assert_eq!(longest(), Some(512));
        write("tokenizer_config.json", r#"{"model_max_length": 128}"#);
        assert_eq!(longest(), Some(128));
    }
}
