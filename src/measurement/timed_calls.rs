//! The timed region: one pair of clock reads a call, and nothing else between them.

use std::time::Instant;

use super::call_times::CallTimes;
use crate::backend::Session;
use crate::definition::Shortfall;

/// A session with its ring of bound batches; calls go round the ring.
pub struct TimedSession {
    session: Box<dyn Session>,
    ring: usize,
    next: usize,
}

impl TimedSession {
    /// `ring` is the number of batches that are bound, 0 to `ring - 1`.
    pub fn new(session: Box<dyn Session>, ring: usize) -> Self {
        TimedSession { session, ring, next: 0 }
    }

    /// Makes `calls` timed calls.
    ///
    /// # Errors
    /// The first call that fails ends the series.
    pub fn call(&mut self, calls: u64) -> Result<CallTimes, Shortfall> {
        let mut times = CallTimes::with_capacity(calls);
        for _ in 0..calls {
            let binding = self.next;
            self.next = if binding + 1 == self.ring { 0 } else { binding + 1 };
            let start = Instant::now();
            self.session.run(binding)?;
            self.session.sync()?;
            let elapsed = start.elapsed();
            times.push(elapsed);
        }
        Ok(times)
    }

    pub fn session(&mut self) -> &mut dyn Session {
        &mut *self.session
    }
}
