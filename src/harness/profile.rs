//! Profiles the cases that are selected, each in a process of its own.

use anyhow::Result;
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::asked_cases::AskedCases;
use super::plan::Request;
use super::protocol::{Job, Purpose, WorkItem};
use super::supervisor::Supervisor;
use crate::definition::{CaseFailure, Effort};
use crate::machine::Machine;
use crate::measurement::peaks::peaks_of;
use crate::paths::Paths;
use crate::profile::analyse;
use crate::run_data::files::unused_name;
use crate::run_data::{CaseProfile, CpuStacks, Peaks, Profile, ProfileFailure, ProfiledCalls, RunFolder};

/// Profiles the cases that suite, filters and Criterion's arguments select, and if asked for samples the stacks of their threads, too. A
/// case that cannot be profiled is among the failures. If the user stops it, the cases that were profiled by then are returned.
///
/// # Errors
/// What was asked for is wrong, no case matches, the user has stopped it before the first profile, or no process can be started.
pub fn profile(paths: &Paths, request: &Request, has_stacks: bool) -> Result<Profile> {
    let cases = AskedCases::select(paths, request)?;
    let effort = cases.effort.clone();
    let (machine, threads) = (Machine::read(), effort.effective_threads());
    let peaks = peaks_of(paths, &machine, threads).inspect_err(|error| eprintln!("no roofline: {error}")).ok();
    let run_id = unused_name(&paths.profiles(), Timestamp::now());
    let mut profile = Profile { run_id, host_id: machine.host_id, threads, ..Profile::default() };
    let answers = cases
        .ask_each(paths, "profiling", |item| profile_of(&profile.run_id, item, &effort, peaks.as_ref(), has_stacks))?;
    for (case, answer) in answers {
        match answer {
            Ok(found) => profile.cases.push(found),
            Err(failure) => {
                let (case_id, message) = (case.to_string(), failure.to_string());
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
    // They are the processor's.
    let peaks = peaks.filter(|_| item.case.device == "cpu");
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
