//! The figures of a case in load tests, which count for limits in place of those of sequential calls; and a line for
//! each server of the model, beside the cases of this program.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Limits, Options};
use crate::definition::{Case, Status};
use crate::report::columns::has_own_memory;
use crate::report::numbers::{latency, plural, three_digits_of_any};
use crate::run_data::{LoadResult, Record, Scenario, Verdict, is_no_difference};

/// The trial of a load test that a case is judged by.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UnderLoad {
    /// The load test.
    pub run_id: String,
    /// For the highest rate of a search, the rate that all repetitions of the search have found together.
    pub samples_per_s: f64,
    /// Whether it is the highest rate that a search has found, and not only one that was served.
    pub is_highest: bool,
    /// The upper bound with 99 % confidence if the test was for p99 or above, or else the measured p99. If the highest
    /// rate of a search is undecided, the latency bound of the search.
    pub p99_ms: f64,
    /// The memory of the process with all instances; absent if the device has memory of its own.
    pub memory_mb: Option<f64>,
    pub instances: usize,
    /// Threads of each instance.
    pub threads: usize,
    /// Threads that call the session at the same time, if there are several.
    pub callers: Option<usize>,
    pub most_batch: usize,
}

impl UnderLoad {
    /// The trial with the highest rate of those within the limits of p99 and memory, over all numbers of instances; or else the one with the
    /// lowest p99. Returns `None` if the case has no trial that counts.
    ///
    /// Of the load tests with the same terms the newest counts, and none that a newer one contradicts. Only complete
    /// trials count: every request was answered, and the bound was kept with certainty or there was none. The highest
    /// rate of a search also counts. The trials have the library, file and inputs of the record.
    pub fn of(loads: &[LoadResult], record: &Record, limits: &Limits) -> Option<Self> {
        let own: Vec<&LoadResult> = loads.iter().filter(|trial| is_of_record(trial, record)).collect();
        if !has_own_memory(record) {
            return best(those_that_count(&own), limits);
        }
        // A load test knows only the memory of the process.
        let found = best(those_that_count(&own), &Limits { max_memory_mb: None, ..*limits })?;
        Some(UnderLoad { memory_mb: None, ..found })
    }

    /// `under load 431 samples/s with 2 instances of 1 thread, p99 19.1 ms (load test 20260101T000000Z)`.
    pub fn text(&self) -> String {
        let UnderLoad { instances, threads, callers, most_batch, .. } = *self;
        let callers = callers.map(|callers| format!(" and {callers} callers")).unwrap_or_default();
        let batch = if most_batch > 1 { format!(", up to {most_batch} requests per call") } else { String::new() };
        format!(
            "under load {} samples/s with {} of {}{callers}{batch}, p99 {} (load test {})",
            three_digits_of_any(self.samples_per_s),
            plural(instances, "instance", "instances"),
            plural(threads, "thread", "threads"),
            latency(self.p99_ms),
            self.run_id
        )
    }
}

/// Whether the trial is of the record's case, machine, library, file and inputs. An unknown hash or shape matches any.
fn is_of_record(trial: &LoadResult, record: &Record) -> bool {
    trial.case_id == record.case_id
        && trial.host_id == record.host_id
        && trial.scenario == Scenario::Server
        && trial.status.is_measured()
        && trial.library_version == record.library_version
        && is_no_difference(&trial.artifact_sha256, &record.artifact_sha256)
        && is_no_difference(&trial.input_shape, &record.input_shape)
}

/// The trials that show their rates, and that no newer trial replaces.
fn those_that_count<'a>(own: &[&'a LoadResult]) -> Vec<&'a LoadResult> {
    let is_replaced = |it: &LoadResult| own.iter().any(|newer| is_instead(newer, it));
    own.iter().copied().filter(|it| shows_its_rate(it) && !is_replaced(it)).collect()
}

