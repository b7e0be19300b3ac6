//! Looks at the memory of the process while a trial runs, and ends a trial whose memory grows too fast.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::queue::Queue;
use super::{Instances, nanoseconds};
use crate::definition::CaseFailure;
use crate::load::{Moment, Trial, growth};
use crate::machine::throttled;
use crate::measurement::memory;

/// Looks over the length of a trial.
const LOOKS: u32 = 120;

/// What is watched.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// How long the trial is to take.
    pub length: Duration,
    /// The growth of memory, in megabytes per hour, beyond which it ends.
    pub most_growth: Option<f64>,
}

impl Instances<'_> {
    /// Makes a trial, and looks at the process meanwhile.
    ///
    /// # Errors
    /// Those of the trial.
    pub fn watched(
        &self,
        watch: Watch,
        trial: impl FnOnce(&Self) -> Result<Trial, CaseFailure>,
    ) -> Result<Trial, CaseFailure> {
        thread::scope(|scope| {
            let (ended, has_ended) = channel::<()>();
            let queue = self.queue;
            let watching = scope.spawn(move || {
                let begin = Instant::now();
                // What is noted is no growth.
                let mut moments = Vec::with_capacity(2 * LOOKS as usize);
                while has_ended.recv_timeout(watch.length / LOOKS) == Err(RecvTimeoutError::Timeout) {
                    look(begin, watch, &mut moments, queue);
                }
                moments
            });
            let trial = trial(self);
            drop(ended);
            let moments = watching.join().unwrap_or_default();
            Ok(Trial { moments, ..trial? })
        })
    }
}

fn look(begin: Instant, watch: Watch, moments: &mut Vec<Moment>, queue: &Queue) {
    let Some(bytes) = memory::resident_bytes() else { return };
    let at_ns = nanoseconds(begin, Instant::now());
    moments.push(Moment { at_ns, memory_mb: memory::megabytes(bytes), throttled: throttled() });
    let length_ns = u64::try_from(watch.length.as_nanos()).unwrap_or(u64::MAX);
    let grown = growth(moments, length_ns);
    if grown.zip(watch.most_growth).is_some_and(|(grown, most)| grown.least_per_hour > most) {
        queue.give_up();
    }
}
