//! A worker process: does its job for the cases of one backend and device.

mod answers;
mod arm;
mod boxes;
mod call_server;
mod case_outcome;
mod closeness;
mod evaluation;
mod following;
mod loaded_case;
mod maps;
mod measure;
mod peer_outputs;
mod profile;
mod scores;
mod serve;
mod token_server;
mod verification;
mod vocabulary;

pub use arm::run_arm;
pub use evaluation::can_be_evaluated;
pub use scores::{Answer, Scorer, are_scored, register_scorers};

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use serde::Serialize;

use self::case_outcome::recorded;
use self::loaded_case::{LoadedCase, Worker};
use super::protocol::{Job, Purpose, WorkItem};
use crate::definition::{Case, CaseFailure, Effort, Status};
use crate::exit_codes;
use crate::machine::ProcessorTime;
use crate::machine::processes::end_with_parent;
use crate::measurement::{self, LoggedSamples, SampleLog, unwinding};
use crate::run_data::files::read_json;
use crate::run_data::{CriterionArguments, Event, Latencies, Outcome, Record};

/// Does the job in this file, under Criterion's command line. Returns the exit code.
pub fn run(job_path: &Path) -> u8 {
    let done = do_job(job_path).inspect_err(|error| eprintln!("inferbench: {error:#}"));
    if done.is_ok() { exit_codes::OK } else { 1 }
}

fn do_job(path: &Path) -> Result<()> {
    let job = read_json::<Job>(path)?;
    end_with_parent();
    // Reads which processors this process may use, before a library binds this thread to one of them.
    let _ = ProcessorTime::now();
    let mut worker = Worker::new(&job);
    let mut items = job.work.iter().enumerate();
    match job.purpose {
        Purpose::Verify | Purpose::Confirm => items.try_for_each(|(index, item)| worker.verify(index, item)),
        Purpose::MeasureAgain => worker.measure_all_again(),
        Purpose::Observe => items.try_for_each(|(_, item)| worker.observe(item)),
        Purpose::TrySizes => worker.try_sizes(),
        Purpose::Calibrate => worker.answer(Worker::calibrate),
        Purpose::Profile => worker.answer(Worker::profile),
        Purpose::Serve => worker.answer(Worker::serve),
        Purpose::SampleStacks => worker.answer(Worker::sample_stacks),
        Purpose::Load => items.try_for_each(|(_, item)| worker.start_cold(item).map(drop)),
        Purpose::Measure | Purpose::MeasureUnverified => measure::measure(&job),
    }
}

