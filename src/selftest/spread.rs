//! The spread of repeated measurements, and what it allows to be shown.
//!
//! Calls are in samples, and samples in processes. Calls of one process share what was decided when it started (where
//! its memory lies, which thread runs on which core), so a thousand more of them say nothing about that: the process is
//! the unit of replication (Kalibera & Jones 2013, "Rigorous benchmarking in reasonable time").

use serde::{Deserialize, Serialize};

use crate::run_data::Latencies;
use crate::statistics::{StudentT, mean, variance};

/// Standard deviations at each level, in per cent of the mean of all.
///
/// The levels are kept apart by the unbiased estimators of Kalibera & Jones 2013: with `S₁²` the variance of
/// calls within samples, `S₂²` that of the samples' means within processes and `S₃²` that of the processes' means, for
/// `n₁` calls per sample and `n₂` samples per process,
///
/// ```text
/// calls T₁² = S₁²     samples T₂² = S₂² - S₁² / n₁     processes T₃² = S₃² - S₂² / n₂
/// ```
///
/// and 0 where that is negative. Where processes differ in their numbers of calls, these are means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub calls_percent: f64,
    pub samples_percent: f64,
    pub processes_percent: f64,
}

impl Spread {
    /// `None` for fewer than two processes, or for one with fewer than two samples.
    pub fn of(processes: &[Latencies]) -> Option<Self> {
        let means: Vec<f64> = processes.iter().map(|process| process.mean_ms).collect();
        let among = |figure: fn(&Latencies) -> Option<f64>| -> Option<f64> {
            Some(mean(&processes.iter().map(figure).collect::<Option<Vec<f64>>>()?))
        };
        let samples = among(|process| Some(process.samples as f64))?;
        let calls_per_sample = among(|process| Some(process.calls as f64 / process.samples as f64))?;
        let within_processes = among(|process| process.sample_std_ms.map(|std| std.powi(2)))?;
        let within_samples = among(Latencies::variance_within_samples)?;
        let percent = |variance: f64| 100.0 * variance.max(0.0).sqrt() / mean(&means);
        (means.len() > 1).then(|| Spread {
            calls_percent: percent(within_samples),
            samples_percent: percent(within_processes - within_samples / calls_per_sample),
            processes_percent: percent(variance(&means) - within_processes / samples),
        })
    }
}

impl Latencies {
    /// What is left of the sum of squares without that of the samples' means; 0 for one call per sample.
    fn variance_within_samples(&self) -> Option<f64> {
        if self.calls <= self.samples {
            return Some(0.0);
        }
        let (calls, samples) = (self.calls as f64, self.samples as f64);
        let of_calls = self.std_ms?.powi(2) * (calls - 1.0);
        let of_samples = self.sample_std_ms?.powi(2) * (samples - 1.0) * calls / samples;
        Some((of_calls - of_samples).max(0.0) / (calls - samples))
    }
}

/// The smallest change between two runs that a two-sided t test at 95 % can show, in per cent.
///
/// The figures are the processes' medians, which are what reports compare. For `n` processes per run, with their standard
/// deviation `s` relative to their mean, the half-width of the confidence interval of the difference is
///
/// ```text
/// t(0.975; 2n - 2) · s · √(2 / n)
/// ```
///
/// (Kalibera & Jones 2013, with the process as the unit of replication; the t quantile is that of a
/// two-sample test with equal variances). A true change of that size is shown every second time; one of double that
/// size nearly always.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SmallestChange {
    /// Processes of each of the two runs.
    pub processes: usize,
    /// The standard deviation between processes, in per cent.
    pub deviation_percent: f64,
    pub percent: f64,
    /// Between two runs of one process each, which tell nothing of their spread themselves: it is the one seen here,
    /// `t(0.975; n - 1) · s · √2`.
    pub single_percent: f64,
}

