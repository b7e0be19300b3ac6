//! What runs leave behind, which may come from another machine.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use inferbench::definition::{Case, Status};
use inferbench::history::{
    CallsWriter, History, LATENCIES, NewRun, read_records, records_as_parquet, write_metrics, write_records,
};
use inferbench::run_data::{Event, Latencies, Manifest, Metric, Outcome, Record, RunFolder};

use crate::folder;

fn record() -> Record {
    let run =
        Record { run_id: "20260101T000000Z".into(), host_id: "h".into(), suite: "quick".into(), ..Record::default() };
    Record { latency_p50_ms: Some(1.5), status: Status::Ok, ..run.about(&Case::new("m", "ort", 1)) }
}

pub fn outcomes(bytes: &[u8]) {
    static RUN: LazyLock<RunFolder> = LazyLock::new(|| RunFolder::new(folder("run")));
    fs::write(RUN.outcomes_path(), bytes).expect("the file");
    let outcomes = RUN.read_outcomes().expect("the file");
    let _ = outcomes.failed(2);
    outcomes.finished.keys().for_each(|id| drop(outcomes.row(id).map(Record::case)));
}

pub fn seeds_of_outcomes() -> Vec<Vec<u8>> {
    let row = record();
    let id = row.case_id.clone();
    let events = [
        Event::Started { id: id.clone() },
        Event::Finished(Box::new(Outcome::new(row.clone()))),
        Event::Observed { row: Box::new(row), watch_seconds: Some(0.5) },
        Event::Evaluating { id: id.clone() },
        Event::Evaluated { id: id.clone(), failure: Some("no".into()), seconds: 1.0 },
        Event::MeasuredAgain { id: id.clone(), latencies: Latencies::of_samples(&[vec![5, 7]], None).expect("calls") },
        Event::Lost { id: id.clone() },
        Event::Reopened { id },
    ];
    let lines = events.map(|event| serde_json::to_vec(&event).expect("an event"));
    vec![lines.join(&b'\n'), lines[0].clone(), lines[4].clone()]
}

/// The folder of a history with one run, whose records are those of [`record`].
pub fn run_in(name: &str) -> (PathBuf, PathBuf) {
    let history = folder(name);
    let run = folder(&format!("{name}/20260101T000000Z"));
    let mut records = Vec::new();
    write_records(&[record()], &mut records).expect("a record");
    fs::write(run.join("results.csv"), records).expect("the records");
    (history, run)
}

/// The bytes are any of the text files of a run.
pub fn records(bytes: &[u8]) {
    static FOLDERS: LazyLock<(PathBuf, PathBuf)> = LazyLock::new(|| run_in("history"));
    let (history, run) = &*FOLDERS;
    for name in ["results.csv", "metrics.csv", "manifest.json", "distributions.json"] {
        fs::write(run.join(name), bytes).expect("the file");
        if let Ok(history) = History::open(std::slice::from_ref(history)) {
            for run in history.runs() {
                let _ = (run.facts(), run.records(), run.metrics(), run.machine(), run.distributions(), run.host_ids());
            }
        }
        // The others are as they were.
        match name {
            "results.csv" => drop(run_in("history")),
            _ => fs::remove_file(run.join(name)).expect("the file is there"),
        }
    }
    let _ = read_records(bytes);
}

pub fn seeds_of_records() -> Vec<Vec<u8>> {
    let (mut records, mut metrics) = (Vec::new(), Vec::new());
    write_records(&[record(), record()], &mut records).expect("records");
    let metric = Metric { run_id: record().run_id, case_id: record().case_id, metric: "m".into(), ..Metric::default() };
    write_metrics(&[metric], &mut metrics).expect("metrics");
    let suite = toml::from_str("models = []\nbackends = ['ort']\nbatch_sizes = [1]").expect("a suite");
    let manifest = Manifest::begun(record().run_id, record().timestamp, suite, Vec::new());
    let distributions = br#"{"format": 1, "cases": {"m/ort-cpu-f32/1": {"calls": 2, "quantiles_ms": [[0.5, 1.5]]}}}"#;
    vec![records, metrics, serde_json::to_vec(&manifest).expect("a manifest"), distributions.to_vec()]
}

/// The bytes are the calls of a run, or the facts about its machine.
pub fn parquet(bytes: &[u8]) {
    static FOLDERS: LazyLock<(PathBuf, PathBuf)> = LazyLock::new(|| run_in("parquet"));
    let (history, run) = &*FOLDERS;
    fs::write(run.join(LATENCIES), bytes).expect("the calls");
    fs::write(run.join("hardware.parquet"), bytes).expect("the machine");
    let Ok(history) = History::open(std::slice::from_ref(history)) else { return };
    for run in history.runs() {
        let _ = (run.facts(), run.host_ids());
        let mut copy = NewRun::create(&folder("copies"), run.name(), "h").expect("a new run");
        let _ = copy.copy_calls(run, "h", &|_| true);
    }
}

pub fn seeds_of_parquet() -> Vec<Vec<u8>> {
    let mut calls = CallsWriter::new("20260101T000000Z", "h", Vec::new()).expect("a file");
    calls.append("m/ort-cpu-f32/1", &[vec![5, 7], vec![6]], Some(&[false, true])).expect("calls");
    calls.append("m/ort-cpu-f32/8", &[vec![9]], None).expect("calls");
    vec![calls.finish().expect("the calls"), records_as_parquet(&[record()]).expect("records")]
}
