//! One worker process: starts it, watches it, and says how it ended.

use std::ffi::OsString;
use std::io::{IsTerminal, Write, sink, stderr, stdout};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fs_err::OpenOptions;

use super::is_interrupted;
use super::relay::{copy, relay};
use super::{DEBUG_LOG, Supervisor, WorkerGroup};
use crate::backend;
use crate::definition::{CaseFailure, Effort, Status};
use crate::harness::protocol::{JOB, Purpose};
use crate::run_data::RunFolder;

/// How often the supervisor looks at a worker. It sleeps in between, so as not to disturb what is measured.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a worker may take to end after an interrupt.
const GRACE: Duration = Duration::from_secs(3);

/// How a worker ended.
pub(super) struct EndedWorker {
    pub status: ExitStatus,
    /// The last lines of its standard error.
    pub last_words: String,
    /// Seconds that it was at its last case.
    pub seconds_in_case: f64,
    timed_out: bool,
    ran_out_of_memory: bool,
}

impl Supervisor<'_> {
    /// Starts a worker with a job and waits for its end. A worker that spends its timeout on one case is killed.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn run_worker(&self, group: &WorkerGroup, job: &Path) -> Result<EndedWorker> {
        let kills_before = kernel_memory_kills();
        let mut worker = self.spawn(group, job)?;
        let errors = worker.stderr.take();
        let shown: Box<dyn Write + Send> = if self.is_silent { Box::new(sink()) } else { Box::new(stderr()) };
        let log: Box<dyn Write + Send> = match self.debug {
            true => Box::new(OpenOptions::new().create(true).append(true).open(self.folder.path().join(DEBUG_LOG))?),
            false => Box::new(sink()),
        };
        let relay = thread::spawn(move || errors.map(|pipe| relay(pipe, shown, log)).unwrap_or_default());
        let output = worker.stdout.take();
        let copy = thread::spawn(move || output.map(|pipe| copy(pipe, stdout())));
        let mut progress = Progress::new(self.folder);
        let mut interrupted_since: Option<Instant> = None;
        let mut timed_out = false;
        let (status, seconds_in_case) = loop {
            let seconds_in_case = progress.seconds_in_case();
            if let Some(status) = worker.try_wait().context("waiting for a worker")? {
                break (status, seconds_in_case);
            }
            if seconds_in_case > self.effort.timeout_seconds && !timed_out {
                timed_out = true;
                let _ = worker.kill();
            }
            if is_interrupted() {
                let since = *interrupted_since.get_or_insert_with(Instant::now);
                if since.elapsed() > GRACE {
                    let _ = worker.kill();
                }
            }
            thread::sleep(LOOK_EVERY);
        };
        let last_words = relay.join().unwrap_or_default();
        let _ = copy.join();
        let ran_out_of_memory = kernel_memory_kills() > kills_before;
        Ok(EndedWorker { status, last_words, seconds_in_case, timed_out, ran_out_of_memory })
    }

    fn spawn(&self, group: &WorkerGroup, job: &Path) -> Result<Child> {
        let executable = own_executable()?;
        let mut command = Command::new(&executable);
        command.args(&self.arguments).env(JOB, job).stdin(Stdio::null()).stderr(Stdio::piped());
        // Only Criterion has something to say there; libraries of devices print to it too.
        if self.is_silent || self.purpose == Purpose::Verify {
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
        command.envs(worker_environment(&group.backend, &group.device, self.effort.effective_threads()));
        command.spawn().with_context(|| executable.display().to_string())
    }
}

/// The variables that a worker has to have from its start: libraries read them when they are loaded.
pub fn worker_environment(backend: &str, device: &str, threads: usize) -> Vec<(&'static str, OsString)> {
    // Read by libtorch's OpenMP, by MKL, and by candle's two pools.
    let pools = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"];
    let mut variables: Vec<_> = pools.into_iter().map(|name| (name, threads.to_string().into())).collect();
    if let Ok(backend) = backend::find(backend) {
        variables.extend(backend.process_environment(device));
    }
    variables
}

/// How long a worker has been at its present case: it adds to the outcomes when it begins and ends one.
///
/// The clock does not go on while the machine is suspended.
struct Progress<'a> {
    folder: &'a RunFolder,
    length: Option<u64>,
    since: Instant,
}

impl<'a> Progress<'a> {
    fn new(folder: &'a RunFolder) -> Self {
        Progress { folder, length: None, since: Instant::now() }
    }

    fn seconds_in_case(&mut self) -> f64 {
        let length = std::fs::metadata(self.folder.outcomes_path()).ok().map(|metadata| metadata.len());
        if length != self.length {
            (self.length, self.since) = (length, Instant::now());
        }
        self.since.elapsed().as_secs_f64()
    }
}

/// This very executable, even if a build has meanwhile put another in its place.
fn own_executable() -> Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() {
        return Ok(running);
    }
    std::env::current_exe().context("the path of this executable")
}

impl EndedWorker {
    /// What its end means for the case that it was at.
    pub fn failure(&self, effort: &Effort) -> CaseFailure {
        if self.timed_out {
            return CaseFailure::new(
                Status::Timeout,
                format!("no end after {} s; `--timeout SECONDS` gives it longer", effort.timeout_seconds),
            );
        }
        let how = match (self.status.signal(), self.status.code()) {
            (Some(signal), _) => format!("the process was ended by signal {signal}{}", signal_name(signal)),
            (None, Some(code)) => format!("the process ended with exit code {code}"),
            (None, None) => "the process ended".into(),
        };
        if self.ran_out_of_memory {
            return CaseFailure::new(Status::OutOfMemory, format!("{how}, and the kernel reports that memory ran out"));
        }
        let last = self.last_words.lines().next_back().unwrap_or_default();
        CaseFailure::failed(if last.is_empty() { how } else { format!("{how}; its last words: {last}") })
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => " (illegal instruction)",
        6 => " (abort)",
        7 => " (bus error)",
        8 => " (arithmetic error)",
        9 => " (kill)",
        11 => " (segmentation fault)",
        15 => " (termination)",
        _ => "",
    }
}

/// How often the kernel has killed a process for memory since it booted.
fn kernel_memory_kills() -> u64 {
    let counters = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    counters
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill "))
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}
