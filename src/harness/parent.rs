//! The parent process: plans the run, starts one child a backend and device, and records what becomes of each case.
//!
//! A child that crashes, is killed or hangs costs the case that it was at; another child takes up the rest.

use std::collections::BTreeMap;
use std::io::{Write, sink, stderr};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::arguments::{CriterionArguments, Mode};
use super::assignment::{ASSIGNMENT, Assignment, Purpose, WorkItem};
use super::evaluation::can_be_judged;
use super::manifest::{Event, Judgement, Manifest, Observed, Outcome, RunFolder};
use super::preparation::Preparations;
use super::relay::relay;
use crate::backend;
use crate::definition::{Case, CaseFailure, DataSource, Effort, Model, Status};
use crate::exit_codes;

/// How often the parent looks at a child. It sleeps in between, so as not to disturb what is measured.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The same in a duel, where many processes are short: waiting for their ends would be a tenth of its time.
const LOOK_EVERY_IN_A_ROUND: Duration = Duration::from_millis(20);
/// How long a child may take to end after an interrupt.
const GRACE: Duration = Duration::from_secs(3);
/// How much later than a child this process may notice an interrupt.
const NOTICE: Duration = Duration::from_millis(200);
const SIGINT: i32 = 2;

/// Set when the user asks to stop (Ctrl-C, SIGTERM).
fn interrupted() -> &'static AtomicBool {
    static INTERRUPTED: AtomicBool = AtomicBool::new(false);
    static HANDLER: OnceLock<()> = OnceLock::new();
    HANDLER.get_or_init(|| {
        // Fails only where another handler is set, which this package does not do.
        let _ = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::SeqCst));
    });
    &INTERRUPTED
}

/// Whether the user asked to stop; from the first time on that this is asked, the process ends no longer by itself.
pub fn is_interrupted() -> bool {
    interrupted().load(Ordering::SeqCst)
}

/// Whether the user asked to stop, of a child that has just ended. Ctrl-C goes to both, and the child may have ended of it
/// before this process has noticed.
pub fn is_interrupted_with(child: ExitStatus) -> bool {
    let is_told = child.signal() == Some(SIGINT) || child.code() == Some(exit_codes::INTERRUPTED.into());
    if is_told && !is_interrupted() {
        thread::sleep(NOTICE);
    }
    is_interrupted()
}

/// The children's work and what is known about its length.
pub struct Session<'a> {
    pub purpose: Purpose,
    pub manifest: &'a Manifest,
    pub folder: &'a RunFolder,
    /// The artifacts of the runnable cases.
    pub prepared: &'a Preparations,
    /// Runnable cases that the filter selected.
    pub groups: Vec<Group>,
    /// All cases with a place in Criterion's tree.
    pub registered: Vec<Case>,
    /// Criterion's arguments, unchanged.
    pub arguments: Vec<String>,
    pub parsed: &'a CriterionArguments,
    /// Whether what the children say is kept from the terminal.
    pub is_silent: bool,
    /// Seconds that cases took in earlier runs, by id.
    pub history: BTreeMap<String, f64>,
}

/// The cases of one backend and device: the work of one child, or of several where one crashes.
pub struct Group {
    pub backend: String,
    pub device: String,
    pub cases: Vec<(Case, Model)>,
}

/// How the children's part of a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Complete,
    Interrupted,
}

