//! How a thread waits for a moment with an error of microseconds: it sleeps first, and then spins.

use std::hint::spin_loop;
use std::thread;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use super::kernel_files::value;
use super::processor_time::own_ticks;

/// The longest spin. A sleep ends about 15 µs late, and rarely more than 60; a longer spin would take the processor
/// from the threads that compute.
const SPUN: Duration = Duration::from_micros(60);

/// Returns at this moment, or at once if it is over.
pub fn wait_until(moment: Instant) {
    Waiter::default().wait_until(moment);
}

/// Waits until the threads of this process and its external workers are idle, for a second at most: threads of some
/// runtimes look for work for a while after a call.
pub fn rest() {
    const AT_MOST: Duration = Duration::from_secs(1);
    // Several ticks of processor time.
    const LOOK: Duration = Duration::from_millis(60);
    let begin = Instant::now();
    let mut before = own_ticks();
    while begin.elapsed() < AT_MOST {
        thread::sleep(LOOK);
        let now = own_ticks();
        if now.zip(before).is_none_or(|(now, before)| now <= before + 1) {
            break;
        }
        before = now;
    }
}

/// Waits often in one thread: it learns how late sleeps end, and spins no longer than three sleeps of four need. Sleeps
/// that end later than the longest spin, because other threads had the processor, do not count.
pub struct Waiter {
    spun: Duration,
}

/// One sleep in this many may end too late.
const LATE: u32 = 4;
/// The spin grows by this after a late sleep, and shrinks by a part of it after a sleep that was in time.
const STEP: Duration = Duration::from_micros(2);
const LEAST_SPUN: Duration = Duration::from_micros(5);

impl Default for Waiter {
    fn default() -> Self {
        Waiter { spun: SPUN }
    }
}

impl Waiter {
    /// Returns at this moment, or at once if it is over.
    pub fn wait_until(&mut self, moment: Instant) {
        let left = moment.saturating_duration_since(Instant::now());
        if let Some(slept) = left.checked_sub(self.spun).filter(|slept| !slept.is_zero()) {
            thread::sleep(slept);
            self.learn(self.spun + Instant::now().saturating_duration_since(moment));
        }
        while Instant::now() < moment {
            spin_loop();
        }
    }

    /// Adapts the spin so that one sleep in [`LATE`] is late in the long run (Robbins and Monro 1951, "A stochastic
    /// approximation method"). `needed` is the spin that would have been enough, or the present spin if the sleep was
    /// in time.
    fn learn(&mut self, needed: Duration) {
        if needed <= self.spun {
            self.spun = self.spun.saturating_sub(STEP / (LATE - 1)).max(LEAST_SPUN);
        } else if needed <= SPUN {
            self.spun = (self.spun + STEP).min(SPUN);
        }
    }
}

/// Lets sleeps of the calling thread end as early as the system can; Linux makes them 50 µs longer otherwise.
pub fn sharpen_timers() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_timerslack(1);
}

/// Sharpens the timers of the calling thread, and gives it real-time priority, so that it does not wait for threads
/// that compute. Returns whether the system allows that.
#[cfg(target_os = "linux")]
pub fn wake_promptly() -> bool {
    use nix::libc;
    const PRIORITY: i32 = 10;
    const CALLING: i32 = 0;
    sharpen_timers();
    // SAFETY: a plain old structure for which zeros are valid, and a call that only reads it.
    unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = PRIORITY;
        libc::sched_setscheduler(CALLING, libc::SCHED_FIFO, &raw const parameters) == 0
    }
}

#[cfg(not(target_os = "linux"))]
pub fn wake_promptly() -> bool {
    false
}

/// The processor time of the calling thread so far. Only Linux tells it.
pub fn thread_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    return Some(Duration::from_nanos(value("/proc/thread-self/schedstat")?.split_whitespace().next()?.parse().ok()?));
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spin_is_as_long_as_most_sleeps_need() {
        // Lateness is uniform between 10 and 30 µs: three sleeps of four are at most 25 µs late.
        let mut waiter = Waiter::default();
        let lateness = |number: u64| Duration::from_nanos(10_000 + number * 7_919 % 20_000);
        let mut spins = Vec::new();
        for number in 0..20_000 {
            waiter.learn(lateness(number));
            // Other threads had the processor.
            waiter.learn(Duration::from_millis(1));
            spins.push(waiter.spun.as_nanos() as f64);
        }
        let mean = spins[10_000..].iter().sum::<f64>() / 10_000.0;
        assert!((23_000.0..27_000.0).contains(&mean), "{mean} ns");
        (0..1000).for_each(|_| waiter.learn(SPUN));
        assert!(waiter.spun + STEP > SPUN, "{:?}", waiter.spun);
    }
}
