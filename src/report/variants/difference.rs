//! What a variant costs as a multiple of its original.

use schemars::JsonSchema;
use serde::Serialize;

use super::{own_memory, rate};
use crate::definition::{Dtype, ORIGINAL, Status};
use crate::record::Record;

/// Factors: the row's figure over that of its original.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Differences {
    /// The case of that original.
    pub original: String,
    pub model_size: Option<f64>,
    pub latency_p50: Option<f64>,
    pub throughput: Option<f64>,
    /// Of processes that have measured nothing else.
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
            memory: of(own_memory),
        }
    }
}

/// One figure over another that is above 0.
pub fn factor(figure: Option<f64>, original: Option<f64>) -> Option<f64> {
    let (figure, original) = figure.zip(original)?;
    (original > 0.0 && original.is_finite() && figure.is_finite()).then(|| figure / original)
}

/// The originals that others are compared with: those that were measured and are not wrong, in f32, or else in the dtype
/// that the model itself has.
pub struct Originals<'a> {
    pub dtype: Dtype,
    /// The fastest first.
    measured: Vec<&'a Record>,
}

impl<'a> Originals<'a> {
    /// None where no original was measured.
    pub fn among(records: &[&'a Record]) -> Option<Self> {
        let is_right = |record: &Record| record.status == Status::Ok && record.verified != Some(false);
        Dtype::ALL.into_iter().find_map(|dtype| {
            let is_one = |record: &&&Record| is_original(record, dtype) && is_right(record);
            let mut measured: Vec<&Record> = records.iter().filter(is_one).copied().collect();
            let latency = |record: &Record| record.latency_p50_ms.unwrap_or(f64::INFINITY);
            measured.sort_by(|one, other| latency(one).total_cmp(&latency(other)));
            (!measured.is_empty()).then_some(Originals { dtype, measured })
        })
    }

    pub fn fastest(&self) -> Option<&'a Record> {
        self.measured.first().copied()
    }

    /// What a row is compared with: the original on its own backend and device, or else the fastest.
    pub fn of(&self, record: &Record) -> Option<&'a Record> {
        let is_there = |other: &&&Record| (&other.backend, &other.device) == (&record.backend, &record.device);
        self.measured.iter().find(is_there).copied().or_else(|| self.fastest())
    }

    /// Whether a row is what others are compared with.
    pub fn has(&self, record: &Record) -> bool {
        is_original(record, self.dtype)
    }
}

fn is_original(record: &Record, dtype: Dtype) -> bool {
    record.variant == ORIGINAL && record.dtype == dtype
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
    fn memory_of_a_shared_process_has_no_factor() {
        let original = measured("original", "ort", 10.0, 1.0, SAME);
        let row = measured("int8", "ort", 110.0, 1.0, SAME);
        let shared = |record: &Record| Record { memory_kind: Some("shared-process-peak-rss".into()), ..record.clone() };
        assert!(Differences::new(&row, &original).memory.is_some());
        assert_eq!(Differences::new(&shared(&row), &original).memory, None);
        assert_eq!(Differences::new(&shared(&row), &shared(&original)).memory, None);
    }

    #[test]
    fn an_original_that_failed_or_was_wrong_is_no_measure() {
        let tch = measured("original", "tch", 1.0, 1.0, SAME);
        let row = measured("int8", "tch", 1.0, 1.0, SAME);
        let ort = measured("original", "ort", 1.0, 2.0, SAME);
        let found = |tch: &Record| {
            let records = [tch, &row, &ort];
            Originals::among(&records).unwrap().of(&row).map(|original| original.backend.clone())
        };
        assert_eq!(found(&tch).as_deref(), Some("tch"));
        assert_eq!(found(&Record { status: Status::Failed, ..tch.clone() }).as_deref(), Some("ort"));
        assert_eq!(found(&Record { verified: Some(false), ..tch }).as_deref(), Some("ort"));
        assert!(Originals::among(&[&row]).is_none());
    }

    #[test]
    fn without_f32_the_originals_own_dtype_counts() {
        let half = Record { dtype: Dtype::F16, ..measured("original", "ort", 1.0, 1.0, SAME) };
        let single = measured("original", "tch", 1.0, 2.0, SAME);
        let dtype = |records: &[&Record]| Originals::among(records).unwrap().dtype;
        assert_eq!(dtype(&[&half, &single]), Dtype::F32);
        assert_eq!(dtype(&[&half]), Dtype::F16);
        assert_eq!(dtype(&[&half, &Record { status: Status::Failed, ..single }]), Dtype::F16);
    }
}
