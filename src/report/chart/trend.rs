//! The median latency over runs, with the changes that are shown beyond the machine's noise.

use std::collections::HashMap;

use indexmap::IndexSet;
use serde::Serialize;

use super::{Chart, Plot, TrendPoint, panel_with_batch, positive};
use crate::compare::{
    Allowance, CaseFilter, ComparedCase, EarlierRuns, Noise, Options, RatioInterval, Side, Verdict, compare,
};
use crate::definition::{Case, Status};
use crate::report::selection::{ReportedRun, Shown};
use crate::run_data::Record;

/// A change that is shown: `faster` or `slower` than the machine's noise explains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    pub verdict: Verdict,
    /// The time over that of the run before.
    #[serde(flatten)]
    pub interval: RatioInterval,
}

/// A change of a case in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub run_id: String,
    pub case: Case,
    pub change: Change,
}

impl Step {
    /// Compares each run with the last measurements before it on the same machine, as `inferbench compare` does. `known` says
    /// how noisy a host is if there are no runs to tell it.
    pub fn find(shown: &Shown<'_>, known: &dyn Fn(&str) -> Noise) -> Vec<Step> {
        let options = Options {
            confidence: 0.99,
            tolerance: 0.05,
            allowance: Allowance { memory: 0.1, accuracy: 0.005 },
            allowed: Vec::new(),
            missing_is_allowed: true,
            filter: CaseFilter::default(),
        };
        let mut before: HashMap<(&str, Case), &Record> = HashMap::new();
        let mut steps = Vec::new();
        for run in &shown.runs {
            let measured = || run.records.iter().filter(|record| record.status == Status::Ok);
            let last: Vec<Record> = measured()
                .filter_map(|record| before.get(&(record.host_id.as_str(), record.case())).copied().cloned())
                .collect();
            if !last.is_empty() {
                steps.extend(steps_of(shown, run, last, known, &options));
            }
            for record in measured() {
                before.insert((&record.host_id, record.case()), record);
            }
        }
        steps
    }
}

fn steps_of(
    shown: &Shown<'_>,
    run: &ReportedRun,
    last: Vec<Record>,
    known: &dyn Fn(&str) -> Noise,
    options: &Options,
) -> Vec<Step> {
    let is_compared =
        |record: &Record| record.run_id == run.run_id() || last.iter().any(|before| before.run_id == record.run_id);
    let others = shown.runs.iter().filter(|other| !other.records.first().is_some_and(is_compared));
    let earlier = EarlierRuns::of(others.flat_map(|other| other.records.iter().cloned()));
    let base = Side::of_records("before", last.clone());
    let candidate = Side::of_records(run.run_id(), run.records.clone());
    let found = compare(&base, &candidate, &earlier, known, options);
    found.cases.into_iter().filter_map(|case| step(run.run_id(), case)).collect()
}

fn step(run_id: &str, compared: ComparedCase) -> Option<Step> {
    let latency = compared.latency?;
    let is_shown = latency.verdict.is_change();
    let change = Change { verdict: latency.verdict, interval: latency.interval };
    is_shown.then(|| Step { run_id: run_id.to_owned(), case: compared.case, change })
}

