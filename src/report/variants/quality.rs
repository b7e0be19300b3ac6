//! Whether a row answers as well as the original.

use schemars::JsonSchema;
use serde::Serialize;

use super::is_original_in_f32;
use crate::definition::Status;
use crate::record::Record;

/// Without labels, outputs whose mean cosine with the original's is below this are another model's.
pub const LEAST_COSINE: f64 = 0.99;
/// Without labels, the part of the samples that must have their largest output where the original has it.
pub const LEAST_AGREEMENT: f64 = 0.95;

/// For bounds that are computed: `-0.01` may be `-0.010000000000000002`.
const ROUNDING: f64 = 1e-12;

/// By what the answers of rows that are compared are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Right answers over labelled samples.
    Accuracy,
    /// Outputs like those of the original in f32.
    Agreement,
    /// Nothing was measured.
    Unknown,
}

/// What is known of a row's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Quality {
    /// The original in f32, which is what is asked for.
    Original,
    /// It is shown to lose at most what may be lost; without accuracy, it agrees with the original.
    Kept,
    /// It seems so, and the samples are too few to show it.
    Open,
    /// It loses more.
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
    /// Accuracy where any row has one.
    pub fn of<'a>(records: impl Iterator<Item = &'a Record> + Clone) -> Self {
        let mut measured = records.filter(|record| record.status == Status::Ok);
        if measured.clone().any(|record| record.accuracy.is_some()) {
            Measure::Accuracy
        } else if measured.any(|record| record.output_cosine.is_some() || record.agreement.is_some()) {
            Measure::Agreement
        } else {
            Measure::Unknown
        }
    }

    /// What is known of a row if at most `loss` of the accuracy may be lost.
    pub fn judge(self, record: &Record, loss: f64) -> Quality {
        if record.verified == Some(false) {
            return Quality::Wrong;
        }
        if is_original_in_f32(record) {
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

    /// A higher one is better. The original agrees with itself.
    pub fn value(self, record: &Record) -> Option<f64> {
        match self {
            Measure::Accuracy => record.accuracy,
            Measure::Agreement if is_original_in_f32(record) => record.output_cosine.or(Some(1.0)),
            Measure::Agreement => record.output_cosine,
            Measure::Unknown => None,
        }
        .filter(|value| value.is_finite())
    }

    /// How far values are apart that say the same: one answer more or less; of cosines, the third decimal.
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
        let judged = |change, loss| Measure::Accuracy.judge(&measured("v", "ort", 1.0, 1.0, change), loss);
        assert_eq!(judged((0.0, -0.6, 0.6), 0.01), Quality::Kept);
        assert_eq!(judged((0.0, -1.0, 1.0), 0.01), Quality::Kept, "the bound itself is allowed");
        assert_eq!(judged((-0.2, -1.4, 1.0), 0.01), Quality::Open);
        assert_eq!(judged((-0.2, -1.4, 1.0), 0.02), Quality::Kept);
        assert_eq!(judged((-1.2, -2.0, -0.4), 0.01), Quality::Lost);
        assert_eq!(judged((f64::NAN, f64::NAN, f64::NAN), 0.01), Quality::Lost);
        let without_interval =
            Record { accuracy_change_lower: None, ..measured("v", "ort", 1.0, 1.0, (0.0, 0.0, 0.0)) };
        assert_eq!(Measure::Accuracy.judge(&without_interval, 0.01), Quality::Open);
        assert_eq!(Measure::Accuracy.judge(&unlabelled("v", "ort", 1.0, 1.0, (1.0, 1.0)), 0.01), Quality::Unknown);
    }

    #[test]
    fn without_labels_outputs_must_be_those_of_the_original() {
        let judged = |agreement, cosine| {
            let plain = unlabelled("v", "ort", 1.0, 1.0, (0.0, 0.0));
            Measure::Agreement.judge(&Record { agreement, output_cosine: cosine, ..plain }, 0.01)
        };
        assert_eq!(judged(Some(0.95), Some(0.99)), Quality::Kept);
        assert_eq!(judged(None, Some(0.999)), Quality::Kept);
        assert_eq!(judged(Some(0.94), Some(0.999)), Quality::Lost);
        assert_eq!(judged(Some(1.0), Some(0.98)), Quality::Lost);
        assert_eq!(judged(Some(1.0), None), Quality::Unknown);
    }

    #[test]
    fn an_original_is_acceptable_by_definition_unless_it_was_wrong() {
        let original =
            Record { accuracy: None, accuracy_change: None, ..unlabelled("original", "candle", 1.0, 1.0, (0.0, 0.0)) };
        assert!(Measure::Accuracy.judge(&original, 0.0).is_acceptable());
        let half = Record { dtype: crate::definition::Dtype::F16, ..original.clone() };
        assert!(!Measure::Accuracy.judge(&half, 0.0).is_acceptable());
        assert_eq!(Measure::Agreement.judge(&Record { verified: Some(false), ..original }, 1.0), Quality::Wrong);
    }
}
