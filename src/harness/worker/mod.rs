//! A worker process: does its job for the cases of one backend and device.

mod arm;
mod case_outcome;
mod evaluation;
mod further;
mod loaded_case;
mod measure;
mod other_outputs;
mod verification;

pub use arm::run_arm;
pub use case_outcome::unwinding;
pub use evaluation::can_be_evaluated;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use self::case_outcome::recorded;
use self::loaded_case::{Fixtures, LoadedCase};
use super::protocol::{Job, Purpose, WorkItem};
use crate::definition::{CaseFailure, Effort, Status};
use crate::exit_codes;
use crate::measurement;
use crate::run_data::{EvaluationOutcome, Event, Observed, RunFolder};

/// Runs the cases of the job, under the command line that Criterion reads.
pub fn run(job_path: &Path) -> ExitCode {
    let job = match Job::read(job_path) {
        Ok(job) => job,
        Err(error) => {
            eprintln!("inferbench: {error:#}");
            return ExitCode::from(exit_codes::USAGE);
        }
    };
    end_with_supervisor(job.supervisor_process);
    let mut worker =
        Worker { folder: RunFolder::new(job.run_folder.clone()), fixtures: Fixtures::default(), job: &job };
    let mut items = job.work.iter().enumerate();
    let result = match job.purpose {
        Purpose::Verify => items.try_for_each(|(index, item)| worker.verify(index, item)),
        Purpose::MeasureAgain => further::measure_again(&job),
        Purpose::Observe => items.try_for_each(|(_, item)| worker.observe(item)),
        Purpose::TrySizes => worker.try_sizes(),
        Purpose::Load => items.try_for_each(|(_, item)| worker.start_cold(item).map(drop)),
        Purpose::Measure | Purpose::MeasureUnverified => measure::measure(&job),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("inferbench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What the cases of the process share.
struct Worker<'a> {
    job: &'a Job,
    folder: RunFolder,
    fixtures: Fixtures,
}

impl Worker<'_> {
    /// Runs a case once and compares its outputs.
    ///
    /// # Errors
    /// The run's folder cannot be written any more.
    fn verify(&mut self, index: usize, item: &WorkItem) -> Result<()> {
        let Worker { job, folder, fixtures } = self;
        eprintln!("[{}/{}] {}", job.cases_before + index + 1, job.cases_in_all, item.case);
        recorded(folder, &item.case.benchmark_id(), |observed| {
            unwinding(|| {
                let mut loaded = loaded_case::load_and_verify(item, job, fixtures, observed)?;
                observed.rough_call_ms = Some(loaded.rough_call_ms()?);
                loaded.release(fixtures);
                Ok(())
            })
        })
    }

    /// Runs some calls of a case and notes what they use, and answers its model's samples, as far as this is asked for.
    ///
    /// # Errors
    /// The case cannot run any more, or the run's folder cannot be written.
    fn observe(&mut self, item: &WorkItem) -> Result<()> {
        let Effort { watch, budget_seconds, .. } = self.job.effort;
        let id = item.case.benchmark_id();
        let begin = Instant::now();
        let mut loaded = self.start_cold(item).with_context(|| id.to_string())?;
        if watch {
            let (device, batch_size) = (&item.case.device, item.case.batch_size);
            let usage = unwinding(|| measurement::watch(&mut loaded.session, device, batch_size, budget_seconds));
            let usage = usage.with_context(|| id.to_string())?;
            let seconds = begin.elapsed().as_secs_f64();
            self.folder.append(&Event::Watched { id: id.clone(), usage, seconds })?;
        }
        if item.is_evaluated {
            let begin = Instant::now();
            self.folder.append(&Event::Evaluating { id: id.clone(), samples: 0 })?;
            let answered = unwinding(|| evaluation::answer_samples(loaded.session.session(), item, &self.folder));
            let failure = answered.err().map(|failure| failure.message);
            if let Some(failure) = &failure {
                eprintln!("  not evaluated: {failure}");
            }
            let evaluation = EvaluationOutcome { failure, seconds: begin.elapsed().as_secs_f64() };
            self.folder.append(&Event::Evaluated { id, evaluation })?;
        }
        Ok(())
    }

    /// Answers which of the items is the first that runs, or what the last one has failed of.
    ///
    /// # Errors
    /// The answer cannot be written.
    fn try_sizes(&mut self) -> Result<()> {
        let mut answer = Err(CaseFailure::failed("there is nothing to try"));
        for (number, item) in self.job.work.iter().enumerate() {
            let ran = unwinding(|| {
                let loaded = loaded_case::load(item, self.job, &mut Fixtures::default(), &mut Observed::default());
                loaded?.session.session().outputs(0)
            });
            answer = ran.map(|_| number);
            let is_hopeless = answer.as_ref().is_err_and(|failure| failure.status == Status::Unsupported);
            if answer.is_ok() || is_hopeless {
                break;
            }
        }
        Ok(fs_err::write(self.job.answer_path(), serde_json::to_vec(&answer)?)?)
    }

    /// Loads a case and makes its first call.
    ///
    /// # Errors
    /// The case cannot run, or the run's folder cannot be written.
    fn start_cold(&mut self, item: &WorkItem) -> Result<LoadedCase> {
        let mut observed = Observed::default();
        let loaded = unwinding(|| loaded_case::load(item, self.job, &mut self.fixtures, &mut observed))?;
        self.folder.append(&Event::ColdStarted { id: item.case.benchmark_id(), start: observed.start })?;
        Ok(loaded)
    }
}

/// A worker whose supervisor was killed must not go on measuring unseen, nor say of its case that printing has failed.
fn end_with_supervisor(supervisor: u32) {
    #[cfg(target_os = "linux")]
    // Without it the thread below ends the process, somewhat later.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    #[cfg(unix)]
    std::thread::spawn(move || {
        while std::os::unix::process::parent_id() == supervisor {
            std::thread::sleep(Duration::from_secs(1));
        }
        std::process::exit(1);
    });
    #[cfg(not(unix))]
    let _ = supervisor;
}
