//! Metrics of other packages: code that scores each answer of a model.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use anyhow::{Result, anyhow, ensure};

use crate::definition::CaseFailure;
use crate::fixture::{HostTensor, Label, Sample};
use crate::run_data::{CHANGE, Evaluation, Scores};

/// What a model answered to one sample.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Answer<'a> {
    /// The name of the model.
    pub model: &'a str,
    /// The sample, in the order of the model's inputs; the first dimension of each is 1.
    pub inputs: &'a [HostTensor],
    /// The outputs in the order of the model's; the first dimension of each is 1 if that is the batch.
    pub outputs: &'a [HostTensor],
    /// The class that is right, if the samples say it.
    pub label: Option<i64>,
}

/// Scores an answer. Returns `None` if it has no score, for example because it is from another model.
pub type Score = Box<dyn Fn(&Answer<'_>) -> Option<f64> + Send + Sync>;

/// A metric: the mean over the samples of a score.
pub struct Scorer {
    pub metric: String,
    pub unit: String,
    pub score: Score,
}

static SCORERS: OnceLock<Vec<Scorer>> = OnceLock::new();

/// Registers the metrics of this process, once.
///
/// # Errors
/// Two have the same name, a name is empty or ends as that of a change does, or metrics are registered already.
pub fn register_scorers(scorers: Vec<Scorer>) -> Result<()> {
    let mut names = BTreeSet::new();
    for Scorer { metric, .. } in &scorers {
        ensure!(
            !metric.is_empty() && !metric.ends_with(CHANGE),
            "{metric:?} cannot be the name of a metric: a name is not empty and does not end with {CHANGE:?}"
        );
        ensure!(names.insert(metric), "two metrics have the name {metric:?}: give one of them another name");
    }
    SCORERS.set(scorers).map_err(|_| anyhow!("the metrics of a process are registered once"))
}

fn scorers() -> &'static [Scorer] {
    SCORERS.get().map(Vec::as_slice).unwrap_or_default()
}

/// Whether any metrics are registered.
pub fn are_scored() -> bool {
    !scorers().is_empty()
}

/// Adds the scores of a batch, which may have fewer samples than the outputs have rows.
///
/// # Errors
/// A score is not finite; the message names the metric.
pub fn add(
    evaluation: &mut Evaluation,
    model: &str,
    batch_size: usize,
    batch: &[Sample],
    outputs: &[HostTensor],
) -> Result<(), CaseFailure> {
    if evaluation.scores.is_empty() {
        let new = |it: &Scorer| Scores { metric: it.metric.clone(), unit: it.unit.clone(), of_samples: Vec::new() };
        evaluation.scores = scorers().iter().map(new).collect();
    }
    for (row, sample) in batch.iter().enumerate() {
        let of_row = |output: &HostTensor| match output.shape.first() {
            Some(&rows) if rows == batch_size => output.rows(&[row]),
            _ => output.clone(),
        };
        let outputs: Vec<HostTensor> = outputs.iter().map(of_row).collect();
        let label = match sample.label {
            Some(Label::Class(label)) => Some(label),
            _ => None,
        };
        let answer = Answer { model, inputs: &sample.inputs, outputs: &outputs, label };
        for (Scorer { metric, score, .. }, scores) in scorers().iter().zip(&mut evaluation.scores) {
            let score = score(&answer);
            if let Some(strange) = score.filter(|score| !score.is_finite()) {
                return Err(CaseFailure::failed(format!("the metric {metric:?} of a sample is {strange}")));
            }
            scores.of_samples.push(score);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_one_metric() {
        let refused = |names: &[&str]| {
            let scorer =
                |name: &&str| Scorer { metric: (*name).into(), unit: String::new(), score: Box::new(|_| None) };
            register_scorers(names.iter().map(scorer).collect()).unwrap_err().to_string()
        };
        assert_eq!(
            refused(&["margin", "margin"]),
            "two metrics have the name \"margin\": give one of them another name"
        );
        assert!(refused(&["margin_change"]).contains("does not end with \"_change\""));
        assert!(refused(&[""]).contains("a name is not empty"));
    }
}
