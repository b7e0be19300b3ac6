//! A profile in a few sentences.

use indexmap::IndexMap;

use super::groups::grouped;
use crate::profile::Difference;
use crate::report::numbers::{microseconds, plural};
use crate::run_data::{Bound, CaseProfile, CpuStacks, OUTSIDE, ProfileRow};

/// A summary names at most this many operators, and only those that take at least a twentieth of the call, except for the first.
const MOST_NAMED: usize = 3;
const LEAST_SHARE: f64 = 0.05;

/// Where the time goes, in a sentence or two: `61 % in 12 Conv at 71 % of the roofline; 4 % outside operators.`
pub fn summary(case: &CaseProfile) -> String {
    let operators = (!case.rows.is_empty()).then(|| of_operators(case));
    operators.into_iter().chain(case.stacks.as_ref().map(of_stacks)).collect::<Vec<_>>().join(" ")
}

fn of_operators(case: &CaseProfile) -> String {
    let rows = grouped(case, Some(0));
    let of_call = |us: f64| format!("{:.0} %", 100.0 * us / case.plain_us);
    let is_named = |(index, row): &(usize, &ProfileRow)| {
        row.operator != OUTSIDE && (*index == 0 || row.share.is_some_and(|share| share >= LEAST_SHARE))
    };
    let named = rows.iter().enumerate().filter(is_named).take(MOST_NAMED).map(|(_, row)| {
        let count = row.executions.round();
        let count = if count > 1.0 { format!("{count} ") } else { String::new() };
        let roofline = row.roofline_fraction.map(|part| format!(" at {:.0} % of the roofline", 100.0 * part));
        let bound = if row.bound == Some(Bound::Memory) { ", bound by memory" } else { "" };
        let share = match row.corrected_upper_us.filter(|_| row.share.is_none()) {
            Some(most) => format!("at most {:.0} %", (100.0 * most / case.plain_us).ceil()),
            None => of_call(row.corrected_us),
        };
        format!("{share} in {count}{}{}{bound}", row.operator, roofline.unwrap_or_default())
    });
    let (least, most) = case.operator_fractions();
    let outside = match rows.iter().find(|row| row.operator == OUTSIDE) {
        Some(row) if row.share.is_none() => {
            Some(format!("{:.0} to {:.0} % outside operators", 100.0 * (1.0 - most), 100.0 * (1.0 - least)))
        }
        Some(row) if row.corrected_us >= 0.005 * case.plain_us => {
            Some(format!("{} outside operators", of_call(row.corrected_us)))
        }
        _ => None,
    };
    let parts = named.chain(outside).collect::<Vec<_>>().join("; ");
    let unmapped = operators(case).filter(|row| row.module.is_none()).map(|row| row.corrected_us).sum::<f64>();
    if unmapped < 0.01 * case.plain_us || operators(case).all(|row| row.module.is_none()) {
        return format!("{parts}.");
    }
    format!("{parts}. {} is in operators that belong to no known module.", of_call(unmapped))
}

/// How well the figures are known: `plain 576 µs, profiled 1,733 µs; the profiler adds 3.20 to 9.10 µs to each operator; operators are 40 to
/// 100 % of the plain call; 30 calls`.
pub fn heading(case: &CaseProfile) -> String {
    if case.rows.is_empty() {
        return "stacks only".to_owned();
    }
    let (least, most) = (case.cost_per_operator_us, case.cost_per_operator_upper_us.max(case.cost_per_operator_us));
    let cost = if most > 0.0 {
        format!("; the profiler adds {} to {} µs to each operator", microseconds(least), microseconds(most))
    } else {
        String::new()
    };
    let (lower, upper) = case.operator_fractions();
    let [lower, upper] = [lower, upper].map(|part| format!("{:.0}", 100.0 * part));
    let part = if lower == upper { upper } else { format!("{lower} to {upper}") };
    let [plain, profiled] = [case.plain_us, case.profiled_us].map(microseconds);
    let calls = plural(case.calls, "call", "calls");
    format!("plain {plain} µs, profiled {profiled} µs{cost}; operators are {part} % of the plain call; {calls}")
}

/// Both cases of a difference with their times.
pub(super) fn of_difference(difference: &Difference) -> String {
    let are_runs = difference.a.case_id == difference.b.case_id;
    let [a, b] = [("A", &difference.a), ("B", &difference.b)].map(|(name, side)| {
        let run = if are_runs { format!(" of run {}", side.run_id) } else { String::new() };
        format!("{name}  {}{run}  plain {} µs", side.case_id, microseconds(side.plain_us))
    });
    let ratio = difference.b.plain_us / difference.a.plain_us;
    format!("{a}\n{b}, {ratio:.2} × A")
}

/// What the threads did, in a sentence: `Stacks of threads: 2480 samples; 43 % in [libonnxruntime.so.1], which has no names of functions.`
fn of_stacks(stacks: &CpuStacks) -> String {
    let all = stacks.samples().max(1);
    let mut innermost: IndexMap<&str, u64> = IndexMap::new();
    for stack in &stacks.stacks {
        *innermost.entry(stack.frames.last().map_or("", String::as_str)).or_default() += stack.samples;
    }
    innermost.sort_by(|_, a, _, b| b.cmp(a));
    let share_of = |samples: u64| samples as f64 / all as f64;
    let is_named = |(index, (_, samples)): &(usize, (&&str, &u64))| *index == 0 || share_of(**samples) >= LEAST_SHARE;
    let named = innermost.iter().enumerate().filter(is_named).take(MOST_NAMED).map(|(_, (name, samples))| {
        let share = format!("{:.0} % in {name}", 100.0 * share_of(*samples));
        if name.starts_with('[') { format!("{share}, which has no names of functions") } else { share }
    });
    let samples = plural(stacks.samples() as usize, "sample", "samples");
    format!("Stacks of threads: {samples}; {}.", named.collect::<Vec<_>>().join("; "))
}

fn operators(case: &CaseProfile) -> impl Iterator<Item = &ProfileRow> {
    case.rows.iter().filter(|row| row.operator != OUTSIDE)
}
