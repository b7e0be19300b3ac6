//! `inferbench recommend`: one case of a history within limits, what speaks against it, and the command that would decide.

use std::fs::{self, File};

use inferbench::definition::{Case, Dtype, Status};
use inferbench::history::{write_load, write_records};
use inferbench::run_data::{LoadResult, LoadRun, Record, Verdict};
use serde_json::Value;

use crate::support::{Run, Workplace};

/// A verified row of digits.
fn row(backend: &str, batch_size: usize, ms: f64) -> Record {
    let run = Record {
        run_id: "20260101T000000Z".into(),
        timestamp: "2026-01-01T00:00:00Z".parse().unwrap(),
        host_id: "aaaa1111".into(),
        suite: "synthetic".into(),
        rustc_version: "rustc 1".into(),
        ..Record::default()
    };
    Record {
        latency_p50_ms: Some(ms),
        latency_p99_ms: Some(2.0 * ms),
        latency_p99_upper_ms: Some(2.2 * ms),
        throughput_ips: Some(batch_size as f64 * 1e3 / ms),
        memory_mb: Some(60.0 + 10.0 * batch_size as f64),
        memory_kind: Some("own-process-peak-rss".into()),
        model_size_mb: Some(10.0),
        verified: Some(true),
        ..run.about(&Case::new("digits", backend, batch_size))
    }
}

/// ort is far ahead of tch at batch 1, and candle is fast and was never verified.
fn rows() -> Vec<Record> {
    let unverified = Record { verified: None, ..row("candle", 1, 0.5) };
    vec![row("ort", 1, 2.0), row("ort", 8, 9.0), row("tch", 1, 4.0), row("tch", 8, 12.0), unverified]
}

fn with(records: &[Record]) -> Workplace {
    let workplace = Workplace::new(&[], &[], &[1]);
    let folder = workplace.path("target-reports/20260101T000000Z");
    fs::create_dir_all(&folder).unwrap();
    write_records(records, File::create(folder.join("results.csv")).unwrap()).unwrap();
    workplace
}

fn advice(workplace: &Workplace, arguments: &[&str]) -> Value {
    let all = [&["recommend", "digits", "--format", "json"], arguments].concat();
    let found: Value = serde_json::from_str(&workplace.inferbench(&all).finish().with_code(0).stdout).unwrap();
    found[0].clone()
}

#[test]
fn one_sentence_names_the_case_and_the_rest_says_why() {
    let text = with(&rows()).inferbench(&["recommend", "digits"]).finish().with_code(0).stdout;
    for part in [
        "\nFor latency, deploy the original on ort, batch 1: p50 2.00 ms, 500 samples/s, memory 70.0 MB, size 10.0 MB.\n",
        "runner-up     the original on tch, batch 1: takes 2.00 (",
        "confidence    95 %",
        "batch sizes   batch 8 has the best time per sample, 1.13 ms, 43.8 % less than batch 1; a doubled batch takes 1.65 times",
        "excluded      1 by verified, such as the original on candle, batch 1: its outputs were compared with nothing",
        "would change  outputs to compare with would allow the original on candle, batch 1: p50 500 µs",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("to decide"), "{text}");
}

#[test]
fn a_limit_leaves_cases_out_and_says_what_it_would_take() {
    let workplace = with(&rows());
    let throughput = advice(&workplace, &["--goal", "throughput"]);
    assert_eq!(throughput["case_id"], "digits/ort-cpu-f32/8");
    let limited = advice(&workplace, &["--goal", "throughput", "--max-p99", "15ms"]);
    assert_eq!(limited["case_id"], "digits/ort-cpu-f32/1");
    let change = limited["would_change"].to_string();
    assert!(change.contains("--max-p99 20ms would allow the original on ort, batch 8"), "{change}");
    // It is above the limit of memory, too.
    let both = advice(&workplace, &["--goal", "throughput", "--max-p99", "15ms", "--max-memory", "0.1GB"]);
    assert!(!both["would_change"].to_string().contains("--max-p99"), "{both}");
    let excluded = limited["excluded"].to_string();
    assert!(excluded.contains("2 by max-p99") && excluded.contains("p99 19.8 ms is above 15.0 ms"), "{excluded}");
    assert_eq!(advice(&workplace, &["--min-rate", "600/s"])["case_id"], "digits/ort-cpu-f32/8");
    assert_eq!(advice(&workplace, &["--max-memory", "0.1GB", "--goal", "throughput"])["case_id"], limited["case_id"]);
    let nothing = workplace.inferbench(&["recommend", "digits", "--max-p99", "1ms"]).finish().with_code(3).stdout;
    assert!(nothing.contains("Nothing is recommended: no case of kept quality is within the limits."), "{nothing}");
}

