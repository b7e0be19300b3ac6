//! How long a run will take, from the last runs here.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use clap::Parser;

use super::plan::{Plan, Request, make_plan};
use crate::definition::{Case, CaseFailure, Effort, Status};
use crate::paths::Paths;
use crate::run_data::{CriterionArguments, Manifest, Outcome, Outcomes, RunFolder};
use crate::selection::PlannedCase;

/// A case and how long it will take, or why it will not run.
pub struct ExpectedTime {
    pub case: Case,
    pub seconds: Result<f64, CaseFailure>,
}

/// Besides the measured calls, a case takes loading, verification, warm-up and Criterion's analysis.
const SECONDS_BESIDE: f64 = 3.0;
/// A process that watches memory and energy.
const WATCH_SECONDS: f64 = 2.0;

/// Estimates a run without running it: by the time that each case took when it last ran here with the same settings, or
/// else by its budget.
///
/// # Errors
/// As [`run`](super::run::run).
pub fn expected_times(request: &Request) -> Result<Vec<ExpectedTime>> {
    let parsed = CriterionArguments::parse_from(&request.criterion_arguments);
    let paths = Paths::find();
    let Plan { suite, cases } = make_plan(&paths, &request.selection, &request.effort)?;
    let filter = parsed.id_filter()?;
    let past = PastTimes::read(&paths.runs(), &suite.effort, None);
    let selected = cases.into_iter().filter(|planned| filter.is_match(&planned.case.to_string()));
    let expected = |planned: PlannedCase| ExpectedTime {
        seconds: planned.model.map(|_| past.expected_seconds(&planned.case.to_string(), &suite.effort)),
        case: planned.case,
    };
    Ok(selected.map(expected).collect())
}

/// How long each case took when it last ran, by id.
#[derive(Default)]
pub struct PastTimes {
    pub measured: BTreeMap<String, f64>,
    watched: BTreeMap<String, f64>,
}

impl PastTimes {
    /// Of the last runs with these settings, but the present one.
    pub fn read(runs: &Path, effort: &Effort, present_run: Option<&str>) -> Self {
        let mut earlier = RunFolder::all(runs);
        earlier.retain(|folder| folder.path().file_name().and_then(|name| name.to_str()) != present_run);
        let mut history = PastTimes::default();
        for folder in &earlier[earlier.len().saturating_sub(5)..] {
            let has_its_settings = |manifest: Manifest| {
                let Effort { shuffle, watch, processes, .. } = *effort;
                Effort { shuffle, watch, processes, ..manifest.suite.effort } == *effort
            };
            if !folder.read_manifest().is_ok_and(has_its_settings) {
                continue;
            }
            let Outcomes { finished, watch_seconds, evaluated, .. } = folder.read_outcomes();
            let is_ok = |(id, outcome): (String, Outcome)| {
                let seconds = outcome.seconds + evaluated.get(&id).map_or(0.0, |evaluation| evaluation.seconds);
                (outcome.status == Status::Ok).then_some((id, seconds))
            };
            history.measured.extend(finished.into_iter().filter_map(is_ok));
            history.watched.extend(watch_seconds);
        }
        history
    }

    fn expected_seconds(&self, id: &str, effort: &Effort) -> f64 {
        let measured = self.measured.get(id).copied();
        let watched = self.watched.get(id).copied().unwrap_or(WATCH_SECONDS);
        let measured = measured.unwrap_or(1.5 * effort.budget_seconds + SECONDS_BESIDE);
        effort.processes as f64 * measured + if effort.watch { watched } else { 0.0 }
    }
}
