//! How long the cases of a run will take, from the last runs here.

use std::collections::BTreeMap;
use std::path::Path;

use crate::definition::{Effort, Status};
use crate::run_data::{Manifest, Outcome, Outcomes, RunFolder};
use crate::selection::PlannedCase;

/// How long each case took when it last ran here with the same settings; its budget says it of others.
pub struct ExpectedTimes {
    effort: Effort,
    /// Seconds in one process, by id.
    measured: BTreeMap<String, f64>,
    watched: BTreeMap<String, f64>,
}

/// Besides the measured calls, a case takes loading, verification, warm-up and Criterion's analysis.
const SECONDS_BESIDE: f64 = 3.0;
/// A process that watches memory and energy.
const WATCH_SECONDS: f64 = 2.0;
/// Runs that are looked at.
const LAST_RUNS: usize = 5;

impl ExpectedTimes {
    /// By the last runs, but the present one.
    pub fn read(runs: &Path, effort: &Effort, present_run: Option<&str>) -> Self {
        let mut earlier = RunFolder::all(runs);
        earlier.retain(|folder| Some(folder.id().as_str()) != present_run);
        let mut times = ExpectedTimes { effort: effort.clone(), measured: BTreeMap::new(), watched: BTreeMap::new() };
        let has_its_settings = |manifest: Manifest| {
            let Effort { shuffle, watch, processes, .. } = *effort;
            Effort { shuffle, watch, processes, ..manifest.suite.effort } == *effort
        };
        for folder in &earlier[earlier.len().saturating_sub(LAST_RUNS)..] {
            if !folder.read_manifest().is_ok_and(has_its_settings) {
                continue;
            }
            let Outcomes { finished, watch_seconds, evaluated, .. } = folder.read_outcomes();
            let seconds = |(id, outcome): (String, Outcome)| {
                let seconds = outcome.seconds + evaluated.get(&id).map_or(0.0, |evaluation| evaluation.seconds);
                (outcome.row.status == Status::Ok).then_some((id, seconds))
            };
            times.measured.extend(finished.into_iter().filter_map(seconds));
            times.watched.extend(watch_seconds);
        }
        times
    }

    /// Seconds that a case takes in one process.
    pub fn of_process(&self, id: &str) -> f64 {
        self.measured.get(id).copied().unwrap_or(1.5 * self.effort.budget_seconds + SECONDS_BESIDE)
    }

    /// Prints for each case the seconds in all its processes, or why it cannot run.
    pub fn print(&self, cases: &[&PlannedCase]) {
        let mut total = 0.0;
        for PlannedCase { case, model, .. } in cases {
            let id = case.to_string();
            if let Err(failure) = model {
                println!("{id:<44} {failure}");
                continue;
            }
            let watched = self.watched.get(&id).copied().unwrap_or(WATCH_SECONDS);
            let watched = if self.effort.watch { watched } else { 0.0 };
            let seconds = self.effort.processes as f64 * self.of_process(&id) + watched;
            total += seconds;
            println!("{id:<44} {seconds:>6.1} s");
        }
        println!("{} cases, about {:.1} min", cases.len(), total / 60.0);
    }
}
