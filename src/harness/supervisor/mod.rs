//! Supervises the worker processes of a run: starts one per backend and device, and records what becomes of each case.
//!
//! A worker that crashes, is killed or hangs costs the case that it was at; another worker takes up the rest.

mod cold_start;
mod further;
mod interrupt;
mod process;
mod relay;

pub use interrupt::{is_interrupted, is_interrupted_with};
pub use process::worker_environment;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, anyhow};

use super::protocol::{Job, Preparations, Purpose, WorkItem};
use super::worker::can_be_evaluated;
use crate::definition::{Case, DataSource, Dtype, Effort, Model};
use crate::run_data::{CriterionArguments, EvaluationOutcome, Event, Mode, Observed, Outcome, RunFolder};

/// The file of what the runtimes log, in the run's folder.
const DEBUG_LOG: &str = "debug.log";

/// The work of all workers of a run, and what is known about its length.
pub struct Supervisor<'a> {
    pub purpose: Purpose,
    pub folder: &'a RunFolder,
    pub criterion_root: &'a Path,
    pub effort: &'a Effort,
    /// The artifacts of the runnable cases.
    pub prepared: &'a Preparations,
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
    pub cases: Vec<(Case, Model)>,
}

impl WorkerGroup {
    /// Groups cases in the order in which their backends and devices come first. Cases in f32 come first in their group:
    /// outputs in other dtypes are compared with theirs if there is no reference.
    pub fn by_backend_and_device(runnable: &[(Case, Model)]) -> Vec<Self> {
        let mut groups: Vec<WorkerGroup> = Vec::new();
        for (case, model) in runnable {
            let work = (case.clone(), model.clone());
            match groups.iter_mut().find(|group| group.backend == case.backend && group.device == case.device) {
                Some(group) => group.cases.push(work),
                None => {
                    let (backend, device) = (case.backend.clone(), case.device.clone());
                    groups.push(WorkerGroup { backend, device, cases: vec![work] });
                }
            }
        }
        groups.iter_mut().for_each(|group| group.cases.sort_by_key(|(case, _)| case.dtype != Dtype::F32));
        groups
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
        if !is_measured || self.parsed.mode() != Mode::Measure {
            return Ok(RunEnd::Complete);
        }
        match self.measure_again()? {
            RunEnd::Complete if self.effort.watch => self.watch_memory(),
            end => Ok(end),
        }
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
        let open: Vec<(usize, &(Case, Model))> = groups
            .flat_map(|(index, group)| group.cases.iter().map(move |work| (index, work)))
            .filter(|(_, (case, _))| is_open(case))
            .collect();
        let path = self.folder.path().join("job-watch.json");
        for (number, (index, work)) in open.iter().enumerate() {
            eprintln!("memory [{}/{}] {}", number + 1, open.len(), work.0);
            let job = self.job(*index, &[work], &outcomes.finished);
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
            let open: Vec<&(Case, Model)> = cases.iter().filter(|(case, _)| is_open(case)).collect();
            let Some((first, _)) = open.first() else { return Ok(RunEnd::Complete) };
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
            let all_done = open.iter().all(|(case, _)| after.finished.contains_key(&case.to_string()));
            if !all_done {
                let id = after.unfinished.unwrap_or_else(|| first.benchmark_id());
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
    fn is_evaluated(&self, case: &Case, model: &Model) -> bool {
        let is_other_form = |(other, _): &(Case, Model)| {
            other.model == case.model && (other.variant != case.variant || other.dtype != case.dtype)
        };
        let has_labels = model.data_source != DataSource::Synthetic;
        let is_asked_for = has_labels || self.groups.iter().flat_map(|group| &group.cases).any(is_other_form);
        is_asked_for && can_be_evaluated(case, model)
    }

    fn job(&self, index: usize, open: &[&(Case, Model)], outcomes: &BTreeMap<String, Outcome>) -> Job {
        let seconds: f64 = outcomes.values().map(|outcome| outcome.seconds).sum();
        let mean = (!outcomes.is_empty()).then(|| seconds / outcomes.len() as f64);
        let expected = |case: &Case| self.expected_seconds.get(&case.to_string()).copied().or(mean);
        let all = |groups: &[WorkerGroup]| {
            groups.iter().flat_map(|group| &group.cases).map(|(case, _)| expected(case)).sum::<Option<f64>>()
        };
        let further = (self.effort.processes - 1) as f64;
        Job {
            purpose: self.purpose,
            run_folder: self.folder.path().to_owned(),
            criterion_root: self.criterion_root.to_owned(),
            prepared: Job::prepared(self.prepared, open.iter().copied()),
            supervisor_process: std::process::id(),
            effort: Effort { threads: Some(self.effort.effective_threads()), ..self.effort.clone() },
            registered: self.registered.clone(),
            work: open
                .iter()
                .map(|(case, model)| WorkItem {
                    case: case.clone(),
                    model: model.clone(),
                    is_evaluated: self.is_evaluated(case, model),
                    expected_seconds: expected(case),
                })
                .collect(),
            processors: Vec::new(),
            cases_before: outcomes.len(),
            cases_in_all: self.groups.iter().map(|group| group.cases.len()).sum(),
            seconds_after: all(&self.groups[index + 1..])
                .zip(all(&self.groups))
                .map(|(later, all)| later + further * all),
        }
    }
}
