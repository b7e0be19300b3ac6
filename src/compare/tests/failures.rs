//! Comparisons with cases that failed or cannot be read.

use clap::{Args as _, FromArgMatches as _};

use super::simulation::empty_record;
use crate::compare::rates::tests::search;
use crate::compare::{
    Comparison, Conclusion, EarlierRuns, Noise, Options, Side, Source, Verdict, compare, lost_in_words,
};
use crate::definition::{Dtype, Status};
use crate::run_data::{LoadResult, Record, Verdict as LoadVerdict};

/// A run of the case with this status and time.
fn run(name: &str, status: Status, ms: f64) -> Record {
    let latency_p50_ms = (status == Status::Ok).then_some(ms);
    Record { run_id: name.into(), status, latency_p50_ms, ..empty_record() }
}

/// The load tests of two sides with a search, whose new trial has this verdict.
fn searches(verdict: LoadVerdict) -> [Vec<LoadResult>; 2] {
    let found = (verdict != LoadVerdict::Invalid).then_some(100.0);
    let new = LoadResult { verdict: Some(verdict), ..search("2", found) };
    [vec![search("1", Some(100.0))], vec![new]]
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
fn a_case_whose_times_are_not_compared_leaves_the_comparison_open() {
    let conclusion = |before, after| {
        let [base, candidate] = [("1", before, Status::Timeout), ("2", after, Status::Ok)].map(|(name, own, other)| {
            let other = Record { backend: "other".into(), ..run(name, other, 1.0) };
            Side::of_records(name, vec![run(name, own, 1.0), other])
        });
        let found = compared(&base, &candidate);
        (found.conclusion, found.cases.iter().filter(|case| case.is_open).count())
    };
    assert_eq!(conclusion(Status::Suspicious, Status::Suspicious), (Conclusion::CannotSay, 1));
    assert_eq!(conclusion(Status::Suspicious, Status::Ok), (Conclusion::Well, 0));
    assert_eq!(conclusion(Status::Timeout, Status::Suspicious), (Conclusion::Well, 0));
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
fn a_file_and_its_quantised_successor_are_left_to_other_commands() {
    let quantised = Record { dtype: Dtype::I8, suite: "other".into(), ..run("2", Status::Ok, 1.0) };
    let rows = [run("1", Status::Ok, 1.0), quantised];
    let [base, candidate] = rows.map(|row| Side::of_records(&row.run_id.clone(), vec![row]));
    let found = compared(&base, &candidate);
    assert_eq!(found.conclusion, Conclusion::NothingToCompare);
    assert!(found.notes[0].contains("differ in their dtype; `inferbench run --path"), "{:?}", found.notes);
}

#[test]
fn what_cannot_be_read_is_not_compared() {
    let [mut base, candidate] = ["1", "2"].map(|name| Side::of_records(name, vec![run(name, Status::Ok, 1.0)]));
    base.unread.insert(empty_record().case());
    let found = compared(&base, &candidate);
    assert_eq!((found.conclusion, found.cases.len()), (Conclusion::NothingToCompare, 0));
    assert!(found.notes[0].contains("cannot be read"), "{:?}", found.notes);
    // Nor is it well because a rate under load is.
    assert_eq!(found.with_rates(&searches(LoadVerdict::Passed), false).conclusion, Conclusion::CannotSay);
}

#[test]
fn a_case_that_cannot_be_read_leaves_the_comparison_of_the_others_open() {
    // The other case runs in the candidate only.
    let [mut base, candidate] = [("1", Status::Timeout), ("2", Status::Ok)].map(|(name, status)| {
        let other = Record { backend: "other".into(), ..run(name, status, 1.0) };
        Side::of_records(name, vec![run(name, Status::Timeout, 0.0), other])
    });
    assert_eq!(compared(&base, &candidate).conclusion, Conclusion::Well);
    base.unread.insert(empty_record().case());
    assert_eq!(compared(&base, &candidate).conclusion, Conclusion::CannotSay);
}

#[test]
fn a_change_of_one_case_among_many_has_to_be_surer_than_one_alone() {
    let side = |name: &str, first: f64, cases: usize| {
        let ms = |place: usize| if place == 0 { first } else { 1.0 };
        let record = |place: usize| Record { batch_size: 1 + place, ..run(name, Status::Ok, ms(place)) };
        Side::of_records(name, (0..cases).map(record).collect())
    };
    // p = 0.0049
    let verdict = |cases: usize| compared(&side("1", 1.0, cases), &side("2", 1.22, cases)).cases[0].verdict();
    assert_eq!([1, 10].map(verdict), [Some(Verdict::Slower), Some(Verdict::CannotSay)]);
}

#[test]
fn rates_are_something_to_compare_and_broken_searches_leave_a_comparison_open() {
    let [none, well] = [vec![], vec![Status::Timeout, Status::Ok]].map(|of: Vec<Status>| {
        let side = |place: usize| {
            let records = of.get(place).map(|status| run(&place.to_string(), *status, 1.0));
            Side::of_records("s", records.into_iter().collect())
        };
        compared(&side(0), &side(1))
    });
    assert_eq!(none.clone().with_rates(&searches(LoadVerdict::Passed), false).conclusion, Conclusion::Well);
    assert_eq!(none.clone().with_rates(&[vec![], vec![]], false).conclusion, Conclusion::NothingToCompare);
    let lost =
        |is_allowed: bool| [&none, &well].map(|it| it.clone().with_rates(&searches(LoadVerdict::Invalid), is_allowed));
    assert_eq!(lost(false).map(|it| it.conclusion), [Conclusion::CannotSay; 2]);
    assert_eq!(lost(true).map(|it| it.conclusion), [Conclusion::NothingToCompare, Conclusion::Well]);
    let said = "m/ort-cpu-f32/1 is open: only the base's search found a rate";
    assert!(lost(true)[1].notes.iter().any(|note| note == said), "{:?}", lost(true)[1].notes);
    let own = LoadResult { instances: 2, threads: 1, ..searches(LoadVerdict::Passed)[0][0].clone() };
    assert!(lost_in_words(&own).contains("/1 on 2 × 1 threads is open"), "{}", lost_in_words(&own));
}

#[test]
fn runs_of_two_files_on_one_side_are_refused_and_one_changed_file_is_not() {
    let of_file = |name: &str, file: &str| Record { artifact_sha256: Some(file.into()), ..run(name, Status::Ok, 1.0) };
    let found = |base: Vec<Record>| {
        let found = compared(&Side::of_records("a", base), &Side::of_records("b", vec![of_file("3", "y")]));
        (found.conclusion, found.refused.len())
    };
    assert_eq!(found(vec![of_file("1", "x"), of_file("2", "y")]), (Conclusion::NothingToCompare, 1));
    assert_eq!(found(vec![of_file("1", "x")]), (Conclusion::CannotSay, 0));
}

#[test]
fn a_case_that_is_open_by_its_interval_has_no_other_reason_and_no_notice() {
    let busy = Record { disturbed_share: Some(1.0), ..run("1", Status::Ok, 1.0) };
    for (base, ms, verdict) in [(run("1", Status::Ok, 1.0), 2.0, Verdict::Slower), (busy, 1.0, Verdict::CannotSay)] {
        let candidate = Side::of_records("b", vec![run("2", Status::Ok, ms)]);
        let found = compared(&Side::of_records("a", vec![base]), &candidate);
        let latency = found.cases[0].latency.as_ref().unwrap();
        assert_eq!((latency.verdict, latency.is_small_change, latency.open_because), (verdict, false, None));
        assert!(found.notes.is_empty(), "{:?}", found.notes);
    }
}

#[test]
fn a_longer_mean_of_short_calls_is_seen() {
    let record = |name: &str, ms: f64, mean: f64| Record { latency_mean_ms: Some(mean), ..run(name, Status::Ok, ms) };
    let [base, candidate] = [("1", 0.01, 0.011), ("2", 0.005, 0.025)]
        .map(|(name, ms, mean)| Side::of_records(name, vec![record(name, ms, mean)]));
    assert_eq!(compared(&base, &candidate).cases[0].verdict(), Some(Verdict::CannotSay));
}

#[test]
fn two_machines_that_may_differ_have_no_noise_in_common() {
    let side = |name: &str, host: &str| {
        let record =
            |number: usize| Record { host_id: host.into(), ..run(&format!("{name}{number}"), Status::Ok, 1.0) };
        Side::of_records(name, (0..3).map(record).collect())
    };
    let found = compared_with(&["--allow-different", "host"], &side("a", "h"), &side("b", "i"));
    let latency = found.cases[0].latency.as_ref().unwrap();
    assert_eq!([latency.base_noise.source, latency.candidate_noise.source], [Source::Assumed; 2]);
}

#[test]
fn what_is_left_out_disturbed_or_of_another_library_is_said() {
    let with =
        |it: Record, path: &str, disturbed_share| Record { library_path: Some(path.into()), disturbed_share, ..it };
    let base = vec![
        with(run("1", Status::Ok, 1.0), "/old.so", Some(0.2)),
        run("2", Status::Timeout, 0.0),
        with(run("3", Status::Ok, 1.0), "/old.so", Some(0.4)),
    ];
    let candidate =
        vec![with(run("4", Status::Ok, 1.0), "/new.so", Some(0.3)), with(run("5", Status::Ok, 1.0), "/new.so", None)];
    let found = compared(&Side::of_records("a", base), &Side::of_records("b", candidate));
    let left_out = "m/ort-cpu-f32/1: 1 of 3 runs of the base are not ok, and are left out";
    assert_eq!(found.notes, [left_out, "ort: the library is /new.so and was /old.so"]);
    let share = found.base.disturbed_share.unwrap();
    assert!((share - 0.3).abs() < 1e-9 && found.candidate.disturbed_share.is_none(), "{share}");
}
