//! The spread of the medians of several processes, and the smallest change that can be told from it.
//!
//! Calls of one process share what was decided when it started (where its memory lies, which thread runs on which
//! core), so a thousand more of them say nothing about that: the process is the unit of replication (Kalibera & Jones
//! 2013, "Rigorous benchmarking in reasonable time").

use serde::{Deserialize, Serialize};

use crate::statistics::{StudentT, mean, variance};

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
    /// Processes per run.
    pub processes: usize,
    /// The standard deviation between processes, in per cent.
    pub deviation_percent: f64,
    pub percent: f64,
    /// The smallest change between two runs of one process each. They do not show their own spread, so the spread seen
    /// here is used: `t(0.975; n - 1) · s · √2`.
    pub single_percent: f64,
}

impl SmallestChange {
    /// Computes it from one figure per process. Returns `None` for fewer than two.
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

    #[track_caller]
    fn assert_near(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() <= tolerance, "{found} is not {expected} ± {tolerance}");
    }

    #[test]
    fn one_process_has_no_spread() {
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
