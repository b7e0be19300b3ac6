//! What the machine allows: the self-test and the reports that quote it, and what would disturb a measurement.

use inferbench::machine::Machine;
use serde_json::Value;

use crate::support::{Run, Workplace};

const ADVICE: &str = "smallest detectable change: unknown (run `inferbench selftest`)";

#[test]
fn a_selftest_is_stored_and_reports_quote_it() {
    let workplace = Workplace::new(&["tenn_eeg"], &["candle"], &[1]);
    let before = workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    assert!(before.stdout.contains(ADVICE), "{}", before.stdout);

    // The library is not where it is said to be, so candle is the first backend that can run the model.
    let mut selftest = workplace.inferbench(&["selftest", "--minutes", "0.2", "--format", "json"]);
    let printed = selftest.env("ORT_DYLIB_PATH", workplace.path("absent.so")).finish().with_code(0);
    let printed: Value = serde_json::from_str(&printed.stdout).unwrap();
    let stored = std::fs::read(workplace.path("target/inferbench/selftest.json")).unwrap();
    assert_eq!(printed, serde_json::from_slice::<Value>(&stored).unwrap());
    assert_eq!(printed["case"], "tenn_eeg/candle-cpu-f32/1");
    let processes = printed["processes"].as_array().unwrap();
    assert!(processes.len() >= 3);
    assert!(processes.iter().all(|process| process["percentiles_ms"][0].as_f64().unwrap() > 0.0));
    assert_eq!(printed["smallest_change"]["processes"], processes.len());
    for figure in ["/smallest_change/percent", "/overhead/null_call_ns"] {
        assert!(printed.pointer(figure).unwrap().as_f64().unwrap().is_finite(), "{figure}");
    }
    let run = workplace.latest_run().read_manifest().unwrap();
    assert_eq!(printed["machine"]["host_id"], run.machine.host_id);

    let percent = printed["smallest_change"]["percent"].as_f64().unwrap();
    let line = format!("smallest detectable change: {percent:.1} % (selftest of ");
    for format in ["table", "markdown"] {
        let report = workplace.inferbench(&["report", "--format", format]).finish().with_code(0);
        assert!(report.stdout.contains(&line), "no {line:?} in\n{}", report.stdout);
        assert!(report.stdout.contains(&format!(", {} processes)", processes.len())), "{}", report.stdout);
    }
}

#[test]
fn a_selftest_leaves_runs_and_measurements_alone() {
    let workplace = Workplace::new(&["tenn_eeg"], &["candle"], &[1]);
    let said = workplace.inferbench(&["selftest", "--minutes", "0.01"]).finish().with_code(0);
    assert!(said.stdout.contains("smallest detectable change: "), "{}", said.stdout);
    assert!(said.stderr.contains("in 3 processes"), "{}", said.stderr);
    assert!(workplace.measured().is_empty() && !workplace.criterion().exists());
    let left = std::fs::read_dir(workplace.path("target/inferbench")).unwrap().flatten();
    let mut names: Vec<String> = left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let of_machine = format!("lock-{}", Machine::read().host_id);
    assert_eq!(names, ["lock", of_machine.as_str(), "selftest.json"]);
    assert!(workplace.inferbench(&["report"]).finish().with_code(2).stderr.contains("no results in"));
}

#[test]
fn no_time_is_bad_usage() {
    let workplace = Workplace::new(&["tenn_eeg"], &["candle"], &[1]);
    for minutes in ["0", "-1", "nan", "soon"] {
        workplace.inferbench(&["selftest", &format!("--minutes={minutes}")]).finish().with_code(2);
    }
}

#[test]
fn a_variable_says_which_machine_it_is() {
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    let id = |name: &str| {
        let json = workplace.inferbench(&["devices", "--format", "json"]).env("INFERBENCH_HOST_ID", name).finish();
        let json: Value = serde_json::from_str(&json.with_code(0).stdout).unwrap();
        json["machine"]["host_id"].as_str().unwrap().to_owned()
    };
    assert_eq!(id("runner"), id("runner"));
    assert!(id("runner") != id("other") && id("") == Machine::read().host_id);
}

#[test]
fn the_doctor_says_how_each_thing_is() {
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    let json = workplace.inferbench(&["devices", "--doctor", "--format", "json"]).finish().with_code(0);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let subjects: Vec<&str> = findings.iter().map(|finding| finding["subject"].as_str().unwrap()).collect();
    for subject in ["load", "runs", "steal", "hypervisor", "governor", "turbo", "smt", "quota", "memory", "swap"] {
        assert!(subjects.contains(&subject), "{subject}");
    }
    for finding in findings {
        assert_eq!(finding["state"] == "ok", finding["mend"].is_null(), "{finding}");
    }
    let table = workplace.inferbench(&["devices", "--doctor"]).finish().with_code(0);
    assert_eq!(table.stdout.lines().count(), 2 + findings.len());
    let is_state =
        |line: &str| ["ok ", "warning ", "unknown "].iter().any(|state| line.trim_start().starts_with(state));
    assert!(table.stdout.lines().skip(2).all(is_state), "{}", table.stdout);
}

#[test]
fn every_sample_of_a_long_measurement_is_watched() {
    let workplace = Workplace::new(&["tenn_eeg"], &["candle"], &[1]);
    // By a single call, which may be a slow one, Criterion would choose too few.
    let mut bench = workplace.bench(&["--noplot", "--warm-up-time", "0.1"]);
    bench.env("INFERBENCH_ITERATIONS", "1000000").env("INFERBENCH_BUDGET", "3").finish().with_code(0);
    workplace.inferbench(&["convert"]).finish().with_code(0);
    let record = workplace.record("tenn_eeg/candle-cpu-f32/1");
    let entry = inferbench::criterion_dir::read_entry(&workplace.entry("tenn_eeg/candle-cpu-f32/1", "new")).unwrap();
    assert_eq!(entry.disturbed.as_ref().unwrap().len(), entry.samples_ns.len());
    let marks = entry.disturbed.unwrap();
    let share = marks.iter().filter(|&&is_disturbed| is_disturbed).count() as f64 / marks.len() as f64;
    assert_eq!(record.disturbed_share, Some(share));
    assert!((0.0..=1.0).contains(&record.disturbed_share.unwrap()));
}