/// The trial with the highest rate of those within the limits of p99 and memory, or else the one with the lowest p99.
fn best<'a>(trials: impl IntoIterator<Item = &'a LoadResult>, limits: &Limits) -> Option<UnderLoad> {
    let is_within = |it: &UnderLoad| {
        let takes = |most: f64| it.memory_mb.is_none_or(|memory| memory <= most);
        limits.max_p99_ms.is_none_or(|most| it.p99_ms <= most) && limits.max_memory_mb.is_none_or(takes)
    };
    let (within, beyond): (Vec<_>, Vec<_>) = trials.into_iter().map(UnderLoad::from).partition(is_within);
    let fastest = within.into_iter().max_by(|one, other| one.samples_per_s.total_cmp(&other.samples_per_s));
    fastest.or_else(|| beyond.into_iter().min_by(|one, other| one.p99_ms.total_cmp(&other.p99_ms)))
}

/// Whether the trial shows that its rate was served.
fn shows_its_rate(trial: &LoadResult) -> bool {
    let is_complete = trial.unanswered == 0 && !trial.ended_early;
    is_complete
        && match trial.verdict {
            Some(Verdict::Passed | Verdict::Measured) => true,
            Some(Verdict::Undecided) => trial.is_highest,
            Some(Verdict::Failed | Verdict::Invalid) | None => false,
        }
}

/// Whether the requests of the trial followed a trace. The rate of a trace is exactly its number of gaps over its
/// duration. A trace without a rate asks all queries at once.
fn is_of_trace(trial: &LoadResult) -> bool {
    let gaps = trial.asked_queries as f64 - 1.0;
    let is_exact = |rate: f64| gaps > 0.0 && (trial.asked_seconds * rate / gaps - 1.0).abs() < 1e-9;
    !trial.is_of_search && trial.rate.is_none_or(is_exact)
}

/// Whether a newer trial replaces an older one: it has the same terms, or it has failed at a rate that is not higher.
/// Requests of a trace may come in bursts, so a trace replaces only the same trace.
fn is_instead(newer: &LoadResult, older: &LoadResult) -> bool {
    let is_newer = newer.run_id != older.run_id && (newer.timestamp, &newer.run_id) > (older.timestamp, &older.run_id);
    let sessions = |row: &LoadResult| (row.instances, row.threads, row.callers, row.most_batch, row.most_delay_ms);
    let bounds =
        |row: &LoadResult| (row.percentile, row.bound_ms, row.ttft_bound_ms, row.tpot_bound_ms, row.lengths.clone());
    let arrivals = |row: &LoadResult| is_of_trace(row).then_some((row.asked_queries, row.rate));
    let is_same =
        sessions(newer) == sessions(older) && bounds(newer) == bounds(older) && arrivals(newer) == arrivals(older);
    let is_repeated = newer.is_of_search == older.is_of_search && (newer.is_of_search || newer.rate == older.rate);
    let has_failed = newer.verdict == Some(Verdict::Failed) && !newer.is_of_search && newer.rate <= older.rate;
    is_newer && is_same && newer.verdict != Some(Verdict::Invalid) && (is_repeated || has_failed)
}

impl From<&LoadResult> for UnderLoad {
    fn from(trial: &LoadResult) -> Self {
        let found = trial.found_rate.zip(trial.rate).filter(|_| trial.is_highest);
        let of_search = trial.bound_ms.filter(|_| trial.is_highest);
        let bound = trial.latency_upper_ms.filter(|_| trial.verdict != Some(Verdict::Undecided)).or(of_search);
        UnderLoad {
            run_id: trial.run_id.clone(),
            samples_per_s: trial.samples_per_s * found.map_or(1.0, |(found, own)| found / own),
            is_highest: trial.is_highest,
            p99_ms: bound.filter(|_| trial.percentile >= 0.99).unwrap_or(trial.latency_p99_ms),
            memory_mb: trial.memory_mb,
            instances: trial.instances,
            threads: trial.threads,
            callers: trial.callers,
            most_batch: trial.most_batch,
        }
    }
}