/// The latency of each case over the runs.
pub fn chart(shown: &Shown<'_>, steps: &[Step]) -> Chart {
    let changes: HashMap<(&str, &Case), &Change> =
        steps.iter().map(|step| ((step.run_id.as_str(), &step.case), &step.change)).collect();
    let places: HashMap<(&str, &Case), usize> = shown
        .cases
        .iter()
        .enumerate()
        .map(|(index, case)| ((case.record.host_id.as_str(), &case.case), index))
        .collect();
    let mut found: Vec<(usize, usize, f64, Option<Change>)> = Vec::new();
    let mut counts = vec![0; shown.cases.len()];
    for (run, reported) in shown.runs.iter().enumerate() {
        for record in reported.records.iter().filter(|record| record.status == Status::Ok) {
            let case = record.case();
            let Some(&index) = places.get(&(record.host_id.as_str(), &case)) else { continue };
            let Some(value) = positive(record.latency_p50_ms) else { continue };
            let change = changes.get(&(record.run_id.as_str(), &case)).map(|change| (*change).clone());
            found.push((index, run, value, change));
            counts[index] += 1;
        }
    }
    // A case that was measured once has no trend. Panels are in the order of the cases.
    found.retain(|(index, ..)| counts[*index] > 1);
    let mut panels = IndexSet::new();
    for (index, case) in shown.cases.iter().enumerate() {
        if counts[index] > 1 {
            panels.insert(panel_with_batch(case));
        }
    }
    let point = |(case, run, value, change): (usize, usize, f64, Option<Change>)| {
        let panel = panels.insert_full(panel_with_batch(&shown.cases[case])).0;
        TrendPoint { case, panel, run, value, change }
    };
    let points: Vec<TrendPoint> = found.into_iter().map(point).collect();
    Chart {
        id: "trend",
        title: "Trend over runs",
        caption: "Median time of a call in each run, the newest on the right. A triangle marks a change from the run \
                  before that is larger than this machine's noise explains (99 %): up is slower, down is faster."
            .into(),
        x: "run",
        y: "latency, p50 (ms)",
        is_log: true,
        absent: points.is_empty().then(|| {
            "No case was measured twice on one machine; measure again, or show several: `inferbench report --last 10 --format html`.".into()
        }),
        plot: Plot::Trend {
            panels: panels.into_iter().collect(),
            runs: shown.runs.iter().map(|run| run_name(&run.records[0])).collect(),
            points,
        },
    }
}

/// `01-31 14:05 1a2b3c4`: the time and the commit of a run.
fn run_name(record: &Record) -> String {
    let time = record.timestamp.strftime("%m-%d %H:%M");
    let commit: String = record.git_commit.iter().flat_map(|commit| commit.chars().take(7)).collect();
    format!("{time} {commit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{record, run_of};

    /// Ten runs of five commits, 1 % apart by chance; the seventh is slower for good.
    fn history() -> Vec<ReportedRun> {
        let jitter = [0.0, 0.004, -0.006, 0.002, -0.003, 0.005, -0.002, 0.003, -0.005, 0.001];
        (0..10)
            .map(|index| {
                let level = if index < 6 { 10.0 } else { 14.0 };
                let mut found = record("m", "ort", 1, Some(level * (1.0 + jitter[index])));
                found.git_commit = Some(format!("{:07}", index / 2));
                found.git_dirty = Some(false);
                found.iterations = Some(1000);
                run_of(index, vec![found])
            })
            .collect()
    }

    #[test]
    fn the_one_change_is_marked_and_chance_is_not() {
        let runs = history();
        let shown = Shown::new(&runs[9..], &runs[..9]);
        let steps = Step::find(&shown, &|_| Noise::assumed());
        let found: Vec<_> = steps.iter().map(|step| (step.run_id.as_str(), step.change.verdict)).collect();
        assert_eq!(found, [("run6", Verdict::Slower)]);
        assert!((steps[0].change.interval.ratio - 1.4).abs() < 0.02, "{steps:?}");
        let chart = chart(&shown, &steps);
        let Plot::Trend { points, runs, .. } = chart.plot else { panic!("{:?}", chart.plot) };
        assert_eq!((points.len(), runs.len()), (10, 10));
        let marked: Vec<usize> = points.iter().filter(|point| point.change.is_some()).map(|point| point.run).collect();
        assert_eq!(marked, [6]);
    }

    #[test]
    fn one_run_is_no_trend() {
        let runs = &history()[..1];
        assert!(chart(&Shown::new(runs, &[]), &[]).absent.unwrap().contains("--last"));
    }
}
