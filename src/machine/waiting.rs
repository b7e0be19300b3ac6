//! How a thread waits for a moment so that it is late by microseconds: it sleeps, and spins the last part.

use std::hint::spin_loop;
use std::thread;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use super::kernel_files::value;

/// The part of a wait that is spun. A sleep ends about 15 µs late, and rarely more than 60; a longer spin would take the
/// processor from the threads that compute.
const SPUN: Duration = Duration::from_micros(60);

/// Returns at this moment, or at once if it is over.
pub fn wait_until(moment: Instant) {
    let left = moment.saturating_duration_since(Instant::now());
    if let Some(slept) = left.checked_sub(SPUN).filter(|slept| !slept.is_zero()) {
        thread::sleep(slept);
    }
    while Instant::now() < moment {
        spin_loop();
    }
}

/// Lets sleeps of the calling thread end as early as the system can; Linux makes them 50 µs longer otherwise.
pub fn sharpen_timers() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_timerslack(1);
}

/// Sharpens the timers of the calling thread, and puts it into the real-time class, in which it does not wait for threads that compute.
/// Returns whether the system allows that.
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
