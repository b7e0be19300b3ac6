//! `inferbench compare`: what is paired, what is refused, the verdicts of stored runs and baselines, and the exit codes.

use std::fs;

use inferbench::definition::{Boundary, Case, Status, TimedOn};
use inferbench::history::write_records;
use inferbench::run_data::Record;
use serde_json::Value;

use crate::support::{Finished, Run, Workplace, put_calls};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A right measurement of `m` on `ort` with this median, by 400 calls that are near it.
fn record(run_id: &str, batch_size: usize, ms: f64) -> Record {
    let run = Record {
        run_id: run_id.into(),
        timestamp: "2026-01-01T00:00:00Z".parse().unwrap(),
        git_commit: Some(COMMIT.into()),
        git_dirty: Some(false),
        host_id: "host-a".into(),
        suite: "quick".into(),
        rustc_version: "rustc 1".into(),
        ..Record::default()
    };
    let case = Case::new("m", "ort", batch_size);
    Record {
        latency_p50_ms: Some(ms),
        latency_mean_ms: Some(ms),
        latency_std_ms: Some(0.01 * ms),
        iterations: Some(400),
        verified: Some(true),
        library_version: Some("1.0".into()),
        threads: Some(1),
        memory_mb: Some(100.0),
        memory_kind: Some("own-process-peak-rss".into()),
        ..run.about(&case)
    }
}

/// A workplace with seven runs of identical code, 0.5 % apart, of two cases.
fn with_history() -> Workplace {
    let workplace = Workplace::new(&[], &["null"], &[1]);
    for (index, deviation) in [0.0, 0.005, -0.005, 0.0, 0.005, -0.005, 0.0].into_iter().enumerate() {
        let run_id = format!("2026010{}T000000Z", index + 1);
        store(&workplace, &run_id, &[record(&run_id, 1, 2.0 + deviation), record(&run_id, 8, 9.0 + deviation)]);
    }
    workplace
}

fn store(workplace: &Workplace, run_id: &str, records: &[Record]) {
    let folder = workplace.path("target-reports").join(run_id);
    fs::create_dir_all(&folder).unwrap();
    let mut bytes = Vec::new();
    write_records(records, &mut bytes).unwrap();
    fs::write(folder.join("results.csv"), bytes).unwrap();
}

/// Stores a candidate made of the history's case and another, and compares it with the first run.
#[track_caller]
fn compared(workplace: &Workplace, candidate: &[Record], arguments: &[&str], code: u8) -> Finished {
    store(workplace, "candidate", candidate);
    let all = [&["compare", "20260101T000000Z", "candidate"], arguments].concat();
    workplace.inferbench(&all).finish().with_code(code)
}

fn json(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {}", finished.stdout))
}

#[track_caller]
fn shows(finished: &Finished, parts: &[&str]) {
    for part in parts {
        assert!(finished.stdout.contains(part), "no {part:?} in\n{}", finished.stdout);
    }
}

fn verdicts(found: &Value) -> Vec<&str> {
    let cases = found["cases"].as_array().unwrap().iter();
    cases.filter_map(|case| case["latency"]["verdict"].as_str()).collect()
}

#[test]
fn a_slow_down_is_found_and_equal_code_is_the_same() {
    let workplace = with_history();
    let slower = [record("candidate", 1, 2.2), record("candidate", 8, 9.0)];
    let found = json(&compared(&workplace, &slower, &["--format", "json"], 1));
    assert_eq!(verdicts(&found), ["slower", "same"]);
    let latency = &found["cases"][0]["latency"];
    assert_eq!((&found["conclusion"], &latency["base_noise"]["source"]), (&"regression".into(), &"runs".into()));
    // Six runs are left when those that are compared are not their own history.
    assert_eq!(latency["base_noise"]["freedom"], 5.0);
    let part = |name: &str| latency["interval"][name].as_f64().unwrap();
    assert!(part("lower") > 1.05 && part("upper") < 1.15 && (part("ratio") - 1.1).abs() < 1e-9, "{latency}");

    let equal = [record("candidate", 1, 2.0), record("candidate", 8, 9.0)];
    assert_eq!(verdicts(&json(&compared(&workplace, &equal, &["--format", "json"], 0))), ["same", "same"]);
    let faster = [record("candidate", 1, 1.5), record("candidate", 8, 9.0)];
    shows(&compared(&workplace, &faster, &[], 0), &["faster", "-25.0 %", "no regression: 1 faster, 1 same"]);
}

