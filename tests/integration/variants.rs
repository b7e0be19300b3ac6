//! `inferbench report --variants` over records: the variant to ship, as a table, Markdown, JSON by its schema, and HTML.

use std::fs::{self, File};

use inferbench::definition::{Case, Status};
use inferbench::history::write_records;
use inferbench::run_data::Record;
use serde_json::Value;

use crate::support::synthetic::{Shape, write_runs};
use crate::support::{Run, Workplace, chromium};

/// What is made up of a row.
struct Made {
    variant: &'static str,
    backend: &'static str,
    size: f64,
    ms: f64,
    /// In points, with its interval.
    change: Option<(f64, f64, f64)>,
    cosine: f64,
}

const fn made(variant: &'static str, backend: &'static str, size: f64, ms: f64) -> Made {
    Made { variant, backend, size, ms, change: Some((0.0, -0.6, 0.6)), cosine: 0.9999 }
}

const DIGITS: [Made; 7] = [
    made("original", "ort", 10.2, 2.0),
    made("original", "tch", 10.4, 3.1),
    made("int8-static", "ort", 3.0, 1.25),
    made("int8-torch", "tch", 3.1, 1.9),
    Made { change: Some((-0.4, -1.6, 0.8)), ..made("int8-dynamic", "ort", 2.9, 0.8) },
    made("pruned-unstructured", "ort", 10.2, 1.98),
    Made { change: Some((-4.2, -6.4, -2.0)), ..made("distilled", "ort", 1.1, 0.5) },
];

fn records(run_id: &str, model: &str, batch_size: usize, rows: &[Made]) -> Vec<Record> {
    let run = Record {
        run_id: run_id.into(),
        timestamp: "2026-01-01T00:00:00Z".parse().unwrap(),
        host_id: "aaaa1111".into(),
        suite: "synthetic".into(),
        rustc_version: "rustc 1".into(),
        ..Record::default()
    };
    let scale = (batch_size as f64).powf(0.9);
    let record = |row: &Made| {
        let case = Case { variant: row.variant.into(), ..Case::new(model, row.backend, batch_size) };
        let points = |points: f64| points / 100.0;
        let ms = row.ms * scale;
        Record {
            latency_p50_ms: Some(ms),
            throughput_ips: Some(batch_size as f64 * 1e3 / ms),
            memory_mb: Some(60.0 + 3.0 * row.size),
            memory_kind: Some("own-process-peak-rss".into()),
            parameters: Some(2_550_000),
            nonzero_parameters: Some(if row.variant.starts_with("pruned") { 1_020_000 } else { 2_550_000 }),
            model_size_mb: Some(row.size),
            data_source: Some(if row.change.is_some() { "digits" } else { "synthetic" }.into()),
            accuracy: row.change.map(|(change, ..)| 0.9822 + points(change)),
            accuracy_lower: row.change.map(|(change, ..)| 0.9653 + points(change)),
            accuracy_upper: row.change.map(|(change, ..)| 0.9923 + points(change)),
            accuracy_samples: row.change.map(|_| 450),
            accuracy_change: row.change.map(|(change, ..)| points(change)),
            accuracy_change_lower: row.change.map(|(_, lower, _)| points(lower)),
            accuracy_change_upper: row.change.map(|(.., upper)| points(upper)),
            agreement: Some(row.cosine),
            output_cosine: Some(row.cosine),
            agreement_samples: Some(450),
            verified: Some(true),
            ..run.clone().about(&case)
        }
    };
    let mut records: Vec<Record> = rows.iter().map(record).collect();
    let failed = Case { variant: "distilled".into(), ..Case::new(model, "tch", batch_size) };
    let message = Some("no <TorchScript> file | of it".into());
    records.push(Record { status: Status::Unsupported, message, ..run.about(&failed) });
    records
}

/// A place with one run: `digits` with labels at two batch sizes, `seeded` without, `alone` with its original only.
fn with_run() -> Workplace {
    let workplace = Workplace::new(&[], &[], &[1]);
    let without_labels = [
        Made { change: None, cosine: 1.0, ..made("original", "ort", 10.2, 2.0) },
        Made { change: None, cosine: 0.998, ..made("int8-static", "ort", 3.0, 1.0) },
        Made { change: None, cosine: 0.93, ..made("int8-dynamic", "ort", 3.0, 0.7) },
    ];
    let mut all = records("20260101T000000Z", "digits", 1, &DIGITS);
    all.extend(records("20260101T000000Z", "digits", 8, &DIGITS));
    all.extend(records("20260101T000000Z", "seeded", 1, &without_labels));
    let alone = records("20260101T000000Z", "alone", 1, &[made("original", "ort", 1.0, 1.0)]);
    all.extend(alone.into_iter().filter(|record| record.variant == "original"));
    store(&workplace, "20260101T000000Z", &all);
    workplace
}

fn store(workplace: &Workplace, run_id: &str, records: &[Record]) {
    let folder = workplace.path("target-reports").join(run_id);
    fs::create_dir_all(&folder).unwrap();
    write_records(records, File::create(folder.join("results.csv")).unwrap()).unwrap();
}

