//! What this package takes for granted of Criterion 0.8.2, whose files and command line are no public interface.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use inferbench::criterion_dir::{LATENCY_LOG, LatencyLog, find_baselines, read_entry, read_estimates};
use inferbench::run_data::CriterionArguments;
use serde_json::Value;

use crate::support::{Run, Workplace, checkout, data_folder};

const ID: &str = "digits/candle-cpu-f32/8";

fn recorded_root() -> PathBuf {
    data_folder().join("criterion")
}

fn recorded_entry() -> PathBuf {
    recorded_root().join(ID).join("new")
}

fn json(folder: &Path, name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap()
}

#[test]
fn a_recorded_entry_is_found_and_read_with_its_numbers() {
    assert_eq!(find_baselines(&recorded_root()), ["new"]);

    let entry = read_entry(&recorded_entry()).unwrap();
    assert_eq!(entry.run_id, "20261121T051104Z");
    assert_eq!(entry.sampling_mode, "Flat");
    assert_eq!(entry.samples_ns.len(), 20);
    assert_eq!((entry.samples_ns[0][0], entry.samples_ns[19][0]), (154_759, 148_911));

    let estimates = entry.estimates;
    let mean = &estimates.mean;
    assert_eq!((mean.point, mean.interval.lower, mean.interval.upper), (150608.1, 148502.85, 153379.9075));
    assert_eq!((mean.interval.confidence_level, estimates.median.point), (0.95, 148_930.5));
    assert_eq!(estimates.std_dev.point, 5_804.921885326005);
    assert!(estimates.slope.is_none(), "flat sampling has no slope");
    assert_eq!(read_estimates(&recorded_entry()).unwrap().mean.point, mean.point);
}

#[test]
fn a_fresh_entry_has_the_keys_of_the_recorded_one_and_its_calls_sum_up_to_criterions_times() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[8]);
    let fresh = workplace.entry(ID, "new");
    // More calls than Criterion gets samples: several calls make a sample.
    let measured = |_: usize| -> LatencyLog {
        workplace.inferbench(&["run", "--noplot", "--iterations", "2500"]).finish().with_code(0);
        serde_json::from_value(json(&fresh, LATENCY_LOG)).unwrap()
    };
    // Criterion chooses the calls per sample by a single call, which a pause of the machine may make a very long one.
    let log = (0..3).map(measured).find(|log| log.samples_ns.concat().len() > 100);
    let log = log.expect("samples of one call each show little");

    for name in ["benchmark.json", "sample.json", "estimates.json", "tukey.json", LATENCY_LOG] {
        let mut found = keys(&json(&fresh, name));
        // The recorded log is of before samples were marked, and is read as it is.
        found.retain(|key| !key.starts_with(".disturbed"));
        assert_eq!(found, keys(&json(&recorded_entry(), name)), "{name}");
    }
    assert_eq!(file_names(&fresh), file_names(&recorded_entry()));

    let sample = json(&fresh, "sample.json");
    let sums: Vec<f64> = log.samples_ns.iter().map(|calls| calls.iter().sum::<u64>() as f64).collect();
    let counts: Vec<f64> = log.samples_ns.iter().map(|calls| calls.len() as f64).collect();
    assert_eq!(sample["times"], Value::from(sums));
    assert_eq!(sample["iters"], Value::from(counts));
    assert_eq!(log.samples_ns.len(), 100);
    assert_eq!(log.run_id, workplace.latest_run().read_manifest().unwrap().run_id);
}

#[test]
fn every_option_of_criterion_is_known() {
    // `configure_from_args` of criterion-0.8.2/src/lib.rs. What it accepts and ignores, `--version`, is not among them.
    let options: [&[&str]; 41] = [
        &["FILTER"],
        &["--color", "never"],
        &["--colour", "always"],
        &["-c", "auto"],
        &["--verbose"],
        &["-v"],
        &["--quiet"],
        &["--noplot"],
        &["-n"],
        &["--save-baseline", "main"],
        &["-s", "main"],
        &["--discard-baseline"],
        &["--baseline", "main"],
        &["-b", "main"],
        &["--baseline-lenient", "main"],
        &["--list"],
        &["--list", "--format", "terse"],
        &["--list", "--format", "pretty"],
        &["--ignored"],
        &["FILTER", "--exact"],
        &["--profile-time", "1"],
        &["--profile-time=2.5"],
        &["--load-baseline", "new", "--baseline", "main"],
        &["--sample-size", "10"],
        &["--warm-up-time", "0.5"],
        &["--measurement-time", "2.5"],
        &["--nresamples", "1000"],
        &["--noise-threshold", "0.02"],
        &["--confidence-level", "0.9"],
        &["--significance-level", "0.1"],
        &["--quick"],
        &["--test"],
        &["--bench"],
        &["--plotting-backend", "plotters"],
        &["--plotting-backend", "gnuplot"],
        &["--output-format", "criterion"],
        &["--output-format", "bencher"],
        &["--nocapture"],
        &["--show-output"],
        &["--include-ignored"],
        &["-n", "-v", "FILTER", "--bench"],
    ];
    for option in options {
        let parsed = CriterionArguments::try_parse_from(option);
        assert!(parsed.is_ok(), "{option:?}: {}", parsed.unwrap_err());
    }
    assert!(CriterionArguments::try_parse_from(["--no-such-option"]).is_err());
}

#[test]
fn criterion_is_the_version_that_was_recorded() {
    let lock = fs::read_to_string(checkout().join("Cargo.lock")).unwrap();
    assert!(
        lock.contains("name = \"criterion\"\nversion = \"0.8.2\"\n"),
        "another Criterion: record tests/data/criterion anew and compare the options in this file with its own"
    );
}

fn file_names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The paths of all keys, with the kind of value at each; elements of a list count as one.
fn keys(value: &Value) -> BTreeSet<String> {
    fn walk(value: &Value, path: &str, keys: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                fields.iter().for_each(|(name, value)| walk(value, &format!("{path}.{name}"), keys))
            }
            Value::Array(elements) => elements.iter().for_each(|value| walk(value, &format!("{path}[]"), keys)),
            Value::Null => drop(keys.insert(format!("{path}: null"))),
            Value::Bool(_) => drop(keys.insert(format!("{path}: bool"))),
            Value::Number(_) => drop(keys.insert(format!("{path}: number"))),
            Value::String(_) => drop(keys.insert(format!("{path}: string"))),
        }
    }
    let mut keys = BTreeSet::new();
    walk(value, "", &mut keys);
    keys
}
