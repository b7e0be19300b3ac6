//! One process of a duel: the protocol between `inferbench duel` and a contestant's executable.
//!
//! `inferbench round` plans the cases as a run does and starts a fresh child for each backend and device; the child loads
//! a case, warms it up and times calls for a fixed time, without Criterion, since the duel takes its statistics over
//! processes and not within one. One JSON document goes to standard output. Contestants of other revisions speak this
//! protocol too: fields are only ever added, and [`ROUND_FORMAT`] changes when an older reader would misunderstand.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

use super::plan::{Plan, make_plan};
use super::protocol::{CallFigures, Preparations, Purpose, RoundTerms};
use super::supervisor::{RunEnd, Supervisor, WorkerGroup};
use super::worker::read_figures;
use crate::definition::{CaseFailure, EffortArguments, PlannedCase, Selection, Status};
use crate::paths::Paths;
use crate::run_data::{CriterionArguments, RunFolder};

/// The version of the protocol.
pub const ROUND_FORMAT: u32 = 1;

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

/// Does one process's part. `None` where the user stopped it.
///
/// # Errors
/// The suite or a filter is wrong, or the target folder cannot be written.
pub fn run_round(paths: &Paths, request: &RoundRequest) -> Result<Option<RoundReport>, String> {
    let Plan { mut suite, mut cases } =
        make_plan(paths, &request.selection, &request.effort).map_err(|error| format!("{error:#}"))?;
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

    let folder = RunFolder::new(paths.unkept_runs().join(format!("round-{}", std::process::id())));
    fs::create_dir_all(folder.path()).map_err(|error| format!("{}: {error}", folder.path().display()))?;
    let session = Supervisor {
        purpose: Purpose::Round(request.terms),
        folder: &folder,
        criterion_root: &paths.criterion(),
        effort: &suite.effort,
        prepared: &preparations,
        groups: WorkerGroup::by_backend_and_device(&runnable),
        registered: Vec::new(),
        arguments: Vec::new(),
        parsed: &CriterionArguments::default(),
        is_silent: true,
        expected_seconds: BTreeMap::new(),
    };
    let ending = session.run().map_err(|error| format!("{error:#}"))?;
    let figures = read_figures(folder.path());
    let outcomes = folder.read_outcomes().finished;
    let _ = fs::remove_dir_all(folder.path());
    if ending == RunEnd::Interrupted {
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
