//! A session that takes longer than it has to, by a known fraction: a method that finds slow-downs is tried on it.
//!
//! The time is spun away at the end of the call, so it is in the timed region as if the runtime had become slower.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use crate::backend::{Placement, Session, Stages};
use crate::definition::CaseFailure;
use crate::fixture::HostTensor;

/// Another session, slower by a fraction of its own time.
pub struct Slowed {
    session: Box<dyn Session>,
    factor: f64,
    least: Duration,
    started: Instant,
}

impl Slowed {
    /// `ppm` are the millionths that are added to each call; with 0 it costs the same clock reads. Before that, a call takes
    /// `least_ns` at least: slow-downs of calls that are hardly longer than a clock read could not be planted.
    pub fn new(session: Box<dyn Session>, ppm: u32, least_ns: u64) -> Self {
        let (factor, least) = (1.0 + f64::from(ppm) / 1e6, Duration::from_nanos(least_ns));
        Slowed { session, factor, least, started: Instant::now() }
    }

    fn spin(&self) {
        let until = self.started.elapsed().max(self.least).mul_f64(self.factor);
        while self.started.elapsed() < until {
            spin_loop();
        }
    }
}

impl Session for Slowed {
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, CaseFailure> {
        self.session.bind(inputs)
    }

    fn calls_in_a_row(&self) -> usize {
        self.session.calls_in_a_row()
    }

    fn rewind(&mut self, binding: usize) {
        self.session.rewind(binding);
    }

    fn run(&mut self, binding: usize) -> Result<(), CaseFailure> {
        self.started = Instant::now();
        self.session.run(binding)
    }

    fn sync(&mut self) -> Result<(), CaseFailure> {
        self.session.sync()?;
        self.spin();
        Ok(())
    }

    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, CaseFailure> {
        self.session.outputs(binding)
    }

    fn call_from_host(&mut self, binding: usize, inputs: &[HostTensor]) -> Result<Stages, CaseFailure> {
        self.started = Instant::now();
        let stages = self.session.call_from_host(binding, inputs)?;
        self.spin();
        Ok(stages)
    }

    fn compilation(&self) -> Option<Duration> {
        self.session.compilation()
    }

    fn placement(&self) -> Placement {
        self.session.placement()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::TimedSession;

    /// Takes 2 ms.
    struct Sleeping;

    impl Session for Sleeping {
        fn bind(&mut self, _: &[HostTensor]) -> Result<usize, CaseFailure> {
            Ok(0)
        }

        fn run(&mut self, _: usize) -> Result<(), CaseFailure> {
            std::thread::sleep(Duration::from_millis(2));
            Ok(())
        }

        fn sync(&mut self) -> Result<(), CaseFailure> {
            Ok(())
        }

        fn outputs(&mut self, _: usize) -> Result<Vec<HostTensor>, CaseFailure> {
            Ok(Vec::new())
        }

        fn call_from_host(&mut self, _: usize, _: &[HostTensor]) -> Result<Stages, CaseFailure> {
            Err(CaseFailure::unsupported("never called"))
        }

        fn placement(&self) -> Placement {
            Placement::default()
        }
    }

    #[test]
    fn the_timed_call_is_longer_by_the_fraction_that_was_asked_for() {
        let mut session = TimedSession::new(Box::new(Slowed::new(Box::new(Sleeping), 500_000, 0)), 1);
        for call in session.call(5).unwrap().as_nanoseconds() {
            assert!(*call >= 3_000_000, "{call} ns");
        }
    }
}
