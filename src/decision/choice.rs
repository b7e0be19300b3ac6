//! Chooses the best row for a goal: by the verdicts of [`compare`](crate::compare), then by size, then by the answers.

use std::collections::BTreeSet;

use super::repeated::{Repeated, logarithms};
use super::{Excluded, Goal, Measure, Options, Quality, Row};
use crate::compare::{
    ASSUMED_DEVIATION, CaseRuns, Limits, Noise, RatioEstimate, RatioInterval, Verdict, estimate, floor, verdicts,
};
use crate::run_data::Record;

/// The confidence of the intervals. Of the rows that are called faster or slower, at most 5 % are expected to be
/// neither.
const CONFIDENCE: f64 = 0.95;
/// Times, sizes and memory that differ by at most this fraction count as equal.
const TOLERANCE: f64 = 0.05;

/// How far the times of identical code differ, how many runs a row has, and the times of each row.
pub struct Spread {
    /// The change that times of identical code show.
    pub floor: f64,
    /// The smallest number of runs of a row.
    pub runs: usize,
    /// Absent for a row that has no time.
    times: Vec<Option<CaseRuns>>,
}

impl Spread {
    /// The noise of a row comes from its own runs if there are enough, or else from its processes, or else from what is
    /// known or assumed about the machine.
    pub fn of(cases: &[Repeated<'_>], options: &Options) -> Self {
        let measured = || cases.iter().filter(|case| !case.like.is_empty());
        let chosen = || measured().filter(|case| options.may_choose(case.newest));
        let groups: Vec<Vec<f64>> = measured().map(|case| times(case, options)).collect();
        // Only one process of a run measures energy, so the differences between processes say nothing about its noise.
        let goal = goal_of_times(options);
        let is_of_processes = goal != Goal::Energy;
        let noise_of = |groups: &[Vec<f64>], records: Vec<&Record>| {
            let of_processes = Noise::of_processes(records).filter(|_| is_of_processes);
            Noise::of_groups(groups, of_processes.unwrap_or(options.noise))
        };
        let noise = noise_of(&groups, chosen().flat_map(|case| case.counted(goal)).collect());
        let runs = chosen().map(|case| case.counted(goal).len()).min().unwrap_or(1);
        let equal = CaseRuns { log_medians: vec![0.0; runs], within: Vec::new(), noise };
        // A case's own runs say more about its noise than those of other backends. A few runs can only add to what is
        // known.
        let of_case = |case: &Repeated<'_>| {
            let (timed, own) = (case.counted(goal), times(case, options));
            let noise = noise_of(std::slice::from_ref(&own), timed.clone());
            let is_by_load = options.gain(goal, &case.pooled(None)) > 1.0;
            let noise = if is_by_load { with_load_test(noise, own.len()) } else { noise };
            CaseRuns::new(&timed, own, noise)
        };
        let times = cases.iter().map(|case| Some(of_case(case)).filter(CaseRuns::is_known)).collect();
        Spread { floor: floor(&equal, &equal, CONFIDENCE), runs, times }
    }

    /// The ratio of the time of `other` to that of `base`, and the verdict about these two rows alone. Returns `None`
    /// if one of them has no time.
    pub fn ratio(&self, base: usize, other: usize) -> Option<(RatioInterval, Verdict)> {
        let compared = self.compared(base, other)?;
        let finding = verdicts(&[compared], 1.0 - CONFIDENCE).pop()?;
        Some((compared.0.interval, finding.verdict))
    }

    /// The change that times of identical code show between two rows. Returns `None` if one of them has no time.
    pub fn floor_of(&self, base: usize, other: usize) -> Option<f64> {
        Some(self.compared(base, other)?.1.floor)
    }

    fn compared(&self, base: usize, other: usize) -> Option<(RatioEstimate, Limits)> {
        let (base, other) = (self.times[base].as_ref()?, self.times[other].as_ref()?);
        let limits = Limits { floor: floor(base, other, CONFIDENCE), layout: 0.0, tolerance: TOLERANCE };
        Some((estimate(base, other, CONFIDENCE), limits))
    }
}

/// The noise of a case whose rate is that of a load test. All its `runs` share the load test, so more runs do not
/// reduce this noise.
fn with_load_test(noise: Noise, runs: usize) -> Noise {
    /// How much rates of identical code differ between load tests.
    const OF_A_LOAD_TEST: f64 = 2.0 * ASSUMED_DEVIATION;
    let deviation = noise.deviation.hypot(OF_A_LOAD_TEST * (runs as f64).sqrt());
    Noise { deviation, freedom: None, ..noise }
}

