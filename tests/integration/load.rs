//! Load tests on the real runtimes and against the theory of queues, from the command to the history.
#![cfg(feature = "candle")]

use inferbench::run_data::{LoadResult, LoadRun, Verdict};

use crate::support::{Run, Workplace, real_backends, wait_for};

fn load(workplace: &Workplace, arguments: &[&str]) -> Vec<LoadResult> {
    let arguments: Vec<&str> = ["load", "--format", "json"].iter().chain(arguments).copied().collect();
    let run = workplace.inferbench(&arguments).finish();
    assert!(!run.stdout.is_empty(), "{}", run.stderr);
    serde_json::from_str::<LoadRun>(&run.stdout).unwrap().results
}

fn of_null(service_time: &str, others: &[&str]) -> LoadResult {
    let workplace = Workplace::new(&["digits"], &["null"], &[1]);
    let own = ["--model", "digits", "--backend", "null", "--service-time", service_time];
    load(&workplace, &[&own, others].concat()).remove(0)
}

#[test]
fn every_backend_answers_requests_that_arrive_by_a_schedule() {
    let backends: Vec<_> = real_backends().into_iter().filter(|(_, is_here)| *is_here).map(|(name, _)| name).collect();
    let workplace = Workplace::new(&["digits"], &backends, &[8]);
    let results = load(&workplace, &["--rate", "200/s", "--queries", "100", "--seed", "3", "--model", "digits"]);
    assert_eq!(results.len(), backends.len());
    for row in &results {
        let id = &row.case_id;
        assert_eq!(row.status.to_string(), "ok", "{id}: {:?}", row.message);
        assert_eq!((row.queries, row.unanswered, row.batch_size), (100, 0, 1), "{id}");
        // Of these arrivals, whatever the backend is.
        assert_eq!(row.scheduled_per_s, results[0].scheduled_per_s, "{id}");
        assert!(row.latency_p50_ms <= row.latency_p99_ms && row.service_p50_ms <= row.latency_p99_ms, "{id}: {row:?}");
        let parts = row.queue_mean_ms.unwrap() + row.service_mean_ms;
        assert!((row.latency_mean_ms / parts - 1.0).abs() < 1e-6, "{id}: {row:?}");
        assert!(row.memory_mb.unwrap() > 1.0 && row.issue_lag_p99_us.is_some(), "{id}");
    }
    let folder = std::fs::read_dir(workplace.path("target-reports/loads")).unwrap().next().unwrap().unwrap().path();
    assert!(folder.join("load.json").is_file() && folder.join("load_results.parquet").is_file());
    #[cfg(feature = "duckdb")]
    {
        let sql = "SELECT count(*) AS rows, min(queries) AS queries FROM load_results";
        // A history has at least one run.
        workplace.inferbench(&["run", "--model", "digits", "--backend", "candle", "--noplot"]).finish().with_code(0);
        let answer = workplace.inferbench(&["store", "query", sql, "--format", "csv"]).finish().with_code(0);
        assert_eq!(answer.stdout, format!("rows,queries\n{},100\n", backends.len()));
    }
}

#[test]
fn scenarios_are_those_of_load_gen() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let one = |arguments: &[&str]| load(&workplace, &[&["--model", "digits"], arguments].concat()).remove(0);
    let single = one(&["--scenario", "single", "--queries", "200", "--bound", "10s"]);
    assert_eq!((single.queries, single.samples, single.percentile), (200, 200, 0.9));
    assert_eq!((single.verdict, single.queue_mean_ms), (Some(Verdict::Passed), None));
    let multi = one(&["--scenario", "multi", "--queries", "20"]);
    assert_eq!((multi.queries, multi.samples, multi.percentile), (20, 160, 0.99));
    assert!(multi.samples_per_s > 7.9 * multi.completed_per_s);
    let offline = one(&["--scenario", "offline", "--queries", "64", "--max-batch", "8", "--instances", "2"]);
    assert_eq!((offline.queries, offline.instances, offline.mean_batch), (64, 2, 8.0));
    let decided = one(&["--scenario", "single", "--queries", "20", "--bound", "10s"]);
    assert_eq!(decided.verdict, Some(Verdict::Undecided));
    assert!(decided.message.unwrap().contains("44 queries would show that p90 is within it"));
}

#[test]
fn calls_may_go_from_host_to_host_and_make_tokens() {
    let workplace = Workplace::new(&["digits", "llama-small"], &["candle"], &[1]);
    let from_host =
        ["--model", "digits", "--boundary", "end-to-end", "--rate", "100", "--queries", "20", "--max-batch", "3"];
    let row = load(&workplace, &from_host).remove(0);
    assert_eq!((row.status.to_string().as_str(), row.queries), ("ok", 20), "{:?}", row.message);
    let decode = ["--model", "llama-small", "--phase", "decode", "--scenario", "single", "--queries", "5"];
    let row = load(&workplace, &decode).remove(0);
    assert_eq!((row.status.to_string().as_str(), row.queries), ("ok", 5), "{:?}", row.message);
}

