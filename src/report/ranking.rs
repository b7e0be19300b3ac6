//! The order that all reports show: cases that do the same work, the fastest of them, and the others as multiples of it.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use indexmap::IndexMap;

use crate::definition::Status;
use crate::run_data::Record;
use crate::statistics::calls_for_bound;

/// A record among those that do the same work.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    pub record: &'a Record,
    /// Its median latency over that of the fastest at the same work; absent without a right measurement.
    pub ratio_to_best: Option<f64>,
}

impl Entry<'_> {
    /// Whether none is faster.
    pub fn is_best(&self) -> bool {
        self.ratio_to_best == Some(1.0)
    }
}

/// Cases of one model, variant, phase and sequence length.
pub struct ModelGroup<'a> {
    pub title: String,
    pub rows: Vec<Entry<'a>>,
}

/// Groups in the order in which the models appear; rows by batch size, then as in the records.
pub fn rank(records: &[Record]) -> Vec<ModelGroup<'_>> {
    let mut groups: IndexMap<String, Vec<Entry<'_>>> = IndexMap::new();
    for (record, ratio_to_best) in records.iter().zip(best_of(records.iter())) {
        groups.entry(record.case().benchmark_id().group).or_default().push(Entry { record, ratio_to_best });
    }
    for rows in groups.values_mut() {
        rows.sort_by_key(|row| row.record.batch_size);
    }
    groups.into_iter().map(|(title, rows)| ModelGroup { title, rows }).collect()
}

