//! What is left of a run that is disturbed: a case that crashes or hangs, Ctrl-C, and the end of the whole process.

use std::fs;
use std::process::Command;

use inferbench::criterion_dir::LATENCY_LOG;
use inferbench::definition::Status;
use inferbench::run_data::{Manifest, RunFolder};

use crate::outcomes::flip_signs;
use crate::support::{Run, Running, Workplace, data_folder, is_alive, signal, wait_for};

/// Two cases, of which one takes a thousand times as long as the other.
const CASES: &str = "^digits/.*/1$|^tenn_eeg/.*/64$";
const DIGITS: &str = "digits/candle-cpu-f32/1";
const TENN: &str = "tenn_eeg/candle-cpu-f32/64";
const NOT_REACHED: &str = "not reached: the run was stopped, or is still measuring";
/// Up to a minute for tenn_eeg.
const LONG: [(&str, &str); 2] = [("INFERBENCH_ITERATIONS", "5000"), ("INFERBENCH_BUDGET", "60")];
/// A few seconds for tenn_eeg.
const SHORT: [(&str, &str); 2] = [("INFERBENCH_ITERATIONS", "5000"), ("INFERBENCH_BUDGET", "4")];

/// Measures in the order of the models.
fn workplace(models: &[&str]) -> Workplace {
    Workplace::new(models, &["candle"], &[1, 64])
}

fn run(workplace: &Workplace, effort: [(&str, &str); 2]) -> Command {
    let mut run = workplace.inferbench(&["run", "--noplot", CASES]);
    run.envs(effort);
    run
}

/// Starts a run, and waits until it measures tenn_eeg. With the process that does so.
fn start_to_the_middle(workplace: &Workplace, effort: [(&str, &str); 2]) -> (Running, u32) {
    let log = workplace.path("log.txt");
    let running = run(workplace, effort).start(&log);
    wait_for("the samples of tenn_eeg", || {
        let log = fs::read_to_string(&log).unwrap();
        log.split_once(TENN).is_some_and(|(_, after)| after.contains("calls in")).then_some(())
    });
    let child = running.child();
    (running, child)
}

#[test]
fn a_case_whose_process_is_killed_fails_the_others_run_and_resuming_measures_it_again() {
    let workplace = workplace(&["tenn_eeg", "digits"]);
    let (mut running, child) = start_to_the_middle(&workplace, SHORT);
    signal("KILL", &child.to_string());
    assert_eq!(running.wait().code(), Some(5));
    let killed = workplace.record(TENN);
    assert_eq!((killed.status, killed.latency_p50_ms), (Status::Failed, None));
    assert!(killed.message.as_ref().unwrap().contains("ended by signal 9 (SIGKILL)"), "{killed:?}");
    assert_eq!(workplace.record(DIGITS).status, Status::Ok);
    assert_eq!(workplace.measured(), [DIGITS]);

    let before = fs::read(workplace.entry(DIGITS, "new").join(LATENCY_LOG)).unwrap();
    let resumed = run(&workplace, SHORT).arg("--resume").finish().with_code(0);
    resumed.saying(&[&format!("measuring again what failed: {TENN}"), "1 of 2 cases finished"]);
    assert_eq!(workplace.record(TENN).status, Status::Ok);
    assert_eq!(fs::read(workplace.entry(DIGITS, "new").join(LATENCY_LOG)).unwrap(), before);
    let again = run(&workplace, SHORT).arg("--resume").finish().with_code(0);
    again.saying(&["the last one, is complete: nothing is left to do"]);
}

#[test]
fn a_run_that_did_not_come_into_the_history_does_so_by_resuming() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let run = || workplace.inferbench(&["run", "--noplot"]);
    run().finish().with_code(0);
    let measured = workplace.record(DIGITS);
    // As if the disk had been full when it was converted.
    fs::remove_dir_all(workplace.path("target-reports")).unwrap();
    let (id, in_the_way) = (&measured.run_id, format!("target-reports/{}", measured.run_id));
    fs::create_dir(workplace.path("target-reports")).unwrap();
    workplace.write(&in_the_way, "");
    let kept =
        format!("the results of run {id} are kept, but could not be converted; the same command with `--resume`");
    run().arg("--resume").finish().with_code(2).saying(&[&kept]);
    fs::remove_file(workplace.path(&in_the_way)).unwrap();
    let resumed = run().arg("--resume").finish().with_code(0);
    resumed.saying(&["the last one, is complete: nothing is left to do"]);
    assert_eq!(workplace.record(DIGITS), measured);
}

