//! A suite over several machines: parts that are merged, and the same by Slurm and ssh.

mod launchers;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use inferbench::definition::Status;
use inferbench::fleet::find_parts;
use inferbench::history::{History, Run as HistoryRun, read_records, write_records};
use serde_json::{Value, json};

use crate::support::{Run, Workplace};

/// Four models, so that there can be four parts.
const MODELS: [&str; 4] = ["digits", "tenn_eeg", "bert-small", "gpt2-tiny"];
const EFFORT: [&str; 4] = ["--iterations", "20", "--budget", "0.2"];

fn divide(workplace: &Workplace, count: &str, more: &[&str]) {
    let own = ["shard", "--count", count, "--output", "parts"];
    workplace.inferbench(&[&own[..], &EFFORT[..], more].concat()).finish().with_code(0);
}

fn measure(workplace: &Workplace, part: &str) {
    workplace.inferbench(&["run", "--suite", &format!("parts/{part}.toml"), "--noplot"]).finish().with_code(0);
}

/// Measures a part as if this were another machine.
fn measure_on(workplace: &Workplace, host_id: &str, part: &str) {
    let mut command = workplace.inferbench(&["run", "--suite", &format!("parts/{part}.toml"), "--noplot"]);
    command.env("INFERBENCH_HOST_ID", host_id).finish().with_code(0);
}

/// The folder of all parts that were measured.
fn parts(workplace: &Workplace) -> PathBuf {
    let mut folders = fs::read_dir(workplace.path("target-reports/parts")).unwrap();
    folders.next().unwrap().unwrap().path()
}

fn only_run(workplace: &Workplace) -> HistoryRun {
    let history = History::open(&[workplace.path("target-reports")]).unwrap();
    assert_eq!(history.runs().len(), 1);
    history.latest().unwrap().clone()
}

#[test]
fn parts_are_merged_into_one_run_and_what_is_missing_is_named() {
    let workplace = Workplace::new(&MODELS[..2], &["candle"], &[1, 2]);
    divide(&workplace, "2", &["--anchor", "digits/candle-cpu-f32/2"]);
    measure(&workplace, "1-of-2");
    let folder = parts(&workplace).display().to_string();
    let merge = |more: &[&str]| workplace.inferbench(&[&["merge", &folder], more].concat()).finish();
    merge(&[]).with_code(3).saying(&["missing: part 2", "`--partial`"]);
    assert!(
        fs::read_dir(workplace.path("target-reports"))
            .unwrap()
            .flatten()
            .all(|it| !it.path().join("results.csv").exists())
    );
    merge(&["--partial"]).with_code(0);
    assert!(only_run(&workplace).manifest().unwrap().unwrap().is_interrupted);

    measure(&workplace, "2-of-2");
    merge(&[]).with_code(0);
    let run = only_run(&workplace);
    let records = run.records().unwrap();
    let mut ids: Vec<&str> = records.iter().map(|record| record.case_id.as_str()).collect();
    ids.sort_unstable();
    let all = [
        "digits/candle-cpu-f32/1",
        "digits/candle-cpu-f32/2",
        "tenn_eeg/candle-cpu-f32/1",
        "tenn_eeg/candle-cpu-f32/2",
    ];
    assert_eq!(ids, all, "both parts have measured the anchor on this machine");
    assert!(records.iter().all(|record| record.status == Status::Ok && record.run_id == run.name()));
    assert_eq!(run.distributions().unwrap().cases.len(), 4);
    let facts = run.facts().unwrap();
    let calls: usize = records.iter().filter_map(|record| record.iterations).sum();
    assert_eq!((facts.cases_ok, facts.calls), (4, calls));
    let manifest = run.manifest().unwrap().unwrap();
    let numbers: Vec<usize> = manifest.parts.iter().map(|part| part.index).collect();
    assert_eq!((numbers, manifest.is_interrupted, manifest.nodes().len()), (vec![1, 2], false, 1));
    assert!(manifest.parts.iter().all(|part| part.calibrations.iter().all(|it| it.after.is_some())));
}

