//! Looks at the memory of the process while a trial runs, and ends a trial whose memory grows too fast.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::queue::Queue;
use super::{Instances, nanoseconds};
use crate::definition::CaseFailure;
use crate::load::{LOOKS, Moment, Trial, growth};
use crate::machine::throttled;
use crate::measurement::memory;

/// Samples over the length of a trial.
const SAMPLES: u32 = 120;
/// The minimum time between two samples.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

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
                // With room for all samples, so that they are not growth themselves.
                let mut moments = Vec::with_capacity(2 * SAMPLES as usize);
                let mut looks = LOOKS.map(|part| watch.length.mul_f64(part)).into_iter().peekable();
                let mut pause = (watch.length / SAMPLES).max(LEAST_PAUSE);
                while has_ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                    sample(begin, &mut moments);
                    // If the length was not known in advance, the trial may take longer: then every other sample is
                    // dropped.
                    if moments.len() >= 2 * SAMPLES as usize {
                        let mut is_kept = false;
                        moments.retain(|_| {
                            is_kept = !is_kept;
                            is_kept
                        });
                        pause *= 2;
                    }
                    if looks.next_if(|look| begin.elapsed() >= *look).is_some() {
                        look(watch, &moments, queue);
                    }
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

fn sample(begin: Instant, moments: &mut Vec<Moment>) {
    let Some(bytes) = memory::resident_bytes() else { return };
    let at_ns = nanoseconds(begin, Instant::now());
    moments.push(Moment { at_ns, memory_mb: memory::megabytes(bytes), throttled: throttled() });
}

fn look(watch: Watch, moments: &[Moment], queue: &Queue) {
    let length_ns = u64::try_from(watch.length.as_nanos()).unwrap_or(u64::MAX);
    let grown = growth(moments, length_ns);
    if grown.zip(watch.most_growth).is_some_and(|(grown, most)| grown.least_per_hour > most) {
        queue.give_up();
    }
}
