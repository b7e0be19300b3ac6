//! The job of a worker process: which cases it runs, and what it needs for them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::backend::LoadRequest;
use crate::definition::{Case, Effort, Model, Status};
use crate::fixture::Artifacts;
use crate::run_data::{LoadTerms, Record, RunFolder};

/// The variable that makes a process a worker; its value is the path of the job.
pub const JOB: &str = "INFERBENCH_JOB";

/// What a worker does with each case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Compare the outputs with the reference, then measure.
    #[default]
    Measure,
    /// Measure without verification; the record says so.
    MeasureUnverified,
    /// Measure once more what another process has verified and measured.
    MeasureAgain,
    /// Only compare the outputs, more thoroughly: other batch sizes, repeated calls, the whole reference.
    Verify,
    /// Only compare the outputs, as a measurement does.
    Confirm,
    /// Record memory and energy over some calls, and answers to samples: this would disturb a measurement.
    Observe,
    /// Load and make the first call, in a fresh process for each time.
    Load,
    /// Answer which item is the first that runs: the items are one case with different sizes.
    TrySizes,
    /// Compare the outputs, and answer the times of the operators of the only item.
    Profile,
    /// Compare the outputs, then send requests to the only item, and answer the results.
    Serve,
    /// Answer the stacks of the process's threads over calls of the only item.
    SampleStacks,
    /// Answer the ranges of the inputs and outputs of the only item, over samples of its model.
    Calibrate,
}

impl Purpose {
    /// Whether this is the first process to load its cases, which checks that they are computed as requested.
    pub fn is_first_process(self) -> bool {
        matches!(
            self,
            Purpose::Measure
                | Purpose::MeasureUnverified
                | Purpose::Verify
                | Purpose::Confirm
                | Purpose::Profile
                | Purpose::Serve
        )
    }
}

/// The work of one worker process: cases of one backend and device.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Job {
    pub purpose: Purpose,
    pub folder: RunFolder,
    pub criterion_root: PathBuf,
    pub effort: Effort,
    /// Every case of the run that has an id in Criterion's tree, in the order of registration. Criterion's summary
    /// pages show only what the last process registered.
    pub registered: Vec<Case>,
    pub work: Vec<WorkItem>,
    /// The processors that the threads are pinned to, one each; empty if they are not pinned.
    pub processors: Vec<usize>,
    /// Cases that other workers had no memory for: larger batches of them are not tried.
    #[serde(default)]
    pub out_of_memory: Vec<Case>,
    /// Cases that other workers have finished already, for the progress line.
    pub cases_before: usize,
    pub cases_in_all: usize,
    /// The terms of a load test.
    #[serde(default)]
    pub load: Option<LoadTerms>,
    /// Expected seconds for this worker's cases and all later ones.
    pub seconds_left: f64,
}

/// One case to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkItem {
    /// What is known about the case so far.
    pub row: Record,
    pub case: Case,
    pub model: Model,
    /// The supervisor keeps them unchanged until the run ends.
    pub artifacts: Artifacts,
    /// Whether its answers to the model's samples are evaluated.
    pub is_evaluated: bool,
    /// Seconds that it took in an earlier run, or else an estimate.
    pub expected_seconds: f64,
}

impl WorkItem {
    pub fn new(case: Case, model: Model, artifacts: Artifacts) -> Self {
        let row = Record { case_id: case.to_string(), status: Status::Ok, ..Record::default() };
        WorkItem { row, case, model, artifacts, is_evaluated: false, expected_seconds: 0.0 }
    }

    pub fn id(&self) -> String {
        self.case.to_string()
    }
}

impl Job {
    /// A job without work.
    pub fn new(purpose: Purpose, folder: &RunFolder, criterion_root: &Path, effort: &Effort) -> Self {
        Job {
            purpose,
            folder: folder.clone(),
            criterion_root: criterion_root.to_owned(),
            effort: Effort { threads: Some(effort.effective_threads()), ..effort.clone() },
            ..Job::default()
        }
    }

    /// The file with the worker's answer, if its purpose is to find something out.
    pub fn answer_path(&self) -> PathBuf {
        self.folder.path().join("answer.json")
    }

    /// What a backend is asked to load for a case.
    pub fn request<'a>(&'a self, item: &'a WorkItem) -> LoadRequest<'a> {
        LoadRequest {
            model: &item.model,
            artifacts: &item.artifacts,
            phase: item.case.phase,
            sizes: item.case.sizes(),
            device: &item.case.device,
            dtype: item.case.dtype,
            threads: self.effort.effective_threads(),
            instances: self.load.as_ref().map_or(1, |terms| terms.instances),
            callers: self.load.as_ref().map_or(1, |terms| terms.callers),
        }
    }
}