fn printed(workplace: &Workplace, arguments: &[&str]) -> String {
    let all = [&["report", "--variants"], arguments].concat();
    workplace.inferbench(&all).finish().with_code(0).stdout
}

#[test]
fn the_table_ends_with_what_to_ship() {
    let workplace = with_run();
    let narrow = workplace.inferbench(&["report", "--variants", "digits"]).env("COLUMNS", "100").finish().stdout;
    assert!(narrow.lines().any(|line| line.contains(" verdict ") && line.contains(" quality")), "{narrow}");
    assert!(narrow.contains(": accuracy change: 0.0 (−0.6 … +0.6) points"), "{narrow}");
    let text = printed(&workplace, &["digits"]);
    let line = |part: &str| text.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {text}"));
    let int8 = line(" int8-static ");
    for part in [
        "●◇",
        "3.00 MB  0.29 ×",
        "98.2 % (96.5 … 99.2) of 450",
        "0.0 (−0.6 … +0.6)",
        "1.25 ms  0.63 ×",
        "69.0 MB  0.76 ×",
    ] {
        assert!(int8.contains(part), "{part}: {int8}");
    }
    assert!(line(" pruned-unstructured ").contains("2.55 M, 40 % not 0"));
    // Its own original is slower than the fastest.
    assert!(line(" int8-torch ").contains("1.90 ms  0.61 ×"));
    assert!(text.contains("\n  distilled on tch: unsupported: no <TorchScript> file | of it\n"), "{text}");
    assert!(text.contains("\ndigits · batch 8\n"), "{text}");
    assert!(line(" int8-dynamic ").contains("open") && line(" distilled ").contains("lost"), "{text}");
    assert!(text.contains("\nShip int8-static on ort: p50 1.25 ms, size 3.00 MB, "), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("Ship int8-static on ort: ")), "{text}");
}

#[test]
fn the_goal_and_the_loss_decide() {
    let workplace = with_run();
    let sentence = |arguments: &[&str]| -> String {
        let found: Value =
            serde_json::from_str(&printed(&workplace, &[arguments, &["--format", "json"]].concat())).unwrap();
        found["recommendation"]["sentence"].as_str().unwrap().to_owned()
    };
    let shipped = |arguments: &[&str], start: &str| {
        let sentence = sentence(arguments);
        assert!(sentence.starts_with(start), "{sentence}");
    };
    shipped(&["digits", "--max-accuracy-loss", "2%"], "Ship int8-dynamic on ort: ");
    shipped(&["digits", "--goal", "size"], "Ship int8-static on ort: ");
    shipped(&["digits", "--goal", "memory", "--variant", "original,pruned-unstructured"], "Keep the original on ort");
    shipped(&["digits", "--batch-sizes", "8", "--goal", "throughput"], "Ship int8-static on ort: ");
    shipped(&["seeded"], "Ship int8-static on ort: ");
    assert!(sentence(&["seeded"]).contains("agreement with the original 99.8 %, which is not accuracy"));
}

#[test]
fn markdown_has_the_sentence_and_a_table() {
    let text = printed(&with_run(), &["seeded", "--format", "markdown"]);
    assert!(text.starts_with("### seeded · batch 1\n\n**Ship int8-static on ort: "), "{text}");
    assert!(text.contains("there were no labelled samples"), "{text}");
    assert!(text.contains("| agreement | cosine |") && !text.contains("| accuracy |"), "{text}");
    assert!(text.contains("no &lt;TorchScript> file \\| of it"), "{text}");
}

#[test]
fn json_is_what_its_schema_says() {
    let workplace = with_run();
    let read = |arguments: &[&str]| -> Value { serde_json::from_str(&printed(&workplace, arguments)).unwrap() };
    let schema = read(&["digits", "--format", "json-schema"]);
    let mut found = read(&["digits", "--format", "json"]);
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler.add_resource("variants.json", schema).unwrap();
    let compiled = compiler.compile("variants.json", &mut schemas).unwrap();
    if let Err(error) = schemas.validate(&found, compiled) {
        panic!("{error:#}");
    }

    assert_eq!((&found["model"], &found["batch_size"]), (&"digits".into(), &1.into()));
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    let recommended: Vec<&Value> = rows.iter().filter(|row| row["is_recommended"] == true).collect();
    assert_eq!(recommended.len(), 1);
    assert_eq!(recommended[0]["case_id"], found["recommendation"]["case_id"]);
    assert_eq!(recommended[0]["case_id"], "digits-int8-static/ort-cpu-f32/1");
    assert_eq!(recommended[0]["differences"]["original"], "digits/ort-cpu-f32/1");
    let on_front: Vec<&str> =
        rows.iter().filter(|row| row["is_on_front"] == true).map(|row| row["variant"].as_str().unwrap()).collect();
    assert_eq!(on_front, ["distilled", "int8-dynamic", "int8-static"]);

    found["rows"][0]["quality"] = "splendid".into();
    assert!(schemas.validate(&found, compiled).is_err());
}

