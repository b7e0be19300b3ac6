//! The expected times of the cases of a run, from the last runs here.

use std::collections::BTreeMap;
use std::path::Path;

use crate::definition::{Case, Effort, Status};
use crate::fixture::work_of;
use crate::measurement::Sampling;
use crate::report::numbers::plural;
use crate::run_data::{Manifest, Outcomes, RunFolder, Work};
use crate::selection::PlannedCase;

/// How long each case took when it last ran here with the same settings, or else an estimate from its budget.
pub struct ExpectedTimes {
    effort: Effort,
    /// What each case has measured in one process, and the seconds that it took; the newest last.
    seconds: BTreeMap<Case, Vec<(Work, f64)>>,
}

/// Seconds of a case besides its measured calls: loading, verification, warm-up, Criterion's analysis, and a process
/// that watches memory and energy.
const SECONDS_BESIDE: f64 = 5.0;
/// How many of the last runs are read.
const LAST_RUNS: usize = 5;

impl ExpectedTimes {
    /// Reads the times of the last runs, except the present one.
    pub fn read(runs: &Path, effort: &Effort, present_run: Option<&str>) -> Self {
        let mut earlier = RunFolder::all(runs);
        earlier.retain(|folder| Some(folder.id().as_str()) != present_run);
        let has_its_settings = |manifest: Manifest| {
            let Effort { shuffle, watch, processes, .. } = *effort;
            Effort { shuffle, watch, processes, ..manifest.suite.effort } == *effort
        };
        let mut times = ExpectedTimes { effort: effort.clone(), seconds: BTreeMap::new() };
        for folder in &earlier[earlier.len().saturating_sub(LAST_RUNS)..] {
            if folder.read_manifest().is_ok_and(has_its_settings)
                && let Ok(Outcomes { finished, seconds, .. }) = folder.read_outcomes()
            {
                let finished = finished.iter().filter(|(_, outcome)| outcome.row.status == Status::Ok);
                for (outcome, seconds) in finished.filter_map(|(id, outcome)| Some((outcome, *seconds.get(id)?))) {
                    times.put(Work::of(&outcome.row), seconds);
                }
            }
        }
        times
    }

    fn put(&mut self, work: Work, seconds: f64) {
        self.seconds.entry(work.case.clone()).or_default().push((work, seconds));
    }

    fn known(&self, work: &Work) -> Option<f64> {
        let of_case = self.seconds.get(&work.case)?;
        of_case.iter().rev().find(|(known, _)| known.is_same(work)).map(|(_, seconds)| *seconds)
    }

    /// Seconds that a case takes in one process.
    pub fn of_process(&self, work: &Work) -> f64 {
        self.known(work).unwrap_or(1.5 * self.effort.budget_seconds + SECONDS_BESIDE)
    }

    /// Estimates a case that has not run here, from the predicted milliseconds of a call.
    pub fn learn(&mut self, work: Work, call_ms: f64) {
        let call_ns = (call_ms * 1e6) as u64;
        let sampling = Sampling::choose(&self.effort, call_ns, &[]);
        let measured = sampling.samples as f64 * (sampling.calls_per_sample * call_ns) as f64 / 1e9;
        let warm_up = measured.min(self.effort.budget_seconds / 2.0);
        if self.lacks(&work) {
            self.put(work, warm_up + measured + SECONDS_BESIDE);
        }
    }

    /// Returns true if the case has neither run here nor been estimated.
    pub fn lacks(&self, work: &Work) -> bool {
        self.known(work).is_none()
    }

    /// Prints for each case the seconds in all its processes, or why it cannot run.
    pub fn print(&self, cases: &[&PlannedCase]) {
        let mut total = 0.0;
        for planned in cases {
            let id = planned.case.to_string();
            if let Err(failure) = &planned.model {
                println!("{id:<44} {failure}");
                continue;
            }
            let seconds = self.effort.processes as f64 * self.of_process(&work_of_planned(planned));
            total += seconds;
            println!("{id:<44} {seconds:>6.1} s");
        }
        let lost = cases.iter().filter(|planned| planned.model.is_err()).count();
        let lost = if lost == 0 { String::new() } else { format!(" ({lost} cannot run)") };
        println!("{}{lost}, about {:.1} min", plural(cases.len(), "case", "cases"), total / 60.0);
    }
}

/// The work of a planned case, as far as it is known before it runs.
pub fn work_of_planned(planned: &PlannedCase) -> Work {
    let model = planned.model.as_ref().ok().or(planned.definition.as_ref().ok());
    model.map_or_else(|| Work::named(&planned.case), |model| work_of(&planned.case, model))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_case_is_expected_to_take_longer_and_a_run_here_is_believed_first() {
        let effort = Effort { iterations: 100, least_seconds: 0.2, budget_seconds: 2.0, ..Effort::default() };
        let work = |name: &str| Work { input_shape: Some("1x8".into()), ..Work::named(&Case::new(name, "ort", 1)) };
        let mut times = ExpectedTimes { effort, seconds: BTreeMap::new() };
        times.put(work("here"), 3.0);
        for (name, call_ms) in [("here", 1e4), ("fast", 0.01), ("slow", 1e4)] {
            times.learn(work(name), call_ms);
        }
        let seconds = |name: &str| (10.0 * times.of_process(&work(name))).round() / 10.0;
        // Fast: twice the minimum time. Slow: ten calls of ten seconds after a warm-up of half the budget.
        assert_eq!(["here", "fast", "slow"].map(seconds), [3.0, 5.4, 106.0]);
        assert!(times.lacks(&work("other")) && !times.lacks(&work("slow")));
        // The time is not known for another size of the same case.
        assert!(times.lacks(&Work { input_shape: Some("1x64".into()), ..work("here") }));
    }
}