#[test]
fn what_several_machines_have_measured_is_kept_by_machine() {
    let workplace = Workplace::new(&MODELS[..3], &["candle"], &[1]);
    let anchor = "digits/candle-cpu-f32/1";
    divide(&workplace, "2", &["--anchor", anchor]);
    measure_on(&workplace, "aaaa1111", "1-of-2");
    measure_on(&workplace, "bbbb2222", "2-of-2");
    let folder = parts(&workplace).display().to_string();
    workplace.inferbench(&["merge", &folder]).finish().with_code(0);
    let run = only_run(&workplace);
    let records = run.records().unwrap();
    let anchors: Vec<_> = records.iter().filter(|record| record.case_id == anchor).collect();
    assert_eq!(anchors.len(), 2, "each machine has its row");
    let kept = run.distributions().unwrap();
    let medians: Vec<Option<f64>> = anchors
        .iter()
        .map(|record| {
            let quantiles = &kept.of(&record.host_id, anchor).unwrap().quantiles_ms;
            quantiles.iter().find(|(fraction, _)| *fraction == 0.5).map(|(_, ms)| *ms)
        })
        .collect();
    assert_eq!(medians, anchors.iter().map(|record| record.latency_p50_ms).collect::<Vec<_>>());
    #[cfg(feature = "duckdb")]
    {
        let sql = format!(
            "SELECT host_id, count(*) FROM raw_benchmark_data WHERE \"case\" = '{anchor}' GROUP BY ALL ORDER BY ALL"
        );
        let found = workplace.inferbench(&["store", "query", &sql, "--format", "csv"]).finish().with_code(0).stdout;
        let mut lines: Vec<String> =
            anchors.iter().map(|record| format!("{},{}", record.host_id, record.iterations.unwrap())).collect();
        lines.sort_unstable();
        assert_eq!(found.lines().skip(1).collect::<Vec<_>>(), lines);
    }
}

