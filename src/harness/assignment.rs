//! What a parent tells a child process: which cases are its own, and what it needs to run them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::preparation::{Preparations, PreparedKey};
use super::round::RoundTerms;
use crate::definition::{Case, Dtype, Effort, Model};
use crate::fixture::Artifacts;

/// The variable that makes a process a child; its value is the path of the assignment.
pub const ASSIGNMENT: &str = "INFERBENCH_ASSIGNMENT";

/// What is done with each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Compare the outputs with the reference, then measure.
    Measure,
    /// Measure without a proof; the record says so.
    MeasureUnproven,
    /// Compare the outputs only.
    Verify,
    /// Note memory and energy over some calls, untimed: watching would disturb the measurement.
    Watch,
    /// Load and make the first call, in a fresh process for each time.
    Load,
    /// Time calls without Criterion, for a duel.
    Round(RoundTerms),
}

/// The work of one child: cases of one backend and device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Assignment {
    pub purpose: Purpose,
    pub run_id: String,
    pub run_folder: PathBuf,
    pub criterion_root: PathBuf,
    /// The artifacts of the work, which the parent keeps as they are until the run ends.
    pub prepared: Vec<(PreparedKey, Artifacts)>,
    /// The child ends when this is no longer its parent.
    pub parent_process: u32,
    pub effort: Effort,
    /// Every case of the run that has an id in Criterion's tree, in the order of registration. Criterion's summary
    /// pages show only what the last process registered.
    pub registered: Vec<Case>,
    pub work: Vec<WorkItem>,
    /// Cases that other processes have begun or ended already, for the progress line.
    pub cases_before: usize,
    pub cases_in_all: usize,
    /// Expected seconds of the cases that come after this child's.
    pub seconds_after: Option<f64>,
}

/// One case to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkItem {
    pub case: Case,
    pub model: Model,
    /// Whether its answers are judged by the model's samples after it was measured.
    #[serde(default)]
    pub is_judged: bool,
    /// Seconds that it took in an earlier run, or what such cases took so far.
    pub expected_seconds: Option<f64>,
}

impl Assignment {
    /// The artifacts of `work`, for [`Assignment::prepared`].
    pub fn prepared<'a>(
        preparations: &Preparations,
        work: impl IntoIterator<Item = &'a (Case, Model)>,
    ) -> Vec<(PreparedKey, Artifacts)> {
        let known = preparations.artifacts();
        let keys: BTreeSet<PreparedKey> =
            work.into_iter().map(|(case, model)| PreparedKey::new(model, case.dtype)).collect();
        keys.into_iter().filter_map(|key| known.get(&key).map(|&artifacts| (key.clone(), artifacts.clone()))).collect()
    }

    /// The artifacts of a model of the work.
    pub fn artifacts(&self, model: &Model, dtype: Dtype) -> Option<&Artifacts> {
        let key = PreparedKey::new(model, dtype);
        self.prepared.iter().find(|(known, _)| *known == key).map(|(_, artifacts)| artifacts)
    }

    pub fn write(&self, path: &Path) -> Result<(), String> {
        let bytes = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        std::fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
    }

    pub fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))
    }
}