#[test]
fn prices_of_machines_decide_the_cost() {
    let dear = Record { host_id: "bbbb2222".into(), ..row("ort", 1, 1.0) };
    let workplace = with(&[rows(), vec![dear]].concat());
    let fastest = advice(&workplace, &[]);
    assert_eq!(fastest["host_id"], "bbbb2222");
    workplace.write("prices.toml", "currency = \"EUR\"\nper_hour = { default = 0.36, bbbb2222 = 3.6 }\n");
    let cheapest = advice(&workplace, &["--goal", "cost", "--price", "prices.toml"]);
    assert_eq!((&cheapest["host_id"], &cheapest["case_id"]), (&"aaaa1111".into(), &"digits/ort-cpu-f32/8".into()));
    let sentence = cheapest["sentence"].as_str().unwrap();
    assert!(sentence.contains("host aaaa1111: 0.11 EUR per million, "), "{sentence}");
    workplace.inferbench(&["recommend", "digits", "--goal", "cost"]).finish().with_code(2).saying(&["--price"]);
    // Otherwise the machine that costs nothing would be left out, and the dear one deployed.
    workplace.write("prices.toml", "per_hour = { default = 0.0, bbbb2222 = 3.6 }\n");
    let free = ["recommend", "digits", "--goal", "cost", "--price", "prices.toml"];
    workplace.inferbench(&free).finish().with_code(2).saying(&["a machine with the price 0"]);
}

#[test]
fn two_cases_that_cannot_be_told_apart_are_left_to_a_duel() {
    let workplace = with(&[row("ort", 1, 2.0), row("tch", 1, 2.06)]);
    let found = advice(&workplace, &[]);
    assert_eq!(found["is_undecided"], true);
    let text = workplace.inferbench(&["recommend", "digits"]).finish().with_code(0).stdout;
    assert!(text.contains("cannot be told apart by these runs: 1.03 ("), "{text}");
    let command =
        text.lines().find_map(|line| line.trim().strip_prefix("to decide")).unwrap_or_else(|| panic!("{text}"));
    let mut words = command.split_whitespace();
    assert_eq!((words.next(), words.next()), (Some("inferbench"), Some("duel")));
    // The suites have one case each, as `run` sees them.
    for backend in ["ort", "tch"] {
        let file = words.next().unwrap_or_else(|| panic!("no suite of {backend} in {command}"));
        let text = workplace.inferbench(&["run", "--suite", file, "--dry-run"]).finish();
        let said = format!("{}{}", text.stdout, text.stderr);
        assert!(said.contains(&format!("digits/{backend}-cpu-f32/1")), "{said}");
    }
    // At other batch sizes a duel has no pair.
    let other = with(&[row("ort", 1, 2.0), row("tch", 2, 2.06)]);
    let text = other.inferbench(&["recommend", "digits"]).finish().with_code(0).stdout;
    assert!(text.contains("inferbench run --model digits --backend ort,tch --batch-sizes 1,2 --processes 5"), "{text}");
}

#[test]
fn the_best_of_each_backend_stand_side_by_side() {
    let net = Record { model: "net".into(), case_id: "net/ort-cpu-f32/1".into(), ..row("ort", 1, 0.1) };
    let workplace = with(&[rows(), vec![net]].concat());
    let printed = |arguments: &[&str]| {
        let all = [&["recommend"], arguments].concat();
        workplace.inferbench(&all).finish().with_code(0).stdout
    };
    let text = printed(&["digits", "--per", "backend"]);
    let order: Vec<usize> = ["ort       digits", "tch       digits"]
        .map(|it| text.find(it).unwrap_or_else(|| panic!("{it}: {text}")))
        .into();
    assert!(order[0] < order[1] && !text.contains("candle") && !text.contains("net"), "{text}");
    let models = printed(&["--per", "model"]);
    assert!(models.contains("net") && models.contains("digits"), "{models}");
    workplace.inferbench(&["recommend"]).finish().with_code(2);
    let json: Value = serde_json::from_str(&printed(&["digits", "--per", "backend", "--format", "json"])).unwrap();
    let best: Vec<(&str, &str)> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["best_of"].as_str().unwrap(), it["record"]["case_id"].as_str().unwrap()))
        .collect();
    assert_eq!(best, [("ort", "digits/ort-cpu-f32/1"), ("tch", "digits/tch-cpu-f32/1")]);
    let cost = ["report", "--variants", "digits", "--goal", "cost"];
    workplace
        .inferbench(&cost)
        .finish()
        .with_code(2)
        .saying(&["possible values: latency, throughput, energy, size, memory"]);
}

