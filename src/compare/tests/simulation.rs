//! Simulated runs, and what the verdicts make of them: false alarms, coverage and power, with fixed seeds.
//!
//! A process has an effect of its own (address layout, placement, frequency), and its calls drift, step, repeat the one
//! before and are now and then interrupted; see Kalibera & Jones 2013 and Barrett et al. 2017, "Virtual machine
//! warmup blows hot and cold", for how real ones do.

use crate::compare::noise::{ENOUGH_FREEDOM, Noise};
use crate::compare::runs::{CaseRuns, Within, estimate, floor};
use crate::compare::verdict::{self, Limits, RatioEstimate, Verdict};
use crate::definition::Case;
use crate::fixture::seeded::{Fill, values};
use crate::run_data::{Latencies, Record};
use crate::statistics::{SortedCalls, autocorrelation};

/// Standard normal numbers of a seed.
pub fn normal(seed: u64, name: &str, count: usize) -> Vec<f64> {
    values(seed, name, Fill::Normal(1.0), 0, count).map(f64::from).collect()
}

fn uniform(seed: u64, name: &str, count: usize) -> Vec<f64> {
    values(seed, name, Fill::Uniform(0.0, 1.0), 0, count).map(f64::from).collect()
}

/// The calls of a process: 1 ms, with deviations as fractions of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    /// The standard deviation of single calls.
    pub calls: f64,
    /// How much of a call's deviation the next one has.
    pub autocorrelation: f64,
    /// The fraction of the calls that take twice as long.
    pub outliers: f64,
    /// From the first to the last call, around the process's own level.
    pub drift: f64,
    /// From a random call on, for the rest.
    pub step: f64,
    /// The standard deviation between processes.
    pub between: f64,
    /// The fraction by which the program is slower than 1 ms.
    pub slower: f64,
}

impl Process {
    /// The calls of the process with this seed, in nanoseconds.
    pub fn calls(&self, seed: u64, count: usize) -> Vec<u64> {
        let z = normal(seed, "calls", count);
        let u = uniform(seed, "outliers", count + 1);
        let level = self.slower.ln_1p() + self.between * normal(seed, "process", 1)[0];
        let change_at = (u[count] * count as f64) as usize;
        let mut carried = z.first().copied().unwrap_or_default();
        let fresh = (1.0 - self.autocorrelation.powi(2)).sqrt();
        (0..count)
            .map(|index| {
                carried = self.autocorrelation * carried + fresh * z[index];
                let drift = self.drift * (index as f64 / count as f64 - 0.5);
                let step = if index >= change_at { self.step } else { 0.0 };
                let outlier = if u[index] < self.outliers { 2.0 } else { 1.0 };
                (1e6 * (level + self.calls * carried + drift + step).exp() * outlier).round() as u64
            })
            .collect()
    }
}

/// A record of a case on a host, with nothing measured.
pub fn empty_record() -> Record {
    let run = Record {
        run_id: "20260101T000000Z".into(),
        timestamp: "2026-01-01T00:00:00Z".parse().unwrap(),
        host_id: "h".into(),
        suite: "quick".into(),
        rustc_version: "rustc 1".into(),
        ..Record::default()
    };
    let case = Case::new("m", "ort", 1);
    run.about(&case)
}

const CALLS: usize = 60;
const CONFIDENCE: f64 = 0.99;

/// What real processes have, all at once.
const REAL: Process =
    Process { calls: 0.02, autocorrelation: 0.5, outliers: 0.03, drift: 0.01, step: 0.01, between: 0.02, slower: 0.0 };

fn log_median(calls: &[u64]) -> f64 {
    let mut sorted = calls.to_vec();
    sorted.sort_unstable();
    (sorted[sorted.len().div_ceil(2) - 1] as f64).ln()
}

/// The uncertainty of the median, from the record of these calls.
pub fn within(calls: &[u64]) -> Option<Within> {
    let sorted = SortedCalls::new(calls.to_vec())?;
    let milliseconds = |call: u64| call as f64 / 1e6;
    Within::of_record(&Record {
        latency_p50_ms: Some(milliseconds(sorted.percentile(0.5))),
        latency_p90_ms: Some(milliseconds(sorted.percentile(0.9))),
        autocorrelation: autocorrelation(calls),
        iterations: Some(calls.len()),
        ..empty_record()
    })
}

/// The numbers of earlier runs and of runs per side.
#[derive(Clone, Copy)]
struct Sizes {
    history: usize,
    side: usize,
}