#[test]
fn a_case_that_takes_too_long_is_given_up_and_the_others_run() {
    let workplace = workplace(&["tenn_eeg", "digits"]);
    let finished = run(&workplace, LONG).env("INFERBENCH_TIMEOUT", "6").finish().with_code(5);
    finished.saying(&[&format!("{TENN}: timeout: not finished after 6 s")]);
    let slow = workplace.record(TENN);
    assert_eq!((slow.status, slow.latency_p50_ms), (Status::Timeout, None));
    assert_eq!(workplace.record(DIGITS).status, Status::Ok);
}

#[test]
fn a_run_that_is_asked_to_end_does_so_with_its_child() {
    let workplace = workplace(&["digits", "tenn_eeg"]);
    let (mut running, child) = start_to_the_middle(&workplace, LONG);
    let second = run(&workplace, LONG).finish().with_code(2);
    second.saying(&["another run is measuring with this target folder"]);
    let third = workplace.inferbench(&["run", "--noplot", "--variant", "distilled"]).finish().with_code(2);
    third.saying(&["another run is measuring with this target folder"]);
    assert!(!workplace.path(".prepared/digits.distilled").exists(), "it prepares nothing beside a measurement");
    running.terminate();
    assert_eq!(running.wait().code(), Some(130));
    assert!(!is_alive(child));
    assert_eq!(workplace.record(DIGITS).status, Status::Ok);
}

#[test]
fn a_run_that_alone_is_asked_to_end_measures_no_further_cases() {
    let workplace = Workplace::new(&["tenn_eeg"], &["candle"], &[1, 2, 3, 4, 5, 6]);
    let log = workplace.path("log.txt");
    // Half a second of calls for each case.
    let arguments = ["run", "--noplot", "--iterations", "100000", "--budget", "0.5", "^tenn_eeg/"];
    let mut running = workplace.inferbench(&arguments).start(&log);
    wait_for("the second case", || fs::read_to_string(&log).unwrap().contains("[2/").then_some(()));
    running.terminate();
    assert_eq!(running.wait().code(), Some(130));
    let records = workplace.records();
    // The second case may end before its process is told, and so may the third on a busy machine.
    assert!((1..=3).contains(&records.len()), "{records:?}");
    assert!(records.iter().all(|record| record.status == Status::Ok), "{records:?}");
}

#[test]
fn a_run_that_is_killed_can_be_converted_and_its_child_ends_too() {
    let workplace = workplace(&["digits", "tenn_eeg"]);
    let (mut running, child) = start_to_the_middle(&workplace, SHORT);
    running.kill();
    assert_eq!(running.wait().code(), None);
    wait_for("the end of the child", || (!is_alive(child)).then_some(()));
    assert!(workplace.latest_run().read_manifest().unwrap().finished.is_none());
    // A case during which the run was killed has not failed.
    let converted = workplace.inferbench(&["convert"]).finish().with_code(0);
    converted.saying(&[&format!("1 case was {NOT_REACHED} ({TENN})")]);
    let records = workplace.records();
    assert_eq!((records.len(), records[0].case_id.as_str(), records[0].status), (1, DIGITS, Status::Ok));

    run(&workplace, SHORT).arg("--resume").finish().with_code(0);
    assert_eq!(workplace.measured(), [DIGITS, TENN]);
    assert_eq!(workplace.record(TENN).status, Status::Ok);
}

#[test]
fn control_c_during_an_observation_says_what_is_missing() {
    let workplace = workplace(&["tenn_eeg"]);
    let suite = fs::read_to_string(workplace.path("models/suites/quick.toml")).unwrap();
    workplace.write("models/suites/quick.toml", suite.replace("watch = false", "watch = true"));
    let log = workplace.path("log.txt");
    let mut running = run(&workplace, SHORT).start(&log);
    wait_for("the observation", || fs::read_to_string(&log).unwrap().contains("observing [1/1]").then_some(()));
    running.interrupt();
    assert_eq!(running.wait().code(), Some(130));
    let said = fs::read_to_string(&log).unwrap();
    let missing = format!("from {TENN} on, figures of memory, energy and answers may be missing");
    assert!(said.contains(&missing), "{said}");
}

