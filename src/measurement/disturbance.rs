//! Marks samples during which the processors were not the benchmark's own: stolen by a hypervisor, or used by others.
//!
//! Between two samples, never during one, the watch looks at the time of the processors and of this process. Busy time
//! that is not of this process is the work of others. Both count in ticks of 10 ms, and this process's own time is
//! rounded down. A window of looks therefore counts only if it has at least 100 ms and its limit is at least four
//! ticks: on two processors that takes 400 ms, on eight and more 100 ms.
//!
//! A look takes about 30 µs on two processors; there is at most one in 50 ms.

use std::time::{Duration, Instant};

use crate::machine::{ProcessorTime, own_ticks};

/// A window is disturbed if more than this fraction of all processors' time was stolen or used by others.
const LIMIT: f64 = 0.05;
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Minimum ticks of each processor in a window: 100 ms.
const LEAST_TICKS_EACH: u64 = 10;
/// Minimum ticks of all processors in a window: the limit is then four.
const LEAST_TICKS: u64 = 80;

/// Ticks since the system started.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    processors: u64,
    total: u64,
    /// Stolen, or used by others.
    lost: i64,
}

impl Look {
    fn now() -> Option<Self> {
        let time = ProcessorTime::now()?;
        let own = own_ticks()?;
        let lost = (time.stolen + time.busy) as i64 - own as i64;
        Some(Look { processors: time.processors, total: time.total, lost })
    }
}

/// Looks now and then while samples are taken.
#[derive(Clone, Debug)]
pub struct DisturbanceWatch {
    /// The looks, each with the number of samples that had ended.
    looks: Vec<(usize, Look)>,
    last_look: Instant,
}

impl DisturbanceWatch {
    /// Begins before the first sample. Returns `None` if the system does not report these times.
    pub fn begin() -> Option<Self> {
        Some(DisturbanceWatch { looks: vec![(0, Look::now()?)], last_look: Instant::now() })
    }

    /// Call this between two samples, with the number of samples that have ended.
    pub fn after_sample(&mut self, ended: usize) {
        if self.last_look.elapsed() < LOOK_EVERY {
            return;
        }
        self.looks.extend(Look::now().map(|look| (ended, look)));
        self.last_look = Instant::now();
    }

    /// Whether each of `samples` was disturbed. Returns `None` if all of them took less than a window.
    pub fn marks(&self, samples: usize) -> Option<Vec<bool>> {
        let mut bounds = vec![0];
        for (index, &(_, look)) in self.looks.iter().enumerate() {
            let (_, begin) = self.looks[bounds[bounds.len() - 1]];
            if is_long_enough(begin, look) {
                bounds.push(index);
            }
        }
        // The rest after the last window is too short to count alone.
        bounds.pop().filter(|&bound| bound > 0)?;
        bounds.push(self.looks.len() - 1);
        let mut marks = vec![false; samples];
        for window in bounds.windows(2) {
            let ((ended, begin), (_, end)) = (self.looks[window[0]], self.looks[window[1]]);
            marks[ended.min(samples)..].fill(is_disturbed(begin, end));
        }
        Some(marks)
    }
}

fn is_long_enough(begin: Look, end: Look) -> bool {
    end.total.saturating_sub(begin.total) >= LEAST_TICKS.max(LEAST_TICKS_EACH * begin.processors)
}

fn is_disturbed(begin: Look, end: Look) -> bool {
    (end.lost - begin.lost) as f64 > LIMIT * end.total.saturating_sub(begin.total) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processors. Each look comes 250 ms and two samples after the one before, with this many further lost ticks.
    fn watch(lost: &[i64]) -> DisturbanceWatch {
        let mut looks = vec![(0, Look { processors: 2, total: 1000, lost: 70 })];
        for lost in lost {
            let (ended, before) = looks[looks.len() - 1];
            looks.push((ended + 2, Look { total: before.total + 50, lost: before.lost + lost, ..before }));
        }
        DisturbanceWatch { looks, last_look: Instant::now() }
    }

    fn marks(lost: &[i64], samples: usize) -> Option<String> {
        let marks = watch(lost).marks(samples)?;
        Some(marks.into_iter().map(|is_disturbed| if is_disturbed { '!' } else { '.' }).collect())
    }

    #[test]
    fn the_samples_of_a_disturbed_window_are_marked() {
        assert_eq!(marks(&[0, 1, 4, 3, 0, 0], 12).as_deref(), Some("....!!!!...."));
    }

    #[test]
    fn up_to_the_limit_nothing_is_disturbed_also_when_own_time_is_rounded() {
        assert_eq!(marks(&[2, 3, -2, 1], 8).as_deref(), Some("........"));
    }

    #[test]
    fn a_short_end_is_judged_with_the_window_before_it() {
        assert_eq!(marks(&[0, 0, 1, 0, 40], 10).as_deref(), Some("....!!!!!!"));
        // Two samples ended after the last look.
        assert_eq!(marks(&[9, 9], 6).as_deref(), Some("!!!!!!"));
    }

    #[test]
    fn less_than_a_window_is_unknown() {
        assert_eq!(marks(&[9], 2), None);
        assert_eq!(marks(&[], 2), None);
    }

    #[test]
    fn many_processors_need_100_ms_each() {
        let begin = Look { processors: 64, total: 0, lost: 0 };
        assert!(!is_long_enough(begin, Look { total: 639, ..begin }));
        assert!(is_long_enough(begin, Look { total: 640, ..begin }));
    }
}
