//! The changes other than time: status, memory, size, accuracy, and metrics of the answers.

use clap::Args;
use serde::Serialize;

use crate::definition::Status;
use crate::run_data::{Better, Metric, Record};
use crate::selection::values::fraction_below_one;
use crate::statistics;

/// A quantity that differs between the two sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The column of the record, the name of a metric, or `case` for a case that only one side has.
    pub quantity: String,
    pub base: Value,
    pub candidate: Value,
    pub effect: Effect,
}

/// A value as in the records; a number is the median over several runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    Number(f64),
    Text(String),
}

/// What a change means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    Regression,
    Improvement,
    /// It is worth a line, and is neither a regression nor an improvement.
    Notice,
}

/// The increase or loss that is not a regression.
#[derive(Args, Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Allowance {
    /// An increase in memory or model size up to this is not a regression
    #[arg(long = "memory-tolerance", value_name = "PERCENT", default_value = "10%", value_parser = fraction_below_one)]
    pub memory: f64,
    /// A loss of accuracy up to this is not a regression
    #[arg(long = "accuracy-tolerance", value_name = "POINTS", default_value = "0.5%", value_parser = fraction_below_one)]
    pub accuracy: f64,
}

/// The quantity whose change is in percentage points.
pub const ACCURACY: &str = "accuracy";

/// Smaller differences are due to rounding.
const ROUNDING: f64 = 1e-9;

/// The changes of a case that both sides have.
pub fn changes(base: &[&Record], candidate: &[&Record], allowance: Allowance) -> Vec<Change> {
    let mut changes = Vec::new();
    changes.extend(status_change(base, candidate));
    if worst_status(base) != Status::Ok || worst_status(candidate) != Status::Ok {
        return changes;
    }
    changes.extend(no_more(base, candidate));
    let is_beyond = |change: &Change| change.effect != Effect::Notice;
    let more = |quantity, of: fn(&Record) -> Option<f64>| {
        // Symmetric, so that a change and its reverse are judged alike.
        numeric_change(quantity, [base, candidate], of, allowance.memory.ln_1p(), |before, after| (after / before).ln())
    };
    let [kind, kind_after] = [base, candidate].map(|side| one_value(side, |record| record.memory_kind.clone()));
    if kind.is_some() && kind == kind_after {
        // The memory of a process that measures several cases includes what Criterion needs to compare them with a
        // baseline.
        let is_shared = kind.flatten().is_some_and(|kind| kind.starts_with("shared-"));
        let memory = more("memory_mb", |record| record.memory_mb).filter(is_beyond);
        let noticed = |change: Change| if is_shared { Change { effect: Effect::Notice, ..change } } else { change };
        changes.extend(memory.map(noticed));
    }
    changes.extend(more("device_memory_mb", |record| record.device_memory_mb).filter(is_beyond));
    changes.extend(more("model_size_mb", |record| record.model_size_mb));
    let lost = |before: f64, after: f64| before - after;
    let accuracy = numeric_change(ACCURACY, [base, candidate], |it| it.accuracy, allowance.accuracy, lost);
    // Accuracies on different samples say nothing about the code.
    let [samples, samples_after] =
        [base, candidate].map(|side| one_value(side, |it| (it.data_source.clone(), it.accuracy_samples)));
    let is_same = samples.is_some() && samples == samples_after;
    let noticed = |change: Change| Change { effect: Effect::Notice, ..change };
    changes.extend(accuracy.map(|change| if is_same { change } else { noticed(change) }));
    let source = |side: &[&Record]| one_value(side, |it| it.data_source.clone()).flatten();
    if let (Some(before), Some(after)) = (source(base), source(candidate))
        && before != after
    {
        let [base, candidate] = [before, after].map(Value::Text);
        let quantity = "samples, so that answers are not judged".into();
        changes.push(Change { quantity, base, candidate, effect: Effect::Notice });
    }
    changes
}

