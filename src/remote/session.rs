//! A session of a trial, which sends requests to the server.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::connection::{Connection, Seen};
use super::fault::{Fault, Kind};
use super::limits::Spent;
use super::notes::{Notes, retry_after};
use super::protocol::{Checked, Protocol, Turn};
use super::target::Target;
use crate::definition::CaseFailure;
use crate::measurement::serving::{Answer, Serve};

/// The longest wait before the next request of a closed loop, however long the server asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Sends each request on an idle connection, or on a new one.
pub struct Session<'a> {
    /// Connections without a request. The last used one is taken first, so that no more are open than needed: some
    /// servers keep a thread for each.
    pub idle: &'a Mutex<Vec<Connection>>,
    /// Makes a connection that is not open yet.
    pub connection: &'a (dyn Fn() -> io::Result<Connection> + Sync),
    pub target: &'a Target,
    pub protocol: &'a dyn Protocol,
    pub spent: &'a Spent,
    pub notes: &'a Mutex<Notes>,
    /// Whether requests follow answers, so that a request may wait as long as the server asks.
    pub is_closed_loop: bool,
}

impl Session<'_> {
    /// Sends the request with this number, and checks the answer.
    ///
    /// # Errors
    /// There is no right answer. The server's words are shortened, and secrets are removed.
    pub fn ask(&mut self, number: usize, seen: &mut Seen) -> Result<Checked, Fault> {
        self.answer(Turn { trial: self.spent.trial(), number }, seen).map_err(|fault| self.target.cleaned(fault))
    }

    fn answer(&mut self, turn: Turn, seen: &mut Seen) -> Result<Checked, Fault> {
        let call = self.protocol.call(turn);
        let mut reader = self.protocol.reader(turn);
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut connection = match taken {
            Some(connection) => connection,
            None => (self.connection)().map_err(|error| Fault::new(Kind::Unreachable, error.to_string()))?,
        };
        let answered = connection.exchange(&call, seen, reader.as_mut());
        idle().push(connection);
        answered?;
        reader.check(seen)
    }
}

impl Serve for Session<'_> {
    fn serve(&mut self, first: usize, _: usize) -> Result<Answer, CaseFailure> {
        if !self.spent.take_request() {
            return Ok(Answer { is_unsent: true, ..Answer::default() });
        }
        let mut seen = Seen::default();
        let begin = Instant::now();
        self.spent.begin();
        let mut checked = self.ask(first, &mut seen);
        self.spent.end();
        let fault = checked.as_ref().err();
        self.spent.note(fault.is_some_and(|fault| fault.kind.is_absence()));
        let ended = seen.ended;
        {
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes.add(&seen, fault);
            if let Ok(checked) = &mut checked {
                notes.add_tokens(checked.whole, checked.tokens_by.take());
                notes.add_rows(checked.lacks_rows);
            }
        }
        match checked {
            Ok(Checked { prompt_tokens, tokens, token_count, .. }) => {
                Ok(Answer { prompt_tokens, tokens, token_count, ended, ..Answer::default() })
            }
            Err(fault) if fault.kind == Kind::Interrupted => {
                Ok(Answer { ended: Some(Instant::now()), has_failed: true, is_open: true, ..Answer::default() })
            }
            Err(fault) => {
                let ended = ended.unwrap_or_else(Instant::now).max(begin);
                let asked = retry_after(&seen.headers).filter(|_| fault.kind == Kind::Busy && self.is_closed_loop);
                let pause = asked.map(|asked| {
                    self.spent.rest(asked.min(LONGEST_PAUSE));
                    ended.elapsed()
                });
                let pause = pause.unwrap_or_default();
                Ok(Answer { ended: Some(ended), pause, has_failed: true, ..Answer::default() })
            }
        }
    }
}
