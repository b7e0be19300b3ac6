//! The limits of a load test of a server. They always apply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::fault::{Fault, Kind};
use crate::harness::is_interrupted;

/// A load test ends after this many requests in a row found no server to talk to.
const MOST_IN_A_ROW: usize = 100;
/// How often the limits are checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The most bytes of answers that all connections hold at the same time.
const MOST_HELD: usize = 1 << 30;
/// How long requests in flight may still take after the load test is over.
const FAREWELL: Duration = Duration::from_secs(1);

/// The limits of a load test.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub time: Duration,
    pub requests: usize,
    /// Requests per second.
    pub rate: f64,
    pub connections: usize,
    /// How long a request may take.
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

/// How much of the limits a load test has used.
pub struct Spent {
    limits: Limits,
    begin: Instant,
    requests: AtomicUsize,
    /// Whether more requests were needed than are allowed.
    wants_more: AtomicBool,
    held: Arc<AtomicUsize>,
    /// Trials that have begun.
    trials: AtomicUsize,
    /// Requests in a row that found no server to talk to.
    absences: AtomicUsize,
    is_over: AtomicBool,
    /// Requests in flight, and the most at the same time.
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
            wants_more: AtomicBool::new(false),
            held: Arc::default(),
            trials: AtomicUsize::new(0),
            absences: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            on_their_way: AtomicUsize::new(0),
            most_on_their_way: AtomicUsize::new(0),
            stop: watch::Sender::new(false),
        }
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Receives `true` when requests in flight have to end.
    pub fn stop(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Counts a request. Returns false if no more are allowed.
    pub fn take_request(&self) -> bool {
        let is_left = |taken: usize| (taken < self.limits.requests).then_some(taken + 1);
        let taken = self.requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_left);
        self.wants_more.fetch_or(taken.is_err(), Ordering::Relaxed);
        taken.is_ok()
    }

    /// The number of the trial: 0 before the first one.
    pub fn trial(&self) -> usize {
        self.trials.load(Ordering::Relaxed)
    }

    pub fn begin_trial(&self) {
        self.trials.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that may still be sent.
    pub fn requests_left(&self) -> usize {
        self.limits.requests.saturating_sub(self.requests.load(Ordering::Relaxed))
    }

    /// Whether fewer than `requests` are left, or another limit is reached. The load test is over then.
    pub fn lacks(&self, requests: usize) -> bool {
        self.wants_more.fetch_or(requests > self.requests_left(), Ordering::Relaxed);
        self.is_over()
    }

    /// A counter for the bytes of an answer.
    pub fn hold(&self) -> Held {
        Held { of_all: self.held.clone(), own: 0 }
    }

    /// Notes that a request was sent.
    pub fn begin(&self) {
        let now = self.on_their_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_on_their_way.fetch_max(now, Ordering::Relaxed);
    }

    /// Notes that a request has ended.
    pub fn end(&self) {
        self.on_their_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// The most requests in flight at the same time since the last call.
    pub fn take_most(&self) -> usize {
        self.most_on_their_way.swap(0, Ordering::Relaxed)
    }

    /// Notes whether a request found no server to talk to.
    pub fn note(&self, is_absent: bool) {
        if is_absent {
            self.absences.fetch_add(1, Ordering::Relaxed);
        } else if self.absences.load(Ordering::Relaxed) > 0 {
            self.absences.store(0, Ordering::Relaxed);
        }
    }

    /// Why the load test has to end. Returns `None` if it may go on.
    pub fn why_over(&self) -> Option<String> {
        let Limits { time, requests, .. } = self.limits;
        let why = if is_interrupted() {
            "interrupted".to_owned()
        } else if self.begin.elapsed() >= time {
            format!("the limit of {} s is reached; `--max-time` raises it", time.as_secs_f64())
        } else if self.wants_more.load(Ordering::Relaxed) {
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

    /// Waits for this time, or until the load test is over.
    pub fn rest(&self, time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time && !self.is_over() {
            thread::sleep(LOOK_EVERY.min(time));
        }
    }

    /// Runs `limited` and watches the limits meanwhile. Once one is reached, calls `end`, which ends the trial.
    pub fn watched<T>(&self, end: &(dyn Fn() + Sync), limited: impl FnOnce() -> T) -> T {
        let has_ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| self.watch(&has_ended, end));
            let _ending = Ending(&has_ended);
            limited()
        })
    }

    fn watch(&self, has_ended: &AtomicBool, end: &(dyn Fn() + Sync)) {
        let mut over_since: Option<Instant> = None;
        while !has_ended.load(Ordering::Relaxed) {
            if self.is_over() {
                end();
                let since = *over_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= FAREWELL {
                    self.stop.send_replace(true);
                }
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// Ends the watch when it is dropped.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The bytes of an answer. Those of all connections count together until this is dropped.
#[derive(Debug)]
pub struct Held {
    of_all: Arc<AtomicUsize>,
    own: usize,
}

impl Held {
    /// Counts bytes that have come.
    ///
    /// # Errors
    /// All connections together hold more than a gigabyte.
    pub fn add(&mut self, bytes: usize) -> Result<(), Fault> {
        self.own += bytes;
        if self.of_all.fetch_add(bytes, Ordering::Relaxed) + bytes <= MOST_HELD {
            return Ok(());
        }
        Err(Fault::new(Kind::TooLarge, format!("the answers in flight have more than {MOST_HELD} bytes together")))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of_all.fetch_sub(self.own, Ordering::Relaxed);
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
        assert!(few.take_request() && few.take_request());
        // A load test that needs no more requests is not cut.
        assert!(!few.is_over() && few.requests_left() == 0 && !few.lacks(0));
        assert!(!few.take_request());
        assert!(few.why_over().unwrap().contains("2 requests") && few.is_over());
        let fewer = of(Limits { requests: 2, ..Limits::default() });
        assert!(!fewer.lacks(2) && fewer.lacks(3));
        let short = of(Limits { time: Duration::ZERO, ..Limits::default() });
        assert!(short.why_over().unwrap().contains("--max-time"));
        let dead = of(Limits::default());
        (0..MOST_IN_A_ROW - 1).for_each(|_| dead.note(true));
        dead.note(false);
        assert!(!dead.is_over());
        (0..MOST_IN_A_ROW).for_each(|_| dead.note(true));
        assert!(dead.why_over().unwrap().contains("found no server"));
    }

    #[test]
    fn answers_share_the_memory() {
        let spent = Spent::new(Limits::default());
        let (mut one, mut other) = (spent.hold(), spent.hold());
        assert!(one.add(MOST_HELD - 5).is_ok() && other.add(5).is_ok());
        assert_eq!(other.add(1).unwrap_err().kind, Kind::TooLarge);
        drop(other);
        assert!(one.add(5).is_ok());
        drop(one);
        assert!(spent.hold().add(MOST_HELD).is_ok());
    }
}