#[test]
fn another_build_has_at_least_the_floor_of_its_layout() {
    let workplace = with_history();
    let floor = |commit: &str| {
        let of_commit =
            |batch_size, ms| Record { git_commit: Some(commit.into()), ..record("candidate", batch_size, ms) };
        let candidate = [of_commit(1, 2.0), of_commit(8, 9.0)];
        let found = json(&compared(&workplace, &candidate, &["--format", "json"], 0));
        found["cases"][1]["latency"]["floor"].as_f64().unwrap()
    };
    assert!(floor(COMMIT) < 0.01);
    assert_eq!(floor("89abcdef0123456789abcdef0123456789abcdef"), 0.01);
}

#[test]
fn suspicious_times_are_not_compared() {
    let workplace = with_history();
    let suspicious = Record { status: Status::Suspicious, verified: None, ..record("candidate", 8, 1.0) };
    let found = json(&compared(&workplace, &[record("candidate", 1, 2.0), suspicious], &["--format", "json"], 1));
    assert_eq!(verdicts(&found), ["same"]);
    assert!(found["cases"][1]["latency"].is_null(), "{found}");
}

#[test]
fn a_sure_change_within_the_tolerance_is_a_notice_and_no_regression() {
    let workplace = with_history();
    let slower = [record("candidate", 1, 2.2), record("candidate", 8, 9.0)];
    let found = compared(&workplace, &slower, &["--tolerance", "15%"], 0);
    shows(
        &found,
        &["m/ort-cpu-f32/1: a sure change of +10.0 %, within the tolerance of 15 %", "no regression: 2 same"],
    );
}

#[test]
fn where_equal_code_differs_by_more_than_half_one_has_to_measure_again() {
    let workplace = Workplace::new(&[], &["null"], &[1]);
    for (index, ms) in [1.0, 9.0, 2.0, 14.0, 1.2, 8.0].into_iter().enumerate() {
        let run_id = format!("2026010{}T000000Z", index + 1);
        store(&workplace, &run_id, &[record(&run_id, 1, ms)]);
    }
    let found = compared(&workplace, &[record("candidate", 1, 20.0)], &[], 4);
    shows(&found, &["measure again: identical code differs by up to", "noise from at least 5 runs of identical code"]);
    assert!(!found.stdout.contains("interval "), "{}", found.stdout);
    // Runs that were disturbed throughout do not count.
    for (index, ms) in [1.0, 9.0, 2.0, 14.0, 1.2, 8.0].into_iter().enumerate().skip(1) {
        let run_id = format!("2026010{}T000000Z", index + 1);
        store(&workplace, &run_id, &[Record { disturbed_share: Some(0.9), ..record(&run_id, 1, ms) }]);
    }
    let found = compared(&workplace, &[record("candidate", 1, 1.0)], &[], 4);
    shows(&found, &["5 earlier runs are left out of the noise", "noise unknown"]);
}

#[test]
fn what_other_load_may_have_done_is_no_verdict() {
    let workplace = with_history();
    let disturbed = |batch_size, ms| Record { disturbed_share: Some(1.0), ..record("candidate", batch_size, ms) };
    let found = compared(&workplace, &[disturbed(1, 2.4), record("candidate", 8, 9.0)], &[], 4);
    shows(&found, &["other load affected most samples of a side", "undecided: 1 same, 1 cannot-say"]);
    // A candidate that is not slower in spite of the load is not slower.
    compared(&workplace, &[disturbed(1, 2.0), disturbed(8, 9.0)], &[], 0);
    // The load of the base may hide that the candidate is slower.
    let base = "20260101T000000Z";
    let of_base = |batch_size, ms| Record { disturbed_share: Some(1.0), ..record(base, batch_size, ms) };
    store(&workplace, base, &[of_base(1, 2.4), record(base, 8, 9.0)]);
    let found = compared(&workplace, &[record("candidate", 1, 2.4), record("candidate", 8, 9.0)], &[], 4);
    shows(&found, &["undecided: 1 same, 1 cannot-say"]);
}