impl Worker<'_> {
    /// Runs a case once and compares its outputs.
    fn verify(&mut self, index: usize, item: &WorkItem) -> Result<()> {
        let job = self.job;
        eprintln!("[{}/{}] {}", job.cases_before + index + 1, job.cases_in_all, item.case);
        let status = recorded(&job.folder, item, |outcome| {
            unwinding(|| {
                let mut loaded = self.load(item, outcome)?;
                outcome.rough_call_ms = Some(loaded.rough_call_ms()?);
                self.release(loaded);
                Ok(())
            })
        })?;
        self.note_end(&item.case, status);
        Ok(())
    }

    /// Measures each case in the order of the first process, or in the shuffled order of this one.
    fn measure_all_again(&mut self) -> Result<()> {
        let arguments = CriterionArguments::parse_from(std::env::args_os().skip(1));
        let work = &self.job.work;
        let cases: Vec<Case> = work.iter().map(|item| item.case.clone()).collect();
        let ordered = measure::groups(&cases, self.job.effort.shuffle).concat();
        let mut items = ordered.into_iter().filter_map(|case| work.iter().find(|item| item.case == *case));
        items.try_for_each(|item| self.measure_again(item, &arguments))
    }

    /// Loads a case that another process has verified and measured, warms it up, and makes as many calls as the same
    /// rule gives here. Criterion is not involved.
    fn measure_again(&mut self, item: &WorkItem, arguments: &CriterionArguments) -> Result<()> {
        let job = self.job;
        let id = item.id();
        job.folder.append(&Event::Started { id: id.clone() })?;
        let log = SampleLog::default();
        let measured = unwinding(|| {
            let mut loaded = self.load(item, &mut Outcome::new(item.row.clone()))?;
            let warm_up = loaded.warm_up(&job.effort)?;
            let pilot = measurement::pilot(&mut loaded.session, &job.effort, warm_up.planned_call_ns())?;
            let sampling = measure::sampling(&job.effort, arguments, &warm_up, &pilot);
            log.begin();
            for _ in 0..sampling.samples {
                log.push(loaded.session.call(sampling.calls_per_sample)?);
            }
            self.release(loaded);
            Ok(())
        });
        measured.with_context(|| id.clone())?;
        let LoggedSamples { samples_ns, disturbed } = log.take();
        let latencies = Latencies::of_samples(&samples_ns, disturbed.as_deref()).context("no call was made")?;
        let said = format!("  {id}: {} calls, median {:.4} ms", latencies.calls, latencies.p50_ms());
        job.folder.append(&Event::MeasuredAgain { id, latencies })?;
        // Printed last: a user who reads it and ends the run loses nothing.
        eprintln!("{said}");
        Ok(())
    }

    /// Records the memory and energy of some calls, and the answers to samples, as far as each is requested.
    fn observe(&mut self, item: &WorkItem) -> Result<()> {
        let Effort { watch, budget_seconds, .. } = self.job.effort;
        let begin = Instant::now();
        let (mut loaded, mut row) = self.start_cold(item).with_context(|| item.id())?;
        if watch {
            let loaded_bytes = loaded.loaded_bytes;
            let watched = unwinding(|| measurement::watch(&mut loaded.session, loaded_bytes, &mut row, budget_seconds));
            watched.with_context(|| item.id())?;
            let watch_seconds = Some(begin.elapsed().as_secs_f64());
            self.job.folder.append(&Event::Observed { row: Box::new(row), watch_seconds })?;
        }
        if item.is_evaluated {
            let begin = Instant::now();
            self.job.folder.append(&Event::Evaluating { id: item.id() })?;
            let answered = unwinding(|| evaluation::answer_samples(loaded.session.session(), item, &self.job.folder));
            let failure = answered.err().map(|failure| failure.message);
            if let Some(failure) = &failure {
                eprintln!("  not evaluated: {failure}");
            }
            let seconds = begin.elapsed().as_secs_f64();
            self.job.folder.append(&Event::Evaluated { id: item.id(), failure, seconds })?;
        }
        Ok(())
    }

    /// Answers which of the items is the first that runs, or why the last one failed.
    fn try_sizes(&mut self) -> Result<()> {
        let mut answer = Err(CaseFailure::failed("there is nothing to try"));
        for (number, item) in self.job.work.iter().enumerate() {
            let ran = unwinding(|| {
                let loaded = Worker::new(self.job).load(item, &mut Outcome::new(item.row.clone()));
                loaded?.session.session().outputs(0)
            });
            answer = ran.map(|_| number);
            let is_hopeless = answer.as_ref().is_err_and(|failure| failure.status == Status::Unsupported);
            if answer.is_ok() || is_hopeless {
                break;
            }
        }
        self.write(&answer)
    }

    fn calibrate(&mut self, item: &WorkItem) -> Result<BTreeMap<String, [f32; 2]>, CaseFailure> {
        let mut loaded = self.load(item, &mut Outcome::new(item.row.clone()))?;
        evaluation::ranges_over_samples(loaded.session.session(), item)
    }

    /// Writes what `find_out` answers about the only item.
    fn answer<T: Serialize>(&mut self, find_out: fn(&mut Self, &WorkItem) -> Result<T, CaseFailure>) -> Result<()> {
        let item = self.job.work.first().context("the job has no case")?;
        let answer = unwinding(|| find_out(self, item));
        self.write(&answer)
    }

    fn write(&self, answer: &Result<impl Serialize, CaseFailure>) -> Result<()> {
        Ok(fs_err::write(self.job.answer_path(), serde_json::to_vec(answer)?)?)
    }

    /// Loads a case and makes its first call.
    fn start_cold(&mut self, item: &WorkItem) -> Result<(LoadedCase, Record)> {
        let mut outcome = Outcome::new(item.row.clone());
        let loaded = unwinding(|| self.load(item, &mut outcome))?;
        self.job.folder.append(&Event::Observed { row: Box::new(outcome.row.clone()), watch_seconds: None })?;
        Ok((loaded, outcome.row))
    }
}