/// The metrics of a case that are outside the base's interval. The newest runs of both sides are compared, if their
/// samples are the same.
pub fn metric_changes(sides: [&[&Record]; 2], metrics: [&[Metric]; 2]) -> Vec<Change> {
    // A side may name its runs in any order.
    let [Some(base), Some(candidate)] = sides.map(|records| records.iter().max_by_key(|record| record.timestamp))
    else {
        return Vec::new();
    };
    if base.data_source != candidate.data_source {
        return Vec::new();
    }
    let after = Metric::all_of(metrics[1], candidate);
    let change = |before: &Metric| {
        let is_same = |after: &&&Metric| (&after.metric, after.samples) == (&before.metric, before.samples);
        // An interval without width, as of a single sample, says nothing about the scatter.
        let is_certain = before.changed().is_none() && before.lower < before.upper;
        // An infinite loss leaves no metric in the candidate.
        let is_own = before.changed().is_none() && before.compared_with.is_none() && before.better.is_some();
        if is_own && !after.iter().any(|it| it.metric == before.metric) {
            let (base, candidate) = (Value::Number(before.value), Value::Text("none".into()));
            return Some(Change { quantity: before.metric.clone(), base, candidate, effect: Effect::Regression });
        }
        let after = after.iter().find(is_same).filter(|_| is_certain)?;
        let (is_higher, is_lower) = (after.value > before.upper?, after.value < before.lower?);
        let effect = match before.better? {
            Better::Higher if is_higher => Effect::Improvement,
            Better::Lower if is_lower => Effect::Improvement,
            _ if is_higher || is_lower => Effect::Regression,
            _ => return None,
        };
        let [base, candidate] = [before.value, after.value].map(Value::Number);
        Some(Change { quantity: before.metric.clone(), base, candidate, effect })
    };
    Metric::all_of(metrics[0], base).into_iter().filter_map(change).collect()
}

/// The first of the runs' statuses that is not `ok`, if there is one.
pub fn worst_status(records: &[&Record]) -> Status {
    let statuses = || records.iter().map(|record| record.status);
    statuses().find(|status| *status != Status::Ok).unwrap_or(Status::Ok)
}

/// Returns true if no machine has measured both sides.
fn are_elsewhere(base: &[&Record], candidate: &[&Record]) -> bool {
    base.iter().all(|before| candidate.iter().all(|after| before.host_id != after.host_id))
}

/// A case that no longer runs, or is wrong now, is a regression. A case that failed or was wrong before, too, has a
/// line.
fn status_change(base: &[&Record], candidate: &[&Record]) -> Option<Change> {
    let (before, after) = (worst_status(base), worst_status(candidate));
    let effect = match (before, after) {
        (Status::Ok, Status::Ok) => return None,
        // The machine or the build lacks something, whatever the code is.
        (Status::Unsupported | Status::Unavailable, _) if before == after => return None,
        _ if before == after => Effect::Notice,
        // It was measured, but its times scatter too much: nothing shows that it is worse.
        (Status::Ok | Status::Suspicious, Status::Unstable) => Effect::Notice,
        // The other machine may lack a device or a library, which says nothing about the code.
        (Status::Ok | Status::Suspicious, Status::Unavailable) if are_elsewhere(base, candidate) => Effect::Notice,
        (Status::Ok, _) | (_, Status::WrongOutput) => Effect::Regression,
        (_, Status::Ok) => Effect::Improvement,
        // It ran before, whatever its outputs were.
        (Status::Suspicious, _) => Effect::Regression,
        _ => Effect::Notice,
    };
    let shown = |status: Status, records: &[&Record]| {
        let found = records.iter().find(|record| record.status == status);
        let message = found.and_then(|record| record.message.as_deref()).filter(|_| status != Status::Ok);
        let line = message.and_then(|message| message.lines().next());
        Value::Text(line.map_or_else(|| status.to_string(), |line| format!("{status}: {line}")))
    };
    Some(Change { quantity: "status".into(), base: shown(before, base), candidate: shown(after, candidate), effect })
}

