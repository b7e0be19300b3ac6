//! How long a run will take, from the last runs here.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Parser;

use super::arguments::CriterionArguments;
use super::manifest::RunFolder;
use super::run::Request;
use super::{Plan, make_plan};
use crate::definition::{Case, PlannedCase, Shortfall, Status};
use crate::places::Places;

/// A case and how long it will take, or why it will not run.
pub struct Estimate {
    pub case: Case,
    pub seconds: Result<f64, Shortfall>,
}

/// Estimates a run without running it: by the time that each case took when it last ran here, or else by its budget.
///
/// # Errors
/// As [`run`](super::run::run).
pub fn estimate(request: &Request) -> Result<Vec<Estimate>, String> {
    let parsed = CriterionArguments::parse_from(&request.criterion_arguments);
    let places = Places::find();
    let Plan { suite, cases } = make_plan(&places, &request.selection, &request.effort)?;
    let filter = parsed.id_filter()?;
    let history = history(&places.runs(), None);
    // Loading, proof, warm-up and Criterion's analysis come on top of the measured calls.
    let by_budget = 1.5 * suite.effort.budget_seconds + 3.0;
    let selected = cases.into_iter().filter(|planned| filter.matches(&planned.case.to_string()));
    let estimate = |planned: PlannedCase| Estimate {
        seconds: planned.model.map(|_| history.get(&planned.case.to_string()).copied().unwrap_or(by_budget)),
        case: planned.case,
    };
    Ok(selected.map(estimate).collect())
}

/// How long each case took when it last ran, in one of the last runs but the present one.
pub fn history(runs: &Path, present_run: Option<&str>) -> BTreeMap<String, f64> {
    let mut earlier = RunFolder::all(runs);
    earlier.retain(|folder| folder.path().file_name().and_then(|name| name.to_str()) != present_run);
    let mut seconds = BTreeMap::new();
    for folder in &earlier[earlier.len().saturating_sub(5)..] {
        for (id, outcome) in folder.read_outcomes().finished {
            if outcome.status == Status::Ok {
                seconds.insert(id, outcome.seconds);
            }
        }
    }
    seconds
}
