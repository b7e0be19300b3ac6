//! What became of the requests of a trial.

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
}

impl Served {
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
}

/// The requests of a trial in the order of their arrival.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    pub served: Vec<Served>,
    /// What issued the requests. Absent if the sessions took one request after the other by themselves.
    pub generator: Option<Generator>,
    /// Whether it was ended because it could not pass any more.
    pub ended_early: bool,
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
            (before + 1) - started.partition_point(|&start| start <= request.issued_ns).min(before + 1)
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
