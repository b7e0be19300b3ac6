//! A job: what was requested, its progress, and the clients that wait for it.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, MutexGuard};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::asked::Asked;

/// The state of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It waits for its turn, or for another measurement on this machine.
    #[default]
    Queued,
    Running,
    /// It came to its end; its records are in the history.
    Done,
    /// It did not come to its end, and the message says why. Cases that were finished are in the history.
    Failed,
    Cancelled,
    /// The server ended before the job did. Cases that were finished are in the history.
    Interrupted,
}

impl State {
    pub fn is_over(self) -> bool {
        !matches!(self, State::Queued | State::Running)
    }
}

/// A job as clients see it, and as its file stores it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct JobStatus {
    /// Also the id of the run.
    pub id: String,
    pub state: State,
    pub asked: Asked,
    pub submitted: Timestamp,
    pub started: Option<Timestamp>,
    pub finished: Option<Timestamp>,
    /// How many jobs are before it: 0 for the one that runs.
    pub place: Option<usize>,
    /// The expected wait for its turn, in seconds.
    pub expected_wait_s: Option<f64>,
    /// The number of cases; unknown before the run is planned.
    pub cases: Option<usize>,
    pub finished_cases: usize,
    /// The case that is measured now.
    pub current: Option<String>,
    /// The expected time for the remaining cases, such as `12 s`.
    pub time_left: Option<String>,
    /// Why it waits, failed, or was not finished.
    pub message: Option<String>,
}

/// An event of a job. Its id is its place in the job's list of events.
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
    /// Whether it continues without a waiting client.
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

    /// Changes the status, and adds it as an event.
    pub fn update(&self, change: impl FnOnce(&mut JobStatus)) {
        let mut inner = self.inner();
        change(&mut inner.status);
        let data = json!(inner.status);
        inner.events.push(JobEvent { kind: "state", data });
        self.changed.send_replace(inner.events.len());
    }

    /// Adds this event, and changes the status without an event of its own.
    pub fn tell(&self, kind: &'static str, data: Value, change: impl FnOnce(&mut JobStatus)) {
        let mut inner = self.inner();
        change(&mut inner.status);
        inner.events.push(JobEvent { kind, data });
        self.changed.send_replace(inner.events.len());
    }

    /// The event at a place. Cloning all events of a large job at once could disturb a running measurement.
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
