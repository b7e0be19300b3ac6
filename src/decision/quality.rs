//! Whether a row answers as well as the original.

use schemars::JsonSchema;
use serde::Serialize;

use super::Row;
use crate::definition::Status;
use crate::run_data::{Better, FRACTION, Metric, Record};

/// Without labels, a row is `lost` if the mean cosine of its outputs with the original's is below this.
///
/// This and the next limit are conventions and not bounds of a loss: a few dozen samples without labels could not show a
/// small loss, even if all of them agreed. Every output states the limits.
pub const LEAST_COSINE: f64 = 0.99;
/// Without labels, the fraction of the samples that must have their largest output at the same index as the original.
pub const LEAST_AGREEMENT: f64 = 0.95;

/// A computed bound of `-0.01` may be `-0.010000000000000002`.
const ROUNDING: f64 = 1e-12;

/// How the answers of the rows are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// By the right answers over labelled samples.
    Accuracy,
    /// By the metric of the model's kind over labelled samples, such as mean average precision or an error rate.
    Metric,
    /// By the likeness of the outputs to those of the original.
    Agreement,
    /// Nothing was measured.
    Unknown,
}

/// What is known of a row's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Quality {
    /// Others are compared with it: it is the original in f32, or in its own dtype if there is none in f32.
    Original,
    /// It is shown to lose at most the allowed fraction of the accuracy, or of the metric of its kind. Without labels,
    /// at least 95 % of the samples agree with the original, the cosine of the outputs is at least 0.99, and metrics
    /// against the original are at least 95 %; this is not accuracy.
    Kept,
    /// It seems to lose little enough, but the samples are too few to show it.
    Open,
    /// It loses more than is allowed.
    Lost,
    /// Its answers were not evaluated.
    Unknown,
    /// Its outputs are not those of its own reference.
    Wrong,
}

/// A loss, and its upper bound if that is known.
pub type Loss = (f64, Option<f64>);

impl Quality {
    /// Judges a loss by the largest loss that is allowed.
    pub fn of_loss(loss: Option<Loss>, allowed: f64) -> Self {
        match loss {
            None => Quality::Unknown,
            Some((_, Some(most))) if most <= allowed => Quality::Kept,
            Some((lost, _)) if lost <= allowed => Quality::Open,
            Some(_) => Quality::Lost,
        }
    }

    pub fn is_acceptable(self) -> bool {
        matches!(self, Quality::Original | Quality::Kept)
    }
}

/// Whether a row's outputs were compared with anything: a reference, another backend, labels or the original.
pub fn is_compared(record: &Record, metrics: &[Metric]) -> bool {
    let is_labelled = record.accuracy.is_some() || labelled_metric(metrics).is_some();
    record.verified.is_some() || is_labelled || compared_with(record, metrics).next().is_some()
}

/// The ids of the cases that the answers of a row were compared with.
pub fn compared_with<'a>(record: &'a Record, metrics: &'a [Metric]) -> impl Iterator<Item = &'a str> {
    record
        .compared_with
        .iter()
        .chain(metrics.iter().filter_map(|metric| metric.compared_with.as_ref()))
        .map(String::as_str)
}

/// The change of the metric by which labelled samples judge a row: the first one that does not depend on the original's
/// answers, and whose loss is known.
pub fn labelled_change(metrics: &[Metric]) -> Option<&Metric> {
    let is_labelled = |name: &str| labelled(metrics).any(|metric| metric.metric == name);
    metrics.iter().find(|metric| metric.loss().is_some() && metric.changed().is_some_and(is_labelled))
}

/// The metric by which labelled samples judge a row.
pub fn labelled_metric(metrics: &[Metric]) -> Option<&Metric> {
    labelled(metrics).next()
}

fn labelled(metrics: &[Metric]) -> impl Iterator<Item = &Metric> {
    let is_own =
        |metric: &&Metric| metric.compared_with.is_none() && metric.better.is_some() && metric.changed().is_none();
    metrics.iter().filter(is_own)
}

/// The first metric that compares the answers with the original's as a fraction.
pub fn likeness(metrics: &[Metric]) -> Option<&Metric> {
    of_likeness(metrics).next()
}

