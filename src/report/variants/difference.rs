//! What a variant costs as a multiple of its original.

use schemars::JsonSchema;
use serde::Serialize;

use super::{is_original_in_f32, rate};
use crate::definition::Status;
use crate::record::Record;

/// Factors: the row's figure over that of the original in f32.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Differences {
    /// The case of that original.
    pub original: String,
    pub model_size: Option<f64>,
    pub latency_p50: Option<f64>,
    pub throughput: Option<f64>,
    pub memory: Option<f64>,
}

impl Differences {
    pub fn new(record: &Record, original: &Record) -> Self {
        let of = |figure: fn(&Record) -> Option<f64>| factor(figure(record), figure(original));
        Differences {
            original: original.case().to_string(),
            model_size: of(|record| record.model_size_mb),
            latency_p50: of(|record| record.latency_p50_ms),
            throughput: of(rate),
            memory: of(|record| record.memory_mb),
        }
    }
}

/// One figure over another that is above 0.
pub fn factor(figure: Option<f64>, original: Option<f64>) -> Option<f64> {
    let (figure, original) = figure.zip(original)?;
    (original > 0.0 && original.is_finite() && figure.is_finite()).then(|| figure / original)
}

/// The original in f32 that a row is compared with: on its own backend and device, or else the fastest.
pub fn original_of<'a>(record: &Record, records: &[&'a Record]) -> Option<&'a Record> {
    let is_there = |other: &&&Record| (&other.backend, &other.device) == (&record.backend, &record.device);
    let originals = || records.iter().filter(|record| is_measured_original(record));
    originals().find(is_there).copied().or_else(|| fastest_original(records))
}

/// The fastest original in f32 that was measured and is not wrong.
pub fn fastest_original<'a>(records: &[&'a Record]) -> Option<&'a Record> {
    let latency = |record: &Record| record.latency_p50_ms.unwrap_or(f64::INFINITY);
    let originals = records.iter().filter(|record| is_measured_original(record)).copied();
    originals.min_by(|one, other| latency(one).total_cmp(&latency(other)))
}

fn is_measured_original(record: &Record) -> bool {
    record.status == Status::Ok && record.verified != Some(false) && is_original_in_f32(record)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SAME, measured};
    use super::*;

    #[test]
    fn a_missing_figure_has_no_factor() {
        assert_eq!(factor(Some(1.0), Some(4.0)), Some(0.25));
        for (figure, original) in
            [(None, Some(1.0)), (Some(1.0), None), (Some(1.0), Some(0.0)), (Some(f64::NAN), Some(1.0))]
        {
            assert_eq!(factor(figure, original), None);
        }
    }

    #[test]
    fn an_original_that_failed_or_was_wrong_is_no_measure() {
        let tch = measured("original", "tch", 1.0, 1.0, SAME);
        let row = measured("int8", "tch", 1.0, 1.0, SAME);
        let ort = measured("original", "ort", 1.0, 2.0, SAME);
        let found = |tch: &Record| original_of(&row, &[tch, &row, &ort]).map(|original| original.backend.clone());
        assert_eq!(found(&tch).as_deref(), Some("tch"));
        assert_eq!(found(&Record { status: Status::Failed, ..tch.clone() }).as_deref(), Some("ort"));
        assert_eq!(found(&Record { verified: Some(false), ..tch }).as_deref(), Some("ort"));
        assert_eq!(original_of(&row, &[&row]), None);
    }
}
