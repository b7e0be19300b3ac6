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

use anyhow::{Result, anyhow, bail};
use indexmap::IndexMap;

use super::protocol::{Job, Purpose, WorkItem};
use super::worker::can_be_evaluated;
use crate::definition::{Case, CaseFailure, DataSource, Dtype};
use crate::run_data::{CriterionArguments, EvaluationOutcome, Event, Mode, Observed, Outcome, Outcomes, RunFolder};

/// The file of what the runtimes log, in the run's folder.
const DEBUG_LOG: &str = "debug.log";

/// The work of all workers of a run, and what is known about its length.
pub struct Supervisor<'a> {
    /// The job of each worker, but for its work.
    pub job: Job,
    pub folder: &'a RunFolder,
    /// Runnable cases that the filter selected, as [`grouped`].
    pub groups: Vec<Vec<WorkItem>>,
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

/// Groups the cases of one backend and device, which are the work of one worker, or of several if one crashes: in the order in
/// which their backends and devices come first. Cases in f32 come first in their group: outputs in other dtypes are compared
/// with theirs if there is no reference.
pub fn grouped(runnable: Vec<WorkItem>) -> Vec<Vec<WorkItem>> {
    let mut groups: IndexMap<(String, String), Vec<WorkItem>> = IndexMap::new();
    for item in runnable {
        groups.entry((item.case.backend.clone(), item.case.device.clone())).or_default().push(item);
    }
    groups.values_mut().for_each(|group| group.sort_by_key(|item| item.case.dtype != Dtype::F32));
    groups.into_values().collect()
}

/// The user has stopped the run.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
struct Interrupted;

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
        match self.run_groups() {
            Ok(()) => Ok(RunEnd::Complete),
            Err(error) if error.is::<Interrupted>() => Ok(RunEnd::Interrupted),
            Err(error) => Err(error),
        }
    }

    fn run_groups(&self) -> Result<()> {
        if is_interrupted() {
            bail!(Interrupted);
        }
        if self.job.purpose == Purpose::Load {
            return self.measure_cold_starts();
        }
        self.groups.iter().try_for_each(|group| self.run_group(group))?;
        let is_measured = matches!(self.job.purpose, Purpose::Measure | Purpose::MeasureUnverified);
        if !is_measured || self.parsed.mode() != Mode::Measure {
            return Ok(());
        }
        self.measure_again()?;
        if self.is_silent { Ok(()) } else { self.observe() }
    }

    /// Watches memory and energy of every case that was measured and evaluates its answers, in a fresh process each. What goes
    /// wrong there costs only these figures.
    fn observe(&self) -> Result<()> {
        let Outcomes { finished, watched, evaluated, .. } = self.folder.read_outcomes();
        let open_parts = |item| {
            let id = WorkItem::id(item);
            let is_measured = finished.get(&id).is_some_and(|outcome| outcome.status.is_measured());
            let is_watched = is_measured && self.job.effort.watch && !watched.contains_key(&id);
            let is_evaluated = is_measured && self.is_evaluated(item) && !evaluated.contains_key(&id);
            (is_watched || is_evaluated).then_some((item, is_watched, is_evaluated))
        };
        let open: Vec<(&WorkItem, bool, bool)> = self.groups.iter().flatten().filter_map(open_parts).collect();
        for (number, &(item, is_watched, is_evaluated)) in open.iter().enumerate() {
            eprintln!("observing [{}/{}] {}", number + 1, open.len(), item.case);
            let mut job = Job { purpose: Purpose::Observe, ..self.job(&[item], &finished) };
            job.effort.watch = is_watched;
            job.work[0].is_evaluated = is_evaluated;
            let ended = self.run_worker(&job, "observe")?;
            if ended.status.success() {
                continue;
            }
            let (id, failure) = (item.case.benchmark_id(), ended.failure());
            eprintln!("  {id}: not all figures of memory, energy and answers: {failure}");
            if is_evaluated && !self.folder.read_outcomes().evaluated.contains_key(&id.to_string()) {
                let evaluation = EvaluationOutcome { failure: Some(failure.message), seconds: ended.seconds_in_case };
                self.folder.append(&Event::Evaluated { id, evaluation })?;
            }
        }
        Ok(())
    }

    fn run_group(&self, group: &[WorkItem]) -> Result<()> {
        loop {
            let finished = self.folder.read_outcomes().finished;
            let open: Vec<&WorkItem> = group.iter().filter(|item| !finished.contains_key(&item.id())).collect();
            let Some(WorkItem { case: first, .. }) = open.first() else { return Ok(()) };
            let name = format!("{}-{}", first.backend, first.device.replace(':', "."));
            let ended = self.run_worker(&self.job(&open, &finished), &name)?;
            if self.job.purpose != Purpose::Verify && self.parsed.mode() == Mode::Load {
                return if ended.status.success() { Ok(()) } else { Err(anyhow!(ended.last_words)) };
            }
            let after = self.folder.read_outcomes();
            if open.iter().any(|item| !after.finished.contains_key(&item.id())) {
                let id = after.unfinished.unwrap_or_else(|| first.benchmark_id());
                let failure = ended.failure();
                eprintln!("  {id}: {failure}");
                let CaseFailure { status, message } = failure;
                let (message, observed, seconds) = (Some(message), Observed::default(), ended.seconds_in_case);
                self.folder.append(&Event::Finished(Box::new(Outcome { id, status, message, observed, seconds })))?;
            }
        }
    }

    /// Whether a case's answers are evaluated: there are labels, or other forms of the model to compare with.
    fn is_evaluated(&self, WorkItem { case, model, .. }: &WorkItem) -> bool {
        let is_other_form = |WorkItem { case: other, .. }: &WorkItem| {
            other.model == case.model && (other.variant != case.variant || other.dtype != case.dtype)
        };
        let has_labels = model.data_source != DataSource::Synthetic;
        let is_kept = !self.parsed.discard_baseline;
        let is_asked_for = has_labels || self.groups.iter().flatten().any(is_other_form);
        is_kept && is_asked_for && can_be_evaluated(case, model)
    }

    /// The job of a worker that runs these cases next.
    fn job(&self, open: &[&WorkItem], outcomes: &BTreeMap<String, Outcome>) -> Job {
        let seconds: f64 = outcomes.values().map(|outcome| outcome.seconds).sum();
        let mean = (!outcomes.is_empty()).then(|| seconds / outcomes.len() as f64);
        let expected = |case: &Case| self.expected_seconds.get(&case.to_string()).copied().or(mean);
        let is_later =
            |item: &&WorkItem| !outcomes.contains_key(&item.id()) && !open.iter().any(|other| other.case == item.case);
        let all_items = || self.groups.iter().flatten();
        let later: Option<f64> = all_items().filter(is_later).map(|item| expected(&item.case)).sum();
        let all: Option<f64> = all_items().map(|item| expected(&item.case)).sum();
        let further = (self.job.effort.processes - 1) as f64;
        let work = |item: &&WorkItem| WorkItem { expected_seconds: expected(&item.case), ..(*item).clone() };
        Job {
            work: open.iter().map(work).collect(),
            cases_before: outcomes.len(),
            cases_in_all: self.groups.iter().map(Vec::len).sum(),
            seconds_after: later.zip(all).map(|(later, all)| later + further * all),
            ..self.job.clone()
        }
    }
}
