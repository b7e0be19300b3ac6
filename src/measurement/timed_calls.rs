//! The timed region: one pair of clock reads per call, and nothing else between them.

use std::time::{Duration, Instant};

use super::call_times::{CallTimes, nanoseconds, room_for};
use super::pipeline::{CallParts, Pipeline};
use crate::backend::{Session, Turn};
use crate::definition::CaseFailure;
use crate::fixture::HostTensor;

/// A session with its ring of bound batches. Calls go round the ring, one row of calls per batch.
pub struct TimedSession {
    session: Box<dyn Session>,
    ring: usize,
    binding: usize,
    /// Calls of the binding's row that are left before the next binding's turn.
    left: usize,
    begin: Begin,
    parts: Vec<CallParts>,
}

/// Where a call begins.
enum Begin {
    Device,
    /// With these batches on the host.
    Host(Vec<Vec<HostTensor>>),
    Pipeline(Pipeline),
}

impl TimedSession {
    /// `ring` is the number of batches that are bound, 0 to `ring - 1`.
    pub fn new(session: Box<dyn Session>, ring: usize) -> Self {
        TimedSession { session, ring, binding: ring - 1, left: 0, begin: Begin::Device, parts: Vec::new() }
    }

    /// A session whose calls go from host to host; `batches` are the bound ones.
    pub fn from_host(mut session: Box<dyn Session>, batches: Vec<Vec<HostTensor>>) -> Self {
        session.allow_lead_in();
        let session = TimedSession::new(session, batches.len());
        TimedSession { begin: Begin::Host(batches), ..session }
    }

    /// A session whose calls go through a pipeline, whose batches are bound.
    pub fn through(mut session: Box<dyn Session>, pipeline: Pipeline) -> Self {
        session.allow_lead_in();
        let session = TimedSession::new(session, pipeline.len());
        TimedSession { begin: Begin::Pipeline(pipeline), ..session }
    }

    /// Makes `calls` timed calls.
    ///
    /// # Errors
    /// The first call that fails ends the series.
    pub fn call(&mut self, calls: u64) -> Result<CallTimes, CaseFailure> {
        if matches!(self.begin, Begin::Device) {
            let row = self.session.calls_in_a_row();
            let (ring, binding, left) = (self.ring, &mut self.binding, &mut self.left);
            let mut turns = (0..calls).map(|_| next_turn(ring, binding, left, row));
            if let Some(times) = self.session.run_timed(&mut turns) {
                return times;
            }
        }
        self.prolonged_call(calls, |_| {})
    }

    /// Makes `calls` timed calls. Each ends with `prolong`, which is told when the call began, as if the runtime were
    /// slower.
    pub fn prolonged_call(&mut self, calls: u64, prolong: impl Fn(Instant)) -> Result<CallTimes, CaseFailure> {
        let mut times = room_for(calls);
        if !matches!(self.begin, Begin::Device) {
            self.parts.reserve(times.capacity());
        }
        for _ in 0..calls {
            let row = self.session.calls_in_a_row();
            let Turn { binding, is_first } = next_turn(self.ring, &mut self.binding, &mut self.left, row);
            if is_first {
                self.session.rewind(binding);
            }
            let elapsed = match &self.begin {
                Begin::Device => {
                    let start = Instant::now();
                    self.session.run(binding)?;
                    self.session.sync()?;
                    prolong(start);
                    start.elapsed()
                }
                Begin::Host(batches) => {
                    let start = Instant::now();
                    let (outputs, stages) = self.session.call_from_host(binding, &batches[binding])?;
                    drop(outputs);
                    self.end(start, CallParts { preprocess: None, stages, postprocess: None }, &prolong)
                }
                Begin::Pipeline(pipeline) => {
                    let start = Instant::now();
                    let parts = pipeline.call(&mut *self.session, binding)?;
                    self.end(start, parts, &prolong)
                }
            };
            times.push(nanoseconds(elapsed));
        }
        Ok(times)
    }

    /// Ends a call from host to host, and returns its time. If the session has its own clock, that clock says when the
    /// call began.
    fn end(&mut self, start: Instant, parts: CallParts, prolong: &impl Fn(Instant)) -> Duration {
        let by_own_clock = || Instant::now().checked_sub(parts.total());
        let start = if self.session.has_own_clock() { by_own_clock().unwrap_or(start) } else { start };
        prolong(start);
        let elapsed = start.elapsed();
        self.parts.push(parts);
        elapsed
    }

    /// How many calls the session's own clock times together. Calls from host to host are timed one by one.
    pub fn calls_together(&self) -> u64 {
        if !self.session.has_own_clock() || !matches!(self.begin, Begin::Device) {
            return 1;
        }
        self.session.placement().together.unwrap_or(1).max(1)
    }

    /// Makes the next call the first of a row.
    pub fn begin_row(&mut self) {
        self.left = 0;
    }