#[test]
fn html_is_one_page_beside_the_results() {
    let workplace = with_run();
    let path = printed(&workplace, &["digits", "--format", "html"]);
    assert!(path.trim_end().ends_with("target-reports/20260101T000000Z/variants-digits.html"), "{path}");
    let page = fs::read_to_string(path.trim_end()).unwrap();
    let (sections, _) = page.split_once("<div id=\"charts\">").unwrap();
    for request in ["<script", " src=", "<link", "@import", "url(", "href="] {
        assert!(!sections.contains(request), "{request}");
    }
    assert!(sections.contains("Ship int8-static on ort: p50 1.25 ms"), "{sections}");
    assert!(page.contains("no &lt;TorchScript&gt; file"), "{page}");
    assert!(printed(&workplace, &["digits", "--format", "html", "--output", "-"]).starts_with("<!DOCTYPE html>"));
    store(&workplace, "20260102T000000Z", &records("20260102T000000Z", "digits", 1, &DIGITS));
    let older = printed(&workplace, &["digits", "20260101T000000Z", "--format", "html"]);
    assert_eq!(older, path);
    let several = printed(&workplace, &["digits", "--all", "--format", "html"]);
    assert!(several.trim_end().ends_with("target-reports/variants-digits.html"), "{several}");
    if let Some(dom) = chromium::dump(path.trim_end().as_ref(), "") {
        assert!(dom.contains("<h1>Variants of digits</h1>") && dom.contains("<svg"), "{dom}");
    }
}

#[test]
fn what_cannot_be_compared_says_why() {
    let workplace = with_run();
    let refused = |arguments: &[&str], parts: &[&str]| {
        let all = [&["report"], arguments].concat();
        workplace.inferbench(&all).finish().with_code(2).saying(parts);
    };
    refused(
        &["--variants", "nosuch"],
        &["none of the chosen records is of the model \"nosuch\"; there are alone, digits, seeded"],
    );
    refused(
        &["--variants", "alone"],
        &["only the original of alone", "`inferbench run --model alone --variant all`", "run FILE"],
    );
    refused(&["--goal", "size"], &["--variants"]);
    refused(&["--variants", "digits", "--charts", "figures"], &["cannot be used with"]);
    refused(&["--variants", "digits", "--max-accuracy-loss", "1"], &["write 5% or 0.05"]);
    refused(&["--variants", "digits", "--max-accuracy-loss", "-1%"], &["must be 0 or more"]);
    // The other uses of the command do not know of any of it.
    workplace.inferbench(&["report"]).finish().with_code(0);
}

#[test]
fn what_was_not_compared_with_an_original_is_not_recommended() {
    let workplace = Workplace::new(&[], &[], &[1]);
    write_runs(&workplace.path("target-reports"), Shape { runs: 1, cases: 360, host: ("aaaa1111", 1.0) });
    let text = printed(&workplace, &["resnet50"]);
    assert!(text.contains("\nKeep the original on ort: "), "{text}");
    assert!(text.contains("unknown"), "{text}");
    assert!(printed(&workplace, &["resnet50", "--format", "html", "--output", "-"]).contains("Keep the original"));
}

#[test]
fn a_variant_and_its_original_of_two_runs_are_said_to_be_that() {
    let workplace = Workplace::new(&[], &[], &[1]);
    let original = records("20260101T000000Z", "digits", 1, &[made("original", "ort", 10.2, 2.0)]);
    let mut int8 = records("20260102T000000Z", "digits", 1, &[made("int8-static", "ort", 3.0, 1.0)]);
    for record in &mut int8 {
        (record.accuracy_change, record.accuracy_change_lower, record.accuracy_change_upper) = (None, None, None);
    }
    store(&workplace, "20260101T000000Z", &original);
    store(&workplace, "20260102T000000Z", &int8);
    let text = printed(&workplace, &["digits", "--all"]);
    assert!(text.contains("98.2 % (96.5 … 99.2) of 450"), "{text}");
    assert!(text.contains("unknown"), "{text}");
    assert!(text.contains("the rows are from 2 runs") && text.contains("not all from the same code"), "{text}");
}

#[test]
fn what_a_flag_cannot_do_is_said() {
    let workplace = with_run();
    let loss = printed(&workplace, &["seeded", "--max-accuracy-loss", "0.5%"]);
    assert!(loss.contains("no accuracy loss (0.5 %) is checked"), "{loss}");
    assert!(printed(&workplace, &["digits", "--max-accuracy-loss", "0.5%"]).contains("shown to lose at most 0.5 %"));
    let hidden = printed(&workplace, &["digits", "--variant", "int8-static,int8-dynamic"]);
    assert!(hidden.contains("Nothing is recommended: no original was measured with right outputs."), "{hidden}");
    assert!(!hidden.contains("× is relative to"), "{hidden}");
    let twice = printed(&workplace, &["digits", "20260101T000000Z", "20260101T000000Z", "--format", "json"]);
    let twice: Value = serde_json::from_str(&twice).unwrap();
    assert_eq!((&twice["runs"], &twice["rows"][0]["run_ids"]), (&1.into(), &serde_json::json!(["20260101T000000Z"])));
}