/// The logarithms of the times of a case. The gain by a load test is the same for all runs, so their scatter stays.
fn times(case: &Repeated<'_>, options: &Options) -> Vec<f64> {
    let goal = goal_of_times(options);
    let gain = options.gain(goal, &case.pooled(None)).ln();
    let times = logarithms(&case.counted(goal), |record| goal.quantity(record, &options.prices));
    times.into_iter().map(|time| time - gain).collect()
}

/// Compares the times of each row with those of the baseline, by all runs of both: the ratio, its interval, and the verdict
/// among all rows.
pub fn compare_times(rows: &mut [Row], spread: &Spread) {
    let Some(base) = rows.iter().position(|row| row.is_baseline) else { return };
    let others = (0..rows.len()).filter(|&index| rows[index].is_candidate() && index != base);
    let compared = others.filter_map(|index| Some((index, spread.compared(base, index)?)));
    let (places, estimates): (Vec<usize>, Vec<(RatioEstimate, Limits)>) = compared.unzip();
    let findings = verdicts(&estimates, 1.0 - CONFIDENCE);
    for ((place, (estimate, _)), finding) in places.into_iter().zip(estimates).zip(findings) {
        (rows[place].change, rows[place].verdict) = (Some(estimate.interval), Some(finding.verdict));
    }
}

/// The goal by which times are compared: the options' goal if it follows from times, or else the latency.
pub fn goal_of_times(options: &Options) -> Goal {
    if options.goal.is_of_times() { options.goal } else { Goal::Latency }
}

/// The index of the best row of acceptable quality that is shown to be better than the baseline; or else of the
/// smallest one that is as good and smaller; or else of the baseline. Ties with the best are broken by size, then by
/// the answers, then by latency.
///
/// # Errors
/// Nothing can be recommended; the text says why.
pub fn choose(rows: &[Row], options: &Options, measure: Measure, floor: f64) -> Result<usize, String> {
    let goal = options.goal;
    let index = rows.iter().position(|row| row.is_baseline);
    let limits: BTreeSet<&str> = rows.iter().filter_map(|row| row.excluded.as_ref()).map(|it| it.limit).collect();
    let [is_uncompared, is_by_filter] = [Excluded::UNCOMPARED, Excluded::FILTER].map(|limit| limits.contains(limit));
    let of_limits = limits.len() - usize::from(is_uncompared) - usize::from(is_by_filter);
    let base = index.ok_or(match (of_limits, is_uncompared, is_by_filter) {
        (1.., ..) => "no case of kept quality is within the limits",
        (0, true, _) if !rows.iter().any(|row| row.quality == Quality::Wrong || row.is_candidate()) => {
            "no case that passes the filters has outputs that were compared with anything; `--reference FILE` or another \
             backend in the run gives something to compare with"
        }
        (0, _, true) => "no case of kept quality passes the filters",
        (0, _, false) => "no original was measured with right outputs",
    })?;
    let cost = |goal: Goal, index: usize| options.quantity(goal, &rows[index].record);
    if cost(goal, base).is_none() {
        return Err(format!("the {goal} of the original is not known"));
    }
    let level = |goal: Goal| 1.0 + if goal.is_of_times() { floor.max(TOLERANCE) } else { TOLERANCE };
    let ratio = |goal, index| cost(goal, index).zip(cost(goal, base)).map(|(own, base)| own / base);
    let is_better = |goal: Goal, index: usize| match goal.is_of_times() {
        true => rows[index].verdict == Some(Verdict::Faster),
        false => ratio(goal, index).is_some_and(|ratio| ratio * (1.0 + TOLERANCE) < 1.0),
    };
    let is_smaller =
        |index| is_better(Goal::Size, index) && ratio(goal, index).is_some_and(|ratio| ratio <= level(goal));
    let candidates = || (0..rows.len()).filter(|&it| rows[it].is_acceptable());
    let mut left: Vec<usize> = candidates().filter(|&index| is_better(goal, index)).collect();
    let is_shown = !left.is_empty();
    if !is_shown {
        left = candidates().filter(|&index| is_smaller(index)).collect();
    }
    for goal in [goal, Goal::Size].into_iter().skip(usize::from(!is_shown)) {
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
