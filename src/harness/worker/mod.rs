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
use self::loaded_case::Fixtures;
use super::protocol::{Job, Purpose};
use crate::exit_codes;
use crate::measurement;
use crate::run_data::{Event, Observed, RunFolder};

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
    let result = match job.purpose {
        Purpose::Verify => verify(&job),
        Purpose::MeasureAgain => further::measure_again(&job),
        Purpose::Watch => watch(&job),
        Purpose::Load => start_cold(&job),
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

/// Runs each case once and compares its outputs.
///
/// # Errors
/// The run's folder cannot be written any more.
fn verify(job: &Job) -> Result<()> {
    let folder = RunFolder::new(job.run_folder.clone());
    let mut fixtures = Fixtures::default();
    for (index, item) in job.work.iter().enumerate() {
        eprintln!("[{}/{}] {}", job.cases_before + index + 1, job.cases_in_all, item.case);
        recorded(&folder, &item.case.benchmark_id(), |observed| {
            unwinding(|| {
                let mut loaded = loaded_case::load_and_verify(&item.case, &item.model, job, &mut fixtures, observed)?;
                observed.rough_call_ms = Some(loaded.rough_call_ms()?);
                loaded.release(&mut fixtures);
                Ok(())
            })
        })?;
    }
    Ok(())
}

/// Runs some calls of each case and notes what they use.
///
/// # Errors
/// A case cannot run any more, or the run's folder cannot be written.
fn watch(job: &Job) -> Result<()> {
    let folder = RunFolder::new(job.run_folder.clone());
    let mut fixtures = Fixtures::default();
    for item in &job.work {
        let id = item.case.benchmark_id();
        let start = Instant::now();
        let mut observed = Observed::default();
        let usage = unwinding(|| {
            let loaded = loaded_case::load(&item.case, &item.model, job, &mut fixtures, &mut observed)?;
            let mut session = loaded_case::timed(loaded.session, loaded.ring, item.case.boundary);
            measurement::watch(&mut session, &item.case.device, item.case.batch_size, job.effort.budget_seconds)
        });
        let usage = usage.with_context(|| id.to_string())?;
        folder.append(&Event::cold_start(id.clone(), &observed))?;
        folder.append(&Event::Watched { id, usage, seconds: start.elapsed().as_secs_f64() })?;
    }
    Ok(())
}

/// Loads each case and makes its first call.
///
/// # Errors
/// A case cannot run, or the run's folder cannot be written.
fn start_cold(job: &Job) -> Result<()> {
    let folder = RunFolder::new(job.run_folder.clone());
    let mut fixtures = Fixtures::default();
    for item in &job.work {
        let mut observed = Observed::default();
        unwinding(|| loaded_case::load(&item.case, &item.model, job, &mut fixtures, &mut observed))?;
        folder.append(&Event::cold_start(item.case.benchmark_id(), &observed))?;
    }
    Ok(())
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
