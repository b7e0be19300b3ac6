//! Supervises the worker processes of a run: starts one per backend and device, and records what becomes of each case.
//!
//! If a worker crashes, is killed or hangs, only its current case is lost; another worker continues with the rest.

mod cold_start;
mod interrupt;
mod process;

pub use interrupt::{Interrupted, is_interrupted, is_interrupted_with, wait_for};
pub use process::{of_case, worker_environment};

use anyhow::{Result, anyhow, bail};
use indexmap::IndexMap;

use self::process::EndedWorker;
use super::protocol::{Job, Purpose, WorkItem};
use super::worker::{are_scored, can_be_evaluated};
use crate::definition::{CLOSURE, Case, DataSource, Dtype, Status, TimedOn};
use crate::run_data::{CriterionArguments, Event, Mode, Outcome, Outcomes, Record};

/// After this many processes that ended without figures, no further process measures the case.
pub(super) const MOST_LOST: usize = 2;

/// The file in the run's folder for what the runtimes log.
const DEBUG_LOG: &str = "debug.log";

/// Starts and watches the workers of a run.
pub struct Supervisor {
    /// The job that all workers share; `work` is filled in for each.
    pub job: Job,
    /// The runnable cases that the filter selected, by [`grouped`].
    pub groups: Vec<Vec<WorkItem>>,
    /// Criterion's arguments, unchanged.
    pub arguments: Vec<String>,
    pub parsed: CriterionArguments,
    /// Whether the workers' output is kept from the terminal.
    pub is_silent: bool,
    /// Whether the runtimes write logs, which go into [`DEBUG_LOG`].
    pub debug: bool,
}

/// Groups cases by backend and device, in the order of their first appearance. One worker runs a group, or several if
/// one crashes. Cases in f32 come first in a group: without a reference, outputs in other dtypes are compared with
/// theirs.
pub fn grouped(runnable: Vec<WorkItem>) -> Vec<Vec<WorkItem>> {
    let mut groups: IndexMap<(String, String), Vec<WorkItem>> = IndexMap::new();
    for item in runnable {
        groups.entry((item.case.backend.clone(), item.case.device.clone())).or_default().push(item);
    }
    groups.values_mut().for_each(|group| group.sort_by_key(|item| item.case.dtype != Dtype::F32));
    groups.into_values().collect()
}

impl Supervisor {
    /// A supervisor of workers whose output is not shown in the terminal.
    pub fn silent(job: Job, groups: Vec<Vec<WorkItem>>) -> Self {
        let parsed = CriterionArguments::default();
        Supervisor { job, groups, arguments: Vec::new(), parsed, is_silent: true, debug: false }
    }

    /// Runs every group, one after the other.
    ///
    /// # Errors
    /// [`Interrupted`]; or a worker cannot be started, or the run's folder cannot be written.
    pub fn run(&self) -> Result<()> {
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
        for process in 2..=self.job.effort.processes {
            self.groups.iter().try_for_each(|group| self.measure_again(process, group))?;
        }
        if self.is_silent { Ok(()) } else { self.observe() }
    }

    fn run_group(&self, group: &[WorkItem]) -> Result<()> {
        let Case { backend, device, .. } = &group[0].case;
        let name = format!("{backend}-{}", device.replace(':', "."));
        if self.job.purpose != Purpose::Verify && self.parsed.mode() == Mode::Load {
            let work: Vec<&WorkItem> = group.iter().collect();
            let ended = self.run_worker(&self.with_work(&self.job, &work, &Outcomes::default()), &name)?;
            return if ended.status.success() { Ok(()) } else { Err(anyhow!(ended.failure().message)) };
        }
        let is_open = |outcomes: &Outcomes, id: &str| !outcomes.finished.contains_key(id);
        self.work_through(group, &self.job, &name, is_open, |item, ended| {
            let failure = ended.failure();
            eprintln!("  {}: {failure}", item.case);
            let mut outcome = Outcome { seconds: ended.seconds_in_case, ..Outcome::new(item.row.clone()) };
            outcome.row.fail(failure);
            Event::Finished(Box::new(outcome))
        })
    }

    /// Measures each measured case of a group once more, unless `process` processes have measured it already. A failure
    /// loses only the figures of one process.
    ///
    /// All cases are measured once before any is measured again, so a machine that slows down affects all cases alike.
    fn measure_again(&self, process: usize, group: &[WorkItem]) -> Result<()> {
        let mut job = Job { purpose: Purpose::MeasureAgain, ..self.job.clone() };
        // If the order is shuffled, each process has a different one.
        job.effort.shuffle = job.effort.shuffle.map(|seed| seed.wrapping_add(process as u64));
        if !self.is_silent {
            let Case { backend, device, .. } = &group[0].case;
            eprintln!("\nprocess {process} of {} on {backend} {device}", job.effort.processes);
        }
        let is_open = |outcomes: &Outcomes, id: &str| {
            let is_measured = outcomes.row(id).is_some_and(|row| row.status.is_measured());
            let processes = 1 + outcomes.further.get(id).map_or(0, Vec::len);
            is_measured && processes < process && outcomes.lost.get(id).is_none_or(|lost| *lost < MOST_LOST)
        };
        self.work_through(group, &job, "further", is_open, |item, ended| {
            eprintln!("  {}: process {process} is lost: {}", item.case, ended.failure());
            Event::Lost { id: item.id() }
        })
    }

