//! Which row is the best for a goal: faster rows as [`compare`](crate::compare) finds them, then size, then the answers.

use super::repeated::{Repeated, logarithms};
use super::{Goal, Measure, Options, Row, own_memory, rate};
use crate::compare::{CaseRuns, Limits, Noise, Verdict, estimate, floor, verdicts};
use crate::run_data::Record;

/// The confidence of the intervals; at most the rest of the rows that are called faster or slower are expected not to be.
const CONFIDENCE: f64 = 0.95;
/// Times, sizes and memory that differ by at most this fraction are equal: nobody decides by less.
const TOLERANCE: f64 = 0.05;

/// Compares the times of each row with those of the baseline, by all runs of both: the ratio, its interval, and the verdict
/// among all rows. Returns the change that times of equal code show, and the number of runs per row, at least.
///
/// The noise is that of the rows' own runs if they are enough, or of their processes, and else what is known or assumed of
/// the machine.
pub fn compare_times(cases: &[Repeated<'_>], rows: &mut [Row], options: &Options) -> (f64, usize) {
    let times = |case: &Repeated<'_>| logarithms(&case.like, |record| time(options.goal, record));
    let measured = || cases.iter().filter(|case| !case.like.is_empty());
    let groups: Vec<Vec<f64>> = measured().map(times).collect();
    let records = measured().flat_map(|case| case.like.iter().copied());
    let noise = Noise::of_groups(&groups, Noise::of_processes(records).unwrap_or(options.noise));
    let runs = measured().map(|case| case.like.len()).min().unwrap_or(1);
    let equal = CaseRuns { log_medians: vec![0.0; runs], within: Vec::new(), noise };

    let of = |case: &Repeated<'_>| Some(CaseRuns::new(&case.like, times(case), noise)).filter(CaseRuns::is_known);
    let base = rows.iter().zip(cases).find(|(row, _)| row.is_baseline).and_then(|(_, case)| of(case));
    let (mut compared, mut estimates) = (Vec::new(), Vec::new());
    for (row, case) in rows.iter_mut().zip(cases).filter(|(row, _)| row.is_candidate() && !row.is_baseline) {
        if let Some((base, own)) = base.as_ref().zip(of(case)) {
            let limits = Limits { floor: floor(base, &own, CONFIDENCE), layout: 0.0, tolerance: TOLERANCE };
            estimates.push((estimate(base, &own, CONFIDENCE), limits));
            compared.push(row);
        }
    }
    let findings = verdicts(&estimates, 1.0 - CONFIDENCE);
    for ((row, (estimate, _)), finding) in compared.into_iter().zip(estimates).zip(findings) {
        (row.change, row.verdict) = (Some(estimate.interval), Some(finding.verdict));
    }
    (floor(&equal, &equal, CONFIDENCE), runs)
}

/// The time that is compared: that of a call, or that of a sample or token.
fn time(goal: Goal, record: &Record) -> Option<f64> {
    if goal == Goal::Throughput { rate(record).map(f64::recip) } else { record.latency_p50_ms }
}

/// The quantity of a goal, of which less is better.
fn cost(goal: Goal, record: &Record) -> Option<f64> {
    let cost = match goal {
        Goal::Latency | Goal::Throughput => time(goal, record),
        Goal::Size => record.model_size_mb,
        Goal::Memory => own_memory(record),
    };
    cost.filter(|cost| cost.is_finite() && *cost > 0.0)
}

/// The index of the best row of acceptable quality that is shown to be better than the baseline; or else of the best one
/// that is as good and smaller; or else of the baseline. Rows that are level with the best are told apart by their size, then
/// by their answers, then by their time.
///
/// # Errors
/// Nothing can be recommended; the text says why.
pub fn choose(rows: &[Row], goal: Goal, measure: Measure, floor: f64) -> Result<usize, String> {
    let index = rows.iter().position(|row| row.is_baseline);
    let base = index.ok_or("no original was measured with right outputs")?;
    let cost = |goal, index: usize| cost(goal, &rows[index].record);
    if cost(goal, base).is_none() {
        return Err(format!("the {goal} of the original is not known"));
    }
    let is_time = |goal| matches!(goal, Goal::Latency | Goal::Throughput);
    let level = |goal| 1.0 + if is_time(goal) { floor.max(TOLERANCE) } else { TOLERANCE };
    let ratio = |goal, index| cost(goal, index).zip(cost(goal, base)).map(|(own, base)| own / base);
    let is_better = |goal, index: usize| match is_time(goal) {
        true => rows[index].verdict == Some(Verdict::Faster),
        false => ratio(goal, index).is_some_and(|ratio| ratio * (1.0 + TOLERANCE) < 1.0),
    };
    let is_smaller =
        |index| is_better(Goal::Size, index) && ratio(goal, index).is_some_and(|ratio| ratio <= level(goal));
    let candidates = || (0..rows.len()).filter(|&it| rows[it].is_candidate() && rows[it].quality.is_acceptable());
    let mut left: Vec<usize> = candidates().filter(|&index| is_better(goal, index)).collect();
    if left.is_empty() {
        left = candidates().filter(|&index| is_smaller(index)).collect();
    }
    for goal in [goal, Goal::Size] {
        if let Some(least) = left.iter().filter_map(|&index| cost(goal, index)).reduce(f64::min) {
            left.retain(|&index| cost(goal, index).is_some_and(|own| own <= least * level(goal)));
        }
    }
    let value = |index: usize| measure.value(&rows[index]);
    if let Some(most) = left.iter().filter_map(|&index| value(index)).reduce(f64::max) {
        let is_as_right = |own: f64, index: usize| most - own <= measure.resolution(&rows[index]);
        left.retain(|&index| value(index).is_some_and(|own| is_as_right(own, index)));
    }
    let latency = |index: &usize| rows[*index].record.latency_p50_ms.unwrap_or(f64::INFINITY);
    Ok(left.into_iter().min_by(|one, other| latency(one).total_cmp(&latency(other))).unwrap_or(base))
}

/// Marks the Pareto front: each row that no other one beats, being at least as good in latency, quality and size, and
/// better in one. A quantity that is known of no row does not count; a row that lacks one of the others is not on the front.
pub fn mark_front(rows: &mut [Row], measure: Measure) {
    let figures = |row: &Row| {
        let quality = measure.value(row).map(|value| -value);
        let figures = [row.record.latency_p50_ms, quality, row.record.model_size_mb];
        figures.map(|figure| figure.filter(|value| row.is_candidate() && value.is_finite()))
    };
    let all: Vec<[Option<f64>; 3]> = rows.iter().map(figures).collect();
    let known = Vec::from_iter((0..3).filter(|&axis| all.iter().any(|figures| figures[axis].is_some())));
    let point = |figures: &[Option<f64>; 3]| known.iter().map(|&axis| figures[axis]).collect::<Option<Vec<f64>>>();
    let points: Vec<Option<Vec<f64>>> = all.iter().map(point).collect();
    let beats = |one: &[f64], other: &[f64]| one.iter().zip(other).all(|(one, other)| one <= other) && one != other;
    for (row, own) in rows.iter_mut().zip(&points) {
        let is_beaten = |own: &Vec<f64>| points.iter().flatten().any(|other| beats(other, own));
        row.is_on_front = row.is_candidate() && own.as_ref().is_some_and(|own| !is_beaten(own));
    }
}