#[test]
fn without_a_history_only_large_changes_can_be_told() {
    let workplace = Workplace::new(&[], &["null"], &[1]);
    store(&workplace, "20260101T000000Z", &[record("20260101T000000Z", 1, 2.0)]);
    let found = compared(&workplace, &[record("candidate", 1, 2.2)], &[], 4);
    shows(&found, &["cannot-say", "noise unknown, 5 % between runs assumed", "undecided: 1 cannot-say"]);
    compared(&workplace, &[record("candidate", 1, 3.0)], &[], 1);
}

#[test]
fn a_regression_has_to_be_excluded_for_every_case() {
    let workplace = with_history();
    let of = |first: f64, arguments: &[&str], code: u8| {
        let candidate = [record("candidate", 1, first), record("candidate", 8, 9.0)];
        compared(&workplace, &candidate, &[&["--format", "json"], arguments].concat(), code)
    };
    // The interval is wider than this tolerance.
    let narrow = ["--tolerance", "0.1%"];
    assert_eq!(verdicts(&json(&of(1.5, &narrow, 4))), ["faster", "cannot-say"]);
    of(1.5, &["--tolerance", "0.1%", "--allow-undecided"], 0);
    of(2.0, &["--tolerance", "0.1%", "--allow-undecided"], 4);
    assert_eq!(verdicts(&json(&of(2.4, &narrow, 1))), ["slower", "cannot-say"]);
    // Perhaps faster by more than 5 %, and not slower by 5 %.
    assert_eq!(verdicts(&json(&of(1.92, &[], 0))), ["not-slower", "same"]);
}

#[test]
fn open_cases_are_allowed_only_beside_one_with_a_verdict() {
    const BASE: &str = "20260101T000000Z";
    let workplace = Workplace::new(&[], &["null"], &[1]);
    let failed = |run_id| Record { status: Status::Failed, latency_p50_ms: None, ..record(run_id, 8, 9.0) };
    store(&workplace, BASE, &[record(BASE, 1, 2.0), failed(BASE)]);
    let refused = || Record { library_version: Some("2.0".into()), ..record("candidate", 1, 2.0) };
    // A case that runs again is an improvement, and says nothing about the time of any case.
    for arguments in [vec![], vec!["--allow-undecided"]] {
        let found = compared(&workplace, &[refused(), record("candidate", 8, 9.0)], &arguments, 4);
        shows(&found, &["status failed → ok: an improvement", "undecided: 1 case refused"]);
    }
    let late = Record { status: Status::Timeout, ..failed("candidate") };
    let found = compared(&workplace, &[late], &["--batch-sizes", "8"], 3);
    shows(&found, &["status failed → timeout", "nothing to compare"]);
}

#[test]
fn several_runs_a_side_are_their_own_history() {
    let workplace = Workplace::new(&[], &["null"], &[1]);
    for (run_id, ms) in [("a1", 2.0), ("a2", 2.01), ("a3", 1.99), ("b1", 2.2), ("b2", 2.21), ("b3", 2.19)] {
        // Of changed trees, so that nothing else is known.
        store(&workplace, run_id, &[Record { git_dirty: Some(true), ..record(run_id, 1, ms) }]);
    }
    let arguments = ["compare", "a1,a2,a3", "b1,b2,b3", "--format", "json"];
    let found = json(&workplace.inferbench(&arguments).finish().with_code(1));
    let latency = &found["cases"][0]["latency"];
    assert_eq!((&latency["base_runs"], &latency["base_noise"]["freedom"]), (&3.into(), &4.0.into()));
    workplace
        .inferbench(&["compare", "a1,a1", "b1"])
        .finish()
        .with_code(2)
        .saying(&["a1: run a1 is on this side already"]);
    let shared = workplace.inferbench(&["compare", "a1", "b1,a1"]).finish().with_code(3);
    shows(&shared, &["m/ort-cpu-f32/1: not compared: both sides have its measurement of run a1"]);
}

