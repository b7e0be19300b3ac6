//! The requests of a trial, and how they were answered.

use super::soak::Moment;
use crate::run_data::LoadTerms;

/// A request: its times in nanoseconds from the beginning of the trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// When it was scheduled to arrive.
    pub scheduled_ns: u64,
    /// When the generator issued it.
    pub issued_ns: u64,
    /// When a session began to process it.
    pub started_ns: u64,
    /// When its answer arrived, or when the trial ended without one.
    pub ended_ns: u64,
    /// How long its user waited then, because the server had asked for it.
    pub pause_ns: u64,
    /// The number of requests in the same call of the session; 0 without an answer.
    pub batch: usize,
    /// Whether the trial was cut before the answer, which would have come at `ended_ns` or later.
    pub is_open: bool,
    /// When the first token of the answer arrived, if it consists of tokens.
    pub first_token_ns: u64,
    /// Tokens of the prompt and of the answer.
    pub prompt_tokens: usize,
    pub tokens: usize,
}

impl Served {
    pub fn is_answered(&self) -> bool {
        self.batch > 0
    }

    /// From the scheduled arrival: a request that waits because others are slow is slow itself (no coordinated
    /// omission).
    pub fn latency_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.scheduled_ns)
    }

    pub fn queue_ns(&self) -> u64 {
        self.started_ns.saturating_sub(self.scheduled_ns)
    }

    pub fn service_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.started_ns)
    }

    pub fn lag_ns(&self) -> u64 {
        self.issued_ns.saturating_sub(self.scheduled_ns)
    }

    /// The time to the first token, from the scheduled time. Returns `None` if the answer has no tokens.
    pub fn ttft_ns(&self) -> Option<u64> {
        (self.tokens > 0).then(|| self.first_token_ns.saturating_sub(self.scheduled_ns))
    }

    /// Whether its several tokens came in one event, so that the time between them is unknown.
    pub fn came_at_once(&self) -> bool {
        self.tokens > 1 && self.ended_ns == self.first_token_ns
    }

    /// The time per output token: from the first to the last one, divided by the number of tokens after the first.
    /// Returns `None` if there are none after the first, or all came at once.
    pub fn tpot_ns(&self) -> Option<f64> {
        let after_first = self.tokens.checked_sub(1).filter(|tokens| *tokens > 0 && !self.came_at_once())?;
        Some(self.ended_ns.saturating_sub(self.first_token_ns) as f64 / after_first as f64)
    }
}

/// The bounds of a load test. A request is good if it keeps all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    pub latency_ms: Option<f64>,
    pub ttft_ms: Option<f64>,
    pub tpot_ms: Option<f64>,
}

impl Bounds {
    pub fn of(terms: &LoadTerms) -> Self {
        Bounds { latency_ms: terms.bound_ms, ttft_ms: terms.ttft_bound_ms, tpot_ms: terms.tpot_bound_ms }
    }

    pub fn are_any(&self) -> bool {
        *self != Bounds::default()
    }

    /// Whether the request breaks a bound. Without an answer it does, unless it is open and still within the bound.
    pub fn are_broken_by(&self, request: &Served) -> bool {
        self.part_taken_by(request) > 1.0
    }

    /// The largest ratio of a time of the request to its bound. It is infinite without an answer; an open request
    /// counts with its latency so far.
    pub fn part_taken_by(&self, request: &Served) -> f64 {
        let part = |ns: Option<f64>, bound: Option<f64>| ns.zip(bound).map_or(0.0, |(ns, bound)| ns / 1e6 / bound);
        if request.is_open {
            return part(Some(request.latency_ns() as f64), self.latency_ms);
        }
        if !request.is_answered() || self.tpot_ms.is_some() && request.came_at_once() {
            return f64::INFINITY;
        }
        part(Some(request.latency_ns() as f64), self.latency_ms)
            .max(part(request.ttft_ns().map(|ns| ns as f64), self.ttft_ms))
            .max(part(request.tpot_ns(), self.tpot_ms))
    }
}

/// The requests of a trial in the order of their arrival.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    pub served: Vec<Served>,
    /// The times between two successive tokens of an answer, of all requests.
    pub token_gaps_ns: Vec<u64>,
    /// The state of the process during the trial, if it was watched.
    pub moments: Vec<Moment>,
    /// The generator of the requests. Absent if the sessions took one request after the other by themselves.
    pub generator: Option<Generator>,
    /// Whether it ended because it could no longer pass.
    pub ended_early: bool,
    /// Whether a limit of the whole load test, or the user, ended it.
    pub is_cut: bool,
    /// Energy of the whole processor or GPU during the trial, if known.
    pub energy_j: Option<f64>,
}

/// How the generator of requests ran.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Generator {
    /// Its share of one processor's time. Absent if the system does not report it.
    pub processor_share: Option<f64>,
    /// Whether it ran in the real-time class.
    pub is_real_time: bool,
}

impl Trial {
    /// The largest number of requests that waited for a session at one time, and the number at the last arrival.
    pub fn backlog(&self) -> (usize, usize) {
        let mut started: Vec<u64> = self.served.iter().map(|request| request.started_ns).collect();
        started.sort_unstable();
        let waiting_after = |(before, request): (usize, &Served)| {
            (before + 1).saturating_sub(started.partition_point(|&start| start <= request.issued_ns))
        };
        let mut waiting = self.served.iter().enumerate().map(waiting_after);
        (waiting.clone().max().unwrap_or(0), waiting.next_back().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_what_was_issued_and_has_not_begun() {
        let request = |issued_ns, started_ns| Served { issued_ns, started_ns, ..Served::default() };
        let served = vec![request(0, 0), request(10, 100), request(20, 200), request(30, 300), request(250, 400)];
        assert_eq!(Trial { served, ..Trial::default() }.backlog(), (3, 2));
        assert_eq!(Trial::default().backlog(), (0, 0));
    }
}
