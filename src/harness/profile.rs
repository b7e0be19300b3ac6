//! Profiles the cases that are selected, each in a process of its own.

use anyhow::Result;
use jiff::Timestamp;

use super::asked_cases::AskedCases;
use super::plan::Request;
use super::protocol::{Purpose, WorkItem};
use super::supervisor::Supervisor;
use crate::definition::{CaseFailure, Effort};
use crate::machine::Machine;
use crate::measurement::peaks::peaks_of;
use crate::paths::Paths;
use crate::profile::analyse;
use crate::run_data::files::unused_name;
use crate::run_data::{CaseProfile, CpuStacks, Peaks, Profile, ProfileFailure, ProfiledCalls};

/// Profiles the cases that suite, filters and Criterion's arguments select, and if asked for samples the stacks of their threads, too. A
/// case that cannot be profiled is among the failures. If the user stops it, the cases that were profiled by then are returned. `keep` is
/// called after each profile with all so far, so that a killed process loses only one.
///
/// # Errors
/// What was asked for is wrong, no case matches, the user has stopped it before the first profile, or no process can be started.
pub fn profile(paths: &Paths, request: &Request, has_stacks: bool, keep: impl Fn(&Profile)) -> Result<Profile> {
    let cases = AskedCases::select(paths, request)?;
    let effort = cases.effort.clone();
    let (machine, threads) = (Machine::read(), effort.effective_threads());
    let peaks = peaks_of(paths, &machine, threads);
    let run_id = unused_name(&paths.profiles(), Timestamp::now());
    let mut profile = Profile { run_id, host_id: machine.host_id, threads, ..Profile::default() };
    let answers = cases.ask_each(paths, "profiling", |item| {
        let found = profile_of(&profile.run_id, item, &effort, &peaks, has_stacks)?;
        profile.cases.push(found);
        keep(&profile);
        Ok(())
    })?;
    for (case, answer) in answers {
        if let Err(failure) = answer {
            let (case_id, status, message) = (case.to_string(), failure.status, failure.to_string());
            profile.failures.push(ProfileFailure { case_id, status, message });
        }
    }
    Ok(profile)
}

fn profile_of(run_id: &str, item: WorkItem, effort: &Effort, peaks: &Peaks, has_stacks: bool) -> Result<CaseProfile> {
    let work = vec![item.clone()];
    let calls: ProfiledCalls = Supervisor::ask(Purpose::Profile, work.clone(), None, effort)??;
    // They are the processor's.
    let peaks = Some(peaks).filter(|_| item.case.device == "cpu");
    let profile = analyse(run_id, &item.case, &item.model, &calls, peaks);
    // In a process of their own: a sampler interrupts threads wherever they are, which some code does not survive.
    let stacks = if has_stacks {
        let sampled: Result<CpuStacks, CaseFailure> = Supervisor::ask(Purpose::SampleStacks, work, None, effort)?;
        sampled.inspect_err(|failure| eprintln!("  no stacks of threads: {failure}")).ok()
    } else {
        None
    };
    Ok(CaseProfile { stacks, ..profile })
}