/// For each record, its median latency over that of the fastest that does the same work on the same machine.
pub fn best_of<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<Option<f64>> {
    let work = |record: &'a Record| (&record.host_id, record.case().benchmark_id().group, record.batch_size);
    ratios_to_best(&records.map(|record| (work(record), ranked_latency(record))).collect::<Vec<_>>())
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

/// A note says that samples were disturbed from this fraction of them on.
const DISTURBED_FROM: f64 = 0.1;

/// `12 % of ort's samples were disturbed`, for each backend with many disturbed samples.
pub fn disturbed_lines(group: &ModelGroup<'_>) -> Vec<String> {
    // Samples per backend: all whose disturbance is known, and the disturbed ones.
    let mut counts: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for record in group.rows.iter().map(|row| row.record) {
        if let Some((samples, share)) = record.sample_count.zip(record.disturbed_share) {
            let (all, disturbed) = counts.entry(&record.backend).or_default();
            *all += samples as f64;
            *disturbed += share * samples as f64;
        }
    }
    let shares = counts.into_iter().map(|(backend, (all, disturbed))| (backend, disturbed / all));
    shares
        .filter(|(_, share)| *share > DISTURBED_FROM)
        .map(|(backend, share)| format!("{:.0} % of {backend}'s samples were disturbed", 100.0 * share))
        .collect()
}

/// `p99 has no bound: ort-cpu-f32 batch 1 needs 562 more calls`, if a case of the group has too few calls, or too few that are
/// independent.
pub fn missing_calls_line(group: &ModelGroup<'_>) -> Option<String> {
    let measured = group.rows.iter().map(|row| row.record).filter(|record| record.status == Status::Ok);
    let needs = measured.filter_map(|record| {
        let need = match calls_for_bound(0.99).saturating_sub(record.iterations?) {
            0 if record.latency_p99_upper_ms.is_some() => return None,
            0 => "needs more calls, since they depend on one another".to_owned(),
            missing => format!("needs {missing} more calls"),
        };
        Some(format!("{} batch {} {need}", record.case().benchmark_id().function, record.batch_size))
    });
    let needs: Vec<String> = needs.collect();
    (!needs.is_empty()).then(|| format!("p99 has no bound: {}", needs.join(", ")))
}

/// `fewer calls than asked for: ort-cpu-f32 batch 1 has 11 (budget)`, if a case of the group has fewer.
pub fn fewer_calls_line(group: &ModelGroup<'_>) -> Option<String> {
    let of = |record: &Record| {
        let (calls, reason) = record.iterations.zip(record.stopped_by.as_deref())?;
        let is_fewer = reason == "budget" || reason.ends_with("-missed");
        let function = record.case().benchmark_id().function;
        is_fewer.then(|| format!("{function} batch {} has {calls} ({reason})", record.batch_size))
    };
    let fewer: Vec<String> = group.rows.iter().filter_map(|row| of(row.record)).collect();
    (!fewer.is_empty()).then(|| format!("fewer calls than asked for: {}", fewer.join(", ")))
}

/// The latency by which a case is ranked; only a case that ran and was right has one.
fn ranked_latency(record: &Record) -> Option<f64> {
    (record.status == Status::Ok).then_some(record.latency_p50_ms).flatten()
}

/// `3.21 ms`: three significant digits, in ns, µs, ms or s.
pub fn latency(ms: Option<f64>) -> String {
    let Some(ms) = ms else { return String::new() };
    let (value, unit) = match ms {
        _ if ms < 1e-3 => (ms * 1e6, "ns"),
        _ if ms < 1.0 => (ms * 1e3, "µs"),
        _ if ms < 1e3 => (ms, "ms"),
        _ => (ms / 1e3, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// `98.2 %`.
pub fn percent(fraction: f64) -> String {
    format!("{:.1} %", 100.0 * fraction)
}

/// Three significant digits, never fewer than the integer part.
pub fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        magnitude if magnitude < 10.0 => 2,
        magnitude if magnitude < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// The first line of a message, cut to a table's width.
pub fn short_message(record: &Record) -> String {
    let line = record.message.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
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
            let groups = rank(&records);
            let ratios: Vec<_> = groups[0].rows.iter().map(|row| (row.ratio_to_best, row.is_best())).collect();
            assert_eq!(ratios, [(None, false), (Some(1.0), true), (Some(1.5), false)]);
        }
    }

    #[test]
    fn batch_sizes_are_in_their_natural_order_and_compared_apart() {
        let records =
            [record("m", "ort", 16, Some(8.0)), record("m", "ort", 2, Some(2.0)), record("n", "ort", 1, None)];
        let groups = rank(&records);
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].rows.iter().map(|row| row.record.batch_size).collect::<Vec<_>>(), [2, 16]);
        assert!(groups[0].rows.iter().all(|row| row.is_best()));
    }

    #[test]
    fn a_case_says_how_many_calls_its_p99_lacks() {
        let with_calls = |backend, iterations| Record {
            iterations: Some(iterations),
            latency_p99_upper_ms: (iterations >= 662).then_some(2.0),
            ..record("m", backend, 1, Some(1.0))
        };
        let line = |records: &[Record]| missing_calls_line(&rank(records)[0]);
        let dependent = Record { latency_p99_upper_ms: None, ..with_calls("ort", 662) };
        assert!(line(&[dependent]).unwrap().ends_with("needs more calls, since they depend on one another"));
        assert_eq!(line(&[with_calls("ort", 662)]), None);
        let expected = "p99 has no bound: tch-cpu-f32 batch 1 needs 562 more calls";
        assert_eq!(line(&[with_calls("ort", 1000), with_calls("tch", 100)]).as_deref(), Some(expected));
    }

    #[test]
    fn a_case_with_fewer_calls_than_asked_for_says_how_many_it_has() {
        let stopped = |backend, iterations, reason: &str| Record {
            iterations: Some(iterations),
            stopped_by: Some(reason.into()),
            ..record("m", backend, 1, Some(1.0))
        };
        let line = |records: &[Record]| fewer_calls_line(&rank(records)[0]);
        assert_eq!(line(&[stopped("ort", 1000, "iterations"), record("m", "tch", 1, None)]), None);
        let records = [stopped("ort", 1000, "iterations"), stopped("tch", 11, "budget")];
        assert_eq!(line(&records).as_deref(), Some("fewer calls than asked for: tch-cpu-f32 batch 1 has 11 (budget)"));
        let missed = line(&[stopped("ort", 98, "iterations-missed")]).unwrap();
        assert!(missed.ends_with("ort-cpu-f32 batch 1 has 98 (iterations-missed)"), "{missed}");
    }

    #[test]
    fn latencies_have_three_digits_and_a_unit() {
        let shown = [0.000_012_3, 0.012_34, 1.234, 123.4, 4_321.0].map(|ms| latency(Some(ms)));
        assert_eq!(shown, ["12.3 ns", "12.3 µs", "1.23 ms", "123 ms", "4.32 s"]);
    }
}
