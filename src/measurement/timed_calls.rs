//! The timed region: one pair of clock reads a call, and nothing else between them.

use std::time::Instant;

use super::call_times::CallTimes;
use crate::backend::{Session, Stages};
use crate::definition::Shortfall;
use crate::fixture::HostTensor;

/// A session with its ring of bound batches; calls go round the ring, as many at a time as belong together.
pub struct TimedSession {
    session: Box<dyn Session>,
    ring: usize,
    binding: usize,
    /// Calls that the binding has left before it is the next one's turn.
    left: usize,
    /// The batches on the host, where calls begin and end there.
    host: Option<Vec<Vec<HostTensor>>>,
    stages: Vec<Stages>,
}

impl TimedSession {
    /// `ring` is the number of batches that are bound, 0 to `ring - 1`.
    pub fn new(session: Box<dyn Session>, ring: usize) -> Self {
        TimedSession { session, ring, binding: ring - 1, left: 0, host: None, stages: Vec::new() }
    }

    /// The same with calls from host to host; `batches` are those that are bound.
    pub fn from_host(session: Box<dyn Session>, batches: Vec<Vec<HostTensor>>) -> Self {
        let session = TimedSession::new(session, batches.len());
        TimedSession { host: Some(batches), ..session }
    }

    /// Makes `calls` timed calls.
    ///
    /// # Errors
    /// The first call that fails ends the series.
    pub fn call(&mut self, calls: u64) -> Result<CallTimes, Shortfall> {
        let mut times = CallTimes::with_capacity(calls);
        for _ in 0..calls {
            if self.left == 0 {
                self.binding = if self.binding + 1 == self.ring { 0 } else { self.binding + 1 };
                self.left = self.session.calls_in_a_row();
                self.session.rewind(self.binding);
            }
            self.left -= 1;
            let elapsed = if let Some(batches) = &self.host {
                let inputs = &batches[self.binding];
                let start = Instant::now();
                let stages = self.session.call_from_host(self.binding, inputs)?;
                let elapsed = start.elapsed();
                self.stages.push(stages);
                elapsed
            } else {
                let start = Instant::now();
                self.session.run(self.binding)?;
                self.session.sync()?;
                start.elapsed()
            };
            times.push(elapsed);
        }
        Ok(times)
    }

    /// The parts of the calls since this was last asked, where they go from host to host.
    pub fn take_stages(&mut self) -> Vec<Stages> {
        std::mem::take(&mut self.stages)
    }

    pub fn session(&mut self) -> &mut dyn Session {
        &mut *self.session
    }
}
