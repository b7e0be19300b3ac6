//! Runs in which a machine was slower than usual: they are reported, and their rows count less than others.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::repeated::by_work_and_machine;
use crate::compare::is_like;
use crate::definition::Status;
use crate::report::numbers::plural;
use crate::run_data::Record;
use crate::statistics::median;

/// From this factor on a run was slower than usual.
const SLOWER: f64 = 1.3;
/// A slow run needs at least this many cases that at least [`LEAST_OTHERS`] other runs of the machine have, too.
const LEAST_CASES: usize = 3;
const LEAST_OTHERS: usize = 2;

/// A run on a machine that was slower than usual.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Drift {
    pub run_id: String,
    pub host_id: String,
    /// The median, over the cases that other runs have, too, of the ratio of the time to the median of the other runs.
    pub factor: f64,
    /// How many cases these are.
    pub cases: usize,
}

impl Drift {
    /// `run 20260101T000000Z on host 1a2b was 34 % slower than usual in 12 cases that other runs measured, too: its
    /// rows count less`.
    pub fn text(&self) -> String {
        let cases = plural(self.cases, "case", "cases");
        let percent = 100.0 * (self.factor - 1.0);
        format!(
            "run {} on host {} was {percent:.0} % slower than usual in {cases} that other runs measured, too: its rows count less",
            self.run_id, self.host_id
        )
    }

    /// Whether a record is of the run on that machine.
    pub fn is_of(&self, record: &Record) -> bool {
        (&self.run_id, &self.host_id) == (&record.run_id, &record.host_id)
    }
}

/// The runs of these records in which a machine was slower than usual. A change of a single case is not a drift.
pub fn drifts(records: &[Record]) -> Vec<Drift> {
    let is_measured =
        |record: &&Record| record.status == Status::Ok && record.latency_p50_ms.is_some_and(|ms| ms > 0.0);
    let measured: Vec<&Record> = records.iter().filter(is_measured).collect();
    let logarithm = |record: &Record| record.latency_p50_ms.unwrap_or(1.0).ln();
    let mut ratios: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for same in by_work_and_machine(&measured) {
        for record in &same {
            let others = same.iter().filter(|other| other.run_id != record.run_id && is_like(other, record));
            let others: Vec<f64> = others.map(|other| logarithm(other)).collect();
            if let Some(usual) = median(&others).filter(|_| others.len() >= LEAST_OTHERS) {
                ratios.entry((&record.run_id, &record.host_id)).or_default().push(logarithm(record) - usual);
            }
        }
    }
    let drift = |((run_id, host_id), ratios): ((&str, &str), Vec<f64>)| {
        let factor = median(&ratios)?.exp();
        let is_drift = ratios.len() >= LEAST_CASES && factor >= SLOWER;
        is_drift.then(|| Drift { run_id: run_id.to_owned(), host_id: host_id.to_owned(), factor, cases: ratios.len() })
    };
    ratios.into_iter().filter_map(drift).collect()
}

/// Keeps the rows of runs that were as fast as usual, or all rows if there are no such runs.
pub fn retain_usual(rows: &mut Vec<&Record>, drifted: &[Drift]) {
    let is_usual = |record: &&Record| !drifted.iter().any(|drift| drift.is_of(record));
    if rows.iter().any(is_usual) {
        rows.retain(is_usual);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::record;

    /// A run of these cases, in which each takes `factor` times as long as usual.
    fn run(index: usize, cases: &[&str], factor: f64) -> Vec<Record> {
        let row = |(place, model): (usize, &&str)| Record {
            run_id: format!("run{index}"),
            ..record(model, "ort", 1, Some(factor * (1 + place) as f64 * (1.0 + 0.01 * index as f64)))
        };
        cases.iter().enumerate().map(row).collect()
    }

    #[test]
    fn a_run_in_which_all_was_slower_is_named_and_one_slower_case_is_no_drift() {
        const CASES: [&str; 4] = ["a", "b", "c", "d"];
        let usual: Vec<Record> = (0..3).flat_map(|index| run(index, &CASES, 1.0)).collect();
        assert!(drifts(&usual).is_empty());
        let found = drifts(&[usual.clone(), run(7, &CASES, 1.4)].concat());
        assert_eq!(found.iter().map(|it| (it.run_id.as_str(), it.cases)).collect::<Vec<_>>(), [("run7", 4)]);
        assert!((found[0].factor / 1.4 - 1.0).abs() < 0.1, "{found:?}");
        assert!(found[0].text().starts_with("run run7 on host h was 4"), "{}", found[0].text());
        let mut one = run(7, &CASES, 1.0);
        one[0].latency_p50_ms = Some(3.0);
        assert!(drifts(&[usual.clone(), one].concat()).is_empty());
        assert!(drifts(&[usual.clone(), run(7, &CASES[..2], 1.4)].concat()).is_empty(), "two cases tell too little");
        let elsewhere = run(7, &CASES, 1.4).into_iter().map(|it| Record { host_id: "other".into(), ..it });
        assert!(drifts(&usual.iter().cloned().chain(elsewhere).collect::<Vec<_>>()).is_empty());
    }

    #[test]
    fn a_slow_run_counts_only_where_there_is_no_other() {
        let [slow, usual] = [run(7, &["a"], 1.4).remove(0), run(1, &["a"], 1.0).remove(0)];
        let drifted = [Drift { run_id: "run7".into(), host_id: "h".into(), factor: 1.4, cases: 3 }];
        let mut both = vec![&slow, &usual];
        retain_usual(&mut both, &drifted);
        assert_eq!(both, [&usual]);
        let mut alone = vec![&slow];
        retain_usual(&mut alone, &drifted);
        assert_eq!(alone, [&slow]);
    }
}