#[test]
fn a_merge_takes_the_place_of_earlier_ones_of_fewer_parts() {
    let workplace = Workplace::new(&MODELS[..3], &["candle"], &[1]);
    divide(&workplace, "3", &[]);
    measure_on(&workplace, "bbbb2222", "2-of-3");
    measure_on(&workplace, "cccc3333", "3-of-3");
    let folder = parts(&workplace);
    let merge = |folder: &Path, cases: usize| -> HistoryRun {
        workplace.inferbench(&["merge", &folder.display().to_string(), "--partial"]).finish().with_code(0);
        let run = only_run(&workplace);
        assert_eq!(run.records().unwrap().len(), cases);
        run
    };
    // The second merge has an earlier part than the first, and so another id. In the third, the first part is of
    // another machine.
    merge(&folder.join("3-of-3"), 1);
    merge(&folder, 2);
    measure_on(&workplace, "aaaa1111", "1-of-3");
    let whole = merge(&folder, 3);
    assert!(whole.records().unwrap().iter().all(|record| record.run_id == whole.name()), "{}", whole.name());
    // Fewer parts take the place of nothing, whether or not the id would be the same.
    for part in ["2-of-3", "1-of-3"] {
        let part = folder.join(part).display().to_string();
        let refused = workplace.inferbench(&["merge", &part, "--partial"]).finish().with_code(2);
        refused.saying(&[whole.name(), "was merged of more parts than these"]);
    }
    assert_eq!(only_run(&workplace).records().unwrap().len(), 3);
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn parts_that_are_all_measured_again_are_another_run_with_none_of_the_first_rows() {
    let workplace = Workplace::new(&MODELS[..3], &["candle"], &[1]);
    divide(&workplace, "3", &[]);
    for _ in 0..2 {
        for (host_id, part) in [("aaaa1111", "1-of-3"), ("bbbb2222", "2-of-3"), ("cccc3333", "3-of-3")] {
            measure_on(&workplace, host_id, part);
        }
        workplace.inferbench(&["merge", &parts(&workplace).display().to_string()]).finish().with_code(0);
    }
    let history = History::open(&[workplace.path("target-reports")]).unwrap();
    let runs: Vec<_> = history.runs().iter().map(|run| run.records().unwrap()).collect();
    assert_eq!(runs.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
    assert!(runs[0].iter().all(|first| runs[1].iter().all(|again| first.timestamp != again.timestamp)));
}

#[test]
fn cases_that_no_machine_can_run_take_no_time_and_no_part_is_empty() {
    let workplace = Workplace::new(&MODELS[..3], &["candle"], &[1]);
    let divided = |count: &str, dtypes: &str| -> Vec<Value> {
        let own = ["shard", "--count", count, "--dtype", dtypes, "--format", "json"];
        serde_json::from_str(&workplace.inferbench(&own).finish().with_code(0).stdout).unwrap()
    };
    let seconds = |dtypes: &str| divided("1", dtypes)[0]["expected_seconds"].as_u64().unwrap();
    assert!(seconds("f32") > 0);
    assert_eq!(seconds("f32,i8"), seconds("f32"));
    assert_eq!(seconds("i8"), 0);
    assert!(divided("3", "i8").iter().all(|part| part["cases"].as_array().unwrap().len() == 1));
}

#[test]
fn a_part_of_the_suite_of_operators_needs_no_files_of_the_machine_that_divided_it() {
    let workplace = Workplace::new(&MODELS[..1], &["candle"], &[1]);
    workplace.write("models/suites/operators.toml", include_str!("../../../models/suites/operators.toml"));
    divide(&workplace, "2", &["--suite", "operators", "--backend", "candle"]);
    fs::remove_dir_all(workplace.path(".prepared")).unwrap();
    let run = ["run", "--suite", "parts/2-of-2.toml", "--dry-run"];
    assert!(workplace.inferbench(&run).finish().with_code(0).stdout.contains("op-"));
}

/// Makes the machine of a part's run as fast as these figures say.
fn put_speed(run: &Path, anchor: &str, gflops: f64, anchor_ms: f64) {
    let path = run.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for calibration in manifest["calibrations"].as_array_mut().unwrap() {
        for look in ["before", "after"] {
            calibration[look]["product_gflops_per_second"] = json!([gflops]);
            calibration[look]["copy_gb_per_second"] = json!([20.0]);
        }
    }
    fs::write(&path, manifest.to_string()).unwrap();
    let path = run.join("results.csv");
    let mut records = read_records(fs::File::open(&path).unwrap()).unwrap();
    records.iter_mut().filter(|record| record.case_id == anchor).for_each(|it| it.latency_p50_ms = Some(anchor_ms));
    write_records(&records, fs::File::create(&path).unwrap()).unwrap();
}

#[test]
fn the_backends_of_one_model_on_equal_machines_are_ranked_together_and_on_others_apart() {
    let workplace = Workplace::new(&MODELS[..1], &["candle", "null"], &[1, 2]);
    let anchor = "digits/candle-cpu-f32/2";
    let own = ["shard", "--count", "2", "--anchor", anchor];
    workplace.inferbench(&own).finish().with_code(2).saying(&["2 parts of 1 model", "`--equal-machines`"]);
    divide(&workplace, "2", &["--anchor", anchor, "--equal-machines"]);
    measure_on(&workplace, "aaaa1111", "1-of-2");
    measure_on(&workplace, "bbbb2222", "2-of-2");
    let folder = parts(&workplace);
    let runs = find_parts(std::slice::from_ref(&folder)).unwrap();
    let hosts_of = |backend: &str| {
        let records = runs.iter().flat_map(|run| run.records().unwrap());
        let own = records.filter(|record| record.backend == backend && record.case_id != anchor);
        own.map(|record| record.host_id).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((hosts_of("candle").len(), hosts_of("null").len()), (1, 1));
    assert_ne!(hosts_of("candle"), hosts_of("null"));
    let merged = |ms: f64| {
        put_speed(runs[0].folder(), anchor, 400.0, 2.0);
        put_speed(runs[1].folder(), anchor, 396.0, ms);
        let finished = workplace.inferbench(&["merge", &folder.display().to_string()]).finish().with_code(0);
        (finished, only_run(&workplace).manifest().unwrap().unwrap().equal_machines)
    };
    let (equal, known) = merged(2.04);
    assert!(known.is_some_and(|known| (known - 1.02).abs() < 1e-9), "{known:?}");
    assert!(
        equal.stdout.contains("ranked together: by calibration and anchor, these differ by up to 2 %"),
        "{}",
        equal.stdout
    );
    let (apart, unknown) = merged(3.0);
    let apart = apart.saying(&["digits: measured on several machines, which are ranked apart"]);
    assert!(unknown.is_none() && !apart.stdout.contains("ranked together"), "{}", apart.stdout);
}

#[test]
fn what_a_killed_machine_has_measured_of_a_part_is_kept_if_another_one_goes_on() {
    let workplace = Workplace::new(&MODELS[..1], &["candle"], &[1, 2]);
    let anchor = "digits/candle-cpu-f32/2";
    divide(&workplace, "1", &["--anchor", anchor]);
    let measure = |host_id: &str| {
        let mut command = workplace.inferbench(&["run", "--suite", "parts/1-of-1.toml", "--resume", "--noplot"]);
        command.env("INFERBENCH_HOST_ID", host_id).finish().with_code(0);
    };
    measure("aaaa1111");
    // As if it had been killed before it converted what it has measured.
    fs::remove_dir_all(workplace.path("target-reports")).unwrap();
    measure("bbbb2222");
    workplace.inferbench(&["merge", &parts(&workplace).display().to_string()]).finish().with_code(0);
    let records = only_run(&workplace).records().unwrap();
    assert!(records.iter().all(|record| record.status == Status::Ok), "{records:?}");
    let mut cases: Vec<&str> = records.iter().map(|it| it.case_id.as_str()).collect();
    cases.sort_unstable();
    assert_eq!(cases, ["digits/candle-cpu-f32/1", anchor, anchor]);
    let hosts = records.iter().filter(|it| it.case_id == anchor).map(|it| it.host_id.as_str());
    assert_eq!(hosts.collect::<BTreeSet<&str>>().len(), 2, "{records:?}");
}

#[test]
fn a_part_in_a_new_order_is_the_same_part() {
    let workplace = Workplace::new(&MODELS[..1], &["candle"], &[1]);
    let arguments = ["run", "--shard", "1/1", "--shuffle", "--noplot", "--resume"];
    let run = || workplace.inferbench(&[&arguments[..], &EFFORT[..]].concat()).finish().with_code(0);
    run();
    run().saying(&["this part is finished"]);
}

#[test]
fn a_part_of_other_files_is_refused_by_the_name_of_the_model() {
    let workplace = Workplace::new(&MODELS[..2], &["candle"], &[1]);
    divide(&workplace, "2", &[]);
    measure(&workplace, "1-of-2");
    let weights = workplace.path("models/zoo/tenn_eeg/weights.toml");
    fs::write(&weights, fs::read_to_string(&weights).unwrap() + "\n# changed\n").unwrap();
    let refused = workplace.inferbench(&["run", "--suite", "parts/2-of-2.toml", "--noplot"]).finish().with_code(2);
    refused.saying(&["part 2 of 2 was planned for something else", "the files of tenn_eeg original differ"]);
    // Each machine divides the suite for itself.
    let whole = ["run", "--shard", "2/2", "--noplot"];
    workplace.inferbench(&[&whole[..], &EFFORT[..]].concat()).finish().with_code(0);
    let folder = workplace.path("target-reports/parts").display().to_string();
    let refused = workplace.inferbench(&["merge", &folder]).finish().with_code(2);
    refused.saying(&["is not of the same measurement", "the files of tenn_eeg original differ"]);
    workplace.inferbench(&["run", "--shard", "3/2"]).finish().with_code(2).saying(&["is not a part"]);
    workplace.inferbench(&["shard", "--count", "3"]).finish().with_code(2).saying(&["3 parts of 2 models"]);
}
