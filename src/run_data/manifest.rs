//! The manifest of a run, `manifest.json`: what was asked for, where, and by which build. It is written before the
//! first case.

use std::collections::HashSet;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::calibration::{Calibration, RunPart};
use super::record::{Record, SCHEMA_VERSION};
use crate::definition::{Case, CaseFailure, Cost, Suite};
use crate::machine::{Machine, Revision};

/// Changes when an older reader would misunderstand the files.
pub const MANIFEST_FORMAT: u32 = 1;

/// One run: what was asked for, where, and by which build.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub run_id: String,
    pub started: Timestamp,
    /// When it ended. Absent while it runs, and for good if it was killed.
    pub finished: Option<Timestamp>,
    pub is_interrupted: bool,
    /// Criterion's arguments as they were given.
    pub arguments: Vec<String>,
    pub suite_name: String,
    /// The suite with the flags and variables put on top.
    pub suite: Suite,
    pub threads: usize,
    pub inferbench_version: String,
    pub rustc_version: String,
    /// The size of the executable, and the nanoseconds since 1970 at which it was written. Absent in older manifests.
    #[serde(default)]
    pub program: Option<String>,
    pub revision: Revision,
    pub machine: Machine,
    /// How fast the machine can be at best. Absent if no case needs it, and in older manifests.
    pub peaks: Option<Peaks>,
    /// The speed of the machine before and after its cases: for a part of a suite, one per start. Empty in other runs.
    #[serde(default)]
    pub calibrations: Vec<Calibration>,
    /// The runs that were merged into this one, in the order of their parts. Empty in other runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<RunPart>,
    /// If models were divided among machines of one kind that were shown to be equally fast: the time of the slowest
    /// machine over that of the fastest, for the anchor case or the matrix multiplication. Rows of these machines are
    /// ranked together. Absent in other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equal_machines: Option<f64>,
    pub criterion_root: PathBuf,
    /// Criterion's name for these results, beside `new`.
    pub saved_baseline: Option<String>,
    /// What Criterion compared with.
    pub compared_baseline: Option<String>,
    pub is_quick: bool,
    /// Whether outputs are compared with nothing (`--benchmark-only`). False in older manifests.
    #[serde(default)]
    pub is_unverified: bool,
    pub cases: Vec<ManifestCase>,
}

impl Manifest {
    /// A run that has begun, of a build and a machine that are not named.
    pub fn begun(run_id: String, started: Timestamp, suite: Suite, cases: Vec<ManifestCase>) -> Self {
        Manifest {
            format: MANIFEST_FORMAT,
            run_id,
            started,
            suite_name: suite.name.clone(),
            threads: suite.effort.effective_threads(),
            suite,
            cases,
            ..Manifest::default()
        }
    }

    /// Whether the run came to its end by itself.
    pub fn is_complete(&self) -> bool {
        self.finished.is_some() && !self.is_interrupted
    }

    /// The planned cases that have no record, because the run was stopped or is still measuring.
    pub fn not_reached(&self, records: &[Record]) -> Vec<Case> {
        let reached: HashSet<Case> = records.iter().map(Record::case).collect();
        self.cases.iter().map(|planned| &planned.case).filter(|case| !reached.contains(*case)).cloned().collect()
    }

    /// The columns that all records of the run have in common. A column of timestamps keeps microseconds.
    pub fn run_columns(&self) -> Record {
        Record {
            run_id: self.run_id.clone(),
            timestamp: Timestamp::from_microsecond(self.started.as_microsecond()).unwrap_or(self.started),
            git_commit: self.revision.commit.clone(),
            git_dirty: self.revision.is_dirty,
            schema_version: SCHEMA_VERSION,
            host_id: self.machine.host_id.clone(),
            suite: self.suite_name.clone(),
            rustc_version: self.rustc_version.clone(),
            program: self.program.clone(),
            ..Record::default()
        }
    }

    /// The record of a case before the run. Its status is `ok` unless it is known that the case cannot run.
    pub fn row(&self, planned: &ManifestCase) -> Record {
        let mut row = Record {
            framework: planned.framework.clone(),
            family: planned.family.clone(),
            modality: planned.modality.clone(),
            parameters: planned.parameters,
            nonzero_parameters: planned.nonzero_parameters,
            timed_samples: planned.timed_samples.clone(),
            model_sha256: planned.model_sha256.clone(),
            ..self.run_columns().about(&planned.case)
        };
        row.put_cost(planned.cost);
        row.operators = (!planned.operators.is_empty()).then(|| planned.operators.join(" "));
        planned.failure.iter().for_each(|failure| row.fail(failure.clone()));
        row
    }
}

/// A case that the run was asked to measure.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ManifestCase {
    pub case: Case,
    pub framework: String,
    pub family: String,
    pub modality: String,
    pub parameters: Option<u64>,
    pub nonzero_parameters: Option<u64>,
    /// Operations and bytes of a call, counted from the model's graphs. Absent if they cannot be counted.
    pub cost: Option<Cost>,
    /// The operators of these graphs.
    #[serde(default)]
    pub operators: Vec<String>,
    /// SHA-256 of all files that the case can be loaded from or is verified by. Absent if no measurement is kept.
    pub files_sha256: Option<String>,
    /// SHA-256 of the model's own files. Absent if no measurement is kept, and in older manifests.
    pub model_sha256: Option<String>,
    /// SHA-256 of the inputs with their sizes, the phases, the tolerances and the judge of the model.
    /// Absent if no measurement is kept, and in older manifests.
    pub definition_sha256: Option<String>,
    /// SHA-256 of the samples by which its answers are evaluated, or that it times. Absent if they are generated.
    pub samples_sha256: Option<String>,
    /// The samples that are timed, if the case times samples.
    pub timed_samples: Option<String>,
    /// Why it cannot run, if that was known before the run.
    #[serde(alias = "shortfall")]
    pub failure: Option<CaseFailure>,
}

impl ManifestCase {
    /// A case of which nothing else is known.
    pub fn new(case: Case, framework: &str) -> Self {
        ManifestCase { case, framework: framework.into(), ..ManifestCase::default() }
    }
}

/// How fast a machine can be at best: the two roofs of the roofline model. A computation of `i` operations per byte can
/// reach `min(product, i × copy)` (Williams, Waterman and Patterson, CACM 52(4), 2009).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    pub threads: usize,
    /// The best rate at which all threads together multiply square f32 matrices, each its own: operations, two for each
    /// multiply-add, in 10^9 per second. 0 in older manifests.
    #[serde(default)]
    pub product_gflops_per_second: f64,
    /// The best of several copies of one array to another: bytes read and bytes written, in 10^9 per second, as STREAM
    /// counts them.
    pub copy_gb_per_second: f64,
    /// Bytes of one array.
    pub copied_bytes: usize,
    /// Part of the processors' time, from 0 to 1, that others used or that was stolen meanwhile. Absent in older
    /// manifests, and where the system does not tell.
    pub disturbed_share: Option<f64>,
}

impl Peaks {
    /// What a computation of `intensity` operations per byte can reach, in 10^9 operations per second.
    pub fn roof_gflops_per_second(&self, intensity: f64) -> f64 {
        self.product_gflops_per_second.min(intensity * self.copy_gb_per_second)
    }

    /// `gflops_per_second` in percent of what a computation of that intensity can reach. It is above 100 if the
    /// computation is faster than the product and the copy that were measured.
    pub fn roofline_percent(&self, gflops_per_second: f64, intensity: f64) -> Option<f64> {
        let roof = self.roof_gflops_per_second(intensity);
        (roof > 0.0).then(|| 100.0 * gflops_per_second / roof)
    }
}
