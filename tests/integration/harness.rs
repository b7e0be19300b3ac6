//! Criterion's command line and its pages, over the processes that the cases are spread over.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use inferbench::criterion_dir::{LATENCY_LOG, read_entry};
use inferbench::definition::Status;
use serde_json::Value;

use crate::support::{Run, Workplace};

const DIGITS: &str = "digits/candle-cpu-f32/1";
const DIGITS_8: &str = "digits/candle-cpu-f32/8";
const TENN: &str = "tenn_eeg/candle-cpu-f32/1";

fn digits() -> Workplace {
    Workplace::new(&["digits"], &["candle"], &[1])
}

/// digits and tenn_eeg at batch sizes 1 and 8.
fn four_cases() -> Workplace {
    Workplace::new(&["digits", "tenn_eeg"], &["candle"], &[1, 8])
}

/// Draws its plots from fewer resamples, which takes a tenth of the time.
const PLOT: [&str; 2] = ["--nresamples", "1000"];

fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let below = |path: PathBuf| {
        if path.is_dir() { files_below(&path, extension) } else { vec![path] }
    };
    let files = entries.flat_map(|entry| below(entry.path()));
    files.filter(|path| path.extension().is_some_and(|own| own == extension)).collect()
}

#[test]
fn list_prints_every_runnable_case_and_measures_nothing() {
    let workplace = Workplace::new(&["digits", "tenn_eeg"], &["candle", "glow"], &[1, 8]);
    let listed = workplace.bench(&["--list"]).finish().with_code(0);
    let ids: Vec<&str> = listed.stdout.lines().filter_map(|line| line.strip_suffix(": benchmark")).collect();
    assert_eq!(ids, [DIGITS, DIGITS_8, TENN, "tenn_eeg/candle-cpu-f32/8"]);
    let some = workplace.bench(&["--list", "--format", "terse", "digits"]).finish().with_code(0);
    assert_eq!(some.stdout, format!("{DIGITS}: benchmark\n{DIGITS_8}: benchmark\n"));
    assert!(!workplace.path("target").exists() && !workplace.path(".prepared").exists());
}

#[test]
fn the_filter_is_a_regular_expression_over_ids() {
    let workplace = four_cases();
    workplace.bench(&["--noplot", "^digits/.*/8$|tenn_eeg.*/1"]).finish().with_code(0);
    assert_eq!(workplace.measured(), [DIGITS_8, TENN]);
    workplace.bench(&["("]).finish().with_code(2).saying(&["FILTER \"(\" is not a regular expression"]);
}

#[test]
fn exact_selects_the_one_case_of_that_id() {
    let workplace = four_cases();
    workplace.bench(&["--noplot", "--exact", "digits"]).finish().with_code(0).saying(&["no case matches"]);
    assert!(workplace.measured().is_empty());
    workplace.bench(&["--noplot", "--exact", DIGITS]).finish().with_code(0);
    assert_eq!(workplace.measured(), [DIGITS]);
}

#[test]
fn a_filter_that_no_case_passes_is_no_success_of_the_program() {
    let workplace = digits();
    for command in [&["run"][..], &["run", "--dry-run"], &["verify"], &["profile"], &["load", "--rate", "3"]] {
        let run = workplace.inferbench(&[command, &["digits/no.onxx"]].concat()).finish().with_code(3);
        run.saying(&[
            "no case matches \"digits/no.onxx\", and there is no such file",
            "has 1 case; most like the filter: digits/",
        ]);
    }
}

#[test]
fn a_saved_baseline_is_whole_and_the_next_run_is_compared_with_it() {
    let workplace = digits();
    workplace.bench(&["--noplot", "--save-baseline", "main"]).finish().with_code(0);
    let first_run = workplace.latest_run().read_manifest().unwrap();
    assert_eq!(first_run.saved_baseline.as_deref(), Some("main"));
    let saved = workplace.entry(DIGITS, "main");
    assert_eq!(read_entry(&saved).unwrap().run_id, first_run.run_id);
    assert_eq!(
        fs::read(saved.join(LATENCY_LOG)).unwrap(),
        fs::read(saved.with_file_name("new").join(LATENCY_LOG)).unwrap()
    );

    let compared = workplace.bench(&["--noplot", "--baseline", "main"]).finish().with_code(0);
    assert!(compared.stdout.contains("change:"), "{}", compared.stdout);
    assert_eq!(read_entry(&saved).unwrap().run_id, first_run.run_id, "a comparison leaves the baseline as it is");
    workplace.inferbench(&["convert"]).finish().with_code(0);
    let record = workplace.record(DIGITS);
    let means = [&saved, &saved.with_file_name("new")].map(|entry| read_entry(entry).unwrap().estimates.mean.point);
    assert_eq!(record.baseline.as_deref(), Some("main"));
    assert_eq!(record.change_vs_baseline, Some(means[1] / means[0] - 1.0));

    // The first run's figures are still there, under the name of the baseline.
    let convert = ["convert", "--run", &first_run.run_id, "--baseline", "main", "--output-dir", "first"];
    workplace.inferbench(&convert).finish().with_code(0);
    assert!(workplace.path("first").join(&first_run.run_id).join("results.csv").is_file());
}

