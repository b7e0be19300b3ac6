//! How many samples Criterion takes of a case, and how many calls make a sample.

use std::time::Duration;

use crate::definition::Effort;

/// Criterion's settings for one case. Sampling is always flat: the same number of calls in each sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    pub samples: usize,
    pub calls_per_sample: u64,
}

/// Criterion's minimum.
const FEWEST_SAMPLES: usize = 10;
/// More samples than this make Criterion's bootstrap slow; further calls go into larger samples.
const MOST_SAMPLES: usize = 100;
/// Every call is kept; a million are 8 MB, and say no more than a million could.
const MOST_CALLS: usize = 1_000_000;

impl Sampling {
    /// As many calls as were asked for, or as fill the least time, if they fit into the budget; at least Criterion's ten.
    ///
    /// Up to 100 calls are a sample each; beyond that there are 100 samples of several calls.
    pub fn choose(effort: &Effort, call_ns: u64) -> Self {
        let calls_in = |seconds: f64| (seconds * 1e9 / call_ns.max(1) as f64) as usize;
        let affordable = calls_in(effort.budget_seconds);
        let wanted = effort.iterations.max(calls_in(effort.least_seconds)).min(MOST_CALLS);
        let samples = wanted.min(affordable).clamp(FEWEST_SAMPLES, MOST_SAMPLES);
        let calls_per_sample = wanted.div_ceil(samples).min(affordable / samples).max(1);
        Sampling { samples, calls_per_sample: calls_per_sample as u64 }
    }

    /// The measurement time that makes Criterion choose `calls_per_sample`, for calls of `call_ns`.
    ///
    /// Criterion divides the time by the samples and by the time of its own warm-up call, and rounds up. Half a call
    /// less than the wanted number keeps the rounding right for calls that are up to half a call faster or slower.
    pub fn measurement_time(self, call_ns: u64) -> Duration {
        let calls = self.samples as f64 * (self.calls_per_sample as f64 - 0.5);
        Duration::from_nanos(((calls * call_ns as f64) as u64).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(iterations: usize, budget_seconds: f64, call_ns: u64) -> (usize, u64) {
        let effort = Effort { iterations, budget_seconds, least_seconds: 0.0, ..Effort::default() };
        let sampling = Sampling::choose(&effort, call_ns);
        (sampling.samples, sampling.calls_per_sample)
    }

    #[test]
    fn slow_calls_get_criterions_minimum_and_fast_ones_share_samples() {
        assert_eq!(choose(1000, 5.0, 2_000_000_000), (10, 1));
        assert_eq!(choose(1000, 5.0, 100_000_000), (50, 1));
        assert_eq!(choose(1000, 5.0, 1_000), (100, 10));
        assert_eq!(choose(250, 5.0, 1_000), (100, 3));
        assert_eq!(choose(20, 5.0, 1_000), (20, 1));
        assert_eq!(choose(1000, 5.0, 38_000_000), (100, 1));
    }

    #[test]
    fn fast_calls_fill_the_least_time() {
        let effort = Effort { iterations: 1000, budget_seconds: 5.0, least_seconds: 1.0, ..Effort::default() };
        assert_eq!(Sampling::choose(&effort, 10_000), Sampling { samples: 100, calls_per_sample: 1000 });
        assert_eq!(Sampling::choose(&effort, 100), Sampling { samples: 100, calls_per_sample: 10_000 });
    }

    #[test]
    fn the_measurement_time_rounds_up_to_the_wanted_calls() {
        let sampling = Sampling { samples: 100, calls_per_sample: 10 };
        let per_sample = sampling.measurement_time(1000).as_nanos() as f64 / 100.0;
        for criterions_estimate in [960.0, 1000.0, 1040.0] {
            assert_eq!((per_sample / criterions_estimate).ceil(), 10.0);
        }
    }
}
