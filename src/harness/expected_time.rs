//! How long the cases of a run will take, from the last runs here.

use std::collections::BTreeMap;
use std::path::Path;

use crate::definition::{Effort, Status};
use crate::measurement::Sampling;
use crate::run_data::{Manifest, Outcomes, RunFolder};
use crate::selection::PlannedCase;

/// How long each case took when it last ran here with the same settings; its budget says it of others.
pub struct ExpectedTimes {
    effort: Effort,
    /// Seconds of a case that is measured in one process, by id.
    seconds: BTreeMap<String, f64>,
}

/// Besides the measured calls, a case takes loading, verification, warm-up, Criterion's analysis, and a process that watches
/// memory and energy.
const SECONDS_BESIDE: f64 = 5.0;
/// Runs that are looked at.
const LAST_RUNS: usize = 5;

impl ExpectedTimes {
    /// By the last runs, but the present one.
    pub fn read(runs: &Path, effort: &Effort, present_run: Option<&str>) -> Self {
        let mut earlier = RunFolder::all(runs);
        earlier.retain(|folder| Some(folder.id().as_str()) != present_run);
        let has_its_settings = |manifest: Manifest| {
            let Effort { shuffle, watch, processes, .. } = *effort;
            Effort { shuffle, watch, processes, ..manifest.suite.effort } == *effort
        };
        let mut times = ExpectedTimes { effort: effort.clone(), seconds: BTreeMap::new() };
        for folder in &earlier[earlier.len().saturating_sub(LAST_RUNS)..] {
            if folder.read_manifest().is_ok_and(has_its_settings) {
                let Outcomes { finished, seconds, .. } = folder.read_outcomes();
                let is_ok = |id: &String| finished.get(id).is_some_and(|outcome| outcome.row.status == Status::Ok);
                times.seconds.extend(seconds.into_iter().filter(|(id, _)| is_ok(id)));
            }
        }
        times
    }

    /// Seconds that a case takes in one process.
    pub fn of_process(&self, id: &str) -> f64 {
        self.seconds.get(id).copied().unwrap_or(1.5 * self.effort.budget_seconds + SECONDS_BESIDE)
    }

    /// Takes a case that did not run here to have calls of so many milliseconds.
    pub fn learn(&mut self, id: &str, call_ms: f64) {
        let call_ns = (call_ms * 1e6) as u64;
        let sampling = Sampling::choose(&self.effort, call_ns, &[]);
        let measured = sampling.samples as f64 * (sampling.calls_per_sample * call_ns) as f64 / 1e9;
        let warm_up = measured.min(self.effort.budget_seconds / 2.0);
        self.seconds.entry(id.to_owned()).or_insert(warm_up + measured + SECONDS_BESIDE);
    }

    /// Returns true if no run here has told how long the case takes.
    pub fn lacks(&self, id: &str) -> bool {
        !self.seconds.contains_key(id)
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
            let seconds = self.effort.processes as f64 * self.of_process(&id);
            total += seconds;
            println!("{id:<44} {seconds:>6.1} s");
        }
        println!("{} cases, about {:.1} min", cases.len(), total / 60.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_case_is_expected_to_take_longer_and_a_run_here_is_believed_first() {
        let effort = Effort { iterations: 100, least_seconds: 0.2, budget_seconds: 2.0, ..Effort::default() };
        let mut times = ExpectedTimes { effort, seconds: [("here".to_owned(), 3.0)].into() };
        for (id, call_ms) in [("here", 1e4), ("fast", 0.01), ("slow", 1e4)] {
            times.learn(id, call_ms);
        }
        let seconds = |id: &str| (10.0 * times.of_process(id)).round() / 10.0;
        // The least time, twice, and ten calls of ten seconds after a warm-up of half the budget.
        assert_eq!(["here", "fast", "slow"].map(seconds), [3.0, 5.4, 106.0]);
        assert!(times.lacks("other") && !times.lacks("slow"));
    }
}
