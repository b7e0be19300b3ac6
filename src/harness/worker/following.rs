//! Evaluates a model that generates tokens: it reads a text after each prompt, or transcribes speech.

use super::answers::add_transcripts;
use super::vocabulary::Vocabulary;
use crate::backend::{Continuation, NextTokens, Session};
use crate::definition::{CaseFailure, DataSource, Judge, Model, TensorSpec};
use crate::fixture::{HostTensor, Label, Sample, Samples, TensorData, seeded_text};
use crate::harness::protocol::WorkItem;
use crate::run_data::{Evaluation, Judged, ReadText};

/// The most seeded samples for a generative model: each takes one call per token.
const MOST_SEEDED: usize = 32;
/// The most tokens that are read of a text, or generated for a sound.
const MOST_TOKENS: usize = 448;
/// The most tokens of a seeded text.
const MOST_SEEDED_TOKENS: usize = 16;
/// The most tokens that are generated for a sound without a label.
const MOST_UNKNOWN: usize = 64;

/// How many of the samples are evaluated.
pub fn count(model: &Model, samples: &Samples) -> usize {
    let is_few = model.generation.is_some() && model.data_source == DataSource::Synthetic;
    if is_few { samples.len().min(MOST_SEEDED) } else { samples.len() }
}

/// How many tokens can be generated after a prompt.
fn positions_left(model: &Model, sequence_length: Option<usize>) -> usize {
    let positions = model.generation.as_ref().and_then(|it| it.positions).unwrap_or(usize::MAX);
    positions.saturating_sub(model.prompt_positions(sequence_length).unwrap_or(0)).max(1)
}

/// A batch of the model's inputs. If there are too few samples, they are repeated from the first.
///
/// # Errors
/// The samples are of different types.
pub fn stacked(batch: &[Sample], batch_size: usize) -> anyhow::Result<Vec<HostTensor>> {
    let filled: Vec<&Sample> = batch.iter().cycle().take(batch_size).collect();
    let input = |index: usize| {
        let rows: Vec<HostTensor> = filled.iter().map(|sample| sample.inputs[index].clone()).collect();
        HostTensor::stacked(&rows)
    };
    (0..filled[0].inputs.len()).map(input).collect()
}

/// How a generative model is evaluated.
pub struct Following {
    judge: Judge,
    batch_size: usize,
    /// The number of samples.
    samples: usize,
    /// The number of tokens per sample.
    tokens: usize,
    /// Seeded tokens are below this.
    vocabulary: u64,
    is_recorded: bool,
}

impl Following {
    /// # Errors
    /// The recorded prompts are not as long as those of the case.
    pub fn new(
        session: &dyn Session,
        WorkItem { case, model, .. }: &WorkItem,
        samples: &Samples,
    ) -> Result<Self, CaseFailure> {
        let is_as_long = samples.check_length(model, case.sequence_length);
        is_as_long.map_err(|why| CaseFailure::unsupported(format!("{why:#}")))?;
        let labels = samples.longest_text();
        let steps = session.calls_in_a_row().max(1);
        let tokens = match (model.judged_by(), labels) {
            (Judge::Text, 0) => steps.min(MOST_SEEDED_TOKENS),
            (Judge::Text, labels) => labels.min(MOST_TOKENS).min(positions_left(model, case.sequence_length)),
            // A sound without speech may never end.
            (_, 0) => steps.min(MOST_UNKNOWN),
            // Speech ends by itself, or when no positions are left.
            _ => MOST_TOKENS.min(positions_left(model, case.sequence_length)),
        };
        let (judge, batch_size) = (model.judged_by(), case.batch_size);
        let samples = count(model, samples);
        Ok(Following { judge, batch_size, samples, tokens, vocabulary: vocabulary_of(model), is_recorded: labels > 0 })
    }

