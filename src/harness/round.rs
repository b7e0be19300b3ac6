//! One process of a duel: the protocol between `inferbench duel` and a contestant's executable.
//!
//! `inferbench round` plans the cases as a run does and starts a fresh child for each backend and device; the child loads
//! a case, warms it up and times calls for a fixed time, without Criterion, since the duel takes its statistics over
//! processes and not within one. One JSON document goes to standard output. Contestants of other revisions speak this
//! protocol too: fields are only ever added, and [`ROUND_FORMAT`] changes when an older reader would misunderstand.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::arguments::CriterionArguments;
use super::assignment::{Assignment, Purpose};
use super::child::{recorded, unwinding};
use super::machine::{Machine, Revision};
use super::manifest::{MANIFEST_FORMAT, Manifest, RunFolder};
use super::parent::{self, Ending};
use super::preparation::Preparations;
use super::run::by_contestant;
use super::trial::{self, Fixtures, Trial};
use super::{Plan, make_plan};
use crate::definition::{CaseFailure, EffortArguments, PlannedCase, Selection, Status};
use crate::measurement::{Slowed, TimedSession};
use crate::paths::Paths;

/// The version of the protocol.
pub const ROUND_FORMAT: u32 = 1;
/// A median of fewer calls says little of the process.
const FEWEST_CALLS: usize = 10;
/// What there is room for at first; more than fit allocate between two calls, and not in one.
const ROOM: usize = 1 << 16;

/// How a child times its cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTerms {
    /// Of measured calls a case; at least ten are made.
    pub duration: Duration,
    /// Millionths that every call is slowed down by; with 0 the calls go through the same code. Absent in a duel
    /// without a slow-down.
    pub slowdown_ppm: Option<u32>,
    /// Whether the outputs are compared, before and after.
    pub is_proven: bool,
}

/// What one process is asked for.
#[derive(Clone, Debug)]
pub struct RoundRequest {
    pub selection: Selection,
    pub effort: EffortArguments,
    pub terms: RoundTerms,
    /// Only the cases of these ids; all where it is empty.
    pub ids: Vec<String>,
}

/// What one process answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundReport {
    pub format: u32,
    pub cases: Vec<RoundCase>,
}

/// One case of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundCase {
    pub id: String,
    pub status: Status,
    pub message: Option<String>,
    /// Present where the status is `ok`.
    pub figures: Option<CallFigures>,
}

/// The calls of one case in one process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallFigures {
    pub calls: usize,
    pub median_ns: f64,
    pub mean_ns: f64,
    pub p99_ns: f64,
}

impl CallFigures {
    /// `None` of no calls. Percentiles by nearest rank, as in the records.
    pub fn of(mut calls_ns: Vec<u64>) -> Option<Self> {
        calls_ns.sort_unstable();
        let rank = |part: f64| calls_ns.get(((part * calls_ns.len() as f64).ceil() as usize).saturating_sub(1));
        Some(CallFigures {
            calls: calls_ns.len(),
            median_ns: *rank(0.5)? as f64,
            mean_ns: calls_ns.iter().sum::<u64>() as f64 / calls_ns.len() as f64,
            p99_ns: *rank(0.99)? as f64,
        })
    }
}

/// Does one process's part. `None` where the user stopped it.
///
/// # Errors
/// The suite or a filter is wrong, or the target folder cannot be written.
pub fn run_round(paths: &Paths, request: &RoundRequest) -> Result<Option<RoundReport>, String> {
    let Plan { mut suite, mut cases } = make_plan(paths, &request.selection, &request.effort)?;
    if !request.ids.is_empty() {
        cases.retain(|planned| request.ids.contains(&planned.case.to_string()));
    }
    // Half of it is the most that a warm-up takes.
    suite.effort.budget_seconds = 2.0 * request.terms.duration.as_secs_f64().max(0.5);
    let mut failures: BTreeMap<String, CaseFailure> = BTreeMap::new();
    let mut runnable = Vec::new();
    let mut preparations = Preparations::default();
    for PlannedCase { case, model, .. } in &cases {
        let ready = model.clone().and_then(|model| {
            preparations.add(&model, paths, case.dtype).map_err(CaseFailure::failed)?;
            Ok(model)
        });
        match ready {
            Ok(model) => runnable.push((case.clone(), model)),
            Err(failure) => drop(failures.insert(case.to_string(), failure)),
        }
    }

    let started = Timestamp::now();
    let id = format!("round-{}", std::process::id());
    let folder = RunFolder::new(paths.unkept_runs().join(&id));
    fs::create_dir_all(folder.path()).map_err(|error| format!("{}: {error}", folder.path().display()))?;
    let manifest = Manifest {
        format: MANIFEST_FORMAT,
        run_id: id,
        started,
        finished: None,
        is_interrupted: false,
        arguments: Vec::new(),
        suite_name: suite.name.clone(),
        threads: suite.effort.effective_threads(),
        inferbench_version: env!("CARGO_PKG_VERSION").into(),
        rustc_version: env!("INFERBENCH_RUSTC").into(),
        // Facts that take time to read, and that nobody asks a round for.
        revision: Revision::default(),
        machine: Machine::default(),
        peaks: None,
        criterion_root: paths.criterion(),
        saved_baseline: None,
        compared_baseline: None,
        is_quick: false,
        suite,
        cases: Vec::new(),
    };
    let session = parent::Session {
        purpose: Purpose::Round(request.terms),
        manifest: &manifest,
        folder: &folder,
        prepared: &preparations,
        groups: by_contestant(&runnable),
        registered: Vec::new(),
        arguments: Vec::new(),
        parsed: &CriterionArguments::default(),
        is_silent: true,
        history: BTreeMap::new(),
    };
    let ending = session.run()?;
    let figures = read_figures(folder.path());
    let outcomes = folder.read_outcomes().finished;
    let _ = fs::remove_dir_all(folder.path());
    if ending == Ending::Interrupted {
        return Ok(None);
    }
    let round_case = |planned: &PlannedCase| {
        let id = planned.case.to_string();
        let (status, message) = match (failures.get(&id), outcomes.get(&id)) {
            (Some(failure), _) => (failure.status, Some(failure.message.clone())),
            (None, Some(outcome)) => (outcome.status, outcome.message.clone()),
            (None, None) => (Status::Failed, Some("its process ended before it".into())),
        };
        let figures = figures.get(&id).copied().filter(|_| status == Status::Ok);
        RoundCase { id, status, message, figures }
    };
    Ok(Some(RoundReport { format: ROUND_FORMAT, cases: cases.iter().map(round_case).collect() }))
}

