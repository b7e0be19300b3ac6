//! The process of an external worker: starts it, sends it requests, and reports how it ended.
//!
//! The worker leads its own process group. On Linux, the system ends it when this process ends. Its standard error is
//! read continuously; only the last bytes are kept.

use std::any::Any;
use std::collections::VecDeque;
use std::io::{BufReader, Read, Write, stderr};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::frame::{NamedTensors, NoFrame, read_frame, write_frame};
use crate::backend::{DEBUG, is_out_of_memory};
use crate::definition::{CaseFailure, Status};
use crate::fixture::HostTensor;
use crate::machine::memory;
use crate::machine::processes::{adopt, end_group, end_group_after, ending_signal, kill_group, release, tie_to_parent};

/// Bytes kept from the end of its standard error.
const LAST_BYTES: usize = 4096;
/// Characters of its last line that a message quotes.
const LAST_CHARACTERS: usize = 300;
/// How long it may take to end after the request `end`, or after it has closed its output.
const GRACE: Duration = Duration::from_secs(2);

pub(super) struct OutsideProcess {
    name: String,
    child: Child,
    /// `None` once no more requests are sent.
    input: Option<Box<dyn Write>>,
    output: Box<dyn Read>,
    last_bytes: Arc<Mutex<VecDeque<u8>>>,
    listener: thread::JoinHandle<()>,
    kills_before: u64,
    /// How long it may take to end after the request `end`.
    grace: Duration,
    /// Values that are dropped only after the process has ended.
    kept: Vec<Box<dyn Any>>,
}

/// The channels for frames to and from a process that does not use its standard input and output for them.
pub(super) struct Wires {
    pub input: Box<dyn Write>,
    pub output: Box<dyn Read>,
}

impl OutsideProcess {
    /// Starts the process; messages call it `name`.
    ///
    /// # Errors
    /// `unavailable`: the program does not start.
    pub(super) fn start(name: &str, mut command: Command) -> Result<Self, CaseFailure> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self::spawn(name, command, None)
    }

    /// Starts a process that exchanges frames over `wires`. It gets no time to clean up when it is ended.
    ///
    /// # Errors
    /// `unavailable`: the program does not start.
    pub(super) fn start_wired(name: &str, mut command: Command, wires: Wires) -> Result<Self, CaseFailure> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self::spawn(name, command, Some(wires))
    }

    /// A process that has ended and whose output is these frames.
    #[cfg(any(fuzzing, test))]
    pub(super) fn of_frames(frames: Vec<u8>) -> std::io::Result<Self> {
        Ok(OutsideProcess {
            name: "the program".into(),
            child: Command::new("true").spawn()?,
            input: Some(Box::new(std::io::sink())),
            output: Box::new(std::io::Cursor::new(frames)),
            last_bytes: Arc::default(),
            listener: thread::spawn(|| ()),
            kills_before: 0,
            grace: Duration::ZERO,
            kept: Vec::new(),
        })
    }

    fn spawn(name: &str, mut command: Command, wires: Option<Wires>) -> Result<Self, CaseFailure> {
        // These variables say what this process was started for, which does not concern the worker.
        command.env_remove("INFERBENCH_JOB").env_remove("INFERBENCH_PROBE").stderr(Stdio::piped());
        tie_to_parent(&mut command);
        let program = command.get_program().to_string_lossy().into_owned();
        let missing = |why: String| CaseFailure::unavailable(format!("{name} does not start ({program}): {why}"));
        let mut child = command.spawn().map_err(|error| missing(error.to_string()))?;
        adopt(child.id());
        // Otherwise, a process that it has forked could hold its output open, and its end would not be noticed.
        end_group_after(child.id());
        let grace = if wires.is_some() { Duration::ZERO } else { GRACE };
        let own = child
            .stdin
            .take()
            .zip(child.stdout.take())
            .map(|(input, output)| Wires { input: Box::new(input), output: Box::new(BufReader::new(output)) });
        let (Some(Wires { input, output }), Some(words)) = (wires.or(own), child.stderr.take()) else {
            return Err(missing("it has no pipes".into()));
        };
        let last_bytes = Arc::new(Mutex::new(VecDeque::new()));
        let listener = thread::spawn({
            let last_bytes = Arc::clone(&last_bytes);
            move || listen(words, &last_bytes)
        });
        let (name, kills_before, input, kept) = (name.to_owned(), memory::kills(), Some(input), Vec::new());
        Ok(OutsideProcess { name, child, input, output, last_bytes, listener, kills_before, grace, kept })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Keeps something until the process has ended.
    pub(super) fn keep(&mut self, kept: impl Any) {
        self.kept.push(Box::new(kept));
    }

    /// Writes a line before the first frame.
    ///
    /// # Errors
    /// The process has ended.
    #[cfg(any(feature = "jax", feature = "torch"))]
    pub(super) fn write_line(&mut self, line: &str) -> Result<(), CaseFailure> {
        let written = self.input.as_mut().map(|input| input.write_all(format!("{line}\n").as_bytes()));
        if written.is_some_and(|written| written.is_err()) { Err(self.ended()) } else { Ok(()) }
    }

    /// Sends a request and waits for the answer. After the process has ended or written something that is not a frame,
    /// all further requests fail.
    ///
    /// # Errors
    /// The process answers with an error, has ended, or does not follow the protocol.
    pub(super) fn ask<T: DeserializeOwned>(
        &mut self,
        request: &Value,
        tensors: &[(String, HostTensor)],
    ) -> Result<(T, NamedTensors), CaseFailure> {
        let Some(input) = &mut self.input else {
            return Err(CaseFailure::failed(format!("the process of {} is gone", self.name)));
        };
        if write_frame(input, request, tensors).is_err() {
            return Err(self.ended());
        }
        let (answer, tensors) = match read_frame(&mut self.output) {
            Ok(frame) => frame,
            Err(NoFrame::Ended(_)) => return Err(self.ended()),
            Err(NoFrame::Other(what)) => {
                self.input = None;
                end_group(&mut self.child);
                return Err(CaseFailure::failed(format!("the process of {} has written {what}", self.name)));
            }
        };
        if let Some(error) = answer.get("error") {
            return Err(failure_of(&self.name, error));
        }
        let answer = serde_json::from_value(answer).map_err(|error| {
            CaseFailure::failed(format!("an answer of {} does not follow the protocol: {error}", self.name))
        })?;
        Ok((answer, tensors))
    }

    /// Sends a request that has no answer. Does nothing if the process has ended.
    pub(super) fn tell(&mut self, request: &Value) {
        if let Some(input) = &mut self.input {
            let _ = write_frame(input, request, &[]);
        }
    }

    /// Does the same as [`Self::ask`], but kills the process if it does not answer within `limit`.
    pub(super) fn ask_within<T: DeserializeOwned>(
        &mut self,
        limit: Duration,
        request: &Value,
    ) -> Result<T, CaseFailure> {
        let (id, name) = (self.child.id(), self.name.clone());
        within(limit, id, &name, || self.ask(request, &[]).map(|(answer, _)| answer))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The failure of a request without an answer, which says how the process ended. Ends a process that still runs.
    pub(super) fn ended(&mut self) -> CaseFailure {
        self.input = None;
        let status = self.wait(GRACE);
        end_group(&mut self.child);
        let name = &self.name;
        let how = match status {
            None => format!("the process of {name} has closed its output"),
            Some(status) => match (ending_signal(status), status.code()) {
                (Some((signal, word)), _) => format!("the process of {name} was ended by signal {signal} ({word})"),
                (None, code) => format!("the process of {name} ended with exit code {}", code.unwrap_or_default()),
            },
        };
        // If it still runs, the kernel may have killed a process of its own, such as that of a browser's page.
        let is_killed = status.is_none_or(|status| ending_signal(status).is_some_and(|(_, word)| word == "SIGKILL"));
        if is_killed && memory::kills() > self.kills_before {
            return CaseFailure::new(Status::OutOfMemory, format!("{how}, and the kernel reports that memory ran out"));
        }
        match self.last_words() {
            words if words.is_empty() => CaseFailure::failed(how),
            words => {
                let status = if is_out_of_memory(&words) { Status::OutOfMemory } else { Status::Failed };
                CaseFailure::new(status, format!("{how}; its last words: {words}"))
            }
        }
    }

    /// Waits for the process to end. Returns `None` if it still runs after `limit`.
    pub(super) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if start.elapsed() < limit => thread::sleep(Duration::from_millis(2)),
                _ => return None,
            }
        }
    }

    /// Closes its input; no more requests can be sent.
    pub(super) fn close(&mut self) {
        self.input = None;
    }

    /// The last line that it has printed to its standard error.
    fn last_words(&self) -> String {
        let start = Instant::now();
        // What it has printed last may still be in the pipe.
        while !self.listener.is_finished() && start.elapsed() < GRACE / 10 {
            thread::sleep(Duration::from_millis(2));
        }
        let bytes: Vec<u8> = self.last_bytes.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        last.trim().chars().take(LAST_CHARACTERS).collect()
    }
}

