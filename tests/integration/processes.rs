//! `run --processes`: each case measured in several processes, what that makes of its row, and what is left if a process is
//! lost or the run is stopped.

use std::fs;

use inferbench::criterion_dir::{LATENCY_LOG, MeasuredEntry, read_entry};
use inferbench::definition::Status;
use inferbench::run_data::Latencies;
use serde_json::Value;

use crate::support::{Run, Running, Workplace, signal, wait_for};

const DIGITS: &str = "digits/candle-cpu-f32/1";
const TENN: &str = "tenn_eeg/candle-cpu-f32/64";

#[track_caller]
fn assert_near(found: Option<f64>, expected: f64) {
    assert!((found.unwrap() / expected - 1.0).abs() < 1e-9, "{found:?} is not {expected}");
}

fn geometric_mean(figures: impl Iterator<Item = f64>) -> f64 {
    let logarithms: Vec<f64> = figures.map(f64::ln).collect();
    (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp()
}

/// The latencies of the latest run's processes, the first one's from Criterion's files.
fn processes(workplace: &Workplace, id: &str) -> Vec<Latencies> {
    let MeasuredEntry { samples_ns, disturbed, .. } = read_entry(&workplace.entry(id, "new")).unwrap();
    let first = Latencies::of_samples(&samples_ns, disturbed.as_deref());
    let further = workplace.latest_run().read_outcomes().unwrap().further.remove(id);
    first.into_iter().chain(further.unwrap_or_default()).collect()
}

#[test]
fn a_row_of_several_processes_is_their_mean_and_brings_its_interval() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1, 8]);
    let run = || workplace.inferbench(&["run", "--noplot", "--processes", "3"]).finish().with_code(0);
    let said = run();
    let base = workplace.latest_run().id();
    let order: Vec<&str> = said.stderr.lines().filter(|line| line.contains(", median ")).collect();
    let ids: Vec<&str> = order.iter().filter_map(|line| line.trim().split(": ").next()).collect();
    let eight = "digits/candle-cpu-f32/8";
    assert_eq!(ids, [DIGITS, eight, DIGITS, eight], "the cases take turns");
    assert!(said.stdout.contains("± of p50") && said.stdout.contains("± "), "{}", said.stdout);

    for (id, batch) in [(DIGITS, 1.0), (eight, 8.0)] {
        let processes = processes(&workplace, id);
        let calls: Vec<usize> = processes.iter().map(|process| process.calls).collect();
        let record = workplace.record(id);
        // Criterion chooses the calls per sample of its own process by a single call, which other work may make a short one.
        assert!(calls[0].is_multiple_of(20) && calls[1..] == [20, 20], "{calls:?}");
        assert_eq!((record.status, record.verified, record.iterations), (Status::Ok, Some(true), Some(calls[0])));
        assert_eq!(record.processes, Some(3));
        assert_near(record.latency_p50_ms, geometric_mean(processes.iter().map(Latencies::p50_ms)));
        let mean = geometric_mean(processes.iter().map(|process| process.mean_ms));
        assert_near(record.latency_mean_ms, mean);
        assert_near(record.throughput_ips, batch / mean * 1e3);
        assert_near(record.criterion_mean_ms, processes[0].mean_ms);
        let (lower, upper) = Latencies::interval(&processes, Latencies::p50_ms, 0.95).unwrap();
        assert_near(record.latency_p50_interval_lower_ms, lower);
        assert_near(record.latency_p50_interval_upper_ms, upper);
        let (shortest, longest) = Latencies::interval(&processes, |process| process.mean_ms, 0.95).unwrap();
        assert_near(record.throughput_lower_ips, batch / longest * 1e3);
        assert_near(record.throughput_upper_ips, batch / shortest * 1e3);
    }

    let before = workplace.record(DIGITS);
    run();
    let after = workplace.record(DIGITS);
    let compared = workplace.inferbench(&["compare", &base, &after.run_id, "--format", "json"]).finish();
    let compared: Value = serde_json::from_str(&compared.stdout).unwrap();
    let latency = &compared["cases"][0]["latency"];
    for (side, record) in [("base_noise", &before), ("candidate_noise", &after)] {
        let noise = &latency[side];
        assert_eq!(
            (&noise["source"], &noise["freedom"], &noise["runs"]),
            (&"processes".into(), &2.0.into(), &3.into())
        );
        // t(0.975; 2) = 4.302653.
        let width = record.latency_p50_interval_upper_ms.unwrap() / record.latency_p50_interval_lower_ms.unwrap();
        assert!((noise["deviation"].as_f64().unwrap() / (width.ln() / 2.0 / 4.302_653) - 1.0).abs() < 1e-4, "{noise}");
    }
    let errors = ["base_noise", "candidate_noise"].map(|side| latency[side]["deviation"].as_f64().unwrap().powi(2));
    let interval = |name: &str| latency["interval"][name].as_f64().unwrap();
    assert_near(Some(interval("ratio")), after.latency_p50_ms.unwrap() / before.latency_p50_ms.unwrap());
    // Welch's test: t(0.995; 2) and t(0.995; 4) are the bounds of its quantile.
    let quantile = (interval("upper") / interval("lower")).ln() / 2.0 / (errors[0] + errors[1]).sqrt();
    assert!((4.604..9.926).contains(&quantile), "{quantile}");
    let table = workplace.inferbench(&["compare", &base, &after.run_id]).finish();
    assert!(table.stdout.contains("2 cases: noise from the processes of each row"), "{}", table.stdout);
}

