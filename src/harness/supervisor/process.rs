//! One worker process: starts it, watches it, and says how it ended.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write, sink, stderr, stdout};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fs_err::OpenOptions;
use serde::de::DeserializeOwned;

use super::{DEBUG_LOG, Interrupted, Supervisor, is_interrupted, is_interrupted_with};
use crate::backend;
use crate::definition::{CaseFailure, Effort, Status};
use crate::harness::protocol::{JOB, Job, Purpose, WorkItem};
use crate::machine::memory;
use crate::machine::processes::{STARTED_FOR, end_started_for, ending_signal, own_executable, terminate};
use crate::paths::trusted_files;
use crate::run_data::files::{read_json, write_json};
use crate::run_data::{LoadTerms, RunFolder};

/// How often the supervisor looks at a worker. It sleeps in between, so as not to disturb what is measured.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a worker may take to end after an interrupt.
const GRACE: Duration = Duration::from_secs(3);

pub(super) struct EndedWorker {
    pub status: ExitStatus,
    /// The last line of its standard error, or an allocator's message.
    last_words: String,
    /// Seconds that it spent on its last case.
    pub seconds_in_case: f64,
    timed_out_after: Option<f64>,
    ran_out_of_memory: bool,
}

impl Supervisor {
    /// Writes the job to `job-{name}.json`, starts a worker with it, and waits for its end. A worker that spends the
    /// whole timeout on one case is killed.
    ///
    /// # Errors
    /// The job cannot be written, the worker cannot be started, or [`Interrupted`].
    pub(super) fn run_worker(&self, job: &Job, name: &str) -> Result<EndedWorker> {
        let path = self.job.folder.path().join(format!("job-{name}.json"));
        write_json(&path, job)?;
        let shown: Box<dyn Write + Send> = if self.is_silent { Box::new(sink()) } else { Box::new(stderr()) };
        // Opened first: if this failed after the start, nobody would wait for the worker.
        let log: Box<dyn Write + Send> = match self.debug {
            true => {
                Box::new(OpenOptions::new().create(true).append(true).open(self.job.folder.path().join(DEBUG_LOG))?)
            }
            false => Box::new(sink()),
        };
        let kills_before = memory::kills();
        let mut worker = self.spawn(job, &path)?;
        let (errors, lines) = (worker.stderr.take(), Arc::new(AtomicU64::new(0)));
        let counted = lines.clone();
        let errors = thread::spawn(move || errors.map(|pipe| relay(pipe, shown, log, &counted)).unwrap_or_default());
        let output = worker.stdout.take();
        let output = thread::spawn(move || output.map(|pipe| relay(pipe, stdout(), sink(), &AtomicU64::new(0))));
        // A search prints a line after each trial, and each line restarts the timeout: a single trial may take long.
        let is_search = job.load.as_ref().is_some_and(|terms| terms.is_search);
        let said = || if is_search { lines.load(Ordering::Relaxed) } else { 0 };
        // A worker appends to the outcomes when it begins and ends a case. The clock stops while the machine sleeps.
        let (mut length, mut since) = (0, Instant::now());
        let mut interrupted_since: Option<Instant> = None;
        let mut timed_out_after = None;
        let (status, seconds_in_case) = loop {
            let outcomes = std::fs::metadata(self.job.folder.outcomes_path()).map_or(0, |metadata| metadata.len());
            let length_now = outcomes + said();
            if length_now != length {
                (length, since) = (length_now, Instant::now());
            }
            let seconds_in_case = since.elapsed().as_secs_f64();
            if let Some(status) = worker.try_wait().context("waiting for a worker")? {
                break (status, seconds_in_case);
            }
            let timeout_seconds = self.job.effort.timeout_seconds;
            if seconds_in_case > timeout_seconds && timed_out_after.is_none() {
                timed_out_after = Some(timeout_seconds);
                let _ = worker.kill();
            }
            if is_interrupted() {
                let since = *interrupted_since.get_or_insert_with(|| {
                    // Ctrl-C in a terminal has told the worker already; `kill` and a server tell only this process.
                    terminate(worker.id());
                    Instant::now()
                });
                if since.elapsed() > GRACE {
                    let _ = worker.kill();
                }
            }
            thread::sleep(LOOK_EVERY);
        };
        // Processes that an external worker has started may have left its process group.
        end_started_for(path.as_os_str());
        let last_words = errors.join().unwrap_or_default();
        let _ = output.join();
        if is_interrupted_with(status) {
            bail!(Interrupted);
        }
        let ran_out_of_memory = memory::kills() > kills_before;
        Ok(EndedWorker { status, last_words, seconds_in_case, timed_out_after, ran_out_of_memory })
    }