    /// Starts workers for the open cases of a group until none is open. `name` is part of the name of the job's file.
    /// If a worker ends too early, `lost` makes the event for the case that it was running.
    fn work_through(
        &self,
        group: &[WorkItem],
        job: &Job,
        name: &str,
        is_open: impl Fn(&Outcomes, &str) -> bool,
        lost: impl Fn(&WorkItem, &EndedWorker) -> Event,
    ) -> Result<()> {
        loop {
            let outcomes = self.job.folder.read_outcomes()?;
            let open: Vec<&WorkItem> = group.iter().filter(|item| is_open(&outcomes, &item.id())).collect();
            if open.is_empty() {
                return Ok(());
            }
            let ended = self.run_worker(&self.with_work(job, &open, &outcomes), name)?;
            let after = self.job.folder.read_outcomes()?;
            let left: Vec<&WorkItem> = open.into_iter().filter(|item| is_open(&after, &item.id())).collect();
            let was_at = left.iter().find(|item| after.unfinished == Some(item.id())).or(left.first());
            if let Some(item) = was_at {
                self.job.folder.append(&lost(item, &ended))?;
            }
        }
    }

    /// Observes each measured case in a fresh process: its memory, its energy, and its answers to samples. A failure
    /// loses only these figures.
    fn observe(&self) -> Result<()> {
        let outcomes = self.job.folder.read_outcomes()?;
        let open_parts = |item| {
            let id = WorkItem::id(item);
            outcomes.row(&id).filter(|row| row.status.is_measured())?;
            let is_watched = self.job.effort.watch && !outcomes.watched.contains(&id);
            let is_evaluated = self.is_evaluated(item) && !outcomes.evaluated.contains_key(&id);
            (is_watched || is_evaluated).then_some((item, is_watched, is_evaluated))
        };
        let open: Vec<_> = self.groups.iter().flatten().filter_map(open_parts).collect();
        for (number, &(item, is_watched, is_evaluated)) in open.iter().enumerate() {
            eprintln!("observing [{}/{}] {}", number + 1, open.len(), item.case);
            let mut job = Job { purpose: Purpose::Observe, ..self.with_work(&self.job, &[item], &outcomes) };
            job.effort.watch = is_watched;
            job.work[0].is_evaluated = is_evaluated;
            loop {
                let ended = self.run_worker(&job, "observe").inspect_err(|_| {
                    eprintln!("  from {} on, figures of memory, energy and answers may be missing", item.case);
                })?;
                if ended.status.success() {
                    break;
                }
                let (id, failure) = (item.id(), ended.failure());
                eprintln!("  {id}: some figures of memory, energy and answers are missing: {failure}");
                let after = self.job.folder.read_outcomes()?;
                if !is_evaluated || after.evaluated.contains_key(&id) {
                    break;
                }
                // Watching comes before the evaluation. If it failed, the next process only evaluates.
                if std::mem::take(&mut job.effort.watch) && !after.watched.contains(&id) {
                    continue;
                }
                let (failure, seconds) = (Some(failure.message), ended.seconds_in_case);
                self.job.folder.append(&Event::Evaluated { id, failure, seconds })?;
                break;
            }
        }
        Ok(())
    }

    /// Whether a case's answers are evaluated: if there are labels, scorers or other forms of the model.
    fn is_evaluated(&self, WorkItem { case, model, .. }: &WorkItem) -> bool {
        let is_other_form = |WorkItem { case: other, .. }: &WorkItem| {
            other.model == case.model && (other.variant != case.variant || other.dtype != case.dtype)
        };
        let has_labels = model.data_source != DataSource::Synthetic;
        let is_kept = !self.parsed.discard_baseline;
        let is_asked_for = has_labels || are_scored() || self.groups.iter().flatten().any(is_other_form);
        // A case that is timed on texts has their length; other texts would be cut or padded to it.
        let takes_all = case.timed_on == TimedOn::Seeded || case.sequence_length.is_none();
        // A closure has no answers to evaluate.
        is_kept && is_asked_for && takes_all && case.backend != CLOSURE && can_be_evaluated(case, model)
    }

    /// The job of the worker that runs the open cases next. It has what is known of the finished ones.
    fn with_work(&self, job: &Job, open: &[&WorkItem], outcomes: &Outcomes) -> Job {
        let all_seconds: f64 = self.groups.iter().flatten().map(|item| item.expected_seconds).sum();
        let is_open = |item: &&WorkItem| !outcomes.finished.contains_key(&item.id());
        let rows = outcomes.finished.values().map(|outcome| &outcome.row);
        let open_seconds: f64 = self.groups.iter().flatten().filter(is_open).map(|item| item.expected_seconds).sum();
        let known_row = |item: &WorkItem| outcomes.row(&item.id()).unwrap_or(&item.row).clone();
        Job {
            work: open.iter().map(|&item| WorkItem { row: known_row(item), ..item.clone() }).collect(),
            out_of_memory: rows.filter(|row| row.status == Status::OutOfMemory).map(Record::case).collect(),
            cases_before: outcomes.finished.len(),
            cases_in_all: self.groups.iter().map(Vec::len).sum(),
            seconds_left: open_seconds + (self.job.effort.processes - 1) as f64 * all_seconds,
            ..job.clone()
        }
    }
}
