//! Profiles the cases that are selected, each in a process of its own.

use anyhow::{Result, ensure};
use clap::Parser;
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::activation_ranges::measure_ranges;
use super::input_sizes::find_sizes;
use super::plan::{Plan, Request, make_plan};
use super::protocol::{Job, Preparations, Purpose, WorkItem};
use super::supervisor::{Interrupted, Supervisor};
use crate::definition::{CaseFailure, Effort};
use crate::machine::Machine;
use crate::measurement::peaks::peaks_of;
use crate::paths::Paths;
use crate::profile::analyse;
use crate::run_data::files::unused_name;
use crate::run_data::{
    CaseProfile, CpuStacks, CriterionArguments, Peaks, Profile, ProfileFailure, ProfiledCalls, RunFolder,
};

/// Profiles the cases that suite, filters and Criterion's arguments select, and if asked for samples the stacks of their threads, too. A
/// case that cannot be profiled is among the failures. If the user stops it, the cases that were profiled by then are returned.
///
/// # Errors
/// What was asked for is wrong, no case matches, the user has stopped it before the first profile, or no process can be started.
pub fn profile(paths: &Paths, request: &Request, has_stacks: bool) -> Result<Profile> {
    let filter = CriterionArguments::parse_from(&request.criterion_arguments).id_filter()?;
    let Plan { suite, mut cases } = make_plan(paths, request.own_suite.as_ref(), &request.selection, &request.effort)?;
    cases.retain(|planned| filter.is_match(&planned.case.to_string()));
    ensure!(!cases.is_empty(), "no case matches; `cargo bench -- --list` shows those that there are");
    let mut preparations = Preparations::default();
    find_sizes(&mut cases, |_| true, &suite.effort, paths, &mut preparations)?;
    measure_ranges(&mut cases, |_| true, &suite.effort, paths)?;
    let (machine, threads) = (Machine::read(), suite.effort.effective_threads());
    let peaks = peaks_of(paths, &machine, threads).inspect_err(|error| eprintln!("no roofline: {error}")).ok();
    let run_id = unused_name(&paths.profiles(), Timestamp::now());
    let mut profile = Profile { run_id, host_id: machine.host_id, threads, ..Profile::default() };
    let count = cases.len();
    for (number, planned) in cases.iter().enumerate() {
        eprintln!("profiling [{}/{count}] {}", number + 1, planned.case);
        let item = preparations.work_item(planned, paths);
        let found = match item {
            Ok(item) => profile_of(&profile.run_id, item, &suite.effort, peaks.as_ref(), has_stacks),
            Err(failure) => Ok(Err(failure)),
        };
        // The cases that were profiled before are kept.
        if found.as_ref().is_err_and(|error| error.is::<Interrupted>()) && !profile.cases.is_empty() {
            eprintln!("interrupted: {} of {count} cases were profiled", profile.cases.len());
            break;
        }
        match found? {
            Ok(found) => profile.cases.push(found),
            Err(failure) => {
                eprintln!("  {failure}");
                let (case_id, message) = (planned.case.to_string(), failure.to_string());
                profile.failures.push(ProfileFailure { case_id, message });
            }
        }
    }
    Ok(profile)
}

fn profile_of(
    run_id: &str,
    item: WorkItem,
    effort: &Effort,
    peaks: Option<&Peaks>,
    has_stacks: bool,
) -> Result<Result<CaseProfile, CaseFailure>> {
    let calls: Result<ProfiledCalls, CaseFailure> = ask(Purpose::Profile, &item, effort)?;
    let calls = match calls {
        Ok(calls) => calls,
        Err(failure) => return Ok(Err(failure)),
    };
    let profile = analyse(run_id, &item.case, &item.model, &calls, peaks);
    // In a process of their own: a sampler interrupts threads wherever they are, which some code does not survive.
    let stacks: Option<Result<CpuStacks, CaseFailure>> =
        has_stacks.then(|| ask(Purpose::SampleStacks, &item, effort)).transpose()?;
    let stacks =
        stacks.and_then(|stacks| stacks.inspect_err(|failure| eprintln!("  no stacks of threads: {failure}")).ok());
    Ok(Ok(CaseProfile { stacks, ..profile }))
}

/// Has a process of its own answer for an item.
fn ask<T: DeserializeOwned>(purpose: Purpose, item: &WorkItem, effort: &Effort) -> Result<Result<T, CaseFailure>> {
    let place = tempfile::tempdir()?;
    let folder = RunFolder::new(place.path().to_owned());
    Supervisor::ask(Job { work: vec![item.clone()], ..Job::new(purpose, &folder, place.path(), effort) })
}
