//! What failed in one run of several, and what cannot be read.

use clap::{Args as _, FromArgMatches as _};

use super::simulation::empty_record;
use crate::compare::{Comparison, Conclusion, EarlierRuns, Noise, Options, Side, compare};
use crate::definition::Status;
use crate::run_data::Record;

/// A run of the case with this status and time.
fn run(name: &str, status: Status, ms: f64) -> Record {
    let latency_p50_ms = (status == Status::Ok).then_some(ms);
    Record { run_id: name.into(), status, latency_p50_ms, ..empty_record() }
}

fn compared(base: &Side, candidate: &Side) -> Comparison {
    let command = Options::augment_args(clap::Command::new("compare"));
    let options = Options::from_arg_matches(&command.get_matches_from(["compare"])).unwrap();
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
fn what_cannot_be_read_is_not_compared() {
    let [mut base, candidate] = ["1", "2"].map(|name| Side::of_records(name, vec![run(name, Status::Ok, 1.0)]));
    base.unread.insert(empty_record().case());
    let found = compared(&base, &candidate);
    assert_eq!((found.conclusion, found.cases.len()), (Conclusion::NothingToCompare, 0));
    assert!(found.notes[0].contains("cannot be read"), "{:?}", found.notes);
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