fn compared(base: Process, candidate: Process, sizes: Sizes, otherwise: Noise, seed: u64) -> Compared {
    let run = |process: Process, index: usize| process.calls(1000 * seed + index as u64, CALLS);
    let history: Vec<f64> = (0..sizes.history).map(|index| log_median(&run(base, index))).collect();
    let side = |process: Process, first: usize| -> (Vec<f64>, Vec<Option<Within>>) {
        let runs = (first..first + sizes.side).map(|index| run(process, index));
        runs.map(|calls| (log_median(&calls), within(&calls))).unzip()
    };
    let (base, candidate) = (side(base, 400), side(candidate, 700));
    let noise = Noise::of_groups(&[history, base.0.clone(), candidate.0.clone()], otherwise);
    let runs = |(log_medians, within)| CaseRuns { log_medians, within, noise };
    Compared::of(&runs(base), &runs(candidate))
}

/// What is found of a case, whatever the tolerance is.
struct Compared {
    estimate: RatioEstimate,
    floor: f64,
}

impl Compared {
    fn of(base: &CaseRuns, candidate: &CaseRuns) -> Self {
        Compared { estimate: estimate(base, candidate, CONFIDENCE), floor: floor(base, candidate, CONFIDENCE) }
    }
}

fn verdicts(cases: &[Compared], tolerance: f64) -> Vec<Verdict> {
    let cases: Vec<(RatioEstimate, Limits)> =
        cases.iter().map(|case| (case.estimate, Limits { floor: case.floor, layout: 0.0, tolerance })).collect();
    verdict::verdicts(&cases, 1.0 - CONFIDENCE).iter().map(|finding| finding.verdict).collect()
}

#[test]
fn intervals_hold_the_true_ratio_as_often_as_they_say() {
    const TESTS: u64 = 1000;
    for (sizes, slower) in [
        (Sizes { history: 4, side: 1 }, 0.0),
        (Sizes { history: 12, side: 1 }, 0.1),
        (Sizes { history: 0, side: 3 }, 0.1),
    ] {
        let candidate = Process { slower, ..REAL };
        let holds = (0..TESTS).filter(|&seed| {
            let interval = compared(REAL, candidate, sizes, Noise::assumed(), seed).estimate.interval;
            interval.lower <= 1.0 + slower && 1.0 + slower <= interval.upper
        });
        let coverage = holds.count() as f64 / TESTS as f64;
        // Three standard errors below 99 %.
        assert!(coverage >= 0.98, "{coverage} of {} and {}", sizes.history, sizes.side);
    }
}

/// In at most one of a hundred suites, a case of equal code is called faster or slower; with three standard errors.
#[test]
fn suites_of_equal_code_raise_no_alarm() {
    const SUITES: u64 = 200;
    const CASES: u64 = 10;
    let alarms = (0..SUITES).filter(|suite| {
        let compared =
            |case| compared(REAL, REAL, Sizes { history: 6, side: 1 }, Noise::assumed(), suite * CASES + case);
        let estimates: Vec<Compared> = (0..CASES).map(compared).collect();
        verdicts(&estimates, 0.05).iter().any(|verdict| verdict.is_change())
    });
    let share = alarms.count() as f64 / SUITES as f64;
    assert!(share <= 0.01 + 3.0 * (0.01_f64 * 0.99 / SUITES as f64).sqrt(), "{share}");
}

/// Why the history is needed: by their calls alone, two processes of one program nearly always differ.
#[test]
fn calls_of_one_process_a_side_cannot_replace_it() {
    const TESTS: u64 = 100;
    let nothing = Noise::of_groups(&[vec![0.0; 1 + ENOUGH_FREEDOM as usize]], Noise::assumed());
    let alarms = (0..TESTS).filter(|&seed| {
        let process = Process { calls: 0.02, between: 0.02, ..Process::default() };
        let runs = |index| {
            let calls = process.calls(2 * seed + index, 400);
            CaseRuns { log_medians: vec![log_median(&calls)], within: vec![within(&calls)], noise: nothing }
        };
        verdicts(&[Compared::of(&runs(0), &runs(1))], 0.0)[0].is_change()
    });
    assert!(alarms.count() > 60);
}

#[test]
fn a_slow_down_well_above_the_noise_is_found() {
    const TESTS: u64 = 150;
    let quiet = Process { between: 0.005, calls: 0.01, step: 0.002, drift: 0.002, ..REAL };
    let found = |base: Process, slower: f64, sizes: Sizes| {
        let candidate = Process { slower, ..base };
        let slower = (0..TESTS).filter(|&seed| {
            let found = compared(base, candidate, sizes, Noise::assumed(), seed);
            verdicts(&[found], 0.01)[0] == Verdict::Slower
        });
        slower.count() as f64 / TESTS as f64
    };
    assert!(found(quiet, 0.05, Sizes { history: 10, side: 1 }) >= 0.9);
    assert!(found(REAL, 0.20, Sizes { history: 10, side: 1 }) >= 0.9);
    assert!(found(REAL, 0.10, Sizes { history: 10, side: 5 }) >= 0.9);
    // What the noise hides is not called slower, and not the same either.
    assert!(found(REAL, 0.01, Sizes { history: 10, side: 1 }) <= 0.05);
}