/// The child's part: times the calls of each case of the assignment.
///
/// # Errors
/// The run's folder cannot be written any more.
pub fn time_calls(assignment: &Assignment, terms: RoundTerms) -> Result<(), String> {
    let folder = RunFolder::new(assignment.run_folder.clone());
    let mut fixtures = Fixtures::default();
    for item in &assignment.work {
        let id = item.case.benchmark_id();
        recorded(&folder, &id, |observed| {
            let (case, model) = (&item.case, &item.model);
            let mut trial = unwinding(|| {
                if terms.is_proven {
                    trial::load_and_prove(case, model, assignment, &mut fixtures, observed)
                } else {
                    trial::load_unproven(case, model, assignment, &mut fixtures, observed)
                }
            })?;
            if let Some(ppm) = terms.slowdown_ppm {
                let slowed = |session| -> Box<dyn crate::backend::Session> {
                    Box::new(Slowed::new(session, f64::from(ppm) / 1e6))
                };
                trial.session = trial.session.wrapped(slowed);
            }
            let calls = unwinding(|| {
                trial.warm_up(case, &assignment.effort)?;
                calls_for(&mut trial, terms.duration)
            })?;
            if terms.is_proven {
                trial.prove_again()?;
            }
            let figures = CallFigures::of(calls).ok_or_else(|| CaseFailure::failed("no call was made"))?;
            write_figures(&assignment.run_folder, &id.to_string(), figures).map_err(CaseFailure::failed)
        })?;
    }
    Ok(())
}

fn calls_for(trial: &mut Trial, duration: Duration) -> Result<Vec<u64>, CaseFailure> {
    let mut calls = Vec::with_capacity(ROOM);
    let session: &mut TimedSession = &mut trial.session;
    let start = Instant::now();
    while calls.len() < FEWEST_CALLS || start.elapsed() < duration {
        calls.extend_from_slice(session.call(1)?.as_nanoseconds());
    }
    Ok(calls)
}

/// One line a case, beside the outcomes.
#[derive(Serialize, Deserialize)]
struct FiguresLine {
    id: String,
    figures: CallFigures,
}

fn figures_path(run_folder: &Path) -> PathBuf {
    run_folder.join("figures.jsonl")
}

fn write_figures(run_folder: &Path, id: &str, figures: CallFigures) -> Result<(), String> {
    let line = serde_json::to_string(&FiguresLine { id: id.to_owned(), figures }).map_err(|error| error.to_string())?;
    let path = figures_path(run_folder);
    let file = OpenOptions::new().create(true).append(true).open(&path);
    file.and_then(|mut file| writeln!(file, "{line}")).map_err(|error| format!("{}: {error}", path.display()))
}

fn read_figures(run_folder: &Path) -> BTreeMap<String, CallFigures> {
    let text = fs::read_to_string(figures_path(run_folder)).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<FiguresLine>(line).ok());
    lines.map(|line| (line.id, line.figures)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_nearest_rank() {
        let figures = CallFigures::of((1..=100).rev().collect()).unwrap();
        assert_eq!((figures.calls, figures.median_ns, figures.mean_ns, figures.p99_ns), (100, 50.0, 50.5, 99.0));
        assert_eq!(CallFigures::of(Vec::new()), None);
    }
}
