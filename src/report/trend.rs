//! The median latency over runs, with the changes that are shown beyond the machine's noise.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::selection::{ReportedRun, Shown};
use crate::compare::{ComparedCase, EarlierRuns, LatencyChange, Noise, Options, Side, compare};
use crate::definition::{Case, Status};
use crate::run_data::{Record, Work, Works};

/// The median latency of a case in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrendPoint {
    /// An index into the cases.
    pub case: usize,
    /// An index into the runs, the oldest first.
    pub run: usize,
    /// Milliseconds.
    pub value: f64,
    /// How it has changed from the run before, if the machine's noise does not explain the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<LatencyChange>,
}

/// All measurements of the shown cases, run by run. Each run is compared with the last measurements before it on the
/// same machine, as `inferbench compare` does. `known` is the noise of a host without runs that show it.
pub fn trend<'a>(shown: &Shown<'a>, known: &dyn Fn(&str) -> Noise) -> Vec<TrendPoint> {
    // A line shows one work: another file or size of the same name is not a point of it.
    let mut works = Works::default();
    let mut keyed = |record: &'a Record| (record.host_id.as_str(), works.number(Work::of(record)));
    let measured = |run: &&'a ReportedRun| run.records.iter().filter(|record| record.status == Status::Ok);
    let runs: Vec<Vec<(Key<'_>, &Record)>> =
        shown.runs.iter().map(|run| measured(run).map(|record| (keyed(record), record)).collect()).collect();
    let places: HashMap<Key<'_>, usize> = shown.cases.iter().map(|case| keyed(case.record)).zip(0..).collect();
    let mut before: HashMap<Key<'_>, &Record> = HashMap::new();
    let mut points = Vec::new();
    for (index, (run, measured)) in shown.runs.iter().zip(runs).enumerate() {
        let last = measured.iter().filter_map(|(key, _)| before.get(key).copied()).cloned().collect();
        let mut changes = changes(shown, run, last, known);
        for (key, record) in measured {
            let value = record.latency_p50_ms.filter(|value| value.is_finite() && *value > 0.0);
            if let (Some(&case), Some(value)) = (places.get(&key), value) {
                let change = changes.remove(&(record.host_id.clone(), record.case()));
                points.push(TrendPoint { case, run: index, value, change });
            }
            before.insert(key, record);
        }
    }
    points
}

/// The machine and the number of the work.
type Key<'a> = (&'a str, usize);

/// The cases of a run that have become faster or slower, by machine. A merged run has the anchor case of each machine,
/// and these are not repetitions on one side.
fn changes(
    shown: &Shown<'_>,
    run: &ReportedRun,
    last: Vec<Record>,
    known: &dyn Fn(&str) -> Noise,
) -> HashMap<(String, Case), LatencyChange> {
    let options = Options::default();
    if last.is_empty() {
        return HashMap::new();
    }
    let is_compared =
        |record: &Record| record.run_id == run.run_id() || last.iter().any(|before| before.run_id == record.run_id);
    let others = shown.runs.iter().filter(|other| !other.records.first().is_some_and(is_compared));
    let earlier = EarlierRuns::of(others.flat_map(|other| other.records.iter().cloned()));
    let changed = |latency: &LatencyChange| latency.verdict.is_change();
    let hosts: BTreeSet<&str> = last.iter().map(|record| record.host_id.as_str()).collect();
    let of_host = |host_id: &str| {
        let own = |records: &[Record]| records.iter().filter(|it| it.host_id == host_id).cloned().collect::<Vec<_>>();
        let base = Side::of_records("before", own(&last));
        let candidate = Side::of_records(run.run_id(), own(&run.records));
        let cases = compare(&base, &candidate, &earlier, known, &options).cases;
        let change = |case: ComparedCase| Some(((host_id.to_owned(), case.case), case.latency.filter(changed)?));
        cases.into_iter().filter_map(change).collect::<Vec<_>>()
    };
    hosts.into_iter().flat_map(of_host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Verdict;
    use crate::report::tests::{record, run_of};

    /// Ten runs of five commits, 1 % apart by chance; the seventh is slower for good.
    #[test]
    fn the_one_change_is_marked_and_chance_is_not() {
        let jitter = [0.0, 0.004, -0.006, 0.002, -0.003, 0.005, -0.002, 0.003, -0.005, 0.001];
        let run = |index: usize| {
            let level = if index < 6 { 10.0 } else { 14.0 };
            let mut found = record("m", "ort", 1, Some(level * (1.0 + jitter[index])));
            found.git_commit = Some(format!("{:07}", index / 2));
            found.git_dirty = Some(false);
            found.iterations = Some(1000);
            run_of(index, vec![found])
        };
        let runs: Vec<ReportedRun> = (0..10).map(run).collect();
        let points = trend(&Shown::new(&runs[9..], &runs[..9]), &|_| Noise::assumed());
        assert_eq!(
            points.iter().map(|point| (point.case, point.run)).collect::<Vec<_>>(),
            (0..10).map(|run| (0, run)).collect::<Vec<_>>()
        );
        let marked: Vec<_> = points.iter().filter_map(|point| Some((point.run, point.change.as_ref()?))).collect();
        assert_eq!((marked.len(), marked[0].0, marked[0].1.verdict), (1, 6, Verdict::Slower));
        assert!((marked[0].1.interval.ratio - 1.4).abs() < 0.02, "{marked:?}");
    }

    /// Merged runs have the anchor case of each machine.
    #[test]
    fn each_machine_of_a_run_is_compared_with_itself() {
        let run = |index: usize| {
            let on = |host_id: &str, ms: f64| Record {
                host_id: host_id.into(),
                git_commit: Some(format!("{:07}", index / 2)),
                git_dirty: Some(false),
                iterations: Some(1000),
                ..record("m", "ort", 1, Some(ms * (1.0 + 0.002 * (index % 3) as f64)))
            };
            run_of(index, vec![on("h", if index < 6 { 10.0 } else { 14.0 }), on("other", 20.0)])
        };
        let runs: Vec<ReportedRun> = (0..10).map(run).collect();
        let points = trend(&Shown::new(&runs[9..], &runs[..9]), &|_| Noise::assumed());
        let marked: Vec<_> = points.iter().filter(|point| point.change.is_some()).collect();
        assert_eq!(points.len(), 20);
        assert_eq!(marked.iter().map(|point| (point.case, point.run)).collect::<Vec<_>>(), [(0, 6)], "{marked:?}");
    }

    #[test]
    fn another_size_or_file_of_the_same_name_is_no_point_of_the_line() {
        let run = |index: usize, shape: &str, model: &str, ms| {
            let known = record("m", "ort", 1, Some(ms));
            let (input_shape, model_sha256) = (Some(shape.to_owned()), Some(model.to_owned()));
            run_of(index, vec![Record { input_shape, model_sha256, ..known }])
        };
        let runs =
            [run(0, "1x8", "a", 1.0), run(1, "1x64", "a", 50.0), run(2, "1x8", "b", 7.0), run(3, "1x8", "a", 1.1)];
        let points = trend(&Shown::new(&runs[3..], &runs[..3]), &|_| Noise::assumed());
        assert_eq!(points.iter().map(|point| (point.run, point.value)).collect::<Vec<_>>(), [(0, 1.0), (3, 1.1)]);
        assert!(points.iter().all(|point| point.change.is_none()), "{points:?}");
    }
}