#[test]
fn equal_code_on_a_quiet_machine_is_called_the_same() {
    const TESTS: u64 = 150;
    let quiet = Process { between: 0.004, calls: 0.01, step: 0.002, drift: 0.002, ..REAL };
    let same = (0..TESTS).filter(|&seed| {
        let found = compared(quiet, quiet, Sizes { history: 12, side: 1 }, Noise::assumed(), seed);
        verdicts(&[found], 0.05)[0] == Verdict::Same
    });
    assert!(same.count() as f64 >= 0.9 * TESTS as f64);
}

#[test]
fn where_nothing_is_known_small_changes_cannot_be_told() {
    let of = |slower: f64| {
        let process = Process { slower, between: 0.0, ..REAL };
        let base = Process { between: 0.0, ..REAL };
        let found = compared(base, process, Sizes { history: 0, side: 1 }, Noise::assumed(), 7);
        verdicts(&[found], 0.05)[0]
    };
    assert_eq!([of(0.0), of(0.1), of(0.5)], [Verdict::CannotSay, Verdict::CannotSay, Verdict::Slower]);
}

/// A row of so many processes, as a run of several processes leaves it.
fn row(process: Process, processes: u64, seed: u64) -> Record {
    let of_process = |index| Latencies::of_samples(&[process.calls(100 * seed + index, CALLS)], None).unwrap();
    let latencies: Vec<Latencies> = (0..processes).map(of_process).collect();
    let (lower, upper) = Latencies::interval(&latencies, Latencies::p50_ms, 0.95).unwrap();
    Record {
        processes: Some(latencies.len()),
        latency_p50_ms: Latencies::together(&latencies).map(|all| all.p50_ms()),
        latency_p50_interval_lower_ms: Some(lower),
        latency_p50_interval_upper_ms: Some(upper),
        confidence_level: Some(0.95),
        ..empty_record()
    }
}

/// Processes that differ, and whose calls show little of it.
const DIFFERENT: Process =
    Process { calls: 0.02, autocorrelation: 0.5, outliers: 0.0, drift: 0.0, step: 0.0, between: 0.02, slower: 0.0 };

#[test]
fn the_interval_between_processes_covers_and_that_within_one_does_not() {
    const TESTS: u64 = 1000;
    let coverage = |holds: &dyn Fn(u64) -> bool| (0..TESTS).filter(|&seed| holds(seed)).count() as f64 / TESTS as f64;
    for processes in [3, 5, 10] {
        let between = coverage(&|seed| {
            let row = row(DIFFERENT, processes, seed);
            row.latency_p50_interval_lower_ms.unwrap() <= 1.0 && row.latency_p50_interval_upper_ms.unwrap() >= 1.0
        });
        // Three standard errors around 95 %.
        assert!((0.929..=0.971).contains(&between), "{between} of {processes}");
    }
    let within = coverage(&|seed| {
        let calls = DIFFERENT.calls(100 * seed, CALLS);
        (log_median(&calls) - 1e6_f64.ln()).abs() <= 1.96 * within(&calls).unwrap().log_error
    });
    assert!(within < 0.6, "{within}");
}

#[test]
fn two_rows_of_several_processes_are_compared_by_their_own_scatter() {
    const TESTS: u64 = 1000;
    let runs = |row: &Record| CaseRuns {
        log_medians: vec![row.latency_p50_ms.unwrap().ln()],
        within: vec![Within::of_record(row)],
        noise: Noise::of_processes([row]).unwrap(),
    };
    let compared = |candidate: Process, processes: u64, seed: u64| {
        Compared::of(&runs(&row(DIFFERENT, processes, 2 * seed)), &runs(&row(candidate, processes, 2 * seed + 1)))
    };
    // Welch's test, since the candidate's processes differ more.
    let noisier = Process { between: 0.04, slower: 0.1, ..DIFFERENT };
    let holds = |seed: &u64| {
        let interval = compared(noisier, 4, *seed).estimate.interval;
        interval.lower <= 1.1 && interval.upper >= 1.1
    };
    let coverage = (0..TESTS).filter(holds).count() as f64 / TESTS as f64;
    assert!((0.98..=0.998).contains(&coverage), "{coverage}");
    let alarms = (0..TESTS).filter(|&seed| verdicts(&[compared(DIFFERENT, 3, seed)], 0.0)[0].is_change()).count();
    assert!(alarms as f64 <= 0.02 * TESTS as f64, "{alarms}");
    let slower = Process { slower: 0.1, ..DIFFERENT };
    let found = (0..TESTS).filter(|&seed| verdicts(&[compared(slower, 6, seed)], 0.01)[0] == Verdict::Slower).count();
    assert!(found as f64 >= 0.9 * TESTS as f64, "{found}");
}
