//! A Criterion measurement that keeps every call's time.
//!
//! Criterion sees the sum of a sample's calls, as `WallTime` would give it; the single calls go into a separate log. A
//! sample's sum in the log therefore equals Criterion's `times` to the nanosecond, which `convert` checks.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use criterion::measurement::{Measurement, ValueFormatter, WallTime};

use super::disturbance::DisturbanceWatch;

/// The calls of one sample, in nanoseconds each.
pub type CallTimes = Vec<u64>;

/// Room for `calls`, so that nothing is allocated between two calls.
pub fn room_for(calls: u64) -> CallTimes {
    Vec::with_capacity(usize::try_from(calls).unwrap_or(usize::MAX).min(1 << 24))
}

/// The time of a call, at least 1 ns.
#[inline]
pub fn nanoseconds(elapsed: Duration) -> u64 {
    // 2^64 ns are 584 years. Criterion takes 0 as a sign of a broken clock.
    (elapsed.as_nanos() as u64).max(1)
}

/// A Criterion measurement that logs the samples that Criterion has kept since the log was last emptied.
#[derive(Clone, Debug, Default)]
pub struct SampleLog(Rc<RefCell<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    samples_ns: Vec<Vec<u64>>,
    watch: Option<DisturbanceWatch>,
}

/// Samples in the order in which they were taken.
#[derive(Debug, PartialEq)]
pub struct LoggedSamples {
    /// Nanoseconds of each call, one list per sample.
    pub samples_ns: Vec<Vec<u64>>,
    /// Whether each sample was disturbed, if that is known.
    pub disturbed: Option<Vec<bool>>,
}

impl SampleLog {
    /// Empties the log and begins to watch for disturbances.
    pub fn begin(&self) {
        *self.0.borrow_mut() = Contents { samples_ns: Vec::new(), watch: DisturbanceWatch::begin() };
    }

    /// The samples; the log is empty afterwards.
    pub fn take(&self) -> LoggedSamples {
        let Contents { samples_ns, watch } = std::mem::take(&mut *self.0.borrow_mut());
        let disturbed = watch.and_then(|watch| watch.marks(samples_ns.len()));
        LoggedSamples { samples_ns, disturbed }
    }

    /// Adds a sample.
    pub fn push(&self, sample_ns: Vec<u64>) {
        let Contents { samples_ns, watch } = &mut *self.0.borrow_mut();
        samples_ns.push(sample_ns);
        if let Some(watch) = watch {
            watch.after_sample(samples_ns.len());
        }
    }
}

/// Wall-clock time with a log of the single calls. For `iter_custom` only.
impl Measurement for SampleLog {
    type Intermediate = Instant;
    type Value = CallTimes;

    fn start(&self) -> Instant {
        Instant::now()
    }

    fn end(&self, start: Instant) -> CallTimes {
        vec![nanoseconds(start.elapsed())]
    }

    fn add(&self, first: &CallTimes, second: &CallTimes) -> CallTimes {
        [first.as_slice(), second.as_slice()].concat()
    }

    fn zero(&self) -> CallTimes {
        Vec::new()
    }

    /// Criterion calls this once for each sample that it keeps, and never in its warm-up.
    fn to_f64(&self, value: &CallTimes) -> f64 {
        self.push(value.clone());
        value.iter().sum::<u64>() as f64
    }

    /// Criterion's own formatting of durations.
    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_holds_the_calls_of_what_criterion_sums() {
        let log = SampleLog::default();
        assert_eq!(log.to_f64(&vec![30, 12]), 42.0);
        assert_eq!(log.take(), LoggedSamples { samples_ns: vec![vec![30, 12]], disturbed: None });
        assert!(log.take().samples_ns.is_empty());
    }
}