#[test]
fn two_saved_baselines_are_compared_without_a_measurement() {
    let workplace = digits();
    for name in ["before", "after"] {
        workplace.bench(&["--noplot", "--save-baseline", name]).finish().with_code(0);
    }
    let measured = fs::read(workplace.entry(DIGITS, "new").join(LATENCY_LOG)).unwrap();
    let arguments = ["--noplot", "--load-baseline", "after", "--baseline", "before"];
    let loaded = workplace.bench(&arguments).finish().with_code(0);
    assert!(loaded.stdout.contains(DIGITS) && loaded.stdout.contains("change:"), "{}", loaded.stdout);
    assert_eq!(fs::read(workplace.entry(DIGITS, "new").join(LATENCY_LOG)).unwrap(), measured);
}

#[test]
fn a_baseline_that_is_missing_is_named_before_anything_is_measured() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1, 8]);
    workplace.bench(&["--noplot", "--save-baseline", "main", "--exact", DIGITS]).finish().with_code(0);
    let runs = fs::read_dir(workplace.runs()).unwrap().count();
    let refused = workplace.bench(&["--noplot", "--baseline", "main"]).finish().with_code(2);
    refused.saying(&["no baseline \"main\"", "for 1 of 2 cases (the first is ", DIGITS_8, "--save-baseline main"]);
    let refused = workplace.bench(&["--noplot", "--baseline", "release"]).finish().with_code(2);
    refused.saying(&["no baseline \"release\"", "for 2 of 2 cases"]);
    let refused = workplace.bench(&["--noplot", "--load-baseline", "release", "--baseline", "main", "/1$"]).finish();
    refused.with_code(2).saying(&["no baseline \"release\"", "for 1 of 1 case ("]);
    assert_eq!((workplace.measured().len(), fs::read_dir(workplace.runs()).unwrap().count()), (1, runs));

    let lenient = workplace.bench(&["--noplot", "--baseline-lenient", "main"]).finish().with_code(0);
    assert_eq!(lenient.stdout.matches("change:").count(), 1, "{}", lenient.stdout);
    workplace.inferbench(&["convert"]).finish().with_code(0);
    assert_eq!(workplace.record(DIGITS).baseline.as_deref(), Some("main"));
    assert_eq!(workplace.record(DIGITS_8).baseline, None);
}

#[test]
fn runs_for_a_profiler_and_test_runs_keep_nothing() {
    let workplace = digits();
    let profiled = workplace.bench(&["--profile-time", "1"]).finish().with_code(0);
    assert_eq!(workplace.unkept_outcomes().finished[DIGITS].row.status, Status::Ok, "{}", profiled.stderr);
    assert!(workplace.measured().is_empty());
    if cfg!(feature = "cpu-stacks") {
        let folder = workplace.path("target/criterion").join(DIGITS).join("profile");
        assert!(profiled.stderr.contains("flamegraph.html"), "{}", profiled.stderr);
        assert!(std::fs::read_to_string(folder.join("flamegraph.html")).unwrap().contains("Stacks of threads"));
        let stacks = std::fs::read_to_string(folder.join("stacks.folded")).unwrap();
        assert!(
            stacks.lines().all(|line| line.contains(';') && line.rsplit_once(' ').unwrap().1.parse::<u64>().is_ok())
        );
        assert!(stacks.lines().count() > 1, "{stacks}");
    } else {
        assert!(profiled.stderr.contains("the Cargo feature cpu-stacks"), "{}", profiled.stderr);
    }

    let workplace = four_cases();
    for command in [&mut workplace.bench(&["--test"]), &mut workplace.bench_as_test(&[])] {
        let tested = command.finish().with_code(0);
        assert_eq!(tested.stdout.matches("Testing ").count(), 4, "{}", tested.stdout);
        assert_eq!(tested.stdout.matches("Success").count(), 4, "{}", tested.stdout);
        assert_eq!(workplace.unkept_outcomes().finished.len(), 4);
        assert!(workplace.measured().is_empty());
    }
}