#[test]
fn suite_variable_and_dry_run_know_the_processes() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let seconds = |processes: &str| {
        let planned =
            workplace.inferbench(&["run", "--dry-run", "--processes", processes]).finish().with_code(0).stdout;
        let seconds = planned.lines().next().unwrap().strip_suffix(" s").unwrap().split_whitespace().next_back();
        seconds.unwrap().parse::<f64>().unwrap()
    };
    assert!((seconds("4") / seconds("1") - 4.0).abs() < 0.1);
    workplace.inferbench(&["run", "--processes", "0"]).finish().with_code(2).saying(&["processes is a number from 1"]);

    let suite = workplace.path("models/suites/quick.toml");
    let text = fs::read_to_string(&suite).unwrap().replace("[effort]\n", "[effort]\nprocesses = 2\n");
    fs::write(suite, text).unwrap();
    workplace.bench(&["--noplot"]).env("INFERBENCH_SHUFFLE", "1").finish().with_code(0);
    assert_eq!(processes(&workplace, DIGITS).len(), 2);
    workplace.bench(&["--noplot"]).env("INFERBENCH_PROCESSES", "1").finish().with_code(0);
    assert_eq!(processes(&workplace, DIGITS).len(), 1);
}

/// A case of an instant, and one of a second.
fn start(workplace: &Workplace, arguments: &[&str], log: &str) -> Running {
    let cases = "^digits/.*/1$|^tenn_eeg/.*/64$";
    let mut run = workplace.inferbench(&[&["run", "--noplot", "--processes", "3", cases], arguments].concat());
    run.env("INFERBENCH_ITERATIONS", "5000").env("INFERBENCH_BUDGET", "1").start(&workplace.path(log))
}

/// Waits until digits was measured by a further process for so many times, and tenn_eeg is being measured.
fn wait_for_digits(workplace: &Workplace, log: &str, times: usize) {
    let log = workplace.path(log);
    let measured = format!("{DIGITS}: ");
    wait_for("a further process", || {
        let text = fs::read_to_string(&log).unwrap();
        (text.matches(&measured).count() == times).then_some(())
    });
}

#[test]
fn a_stopped_run_goes_on_with_the_processes_that_it_lacks() {
    let workplace = Workplace::new(&["digits", "tenn_eeg"], &["candle"], &[1, 64]);
    let counts = || [DIGITS, TENN].map(|id| processes(&workplace, id).len());
    let mut run = start(&workplace, &[], "first.txt");
    wait_for_digits(&workplace, "first.txt", 1);
    run.kill();
    run.wait();
    assert_eq!(counts(), [2, 1]);
    let kept = fs::read(workplace.entry(DIGITS, "new").join(LATENCY_LOG)).unwrap();
    let known = processes(&workplace, DIGITS);

    let mut run = start(&workplace, &["--resume"], "second.txt");
    wait_for_digits(&workplace, "second.txt", 1);
    run.interrupt();
    assert_eq!(run.wait().code(), Some(130));
    assert_eq!((counts(), workplace.record(DIGITS).processes), ([3, 2], Some(3)));
    assert_eq!(workplace.record(TENN).processes, Some(2));

    assert_eq!(start(&workplace, &["--resume"], "third.txt").wait().code(), Some(0));
    assert_eq!([DIGITS, TENN].map(|id| workplace.record(id).processes), [Some(3); 2]);
    assert_eq!(fs::read(workplace.entry(DIGITS, "new").join(LATENCY_LOG)).unwrap(), kept);
    assert_eq!(processes(&workplace, DIGITS)[..2], known);
}

#[test]
fn a_process_that_is_lost_is_started_once_more() {
    let workplace = Workplace::new(&["digits", "tenn_eeg"], &["candle"], &[1, 64]);
    let mut run = start(&workplace, &[], "log.txt");
    let lost = || fs::read_to_string(workplace.path("log.txt")).unwrap().matches("process 2 is lost: ").count();
    wait_for_digits(&workplace, "log.txt", 1);
    let mut killed = None;
    for times in 1..=2 {
        let child = wait_for("another process", || Some(run.child()).filter(|child| Some(*child) != killed));
        signal("KILL", &child.to_string());
        killed = Some(child);
        wait_for("the loss", || (lost() == times).then_some(()));
    }
    assert_eq!(run.wait().code(), Some(0));
    let rows = [DIGITS, TENN].map(|id| workplace.record(id));
    assert_eq!(rows.map(|row| (row.status, row.processes)), [(Status::Ok, Some(3)), (Status::Ok, Some(1))]);
}
