//! A further process of cases that another one has verified and measured: loads each, warms it up, and makes as many calls as
//! the first one. Criterion sees nothing of it.

use anyhow::{Context, Result};
use clap::Parser;

use super::case_outcome::unwinding;
use super::loaded_case::{self, Fixtures};
use super::measure::{groups, sampling};
use crate::definition::{Case, CaseFailure};
use crate::harness::protocol::{Job, WorkItem};
use crate::measurement::{self, LoggedSamples, SampleLog};
use crate::run_data::{CriterionArguments, Event, Latencies, Observed, RunFolder};

/// Measures each case in the order of the first process, or in the shuffled order of this one.
///
/// # Errors
/// A case cannot run any more, or the run's folder cannot be written; the cases before it are measured.
pub fn measure_again(job: &Job) -> Result<()> {
    let arguments = CriterionArguments::parse_from(std::env::args().skip(1));
    let folder = RunFolder::new(job.run_folder.clone());
    let mut fixtures = Fixtures::default();
    let cases: Vec<Case> = job.work.iter().map(|item| item.case.clone()).collect();
    for case in groups(&cases, job.effort.shuffle).concat() {
        let Some(item) = job.work.iter().find(|item| item.case == *case) else { continue };
        let id = case.benchmark_id();
        folder.append(&Event::Started { id: id.clone() })?;
        let LoggedSamples { samples_ns, disturbed } =
            unwinding(|| samples(item, job, &arguments, &mut fixtures)).with_context(|| id.to_string())?;
        let latencies = Latencies::of_samples(&samples_ns, disturbed.as_deref()).context("no call was made")?;
        eprintln!("  {id}: {} calls, median {:.4} ms", latencies.calls, latencies.p50_ms());
        folder.append(&Event::MeasuredAgain { id, latencies })?;
    }
    Ok(())
}

fn samples(
    item: &WorkItem,
    job: &Job,
    arguments: &CriterionArguments,
    fixtures: &mut Fixtures,
) -> Result<LoggedSamples, CaseFailure> {
    let mut loaded = loaded_case::load(item, job, fixtures, &mut Observed::default())?;
    let warm_up = loaded.warm_up(&job.effort, |session| session.call(1))?;
    let pilot = measurement::pilot(&mut loaded.session, &job.effort, warm_up.expected_call_ns())?;
    let sampling = sampling(&job.effort, arguments, &warm_up, &pilot);
    let log = SampleLog::default();
    log.begin();
    for _ in 0..sampling.samples {
        log.push(loaded.session.call(sampling.calls_per_sample)?.as_nanoseconds().to_vec());
    }
    loaded.release(fixtures);
    Ok(log.take())
}