    /// The parts of the calls since this was last called; none for calls that are only the computation.
    pub fn take_parts(&mut self) -> Vec<CallParts> {
        std::mem::take(&mut self.parts)
    }

    /// The session, without its ring.
    pub fn into_session(self) -> Box<dyn Session> {
        self.session
    }

    pub fn session(&mut self) -> &mut dyn Session {
        &mut *self.session
    }
}

/// The next turn, if `binding` has `left` calls left of its row of `row` calls.
fn next_turn(ring: usize, binding: &mut usize, left: &mut usize, row: usize) -> Turn {
    let is_first = *left == 0;
    if is_first {
        *binding = if *binding + 1 == ring { 0 } else { *binding + 1 };
        *left = row;
    }
    *left -= 1;
    Turn { binding: *binding, is_first }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Placement, Stages};
    use crate::statistics::{SortedCalls, mean_and_deviation};

    const CALL: Duration = Duration::from_micros(50);
    const DELAY: Duration = Duration::from_micros(500);

    /// Each call takes `CALL`, every fiftieth `DELAY` more, and a call from the host three times `CALL`.
    #[derive(Default)]
    struct Delayed {
        calls: u32,
        has_own_clock: bool,
    }

    fn spin(time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {}
    }

    impl Session for Delayed {
        fn bind(&mut self, _: &[HostTensor]) -> Result<usize, CaseFailure> {
            Ok(0)
        }
        fn run(&mut self, _: usize) -> Result<(), CaseFailure> {
            self.calls += 1;
            spin(if self.calls.is_multiple_of(50) { CALL + DELAY } else { CALL });
            Ok(())
        }
        fn sync(&mut self) -> Result<(), CaseFailure> {
            Ok(())
        }
        fn outputs(&mut self, _: usize) -> Result<Vec<HostTensor>, CaseFailure> {
            Ok(Vec::new())
        }
        fn call_from_host(&mut self, _: usize, _: &[HostTensor]) -> Result<(Vec<HostTensor>, Stages), CaseFailure> {
            spin(3 * CALL);
            Ok((Vec::new(), Stages { to_device: CALL, compute: CALL, to_host: CALL }))
        }
        fn placement(&self) -> Placement {
            Placement::default()
        }
        fn has_own_clock(&self) -> bool {
            self.has_own_clock
        }
    }

    #[test]
    fn a_delay_of_every_fiftieth_call_shows_in_p99() {
        let mut session = TimedSession::new(Box::new(Delayed::default()), 1);
        let calls = session.call(2000).unwrap();
        let delayed = (CALL + DELAY).as_nanos() as u64;
        // Without calls that other processes interrupted.
        let undisturbed: Vec<u64> = calls.iter().copied().filter(|ns| *ns < 2 * delayed).collect();
        let (mean, _) = mean_and_deviation(&undisturbed);
        let sorted = SortedCalls::new(calls).unwrap();
        assert!(sorted.percentile(0.99) >= delayed && sorted.percentile_upper_bound(0.99).unwrap() >= delayed);
        // The mean does not show calls that take eleven times as long.
        assert!(mean < delayed as f64 / 2.0 && sorted.percentile(0.5) < delayed / 2, "mean {mean} ns");
    }

    #[test]
    fn a_prolonged_call_is_timed_with_what_was_added() {
        let of_other_process = Delayed { has_own_clock: true, ..Delayed::default() };
        for mut session in [
            TimedSession::new(Box::new(Delayed::default()), 1),
            TimedSession::from_host(Box::new(of_other_process), vec![Vec::new(); 4]),
        ] {
            let calls = session.prolonged_call(5, |begin| while begin.elapsed() < DELAY {}).unwrap();
            assert!(calls.iter().all(|&ns| u128::from(ns) >= DELAY.as_nanos()));
        }
    }

    #[test]
    fn calls_from_host_to_host_are_timed_as_a_whole_and_keep_their_parts() {
        let mut session = TimedSession::from_host(Box::new(Delayed::default()), vec![Vec::new(); 4]);
        let calls = session.call(3).unwrap();
        assert!(calls.iter().all(|&ns| u128::from(ns) >= 3 * CALL.as_nanos()));
        let stages = Stages { to_device: CALL, compute: CALL, to_host: CALL };
        assert_eq!(session.take_parts(), [CallParts { preprocess: None, stages, postprocess: None }; 3]);
        assert!(session.take_parts().is_empty());
    }

    #[test]
    fn there_is_room_for_the_parts_of_a_series_before_its_first_call() {
        let mut session = TimedSession::from_host(Box::new(Delayed::default()), vec![Vec::new(); 4]);
        session.call(300).unwrap();
        // A list that grows during the calls would double its capacity, and copy the parts of all earlier calls.
        assert!((300..512).contains(&session.parts.capacity()), "{}", session.parts.capacity());
    }
}
