//! What became of the requests of a trial.

use super::soak::Moment;
use crate::run_data::LoadTerms;

/// A request: its times in nanoseconds from the beginning of the trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// When it was to arrive.
    pub scheduled_ns: u64,
    /// When the generator had handed it over.
    pub issued_ns: u64,
    /// When a session began with it.
    pub started_ns: u64,
    /// When its answer was there, or when the trial ended without one.
    pub ended_ns: u64,
    /// The requests that the session computed in the same call; 0 if it has no answer.
    pub batch: usize,
    /// Whether the trial was cut before there was an answer, which takes at least until `ended_ns`.
    pub is_open: bool,
    /// When the first token of the answer was there, if it consists of tokens.
    pub first_token_ns: u64,
    /// Tokens of the prompt and of the answer.
    pub prompt_tokens: usize,
    pub tokens: usize,
}

impl Served {
    pub fn is_answered(&self) -> bool {
        self.batch > 0
    }

    /// From the time at which it was to arrive: a request that waits because others are slow is slow itself (no coordinated
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

    /// Whether several tokens came in one event, which says nothing of the time between them.
    pub fn came_at_once(&self) -> bool {
        self.tokens > 1 && self.ended_ns == self.first_token_ns
    }

    /// The time per output token: from the first to the last, divided by the tokens after the first. Returns `None` if there are none, or all
    /// came at once.
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

    /// Whether the request breaks one of them; one without an answer does.
    pub fn are_broken_by(&self, request: &Served) -> bool {
        self.part_taken_by(request) > 1.0
    }

    /// The largest of the request's times in its bound. A request without an answer takes longer than any other.
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
    /// The times between tokens that follow each other in an answer, of all requests.
    pub token_gaps_ns: Vec<u64>,
    /// The state of the process meanwhile, if the trial was watched.
    pub moments: Vec<Moment>,
    /// What issued the requests. Absent if the sessions took one request after the other by themselves.
    pub generator: Option<Generator>,
    /// Whether it was ended because it could not pass any more.
    pub ended_early: bool,
    /// Whether a limit of the whole load test ended it, or its user.
    pub is_cut: bool,
    /// Energy of the whole processor or GPU meanwhile, if that is known.
    pub energy_j: Option<f64>,
}

/// What the generator of requests used itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Generator {
    /// Its part of one processor's time. Absent if the system does not tell.
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
