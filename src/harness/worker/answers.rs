//! Reduces a batch's outputs to what is judged: boxes and transcripts in place of logits, and the vectors of an embedding model.

use super::boxes::{boxes, labelled_boxes};
use super::vocabulary::Vocabulary;
use crate::definition::{CaseFailure, Judge, Model, Phase, is_embedding};
use crate::fixture::{HostTensor, Label, Sample};
use crate::run_data::{Judged, Transcript};

/// The indices of outputs with a vector per sample: those with the name of an embedding, or else all.
pub fn vectors(names: &[String], outputs: &[HostTensor], is_vector: impl Fn(&HostTensor) -> bool) -> Vec<usize> {
    let places: Vec<usize> = (0..outputs.len()).filter(|&place| is_vector(&outputs[place])).collect();
    let is_called = |place: &usize| names.get(*place).is_some_and(|name| is_embedding(name));
    let called: Vec<usize> = places.iter().copied().filter(is_called).collect();
    if called.is_empty() { places } else { called }
}

/// Adds the answers of a batch, which may have fewer samples than the outputs have rows, to what is judged. Outputs
/// that the judge cannot use are left out.
///
/// # Errors
/// The outputs do not fit, and there are labels or the definition names this judge.
pub fn add(
    judged: &mut Option<Judged>,
    (judge, model, vocabulary): (Judge, &Model, &Vocabulary),
    outputs: &[HostTensor],
    batch: &[Sample],
) -> Result<(), CaseFailure> {
    match judge {
        Judge::Boxes => {
            let has_labels = batch.iter().any(|sample| matches!(sample.label, Some(Label::Boxes(_))));
            let Some(rows) = boxes(model, outputs) else {
                return misfit(model, has_labels, "boxes with a score per class", outputs);
            };
            let labels = batch.iter().filter_map(|sample| match &sample.label {
                Some(Label::Boxes(label)) => Some(labelled_boxes(label, model, outputs)),
                _ => None,
            });
            let new = Judged::Boxes { found: Vec::new(), right: has_labels.then(Vec::new) };
            if let Judged::Boxes { found, right } = judged.get_or_insert(new) {
                found.extend(rows.into_iter().take(batch.len()));
                right.iter_mut().for_each(|right| right.extend(labels.clone()));
            }
        }
        Judge::Speech => match vocabulary.greedy(&model.output_names(Phase::Forward), outputs) {
            Some(rows) => add_transcripts(judged, vocabulary, rows, batch),
            None => {
                let has_labels = batch.iter().any(|sample| sample.label.is_some());
                return misfit(model, has_labels, "logits of frames", outputs);
            }
        },
        // All other judges take outputs as they are.
        _ => {}
    }
    Ok(())
}

/// Refuses outputs that the judge cannot use, unless the judge was only a guess.
///
/// # Errors
/// There are labels, or the definition names the judge.
pub fn misfit(model: &Model, has_labels: bool, wanted: &str, outputs: &[HostTensor]) -> Result<(), CaseFailure> {
    if !has_labels && model.judge.is_none() {
        return Ok(());
    }
    Err(CaseFailure::unsupported(format!("the outputs have no {wanted}; there are {}", shapes(outputs))))
}

/// The shapes of outputs, for messages.
pub fn shapes(outputs: &[HostTensor]) -> String {
    outputs.iter().map(|output| format!("{:?}", output.shape)).collect::<Vec<_>>().join(", ")
}

/// Adds the transcripts of a batch and of its labels.
pub fn add_transcripts(judged: &mut Option<Judged>, vocabulary: &Vocabulary, rows: Vec<Transcript>, batch: &[Sample]) {
    let has_labels = batch.iter().any(|sample| matches!(sample.label, Some(Label::Tokens(_))));
    let new = Judged::Transcripts { said: Vec::new(), right: has_labels.then(Vec::new) };
    if let Judged::Transcripts { said, right } = judged.get_or_insert(new) {
        said.extend(rows.into_iter().take(batch.len()));
        let labels = batch.iter().filter_map(|sample| match &sample.label {
            Some(Label::Tokens(tokens)) => Some(vocabulary.transcript(tokens)),
            _ => None,
        });
        right.iter_mut().for_each(|right| right.extend(labels.clone()));
    }
}
