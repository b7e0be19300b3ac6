//! Whether a row answers as well as the original.

use schemars::JsonSchema;
use serde::Serialize;

use super::Row;
use crate::definition::Status;
use crate::run_data::Record;

/// Without labels, outputs whose mean cosine with the original's is below this are another model's.
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
    /// It is shown to lose at most the allowed accuracy; without accuracy, at least 95 % of the samples agree with the
    /// original and the cosine of the outputs is at least 0.99, which is no accuracy.
    Kept,
    /// It seems to lose little enough, and the samples are too few to show it.
    Open,
    /// It loses more than is allowed.
    Lost,
    /// Nothing was measured of it.
    Unknown,
    /// Its outputs are not those of its own reference.
    Wrong,
}

impl Quality {
    pub fn is_acceptable(self) -> bool {
        matches!(self, Quality::Original | Quality::Kept)
    }
}

impl Measure {
    /// Accuracy if any row has one.
    pub fn of(records: &[Record]) -> Self {
        let mut measured = records.iter().filter(|record| record.status == Status::Ok);
        if measured.clone().any(|record| record.accuracy.is_some()) {
            Measure::Accuracy
        } else if measured.any(|record| record.output_cosine.is_some() || record.agreement.is_some()) {
            Measure::Agreement
        } else {
            Measure::Unknown
        }
    }

    /// What is known of a row if the fraction `loss` of the accuracy may be lost.
    pub fn evaluate(self, record: &Record, is_original: bool, loss: f64) -> Quality {
        if record.verified == Some(false) {
            return Quality::Wrong;
        }
        if is_original {
            return Quality::Original;
        }
        let is_allowed = |change: f64| change >= -loss - ROUNDING;
        match self {
            Measure::Accuracy => match record.accuracy_change {
                None => Quality::Unknown,
                Some(_) if record.accuracy_change_lower.is_some_and(is_allowed) => Quality::Kept,
                Some(change) if is_allowed(change) => Quality::Open,
                Some(_) => Quality::Lost,
            },
            Measure::Agreement => match record.output_cosine {
                None => Quality::Unknown,
                Some(cosine)
                    if cosine >= LEAST_COSINE
                        && record.agreement.is_none_or(|agreement| agreement >= LEAST_AGREEMENT) =>
                {
                    Quality::Kept
                }
                Some(_) => Quality::Lost,
            },
            Measure::Unknown => Quality::Unknown,
        }
    }

    /// The figure of a row's quality, of which more is better. The original agrees with itself.
    pub fn value(self, row: &Row) -> Option<f64> {
        match self {
            Measure::Accuracy => row.record.accuracy,
            Measure::Agreement if row.quality == Quality::Original => row.record.output_cosine.or(Some(1.0)),
            Measure::Agreement => row.record.output_cosine,
            Measure::Unknown => None,
        }
        .filter(|value| value.is_finite())
    }

    /// Figures that differ by at most this say the same: one answer more or less, or the third decimal of a cosine.
    pub fn resolution(self, record: &Record) -> f64 {
        match self {
            Measure::Accuracy => 1.5 / record.accuracy_samples.unwrap_or(1).max(1) as f64,
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
        let evaluated = |change, loss| Measure::Accuracy.evaluate(&measured("v", "ort", 1.0, 1.0, change), false, loss);
        assert_eq!(evaluated((0.0, -0.6, 0.6), 0.01), Quality::Kept);
        assert_eq!(evaluated((0.0, -1.0, 1.0), 0.01), Quality::Kept, "the bound itself is allowed");
        assert_eq!(evaluated((-0.2, -1.4, 1.0), 0.01), Quality::Open);
        assert_eq!(evaluated((-0.2, -1.4, 1.0), 0.02), Quality::Kept);
        assert_eq!(evaluated((-1.2, -2.0, -0.4), 0.01), Quality::Lost);
        assert_eq!(evaluated((f64::NAN, f64::NAN, f64::NAN), 0.01), Quality::Lost);
        let without_interval =
            Record { accuracy_change_lower: None, ..measured("v", "ort", 1.0, 1.0, (0.0, 0.0, 0.0)) };
        assert_eq!(Measure::Accuracy.evaluate(&without_interval, false, 0.01), Quality::Open);
        let unlabelled = unlabelled("v", "ort", 1.0, 1.0, (1.0, 1.0));
        assert_eq!(Measure::Accuracy.evaluate(&unlabelled, false, 0.01), Quality::Unknown);
    }

    #[test]
    fn without_labels_outputs_must_be_those_of_the_original() {
        let evaluated = |agreement, cosine| {
            let plain = unlabelled("v", "ort", 1.0, 1.0, (0.0, 0.0));
            Measure::Agreement.evaluate(&Record { agreement, output_cosine: cosine, ..plain }, false, 0.01)
        };
        assert_eq!(evaluated(Some(0.95), Some(0.99)), Quality::Kept);
        assert_eq!(evaluated(None, Some(0.999)), Quality::Kept);
        assert_eq!(evaluated(Some(0.94), Some(0.999)), Quality::Lost);
        assert_eq!(evaluated(Some(1.0), Some(0.98)), Quality::Lost);
        assert_eq!(evaluated(Some(1.0), None), Quality::Unknown);
    }
}
