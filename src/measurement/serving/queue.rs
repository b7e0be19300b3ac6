//! The one queue of a trial: requests wait in it, and sessions take them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Answer, Batching, Expected, Hope, MOST_BY_TIME, Stream, gaps, nanoseconds, resident};
use crate::definition::CaseFailure;
use crate::load::{Served, Trial};

/// A request that no session has taken.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub number: usize,
    /// When the trial began.
    pub begin: Instant,
    /// When it was to arrive.
    pub due: Instant,
    /// When it was issued.
    pub since: Instant,
}

impl Waiting {
    /// The request with its answer, which the whole batch shares.
    pub(super) fn served(self, started: Instant, ended: Instant, batch: usize, answer: &Answer) -> Served {
        let Answer { prompt_tokens, tokens, token_count, pause, has_failed, is_open, .. } = answer;
        let ended = tokens.last().copied().unwrap_or(ended);
        let [scheduled_ns, issued_ns, started_ns, ended_ns, first_token_ns] =
            [self.due, self.since, started, ended, tokens.first().copied().unwrap_or(ended)]
                .map(|moment| nanoseconds(self.begin, moment));
        let batch = if *has_failed { 0 } else { batch };
        let (prompt_tokens, tokens) = (*prompt_tokens, token_count.unwrap_or(tokens.len()));
        Served {
            scheduled_ns,
            issued_ns,
            started_ns,
            ended_ns,
            pause_ns: pause.as_nanos() as u64,
            batch,
            is_open: *is_open,
            first_token_ns,
            prompt_tokens,
            tokens,
        }
    }
}

/// Requests that follow answered ones.
struct Refill {
    next: usize,
    least: usize,
    until: Instant,
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

/// The requests that were answered, by their numbers.
pub(super) type Numbered = Vec<(usize, Served)>;

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    stream: Option<Stream>,
    finished: Numbered,
    token_gaps_ns: Vec<u64>,
    streamed: Option<Trial>,
    refill: Option<Refill>,
    hope: Option<Hope>,
    over: usize,
    is_hopeless: bool,
    /// Whether the trial was cut: its limits ended it, and not its answers.
    is_cut: bool,
    failure: Option<CaseFailure>,
    is_closed: bool,
    /// Requests that sessions are serving.
    in_service: usize,
    /// Sessions that wait. If there are none, nothing is notified, which would cost as much as waking one.
    idle: usize,
    /// The answers that the trial waits for, if it waits.
    awaited: Option<usize>,
}

impl State {
    /// Whether no further request begins: the trial was given up, or a session has failed.
    fn is_ended(&self) -> bool {
        self.is_hopeless || self.failure.is_some()
    }

    fn give_up(&mut self) {
        self.is_hopeless = true;
        self.waiting.clear();
    }

    fn is_over(&self, requests: usize) -> bool {
        self.finished.len() >= requests || self.waiting.is_empty() && self.in_service == 0
    }
}

