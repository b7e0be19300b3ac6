//! Profiled sessions: an ordinary session, and a tape that notes the operators of its calls.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use super::interface::{Placement, ProfiledSession, Session};
use super::null::NullSession;
use crate::definition::{CaseFailure, Dtype};
use crate::fixture::HostTensor;
use crate::run_data::{OperatorCall, RecordedCall};

/// Notes the operators of a session's calls.
pub(super) trait Tape {
    /// A call begins. The time of this method counts as a part of the call.
    fn call_begins(&mut self) -> Result<(), CaseFailure>;
    /// The device is idle again.
    fn call_ends(&mut self) -> Result<(), CaseFailure>;
    /// Forgets the calls so far.
    fn begin(&mut self) -> Result<(), CaseFailure>;
    /// The calls since [`begin`](Tape::begin). Drops the session, because some libraries write their profile when it
    /// ends.
    fn end(&mut self, session: Box<dyn Session>) -> Result<Vec<RecordedCall>, CaseFailure>;
}

/// A session with its tape.
pub(super) struct RecordedSession<T> {
    pub session: Box<dyn Session>,
    pub tape: T,
}

impl<T: Tape> Session for RecordedSession<T> {
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, CaseFailure> {
        self.session.bind(inputs)
    }
    fn calls_in_a_row(&self) -> usize {
        self.session.calls_in_a_row()
    }
    fn rewind(&mut self, binding: usize) {
        self.session.rewind(binding);
    }
    fn run(&mut self, binding: usize) -> Result<(), CaseFailure> {
        self.tape.call_begins()?;
        self.session.run(binding)?;
        self.session.sync()?;
        self.tape.call_ends()
    }
    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, CaseFailure> {
        self.session.outputs(binding)
    }
    fn placement(&self) -> Placement {
        self.session.placement()
    }
}

impl<T: Tape> ProfiledSession for RecordedSession<T> {
    fn begin(&mut self) -> Result<(), CaseFailure> {
        self.tape.begin()
    }
    fn end(&mut self) -> Result<Vec<RecordedCall>, CaseFailure> {
        let session = std::mem::replace(&mut self.session, Box::new(NullSession::new(Dtype::F32)));
        self.tape.end(session)
    }
}

/// The tape of a runtime whose operators can be timed one by one. A clone shares it.
#[derive(Clone, Default)]
pub(super) struct Recorder(Rc<RefCell<Recording>>);

#[derive(Default)]
struct Recording {
    calls: Vec<RecordedCall>,
    /// When the running call began.
    call: Option<Instant>,
}

impl Recorder {
    /// Runs and times an operator; `of` gives the other fields. An operator outside of a call is not noted.
    pub fn time<O>(&self, of: impl FnOnce() -> OperatorCall, run: impl FnOnce() -> O) -> O {
        let begin = Instant::now();
        let output = run();
        self.note(begin, of);
        output
    }

    /// Notes an operator that began at `begin` and ends now.
    pub fn note(&self, begin: Instant, of: impl FnOnce() -> OperatorCall) {
        let duration = begin.elapsed();
        let Recording { calls, call } = &mut *self.0.borrow_mut();
        if let (Some(call), Some(recorded)) = (call, calls.last_mut()) {
            let start_ns = Some(begin.saturating_duration_since(*call).as_nanos() as u64);
            let duration_ns = duration.as_nanos() as u64;
            recorded.operators.push(OperatorCall { start_ns, duration_ns, ..of() });
        }
    }
}

impl Tape for Recorder {
    fn call_begins(&mut self) -> Result<(), CaseFailure> {
        let mut recording = self.0.borrow_mut();
        recording.calls.push(RecordedCall { calls: 1, operators: Vec::new() });
        recording.call = Some(Instant::now());
        Ok(())
    }
    fn call_ends(&mut self) -> Result<(), CaseFailure> {
        self.0.borrow_mut().call = None;
        Ok(())
    }
    fn begin(&mut self) -> Result<(), CaseFailure> {
        self.0.borrow_mut().calls.clear();
        Ok(())
    }
    fn end(&mut self, _: Box<dyn Session>) -> Result<Vec<RecordedCall>, CaseFailure> {
        Ok(std::mem::take(&mut self.0.borrow_mut().calls))
    }
}