/// A trial of ort at batch 1.
fn trial(instances: usize, rate: f64, p99: f64) -> LoadResult {
    LoadResult {
        run_id: "20260102T000000Z".into(),
        host_id: "aaaa1111".into(),
        case_id: "digits/ort-cpu-f32/1".into(),
        status: Status::Ok,
        verdict: Some(Verdict::Passed),
        instances,
        threads: 2 / instances,
        most_batch: 1,
        percentile: 0.99,
        samples_per_s: rate,
        latency_p99_ms: p99,
        latency_upper_ms: Some(1.1 * p99),
        ..LoadResult::default()
    }
}

fn write_trials(workplace: &Workplace, results: Vec<LoadResult>) {
    let run = LoadRun { run_id: "20260102T000000Z".into(), host_id: "aaaa1111".into(), results, ..LoadRun::default() };
    write_load(&workplace.path("target-reports"), &run).unwrap();
}

#[test]
fn what_was_measured_under_load_counts_for_the_limits() {
    let workplace = with(&rows());
    write_trials(&workplace, vec![trial(1, 300.0, 4.0), trial(2, 700.0, 9.0), trial(2, 900.0, 30.0)]);
    // One call after the other has only 500 samples per second.
    let found = advice(&workplace, &["--min-rate", "600/s", "--max-p99", "10ms"]);
    assert_eq!((&found["case_id"], &found["under_load"]["instances"]), (&"digits/ort-cpu-f32/1".into(), &2.into()));
    let sentence = found["sentence"].as_str().unwrap();
    let load = "under load 700 samples/s with 2 instances of 1 thread, p99 9.90 ms (load test 20260102T000000Z)";
    assert!(sentence.contains(load), "{sentence}");
    assert_eq!(advice(&workplace, &["--max-p99", "5ms"])["under_load"]["instances"], 1);
    let excluded = advice(&workplace, &["--min-rate", "800/s", "--max-p99", "20ms"])["excluded"].to_string();
    assert!(excluded.contains("700 per second under load are below 800"), "{excluded}");
    // A load test that cannot be read is named, and hides no other.
    let broken = workplace.path("target-reports/loads/20260103T000000Z");
    std::fs::create_dir_all(&broken).unwrap();
    std::fs::write(broken.join("load.json"), "{").unwrap();
    let run = workplace.inferbench(&["recommend", "digits", "--min-rate", "600/s", "--max-p99", "10ms"]).finish();
    let run = run.with_code(0).saying(&["left out: ", "20260103T000000Z"]);
    assert!(run.stdout.contains("under load 700 samples/s"), "{}", run.stdout);
}

#[test]
fn beside_the_last_runs_only_newer_load_tests_count() {
    let counts = |timestamp: &str| {
        let workplace = with(&rows());
        let trial = LoadResult { timestamp: timestamp.parse().unwrap(), ..trial(2, 700.0, 4.0) };
        write_trials(&workplace, vec![trial]);
        let is_counted = |arguments: &[&str]| !advice(&workplace, arguments)["under_load"].is_null();
        [is_counted(&[]), is_counted(&["--last", "1"])]
    };
    assert_eq!(counts("2025-12-31T00:00:00Z"), [true, false]);
    assert_eq!(counts("2026-01-02T00:00:00Z"), [true, true]);
}

/// A search that found no rate leaves trials which were stopped early: they are no rate of the case.
#[test]
fn a_search_that_found_no_rate_excludes_no_case() {
    let workplace = with(&rows());
    let stopped = LoadResult {
        verdict: Some(Verdict::Failed),
        is_of_search: true,
        ended_early: true,
        unanswered: 40,
        ..trial(2, 20.0, 300.0)
    };
    write_trials(&workplace, vec![stopped]);
    let found = advice(&workplace, &["--min-rate", "400/s", "--max-p99", "1s"]);
    assert_eq!(found["case_id"], "digits/ort-cpu-f32/1", "{found}");
    assert!(found["under_load"].is_null(), "{found}");
}

