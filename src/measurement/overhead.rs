//! What the harness itself costs: two clock reads, and a call of the null backend.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::call_times::{CallTimes, nanoseconds, room_for};
use super::timed_calls::TimedSession;
use crate::backend::{NullSession, Session};
use crate::definition::{CaseFailure, Dtype};
use crate::fixture::{HostTensor, RING, TensorData};
use crate::statistics::median;

const CALLS: u64 = 100_000;

/// Medians over pairs of alternating measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// The two clock reads of a call, with nothing between them.
    pub clock_reads_ns: f64,
    /// A call of the null backend.
    pub null_call_ns: f64,
    /// The median of the pairs' ratios: a change of the processor's speed affects both measurements of a pair.
    pub null_call_ratio: f64,
}

/// Measures pairs for at least this long, and at least three pairs.
pub fn measure(at_least_for: Duration) -> Result<Overhead, CaseFailure> {
    let mut session = null_session()?;
    let per_call = |start: Instant| start.elapsed().as_secs_f64() * 1e9 / CALLS as f64;
    let mut pairs = Vec::new();
    let begin = Instant::now();
    while pairs.len() < 3 || begin.elapsed() < at_least_for {
        let start = Instant::now();
        black_box(clock_reads(CALLS));
        let clock = per_call(start);
        let start = Instant::now();
        black_box(session.call(CALLS)?);
        pairs.push((clock, per_call(start)));
    }
    let median_of = |figure: fn(&(f64, f64)) -> f64| {
        // There are at least three pairs.
        median(&pairs.iter().map(figure).collect::<Vec<f64>>()).unwrap_or(f64::NAN)
    };
    Ok(Overhead {
        clock_reads_ns: median_of(|(clock, _)| *clock),
        null_call_ns: median_of(|(_, call)| *call),
        null_call_ratio: median_of(|(clock, call)| call / clock),
    })
}

/// The timed region with nothing in it, stored like a call.
pub fn clock_reads(calls: u64) -> CallTimes {
    let mut times = room_for(calls);
    for _ in 0..calls {
        let start = Instant::now();
        times.push(nanoseconds(start.elapsed()));
    }
    times
}

/// A session of the null backend with a ring of bound inputs, as the harness makes it.
///
/// # Errors
/// Never: the null backend binds anything.
pub fn null_session() -> Result<TimedSession, CaseFailure> {
    let mut session = NullSession::new(Dtype::F32);
    let input = HostTensor { shape: vec![1], data: TensorData::F32(vec![0.0]) };
    for _ in 0..RING {
        session.bind(std::slice::from_ref(&input))?;
    }
    Ok(TimedSession::new(Box::new(session), RING))
}
