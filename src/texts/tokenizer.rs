//! A tokenizer of the library `tokenizers`, or the message that this build has none.

use std::path::Path;

use anyhow::Result;
#[cfg(feature = "text")]
use anyhow::{Context, anyhow, ensure};
#[cfg(feature = "text")]
use tokenizers::{PostProcessor, TruncationParams};

#[cfg(feature = "text")]
use super::gguf_tokenizer;

/// A text as a model takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tokens {
    pub ids: Vec<u32>,
    /// Which of two texts each token belongs to.
    pub types: Vec<u32>,
}

#[cfg(feature = "text")]
#[derive(Clone)]
pub(super) struct ModelTokenizer {
    tokenizer: tokenizers::Tokenizer,
    /// The id that pads a text.
    padding: u32,
}

#[cfg(not(feature = "text"))]
#[derive(Clone)]
pub(super) struct ModelTokenizer;

#[cfg(feature = "text")]
impl ModelTokenizer {
    /// # Errors
    /// The file cannot be read, or is not a tokenizer.
    pub fn read(file: &Path) -> Result<Self> {
        let bytes = fs_err::read(file)?;
        let tokenizer = tokenizers::Tokenizer::from_bytes(bytes);
        Ok(Self::of(tokenizer.map_err(|why| anyhow!("{} is not a tokenizer: {why}", file.display()))?))
    }

    /// The tokenizer of a GGUF file. Returns `None` if it has none.
    ///
    /// # Errors
    /// The file cannot be read, or its tokenizer is of a kind that is not read.
    pub fn of_gguf(file: &Path) -> Result<Option<Self>> {
        let whose = || file.display().to_string();
        let Some(json) = gguf_tokenizer::json_of(file).with_context(whose)? else { return Ok(None) };
        let tokenizer = tokenizers::Tokenizer::from_bytes(json.to_string());
        Ok(Some(Self::of(tokenizer.map_err(|why| anyhow!("its tokenizer cannot be read: {why}")).with_context(whose)?)))
    }

    fn of(mut tokenizer: tokenizers::Tokenizer) -> Self {
        let by_name = ["[PAD]", "<pad>"].iter().find_map(|name| tokenizer.token_to_id(name));
        let padding = tokenizer.get_padding().map(|padding| padding.pad_id).or(by_name).unwrap_or(0);
        // Some files fill up every text to the same length.
        tokenizer.with_padding(None);
        ModelTokenizer { tokenizer, padding }
    }

    /// The number of tokens that it cuts texts to by itself.
    pub fn longest(&self) -> Option<usize> {
        self.tokenizer.get_truncation().map(|cut| cut.max_length)
    }

    /// Cuts texts to `longest` tokens from now on.
    ///
    /// # Errors
    /// No room would be left for a text beside the special tokens.
    pub fn cut_at(&mut self, longest: Option<usize>) -> Result<()> {
        let around = self.tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        ensure!(
            longest.is_none_or(|longest| longest > around),
            "texts of at most {} tokens leave no room beside the {around} special tokens",
            longest.unwrap_or_default()
        );
        let own = self.tokenizer.get_truncation().cloned().unwrap_or_default();
        let cut = longest.map(|max_length| TruncationParams { max_length, stride: 0, ..own });
        self.tokenizer.with_truncation(cut).map_err(|why| anyhow!("{why}"))?;
        Ok(())
    }

    /// # Errors
    /// A part of the text is not a token, and the tokenizer has no token for unknown parts.
    pub fn encode(&self, text: &str) -> Result<Tokens> {
        let encoding = self.tokenizer.encode_fast(text, true).map_err(|why| anyhow!("{why}"))?;
        Ok(Tokens { ids: encoding.get_ids().to_vec(), types: encoding.get_type_ids().to_vec() })
    }

    /// The number of a text's tokens, without the special tokens around it.
    pub fn count(&self, text: &str) -> Result<usize> {
        let encoding = self.tokenizer.encode_fast(text, false).map_err(|why| anyhow!("{why}"))?;
        Ok(encoding.len())
    }

    pub fn padding(&self) -> u32 {
        self.padding
    }
}

#[cfg(not(feature = "text"))]
impl ModelTokenizer {
    pub fn read(_: &Path) -> Result<Self> {
        anyhow::bail!("this build reads no texts: build it with `--features text`")
    }

    pub fn of_gguf(file: &Path) -> Result<Option<Self>> {
        Self::read(file).map(Some)
    }

    pub fn longest(&self) -> Option<usize> {
        None
    }

    pub fn cut_at(&mut self, _: Option<usize>) -> Result<()> {
        Ok(())
    }

    pub fn encode(&self, _: &str) -> Result<Tokens> {
        Self::read(Path::new("")).map(|_| Tokens { ids: Vec::new(), types: Vec::new() })
    }

    pub fn count(&self, _: &str) -> Result<usize> {
        Self::read(Path::new("")).map(|_| 0)
    }

    pub fn padding(&self) -> u32 {
        0
    }
}