fn of_likeness(metrics: &[Metric]) -> impl Iterator<Item = &Metric> {
    let is_known = |metric: &&Metric| metric.unit == FRACTION && metric.better.is_some();
    metrics.iter().filter(|metric| metric.compared_with.is_some() && metric.changed().is_none()).filter(is_known)
}

/// The likenesses to the original; 1 is the same.
fn likenesses(metrics: &[Metric]) -> impl Iterator<Item = f64> {
    of_likeness(metrics).map(|metric| match metric.better {
        Some(Better::Lower) => 1.0 - metric.value,
        _ => metric.value,
    })
}

impl Measure {
    /// Accuracy if any row has one, or else the metric of labelled samples if any row has one.
    pub fn of<'a>(rows: impl Iterator<Item = (&'a Record, &'a Vec<Metric>)> + Clone) -> Self {
        let mut measured = rows.filter(|(record, _)| record.status == Status::Ok);
        let has_likeness = |(record, metrics): (&Record, &Vec<Metric>)| {
            record.output_cosine.is_some() || record.agreement.is_some() || likenesses(metrics).next().is_some()
        };
        if measured.clone().any(|(record, _)| record.accuracy.is_some()) {
            Measure::Accuracy
        } else if measured.clone().any(|(_, metrics)| labelled_metric(metrics).is_some()) {
            Measure::Metric
        } else if measured.any(has_likeness) {
            Measure::Agreement
        } else {
            Measure::Unknown
        }
    }

    /// The quality of a row if the fraction `loss` of the accuracy may be lost.
    pub fn evaluate(self, record: &Record, metrics: &[Metric], is_original: bool, loss: f64) -> Quality {
        if record.verified == Some(false) {
            return Quality::Wrong;
        }
        if is_original {
            return Quality::Original;
        }
        let of_loss = |lost: Option<Loss>| Quality::of_loss(lost, loss + ROUNDING);
        match self {
            Measure::Accuracy => {
                let most = record.accuracy_change_lower.map(|lower| -lower);
                of_loss(record.accuracy_change.map(|change| (-change, most)))
            }
            Measure::Metric => of_loss(labelled_change(metrics).and_then(Metric::loss)),
            Measure::Agreement => {
                let of_outputs = record.output_cosine.map(|cosine| cosine >= LEAST_COSINE);
                let of_classes = record.agreement.map(|agreement| agreement >= LEAST_AGREEMENT);
                let of_metrics = likenesses(metrics).map(|likeness| likeness >= LEAST_AGREEMENT);
                // Equal classes alone say little about the outputs.
                let known: Vec<bool> = of_outputs.into_iter().chain(of_metrics).collect();
                match known.is_empty() {
                    true => Quality::Unknown,
                    false if known.into_iter().chain(of_classes).all(|is_kept| is_kept) => Quality::Kept,
                    false => Quality::Lost,
                }
            }
            Measure::Unknown => Quality::Unknown,
        }
    }

    /// A row's quality as a number, where more is better. The original agrees with itself.
    pub fn value(self, row: &Row) -> Option<f64> {
        let likeness = || row.record.output_cosine.or_else(|| likenesses(&row.metrics).next());
        match self {
            Measure::Accuracy => row.record.accuracy,
            Measure::Metric => labelled_metric(&row.metrics).map(|metric| match metric.better {
                Some(Better::Lower) => -metric.value,
                _ => metric.value,
            }),
            Measure::Agreement if row.quality == Quality::Original => likeness().or(Some(1.0)),
            Measure::Agreement => likeness(),
            Measure::Unknown => None,
        }
        .filter(|value| value.is_finite())
    }

    /// Values that differ by at most this count as equal: one answer more or less, or the third decimal of a cosine.
    pub fn resolution(self, row: &Row) -> f64 {
        let of_samples = |samples: Option<u64>| 1.5 / samples.unwrap_or(1).max(1) as f64;
        match self {
            Measure::Accuracy => of_samples(row.record.accuracy_samples),
            Measure::Metric => of_samples(labelled_metric(&row.metrics).map(|metric| metric.samples)),
            Measure::Agreement | Measure::Unknown => 1e-3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{measured, unlabelled};
    use super::*;

    #[test]
    fn a_loss_must_be_shown_to_be_small() {
        let evaluated =
            |change, loss| Measure::Accuracy.evaluate(&measured("v", "ort", 1.0, 1.0, change), &[], false, loss);
        assert_eq!(evaluated((0.0, -0.6, 0.6), 0.01), Quality::Kept);
        assert_eq!(evaluated((0.0, -1.0, 1.0), 0.01), Quality::Kept, "the bound itself is allowed");
        assert_eq!(evaluated((-0.2, -1.4, 1.0), 0.01), Quality::Open);
        assert_eq!(evaluated((-0.2, -1.4, 1.0), 0.02), Quality::Kept);
        assert_eq!(evaluated((-1.2, -2.0, -0.4), 0.01), Quality::Lost);
        assert_eq!(evaluated((f64::NAN, f64::NAN, f64::NAN), 0.01), Quality::Lost);
        let without_interval =
            Record { accuracy_change_lower: None, ..measured("v", "ort", 1.0, 1.0, (0.0, 0.0, 0.0)) };
        assert_eq!(Measure::Accuracy.evaluate(&without_interval, &[], false, 0.01), Quality::Open);
        let unlabelled = unlabelled("v", "ort", 1.0, 1.0, (1.0, 1.0));
        assert_eq!(Measure::Accuracy.evaluate(&unlabelled, &[], false, 0.01), Quality::Unknown);
    }

    #[test]
    fn without_labels_outputs_must_be_those_of_the_original() {
        let evaluated = |agreement, cosine| {
            let plain = unlabelled("v", "ort", 1.0, 1.0, (0.0, 0.0));
            Measure::Agreement.evaluate(&Record { agreement, output_cosine: cosine, ..plain }, &[], false, 0.01)
        };
        assert_eq!(evaluated(Some(0.95), Some(0.99)), Quality::Kept);
        assert_eq!(evaluated(None, Some(0.999)), Quality::Kept);
        assert_eq!(evaluated(Some(0.94), Some(0.999)), Quality::Lost);
        assert_eq!(evaluated(Some(1.0), Some(0.98)), Quality::Lost);
        assert_eq!(evaluated(Some(1.0), None), Quality::Unknown);
    }

    #[test]
    fn labels_of_another_kind_decide_as_accuracy_does() {
        let metric = |name: &str, value, (lower, upper), compared_with: Option<&str>, better| Metric {
            metric: name.into(),
            value,
            lower: Some(lower),
            upper: Some(upper),
            unit: FRACTION.into(),
            samples: 64,
            compared_with: compared_with.map(str::to_owned),
            better: Some(better),
            ..Metric::default()
        };
        let record = Record { data_source: Some("spoken".into()), ..unlabelled("v", "ort", 1.0, 1.0, (0.5, 0.5)) };
        let rate = metric("word_error_rate", 0.12, (0.1, 0.14), None, Better::Lower);
        let change = |value, interval| metric("word_error_rate_change", value, interval, Some("m"), Better::Lower);
        let evaluated = |change| Measure::Metric.evaluate(&record, &[rate.clone(), change], false, 0.01);
        assert_eq!(evaluated(change(0.002, (-0.003, 0.008))), Quality::Kept);
        assert_eq!(evaluated(change(0.002, (-0.03, 0.03))), Quality::Open);
        assert_eq!(evaluated(change(0.02, (0.01, 0.03))), Quality::Lost);
        assert_eq!(evaluated(change(-0.02, (-0.03, -0.01))), Quality::Kept);
        let metrics = vec![rate.clone()];
        assert_eq!(Measure::of([(&record, &metrics)].into_iter()), Measure::Metric);
        // For seeded tokens, neither a higher nor a lower perplexity is better.
        let seeded = Record { data_source: Some("synthetic".into()), output_cosine: None, agreement: None, ..record };
        let undirected = vec![Metric { better: None, ..rate.clone() }];
        assert_eq!(Measure::of([(&seeded, &undirected)].into_iter()), Measure::Unknown);
        let beside = |value| vec![metric("token_error_rate", value, (0.0, 0.1), Some("m"), Better::Lower)];
        assert_eq!(Measure::of([(&seeded, &beside(0.0))].into_iter()), Measure::Agreement);
        let kept = [0.04, 0.06].map(|rate| Measure::Agreement.evaluate(&seeded, &beside(rate), false, 0.01));
        assert_eq!(kept, [Quality::Kept, Quality::Lost]);
    }
}
