//! Compares the clock of an external worker with that of this process.
//!
//! At both ends of the comparison, the process is asked for its time several times, and the fastest answer counts: its
//! delay bounds the error.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;

use super::process::OutsideProcess;
use crate::definition::CaseFailure;

/// The largest accepted relative difference between the speeds of two clocks.
const TOLERANCE: f64 = 0.01;
/// The shortest time over which clocks are compared.
pub(super) const LEAST: Duration = Duration::from_millis(200);
const LOOKS: usize = 5;

#[derive(Deserialize)]
struct ClockAnswer {
    ns: u64,
}

/// One reading of both clocks.
pub(super) struct Look {
    own: Instant,
    other_ns: u64,
    /// How long the answer took. The other clock was read within this time.
    delay: Duration,
}

impl Look {
    /// Reads both clocks several times, and returns the reading with the shortest delay.
    ///
    /// # Errors
    /// The process does not answer.
    pub(super) fn at(process: &mut OutsideProcess) -> Result<Self, CaseFailure> {
        let mut look = || -> Result<Look, CaseFailure> {
            let begin = Instant::now();
            let (ClockAnswer { ns }, _) = process.ask(&json!({ "verb": "clock" }), &[])?;
            let delay = begin.elapsed();
            Ok(Look { own: begin + delay / 2, other_ns: ns, delay })
        };
        let mut best = look()?;
        for _ in 1..LOOKS {
            let next = look()?;
            if next.delay < best.delay {
                best = next;
            }
        }
        Ok(best)
    }

    /// Compares the speeds since this reading. Returns by which fraction the other clock is faster, or `None` if it is
    /// too early to say.
    ///
    /// # Errors
    /// The speeds differ by more than 1 % and the error of the readings; the process does not answer.
    pub(super) fn compare(&self, process: &mut OutsideProcess) -> Result<Option<f64>, CaseFailure> {
        if self.own.elapsed() < LEAST {
            return Ok(None);
        }
        let end = Self::at(process)?;
        let own = (end.own - self.own).as_secs_f64();
        let other = (end.other_ns as f64 - self.other_ns as f64) / 1e9;
        let (faster, doubt) = (other / own - 1.0, (self.delay + end.delay).as_secs_f64() / own);
        if faster.abs() > TOLERANCE + doubt {
            return Err(CaseFailure::failed(format!(
                "the clock of {} says {other:.3} s where inferbench's says {own:.3} s: its times cannot be compared with others",
                process.name()
            )));
        }
        Ok(Some(faster))
    }
}
