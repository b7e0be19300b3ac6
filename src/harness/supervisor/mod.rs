//! Supervises the worker processes of a run: starts one per backend and device, and records what becomes of each case.
//!
//! A worker that crashes, is killed or hangs costs the case that it was at; another worker takes up the rest.

mod cold_start;
mod interrupt;
mod process;
mod relay;

pub use interrupt::{is_interrupted, is_interrupted_with};
pub use process::worker_environment;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, anyhow};
use indexmap::IndexMap;

use super::protocol::{Job, Purpose, WorkItem};
use super::worker::can_be_evaluated;
use crate::definition::{Case, DataSource, Dtype, Effort};
use crate::run_data::{CriterionArguments, EvaluationOutcome, Event, Mode, Observed, Outcome, RunFolder};

/// The file of what the runtimes log, in the run's folder.
const DEBUG_LOG: &str = "debug.log";

/// The work of all workers of a run, and what is known about its length.
pub struct Supervisor<'a> {
    pub purpose: Purpose,
    pub folder: &'a RunFolder,
    pub criterion_root: &'a Path,
    pub effort: &'a Effort,
    /// Runnable cases that the filter selected.
    pub groups: Vec<WorkerGroup>,
    /// All cases that have an id in Criterion's tree.
    pub registered: Vec<Case>,
    /// Criterion's arguments, unchanged.
    pub arguments: Vec<String>,
    pub parsed: &'a CriterionArguments,
    /// Whether the workers' output is kept from the terminal.
    pub is_silent: bool,
    /// Whether the runtimes log what they do, into [`DEBUG_LOG`] in the run's folder.
    pub debug: bool,
    /// Seconds that cases took in earlier runs, by id.
    pub expected_seconds: BTreeMap<String, f64>,
}

/// The cases of one backend and device: the work of one worker, or of several if one crashes.
pub struct WorkerGroup {
    pub backend: String,
    pub device: String,
    pub cases: Vec<WorkItem>,
}

impl WorkerGroup {
    /// Groups cases in the order in which their backends and devices come first. Cases in f32 come first in their group:
    /// outputs in other dtypes are compared with theirs if there is no reference.
    pub fn by_backend_and_device(runnable: &[WorkItem]) -> Vec<Self> {
        let mut groups: IndexMap<(String, String), Vec<WorkItem>> = IndexMap::new();
        for item in runnable {
            let (backend, device) = (item.case.backend.clone(), item.case.device.clone());
            groups.entry((backend, device)).or_default().push(item.clone());
        }
        let group = |((backend, device), mut cases): (_, Vec<WorkItem>)| {
            cases.sort_by_key(|item| item.case.dtype != Dtype::F32);
            WorkerGroup { backend, device, cases }
        };
        groups.into_iter().map(group).collect()
    }
}

/// How the workers' part of a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    Complete,
    Interrupted,
}

