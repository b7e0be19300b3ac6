//! How many samples Criterion takes of a case, how many calls make a sample, and what limits the number of calls.

use std::time::Duration;

use super::timed_calls::TimedSession;
use crate::definition::{CaseFailure, Effort};
use crate::run_data::StopReason;
use crate::statistics::{calls_for_bound, relative_half_width};

/// Criterion's settings for one case. Sampling is always flat: the same number of calls in each sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    pub samples: usize,
    pub calls_per_sample: u64,
    pub stop: StopReason,
}

/// Criterion's minimum.
const FEWEST_SAMPLES: usize = 10;
/// More samples than this make Criterion's bootstrap slow; further calls go into larger samples.
const MOST_SAMPLES: usize = 100;
/// Every call is kept: a million are 8 MB, and more would hardly add precision.
const MOST_CALLS: usize = 1_000_000;
/// Fraction of the budget that a pilot may take.
const PILOT_SHARE: f64 = 0.1;
const FEWEST_PILOT_CALLS: f64 = 10.0;
const MOST_PILOT_CALLS: f64 = 1000.0;
/// The pilot's scatter is only an estimate, so the calls are planned for a somewhat narrower interval.
const MARGIN: f64 = 0.85;
/// Criterion may make somewhat fewer calls than requested, but a bound needs its full number.
const BOUND_MARGIN: f64 = 1.03;
/// The fraction of the timeout that an explicit number of calls may take.
const TIMEOUT_FRACTION: f64 = 0.5;

/// Makes the pilot calls, which follow the warm-up: their scatter tells how many calls an interval of a given width
/// needs. Returns their nanoseconds, or none if no interval is requested.
pub fn pilot(session: &mut TimedSession, effort: &Effort, call_ns: u64) -> Result<Vec<u64>, CaseFailure> {
    if effort.until_interval.is_none() {
        return Ok(Vec::new());
    }
    let affordable = PILOT_SHARE * effort.budget_seconds * 1e9 / call_ns.max(1) as f64;
    let calls = affordable.clamp(FEWEST_PILOT_CALLS, MOST_PILOT_CALLS) as u64;
    session.call(calls)
}

impl Sampling {
    /// The number of calls that is needed, if it fits into the budget; at least Criterion's ten.
    ///
    /// The requested iterations are needed, or as many calls as fill the minimum time. If a percentile's bound or an
    /// interval's width is requested, it determines the number instead. The calls for an interval are found in two
    /// stages (Stein 1945, "A two-sample test for a linear hypothesis whose power is independent of the variance"):
    /// from the scatter of `pilot`, nanoseconds of calls that are not used otherwise. An explicit number of iterations
    /// may exceed the budget, up to half of the timeout.
    pub fn choose(effort: &Effort, call_ns: u64, pilot: &[u64]) -> Self {
        let calls_in = |seconds: f64| (seconds * 1e9 / call_ns.max(1) as f64) as usize;
        let for_bound = effort.until_percentile.map(|percent| {
            let calls = calls_for_bound(percent / 100.0) as f64;
            ((BOUND_MARGIN * calls).ceil() as usize, StopReason::PercentileBound)
        });
        let for_interval =
            effort.until_interval.map(|percent| (calls_for_interval(percent, pilot), StopReason::Interval));
        // Nobody asked for the calls of the least time, so the limits shorten it.
        let least = calls_in(effort.least_seconds.min(effort.budget_seconds)).min(MOST_CALLS);
        let asked_for = (effort.iterations.max(least), StopReason::Iterations);
        let (wanted, stop) =
            for_bound.into_iter().chain(for_interval).max_by_key(|(calls, _)| *calls).unwrap_or(asked_for);
        let is_lifted = effort.are_iterations_explicit && stop == StopReason::Iterations;
        let lifted_seconds = if is_lifted { TIMEOUT_FRACTION * effort.timeout_seconds } else { 0.0 };
        let affordable = calls_in(effort.budget_seconds.max(lifted_seconds)).max(FEWEST_SAMPLES);
        let (wanted, stop) = if wanted > MOST_CALLS { (MOST_CALLS, StopReason::MostCalls) } else { (wanted, stop) };
        let (calls, stop) = if wanted > affordable { (affordable, StopReason::Budget) } else { (wanted, stop) };
        let (samples, mut calls_per_sample) = split(calls, affordable);
        // Criterion may make samples that are one call shorter, and then the bound would be missing.
        let has_one_more = samples * (calls_per_sample + 1) <= affordable;
        if stop == StopReason::PercentileBound && calls_per_sample > 1 && has_one_more {
            calls_per_sample += 1;
        }
        Sampling { samples, calls_per_sample: calls_per_sample as u64, stop }
    }