    /// Evaluates the model on a batch, which may have fewer samples than the session takes.
    pub fn add(
        &self,
        session: &mut dyn Session,
        batch: &[Sample],
        vocabulary: &Vocabulary,
        evaluation: &mut Evaluation,
    ) -> Result<(), CaseFailure> {
        let inputs = stacked(batch, self.batch_size)?;
        if self.judge == Judge::Speech {
            let continuation = Continuation::Likeliest { most: self.tokens, ends: &vocabulary.ends };
            let next = session.follow(&inputs, continuation)?;
            let said = |row: usize| next.iter().map(|next| next.likeliest[row]).collect::<Vec<i64>>();
            let rows = (0..batch.len()).map(|row| vocabulary.transcript(&said(row))).collect();
            add_transcripts(&mut evaluation.judged, vocabulary, rows, batch);
        } else {
            let texts: Vec<Vec<i64>> =
                batch.iter().enumerate().map(|(row, sample)| self.text(evaluation.samples + row, sample)).collect();
            // Shorter texts are padded, and the results for the padding are left out.
            let filled = |text: &Vec<i64>| text.iter().copied().chain(std::iter::repeat(0)).take(self.tokens).collect();
            let rows: Vec<Vec<i64>> = texts.iter().cycle().take(self.batch_size).map(filled).collect();
            let text = HostTensor { shape: vec![rows.len(), self.tokens], data: TensorData::I64(rows.concat()) };
            let next = session.follow(&inputs, Continuation::Given { text: &text, log_probabilities: true })?;
            let width = next.first().and_then(|next| next.log_probabilities.first()).map_or(0, Vec::len);
            let every = stride(self.samples, self.tokens, width);
            let read = texts.iter().enumerate().map(|(row, text)| {
                read_text(&next[..text.len()], row, every, (evaluation.samples + row) * self.tokens)
            });
            let new = Judged::Texts { read: Vec::new(), is_recorded: self.is_recorded };
            if let Judged::Texts { read: all, .. } = evaluation.judged.get_or_insert(new) {
                for text in read {
                    evaluation.not_finite += usize::from(!text.loss.is_finite());
                    all.push(text);
                }
            }
        }
        evaluation.samples += batch.len();
        Ok(())
    }

    fn text(&self, sample: usize, Sample { label, .. }: &Sample) -> Vec<i64> {
        match label {
            Some(Label::Tokens(tokens)) => tokens[..tokens.len().min(self.tokens)].to_vec(),
            _ => seeded_text(sample, self.tokens, self.vocabulary),
        }
    }
}

/// The most numbers that are kept as log-probabilities per case, of tokens that lie evenly among all.
const KEPT_LOGARITHMS: usize = 16 << 20;

/// The step between the tokens whose log-probabilities are kept, for `texts` of `tokens` each and `width` numbers per
/// token. It has no divisor in common with the length of a text: otherwise the same positions of each text would be
/// kept, and never any others.
fn stride(texts: usize, tokens: usize, width: usize) -> usize {
    let least = (texts * tokens).div_ceil((KEPT_LOGARITHMS / width.max(1)).max(1)).max(1);
    let has_divisor = |every: usize| (2..=tokens).any(|it| every.is_multiple_of(it) && tokens.is_multiple_of(it));
    (least..).find(|&every| !has_divisor(every)).unwrap_or(least)
}

/// The result for the text of a row. Its first token has the number `first` among those of all texts; log-probabilities
/// are kept for numbers that are multiples of `every`.
fn read_text(next: &[NextTokens], row: usize, every: usize, first: usize) -> ReadText {
    let kept = next.iter().enumerate().filter(|(place, _)| (first + place).is_multiple_of(every));
    let logarithms = kept.filter_map(|(place, next)| Some((place as u32, next.log_probabilities.get(row)?.clone())));
    ReadText {
        likeliest: next.iter().map(|next| next.likeliest[row]).collect(),
        loss: next.iter().map(|next| next.losses[row]).sum(),
        log_probabilities: logarithms.collect(),
    }
}

/// The size of the model's vocabulary, by the width of its logits or the definition of its input.
fn vocabulary_of(model: &Model) -> u64 {
    let outputs = model.parts.iter().flat_map(|part| &part.outputs);
    let logits = outputs.filter(|output| output.name == "logits").filter_map(|output| output.shape.last()?.fixed());
    let inputs = model.inputs.iter().filter_map(|input: &TensorSpec| input.below);
    logits.map(|size| size as u64).chain(inputs).filter(|size| *size > 1).min().unwrap_or(2)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn logarithms_are_kept_at_all_places_of_texts() {
        assert_eq!(stride(32, 16, 512), 1);
        let (texts, tokens, width) = (64, 16, 150_000);
        let every = stride(texts, tokens, width);
        assert_eq!(every, 11, "the least that keeps few enough is 10, and 16 has a divisor of it");
        let next = |_| NextTokens {
            likeliest: vec![0],
            losses: vec![0.0],
            gaps: vec![0.0],
            log_probabilities: vec![vec![0.0]],
        };
        let next: Vec<NextTokens> = (0..tokens).map(next).collect();
        let kept = |text: usize| read_text(&next, 0, every, text * tokens).log_probabilities;
        let places: Vec<u32> = (0..texts).flat_map(kept).map(|(place, _)| place).collect();
        assert_eq!(places.len(), (texts * tokens).div_ceil(every));
        assert_eq!(places.into_iter().collect::<BTreeSet<u32>>(), (0..tokens as u32).collect());
    }
}
