//! What failed in one run of several, and what cannot be read.

use clap::{Args as _, FromArgMatches as _};

use super::simulation::empty_record;
use crate::compare::{Comparison, Conclusion, EarlierRuns, Noise, Options, RateChange, Side, Verdict, compare};
use crate::definition::Status;
use crate::run_data::Record;

/// A run of the case with this status and time.
fn run(name: &str, status: Status, ms: f64) -> Record {
    let latency_p50_ms = (status == Status::Ok).then_some(ms);
    Record { run_id: name.into(), status, latency_p50_ms, ..empty_record() }
}

fn compared(base: &Side, candidate: &Side) -> Comparison {
    compared_with(&[], base, candidate)
}

fn compared_with(flags: &[&str], base: &Side, candidate: &Side) -> Comparison {
    let command = Options::augment_args(clap::Command::new("compare").no_binary_name(true));
    let options = Options::from_arg_matches(&command.get_matches_from(flags)).unwrap();
    compare(base, candidate, &EarlierRuns::of(std::iter::empty()), &|_| Noise::assumed(), &options)
}

fn conclusion(base: &[Record], candidate: &[Record]) -> Conclusion {
    compared(&Side::of_records("a", base.to_vec()), &Side::of_records("b", candidate.to_vec())).conclusion
}

#[test]
fn one_failure_of_the_base_hides_no_regression() {
    let base = [run("1", Status::Ok, 1.0), run("2", Status::Timeout, 0.0), run("3", Status::Ok, 1.0)];
    assert_eq!(conclusion(&base, &[run("4", Status::Ok, 2.0)]), Conclusion::Regression);
    assert_eq!(conclusion(&base, &[run("4", Status::Timeout, 0.0)]), Conclusion::Regression);
    assert_eq!(conclusion(&base[1..2], &[run("4", Status::Ok, 2.0)]), Conclusion::Well);
}

#[test]
fn what_was_wrong_before_has_a_line_and_is_no_regression() {
    let [base, candidate] = ["1", "2"].map(|name| vec![run(name, Status::WrongOutput, 0.0)]);
    let found = compared(&Side::of_records("a", base), &Side::of_records("b", candidate));
    assert_eq!((found.conclusion, found.cases[0].changes.len()), (Conclusion::NothingToCompare, 1));
}

#[test]
fn a_median_that_is_shorter_hides_no_mean_that_is_longer() {
    let with_rate = |name: &str, ms: f64, rate: f64| Record {
        latency_mean_ms: Some(1e3 / rate),
        throughput_lower_ips: Some(0.95 * rate),
        throughput_upper_ips: Some(1.05 * rate),
        ..run(name, Status::Ok, ms)
    };
    let verdict = |rate| {
        let [base, candidate] = [("1", 1.0, 900.0), ("2", 0.5, rate)]
            .map(|(name, ms, rate)| Side::of_records(name, vec![with_rate(name, ms, rate)]));
        let found = compared(&base, &candidate);
        (found.cases[0].verdict(), found.notes.len())
    };
    assert_eq!(verdict(1700.0), (Some(Verdict::Faster), 0));
    assert_eq!(verdict(400.0), (Some(Verdict::CannotSay), 1));
}

#[test]
fn filters_that_leave_nothing_are_named() {
    let [base, candidate] = ["1", "2"].map(|name| Side::of_records(name, vec![run(name, Status::Ok, 1.0)]));
    let found = compared_with(&["--device", "cuda:7"], &base, &candidate);
    assert_eq!(found.conclusion, Conclusion::NothingToCompare);
    assert!(found.notes[0].starts_with("no case passes the filters"), "{:?}", found.notes);
    assert!(compared_with(&["--device", "cpu"], &base, &candidate).notes.is_empty());
}

#[test]
fn what_cannot_be_read_is_not_compared() {
    let [mut base, candidate] = ["1", "2"].map(|name| Side::of_records(name, vec![run(name, Status::Ok, 1.0)]));
    base.unread.insert(empty_record().case());
    let found = compared(&base, &candidate);
    assert_eq!((found.conclusion, found.cases.len()), (Conclusion::NothingToCompare, 0));
    assert!(found.notes[0].contains("cannot be read"), "{:?}", found.notes);
    // Nor is it well because a rate under load is.
    let rate = RateChange {
        case_id: "m/ort-cpu-f32/1".into(),
        instances: 1,
        threads: 1,
        callers: None,
        percentile: 99.0,
        bound_ms: Some(20.0),
        ttft_bound_ms: None,
        tpot_bound_ms: None,
        base_rate: 100.0,
        new_rate: Some(100.0),
        base_tests: 1,
        new_tests: 1,
        ratio: 1.0,
        ratio_lower: 0.9,
        ratio_upper: 1.1,
        is_lower: false,
    };
    assert_eq!(found.with_rates(vec![rate]).conclusion, Conclusion::CannotSay);
}

#[test]
fn a_case_that_cannot_be_read_leaves_the_comparison_of_the_others_open() {
    // The other one runs in the candidate only.
    let [mut base, candidate] = [("1", Status::Timeout), ("2", Status::Ok)].map(|(name, status)| {
        let other = Record { backend: "other".into(), ..run(name, status, 1.0) };
        Side::of_records(name, vec![run(name, Status::Timeout, 0.0), other])
    });
    assert_eq!(compared(&base, &candidate).conclusion, Conclusion::Well);
    base.unread.insert(empty_record().case());
    assert_eq!(compared(&base, &candidate).conclusion, Conclusion::CannotSay);
}
