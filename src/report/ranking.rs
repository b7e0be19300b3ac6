//! The order that all reports show: cases that do the same work, the fastest of them, and the others as multiples of it.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use indexmap::IndexMap;

use super::numbers::plural;
use crate::definition::Status;
use crate::run_data::{Record, Work, Works};
use crate::statistics::calls_for_bound;

/// A record among those that do the same work.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    pub record: &'a Record,
    /// Its median latency over that of the fastest at the same work; absent without a valid measurement.
    pub ratio_to_best: Option<f64>,
}

impl Entry<'_> {
    /// Whether none is faster.
    pub fn is_best(&self) -> bool {
        self.ratio_to_best == Some(1.0)
    }
}

/// The cases of each model, variant, phase, sequence length and shape, by its title. Groups are in the order in which the models
/// appear; cases by batch size, then as in the records. Machines that are equal count as one.
pub fn rank(records: &[Record], are_machines_equal: bool) -> IndexMap<String, Vec<Entry<'_>>> {
    let mut groups: IndexMap<String, Vec<Entry<'_>>> = IndexMap::new();
    let machine = |record: &'_ Record| if are_machines_equal { String::new() } else { record.host_id.clone() };
    let ratios = best_on(records.iter(), machine);
    for ((record, ratio_to_best), title) in records.iter().zip(ratios).zip(titles(records.iter())) {
        groups.entry(title).or_default().push(Entry { record, ratio_to_best });
    }
    groups.values_mut().for_each(|rows| rows.sort_by_key(|row| row.record.batch_size));
    groups
}

/// For each record, its median latency over that of the fastest that does the same work on the same machine.
pub fn best_of<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<Option<f64>> {
    best_on(records, |record| &record.host_id)
}

/// Like [`best_of`], except that `machine` names the machine of a record: machines of the same name count as one.
pub fn best_on<'a, M: Eq + Hash + Clone>(
    records: impl Iterator<Item = &'a Record>,
    machine: impl Fn(&'a Record) -> M,
) -> Vec<Option<f64>> {
    let mut works = Works::default();
    let mut work = |record: &'a Record| (machine(record), works.number(Work::of(record).on_any_runtime()));
    // Only a case that ran and was right is ranked.
    let latency = |record: &Record| record.latency_p50_ms.filter(|_| record.status == Status::Ok);
    ratios_to_best(&records.map(|record| (work(record), latency(record))).collect::<Vec<_>>())
}

/// For each record, the title of the group that it is shown in: the group of its case, with the shapes of a sample, the
/// number of new tokens and the timed samples if the group has several of these.
pub fn titles<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<String> {
    let titled = |record: &Record| {
        let work = Work::of(record);
        let told = [
            work.sample_shape().map(|shape| format!("inputs {shape}")),
            work.new_tokens.map(|count| format!("{count} new tokens")),
            work.timed_samples,
        ];
        (record.case().benchmark_id().group, told)
    };
    let all: Vec<(String, [Option<String>; 3])> = records.map(titled).collect();
    let mut known: HashMap<(&str, usize), HashSet<&str>> = HashMap::new();
    for (group, told) in &all {
        for (place, text) in told.iter().enumerate() {
            known.entry((group, place)).or_default().extend(text.as_deref());
        }
    }
    let title = |(group, told): &(String, [Option<String>; 3])| {
        let several = told.iter().enumerate().filter(|(place, _)| known[&(group.as_str(), *place)].len() > 1);
        let several = several.filter_map(|(_, text)| text.as_deref());
        several.fold(group.clone(), |title, text| format!("{title} · {text}"))
    };
    all.iter().map(title).collect()
}

/// For each time, its ratio to the shortest time of the same work.
pub fn ratios_to_best<W: Eq + Hash>(times: &[(W, Option<f64>)]) -> Vec<Option<f64>> {
    let mut best: HashMap<&W, f64> = HashMap::new();
    for (work, time) in times {
        let known = best.entry(work).or_insert(f64::INFINITY);
        *known = time.unwrap_or(f64::INFINITY).min(*known);
    }
    times.iter().map(|(work, time)| time.map(|time| time / best[work]).filter(|ratio| ratio.is_finite())).collect()
}

/// From this fraction of disturbed samples on, a note says so.
pub const DISTURBED_FROM: f64 = 0.1;

/// Notes about the calls of these cases, one line for each kind of shortcoming.
pub fn notes_on_calls(rows: &[Entry<'_>]) -> Vec<String> {
    let has_hosts = rows.iter().any(|row| row.record.host_id != rows[0].record.host_id);
    let line = |what: &str, of: fn(&Record) -> Option<String>| {
        let case = |row: &Entry<'_>| {
            let function = row.record.case().benchmark_id().function;
            let host_id = &row.record.host_id;
            let host = if has_hosts { format!(" on {host_id}") } else { String::new() };
            Some(format!("{function} batch {}{host} {}", row.record.batch_size, of(row.record)?))
        };
        let cases: Vec<String> = rows.iter().filter_map(case).collect();
        (!cases.is_empty()).then(|| format!("{what}: {}", cases.join(", ")))
    };
    let fewer = line("fewer calls than asked for", |record| {
        let (calls, reason) = record.iterations.zip(record.stopped_by.as_deref())?;
        let has_fewer = matches!(reason, "budget" | "most-calls") || reason.ends_with("-missed");
        has_fewer.then(|| format!("has {calls} ({reason})"))
    });
    let unbounded = line("p99 has no bound", |record| {
        let calls =
            record.iterations.filter(|_| record.status == Status::Ok && record.latency_p99_upper_ms.is_none())?;
        Some(match calls_for_bound(0.99).saturating_sub(calls) {
            0 => "needs more calls, since these are autocorrelated".to_owned(),
            missing => format!("needs {}", plural(missing, "more call", "more calls")),
        })
    });
    let disturbed = line("disturbed samples", |record| {
        let share = record.disturbed_share.filter(|share| *share > DISTURBED_FROM)?;
        Some(format!("has {:.0} %", 100.0 * share))
    });
    [fewer, unbounded, disturbed].into_iter().flatten().collect()
}