#[test]
fn what_was_finished_before_an_interrupt_is_kept_and_shown_again() {
    let workplace = Workplace::new(&["digits"], &["null", "candle"], &[1]);
    let log = workplace.path("log");
    let arguments = ["load", "--scenario", "single", "--model", "digits", "--duration"];
    let mut running = workplace.inferbench(&[&arguments[..], &["1s"]].concat()).start(&log);
    wait_for("the second case", || std::fs::read_to_string(&log).ok()?.contains("serving [2/2]").then_some(()));
    running.interrupt();
    assert_eq!(running.wait().code(), Some(130));
    let folder = std::fs::read_dir(workplace.path("target-reports/loads")).unwrap().next().unwrap().unwrap();
    let name = folder.file_name().into_string().unwrap();
    let shown = load(&workplace, &[&name]);
    assert_eq!(shown.iter().map(|row| row.backend.as_str()).collect::<Vec<_>>(), ["null"]);
    let compared = workplace.inferbench(&["load", &name, &name]).finish().with_code(2);
    compared.saying(&["no search of a case in common"]);
}

/// Whether a machine that tests share was so busy that its figures are not those of a queue.
fn is_disturbed(row: &LoadResult, service_ms: f64) -> bool {
    let is_disturbed = row.verdict == Some(Verdict::Invalid) || row.service_mean_ms > 1.03 * service_ms;
    if is_disturbed {
        eprintln!("left out: the machine was too busy: {row:?}");
    }
    is_disturbed
}

/// Pollaczek and Khinchine: the mean wait is λ E[S²] / (2 (1 − ρ)).
#[test]
fn waits_for_a_session_are_those_of_theory() {
    let rate = 250.0;
    for (service_time, second_moment) in [("2ms", 1.0), ("exponential:2ms", 2.0)] {
        let row = of_null(service_time, &["--rate", "250/s", "--duration", "6s", "--seed", "5"]);
        if is_disturbed(&row, if second_moment > 1.0 { 2.2 } else { 2.0 }) {
            continue;
        }
        let service = row.service_mean_ms / 1e3;
        let rho = rate * service;
        let expected_ms = 1e3 * rate * second_moment * service * service / (2.0 * (1.0 - rho));
        let found = row.queue_mean_ms.unwrap();
        // 1,500 arrivals of one seed: the standard error of the mean wait is about a tenth of it.
        assert!((0.6..1.5).contains(&(found / expected_ms)), "{service_time}: {found} ms and not {expected_ms} ms");
    }
}

#[test]
fn a_stall_shows_in_what_users_wait() {
    let row = of_null("0.5ms+100ms/1000", &["--rate", "500/s", "--queries", "4000", "--p99", "20ms"]);
    // On a busy machine the generator is late, too.
    assert!(matches!(row.verdict, Some(Verdict::Failed | Verdict::Invalid)), "{row:?}");
    assert!(row.latency_p99_ms > 50.0 && row.latency_p99_ms > 5.0 * row.service_p99_ms, "{row:?}");
    assert!(row.backlog_most.unwrap() >= 20, "{row:?}");
}

#[test]
fn a_search_finds_the_highest_rate_within_the_bound() {
    let workplace = Workplace::new(&["digits"], &["null"], &[1]);
    let arguments = ["load", "search", "digits", "--backend", "null", "--service-time", "0.4ms"];
    let more = ["--percentile", "90", "--bound", "2ms", "--duration", "0.1s", "--queries", "200", "--format", "csv"];
    let run = workplace.inferbench(&[&arguments[..], &more[..]].concat()).finish();
    let rows: Vec<LoadResult> =
        csv::Reader::from_reader(run.stdout.as_bytes()).deserialize().map(Result::unwrap).collect();
    assert!(rows.len() > 3, "{}", run.stderr);
    let passed = |row: &&LoadResult| row.verdict == Some(Verdict::Passed);
    match rows.iter().find(|row| row.is_highest) {
        Some(highest) => {
            assert!(passed(&highest));
            let ratio = highest.lowest_failing_rate.unwrap() / highest.rate.unwrap();
            assert!(ratio > 1.0 && ratio < 1.021, "{ratio}");
            assert!(run.stderr.contains("/s: p90 "), "{}", run.stderr);
            run.with_code(0);
            workplace.inferbench(&["run", "--model", "digits", "--noplot"]).finish().with_code(0);
            workplace.inferbench(&["report", "--charts", "figures"]).finish().with_code(0);
            let chart = std::fs::read_to_string(workplace.path("figures/load.svg")).unwrap();
            assert!(chart.contains("latency under load (ms)") && !chart.contains("NaN"), "{chart}");
        }
        None => assert!(run.code == Some(1) || run.code == Some(4), "{}", run.stderr),
    }
}

#[test]
fn what_cannot_be_asked_for_is_said() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    for (arguments, message) in [
        (&["digits"][..], "the server scenario needs a rate, such as `--rate 300/s`"),
        (&["search", "digits"], "a search needs a bound"),
        (&["--scenario", "offline", "--rate", "3"], "only the server scenario has a rate"),
        (&["--scenario", "single", "--instances", "2"], "leave `--instances` out"),
        (&["--rate", "3", "--service-time", "2ms"], "`--service-time` is for `--backend null`"),
        (&["--rate", "3", "--p99", "20"], "no unit; write 20ms"),
        (&["--rate", "1e9"], "a trial of 10000000000 queries is more than 10000000 queries"),
        (&["--rate", "3", "no-such-case"], "no case matches"),
    ] {
        let arguments: Vec<&str> = ["load"].iter().chain(arguments).copied().collect();
        workplace.inferbench(&arguments).finish().with_code(2).saying(&[message]);
    }
}
