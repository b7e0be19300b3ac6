//! A live arm, seen from the driver: a process that measures a slice when it is told to, and is stopped otherwise.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::planning::Arena;
use crate::compare::Role;
use crate::definition::{CaseFailure, Status};
use crate::harness::{ArmAnswer, ArmReady, ArmStart, Handicap, SliceFigures, is_interrupted, is_interrupted_with};
use crate::machine::spawn_displaced;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Why an arm gave no answer.
#[derive(Debug)]
pub enum Silence {
    /// The user stopped the duel.
    Interrupted,
    Failed(CaseFailure),
}

/// A process of an arm. It is killed when this is dropped.
pub struct LiveArm {
    child: Child,
    input: ChildStdin,
    answers: Receiver<ArmAnswer>,
    timeout: Duration,
    last_words: Box<dyn Fn() -> String>,
}

impl LiveArm {
    /// Starts a process that loads its case. Its memory is displaced by so many bytes from where it would lie.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(
        arena: &Arena,
        role: Role,
        start: &ArmStart,
        handicap: Option<Handicap>,
        displacement: usize,
    ) -> Result<Self> {
        // Numbers of one length, like the paths.
        let slowdown = handicap.into_iter().flat_map(|Handicap { slowdown_ppm, least_call_ns }| {
            [format!("--slowdown-ppm={slowdown_ppm:09}"), format!("--least-call-ns={least_call_ns:09}")]
        });
        let arguments = ["time".to_owned(), start.job.display().to_string()].into_iter().chain(slowdown);
        let mut command: Command = arena.command(role, arguments);
        command.envs(&start.environment).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(fs_err::File::create(arena.log(role))?.into_parts().0);
        let child = spawn_displaced(&mut command, displacement);
        let mut child = child.with_context(|| arena.of(role).display().to_string())?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (input, output) = input.zip(output).context("an arm without pipes")?;
        let (sender, answers) = channel();
        thread::spawn(move || {
            // Libraries may print something that is not text.
            for line in BufReader::new(output).split(b'\n').map_while(std::io::Result::ok) {
                if let Some(answer) = ArmAnswer::read(&String::from_utf8_lossy(&line))
                    && sender.send(answer).is_err()
                {
                    return;
                }
            }
        });
        let timeout = Duration::try_from_secs_f64(start.timeout_seconds).unwrap_or(Duration::MAX);
        let arena = arena.clone();
        let last_words = Box::new(move || arena.last_words(role));
        Ok(LiveArm { child, input, answers, timeout, last_words })
    }

    /// Waits until the case is loaded and warmed up, and stops the process.
    ///
    /// # Errors
    /// It fails, or the user stops it.
    pub fn wait_until_ready(&mut self) -> Result<ArmReady, Silence> {
        match self.answer()? {
            ArmAnswer::Ready(ready) => {
                self.suspend()?;
                Ok(ready)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Lets the process measure a slice, and stops it again.
    ///
    /// # Errors
    /// It fails, or the user stops it.
    pub fn slice(&mut self, length: Duration) -> Result<SliceFigures, Silence> {
        self.send(Signal::SIGCONT)?;
        let asked = writeln!(self.input, "slice {}", length.as_nanos()).and_then(|()| self.input.flush());
        // A process that has ended cannot be asked; how it ended is found out below.
        let _ = asked;
        match self.answer()? {
            ArmAnswer::Slice(figures) => {
                self.suspend()?;
                Ok(figures)
            }
            other => Err(unexpected(&other)),
        }
    }

    fn answer(&mut self) -> Result<ArmAnswer, Silence> {
        let begin = Instant::now();
        loop {
            // Asked before every answer, because arms may always answer before the next look.
            if is_interrupted() {
                return Err(Silence::Interrupted);
            }
            match self.answers.recv_timeout(LOOK_EVERY) {
                Ok(ArmAnswer::Failed { status, message }) => {
                    return Err(Silence::Failed(CaseFailure::new(status, message)));
                }
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(match self.child.wait() {
                        Ok(status) => self.ended(status),
                        Err(error) => Silence::Failed(CaseFailure::failed(format!("its process is gone: {error}"))),
                    });
                }
                Err(RecvTimeoutError::Timeout) if begin.elapsed() > self.timeout => {
                    let message = format!("no answer after {} s", self.timeout.as_secs_f64());
                    return Err(Silence::Failed(CaseFailure::new(Status::Timeout, message)));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Says how the process ended.
    fn ended(&self, status: ExitStatus) -> Silence {
        if is_interrupted_with(status) {
            return Silence::Interrupted;
        }
        let words = (self.last_words)();
        let words = if words.is_empty() { words } else { format!("; its last words:\n  {words}") };
        Silence::Failed(CaseFailure::failed(format!("its process ended ({status}){words}")))
    }

    /// Stops the process, and returns when all its threads stand still.
    fn suspend(&mut self) -> Result<(), Silence> {
        self.send(Signal::SIGSTOP)?;
        match waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Stopped(..)) => Ok(()),
            // Ctrl-C goes to all processes of a terminal.
            Ok(WaitStatus::Signaled(_, signal, _)) => Err(self.ended(ExitStatus::from_raw(signal as i32))),
            Ok(WaitStatus::Exited(_, code)) => Err(self.ended(ExitStatus::from_raw(code << 8))),
            Ok(status) => Err(Silence::Failed(CaseFailure::failed(format!("its process did not stop: {status:?}")))),
            Err(error) => Err(Silence::Failed(CaseFailure::failed(format!("its process cannot be stopped: {error}")))),
        }
    }

    fn send(&self, signal: Signal) -> Result<(), Silence> {
        kill(self.pid(), signal).map_err(|error| {
            Silence::Failed(CaseFailure::failed(format!("its process cannot be told to go on: {error}")))
        })
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for LiveArm {
    fn drop(&mut self) {
        // Also ends a process that is stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unexpected(answer: &ArmAnswer) -> Silence {
    Silence::Failed(CaseFailure::failed(format!("an answer that was not asked for: {answer:?}")))
}
