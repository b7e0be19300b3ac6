//! Answers are evaluated after a case is finished: what ends the evaluation costs nothing else.

#![cfg(feature = "candle")]

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use inferbench::definition::Status;

use crate::support::{Run, Running, Workplace, data_folder, is_alive, signal, wait_for};

const CASE: &str = "vit-small/candle-cpu-f32/1";
/// Judging them takes a minute and more.
const MANY: usize = 20_000;

/// Judging them takes some seconds.
const SOME: usize = 600;

/// A model of pictures, and a folder of one picture under so many names.
fn workplace(pictures: usize) -> Workplace {
    let workplace = Workplace::new(&["vit-small"], &["candle"], &[1]);
    let classes: Vec<String> = (0..100).map(|place| format!("class{place}")).collect();
    fs::create_dir_all(workplace.path("pictures/class7")).unwrap();
    workplace.write("pictures/classes.txt", classes.join("\n"));
    let picture = workplace.path("pictures/class7/0.png");
    fs::copy(data_folder().join("pictures/bars/small.png"), &picture).unwrap();
    for number in 1..pictures {
        fs::hard_link(&picture, workplace.path(&format!("pictures/class7/{number}.png"))).unwrap();
    }
    workplace
}

fn run(workplace: &Workplace, more: &[&str]) -> Command {
    let arguments = ["run", "--noplot", "--model", "vit-small", "--data-source", "image-folder:pictures"];
    workplace.inferbench(&[&arguments, more].concat())
}

/// Starts a run, and waits until it evaluates answers.
fn start_to_evaluation(workplace: &Workplace, more: &[&str]) -> Running {
    let log = workplace.path("log.txt");
    let running = run(workplace, more).start(&log);
    let is_evaluating = || fs::read_to_string(&log).unwrap().contains(" samples of image-folder ").then_some(());
    wait_for("the evaluation of samples", is_evaluating);
    running
}

#[test]
fn a_process_that_is_killed_while_it_evaluates_has_measured() {
    let workplace = workplace(MANY);
    let mut running = start_to_evaluation(&workplace, &[]);
    signal("KILL", &running.child().to_string());
    assert_eq!(running.wait().code(), Some(0));
    let record = workplace.record(CASE);
    assert!(record.status == Status::Ok && record.latency_p50_ms.is_some() && record.accuracy.is_none(), "{record:?}");
    let message = record.message.unwrap();
    assert!(
        message.contains("its answers were not evaluated: the process was ended by signal 9 (SIGKILL)"),
        "{message}"
    );
}

#[test]
fn a_run_that_is_stopped_while_it_evaluates_keeps_the_measurement_and_is_resumed() {
    let workplace = workplace(SOME);
    let mut running = start_to_evaluation(&workplace, &[]);
    running.interrupt();
    assert_eq!(running.wait().code(), Some(130));
    workplace.inferbench(&["convert"]).finish().with_code(0);
    let record = workplace.record(CASE);
    assert!(record.status == Status::Ok && record.latency_p50_ms.is_some() && record.accuracy.is_none(), "{record:?}");
    assert!(record.message.unwrap().contains("its answers were not evaluated: the run was stopped"));

    let last = workplace.path(&format!("pictures/class7/{}.png", SOME - 1));
    fs::remove_file(&last).unwrap();
    let other = run(&workplace, &["--resume"]).finish().with_code(2);
    other.saying(&["had other samples of vit-small (they have changed since): it cannot be resumed"]);
    fs::hard_link(workplace.path("pictures/class7/0.png"), &last).unwrap();
    run(&workplace, &["--resume"]).finish().with_code(0);
    assert_eq!(workplace.record(CASE).accuracy_samples, Some(SOME as u64));
}

#[test]
fn the_limit_for_a_case_is_none_for_an_evaluation_that_goes_on() {
    let workplace = workplace(MANY);
    // Longer than the pause between two signs of life, which is ten seconds.
    let mut running = start_to_evaluation(&workplace, &["--timeout", "13"]);
    let evaluating = running.child();
    sleep(Duration::from_secs(15));
    assert!(is_alive(evaluating), "{}", fs::read_to_string(workplace.path("log.txt")).unwrap());
    // It comes to its end, since the other pictures cannot be read.
    fs::rename(workplace.path("pictures/class7"), workplace.path("gone")).unwrap();
    assert_eq!(running.wait().code(), Some(0));
    let record = workplace.record(CASE);
    assert!(record.accuracy_samples.is_some_and(|samples| (1..MANY as u64).contains(&samples)), "{record:?}");
    assert!(record.message.as_ref().unwrap().contains(" samples could not be read"), "{record:?}");
}
