//! The timed region: one pair of clock reads a call, and nothing else between them.

use std::time::Instant;

use super::call_times::CallTimes;
use crate::backend::Session;
use crate::definition::Shortfall;

/// A session with its ring of bound batches; calls go round the ring, as many at a time as belong together.
pub struct TimedSession {
    session: Box<dyn Session>,
    ring: usize,
    binding: usize,
    /// Calls that the binding has left before it is the next one's turn.
    left: usize,
}

impl TimedSession {
    /// `ring` is the number of batches that are bound, 0 to `ring - 1`.
    pub fn new(session: Box<dyn Session>, ring: usize) -> Self {
        TimedSession { session, ring, binding: ring - 1, left: 0 }
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
            let start = Instant::now();
            self.session.run(self.binding)?;
            self.session.sync()?;
            let elapsed = start.elapsed();
            times.push(elapsed);
        }
        Ok(times)
    }

    /// The same, with another session around its own.
    pub fn wrapped(self, wrap: impl FnOnce(Box<dyn Session>) -> Box<dyn Session>) -> Self {
        TimedSession { session: wrap(self.session), ..self }
    }

    pub fn session(&mut self) -> &mut dyn Session {
        &mut *self.session
    }
}
