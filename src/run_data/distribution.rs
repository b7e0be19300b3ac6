//! The distribution of each case's calls: a few quantiles each, in `target-reports/<run-id>/distributions.json`.
//!
//! The calls themselves stay beside Criterion's files, where the next run overwrites them; the quantiles stay with the
//! records. Reports draw them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::read_json;
use crate::statistics::SortedCalls;

/// The file's name in a run's folder.
pub const DISTRIBUTIONS: &str = "distributions.json";

/// Changes when an older reader would misunderstand the file.
const FORMAT: u32 = 1;

/// The fractions whose quantiles are kept, dense in the upper tail.
const FRACTIONS: [f64; 32] = [
    0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9,
    0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999,
];

/// The distributions of a run's cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distributions {
    format: u32,
    /// By the case's id.
    pub cases: BTreeMap<String, Distribution>,
    /// Cases that several machines have measured, by the machine's id and the case's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub machines: BTreeMap<String, BTreeMap<String, Distribution>>,
}

/// The distribution of one case's calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    pub calls: usize,
    /// Pairs of a fraction of the calls and the milliseconds that this fraction does not exceed (nearest rank).
    /// Fractions beyond which there is less than one call are left out.
    pub quantiles_ms: Vec<(f64, f64)>,
}

impl Distribution {
    pub fn of(sorted: &SortedCalls, calls: usize) -> Self {
        let is_told = |fraction: &f64| (1.0 - fraction) * calls as f64 >= 1.0 - 1e-6;
        let quantile = |fraction| (fraction, sorted.percentile(fraction) as f64 / 1e6);
        Distribution { calls, quantiles_ms: FRACTIONS.into_iter().filter(is_told).map(quantile).collect() }
    }
}

impl Distributions {
    pub fn new(cases: BTreeMap<String, Distribution>) -> Self {
        Distributions { format: FORMAT, cases, machines: BTreeMap::new() }
    }

    /// The distribution of a case on a machine.
    pub fn of(&self, host_id: &str, case_id: &str) -> Option<&Distribution> {
        self.machines.get(host_id).and_then(|cases| cases.get(case_id)).or_else(|| self.cases.get(case_id))
    }

    /// Reads the file of a run's folder. Returns `None` for runs that older versions converted, and if the file cannot
    /// be read.
    pub fn read(folder: &Path) -> Option<Self> {
        read_json(&folder.join(DISTRIBUTIONS)).ok().filter(|it: &Self| it.format <= FORMAT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_end_where_no_call_is_beyond() {
        let of = |calls: u64| {
            let sorted = SortedCalls::new((1..=calls).map(|call| call * 1_000_000).collect()).unwrap();
            Distribution::of(&sorted, calls as usize).quantiles_ms
        };
        assert_eq!(of(100).last(), Some(&(0.99, 99.0)));
        assert_eq!(of(10).last(), Some(&(0.9, 9.0)));
        assert_eq!(of(10_000).last(), Some(&(0.9999, 9999.0)));
        assert!(of(1).is_empty());
    }

    #[test]
    fn a_file_of_a_newer_version_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(folder.path().join(DISTRIBUTIONS), text).unwrap();
        write(r#"{"format": 1, "cases": {"m/ort-cpu-f32/1": {"calls": 2, "quantiles_ms": [[0.5, 1.5]]}}}"#);
        let read = Distributions::read(folder.path()).unwrap();
        assert_eq!(read.cases["m/ort-cpu-f32/1"].quantiles_ms, [(0.5, 1.5)]);
        write(r#"{"format": 2, "cases": {}}"#);
        assert_eq!(Distributions::read(folder.path()), None);
    }
}
