//! What a load test of a server may do at most. There is always a limit.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::harness::is_interrupted;

/// So many requests in a row without a server to talk to end a load test.
const MOST_IN_A_ROW: usize = 100;
/// How often the limits are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long answers may take to come after the user has asked to stop.
const FAREWELL: Duration = Duration::from_secs(1);

/// The limits of a load test.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub time: Duration,
    pub requests: usize,
    /// Requests per second.
    pub rate: f64,
    pub connections: usize,
    /// Of one request.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            time: Duration::from_secs(600),
            requests: 1_000_000,
            rate: 50_000.0,
            connections: 64,
            patience: Duration::from_secs(60),
        }
    }
}

/// How much of the limits is used.
pub struct Spent {
    limits: Limits,
    begin: Instant,
    requests: AtomicUsize,
    /// Requests in a row that had no server to talk to.
    absences: AtomicUsize,
    is_over: AtomicBool,
    /// Requests on their way, now and at most.
    on_their_way: AtomicUsize,
    most_on_their_way: AtomicUsize,
    stop: watch::Sender<bool>,
}

impl Spent {
    pub fn new(limits: Limits) -> Self {
        Spent {
            limits,
            begin: Instant::now(),
            requests: AtomicUsize::new(0),
            absences: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            on_their_way: AtomicUsize::new(0),
            most_on_their_way: AtomicUsize::new(0),
            stop: watch::Sender::new(false),
        }
    }

    /// Is told when requests on their way are to end.
    pub fn stop(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Takes a request from what is allowed. Returns whether there was one left.
    pub fn take_request(&self) -> bool {
        self.requests.fetch_add(1, Ordering::Relaxed) < self.limits.requests
    }

    /// A request is on its way.
    pub fn begin(&self) {
        let now = self.on_their_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_on_their_way.fetch_max(now, Ordering::Relaxed);
    }

    /// A request has come back.
    pub fn end(&self) {
        self.on_their_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// The most requests that were on their way at the same time since this was asked last.
    pub fn take_most(&self) -> usize {
        self.most_on_their_way.swap(0, Ordering::Relaxed)
    }

    /// Notes whether there was a server to talk to.
    pub fn note(&self, is_absent: bool) {
        if is_absent {
            self.absences.fetch_add(1, Ordering::Relaxed);
        } else if self.absences.load(Ordering::Relaxed) > 0 {
            self.absences.store(0, Ordering::Relaxed);
        }
    }

    /// Why the load test has to end, if it has.
    pub fn why_over(&self) -> Option<String> {
        let Limits { time, requests, .. } = self.limits;
        let why = if is_interrupted() {
            "interrupted".to_owned()
        } else if self.begin.elapsed() >= time {
            format!("the limit of {} s is reached; `--max-time` raises it", time.as_secs_f64())
        } else if self.requests.load(Ordering::Relaxed) >= requests {
            format!("the limit of {requests} requests is reached; `--max-requests` raises it")
        } else if self.absences.load(Ordering::Relaxed) >= MOST_IN_A_ROW {
            format!("{MOST_IN_A_ROW} requests in a row found no server")
        } else {
            return None;
        };
        self.is_over.store(true, Ordering::Relaxed);
        Some(why)
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || self.why_over().is_some()
    }

    /// Waits for so long, or until the load test is over.
    pub fn rest(&self, time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time && !self.is_over() {
            std::thread::sleep(LOOK_EVERY.min(time));
        }
    }

    /// Watches the limits until `has_ended` says that the load test is over; lets `end` end a trial that goes beyond one.
    pub fn watch(&self, has_ended: &AtomicBool, end: impl Fn()) {
        let mut over_since: Option<Instant> = None;
        while !has_ended.load(Ordering::Relaxed) {
            if self.is_over() {
                end();
                let since = *over_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= FAREWELL {
                    self.stop.send_replace(true);
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_ends_a_load_test_and_says_so() {
        let of = |limits: Limits| Spent::new(limits);
        let usual = of(Limits::default());
        assert!(usual.take_request() && usual.why_over().is_none());
        let few = of(Limits { requests: 2, ..Limits::default() });
        assert!(few.take_request() && few.take_request() && !few.take_request());
        assert!(few.why_over().unwrap().contains("2 requests") && few.is_over());
        let short = of(Limits { time: Duration::ZERO, ..Limits::default() });
        assert!(short.why_over().unwrap().contains("--max-time"));
        let dead = of(Limits::default());
        (0..MOST_IN_A_ROW - 1).for_each(|_| dead.note(true));
        dead.note(false);
        assert!(!dead.is_over());
        (0..MOST_IN_A_ROW).for_each(|_| dead.note(true));
        assert!(dead.why_over().unwrap().contains("found no server"));
    }
}