#[test]
fn other_hosts_libraries_and_boundaries_are_refused_unless_allowed() {
    let workplace = with_history();
    let elsewhere = |batch_size, ms| Record {
        host_id: "host-b".into(),
        library_version: Some("2.0".into()),
        ..record("candidate", batch_size, ms)
    };
    let candidate = [elsewhere(1, 2.0), elsewhere(8, 9.0)];
    let refused = compared(&workplace, &candidate, &[], 3);
    shows(
        &refused,
        &[
            "m/ort-cpu-f32/1: refused: host: host-a ↔ host-b; library: 1.0 ↔ 2.0",
            "`--allow-different host,library`",
            "nothing to compare: 2 cases refused",
        ],
    );
    compared(&workplace, &candidate, &["--allow-different", "host"], 3);
    let allowed = compared(&workplace, &candidate, &["--allow-different", "host,library"], 4);
    // Nothing is known of the other host's noise.
    shows(&allowed, &["cannot-say", "allowed to differ: host: host-a ↔ host-b", "noise unknown"]);

    let end_to_end =
        [Record { boundary: Boundary::EndToEnd, ..record("candidate", 1, 2.0) }, record("candidate", 8, 9.0)];
    shows(&compared(&workplace, &end_to_end, &[], 4), &["refused: boundary: compute ↔ end-to-end", "1 same"]);
    let timed_samples = Some("pictures 0a1b2c3d".into());
    let samples = Record { timed_on: TimedOn::Samples, timed_samples, ..record("candidate", 1, 2.0) };
    let samples = [samples, record("candidate", 8, 9.0)];
    compared(&workplace, &end_to_end, &["--allow-undecided"], 0);
    shows(&compared(&workplace, &samples, &[], 4), &["refused: inputs: seeded ↔ pictures 0a1b2c3d", "1 same"]);
    compared(&workplace, &end_to_end, &["--allow-different", "noise"], 2).saying(&["--allow-different"]);
}