#[test]
fn a_load_test_decides_by_the_rate_that_it_shows() {
    // By calls one after the other, a batch of 8 has 889 samples per second, and a batch of 1 has 500.
    let workplace = with(&rows());
    let by_rate = |arguments: &[&str]| advice(&workplace, &[&["--goal", "throughput"], arguments].concat());
    assert_eq!(by_rate(&[])["case_id"], "digits/ort-cpu-f32/8");
    write_trials(&workplace, vec![trial(2, 700.0, 9.0), trial(2, 1500.0, 30.0)]);
    let found = by_rate(&[]);
    assert_eq!((&found["case_id"], &found["under_load"]["instances"]), (&"digits/ort-cpu-f32/1".into(), &2.into()));
    assert!((found["runner_up"]["ratio"].as_f64().unwrap() - 1500.0 / (8e3 / 9.0)).abs() < 1e-6, "{found}");
    let change = found["would_change"].to_string();
    assert!(change.contains("a load test (`inferbench load search`) of the original on ort, batch 8"), "{change}");
    // Sequential calls do not show what the other case would serve under load.
    let why = found["runner_up"]["why"].as_str().unwrap();
    assert!(found["is_undecided"] == true && why.ends_with("its highest rate under load is not known"), "{found}");
    // Within a limit of p99, only the slower trial counts; and a load test says nothing about the time of a call.
    let within = by_rate(&["--max-p99", "20ms"]);
    assert_eq!(within["case_id"], "digits/ort-cpu-f32/8", "{within}");
    assert_eq!(advice(&workplace, &[])["sentence"].as_str().unwrap().matches("p50 2.00 ms").count(), 1);
    // Of two that cannot be told apart, another search under load decides.
    let workplace = with(&rows());
    write_trials(&workplace, vec![trial(2, 900.0, 9.0)]);
    let text = workplace.inferbench(&["recommend", "digits", "--goal", "throughput"]).finish().with_code(0).stdout;
    assert!(text.contains("to decide     inferbench load search --model digits --backend ort --p99 9.9ms"), "{text}");
}

#[test]
fn a_loss_of_accuracy_that_is_allowed_has_to_be_shown() {
    let judged = |record: Record, change: f64| Record {
        accuracy: Some(0.98 + change),
        accuracy_samples: Some(450),
        accuracy_change: Some(change),
        accuracy_change_lower: Some(change - 0.004),
        accuracy_change_upper: Some(change + 0.004),
        data_source: Some("digits".into()),
        ..record
    };
    let case = Case { variant: "int8".into(), dtype: Dtype::I8, ..Case::new("digits", "ort", 1) };
    let int8 = Record { variant: "int8".into(), case_id: case.to_string(), dtype: Dtype::I8, ..row("ort", 1, 1.0) };
    let workplace = with(&[judged(row("ort", 1, 2.0), 0.0), judged(int8, -0.01)]);
    let strict = advice(&workplace, &[]);
    assert_eq!(strict["case_id"], "digits/ort-cpu-f32/1");
    let change = strict["would_change"].to_string();
    assert!(change.contains("more labelled samples"), "{change}");
    assert_eq!(advice(&workplace, &["--max-accuracy-loss", "2%"])["case_id"], case.to_string());
    workplace.inferbench(&["recommend", "digits", "--max-accuracy-loss", "-2%"]).finish().with_code(2);
}

#[test]
fn the_json_is_what_its_schema_says() {
    let workplace = with(&rows());
    let read = |form: &str| -> Value {
        let text = workplace.inferbench(&["recommend", "digits", "--format", form]).finish().with_code(0).stdout;
        serde_json::from_str(&text).unwrap()
    };
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler.add_resource("advice.json", read("json-schema")).unwrap();
    let compiled = compiler.compile("advice.json", &mut schemas).unwrap();
    let found = read("json");
    if let Err(error) = schemas.validate(&found, compiled) {
        panic!("{error:#}");
    }
    assert!(schemas.validate(&serde_json::json!([{ "model": 1 }]), compiled).is_err());
}

#[test]
fn a_run_and_its_page_end_with_what_to_deploy() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1, 8]);
    let run = workplace.inferbench(&["run", "--noplot", "--iterations", "50"]).finish().with_code(0).stdout;
    let sentence = "  digits: For latency, deploy the original on candle, batch 1: p50 ";
    assert!(run.contains("\nWhat to deploy\n") && run.contains(sentence), "{run}");
    let folder = workplace.path("target-reports").join(workplace.records()[0].run_id.clone());
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains("<h2>What to deploy</h2>"), "no panel");
    assert!(
        page.contains("<tr title=\"digits: For latency, deploy the original on candle, batch 1: p50 "),
        "no tooltip"
    );
    let markdown = fs::read_to_string(folder.join("report.md")).unwrap();
    let row = "| digits | **the original on candle, batch 1** | ";
    assert!(
        markdown.contains("\n### What to deploy\n\n| model | deploy | p50 | ") && markdown.contains(row),
        "{markdown}"
    );
    assert!(markdown.contains("\n- digits: For latency, deploy the original on candle, batch 1: p50 "), "{markdown}");
    let report = workplace.inferbench(&["report"]).finish().with_code(0).stdout;
    assert!(report.contains(sentence), "{report}");
    let recommended = workplace.inferbench(&["recommend", "digits"]).finish().with_code(0).stdout;
    assert!(recommended.contains("runner-up     the original on candle, batch 8: "), "{recommended}");
}
