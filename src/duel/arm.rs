//! A live arm, seen from the driver: a process that measures a slice when it is told to, and is stopped otherwise.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::generation::Start;
use super::planning::{Arena, last_words};
use crate::compare::SliceLength;
use crate::definition::{CaseFailure, Status};
use crate::harness::{
    ArmAnswer, ArmReady, Handicap, Interrupted, SliceFigures, WARM_UP, is_interrupted, is_interrupted_with,
};
use crate::machine::processes::{STARTED_FOR, end_started_for, resume, suspend};
use crate::machine::spawn_displaced;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A process of an arm. It is killed when this is dropped, with all processes that it has started.
///
/// Its methods fail with a [`CaseFailure`] if the arm has failed, and with [`Interrupted`] if the user stops the duel.
pub struct LiveArm {
    child: Child,
    /// The value of [`STARTED_FOR`] in this process and in all that it has started.
    mark: String,
    input: ChildStdin,
    answers: Receiver<ArmAnswer>,
    timeout: Duration,
    log: PathBuf,
    /// Its answer after the warm-up, until the driver takes it.
    ready: Option<ArmReady>,
}

impl LiveArm {
    /// Starts a process that loads its case, on the processors `load_on` or else on its own. Its memory is displaced by
    /// `displacement` bytes.
    pub fn start(
        arena: &Arena,
        (role, start, handicap): Start<'_>,
        displacement: usize,
        load_on: Option<&[usize]>,
    ) -> Result<Self> {
        // All numbers have the same length, like the paths.
        let slowdown = handicap.into_iter().flat_map(|Handicap { slowdown_ppm, least_call_ns }| {
            [format!("--slowdown-ppm={slowdown_ppm:09}"), format!("--least-call-ns={least_call_ns:09}")]
        });
        let load_on = load_on.map(|processors| {
            let numbers: Vec<String> = processors.iter().map(|number| format!("{number:04}")).collect();
            format!("--load-on={}", numbers.join(","))
        });
        let arguments = ["time".to_owned(), start.job.display().to_string()].into_iter().chain(slowdown).chain(load_on);
        let log = arena.log(role);
        let mut command = arena.command(role, arguments);
        // The value has the same length in all arms, because variables move the stack.
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let mark = format!("duel-{:010}-{:010}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        command.envs(&start.environment).env(STARTED_FOR, &mark).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(fs_err::File::create(&log)?.into_parts().0);
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
        Ok(LiveArm { child, mark, input, answers, timeout, log, ready: None })
    }

    /// Waits until the case is loaded, and stops the process. Without `load_on`, it has warmed up by then, too.
    pub fn wait_until_loaded(&mut self) -> Result<()> {
        match self.answer()? {
            ArmAnswer::Loaded => {}
            ArmAnswer::Ready(ready) => self.ready = Some(ready),
            other => bail!(unexpected(&other)),
        }
        Ok(())
    }

    /// Lets the process warm up on its own processors, unless it has done so, and stops it again.
    pub fn warm_up(&mut self) -> Result<ArmReady> {
        if let Some(ready) = self.ready.take() {
            return Ok(ready);
        }
        self.tell(WARM_UP)?;
        match self.answer()? {
            ArmAnswer::Ready(ready) => Ok(ready),
            other => bail!(unexpected(&other)),
        }
    }

    /// Lets the process measure a slice, and stops it again.
    pub fn slice(&mut self, length: SliceLength) -> Result<SliceFigures> {
        self.tell(&format!("slice {length}"))?;
        match self.answer()? {
            ArmAnswer::Slice(figures) => Ok(figures),
            other => bail!(unexpected(&other)),
        }
    }

    /// Lets the process go on with this line.
    fn tell(&mut self, line: &str) -> Result<()> {
        resume(&self.child).context("an arm that is to go on")?;
        // A process that has ended cannot be asked; its answer tells how it ended.
        let _ = writeln!(self.input, "{line}").and_then(|()| self.input.flush());
        Ok(())
    }

    /// Waits for an answer, and stops the process.
    fn answer(&mut self) -> Result<ArmAnswer> {
        let begin = Instant::now();
        loop {
            // Checked before every answer: if arms answer quickly, there is never a timeout.
            if is_interrupted() {
                bail!(Interrupted);
            }
            match self.answers.recv_timeout(LOOK_EVERY) {
                Ok(ArmAnswer::Failed(failure)) => bail!(failure),
                Ok(answer) => {
                    // Ctrl-C goes to all processes of a terminal, so this one may have ended.
                    let ended = suspend(&self.child).context("an arm that is to stop")?;
                    return ended.map_or(Ok(answer), |status| Err(self.ended(status)));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait()?;
                    return Err(self.ended(status));
                }
                Err(RecvTimeoutError::Timeout) if begin.elapsed() > self.timeout => {
                    let message = format!("no answer after {} s", self.timeout.as_secs_f64());
                    bail!(CaseFailure::new(Status::Timeout, message));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn ended(&self, status: ExitStatus) -> anyhow::Error {
        if is_interrupted_with(status) {
            return Interrupted.into();
        }
        let words = last_words(&self.log);
        let words = if words.is_empty() { words } else { format!("; its last words:\n  {words}") };
        CaseFailure::failed(format!("its process ended ({status}){words}")).into()
    }
}

impl Drop for LiveArm {
    fn drop(&mut self) {
        // Also ends a process that is stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
        end_started_for(self.mark.as_ref());
    }
}

fn unexpected(answer: &ArmAnswer) -> CaseFailure {
    CaseFailure::failed(format!("an answer that was not asked for: {answer:?}"))
}
