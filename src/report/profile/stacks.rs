//! Folded stacks: a line per operator with its frames from the outermost to the innermost, and its time. Programs that draw flame graphs
//! read it: `inferno-flamegraph`, `flamegraph.pl`, speedscope.

use super::is_twice;
use crate::run_data::{CaseProfile, CpuStack, CpuStacks, Profile, ProfileRow};

/// `case;module;parts;operator;kernel 12345` for each row of the case, in whole nanoseconds without the profiler's
/// cost. If the case `is_twice` in the profile, from several runs, the run's id comes first.
pub fn folded(case: &CaseProfile, is_twice: bool) -> String {
    let line = |row: &ProfileRow| {
        let modules = row.module.iter().flat_map(|module| module.split('.'));
        let run = is_twice.then_some(row.run_id.as_str());
        let frames = run
            .into_iter()
            .chain([case.case_id.as_str()])
            .chain(modules)
            .chain([row.operator.as_str()])
            .chain(row.kernel.as_deref());
        let stack = frames.map(frame).collect::<Vec<_>>().join(";");
        let nanoseconds = (1e3 * row.corrected_us).round() as u64;
        (nanoseconds > 0).then(|| format!("{stack} {nanoseconds}\n"))
    };
    case.rows.iter().filter_map(line).collect()
}

/// `thread;function;function 123` for each stack, with its samples.
pub fn folded_stacks(stacks: &CpuStacks) -> String {
    let line = |stack: &CpuStack| {
        let frames: Vec<String> = stack.frames.iter().map(|name| frame(name)).collect();
        format!("{} {}\n", frames.join(";"), stack.samples)
    };
    stacks.stacks.iter().map(line).collect()
}

/// The stacks of all cases that have any. If several have, each stack begins with its case, and with its run if
/// several runs have the case, since programs add up equal stacks.
pub(super) fn of_cases(profile: &Profile) -> String {
    let of_case = |case: &CaseProfile| {
        let run = case.rows.first().filter(|_| is_twice(profile, case));
        let run = run.map(|row| format!("{};", row.run_id)).unwrap_or_default();
        Some((run + &frame(&case.case_id), folded_stacks(case.stacks.as_ref()?)))
    };
    let found: Vec<(String, String)> = profile.cases.iter().filter_map(of_case).collect();
    if let [(_, only)] = found.as_slice() {
        return only.clone();
    }
    let lines = found.iter().flat_map(|(id, stacks)| stacks.lines().map(move |line| format!("{id};{line}\n")));
    lines.collect()
}

/// A name in which nothing ends the frame or the line.
fn frame(name: &str) -> String {
    name.chars().map(|c| if c == ';' || c.is_control() { '_' } else { c }).collect()
}