/// Notices of checks that the candidate lacks: the comparison of outputs with the reference (a wrong output is a
/// status), and the evaluation of answers to samples.
fn no_more(base: &[&Record], candidate: &[&Record]) -> impl Iterator<Item = Change> {
    let lost = |quantity: &'static str, is_done: fn(&Record) -> bool| {
        let are_all = |side: &[&Record]| side.iter().all(|record| is_done(record));
        let [yes, no] = ["yes", "no"].map(|text| Value::Text(text.into()));
        let change = Change { quantity: quantity.into(), base: yes, candidate: no, effect: Effect::Notice };
        (are_all(base) && !are_all(candidate)).then_some(change)
    };
    let verified = lost("verified", |record| record.verified == Some(true));
    verified.into_iter().chain(lost("evaluated", |record| record.data_source.is_some()))
}

/// A change for the worse beyond what is allowed is a regression. `worse` says how much worse the second value is.
fn numeric_change(
    quantity: &'static str,
    sides: [&[&Record]; 2],
    of: fn(&Record) -> Option<f64>,
    allowed: f64,
    worse: impl Fn(f64, f64) -> f64,
) -> Option<Change> {
    let [before, after] = sides.map(|side| median(side, of));
    let (before, after) = before.zip(after)?;
    let effect = match worse(before, after) {
        worse if !worse.is_finite() || worse.abs() <= ROUNDING => return None,
        worse if worse > allowed + ROUNDING => Effect::Regression,
        worse if worse < -allowed - ROUNDING => Effect::Improvement,
        _ => Effect::Notice,
    };
    Some(Change { quantity: quantity.into(), base: Value::Number(before), candidate: Value::Number(after), effect })
}

/// The median over the runs. Returns `None` if one of them lacks the figure.
fn median(records: &[&Record], of: impl Fn(&Record) -> Option<f64>) -> Option<f64> {
    statistics::median(&records.iter().map(|record| of(record)).collect::<Option<Vec<f64>>>()?)
}