impl Session<'_> {
    /// Runs every group, one after the other.
    ///
    /// # Errors
    /// A child cannot be started, or the run's folder cannot be written.
    pub fn run(&self) -> Result<Ending, String> {
        interrupted();
        if self.purpose == Purpose::Load {
            return self.measure_cold_starts();
        }
        for index in 0..self.groups.len() {
            if self.run_group(index)? == Ending::Interrupted {
                return Ok(Ending::Interrupted);
            }
        }
        let is_measured = matches!(self.purpose, Purpose::Measure | Purpose::MeasureUnproven);
        if is_measured && self.parsed.mode() == Mode::Measure && self.manifest.suite.effort.watch {
            return self.watch_memory();
        }
        Ok(Ending::Complete)
    }

    /// Watches memory and energy of every case that was measured, in a fresh process each. What goes wrong there costs
    /// only these figures.
    fn watch_memory(&self) -> Result<Ending, String> {
        let outcomes = self.folder.read_outcomes();
        let is_open = |case: &Case| {
            let id = case.to_string();
            let is_ok = outcomes.finished.get(&id).is_some_and(|outcome| outcome.status == Status::Ok);
            is_ok && !outcomes.watched.contains_key(&id)
        };
        let groups = self.groups.iter().enumerate();
        let open: Vec<(usize, &(Case, Model))> = groups
            .flat_map(|(index, group)| group.cases.iter().map(move |work| (index, work)))
            .filter(|(_, (case, _))| is_open(case))
            .collect();
        let path = self.folder.path().join("assignment-watch.json");
        for (number, (index, work)) in open.iter().enumerate() {
            eprintln!("memory [{}/{}] {}", number + 1, open.len(), work.0);
            let assignment = self.assignment(*index, &[work], &outcomes.finished);
            Assignment { purpose: Purpose::Watch, ..assignment }.write(&path)?;
            let watched = self.watch(&self.groups[*index], &path)?;
            if is_interrupted_with(watched.status) {
                return Ok(Ending::Interrupted);
            }
            if !watched.status.success() {
                eprintln!("  no memory figures: {}", watched.failure(&self.manifest.suite.effort));
            }
        }
        Ok(Ending::Complete)
    }

    fn run_group(&self, index: usize) -> Result<Ending, String> {
        let Group { backend, device, cases } = &self.groups[index];
        let name = format!("assignment-{backend}-{}.json", device.replace(':', "."));
        let path = self.folder.path().join(name);
        // A run that is resumed measures the case anew whose answers it had not judged to the end.
        let unjudged = self.folder.read_outcomes().unjudged;
        loop {
            let outcomes = self.folder.read_outcomes();
            let is_to_be_judged = |case: &Case| unjudged == outcomes.unjudged && unjudged == Some(case.benchmark_id());
            let outcomes = &outcomes.finished;
            let is_open = |case: &Case| !outcomes.contains_key(&case.to_string()) || is_to_be_judged(case);
            let open: Vec<&(Case, Model)> = cases.iter().filter(|(case, _)| is_open(case)).collect();
            let Some((first, _)) = open.first() else { return Ok(Ending::Complete) };
            self.assignment(index, &open, outcomes).write(&path)?;
            let watched = self.watch(&self.groups[index], &path)?;
            if is_interrupted_with(watched.status) {
                return Ok(Ending::Interrupted);
            }
            if self.purpose != Purpose::Verify && self.parsed.mode() == Mode::Load {
                return if watched.status.success() { Ok(Ending::Complete) } else { Err(watched.tail) };
            }
            let after = self.folder.read_outcomes();
            if let Some(id) = after.unjudged {
                let failure = watched.failure(&self.manifest.suite.effort).message;
                eprintln!("  {id}: not judged: {failure}");
                let judgement = Judgement { failure: Some(failure), seconds: watched.seconds_in_case };
                self.folder.append(&Event::Judged { id, judgement })?;
                continue;
            }
            let all_done = open.iter().all(|(case, _)| after.finished.contains_key(&case.to_string()));
            if !all_done {
                let id = after.unfinished.unwrap_or_else(|| first.benchmark_id());
                let failure = watched.failure(&self.manifest.suite.effort);
                eprintln!("  {id}: {failure}");
                self.folder.append(&Event::Finished(Box::new(Outcome {
                    id,
                    status: failure.status,
                    message: Some(failure.message),
                    observed: Observed::default(),
                    seconds: watched.seconds_in_case,
                })))?;
            }
        }
    }

    /// Whether a case's answers are judged: there are labels, or other forms of the model to compare with.
    fn is_judged(&self, case: &Case, model: &Model) -> bool {
        let is_other_form = |(other, _): &(Case, Model)| {
            other.model == case.model && (other.variant != case.variant || other.dtype != case.dtype)
        };
        let has_labels = model.data_source != DataSource::Synthetic;
        let is_asked_for = has_labels || self.groups.iter().flat_map(|group| &group.cases).any(is_other_form);
        is_asked_for && can_be_judged(case, model)
    }

    pub(super) fn assignment(
        &self,
        index: usize,
        open: &[&(Case, Model)],
        outcomes: &BTreeMap<String, Outcome>,
    ) -> Assignment {
        let seconds: Vec<f64> = outcomes.values().map(|outcome| outcome.seconds).collect();
        let mean = (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64);
        let expected = |case: &Case| self.history.get(&case.to_string()).copied().or(mean);
        let later = self.groups[index + 1..].iter().flat_map(|group| &group.cases);
        Assignment {
            purpose: self.purpose,
            run_id: self.manifest.run_id.clone(),
            run_folder: self.folder.path().to_owned(),
            criterion_root: self.manifest.criterion_root.clone(),
            prepared: Assignment::prepared(self.prepared, open.iter().copied()),
            parent_process: std::process::id(),
            effort: Effort { threads: Some(self.manifest.threads), ..self.manifest.suite.effort.clone() },
            registered: self.registered.clone(),
            work: open
                .iter()
                .map(|(case, model)| WorkItem {
                    case: case.clone(),
                    model: model.clone(),
                    is_judged: self.is_judged(case, model),
                    expected_seconds: expected(case),
                })
                .collect(),
            cases_before: outcomes.len(),
            cases_in_all: self.groups.iter().map(|group| group.cases.len()).sum(),
            seconds_after: later.map(|(case, _)| expected(case)).sum(),
        }
    }

    pub(super) fn watch(&self, group: &Group, assignment: &std::path::Path) -> Result<Watched, String> {
        let kills_before = kernel_memory_kills();
        let mut child = self.spawn(group, assignment)?;
        let pipe = child.stderr.take();
        let said: Box<dyn Write + Send> = if self.is_silent { Box::new(sink()) } else { Box::new(stderr()) };
        let relay = thread::spawn(move || pipe.map(|pipe| relay(pipe, said)).unwrap_or_default());
        let started = SystemTime::now();
        let mut interrupted_since: Option<Instant> = None;
        let mut timed_out = false;
        let (status, seconds_in_case) = loop {
            let seconds_in_case = self.seconds_since_last_event(started);
            if let Some(status) = child.try_wait().map_err(|error| format!("waiting for a child: {error}"))? {
                break (status, seconds_in_case);
            }
            if seconds_in_case > self.manifest.suite.effort.timeout_seconds && !timed_out {
                timed_out = true;
                let _ = child.kill();
            }
            if is_interrupted() {
                let since = *interrupted_since.get_or_insert_with(Instant::now);
                if since.elapsed() > GRACE {
                    let _ = child.kill();
                }
            }
            let is_round = matches!(self.purpose, Purpose::Round(_));
            thread::sleep(if is_round { LOOK_EVERY_IN_A_ROUND } else { LOOK_EVERY });
        };
        let tail = relay.join().unwrap_or_default();
        let ran_out_of_memory = kernel_memory_kills() > kills_before;
        Ok(Watched { status, tail, timed_out, ran_out_of_memory, seconds_in_case })
    }

    fn spawn(&self, group: &Group, assignment: &std::path::Path) -> Result<Child, String> {
        let executable = own_executable()?;
        let threads = self.manifest.threads.to_string();
        let mut command = Command::new(&executable);
        command.args(&self.arguments).env(ASSIGNMENT, assignment).stdin(Stdio::null()).stderr(Stdio::piped());
        // Only Criterion has something to say there; libraries of devices print to it too.
        if self.is_silent || self.purpose == Purpose::Verify {
            command.stdout(Stdio::null());
        }
        // Read by libtorch's OpenMP, by MKL, and by candle's two pools, all when they start.
        for variable in ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"] {
            command.env(variable, &threads);
        }
        if let Ok(backend) = backend::find(&group.backend) {
            command.envs(backend.process_environment(&group.device));
        }
        command.spawn().map_err(|error| format!("{}: {error}", executable.display()))
    }

    /// Seconds since the child began its present case, told by the outcomes file, to which each case is written.
    fn seconds_since_last_event(&self, started: SystemTime) -> f64 {
        let written = std::fs::metadata(self.folder.outcomes_path()).and_then(|metadata| metadata.modified());
        let last = written.map_or(started, |written| written.max(started));
        last.elapsed().map_or(0.0, |elapsed| elapsed.as_secs_f64())
    }
}

/// This very executable, even where a build has meanwhile put another in its place.
fn own_executable() -> Result<PathBuf, String> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() {
        return Ok(running);
    }
    std::env::current_exe().map_err(|error| format!("the path of this executable: {error}"))
}

/// How a child ended.
pub(super) struct Watched {
    pub status: ExitStatus,
    /// The last lines of its standard error.
    tail: String,
    timed_out: bool,
    ran_out_of_memory: bool,
    seconds_in_case: f64,
}

impl Watched {
    /// What that means for the case that it was at.
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
        let last = self.tail.lines().next_back().unwrap_or_default();
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