impl Supervisor<'_> {
    /// Runs every group, one after the other.
    ///
    /// # Errors
    /// A worker cannot be started, or the run's folder cannot be written.
    pub fn run(&self) -> Result<RunEnd> {
        if is_interrupted() {
            return Ok(RunEnd::Interrupted);
        }
        if self.purpose == Purpose::Load {
            return self.measure_cold_starts();
        }
        for index in 0..self.groups.len() {
            if self.run_group(index)? == RunEnd::Interrupted {
                return Ok(RunEnd::Interrupted);
            }
        }
        let is_measured = matches!(self.purpose, Purpose::Measure | Purpose::MeasureUnverified);
        if is_measured && self.parsed.mode() == Mode::Measure && self.effort.watch {
            return self.watch_memory();
        }
        Ok(RunEnd::Complete)
    }

    /// Watches memory and energy of every case that was measured, in a fresh process each. What goes wrong there costs
    /// only these figures.
    fn watch_memory(&self) -> Result<RunEnd> {
        let outcomes = self.folder.read_outcomes();
        let is_open = |case: &Case| {
            let id = case.to_string();
            let is_ok = outcomes.finished.get(&id).is_some_and(|outcome| outcome.status.is_measured());
            is_ok && !outcomes.watched.contains_key(&id)
        };
        let groups = self.groups.iter().enumerate();
        let open: Vec<(usize, &WorkItem)> = groups
            .flat_map(|(index, group)| group.cases.iter().map(move |item| (index, item)))
            .filter(|(_, item)| is_open(&item.case))
            .collect();
        let path = self.folder.path().join("job-watch.json");
        for (number, (index, item)) in open.iter().enumerate() {
            eprintln!("memory [{}/{}] {}", number + 1, open.len(), item.case);
            let job = self.job(*index, &[item], &outcomes.finished);
            Job { purpose: Purpose::Watch, ..job }.write(&path)?;
            let ended = self.run_worker(&self.groups[*index], &path)?;
            if is_interrupted_with(ended.status) {
                return Ok(RunEnd::Interrupted);
            }
            if !ended.status.success() {
                eprintln!("  no memory figures: {}", ended.failure(self.effort));
            }
        }
        Ok(RunEnd::Complete)
    }

    fn run_group(&self, index: usize) -> Result<RunEnd> {
        let WorkerGroup { backend, device, cases } = &self.groups[index];
        let name = format!("job-{backend}-{}.json", device.replace(':', "."));
        let path = self.folder.path().join(name);
        // A resumed run measures a case anew if its evaluation had not ended.
        let unevaluated = self.folder.read_outcomes().unevaluated;
        loop {
            let outcomes = self.folder.read_outcomes();
            let is_to_be_evaluated =
                |case: &Case| unevaluated == outcomes.unevaluated && unevaluated == Some(case.benchmark_id());
            let outcomes = &outcomes.finished;
            let is_open = |case: &Case| !outcomes.contains_key(&case.to_string()) || is_to_be_evaluated(case);
            let open: Vec<&WorkItem> = cases.iter().filter(|item| is_open(&item.case)).collect();
            let Some(first) = open.first() else { return Ok(RunEnd::Complete) };
            self.job(index, &open, outcomes).write(&path)?;
            let ended = self.run_worker(&self.groups[index], &path)?;
            if is_interrupted_with(ended.status) {
                return Ok(RunEnd::Interrupted);
            }
            if self.purpose != Purpose::Verify && self.parsed.mode() == Mode::Load {
                return if ended.status.success() { Ok(RunEnd::Complete) } else { Err(anyhow!(ended.last_words)) };
            }
            let after = self.folder.read_outcomes();
            if let Some(id) = after.unevaluated {
                let failure = ended.failure(self.effort).message;
                eprintln!("  {id}: not evaluated: {failure}");
                let evaluation = EvaluationOutcome { failure: Some(failure), seconds: ended.seconds_in_case };
                self.folder.append(&Event::Evaluated { id, evaluation })?;
                continue;
            }
            let all_done = open.iter().all(|item| after.finished.contains_key(&item.case.to_string()));
            if !all_done {
                let id = after.unfinished.unwrap_or_else(|| first.case.benchmark_id());
                let failure = ended.failure(self.effort);
                eprintln!("  {id}: {failure}");
                self.folder.append(&Event::Finished(Box::new(Outcome {
                    id,
                    status: failure.status,
                    message: Some(failure.message),
                    observed: Observed::default(),
                    seconds: ended.seconds_in_case,
                })))?;
            }
        }
    }

    /// Whether a case's answers are evaluated: there are labels, or other forms of the model to compare with.
    fn is_evaluated(&self, WorkItem { case, model, .. }: &WorkItem) -> bool {
        let is_other_form = |WorkItem { case: other, .. }: &WorkItem| {
            other.model == case.model && (other.variant != case.variant || other.dtype != case.dtype)
        };
        let has_labels = model.data_source != DataSource::Synthetic;
        let is_asked_for = has_labels || self.groups.iter().flat_map(|group| &group.cases).any(is_other_form);
        is_asked_for && can_be_evaluated(case, model)
    }

    fn job(&self, index: usize, open: &[&WorkItem], outcomes: &BTreeMap<String, Outcome>) -> Job {
        let seconds: f64 = outcomes.values().map(|outcome| outcome.seconds).sum();
        let mean = (!outcomes.is_empty()).then(|| seconds / outcomes.len() as f64);
        let expected = |case: &Case| self.expected_seconds.get(&case.to_string()).copied().or(mean);
        let later = self.groups[index + 1..].iter().flat_map(|group| &group.cases);
        let work = |item: &WorkItem| WorkItem {
            is_evaluated: self.is_evaluated(item),
            expected_seconds: expected(&item.case),
            ..item.clone()
        };
        Job {
            purpose: self.purpose,
            run_folder: self.folder.path().to_owned(),
            criterion_root: self.criterion_root.to_owned(),
            supervisor_process: std::process::id(),
            effort: Effort { threads: Some(self.effort.effective_threads()), ..self.effort.clone() },
            registered: self.registered.clone(),
            work: open.iter().map(|&item| work(item)).collect(),
            processors: Vec::new(),
            cases_before: outcomes.len(),
            cases_in_all: self.groups.iter().map(|group| group.cases.len()).sum(),
            seconds_after: later.map(|item| expected(&item.case)).sum(),
        }
    }
}
