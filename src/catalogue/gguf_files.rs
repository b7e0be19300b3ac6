//! Makes a model from a user's GGUF file: a decoder whose header gives its architecture, sizes and tensors.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::decoders::{NEW_TOKENS, phases_of, usual_prompt};
use crate::definition::{BATCH, Dimension, ElementType, Generation, Model, Origin, Part, SEQUENCE, TensorSpec};
use crate::gguf::Header;

/// The extension of GGUF files.
pub(super) const GGUF: &str = "gguf";

const TOKENS: &str = "input_ids";
const PART: &str = "lm";
/// The table that has a row for each token.
const EMBEDDINGS: &str = "token_embd.weight";

/// Architectures that are not language models.
const OTHERS: [&str; 5] = ["clip", "bert", "nomic-bert", "t5encoder", "whisper"];

/// The model of a file.
///
/// # Errors
/// The header cannot be read or is not that of a language model, or the file is one of several parts.
pub(super) fn model_of(name: &str, variant: &str, file: &Path) -> Result<Model> {
    let header = Header::read(file)?;
    let of_file = || file.display().to_string();
    let architecture = header.architecture().with_context(of_file)?.to_owned();
    ensure!(
        !OTHERS.contains(&&*architecture),
        "{}: {architecture} does not generate tokens, and only language models run as GGUF files",
        file.display()
    );
    let parts = header.number("split.count").unwrap_or(0);
    ensure!(
        parts <= 1,
        "{} is one of {parts} parts: join them with `llama-gguf-split --merge`, and name the file that it makes",
        file.display()
    );
    let vocabulary = header.vocabulary().filter(|size| *size > 0).context("the file does not say its vocabulary");
    let vocabulary = vocabulary.with_context(of_file)?;
    let table = header.tensors.iter().find(|tensor| tensor.name == EMBEDDINGS).and_then(|table| table.sizes.get(1));
    ensure!(
        table.is_none_or(|rows| *rows == vocabulary),
        "{}: it says a vocabulary of {vocabulary} tokens, and {EMBEDDINGS} has {} rows",
        file.display(),
        table.copied().unwrap_or(0)
    );
    let positions = header.of_architecture("context_length").and_then(|length| usize::try_from(length).ok());
    let symbol = |name: &str| Dimension::Symbol(name.into());
    let tokens = |length: &str| TensorSpec {
        below: Some(vocabulary),
        ..TensorSpec::new(TOKENS, ElementType::I64, vec![symbol(BATCH), symbol(length)])
    };
    let vocabulary = usize::try_from(vocabulary).with_context(of_file)?;
    let logits = TensorSpec::new("logits", ElementType::F32, vec![symbol(BATCH), Dimension::Fixed(vocabulary)]);
    Ok(Model {
        variant: variant.into(),
        family: architecture,
        modality: "text".into(),
        parameters: Some(header.parameters()),
        parts: vec![Part { name: PART.into(), inputs: vec![tokens("tokens")], outputs: vec![logits] }],
        phases: phases_of(vec![PART.into()], PART.into()),
        generation: Some(Generation {
            tokens: TOKENS.into(),
            new_tokens: Some(NEW_TOKENS),
            positions,
            ..Generation::default()
        }),
        sequence_lengths: vec![usual_prompt(positions)],
        dtype: header.dtype(),
        origin: Origin::Gguf { file: file.to_owned() },
        ..Model::of_tensors(name, vec![tokens(SEQUENCE)], Vec::new())
    })
}