#[test]
fn each_backend_has_a_process_and_the_groups_page_shows_them_all() {
    let workplace = Workplace::new(&["digits"], &["candle", "null"], &[1, 8]);
    workplace.bench(&PLOT).finish().with_code(0);
    let mut backends = BTreeMap::new();
    for path in files_below(workplace.latest_run().path(), "json") {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if let Some(worker) = name.strip_prefix("job-").filter(|worker| *worker != "observe.json") {
            let job: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            let of_work = |item: &Value| item["case"]["backend"].as_str().unwrap().to_owned();
            let own: BTreeSet<String> = job["work"].as_array().unwrap().iter().map(of_work).collect();
            backends.insert(worker.to_owned(), own);
        }
    }
    let expected = ["candle", "null"].map(|name| (format!("{name}-cpu.json"), BTreeSet::from([name.to_owned()])));
    assert_eq!(backends, BTreeMap::from(expected));

    let page = fs::read_to_string(workplace.criterion().join("digits/report/index.html")).unwrap();
    for case in ["candle-cpu-f32/1", "candle-cpu-f32/8", "null-cpu-f32/1", "null-cpu-f32/8"] {
        assert!(page.contains(case), "no {case} in digits/report/index.html");
    }
    assert!(workplace.criterion().join("digits/report/lines.svg").is_file());
}

#[test]
fn plots_are_drawn_unless_they_are_declined_and_a_filtered_run_leaves_the_other_cases_on_the_groups_page() {
    let workplace = Workplace::new(&["digits"], &["candle", "null"], &[1]);
    workplace.bench(&["--noplot"]).finish().with_code(0);
    assert_eq!(workplace.measured(), [DIGITS, "digits/null-cpu-f32/1"]);
    assert!(files_below(&workplace.criterion(), "svg").is_empty());
    workplace.bench(&PLOT).arg("candle").finish().with_code(0);
    assert!(!files_below(&workplace.criterion().join(DIGITS), "svg").is_empty());
    let page = fs::read_to_string(workplace.criterion().join("digits/report/index.html")).unwrap();
    assert!(page.contains("candle-cpu-f32/1") && page.contains("null-cpu-f32/1"), "{page}");
}

#[test]
fn a_dry_run_and_a_verification_measure_nothing() {
    let workplace = four_cases();
    let planned = workplace.inferbench(&["run", "--dry-run"]).finish().with_code(0).stdout;
    assert!(planned.contains(DIGITS) && planned.contains("4 cases, about"), "{planned}");
    assert!(!workplace.path("target").exists());
    let verified = workplace.inferbench(&["verify", "--format", "json"]).finish().with_code(0);
    let matrix: Value = serde_json::from_str(&verified.stdout).unwrap();
    let cases = matrix["cases"].as_array().unwrap();
    let is_right = |case: &Value| case["status"] == "ok" && case["verified"] == true;
    assert!(cases.len() == 4 && cases.iter().all(is_right), "{}", verified.stdout);
    assert!(!workplace.runs().exists() && workplace.measured().is_empty());
}

#[test]
fn one_session_serves_all_batch_sizes_and_later_measurements_are_verified_too() {
    let workplace = Workplace::new(&["digits", "tenn_eeg"], &["candle"], &[1, 2, 4]);
    workplace.bench(&["--noplot"]).finish().with_code(0).saying(&["same session, outputs right"]);
    let outcomes = workplace.latest_run().read_outcomes().unwrap().finished;
    assert_eq!(outcomes.len(), 6);
    assert!(outcomes.values().all(|outcome| outcome.row.verified == Some(true)));
    for model in ["digits", "tenn_eeg"] {
        let of_model = outcomes.values().filter(|outcome| outcome.row.model == model);
        assert_eq!(of_model.filter(|outcome| !outcome.is_session_shared).count(), 1, "loads of {model}");
    }
}

#[test]
fn debug_keeps_what_the_runtimes_log_in_the_run() {
    if !crate::support::has_onnxruntime() {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["ort"], &[1]);
    workplace.inferbench(&["run", "--noplot", "--debug"]).finish().with_code(0).saying(&["debug.log"]);
    let log = fs::read_to_string(workplace.latest_run().path().join("debug.log")).unwrap();
    assert!(log.contains("onnxruntime"), "{log}");
}

#[test]
fn a_reader_that_has_gone_away_does_not_stop_the_run() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1, 8]);
    let piped = std::process::Stdio::piped;
    let mut child = workplace.bench(&["--noplot"]).stdout(piped()).stderr(piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(workplace.measured(), [DIGITS, DIGITS_8]);
}
