//! A job: what was asked for, how far it is, and who waits for it.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, MutexGuard};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::asked::Asked;

/// How far a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It waits for its turn, or for another measurement on this machine.
    #[default]
    Queued,
    Running,
    /// It came to its end; its records are in the history.
    Done,
    /// It has no records; the message says why.
    Failed,
    Cancelled,
    /// The server was ended first. Cases that were finished are in the history.
    Interrupted,
}

impl State {
    pub fn is_over(self) -> bool {
        !matches!(self, State::Queued | State::Running)
    }
}

/// A job as clients see it, and as it is kept.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct JobStatus {
    /// It is also the id of the run.
    pub id: String,
    pub state: State,
    pub asked: Asked,
    pub submitted: Timestamp,
    pub started: Option<Timestamp>,
    pub finished: Option<Timestamp>,
    /// How many jobs are before it: 0 for the one that runs.
    pub place: Option<usize>,
    /// About how long it waits for its turn.
    pub expected_wait_s: Option<f64>,
    /// The number of cases; unknown before the run is planned.
    pub cases: Option<usize>,
    pub finished_cases: usize,
    /// The case that is measured now.
    pub current: Option<String>,
    /// About how long the cases take that are left.
    pub time_left: Option<String>,
    /// Why it waits, failed, or was not finished.
    pub message: Option<String>,
}

/// Something that happened to a job; the number is its place in the list of events.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct JobEvent {
    /// `state`, `planned`, `case` or `left`.
    pub kind: &'static str,
    pub data: Value,
}

#[derive(Debug, Default)]
struct Inner {
    status: JobStatus,
    events: Vec<JobEvent>,
}

#[derive(Debug, Default)]
pub struct Job {
    inner: Mutex<Inner>,
    changed: watch::Sender<usize>,
    cancelled: watch::Sender<bool>,
    /// Clients that wait for the answer.
    pub waiting: AtomicUsize,
    /// Whether it goes on without a client that waits.
    pub is_detached: AtomicBool,
}

impl Job {
    pub fn new(status: JobStatus) -> Self {
        Job { inner: Mutex::new(Inner { status, events: Vec::new() }), ..Job::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn id(&self) -> String {
        self.inner().status.id.clone()
    }

    pub fn status(&self) -> JobStatus {
        self.inner().status.clone()
    }

    pub fn state(&self) -> State {
        self.inner().status.state
    }

    /// Changes the status, and tells those who follow the job.
    pub fn update(&self, change: impl FnOnce(&mut JobStatus)) {
        let mut inner = self.inner();
        change(&mut inner.status);
        let data = json!(inner.status);
        inner.events.push(JobEvent { kind: "state", data });
        self.changed.send_replace(inner.events.len());
    }

    /// Adds an event, and changes the status without telling so.
    pub fn tell(&self, kind: &'static str, data: Value, change: impl FnOnce(&mut JobStatus)) {
        let mut inner = self.inner();
        change(&mut inner.status);
        inner.events.push(JobEvent { kind, data });
        self.changed.send_replace(inner.events.len());
    }

    /// The event at a place. All that follow are not cloned at once: a job of many cases has many, and a measurement may be running.
    pub fn event(&self, place: usize) -> Option<JobEvent> {
        self.inner().events.get(place).cloned()
    }

    pub fn changes(&self) -> watch::Receiver<usize> {
        self.changed.subscribe()
    }

    /// Waits until it is over.
    pub async fn end(&self) {
        let mut changes = self.changes();
        while !self.state().is_over() && changes.changed().await.is_ok() {}
    }

    pub fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    pub fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Waits until somebody cancels it.
    pub async fn cancellation(&self) {
        let mut cancelled = self.cancelled.subscribe();
        let _ = cancelled.wait_for(|is_cancelled| *is_cancelled).await;
    }
}