/// The first line of a message.
pub fn first_line(record: &Record) -> &str {
    record.message.as_deref().unwrap_or_default().lines().next().unwrap_or_default()
}

/// The first line of a message, cut to a column's width.
pub fn short_message(record: &Record) -> String {
    let line = first_line(record);
    match line.char_indices().nth(70) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::record;

    #[test]
    fn a_wrong_or_suspicious_output_is_never_ranked() {
        for status in [Status::WrongOutput, Status::Suspicious] {
            let wrong = Record { status, ..record("m", "ort", 1, Some(1.0)) };
            let records = [wrong, record("m", "tch", 1, Some(2.0)), record("m", "candle", 1, Some(3.0))];
            let groups = rank(&records, false);
            let ratios: Vec<_> = groups[0].iter().map(|row| (row.ratio_to_best, row.is_best())).collect();
            assert_eq!(ratios, [(None, false), (Some(1.0), true), (Some(1.5), false)]);
        }
    }

    #[test]
    fn batch_sizes_are_in_their_natural_order_and_compared_apart() {
        let records =
            [record("m", "ort", 16, Some(8.0)), record("m", "ort", 2, Some(2.0)), record("n", "ort", 1, None)];
        let groups = rank(&records, false);
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].iter().map(|row| row.record.batch_size).collect::<Vec<_>>(), [2, 16]);
        assert!(groups[0].iter().all(|row| row.is_best()));
    }

    #[test]
    fn another_size_or_file_is_no_competitor() {
        let with = |backend, shape: &str, model: &str, ms| {
            let (input_shape, model_sha256) = (Some(shape.to_owned()), Some(model.to_owned()));
            Record { input_shape, model_sha256, ..record("m", backend, 1, Some(ms)) }
        };
        let records = [with("ort", "1x8", "a", 2.0), with("tch", "1x64", "a", 9.0), with("candle", "1x8", "b", 1.0)];
        assert_eq!(best_of(records.iter()), [Some(1.0); 3]);
        let titles: Vec<String> = rank(&records, false).into_keys().collect();
        assert_eq!(titles, ["m · inputs Nx8", "m · inputs Nx64"]);
        assert_eq!(best_of([&records[0], &with("tch", "1x8", "a", 4.0)].into_iter()), [Some(1.0), Some(2.0)]);
    }

    #[test]
    fn machines_are_ranked_apart_unless_they_are_equal() {
        let elsewhere = Record { host_id: "other".into(), ..record("m", "tch", 1, Some(3.0)) };
        let records = [record("m", "ort", 1, Some(2.0)), elsewhere];
        let ratios = |are_equal| rank(&records, are_equal)[0].iter().map(|row| row.ratio_to_best).collect::<Vec<_>>();
        assert_eq!([ratios(false), ratios(true)], [[Some(1.0), Some(1.0)], [Some(1.0), Some(1.5)]]);
    }

    #[test]
    fn a_case_says_how_many_calls_its_p99_lacks() {
        let with_calls = |backend, iterations| Record {
            iterations: Some(iterations),
            latency_p99_upper_ms: (iterations >= 662).then_some(2.0),
            ..record("m", backend, 1, Some(1.0))
        };
        let lines = |records: &[Record]| notes_on_calls(&rank(records, false)[0]);
        let dependent = Record { latency_p99_upper_ms: None, ..with_calls("ort", 662) };
        assert!(lines(&[dependent])[0].ends_with("needs more calls, since these are autocorrelated"));
        assert!(lines(&[with_calls("ort", 662)]).is_empty());
        let expected = "p99 has no bound: tch-cpu-f32 batch 1 needs 562 more calls";
        assert_eq!(lines(&[with_calls("ort", 1000), with_calls("tch", 100)]), [expected]);
    }

    #[test]
    fn a_case_with_fewer_calls_than_asked_for_says_how_many_it_has() {
        let stopped = |backend, iterations, reason: &str| Record {
            iterations: Some(iterations),
            stopped_by: Some(reason.into()),
            latency_p99_upper_ms: Some(2.0),
            ..record("m", backend, 1, Some(1.0))
        };
        let lines = |records: &[Record]| notes_on_calls(&rank(records, false)[0]);
        assert!(lines(&[stopped("ort", 1000, "iterations"), record("m", "tch", 1, None)]).is_empty());
        let records = [stopped("ort", 1000, "iterations"), stopped("tch", 11, "budget")];
        assert_eq!(lines(&records), ["fewer calls than asked for: tch-cpu-f32 batch 1 has 11 (budget)"]);
        for reason in ["iterations-missed", "most-calls"] {
            let said = lines(&[stopped("ort", 98, reason)]);
            assert!(said[0].ends_with(&format!("ort-cpu-f32 batch 1 has 98 ({reason})")), "{said:?}");
        }
    }
}
