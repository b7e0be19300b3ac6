//! Which row is the best for a goal: faster rows as [`compare`](crate::compare) finds them, then size, then the answers.

use super::repeated::{Repeated, logarithms};
use super::{Goal, Measure, Options, Row, own_memory, rate};
use crate::compare::{CaseRuns, Limits, Noise, Verdict, Within, estimate, floor, verdicts};
use crate::run_data::Record;

/// The confidence of the intervals; at most the rest of the rows that are called faster or slower are expected not to be.
const CONFIDENCE: f64 = 0.95;
/// Times, sizes and memory that differ by at most this fraction are equal: nobody decides by less.
const TOLERANCE: f64 = 0.05;

/// The times of the rows of a table, by all their runs.
pub struct Times<'a> {
    goal: Goal,
    base: Option<&'a Repeated<'a>>,
    noise: Noise,
    /// The change that times of equal code show.
    pub floor: f64,
    /// Runs per row, at least.
    pub runs: usize,
}

impl<'a> Times<'a> {
    /// The noise is that of the rows' own runs if they are enough, or of their processes, and else what is known or assumed of
    /// the machine.
    pub fn new(cases: &[Repeated<'_>], base: Option<&'a Repeated<'a>>, options: &Options) -> Self {
        let measured = || cases.iter().filter(|case| !case.like.is_empty());
        let groups: Vec<Vec<f64>> =
            measured().map(|case| logarithms(&case.like, |it| time(options.goal, it))).collect();
        let rows = measured().flat_map(|case| case.like.iter().copied());
        let noise = Noise::of_groups(&groups, Noise::of_processes(rows).unwrap_or(options.noise));
        let runs = measured().map(|case| case.like.len()).min().unwrap_or(1);
        let equal = CaseRuns { log_medians: vec![0.0; runs], within: Vec::new(), noise };
        Times { goal: options.goal, base, noise, floor: floor(&equal, &equal, CONFIDENCE), runs }
    }

    /// Compares each row with the baseline: the ratio, its interval, and the verdict among all rows.
    pub fn compare(&self, cases: &[Repeated<'_>], rows: &mut [Row]) {
        let Some(base) = self.base.and_then(|base| self.of(base)) else { return };
        let mut compared = Vec::new();
        for (index, (row, case)) in rows.iter().zip(cases).enumerate() {
            if let Some(own) = self.of(case).filter(|_| row.is_candidate() && !row.is_baseline) {
                let limits = Limits { floor: floor(&base, &own, CONFIDENCE), layout: 0.0, tolerance: TOLERANCE };
                compared.push((index, (estimate(&base, &own, CONFIDENCE), limits)));
            }
        }
        let (indices, estimates): (Vec<usize>, Vec<_>) = compared.into_iter().unzip();
        let findings = verdicts(&estimates, 1.0 - CONFIDENCE);
        for ((index, (estimate, _)), finding) in indices.into_iter().zip(estimates).zip(findings) {
            rows[index].change = Some(estimate.interval);
            rows[index].verdict = Some(finding.verdict);
        }
    }

    fn of(&self, case: &Repeated<'_>) -> Option<CaseRuns> {
        let log_medians = logarithms(&case.like, |record| time(self.goal, record));
        let within = case.like.iter().map(|record| Within::of_record(record)).collect();
        (!log_medians.is_empty()).then_some(CaseRuns { log_medians, within, noise: self.noise })
    }
}

/// The time that is compared: that of a call, or that of a sample or token.
fn time(goal: Goal, record: &Record) -> Option<f64> {
    if goal == Goal::Throughput { rate(record).map(f64::recip) } else { record.latency_p50_ms }
}

/// The quantity of a goal, of which less is better.
pub fn cost(goal: Goal, record: &Record) -> Option<f64> {
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
    if cost(goal, &rows[base].record).is_none() {
        return Err(format!("the {goal} of the original is not known"));
    }
    let level =
        |goal| 1.0 + if matches!(goal, Goal::Latency | Goal::Throughput) { floor.max(TOLERANCE) } else { TOLERANCE };
    let ratio = |goal, index: usize, other: usize| {
        cost(goal, &rows[index].record).zip(cost(goal, &rows[other].record)).map(|(own, other)| own / other)
    };
    let is_better = |goal, index: usize| match goal {
        Goal::Latency | Goal::Throughput => rows[index].verdict == Some(Verdict::Faster),
        _ => ratio(goal, index, base).is_some_and(|ratio| ratio * (1.0 + TOLERANCE) < 1.0),
    };
    let is_no_worse = |index: usize| ratio(goal, index, base).is_some_and(|ratio| ratio <= level(goal));
    let candidates: Vec<usize> =
        (0..rows.len()).filter(|&index| rows[index].is_candidate() && rows[index].quality.is_acceptable()).collect();
    let better: Vec<usize> = candidates.iter().copied().filter(|&index| is_better(goal, index)).collect();
    let smaller = || candidates.iter().copied().filter(|&index| is_no_worse(index) && is_better(Goal::Size, index));
    let left = if better.is_empty() { smaller().collect() } else { better };

    let level_with_best = |goal, left: Vec<usize>| -> Vec<usize> {
        let known = left.iter().copied().filter_map(|index| Some((index, cost(goal, &rows[index].record)?)));
        let Some((best, _)) = known.min_by(|(_, one), (_, other)| one.total_cmp(other)) else { return left };
        left.into_iter().filter(|&index| ratio(goal, index, best).is_some_and(|it| it <= level(goal))).collect()
    };
    let left = level_with_best(Goal::Size, level_with_best(goal, left));
    let value = |index: usize| measure.value(&rows[index]);
    let most = left.iter().filter_map(|&index| value(index)).max_by(f64::total_cmp);
    let is_as_right = |&index: &usize| {
        most.is_none_or(|most| value(index).is_some_and(|own| most - own <= measure.resolution(&rows[index].record)))
    };
    let latency = |index: &usize| rows[*index].record.latency_p50_ms.unwrap_or(f64::INFINITY);
    let right = left.into_iter().filter(is_as_right);
    Ok(right.min_by(|one, other| latency(one).total_cmp(&latency(other))).unwrap_or(base))
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
    let counts = [0, 1, 2].map(|axis| all.iter().any(|figures| figures[axis].is_some()));
    let point = |figures: &[Option<f64>; 3]| -> Option<Vec<f64>> {
        (0..3).filter(|axis| counts[*axis]).map(|axis| figures[axis]).collect()
    };
    let points: Vec<Option<Vec<f64>>> = all.iter().map(point).collect();
    let beats =
        |one: &Vec<f64>, other: &Vec<f64>| one.iter().zip(other).all(|(one, other)| one <= other) && one != other;
    for (row, own) in rows.iter_mut().zip(&points) {
        let is_beaten = |own: &Vec<f64>| points.iter().flatten().any(|other| beats(other, own));
        row.is_on_front = row.is_candidate() && own.as_ref().is_some_and(|own| !is_beaten(own));
    }
}