/// Waits to be woken, for at most `left` if that is limited.
fn wait<'a>(woken: &Condvar, state: MutexGuard<'a, State>, left: Option<Duration>) -> MutexGuard<'a, State> {
    match left {
        Some(left) => woken.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
        None => woken.wait(state).unwrap_or_else(PoisonError::into_inner),
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a trial with room for what is expected.
    pub(super) fn begin(&self, expected: Expected, hope: Option<Hope>) {
        let finished = resident(expected.requests, (0, Served { batch: 1, ..Served::default() }));
        let token_gaps_ns = resident(expected.tokens, 1);
        let mut state = self.lock();
        state.waiting = VecDeque::new();
        (state.finished, state.token_gaps_ns) = (finished, token_gaps_ns);
        (state.hope, state.over, state.refill, state.awaited) = (hope, 0, None, None);
        (state.is_hopeless, state.is_cut) = (false, false);
    }

    /// Lets a request follow each answered one, until there are at least `least` and the time is over. `next` is the
    /// number of the first.
    pub(super) fn refill(&self, next: usize, least: usize, until: Instant) {
        self.lock().refill = Some(Refill { next, least, until });
    }

    /// Adds requests. Returns false if no further requests are wanted; then these are dropped, too.
    pub(super) fn give(&self, requests: impl IntoIterator<Item = Waiting>) -> bool {
        let mut state = self.lock();
        if state.is_ended() {
            return false;
        }
        let before = state.waiting.len();
        state.waiting.extend(requests);
        let is_one = state.waiting.len() == before + 1;
        let has_idle = state.idle > 0;
        drop(state);
        match (has_idle, is_one) {
            (true, true) => self.arrived.notify_one(),
            (true, false) => self.arrived.notify_all(),
            (false, _) => {}
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
            let left = state.waiting.front().map(|oldest| batching.delay.saturating_sub(oldest.since.elapsed()));
            if left.is_some_and(|left| state.waiting.len() >= batching.most || left.is_zero()) {
                let count = state.waiting.len().min(batching.most);
                state.in_service += count;
                return Some(Work::Requests(state.waiting.drain(..count).collect()));
            }
            state.idle += 1;
            state = wait(&self.arrived, state, left);
            state.idle -= 1;
        }
    }

    /// Notes the answers of one call.
    pub(super) fn finish(&self, requests: &[Waiting], started: Instant, ended: Instant, answer: &Answer) {
        let mut state = self.lock();
        let batch = requests.len();
        state.in_service -= batch;
        if answer.is_unsent {
            state.is_cut = true;
            state.give_up();
            drop(state);
            self.ended.notify_one();
            return;
        }
        state.token_gaps_ns.extend(gaps(&answer.tokens));
        for &request in requests {
            let served = request.served(started, ended, batch, answer);
            if let Some(Hope { bounds, most_over }) = state.hope {
                state.over += usize::from(bounds.are_broken_by(&served));
                if state.over > most_over {
                    state.give_up();
                }
            }
            state.finished.push((request.number, served));
        }
        let State { refill, waiting, is_hopeless, is_cut, .. } = &mut *state;
        if let Some(refill) = refill.as_mut().filter(|_| !*is_hopeless) {
            // The next request is due now, not when the answer was complete: a user may look at the answer, or wait
            // because a server asked for it, and the request is not late for that.
            let now = Instant::now();
            for &Waiting { begin, .. } in requests {
                let is_wanted = refill.next < refill.least || now < refill.until;
                let has_room = refill.next < MOST_BY_TIME;
                *is_cut |= is_wanted && !has_room;
                if is_wanted && has_room {
                    waiting.push_back(Waiting { number: refill.next, begin, due: now, since: now });
                    refill.next += 1;
                }
            }
        }
        let is_over = state.awaited.is_some_and(|requests| state.is_over(requests));
        drop(state);
        if is_over {
            self.ended.notify_one();
        }
    }

    pub(super) fn end_stream(&self, trial: Trial) {
        self.lock().streamed = Some(trial);
        self.ended.notify_one();
    }

    pub(super) fn wait_for_stream(&self) -> Result<Trial, CaseFailure> {
        let mut state = self.lock();
        loop {
            if let Some(failure) = state.failure.clone() {
                return Err(failure);
            }
            if let Some(trial) = state.streamed.take() {
                return Ok(trial);
            }
            state = wait(&self.ended, state, None);
        }
    }

    /// Waits for this many answers, or until the deadline, and returns them with the gaps between their tokens. At the
    /// deadline, waiting requests are dropped, and those that sessions are serving are waited for.
    pub(super) fn wait_until_finished(
        &self,
        requests: usize,
        deadline: Option<Instant>,
    ) -> Result<(Numbered, Vec<u64>), CaseFailure> {
        let mut state = self.lock();
        loop {
            if let Some(failure) = state.failure.clone() {
                return Err(failure);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                state.waiting.clear();
            }
            if state.is_over(requests) {
                state.awaited = None;
                let State { finished, token_gaps_ns, .. } = &mut *state;
                return Ok((std::mem::take(finished), std::mem::take(token_gaps_ns)));
            }
            state.awaited = Some(requests);
            state = wait(&self.ended, state, left.filter(|left| !left.is_zero()));
        }
    }

    /// Ends the trial: no further request begins.
    pub(super) fn give_up(&self) {
        self.lock().give_up();
        self.ended.notify_one();
    }

    /// Ends the trial because of a limit that has nothing to do with the answers.
    pub(super) fn cut(&self) {
        self.lock().is_cut = true;
        self.give_up();
    }

    /// Whether a limit has ended the trial.
    pub(super) fn is_cut(&self) -> bool {
        self.lock().is_cut
    }

    /// Whether no further request begins, because the trial was given up or a session has failed.
    pub(super) fn is_ended(&self) -> bool {
        self.lock().is_ended()
    }

    /// The trial with how it ended.
    pub(super) fn ended(&self, trial: Trial) -> Trial {
        let state = self.lock();
        Trial { ended_early: state.is_hopeless && !state.is_cut, is_cut: state.is_cut, ..trial }
    }

    /// Notes that a session has failed, and the trial with it.
    pub(super) fn fail(&self, failure: CaseFailure) {
        self.lock().failure = Some(failure);
        self.ended.notify_one();
    }

    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_all();
    }
}