    /// Spreads the same calls over this many samples, with at least one call each. An uneven division is rounded up,
    /// unless the number of calls has reached its limit.
    #[must_use]
    pub fn in_samples(self, samples: usize) -> Self {
        let (calls, of) = (self.samples as u64 * self.calls_per_sample, samples.max(1) as u64);
        let calls_per_sample = match self.stop {
            StopReason::Budget | StopReason::MostCalls => calls / of,
            _ => calls.div_ceil(of),
        };
        Sampling { samples, calls_per_sample: calls_per_sample.max(1), stop: StopReason::Arguments }
    }

    /// The measurement time that makes Criterion choose `calls_per_sample`, for calls of `call_ns`.
    ///
    /// Criterion divides the time by the samples and by the time of its own warm-up call, and rounds up. Half a call
    /// less than the wanted number keeps the rounding right for calls that are up to half a call faster or slower. For
    /// one call per sample, the shortest possible time is right, however long Criterion's own call took.
    pub fn measurement_time(self, call_ns: u64) -> Duration {
        if self.calls_per_sample <= 1 {
            return Duration::from_nanos(1);
        }
        let calls = self.samples as f64 * (self.calls_per_sample as f64 - 0.5);
        Duration::from_nanos(((calls * call_ns as f64) as u64).max(1))
    }
}

/// Samples and calls per sample whose product is `calls` or slightly more, and no more than is affordable.
fn split(calls: usize, affordable: usize) -> (usize, usize) {
    let calls_per_sample = calls.div_ceil(MOST_SAMPLES).max(1);
    let enough = calls.div_ceil(calls_per_sample);
    let samples = if enough * calls_per_sample <= affordable { enough } else { affordable / calls_per_sample };
    (samples.clamp(FEWEST_SAMPLES, MOST_SAMPLES), calls_per_sample)
}