/// The value that all records share. Returns `None` if they differ.
fn one_value<T: PartialEq>(records: &[&Record], of: impl Fn(&Record) -> T) -> Option<T> {
    let mut values = records.iter().map(|record| of(record));
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::simulation::empty_record;

    const ALLOWANCE: Allowance = Allowance { memory: 0.1, accuracy: 0.005 };

    fn found(base: Record, candidate: Record) -> Vec<(&'static str, Effect)> {
        const OF_SAMPLES: &str = "samples, so that answers are not judged";
        let known = [
            "status",
            "verified",
            "evaluated",
            "memory_mb",
            "device_memory_mb",
            "model_size_mb",
            "accuracy",
            OF_SAMPLES,
        ];
        let name = |quantity: String| *known.iter().find(|name| **name == quantity).unwrap();
        let changes = changes(&[&base], &[&candidate], ALLOWANCE);
        changes.into_iter().map(|change| (name(change.quantity), change.effect)).collect()
    }

    #[test]
    fn a_metric_beyond_its_interval_is_a_change() {
        let record = |run: &str| Record { run_id: run.into(), data_source: Some("said".into()), ..empty_record() };
        let (base, candidate) = (record("a"), record("b"));
        let metric = |run_id: &str, better, value| Metric {
            run_id: run_id.into(),
            case_id: base.case_id.clone(),
            metric: "mine".into(),
            value,
            lower: Some(0.4),
            upper: Some(0.6),
            better,
            ..Metric::default()
        };
        let effect = |better, value| {
            let metrics = [[metric("a", better, 0.5)], [metric("b", better, value)]];
            let changes = metric_changes([&[&base], &[&candidate]], [&metrics[0], &metrics[1]]);
            changes.first().map(|change| change.effect)
        };
        assert_eq!(effect(Some(Better::Higher), 0.3), Some(Effect::Regression));
        assert_eq!(effect(Some(Better::Lower), 0.7), Some(Effect::Regression));
        assert_eq!(effect(Some(Better::Lower), 0.3), Some(Effect::Improvement));
        assert_eq!([effect(Some(Better::Higher), 0.45), effect(None, 0.9)], [None, None]);
        // A loss that is not finite has no row.
        let only_before = metric_changes([&[&base], &[&candidate]], [&[metric("a", Some(Better::Lower), 0.5)], &[]]);
        assert_eq!(only_before[0].effect, Effect::Regression);
        // The newest run counts, wherever the side names it.
        let newer = Record { timestamp: "2026-02-01T00:00:00Z".parse().unwrap(), ..record("c") };
        let metrics = [("a", 0.5), ("b", 0.3), ("c", 0.5)];
        let metrics = metrics.map(|(run_id, value)| metric(run_id, Some(Better::Higher), value));
        for several in [[&candidate, &newer], [&newer, &candidate]] {
            assert_eq!(metric_changes([&[&base], &several], [&metrics, &metrics]), []);
        }
    }

    fn with_status(status: Status) -> Record {
        Record { status, message: Some("why\nmore".into()), ..empty_record() }
    }

    #[test]
    fn a_case_that_no_longer_runs_is_a_regression() {
        use Status::{Failed, Ok, Suspicious, Timeout, Unavailable, Unstable, WrongOutput};
        for (before, after, effect) in [
            (Ok, Failed, Some(Effect::Regression)),
            (Ok, Unavailable, Some(Effect::Regression)),
            (Ok, WrongOutput, Some(Effect::Regression)),
            (Failed, WrongOutput, Some(Effect::Regression)),
            (WrongOutput, Ok, Some(Effect::Improvement)),
            (Failed, Timeout, Some(Effect::Notice)),
            (Ok, Unstable, Some(Effect::Notice)),
            (Suspicious, Failed, Some(Effect::Regression)),
            (Suspicious, Ok, Some(Effect::Improvement)),
            (Failed, Suspicious, Some(Effect::Notice)),
            (Failed, Failed, Some(Effect::Notice)),
            (WrongOutput, WrongOutput, Some(Effect::Notice)),
            (Suspicious, Suspicious, Some(Effect::Notice)),
            (Unavailable, Unavailable, None),
            (Ok, Ok, None),
        ] {
            let expected: Vec<_> = effect.map(|effect| ("status", effect)).into_iter().collect();
            assert_eq!(found(with_status(before), with_status(after)), expected, "{before} {after}");
        }
    }

    #[test]
    fn what_another_machine_lacks_is_no_regression() {
        let there = |status| Record { host_id: "there".into(), ..with_status(status) };
        assert_eq!(found(with_status(Status::Ok), there(Status::Unavailable)), [("status", Effect::Notice)]);
        assert_eq!(found(with_status(Status::Ok), there(Status::Failed)), [("status", Effect::Regression)]);
    }

    #[test]
    fn one_run_of_several_that_fails_is_enough() {
        let [ok, failed] = [Status::Ok, Status::Failed].map(with_status);
        let changes = changes(&[&ok, &ok], &[&ok, &failed], ALLOWANCE);
        assert_eq!(changes[0].candidate, Value::Text("failed: why".into()));
    }

    #[test]
    fn memory_is_compared_with_its_own_kind_only() {
        let with = |memory_mb, kind: &str| Record {
            memory_mb: Some(memory_mb),
            memory_kind: Some(kind.into()),
            ..empty_record()
        };
        assert_eq!(found(with(100.0, "a"), with(120.0, "a")), [("memory_mb", Effect::Regression)]);
        assert_eq!(found(with(100.0, "a"), with(80.0, "a")), [("memory_mb", Effect::Improvement)]);
        assert_eq!(found(with(100.0, "a"), with(105.0, "a")), []);
        assert_eq!(found(with(100.0, "a"), with(120.0, "b")), []);
        // Runs of several kinds have no median together.
        let mixed = [with(100.0, "a"), with(100.0, "b"), with(120.0, "a"), with(120.0, "b")];
        assert_eq!(changes(&[&mixed[0], &mixed[1]], &[&mixed[2], &mixed[3]], ALLOWANCE), []);
        let shared = "shared-process-peak-rss";
        assert_eq!(found(with(100.0, shared), with(120.0, shared)), [("memory_mb", Effect::Notice)]);
    }

    #[test]
    fn size_and_accuracy_are_exact() {
        let with = |model_size_mb, accuracy| Record {
            model_size_mb: Some(model_size_mb),
            accuracy: Some(accuracy),
            ..empty_record()
        };
        assert_eq!(found(with(10.0, 0.9), with(10.0, 0.9)), []);
        assert_eq!(
            found(with(10.0, 0.9), with(10.2, 0.897)),
            [("model_size_mb", Effect::Notice), ("accuracy", Effect::Notice)]
        );
        assert_eq!(
            found(with(10.0, 0.9), with(5.0, 0.88)),
            [("model_size_mb", Effect::Improvement), ("accuracy", Effect::Regression)]
        );
        assert_eq!(
            found(with(10.0, 0.9), with(20.0, 0.95)),
            [("model_size_mb", Effect::Regression), ("accuracy", Effect::Improvement)]
        );
    }

    #[test]
    fn accuracy_on_other_samples_is_no_regression() {
        let with = |accuracy, samples, source: &str| Record {
            accuracy: Some(accuracy),
            accuracy_samples: Some(samples),
            data_source: Some(source.into()),
            ..empty_record()
        };
        let base = || with(0.9, 1000, "held-out");
        assert_eq!(found(base(), with(0.8, 1000, "held-out")), [("accuracy", Effect::Regression)]);
        assert_eq!(found(base(), with(0.8, 100, "held-out")), [("accuracy", Effect::Notice)]);
        let on_others = found(base(), with(0.95, 1000, "said"));
        assert_eq!(
            on_others,
            [("accuracy", Effect::Notice), ("samples, so that answers are not judged", Effect::Notice)]
        );
    }

    #[test]
    fn what_is_not_verified_any_more_has_a_line() {
        let with = |verified| Record { verified, ..empty_record() };
        assert_eq!(found(with(Some(true)), with(None)), [("verified", Effect::Notice)]);
        assert_eq!(found(with(None), with(Some(true))), []);
        let of_samples = |source: Option<&str>| Record { data_source: source.map(str::to_owned), ..empty_record() };
        assert_eq!(found(of_samples(Some("said")), of_samples(None)), [("evaluated", Effect::Notice)]);
    }

    #[test]
    fn a_better_metric_is_an_improvement_and_what_is_not_certain_is_no_change() {
        let record = |run: &str| Record { run_id: run.into(), ..empty_record() };
        let (base, candidate) = (record("a"), record("b"));
        let metric = |run_id: &str, name: &str, value, half: f64| Metric {
            run_id: run_id.into(),
            case_id: base.case_id.clone(),
            metric: name.into(),
            value,
            lower: Some(0.5 - half),
            upper: Some(0.5 + half),
            better: Some(Better::Higher),
            ..Metric::default()
        };
        let effects = |before: Metric, after: &[Metric]| {
            let found = metric_changes([&[&base], &[&candidate]], [&[before], after]);
            found.into_iter().map(|change| change.effect).collect::<Vec<_>>()
        };
        let own = |half| metric("a", "mine", 0.5, half);
        assert_eq!(effects(own(0.1), &[metric("b", "mine", 0.7, 0.1)]), [Effect::Improvement]);
        assert_eq!(effects(own(0.0), &[metric("b", "mine", 0.3, 0.1)]), []);
        let change = || metric("a", "mine_change", 0.5, 0.1);
        assert_eq!(effects(change(), &[metric("b", "mine_change", 0.3, 0.1)]), []);
        let compared = Metric { compared_with: Some("x".into()), ..own(0.1) };
        for lost in [change(), compared, Metric { better: None, ..own(0.1) }] {
            assert_eq!(effects(lost, &[]), []);
        }
    }

    #[test]
    fn exactly_what_is_allowed_is_a_notice_and_a_failure_is_told_once() {
        let with = |accuracy| Record { accuracy: Some(accuracy), ..empty_record() };
        for (before, after) in [(0.9, 0.895), (0.895, 0.9)] {
            assert_eq!(found(with(before), with(after)), [("accuracy", Effect::Notice)]);
        }
        let verified = Record { verified: Some(true), ..with_status(Status::Ok) };
        assert_eq!(found(verified, with_status(Status::Failed)), [("status", Effect::Regression)]);
        for (after, effect) in [(Status::Ok, Effect::Improvement), (Status::WrongOutput, Effect::Regression)] {
            assert_eq!(found(with_status(Status::Unavailable), with_status(after)), [("status", effect)]);
        }
    }
}