#[test]
fn control_c_keeps_what_is_finished_and_resuming_does_not_measure_it_again() {
    let workplace = workplace(&["digits", "tenn_eeg"]);
    let (mut running, child) = start_to_the_middle(&workplace, SHORT);
    running.interrupt();
    assert_eq!(running.wait().code(), Some(130));
    assert!(!is_alive(child));
    assert!(workplace.latest_run().read_manifest().unwrap().is_interrupted);
    // The command has converted it by itself; once more gives the same.
    for _ in 0..2 {
        let records = workplace.records();
        assert_eq!(records.len(), 1);
        assert_eq!((records[0].case().to_string().as_str(), records[0].status), (DIGITS, Status::Ok));
        let converted = workplace.inferbench(&["convert"]).finish().with_code(0);
        converted.saying(&[&format!("1 case was {NOT_REACHED} ({TENN})")]);
    }
    let report =
        |format: &str| workplace.inferbench(&["report", "--output", "-", "--format", format]).finish().with_code(0);
    for (format, said) in [
        ("table", format!("1 case was {NOT_REACHED}")),
        ("html", format!("\"not_reached\":\"1 case was {NOT_REACHED} ({TENN})\"")),
        ("junit", format!("<skipped message=\"undecided: {NOT_REACHED}\"/>")),
        ("github", "::1 undecided, 1 passed\n".to_owned()),
    ] {
        let text = report(format).stdout;
        assert!(text.contains(&said), "no {said:?} in\n{text}");
    }
    let of_tenn = ["report", "--output", "-", "--model", "tenn_eeg", "--format"];
    for (format, said) in [("table", ""), ("html", format!(" ({TENN})\"],").as_str())] {
        let text = workplace.inferbench(&[&of_tenn[..], &[format]].concat()).finish().with_code(0).stdout;
        assert!(text.contains(&format!("1 case was {NOT_REACHED}{said}")), "{text}");
    }
    report("json").saying(&[&format!(": 1 case was {NOT_REACHED} ({TENN})")]);
    let listed = workplace.inferbench(&["store", "runs"]).finish().with_code(0).stdout;
    assert!(listed.contains(" 1 of 2 "), "{listed}");
    let finished = fs::read(workplace.entry(DIGITS, "new").join(LATENCY_LOG)).unwrap();
    let stopped = workplace.latest_run().read_manifest().unwrap();

    let other = run(&workplace, LONG).arg("--resume").finish().with_code(2);
    other.saying(&["had other settings: it cannot be resumed by this command"]);
    let asked = ["run", "--noplot", "--resume", "--variant", "distilled"];
    let other = workplace.inferbench(&asked).envs(SHORT).finish().with_code(2);
    other.saying(&["had other cases"]);
    assert!(!workplace.path(".prepared/digits.distilled").exists(), "it prepares nothing for a run that it refuses");

    let resumed = run(&workplace, SHORT).arg("--resume").finish().with_code(0);
    resumed.saying(&[&format!("resuming run {}: 1 of 2 cases finished", stopped.run_id)]);
    let records = workplace.records();
    assert_eq!(records.len(), 2);
    for record in &records {
        assert_eq!((record.run_id.as_str(), record.status), (stopped.run_id.as_str(), Status::Ok));
    }
    assert_eq!(fs::read(workplace.entry(DIGITS, "new").join(LATENCY_LOG)).unwrap(), finished);
    let again = run(&workplace, SHORT).arg("--resume").finish().with_code(0);
    again.saying(&["the last one, is complete: nothing is left to do"]);

    // A later run was killed and has no results.
    let killed = workplace.latest_run().path().with_file_name("99990101T000000Z");
    fs::create_dir(&killed).unwrap();
    RunFolder::new(killed).write_manifest(&Manifest { finished: None, ..stopped }).unwrap();
    report("table").saying(&["run 99990101T000000Z was stopped, or is still measuring: `inferbench convert`"]);
}

#[test]
fn weights_that_change_during_a_run_do_not_change_it() {
    let workplace = workplace(&["tenn_eeg", "digits"]);
    let weights = workplace.path("models/trained/digits.safetensors");
    let (mut running, _) = start_to_the_middle(&workplace, SHORT);
    flip_signs(&weights, "fc2.weight");
    let refused = workplace.inferbench(&["prepare"]).finish().with_code(2);
    refused.saying(&["digits in f32: ", ".prepared/digits: a run reads it", "wait for the end of that run"]);
    assert_eq!(running.wait().code(), Some(0));
    assert_eq!((workplace.record(DIGITS).status, workplace.record(DIGITS).verified), (Status::Ok, Some(true)));

    let after = workplace.inferbench(&["run", "--noplot", "^digits/.*/1$"]).finish().with_code(1);
    after.saying(&["preparing digits in f32", "1 of 1 case ran; 1 has wrong outputs"]);
    assert_eq!(workplace.record(DIGITS).status, Status::WrongOutput);
}

