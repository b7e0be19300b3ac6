//! Known service times, with which theory can check a measurement.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::run_data::ServiceTime;
use crate::selection::values::duration;
use crate::statistics::uniform;

/// An odd number whose products with small numbers are far apart: π's first digits in hexadecimal.
const APART_FROM_ARRIVALS: u64 = 0x243F_6A88_85A3_08D3;

/// Service times, one after the other.
pub struct Draws {
    service: ServiceTime,
    state: u64,
    calls: u64,
}

impl Draws {
    pub fn new(service: ServiceTime, seed: u64) -> Self {
        Draws { service, state: seed, calls: 0 }
    }

    /// The service times of a session of a load test. They differ by seed and session, and are independent of the
    /// arrivals.
    pub fn of_session(service: ServiceTime, seed: u64, session: usize) -> Self {
        let mut state = seed ^ APART_FROM_ARRIVALS;
        let mixed = uniform(&mut state).to_bits().wrapping_add(session as u64);
        Draws::new(service, mixed.wrapping_mul(APART_FROM_ARRIVALS))
    }
}

impl Iterator for Draws {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.calls += 1;
        let seconds = match self.service {
            ServiceTime::Exponential(mean) => -mean * uniform(&mut self.state).ln(),
            ServiceTime::Stalling { stall, every, .. } if self.calls.is_multiple_of(every) => stall,
            ServiceTime::Constant(seconds) | ServiceTime::Stalling { seconds, .. } => seconds,
        };
        Some(Duration::from_secs_f64(seconds))
    }
}

/// Reads `2ms`, `exponential:2ms`, or `0.5ms+100ms/1000`: every 1,000th call takes 100 ms.
///
/// # Errors
/// It is none of these.
pub fn parse_service(text: &str) -> Result<ServiceTime> {
    if let Some(mean) = text.strip_prefix("exponential:") {
        return Ok(ServiceTime::Exponential(duration(mean)?));
    }
    let Some((usual, stalls)) = text.split_once('+') else { return Ok(ServiceTime::Constant(duration(text)?)) };
    let (stall, every) = stalls.split_once('/').context("write it as 0.5ms+100ms/1000")?;
    let every = every.parse().ok().filter(|every: &u64| *every > 0);
    let every = every.context("the number of calls per stall is a whole number from 1 on, as in 0.5ms+100ms/1000")?;
    Ok(ServiceTime::Stalling { seconds: duration(usual)?, stall: duration(stall)?, every })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_times_are_those_that_are_written() {
        let first = |text: &str, count: usize| -> Vec<f64> {
            Draws::new(parse_service(text).unwrap(), 1).take(count).map(|time| time.as_secs_f64()).collect()
        };
        assert_eq!(first("2ms", 2), [0.002, 0.002]);
        assert_eq!(first("500us+0.1s/3", 4), [0.0005, 0.0005, 0.1, 0.0005]);
        let drawn = first("exponential:2ms", 100_000);
        assert!((crate::statistics::mean(&drawn) - 0.002).abs() < 2e-5);
        let of = |seed, session| -> Vec<Duration> {
            Draws::of_session(ServiceTime::Exponential(0.002), seed, session).take(5).collect()
        };
        let all: Vec<Vec<Duration>> = (0..50).flat_map(|seed| (0..4).map(move |session| of(seed, session))).collect();
        assert!(all.iter().enumerate().all(|(place, one)| !all[..place].contains(one)));
        assert_eq!(of(3, 1), of(3, 1));
        for wrong in ["", "2", "normal:2ms", "1ms+2ms", "1ms+2ms/0", "-1ms"] {
            assert!(parse_service(wrong).is_err(), "{wrong:?}");
        }
    }
}
