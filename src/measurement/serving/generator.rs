//! Issues requests at the times of a schedule, even if earlier ones have no answer yet.

use std::thread;
use std::time::{Duration, Instant};

use super::queue::{Queue, Waiting};
use super::resident;
use crate::load::Generator;
use crate::machine::{Waiter, thread_time, wake_promptly};

/// The first request comes this long after the beginning, so that the generator is ready for it.
const LEAD: Duration = Duration::from_millis(5);

/// How often the generator checks whether the trial has ended, while no request is due.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Issues all requests of the schedule, unless the trial ends before. Returns the beginning, the time at which each was
/// issued, and the generator's own figures.
pub(super) fn issue(queue: &Queue, schedule: &[u64]) -> (Instant, Vec<Instant>, Generator) {
    // In a separate thread, so that no other thread is started in the real-time class.
    let issued = thread::scope(|scope| scope.spawn(|| issue_all(queue, schedule)).join());
    issued.unwrap_or_else(|_| (Instant::now(), Vec::new(), Generator::default()))
}

fn issue_all(queue: &Queue, schedule: &[u64]) -> (Instant, Vec<Instant>, Generator) {
    let is_real_time = wake_promptly();
    let mut issued = resident(schedule.len(), Instant::now());
    let time_before = thread_time();
    let mut waiter = Waiter::default();
    let begin = Instant::now() + LEAD;
    'schedule: for (number, &due) in schedule.iter().enumerate() {
        let due = begin + Duration::from_nanos(due);
        while due.saturating_duration_since(Instant::now()) > 2 * LOOK_EVERY {
            if queue.is_ended() {
                break 'schedule;
            }
            thread::sleep(LOOK_EVERY);
        }
        waiter.wait_until(due);
        let since = Instant::now();
        if !queue.give([Waiting { number, begin, due, since }]) {
            break;
        }
        issued.push(since);
    }
    let used = thread_time().zip(time_before).map(|(after, before)| after.saturating_sub(before));
    let processor_share = used.map(|used| used.as_secs_f64() / (LEAD + begin.elapsed()).as_secs_f64());
    (begin, issued, Generator { processor_share, is_real_time })
}