/// As if the latest run had been stopped after its last case.
fn stop_the_latest(workplace: &Workplace) {
    let folder = workplace.latest_run();
    let manifest = folder.read_manifest().unwrap();
    folder.write_manifest(&Manifest { is_interrupted: true, ..manifest }).unwrap();
}

/// The graph `two_inputs.onnx` with another operator.
fn with_relu(graph: &[u8]) -> Vec<u8> {
    let mut changed = graph.to_vec();
    let place = changed.windows(4).position(|bytes| bytes == b"Tanh").unwrap();
    changed[place..place + 4].copy_from_slice(b"Relu");
    changed
}

#[test]
fn a_case_whose_file_is_replaced_while_it_is_measured_has_no_figures() {
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    let whole = fs::read(data_folder().join("models/two_inputs.onnx")).unwrap();
    workplace.write("net.onnx", &whole);
    let log = workplace.path("log.txt");
    let arguments = ["run", "--noplot", "--path", "net.onnx", "--iterations", "100000"];
    let mut running = workplace.inferbench(&arguments).start(&log);
    wait_for("the samples of net", || fs::read_to_string(&log).unwrap().contains("calls in").then_some(()));
    workplace.write("net.onnx", with_relu(&whole));
    assert_eq!(running.wait().code(), Some(3));
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("failed: its files have changed during the run"), "{said}");
}

#[test]
fn a_run_of_another_file_is_not_resumed() {
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    let whole = fs::read(data_folder().join("models/two_inputs.onnx")).unwrap();
    for folder in ["a", "b"] {
        fs::create_dir(workplace.path(folder)).unwrap();
        workplace.write(&format!("{folder}/net.onnx"), &whole);
    }
    let run = |path: &str| workplace.inferbench(&["run", "--noplot", "--path", path]);
    run("a/net.onnx").finish().with_code(0);
    stop_the_latest(&workplace);
    let other = run("b/net.onnx").arg("--resume").finish().with_code(2);
    other.saying(&["had other models: it cannot be resumed"]);

    workplace.write("a/net.onnx", with_relu(&whole));
    let other = run("a/net.onnx").arg("--resume").finish().with_code(2);
    other.saying(&["had other files of net (they have changed since): it cannot be resumed"]);

    workplace.write("a/net.onnx", &whole);
    workplace.write("a/net.toml", "[tolerance]\nf32 = 0.5\n");
    let other = run("a/net.onnx").arg("--resume").finish().with_code(2);
    other.saying(&["had other inputs or settings of net (they have changed since): it cannot be resumed"]);

    fs::remove_file(workplace.path("a/net.toml")).unwrap();
    let same = run("a/net.onnx").arg("--resume").finish().with_code(0);
    same.saying(&["resuming run", "1 of 1 case finished"]);
}

#[test]
fn a_run_of_other_weights_or_samples_is_not_resumed() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let suite = fs::read_to_string(workplace.path("models/suites/quick.toml")).unwrap();
    for name in ["own", "other"] {
        fs::copy(workplace.path("models/trained/digits.safetensors"), workplace.path(&format!("{name}.safetensors")))
            .unwrap();
        let weights = format!("\"digits\", weights = '{name}.safetensors'");
        workplace.write(&format!("{name}.toml"), suite.replace("\"digits\"", &weights));
    }
    let samples = workplace.path("models/trained/digits-held-out.safetensors");
    fs::copy(&samples, workplace.path("samples.safetensors")).unwrap();
    fs::copy(&samples, workplace.path("others.safetensors")).unwrap();
    let run = |suite: &str, samples: &str| {
        let source = format!("recorded:{samples}.safetensors");
        workplace.inferbench(&["run", "--noplot", "--suite", suite, "--data-source", &source])
    };
    let refused = |suite: &str, samples: &str, why: &str| {
        run(suite, samples).arg("--resume").finish().with_code(2).saying(&[why, ": it cannot be resumed"]);
    };
    run("own.toml", "samples").finish().with_code(0);
    stop_the_latest(&workplace);
    refused("other.toml", "samples", "had other models");
    refused("own.toml", "others", "had other samples");
    flip_signs(&workplace.path("own.safetensors"), "fc2.weight");
    refused("own.toml", "samples", "had other files of digits (they have changed since)");
    flip_signs(&workplace.path("own.safetensors"), "fc2.weight");
    let whole = fs::read(&samples).unwrap();
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 1;
    workplace.write("samples.safetensors", &changed);
    refused("own.toml", "samples", "had other samples of digits (they have changed since)");
    workplace.write("samples.safetensors", &whole);
    run("own.toml", "samples").arg("--resume").finish().with_code(0);
}