#[test]
fn the_anchor_of_merged_runs_is_compared_on_each_machine_that_both_have() {
    let workplace = with_history();
    let on = |run_id: &str, host_id: &str, ms| Record { host_id: host_id.into(), ..record(run_id, 1, ms) };
    store(&workplace, "merged", &[on("merged", "host-a", 2.0), on("merged", "host-b", 3.0)]);
    store(&workplace, "later", &[on("later", "host-a", 2.2), on("later", "host-b", 3.0)]);
    let compared = |candidate: &str, more: &[&str], code| {
        workplace.inferbench(&[&["compare", "merged", candidate], more].concat()).finish().with_code(code)
    };
    let found = json(&compared("later", &["--format", "json"], 1));
    let ids: Vec<&str> = found["cases"].as_array().unwrap().iter().map(|case| case["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["m/ort-cpu-f32/1 on host-a", "m/ort-cpu-f32/1 on host-b"]);
    // Nothing is known of the other host's noise.
    assert_eq!(verdicts(&found), ["slower", "cannot-say"]);
    assert_eq!(found["refused"], serde_json::json!([]));
    shows(&compared("later", &[], 1), &["`inferbench profile 'm/ort-cpu-f32/1'`"]);

    store(&workplace, "alone", &[on("alone", "host-a", 2.0)]);
    let alone = "m/ort-cpu-f32/1 on host-b: not compared: of the two sides, only merged has this machine";
    shows(&compared("alone", &[], 0), &[alone, "no regression: 1 same"]);
    store(&workplace, "elsewhere", &[on("elsewhere", "host-c", 2.0), on("elsewhere", "host-d", 3.0)]);
    let refused = compared("elsewhere", &[], 3);
    shows(&refused, &["m/ort-cpu-f32/1: refused: host: host-a and host-b ↔ host-c and host-d"]);
}

#[test]
fn what_does_not_run_or_is_wrong_or_larger_is_a_regression() {
    let workplace = with_history();
    let good = || record("candidate", 8, 9.0);
    let failed = Record {
        status: Status::Failed,
        message: Some("it fell over".into()),
        latency_p50_ms: None,
        ..record("candidate", 1, 2.0)
    };
    shows(&compared(&workplace, &[failed, good()], &[], 1), &["m/ort-cpu-f32/1: status ok → failed: it fell over"]);
    let wrong = Record { status: Status::WrongOutput, ..record("candidate", 1, 2.0) };
    shows(&compared(&workplace, &[wrong, good()], &[], 1), &["status ok → wrong-output: a regression"]);
    let larger = Record { memory_mb: Some(150.0), ..record("candidate", 1, 2.0) };
    let larger = [larger, good()];
    shows(&compared(&workplace, &larger, &[], 1), &["memory_mb 100 → 150 (+50.0 %): a regression", "2 same"]);
    compared(&workplace, &larger, &["--memory-tolerance", "60%"], 0);
    shows(&compared(&workplace, &[good()], &[], 1), &["m/ort-cpu-f32/1: case ok → gone: a regression"]);
    let other = [record("candidate", 4, 5.0)];
    shows(&compared(&workplace, &other, &[], 1), &["regression: 2 other regressions"]);
    compared(&workplace, &other, &["--allow-missing"], 3);
    compared(&workplace, &[good()], &["--allow-missing"], 0);
    compared(&workplace, &[good()], &["--batch-sizes", "8"], 0);
}

#[test]
fn sides_are_found_by_id_folder_and_file_and_what_is_missing_is_said() {
    let workplace = with_history();
    let [base, candidate] = ["20260101T000000Z", "20260102T000000Z"];
    for (one, other) in [
        (base.to_owned(), candidate.to_owned()),
        (format!("target-reports/{base}"), format!("target-reports/{candidate}/results.csv")),
    ] {
        workplace.inferbench(&["compare", &one, &other]).finish().with_code(0);
    }
    let missing = workplace.inferbench(&["compare", "main", candidate]).finish().with_code(2);
    missing.saying(&[
        "no run, file or baseline \"main\"",
        "baselines in ",
        "criterion: none",
        "20260107T000000Z, 20260106T000000Z",
        "keep a baseline with `--save-baseline main` of",
    ]);
    workplace.inferbench(&["compare", base, "new"]).finish().with_code(2).saying(&["no run in "]);
    let negative = workplace.inferbench(&["compare", base, candidate, "--tolerance", "-5%"]).finish().with_code(2);
    negative.saying(&["must be 0 or more; write 5% or 0.05"]);
    workplace.write("broken.csv", "name,mean\nsort,1.5\n");
    let broken = workplace.inferbench(&["compare", base, "broken.csv"]).finish().with_code(2);
    broken.saying(&["broken.csv: not a results.csv of inferbench"]);
    shows(&workplace.inferbench(&["compare", base, base]).finish().with_code(3), &["not compared: both sides have"]);
    workplace.inferbench(&["compare", base, candidate, "--model", "other"]).finish().with_code(2);
}

#[test]
fn a_comment_for_a_pull_request_is_written_to_a_file() {
    let workplace = with_history();
    let slower = [record("candidate", 1, 2.2), record("candidate", 8, 9.0)];
    let written = compared(&workplace, &slower, &["--format", "markdown", "--output", "COMMENT.md"], 1);
    assert_eq!(written.stdout, "");
    let comment = fs::read_to_string(workplace.path("COMMENT.md")).unwrap();
    assert!(comment.starts_with("### inferbench: regression: 1 slower, 1 same\n"), "{comment}");
    assert!(comment.contains("| ▲ | `m/ort-cpu-f32/1` | 2.00 ms | 2.20 ms | +10.0 % |"), "{comment}");
}

const ONE: &str = "digits/null-cpu-f32/1";
const EIGHT: &str = "digits/null-cpu-f32/8";

/// 20 samples of 10 calls, some nanoseconds around this.
fn calls_around(nanoseconds: u64) -> Vec<Vec<u64>> {
    (0..20).map(|sample| (0..10).map(|call| nanoseconds + (7 * sample + 3 * call) % 11).collect()).collect()
}

/// Measures the null backend: what it took is replaced by these calls.
fn measure(workplace: &Workplace, arguments: &[&str], baseline: &str, nanoseconds: u64) {
    let all = [&["run", "--benchmark-only", "--noplot"], arguments].concat();
    workplace.inferbench(&all).finish().with_code(0);
    for id in [ONE, EIGHT] {
        put_calls(&workplace.entry(id, baseline), &calls_around(nanoseconds));
    }
}

#[test]
fn criterions_baselines_are_compared_by_name() {
    let workplace = Workplace::new(&["digits"], &["null"], &[1, 8]);
    measure(&workplace, &["--model", "digits", "--save-baseline", "main"], "main", 100_000);
    let same_run = workplace.inferbench(&["compare", "main", "other"]).finish().with_code(2);
    same_run.saying(&["no run, file or baseline \"other\"", "criterion: main, new"]);
    measure(&workplace, &["--model", "digits", "--baseline", "main"], "new", 200_000);

    let found = json(&workplace.inferbench(&["compare", "main", "new", "--format", "json"]).finish().with_code(1));
    assert_eq!(verdicts(&found), ["slower", "slower"]);
    assert_eq!(found["cases"][0]["id"], ONE);
    let ratio = found["cases"][0]["latency"]["interval"]["ratio"].as_f64().unwrap();
    assert!((ratio - 2.0).abs() < 0.01, "{ratio}");
    workplace.inferbench(&["compare", "new", "main"]).finish().with_code(0);
    // A run that was stored and its baseline say the same.
    let stored = workplace.latest_run().read_manifest().unwrap().run_id;
    workplace.inferbench(&["convert"]).finish().with_code(0);
    workplace.inferbench(&["compare", "main", &stored]).finish().with_code(1);

    fs::remove_dir_all(workplace.runs()).unwrap();
    let lost = workplace.inferbench(&["compare", "main", &stored]).finish().with_code(2);
    lost.saying(&["no run, file or baseline \"main\"", "criterion: main, new (of runs whose manifests are in "]);
}

#[test]
fn what_a_filtered_run_was_not_asked_for_is_no_regression() {
    let workplace = Workplace::new(&["digits"], &["null"], &[1, 8]);
    measure(&workplace, &["--model", "digits", "--save-baseline", "main"], "main", 100_000);
    measure(&workplace, &["--model", "digits", "/1$"], "new", 100_000);
    let found = workplace.inferbench(&["compare", "main", "new"]).finish().with_code(4);
    shows(&found, &["digits/null-cpu-f32/8: case ok → not asked for\n"]);
    // Saving a part of a baseline again leaves the rest of it.
    measure(&workplace, &["--model", "digits", "/1$", "--save-baseline", "main"], "main", 150_000);
    put_calls(&workplace.entry(ONE, "new"), &calls_around(150_000));
    put_calls(&workplace.entry(EIGHT, "main"), &calls_around(100_000));
    let found = workplace.inferbench(&["compare", "main", "new"]).finish().with_code(3);
    shows(&found, &["digits/null-cpu-f32/1: not compared: both sides have its measurement of run"]);
    measure(&workplace, &["--model", "digits"], "new", 150_000);
    let found = json(&workplace.inferbench(&["compare", "main", "new", "--format", "json"]).finish().with_code(1));
    assert_eq!(verdicts(&found), ["cannot-say", "slower"]);
}