    /// Runs a worker that leaves its answer in a file, and returns the answer, or why there is none.
    pub fn ask<T: DeserializeOwned>(
        purpose: Purpose,
        work: Vec<WorkItem>,
        load: Option<LoadTerms>,
        effort: &Effort,
    ) -> Result<Result<T, CaseFailure>> {
        let place = tempfile::tempdir()?;
        let job = Job::new(purpose, &RunFolder::new(place.path().to_owned()), place.path(), effort);
        // A search takes minutes and prints its progress.
        let is_silent = load.as_ref().is_none_or(|terms| !terms.is_search);
        let supervisor = Supervisor { is_silent, ..Supervisor::silent(Job { work, load, ..job }, Vec::new()) };
        let ended = supervisor.run_worker(&supervisor.job, "question")?;
        Ok(read_json(&supervisor.job.answer_path()).unwrap_or_else(|_| Err(ended.failure())))
    }

    fn spawn(&self, job: &Job, path: &Path) -> Result<Child> {
        let executable = own_executable()?;
        let mut command = Command::new(&executable);
        command.args(&self.arguments).env(STARTED_FOR, path).env(JOB, path).stdin(Stdio::null()).stderr(Stdio::piped());
        // Only Criterion's output is wanted there; device libraries print to it too.
        if self.is_silent || matches!(job.purpose, Purpose::Verify | Purpose::Confirm | Purpose::Serve) {
            command.stdout(Stdio::null());
        } else {
            command.stdout(Stdio::piped());
            if stdout().is_terminal() && self.parsed.color.is_none() {
                command.arg("--color=always");
            }
        }
        if self.debug {
            // Read by ONNX Runtime's backend, OpenVINO, libtorch, and Rust.
            command.env(backend::DEBUG, "1").env("OPENVINO_LOG_LEVEL", "5").env("TORCH_CPP_LOG_LEVEL", "INFO");
            command.env("RUST_BACKTRACE", "1");
        }
        command.envs(worker_environment(job)).spawn().with_context(|| executable.display().to_string())
    }
}

/// Separates the failure of one case from an error that ends the run.
///
/// # Errors
/// Any error that is not a [`CaseFailure`].
pub fn of_case<T>(result: Result<T>) -> Result<Result<T, CaseFailure>> {
    result.map(Ok).or_else(|error| error.downcast().map(Err))
}

/// The variables that a worker needs from its start: libraries read them when they are loaded.
pub fn worker_environment(job: &Job) -> Vec<(&'static str, OsString)> {
    let threads = job.effort.effective_threads();
    // Read by libtorch's OpenMP, by MKL, and by candle's two pools.
    let pools = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"];
    let mut variables: Vec<_> = pools.into_iter().map(|name| (name, threads.to_string().into())).collect();
    let (name, found) = backend::found_so_far();
    variables.push((name, found.into()));
    variables.push(trusted_files());
    // All cases of a worker have the same backend and device.
    let case = job.work.first().map(|item| &item.case);
    if let Some((case, backend)) = case.and_then(|case| Some((case, backend::find(&case.backend).ok()?))) {
        variables.extend(backend.process_environment(&case.device));
    }
    variables
}