/// Runs `ask`, and kills the process group `id` if `ask` takes longer than `limit`.
///
/// # Errors
/// `ask` fails or takes too long.
pub(super) fn within<T>(
    limit: Duration,
    id: u32,
    name: &str,
    ask: impl FnOnce() -> Result<T, CaseFailure>,
) -> Result<T, CaseFailure> {
    let (is_answered, waiting) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let watchdog = scope.spawn(move || {
            let is_late = waiting.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
            if is_late {
                kill_group(id);
            }
            is_late
        });
        let answer = ask();
        drop(is_answered);
        if watchdog.join().unwrap_or(false) {
            let end = answer.err().map_or_else(String::new, |failure| format!("; then {}", failure.message));
            return Err(CaseFailure::failed(format!("{name} did not answer within {} s{end}", limit.as_secs())));
        }
        answer
    })
}

impl Drop for OutsideProcess {
    fn drop(&mut self) {
        // The program may need time to clean up.
        if self.input.is_some() {
            self.tell(&json!({ "verb": "end" }));
            self.close();
            self.wait(self.grace);
        }
        end_group(&mut self.child);
        release(self.child.id());
    }
}

/// The failure in the answer of a process.
fn failure_of(name: &str, error: &Value) -> CaseFailure {
    let message = error["message"].as_str().unwrap_or("no message").to_owned();
    match error["status"].as_str() {
        Some("unsupported") => CaseFailure::unsupported(message),
        Some("unavailable") => CaseFailure::unavailable(message),
        Some("out-of-memory") => CaseFailure::new(Status::OutOfMemory, message),
        _ => CaseFailure::failed(format!("{name}: {message}")),
    }
}

/// Reads until the end and keeps the last bytes. If the variable [`DEBUG`] is set, also prints everything.
fn listen(mut words: impl Read, last_bytes: &Mutex<VecDeque<u8>>) {
    let is_shown = std::env::var_os(DEBUG).is_some();
    let mut bytes = [0; 8192];
    while let Ok(length @ 1..) = words.read(&mut bytes) {
        if is_shown {
            let _ = stderr().write_all(&bytes[..length]);
        }
        let mut last = last_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        last.extend(&bytes[..length]);
        let surplus = last.len().saturating_sub(LAST_BYTES);
        last.drain(..surplus);
    }
}
