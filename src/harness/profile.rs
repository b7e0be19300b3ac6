//! Profiles the selected cases, each in a separate process.

use anyhow::Result;
use jiff::Timestamp;

use super::asked_cases::AskedCases;
use super::plan::Request;
use super::protocol::{Purpose, WorkItem};
use super::run::has_roofline;
use super::supervisor::Supervisor;
use crate::definition::{CaseFailure, Effort};
use crate::machine::Machine;
use crate::measurement::peaks::peaks_of;
use crate::paths::Paths;
use crate::profile::analyse;
use crate::run_data::files::unused_name;
use crate::run_data::{CaseProfile, CpuStacks, Peaks, Profile, ProfileFailure, ProfiledCalls};

/// Profiles the cases that the suite, filters and Criterion's arguments select; with `has_stacks`, also samples the
/// stacks of their threads. A case that cannot be profiled is listed in `failures`. If the user stops it, the cases
/// profiled until then are returned. `keep` gets the profile so far after each case, so that a killed process loses
/// only one case.
///
/// # Errors
/// The request is wrong, no case matches, no process can be started, or the user stopped before the first profile.
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
    let peaks = Some(peaks).filter(|_| is_compared(&item));
    let profile = analyse(run_id, &item.case, &item.model, &calls, peaks);
    // In a separate process: a sampler interrupts threads anywhere, and some code does not survive that.
    let stacks = if has_stacks {
        let sampled: Result<CpuStacks, CaseFailure> = Supervisor::ask(Purpose::SampleStacks, work, None, effort)?;
        sampled.inspect_err(|failure| eprintln!("  no stacks of threads: {failure}")).ok()
    } else {
        None
    };
    Ok(CaseProfile { stacks, ..profile })
}

/// Whether operators are compared with the machine's peaks. The bytes of weights in blocks are not counted.
fn is_compared(item: &WorkItem) -> bool {
    has_roofline(&item.case) && item.model.blocks().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Blocks, Case, Dtype, Model, Origin, Quantization};
    use crate::fixture::Artifacts;

    #[test]
    fn only_f32_on_the_processor_is_compared_with_the_peaks() {
        let of = |device: &str, dtype, quantization| {
            let case = Case { device: device.into(), dtype, ..Case::new("net", "ort", 1) };
            let origin = Origin::Files { onnx: None, torchscript: None, reference: None, quantization };
            let model = Model { origin, ..Model::of_tensors("net", Vec::new(), Vec::new()) };
            is_compared(&WorkItem::new(case, model, Artifacts::default()))
        };
        assert!(of("cpu", Dtype::F32, None) && !of("cuda:0", Dtype::F32, None));
        assert!([Dtype::F16, Dtype::Bf16, Dtype::I8].into_iter().all(|dtype| !of("cpu", dtype, None)));
        assert!(!of("cpu", Dtype::F32, Some(Quantization::Blocks(Blocks::Int4))));
    }
}
