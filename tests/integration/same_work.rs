//! The same name is not the same work: one file with two sizes, and two files of one name, by all commands that read the history.

use std::fs::OpenOptions;
use std::io::Write;

use inferbench::run_data::Record;
use serde_json::Value;

use crate::support::{Finished, Run, Workplace};

fn with_file() -> Workplace {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    workplace.add_model("open_length.onnx", "net.onnx");
    workplace
}

/// Measures the file with a length, and returns its record.
fn measured(workplace: &Workplace, length: usize) -> Record {
    let input = format!("x:f32[batch,{length},3]");
    workplace.inferbench(&["run", "--noplot", "net.onnx", "--input", &input]).finish().with_code(0);
    let mut records = workplace.records();
    assert_eq!(records.len(), 1);
    records.remove(0)
}

/// The same network with another text in its file, as an exporter that puts its version there writes it.
fn export_again(workplace: &Workplace) {
    // `doc_string` of the model.
    let mut file = OpenOptions::new().append(true).open(workplace.path("net.onnx")).unwrap();
    file.write_all(b"\x32\x05again").unwrap();
}

fn predicted(workplace: &Workplace, file: &str, length: usize) -> Value {
    let input = format!("x:f32[batch,{length},3]");
    let all = ["predict", file, "--backend", "candle", "--input", &input, "--format", "json"];
    let found: Value = serde_json::from_str(&workplace.inferbench(&all).finish().stdout).unwrap();
    found[0]["prediction"].clone()
}

fn compared(workplace: &Workplace, base: &Record, candidate: &Record) -> Finished {
    workplace.inferbench(&["compare", &base.run_id, &candidate.run_id]).finish()
}

#[test]
fn only_what_was_measured_is_said_to_be() {
    let workplace = with_file();
    let record = measured(&workplace, 128);
    assert_eq!(record.input_shape.as_deref(), Some("1x128x3"));
    assert_eq!(record.model_sha256, record.artifact_sha256, "what is loaded is the file itself");
    let found = predicted(&workplace, "net.onnx", 128);
    assert_eq!(found["basis"], "measured");
    let off = found["latency_ms"]["value"].as_f64().unwrap() / record.latency_p50_ms.unwrap() - 1.0;
    assert!(off.abs() < 1e-9, "{found}");
    // Another size, and another file of that name, are cases that nobody measured. One row is not enough for a prediction.
    assert!(predicted(&workplace, "net.onnx", 2048).is_null());
    export_again(&workplace);
    assert!(predicted(&workplace, "net.onnx", 128).is_null());
}

#[test]
fn another_size_is_not_compared_and_a_changed_file_is_named() {
    let workplace = with_file();
    let (small, large) = (measured(&workplace, 128), measured(&workplace, 2048));
    let refused = compared(&workplace, &small, &large).with_code(3).stdout;
    assert!(refused.contains("net/candle-cpu-f32/1: refused: shape: 1x128x3 ↔ 1x2048x3"), "{refused}");
    assert!(refused.contains("`--allow-different shape`") && !refused.contains("slower"), "{refused}");
    export_again(&workplace);
    let again = measured(&workplace, 2048);
    assert_ne!(again.model_sha256, large.model_sha256);
    let named = compared(&workplace, &large, &again).stdout;
    let [before, after] = [&large, &again].map(|record| record.artifact_sha256.as_ref().unwrap()[..12].to_owned());
    let line = format!("net/candle-cpu-f32/1: compared, and changed: artifact: {before} ↔ {after}");
    assert!(named.contains(&line) && !named.contains("refused"), "{named}");
    // The mean of two files says nothing.
    let third = measured(&workplace, 2048);
    let both = format!("{},{}", large.run_id, again.run_id);
    let mixed = workplace.inferbench(&["compare", &both, &third.run_id]).finish().with_code(3).stdout;
    let is_refused = |one: &str, other: &str| {
        mixed.contains(&format!("net/candle-cpu-f32/1: refused: artifact: {one} and {other} ↔ {after}"))
    };
    assert!(is_refused(&before, &after) || is_refused(&after, &before), "{mixed}");
    assert!(mixed.contains("nothing to compare: 1 case refused"), "{mixed}");
}
