//! Warm-up until the times are steady, with a cap.
//!
//! Fixed small warm-ups are known to be wrong by up to a factor of 2 (Barrett et al. 2017, "Virtual machine warmup
//! blows hot and cold"). The calls are grouped into windows; the warm-up ends when the median of the last window is
//! within 5 % of the one before it.

use std::time::{Duration, Instant};

use super::call_times::CallTimes;
use crate::definition::CaseFailure;
use crate::statistics::median;

/// What the warm-up saw.
#[derive(Clone, Debug)]
pub struct WarmUp {
    /// Every call's nanoseconds, in order.
    pub calls: Vec<u64>,
    /// Whether it ended because the times were steady, and not because of the cap.
    pub is_steady: bool,
}

/// The minimum time of a warm-up: processor and caches settle in milliseconds, not in calls.
const AT_LEAST_FOR: Duration = Duration::from_millis(100);
const WINDOW: usize = 5;
const STEADY_WITHIN: f64 = 0.05;

impl WarmUp {
    /// The median of the last window in nanoseconds: what a call is expected to take.
    pub fn expected_call_ns(&self) -> u64 {
        median_call(&self.calls[self.calls.len().saturating_sub(WINDOW)..]) as u64
    }

    /// The time of a call for planning: the median, or the mean of the last calls if other programs made that larger.
    pub fn planned_call_ns(&self) -> u64 {
        self.expected_call_ns().max(self.mean_call_ns(AT_LEAST_FOR.as_nanos() as u64))
    }

    /// The mean of the last calls that took this long together, which is what timing calls for so long would give. On a
    /// disturbed machine it is far above the median.
    ///
    /// A warm-up often ends with a call that was interrupted for long. So the mean is that of at least half of the calls,
    /// and a call that took longer than all others together does not count.
    pub fn mean_call_ns(&self, together_ns: u64) -> u64 {
        let all: u64 = self.calls.iter().sum();
        let calls: Vec<u64> = self.calls.iter().copied().filter(|ns| *ns <= all - *ns).collect();
        let mut sum = 0;
        let within = |ns: &&u64| {
            let is_within = sum < together_ns;
            sum += **ns;
            is_within
        };
        let count = calls.iter().rev().take_while(within).count().max(calls.len() / 2);
        let last = &calls[calls.len() - count..];
        last.iter().sum::<u64>() / last.len().max(1) as u64
    }
}

/// Warms a session up by `at_least` calls and for 100 ms, and then until the times are steady or `at_most` is over.
/// `call` makes one call; it is made at least once.
pub fn warm_up(
    mut call: impl FnMut() -> Result<CallTimes, CaseFailure>,
    at_least: usize,
    at_most: Duration,
) -> Result<WarmUp, CaseFailure> {
    let start = Instant::now();
    let mut calls = Vec::new();
    loop {
        calls.extend(call()?);
        if calls.len() < at_least || start.elapsed() < AT_LEAST_FOR {
            continue;
        }
        let is_steady = is_steady(&calls);
        if is_steady || start.elapsed() >= at_most {
            return Ok(WarmUp { calls, is_steady });
        }
    }
}

fn is_steady(calls: &[u64]) -> bool {
    let Some(begin) = calls.len().checked_sub(2 * WINDOW) else { return false };
    let (before, last) = calls[begin..].split_at(WINDOW);
    let (before, last) = (median_call(before), median_call(last));
    (last - before).abs() <= STEADY_WITHIN * before
}

/// In nanoseconds; 0 if there are no calls.
fn median_call(calls: &[u64]) -> f64 {
    median(&calls.iter().map(|&call| call as f64).collect::<Vec<f64>>()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_the_last_calls() {
        let warm_up = WarmUp { calls: vec![1_000_000, 10, 10, 40, 20], is_steady: true };
        assert_eq!(warm_up.mean_call_ns(60), 30);
        assert_eq!(warm_up.mean_call_ns(70), 23);
        assert_eq!(warm_up.mean_call_ns(1), 30);
    }

    #[test]
    fn an_interruption_at_the_end_hardly_counts_and_slow_calls_in_between_do() {
        let mean = |calls: Vec<u64>| WarmUp { calls, is_steady: true }.mean_call_ns(1000);
        assert_eq!(mean([vec![10; 99], vec![100_000]].concat()), 10);
        assert_eq!(mean([vec![10; 999], vec![5000]].concat()), 19);
        assert_eq!(mean([10, 10, 10, 1000, 1000].repeat(9)), 460);
    }

    #[test]
    fn a_single_call_may_use_up_the_time() {
        let calls = |at_least, at_most| {
            warm_up(|| Ok([7].into()), at_least, Duration::from_millis(at_most)).unwrap().calls.len()
        };
        assert!(calls(0, 1) > 1, "short calls fill the least time");
        let slow = |at_least| {
            let call = || {
                std::thread::sleep(2 * AT_LEAST_FOR);
                Ok([7].into())
            };
            warm_up(call, at_least, AT_LEAST_FOR).unwrap().calls.len()
        };
        assert_eq!([slow(0), slow(3)], [1, 3]);
    }

    #[test]
    fn falling_times_are_not_steady() {
        assert!(!is_steady(&[100, 90, 80, 70, 60, 50, 40, 30, 20, 10]));
        assert!(is_steady(&[900, 100, 101, 99, 100, 100, 100, 102, 98, 100, 100]));
        assert!(!is_steady(&[100; 9]));
    }
}