impl EndedWorker {
    /// The failure of the case that the worker was running when it ended.
    pub fn failure(&self) -> CaseFailure {
        if let Some(seconds) = self.timed_out_after {
            let message = format!(
                "not finished after {seconds} s; to allow more time, raise `timeout_s` in the suite, or pass `--timeout` if the command has it"
            );
            return CaseFailure::new(Status::Timeout, message);
        }
        let how = match (ending_signal(self.status), self.status.code()) {
            (Some((signal, name)), _) => format!("the process was ended by signal {signal} ({name})"),
            (None, Some(code)) => format!("the process ended with exit code {code}"),
            (None, None) => "the process ended".into(),
        };
        // The kernel's count covers the processes of all programs; it kills them by this signal.
        let is_killed = ending_signal(self.status).is_some_and(|(_, name)| name == "SIGKILL");
        if is_killed && self.ran_out_of_memory {
            return CaseFailure::new(Status::OutOfMemory, format!("{how}, and the kernel reports that memory ran out"));
        }
        let last = &self.last_words;
        let message = if last.is_empty() { how } else { format!("{how}; its last words: {last}") };
        // A library's allocator may end the process and say why.
        let status = if backend::is_out_of_memory(last) { Status::OutOfMemory } else { Status::Failed };
        CaseFailure::new(status, message)
    }
}

/// Beginnings of Criterion's lines that are not shown: its progress, for which the harness prints more (`\x1b[2K` is
/// how Criterion overwrites a line), its note on Gnuplot, and its warning that it cannot complete its samples. It
/// prints the warning whenever a sample is one call, which is intended here.
const DROPPED: [&[u8]; 4] =
    [b"Benchmarking ", b"\x1b[2K", b"Warning: Unable to complete ", b"Gnuplot not found, using plotters backend"];

/// How the last message of an allocator begins. A stack trace may follow it.
const ALLOCATOR: [&str; 2] =
    ["memory allocation of ", "terminate called after throwing an instance of 'std::bad_alloc'"];

/// Copies the lines of `input` to `output`, except [`DROPPED`] ones. Returns an allocator's message, or else the last
/// line that is shown and not empty. The log gets all lines, and `lines` counts them.
fn relay(input: impl Read, mut output: impl Write, mut log: impl Write, lines: &AtomicU64) -> String {
    let mut input = BufReader::new(input);
    let mut last = String::new();
    let mut line = Vec::new();
    while let Ok(1..) = input.read_until(b'\n', &mut line) {
        lines.fetch_add(1, Ordering::Relaxed);
        let _ = log.write_all(&line);
        if !DROPPED.iter().any(|dropped| line.starts_with(dropped)) {
            // A reader that has gone away (`| head`) must not stop the run.
            let _ = output.write_all(&line).and_then(|()| output.flush());
            let text = String::from_utf8_lossy(&line);
            let is_known = ALLOCATOR.iter().any(|begin| last.starts_with(begin));
            if !text.trim().is_empty() && !is_known {
                last = text.trim_end().to_owned();
            }
        }
        line.clear();
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_criterions_own_lines_are_left_out() {
        let text = "[1/2] a\nWarning: Unable to complete 10 samples in 1.0ns. You may …\n\nWarning: other\n\
            Benchmarking x: Warming up\r\x1b[2KBenchmarking x: Analyzing\nerror: no\nlast";
        let (mut shown, mut log) = (Vec::new(), Vec::new());
        let last_words = relay(text.as_bytes(), &mut shown, &mut log, &AtomicU64::new(0));
        assert_eq!(String::from_utf8(shown).unwrap(), "[1/2] a\n\nWarning: other\nerror: no\nlast");
        assert_eq!(last_words, "last");
        assert_eq!(String::from_utf8(log).unwrap(), text);
        let abort = "memory allocation of 8 bytes failed\nstack backtrace:\n   0: main\n";
        assert_eq!(relay(abort.as_bytes(), sink(), sink(), &AtomicU64::new(0)), "memory allocation of 8 bytes failed");
    }
}
