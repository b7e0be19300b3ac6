//! The pilot: calls after the warm-up whose scatter says how many calls an interval of a given width takes.

use super::timed_calls::TimedSession;
use crate::definition::{CaseFailure, Effort};

/// Part of the budget that a pilot may take.
const SHARE: f64 = 0.1;
const FEWEST_CALLS: f64 = 10.0;
const MOST_CALLS: f64 = 1000.0;

/// The calls of a pilot, in nanoseconds; none where no interval was asked for.
///
/// # Errors
/// A call fails.
pub fn pilot(session: &mut TimedSession, effort: &Effort, call_ns: u64) -> Result<Vec<u64>, CaseFailure> {
    if effort.until_interval.is_none() {
        return Ok(Vec::new());
    }
    let affordable = SHARE * effort.budget_seconds * 1e9 / call_ns.max(1) as f64;
    let calls = affordable.clamp(FEWEST_CALLS, MOST_CALLS) as u64;
    Ok(session.call(calls)?.as_nanoseconds().to_vec())
}
