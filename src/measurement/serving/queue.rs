//! The one queue of a trial: requests wait in it, and sessions take them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::{Batching, Hope, Stream};
use crate::definition::CaseFailure;
use crate::load::Served;

/// A request that no session has taken.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub number: usize,
    /// When it was to arrive.
    pub due: Instant,
    /// When it was issued.
    pub since: Instant,
}

/// A request that was answered.
pub(super) struct Finished {
    pub number: usize,
    pub started: Instant,
    pub ended: Instant,
    pub batch: usize,
}

/// What a session does next.
pub(super) enum Work {
    Requests(Vec<Waiting>),
    Stream(Stream),
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Sessions wait for it.
    arrived: Condvar,
    /// The trial waits for it.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    stream: Option<Stream>,
    finished: Vec<Finished>,
    streamed: Option<Vec<Served>>,
    hope: Option<Hope>,
    over: usize,
    is_hopeless: bool,
    failure: Option<CaseFailure>,
    is_closed: bool,
    /// Requests that sessions are at.
    in_service: usize,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a trial with room for so many requests.
    pub(super) fn begin(&self, requests: usize, hope: Option<Hope>) {
        let mut state = self.lock();
        state.waiting = VecDeque::with_capacity(requests);
        state.finished = Vec::with_capacity(requests);
        (state.hope, state.over, state.is_hopeless) = (hope, 0, false);
    }

    /// Takes requests up. Returns whether further ones are wanted.
    pub(super) fn give(&self, requests: impl IntoIterator<Item = Waiting>) -> bool {
        let mut state = self.lock();
        if state.is_hopeless || state.failure.is_some() {
            return false;
        }
        let before = state.waiting.len();
        state.waiting.extend(requests);
        let is_one = state.waiting.len() == before + 1;
        drop(state);
        if is_one {
            self.arrived.notify_one()
        } else {
            self.arrived.notify_all()
        }
        true
    }

    pub(super) fn give_stream(&self, stream: Stream) {
        self.lock().stream = Some(stream);
        self.arrived.notify_one();
    }

    /// Waits for work. Returns `None` if there will be no more.
    pub(super) fn take(&self, batching: Batching) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(stream) = state.stream.take() {
                return Some(Work::Stream(stream));
            }
            let Some(oldest) = state.waiting.front() else {
                state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = batching.delay.saturating_sub(oldest.since.elapsed());
            if state.waiting.len() >= batching.most || left.is_zero() {
                let count = state.waiting.len().min(batching.most);
                state.in_service += count;
                return Some(Work::Requests(state.waiting.drain(..count).collect()));
            }
            state = self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Notes the answers of one call.
    pub(super) fn finish(&self, requests: &[Waiting], started: Instant, ended: Instant) {
        let mut state = self.lock();
        let batch = requests.len();
        state.in_service -= batch;
        state.finished.extend(requests.iter().map(|it| Finished { number: it.number, started, ended, batch }));
        if let Some(Hope { bound, most_over }) = state.hope {
            state.over += requests.iter().filter(|request| ended.duration_since(request.due) > bound).count();
            if state.over > most_over {
                state.is_hopeless = true;
                state.waiting.clear();
            }
        }
        drop(state);
        self.ended.notify_one();
    }

    pub(super) fn end_stream(&self, served: Vec<Served>) {
        self.lock().streamed = Some(served);
        self.ended.notify_one();
    }

    pub(super) fn wait_for_stream(&self) -> Result<Vec<Served>, CaseFailure> {
        let mut state = self.lock();
        loop {
            if let Some(failure) = state.failure.clone() {
                return Err(failure);
            }
            if let Some(served) = state.streamed.take() {
                return Ok(served);
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for so many answers, or until the deadline. What waits then is dropped; what a session is at is waited for.
    pub(super) fn wait_until_finished(
        &self,
        requests: usize,
        deadline: Option<Instant>,
    ) -> Result<Vec<Finished>, CaseFailure> {
        let mut state = self.lock();
        loop {
            if let Some(failure) = state.failure.clone() {
                return Err(failure);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                state.waiting.clear();
            }
            let is_over = state.finished.len() >= requests || state.waiting.is_empty() && state.in_service == 0;
            if is_over {
                return Ok(std::mem::take(&mut state.finished));
            }
            state = match left.filter(|left| !left.is_zero()) {
                Some(left) => self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.ended.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    pub(super) fn is_hopeless(&self) -> bool {
        self.lock().is_hopeless
    }

    /// A session has failed, so that the trial has.
    pub(super) fn fail(&self, failure: CaseFailure) {
        self.lock().failure = Some(failure);
        self.ended.notify_one();
    }

    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_all();
    }
}