/// Calls for an interval of the mean of ± `percent`, from the scatter of the pilot: the width falls with the square
/// root of the number of calls.
fn calls_for_interval(percent: f64, pilot: &[u64]) -> usize {
    let Some(half_width) = relative_half_width(pilot) else { return MOST_CALLS + 1 };
    let ratio = half_width / (MARGIN * percent / 100.0);
    (pilot.len() as f64 * ratio * ratio).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(iterations: usize, budget_seconds: f64, call_ns: u64) -> (usize, u64) {
        let effort = Effort { iterations, budget_seconds, least_seconds: 0.0, ..Effort::default() };
        let sampling = Sampling::choose(&effort, call_ns, &[]);
        (sampling.samples, sampling.calls_per_sample)
    }

    #[test]
    fn a_bound_takes_its_published_number_of_calls_if_the_budget_has_them() {
        let effort = Effort { until_percentile: Some(99.0), budget_seconds: 5.0, ..Effort::default() };
        let fast = Sampling::choose(&effort, 1_000_000, &[]);
        assert_eq!((fast.samples as u64 * fast.calls_per_sample, fast.stop), (784, StopReason::PercentileBound));
        let slow = Sampling::choose(&effort, 100_000_000, &[]);
        assert_eq!((slow.samples as u64 * slow.calls_per_sample, slow.stop), (50, StopReason::Budget));
    }

    #[test]
    fn a_narrower_interval_takes_more_calls() {
        let pilot: Vec<u64> =
            (0..100).map(|call| 1_000_000 + 20_000 * ((call * 7919) % 11 - 5)).map(|ns: i64| ns as u64).collect();
        let calls = |percent: f64| {
            let effort = Effort { until_interval: Some(percent), budget_seconds: 100.0, ..Effort::default() };
            let sampling = Sampling::choose(&effort, 1_000_000, &pilot);
            assert_eq!(sampling.stop, StopReason::Interval);
            sampling.samples as u64 * sampling.calls_per_sample
        };
        let ratio = calls(0.1) as f64 / calls(0.4) as f64;
        assert!((12.0..20.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn slow_calls_get_criterions_minimum_and_fast_ones_share_samples() {
        assert_eq!(choose(1000, 5.0, 2_000_000_000), (10, 1));
        assert_eq!(choose(1000, 5.0, 100_000_000), (50, 1));
        assert_eq!(choose(1000, 5.0, 1_000), (100, 10));
        assert_eq!(choose(250, 5.0, 1_000), (84, 3));
        assert_eq!(choose(150, 1.9, 10_000_000), (75, 2));
        assert_eq!(choose(662, 6.9, 10_000_000), (95, 7));
        assert_eq!(choose(1000, 1.9, 10_000_000), (95, 2));
        assert_eq!(choose(20, 5.0, 1_000), (20, 1));
        assert_eq!(choose(1000, 5.0, 38_000_000), (65, 2));
    }

    #[test]
    fn iterations_that_the_user_has_said_are_made_up_to_the_timeout() {
        let choose = |timeout_seconds| {
            let effort = Effort {
                iterations: 100,
                are_iterations_explicit: true,
                budget_seconds: 5.0,
                timeout_seconds,
                ..Effort::default()
            };
            let sampling = Sampling::choose(&effort, 450_000_000, &[]);
            (sampling.samples as u64 * sampling.calls_per_sample, sampling.stop)
        };
        assert_eq!(choose(1800.0), (100, StopReason::Iterations));
        assert_eq!(choose(45.0), (50, StopReason::Budget));
    }

    #[test]
    fn fast_calls_fill_the_least_time_up_to_its_limits() {
        let choose = |iterations, budget_seconds, call_ns| {
            let effort = Effort { iterations, budget_seconds, least_seconds: 1.0, ..Effort::default() };
            let Sampling { samples, calls_per_sample, stop } = Sampling::choose(&effort, call_ns, &[]);
            (samples as u64 * calls_per_sample, stop)
        };
        assert_eq!(choose(1000, 5.0, 10_000), (100_000, StopReason::Iterations));
        assert_eq!(choose(1000, 5.0, 100), (1_000_000, StopReason::Iterations));
        assert_eq!(choose(1000, 0.5, 10_000), (50_000, StopReason::Iterations));
        assert_eq!(choose(60_000, 0.5, 10_000), (50_000, StopReason::Budget));
        assert_eq!(choose(2_000_000, 5.0, 100), (1_000_000, StopReason::MostCalls));
    }

    #[test]
    fn another_number_of_samples_has_as_many_calls() {
        let of = |call_ns, samples| {
            let effort = Effort { iterations: 1000, budget_seconds: 5.0, least_seconds: 0.0, ..Effort::default() };
            let sampling = Sampling::choose(&effort, call_ns, &[]).in_samples(samples);
            assert_eq!((sampling.samples, sampling.stop), (samples, StopReason::Arguments));
            sampling.calls_per_sample
        };
        assert_eq!([10, 100, 300, 1000, 2000].map(|samples| of(1_000, samples)), [100, 10, 4, 1, 1]);
        // The budget has 130 calls.
        assert_eq!([10, 50, 200].map(|samples| of(38_000_000, samples)), [13, 2, 1]);
    }

    #[test]
    fn the_measurement_time_rounds_up_to_the_wanted_calls() {
        let sampling = Sampling { samples: 100, calls_per_sample: 10, stop: StopReason::Iterations };
        let per_sample = sampling.measurement_time(1000).as_nanos() as f64 / 100.0;
        for criterions_estimate in [960.0, 1000.0, 1040.0] {
            assert_eq!((per_sample / criterions_estimate).ceil(), 10.0);
        }
        // A slow call that is three times as fast as the ones before does not double the calls per sample.
        let slow = Sampling { samples: 10, calls_per_sample: 1, stop: StopReason::Iterations };
        let per_sample = slow.measurement_time(10_000_000_000).as_nanos() as f64 / 10.0;
        assert_eq!((per_sample / 3e9).ceil(), 1.0);
    }
}