impl SmallestChange {
    /// Finds it from one figure per process. Returns `None` for fewer than two.
    pub fn of(figures: &[f64]) -> Option<Self> {
        let n = figures.len();
        if n < 2 {
            return None;
        }
        let deviation = variance(figures).sqrt() / mean(figures);
        let two_sided = |freedom: usize| StudentT::new(freedom as f64).two_sided_quantile(0.95);
        Some(SmallestChange {
            processes: n,
            deviation_percent: 100.0 * deviation,
            percent: 100.0 * two_sided(2 * n - 2) * deviation * (2.0 / n as f64).sqrt(),
            single_percent: 100.0 * two_sided(n - 1) * deviation * 2.0_f64.sqrt(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::seeded::{Fill, values};
    use crate::statistics::pooled_variance;

    /// Standard normal numbers of a seed.
    fn normal(seed: u64, name: &str, count: usize) -> Vec<f64> {
        values(seed, name, Fill::Normal(1.0), 0, count).map(f64::from).collect()
    }

    /// Calls around 1 ms with these standard deviations, in per cent, of calls, samples and processes.
    fn simulated(seed: u64, [calls, samples, processes]: [f64; 3], sizes: [usize; 3]) -> Vec<Latencies> {
        let [n1, n2, n3] = sizes;
        let of_call = normal(seed, "call", n1 * n2 * n3);
        let of_sample = normal(seed, "sample", n2 * n3);
        let of_process = normal(seed, "process", n3);
        let call = |process: usize, sample: usize, call: usize| {
            let sample = process * n2 + sample;
            let z = calls * of_call[sample * n1 + call] + samples * of_sample[sample] + processes * of_process[process];
            (1e6 * (1.0 + z / 100.0)).round() as u64
        };
        let sample = |process, sample| (0..n1).map(|index| call(process, sample, index)).collect();
        let samples = |process| (0..n2).map(|index| sample(process, index)).collect::<Vec<Vec<u64>>>();
        (0..n3).map(|process| Latencies::of_samples(&samples(process), None).unwrap()).collect()
    }

    #[track_caller]
    fn assert_near(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() <= tolerance, "{found} is not {expected} ± {tolerance}");
    }

    #[test]
    fn known_components_are_recovered_and_kept_apart() {
        let spread = Spread::of(&simulated(1, [4.0, 1.0, 2.0], [10, 30, 400])).unwrap();
        assert_near(spread.calls_percent, 4.0, 0.05);
        assert_near(spread.samples_percent, 1.0, 0.05);
        assert_near(spread.processes_percent, 2.0, 0.2);
    }

    #[test]
    fn independent_calls_show_no_spread_of_samples_or_processes() {
        let spread = Spread::of(&simulated(2, [5.0, 0.0, 0.0], [10, 50, 100])).unwrap();
        assert_near(spread.calls_percent, 5.0, 0.1);
        assert!(spread.samples_percent < 0.4 && spread.processes_percent < 0.1, "{spread:?}");
    }

    #[test]
    fn single_calls_a_sample_cannot_be_told_from_samples() {
        let spread = Spread::of(&simulated(3, [3.0, 0.0, 1.0], [1, 40, 200])).unwrap();
        assert_eq!(spread.calls_percent, 0.0);
        assert_near(spread.samples_percent, 3.0, 0.1);
        assert_near(spread.processes_percent, 1.0, 0.15);
    }

    #[test]
    fn too_little_is_no_spread() {
        assert_eq!(Spread::of(&simulated(4, [1.0; 3], [2, 2, 1])), None);
        assert_eq!(Spread::of(&simulated(4, [1.0; 3], [2, 1, 2])), None);
        assert_eq!(SmallestChange::of(&[1.0]), None);
    }

    #[test]
    fn the_formula_gives_its_published_quantiles() {
        // t(0.975; 2) = 4.303 and t(0.975; 1) = 12.706; the standard deviation of 99 and 101 is √2.
        let change = SmallestChange::of(&[99.0, 101.0]).unwrap();
        assert_near(change.percent, 4.3027 * 2.0_f64.sqrt(), 1e-3);
        assert_near(change.single_percent, 12.7062 * 2.0, 1e-3);
    }

    /// Runs of the same program differ by more than a single-process bound as often as it says: one in twenty.
    #[test]
    fn between_equal_runs_one_in_twenty_is_beyond() {
        const TESTS: usize = 4000;
        const PROCESSES: usize = 8;
        let beyond = (0..TESTS).filter(|&test| {
            let z = normal(test as u64, "runs", PROCESSES + 2);
            let times: Vec<f64> = z.iter().map(|z| 1.0 + 0.02 * z).collect();
            let change = SmallestChange::of(&times[..PROCESSES]).unwrap();
            100.0 * (times[PROCESSES] - times[PROCESSES + 1]).abs() > change.single_percent
        });
        assert_near(beyond.count() as f64 / TESTS as f64, 0.05, 0.012);
    }

    #[test]
    fn a_side_of_several_processes_is_beyond_as_often_too() {
        const TESTS: usize = 4000;
        const PROCESSES: usize = 6;
        let beyond = (0..TESTS).filter(|&test| {
            let z = normal(test as u64, "sides", 2 * PROCESSES);
            let times: Vec<f64> = z.iter().map(|z| 1.0 + 0.02 * z).collect();
            let (one, other) = times.split_at(PROCESSES);
            // The comparison itself knows the variance of both sides.
            let (variance, _) = pooled_variance(&[one.to_vec(), other.to_vec()]);
            let of_one = SmallestChange::of(one).unwrap();
            let half_width = of_one.percent / of_one.deviation_percent * variance.sqrt();
            (mean(one) - mean(other)).abs() > half_width
        });
        assert_near(beyond.count() as f64 / TESTS as f64, 0.05, 0.012);
    }
}