/// A line for each server that has the model: the trial of its newest load test with the highest rate within the
/// limits, or else the one with the lowest p99.
pub fn served(loads: &[LoadResult], case: &Case, options: &Options) -> Vec<String> {
    let is_meant = |row: &&LoadResult| {
        let is_same = (row.model.as_str(), row.phase) == (case.model.as_str(), case.phase);
        row.url.is_some() && is_same && row.scenario == Scenario::Server && row.status == Status::Ok
    };
    let mut servers: BTreeMap<(&str, usize, Option<&str>), Vec<&LoadResult>> = BTreeMap::new();
    for row in loads.iter().filter(is_meant) {
        servers.entry((&row.case_id, row.batch_size, row.url.as_deref())).or_default().push(row);
    }
    servers.values().filter_map(|own| line(&those_that_count(own), options)).collect()
}

/// The line of one server, by its trials that count.
fn line(trials: &[&LoadResult], options: &Options) -> Option<String> {
    let newest = trials.iter().map(|row| (row.timestamp, &row.run_id)).max()?;
    let of_newest = || trials.iter().copied().filter(|row| (row.timestamp, &row.run_id) == newest);
    let LoadResult { case_id, server, url, .. } = of_newest().next()?;
    let UnderLoad { run_id, samples_per_s, p99_ms, .. } = best(of_newest(), &options.limits)?;
    let beyond = if options.limits.max_p99_ms.is_some_and(|most| p99_ms > most) {
        ", which is above the limit"
    } else if options.limits.min_rate.is_some_and(|least| samples_per_s < least) {
        ", which is below the rate that is required"
    } else {
        ""
    };
    let server = server.as_deref().or(url.as_deref()).unwrap_or_default();
    Some(format!(
        "{case_id}: {server} answers {} samples/s with p99 {}{beyond} (load test {run_id})",
        three_digits_of_any(samples_per_s),
        latency(p99_ms)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::limits::{Limits, Losses};
    use super::*;

    fn trial(run_id: &str, rate: f64, verdict: Verdict) -> LoadResult {
        LoadResult {
            run_id: run_id.into(),
            status: Status::Ok,
            verdict: Some(verdict),
            percentile: 0.99,
            bound_ms: Some(20.0),
            rate: Some(rate),
            samples_per_s: rate,
            latency_p99_ms: 10.0,
            instances: 1,
            threads: 1,
            callers: None,
            most_batch: 1,
            ..LoadResult::default()
        }
    }

    fn rate(loads: &[LoadResult]) -> Option<f64> {
        UnderLoad::of(loads, &Record::default(), &Limits::default()).map(|found| found.samples_per_s)
    }

    #[test]
    fn a_trial_that_failed_or_ended_early_shows_no_rate() {
        let ended = LoadResult { ended_early: true, unanswered: 40, ..trial("1", 1604.0, Verdict::Failed) };
        assert_eq!(rate(&[ended]), None);
        let unanswered = LoadResult { unanswered: 1, ..trial("1", 500.0, Verdict::Measured) };
        let verdicts = [Verdict::Failed, Verdict::Invalid, Verdict::Undecided].map(|it| trial("1", 900.0, it));
        assert_eq!(rate(&[&verdicts[..], &[unanswered, trial("1", 300.0, Verdict::Measured)]].concat()), Some(300.0));
        // The highest rate of a search is its answer, also where its trial is too short for certainty.
        let highest = LoadResult { is_highest: true, is_of_search: true, ..trial("1", 700.0, Verdict::Undecided) };
        let found =
            UnderLoad::of(&[highest], &Record::default(), &Limits { max_p99_ms: Some(20.0), ..Limits::default() })
                .unwrap();
        assert_eq!((found.samples_per_s, found.p99_ms), (700.0, 20.0));
    }

    #[test]
    fn the_newest_load_test_counts_and_not_the_luckiest() {
        let older = trial("1", 1000.0, Verdict::Passed);
        assert_eq!(rate(&[older.clone(), trial("2", 400.0, Verdict::Passed)]), Some(1000.0));
        // The same rate again, and a lower one that fails.
        assert_eq!(rate(&[older.clone(), trial("2", 1000.0, Verdict::Failed)]), None);
        assert_eq!(rate(&[trial("2", 900.0, Verdict::Failed), older.clone()]), None);
        assert_eq!(rate(&[older.clone(), trial("2", 1100.0, Verdict::Failed)]), Some(1000.0));
        assert_eq!(rate(&[older, trial("2", 900.0, Verdict::Invalid)]), Some(1000.0));
        let search = |run_id: &str, rate: f64| LoadResult {
            is_of_search: true,
            is_highest: true,
            ..trial(run_id, rate, Verdict::Passed)
        };
        assert_eq!(rate(&[search("1", 800.0), search("2", 600.0)]), Some(600.0));
        let nothing = LoadResult { is_of_search: true, ..trial("2", 50.0, Verdict::Failed) };
        assert_eq!(rate(&[search("1", 800.0), nothing]), None);
        // The repetitions of a search have one answer.
        let found = |rate| LoadResult { found_rate: Some(600.0), ..search("1", rate) };
        assert_eq!(rate(&[found(900.0), found(400.0)]), Some(600.0));
    }

    #[test]
    fn a_trace_stands_in_the_place_of_the_same_trace_alone() {
        let older = trial("1", 300.0, Verdict::Passed);
        let trace = |run_id: &str, verdict| LoadResult {
            asked_queries: 101,
            asked_seconds: 10.0,
            ..trial(run_id, 10.0, verdict)
        };
        assert_eq!(rate(&[older.clone(), trace("2", Verdict::Failed)]), Some(300.0));
        assert_eq!(rate(&[older, LoadResult { rate: None, ..trace("2", Verdict::Failed) }]), Some(300.0));
        assert_eq!(rate(&[trace("1", Verdict::Passed), trace("2", Verdict::Failed)]), None);
        assert_eq!(rate(&[trace("1", Verdict::Passed), trial("2", 5.0, Verdict::Failed)]), Some(10.0));
    }

    #[test]
    fn a_trial_at_a_low_rate_takes_nothing_from_a_case() {
        let record = Record { throughput_ips: Some(40_000.0), ..Record::default() };
        let is_excluded = |load: LoadResult| {
            let limits = Limits { min_rate: Some(1000.0), ..Limits::default() };
            limits.excluding(&record, Losses::default(), Some(&UnderLoad::from(&load))).is_some()
        };
        assert!(!is_excluded(trial("1", 300.0, Verdict::Passed)));
        assert!(is_excluded(LoadResult { is_highest: true, ..trial("1", 300.0, Verdict::Passed) }));
    }

    #[test]
    fn the_memory_of_a_load_test_is_not_that_of_a_gpu() {
        let loads = [LoadResult { memory_mb: Some(900.0), ..trial("1", 300.0, Verdict::Passed) }];
        let limits = Limits { max_memory_mb: Some(500.0), ..Limits::default() };
        let found = |record: &Record| {
            let found = UnderLoad::of(&loads, record, &limits).unwrap();
            (found.memory_mb, limits.excluding(record, Losses::default(), Some(&found)).map(|it| it.limit))
        };
        assert_eq!(found(&Record::default()), (Some(900.0), Some("max-memory")));
        assert_eq!(found(&Record { device_memory_mb: Some(400.0), ..Record::default() }), (None, None));
    }

    #[test]
    fn another_library_file_or_input_is_another_work() {
        let record = Record {
            library_version: Some("1.20".into()),
            artifact_sha256: Some("ab".into()),
            input_shape: Some("1x3x32x32".into()),
            ..Record::default()
        };
        let same = LoadResult {
            library_version: Some("1.20".into()),
            artifact_sha256: Some("ab".into()),
            input_shape: Some("1x3x32x32".into()),
            ..trial("1", 1000.0, Verdict::Passed)
        };
        let is_found = |load: LoadResult| UnderLoad::of(&[load], &record, &Limits::default()).is_some();
        assert!(is_found(same.clone()));
        assert!(is_found(LoadResult { artifact_sha256: None, input_shape: None, ..same.clone() }));
        assert!(!is_found(LoadResult { library_version: Some("1.21".into()), ..same.clone() }));
        assert!(!is_found(LoadResult { library_version: None, ..same.clone() }));
        assert!(!is_found(LoadResult { artifact_sha256: Some("cd".into()), ..same.clone() }));
        assert!(!is_found(LoadResult { input_shape: Some("1x3x256x256".into()), ..same }));
    }

    #[test]
    fn a_server_is_beside_the_cases_of_its_model() {
        let row = |rate: f64, p99: f64| LoadResult {
            run_id: "20260101T000000Z".into(),
            case_id: "digits/http-mlserver-f32/1".into(),
            model: "digits".into(),
            url: Some("http://127.0.0.1:1".into()),
            server: Some("mlserver 1.7.1".into()),
            status: Status::Ok,
            verdict: Some(Verdict::Measured),
            samples_per_s: rate,
            latency_p99_ms: p99,
            ..LoadResult::default()
        };
        let loads = [row(100.0, 5.0), row(300.0, 9.0), row(500.0, 80.0)];
        let of = |max_p99_ms, min_rate| {
            let mut options = Options::new("digits");
            (options.limits.max_p99_ms, options.limits.min_rate) = (max_p99_ms, min_rate);
            served(&loads, &Case::new("digits", "ort", 1), &options)
        };
        let within = "digits/http-mlserver-f32/1: mlserver 1.7.1 answers 300 samples/s with p99 9.00 ms";
        assert_eq!(of(Some(20.0), None), [format!("{within} (load test 20260101T000000Z)")]);
        assert!(of(Some(20.0), Some(400.0))[0].contains("below the rate"));
        assert!(of(Some(1.0), None)[0].contains("p99 5.00 ms, which is above the limit"));
        assert!(served(&loads, &Case::new("other", "ort", 1), &Options::new("other")).is_empty());
    }

    #[test]
    fn a_server_keeps_a_limit_by_the_same_p99_as_a_case_of_this_program() {
        let row = |rate: f64, upper: Option<f64>| LoadResult {
            case_id: "digits/http-mlserver-f32/1".into(),
            model: "digits".into(),
            url: Some("http://127.0.0.1:1".into()),
            latency_upper_ms: upper,
            ..trial("20260101T000000Z", rate, Verdict::Passed)
        };
        let of = |loads: &[LoadResult]| {
            let mut options = Options::new("digits");
            options.limits.max_p99_ms = Some(20.0);
            served(loads, &Case::new("digits", "ort", 1), &options).remove(0)
        };
        // All of them had a p99 of 10 ms.
        let loads = [row(300.0, Some(15.0)), row(500.0, Some(25.0))];
        assert!(of(&loads).contains("answers 300 samples/s with p99 15.0 ms (load test"), "{}", of(&loads));
        assert!(of(&loads[1..]).contains("p99 25.0 ms, which is above the limit"), "{}", of(&loads[1..]));
        assert!(of(&[row(500.0, None)]).contains("p99 10.0 ms (load test"));
        for load in &loads {
            assert_eq!(Some(UnderLoad::from(load).p99_ms), load.latency_upper_ms);
        }
        // A newer test in which a lower rate fails contradicts the older one.
        let failed = |run_id: &str, rate| LoadResult {
            run_id: run_id.into(),
            verdict: Some(Verdict::Failed),
            ..row(rate, None)
        };
        let lines = |newer: LoadResult| {
            served(&[row(300.0, None), newer], &Case::new("digits", "ort", 1), &Options::new("digits")).len()
        };
        let newer = [failed("20260102T000000Z", 200.0), failed("20260102T000000Z", 400.0)].map(lines);
        assert_eq!(newer, [0, 1]);
    }
}
