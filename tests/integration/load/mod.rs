//! Load tests on the real runtimes and against the theory of queues, from the command to the history.
#![cfg(feature = "candle")]

mod sessions;

use inferbench::backend::{self, LoadRequest};
use inferbench::catalogue::read_catalogue;
use inferbench::definition::{Dtype, Phase, Sizes};
use inferbench::fixture::{HostTensor, TensorData, batch, prepare_and_hold};
use inferbench::run_data::{LoadResult, LoadRun, Verdict};

use crate::support::{Run, Workplace, backends_of_networks, left_out, on_one_thread, real_backends, wait_for};

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
    let backends = backends_of_networks();
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
        // A history need not have a run.
        let query = || workplace.inferbench(&["store", "query", sql, "--format", "csv"]).finish().with_code(0);
        let expected = format!("rows,queries\n{},100\n", backends.len());
        assert_eq!(query().stdout, expected);
        workplace.inferbench(&["run", "--model", "digits", "--backend", "candle", "--noplot"]).finish().with_code(0);
        assert_eq!(query().stdout, expected);
    }
}

#[test]
fn scenarios_are_those_of_load_gen() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let one = |arguments: &[&str]| load(&workplace, &[&["--model", "digits"], arguments].concat()).remove(0);
    let single = one(&["--scenario", "single", "--queries", "4000", "--bound", "10s"]);
    assert_eq!((single.queries, single.samples, single.percentile), (4000, 4000, 0.9));
    assert_eq!(single.queue_mean_ms, None);
    // Where the machine pauses again and again, 4,000 calls in a row may be worth fewer than the 44 that it takes.
    let is_worth_enough = single.dependence.unwrap() < 80.0;
    assert!(
        single.verdict == Some(Verdict::Passed) || single.verdict == Some(Verdict::Undecided) && !is_worth_enough,
        "{single:?}"
    );
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
fn one_session_has_several_callers_where_its_library_allows_it() {
    let workplace = Workplace::new(&["digits"], &["null", "candle"], &[1]);
    let users = ["--concurrency", "2", "--queries", "200", "--callers", "2"];
    let with = |more: &[&str]| load(&workplace, &[&users[..], more].concat());
    // A call takes 5 ms, and two are served at once.
    let null = with(&["--backend", "null", "--service-time", "5ms", "--threads", "3"]).remove(0);
    assert_eq!((null.instances, null.threads, null.callers), (1, 3, Some(2)), "{null:?}");
    assert!(null.completed_per_s > 250.0 && null.utilisation <= 1.0, "{null:?}");
    let candle = with(&["--backend", "candle"]).remove(0);
    assert_eq!((candle.status.to_string().as_str(), candle.callers), ("unsupported", Some(2)));
    assert!(candle.message.unwrap().contains("takes one call at a time"));
    for (backend, _) in real_backends().into_iter().filter(|(name, _)| ["ort", "openvino"].contains(name)) {
        let row = with(&["--backend", backend, "--max-batch", "2"]).remove(0);
        assert_eq!((row.status.to_string().as_str(), row.callers, row.unanswered), ("ok", Some(2), 0), "{row:?}");
    }
    let both = ["load", "--concurrency", "2", "--callers", "2", "--instances", "2"];
    workplace.inferbench(&both).finish().with_code(2).saying(&["leave `--instances` out"]);
}

#[test]
fn outputs_that_look_wrong_have_no_figures_under_load() {
    let workplace = Workplace::new(&[], &["candle"], &[1]);
    workplace.add_model("ignores_input.onnx", "models/exported/stuck.onnx");
    let arguments = ["load", "--model", "stuck", "--rate", "50", "--queries", "5", "--p99", "10s", "--format", "json"];
    let run = workplace.inferbench(&arguments).finish().with_code(3);
    let row = serde_json::from_str::<LoadRun>(&run.stdout).unwrap().results.remove(0);
    assert_eq!((row.status.to_string().as_str(), row.verdict, row.queries), ("suspicious", None, 0), "{row:?}");
    assert!(row.message.unwrap().contains("the outputs of different inputs are the same"));
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
    let mut running = workplace.inferbench(&[&arguments[..], &["3s"]].concat()).start(&log);
    wait_for("the second case", || std::fs::read_to_string(&log).ok()?.contains("serving [2/2]").then_some(()));
    running.interrupt();
    assert_eq!(running.wait().code(), Some(130));
    assert!(std::fs::read_to_string(&log).unwrap().contains("load test   "));
    let folder = std::fs::read_dir(workplace.path("target-reports/loads")).unwrap().next().unwrap().unwrap();
    let name = folder.file_name().into_string().unwrap();
    let shown = load(&workplace, &[&name]);
    assert_eq!(shown.iter().map(|row| row.backend.as_str()).collect::<Vec<_>>(), ["null"]);
    workplace.inferbench(&["compare", &name, &name]).finish().with_code(3).saying(&["is on both sides"]);
    for flag in [["--columns", "p95"], ["--allow-different", "host"]] {
        let arguments = [&["compare", name.as_str(), name.as_str()], &flag[..]].concat();
        let refused = workplace.inferbench(&arguments).finish().with_code(2);
        refused.saying(&["`--columns` and `--allow-different` are for runs"]);
    }
}

/// Whether a machine that tests share was so busy that its figures are not those of a queue.
fn is_disturbed(row: &LoadResult, service_ms: f64) -> bool {
    let is_disturbed = row.verdict == Some(Verdict::Invalid) || row.service_mean_ms > 1.03 * service_ms;
    if is_disturbed {
        eprintln!("the machine was too busy: {row:?}");
    }
    is_disturbed
}

/// Pollaczek and Khinchine: the mean wait is λ E[S²] / (2 (1 − ρ)).
#[test]
fn waits_for_a_session_are_those_of_theory() {
    let rate = 250.0;
    for (service_time, second_moment) in [("2ms", 1.0), ("exponential:2ms", 2.0)] {
        // The wait of a trial over what is expected; none if the machine was too busy.
        let ratio = |_: usize| {
            let row = of_null(service_time, &["--rate", "250/s", "--duration", "6s", "--seed", "5"]);
            let service = row.service_mean_ms / 1e3;
            let rho = rate * service;
            let expected_ms = 1e3 * rate * second_moment * service * service / (2.0 * (1.0 - rho));
            let is_quiet = !is_disturbed(&row, if second_moment > 1.0 { 2.2 } else { 2.0 });
            is_quiet.then(|| row.queue_mean_ms.unwrap() / expected_ms)
        };
        // 1,500 arrivals of one seed: the standard error of the mean wait is about a tenth of it. A single pause of 60 ms, which hardly
        // shows in the services, doubles the wait, and a trial on a busy machine tells nothing: then there are two trials more.
        let is_right = |ratio: &Option<f64>| ratio.is_some_and(|ratio| (0.6..1.5).contains(&ratio));
        let mut found = vec![ratio(0)];
        while found.len() < 3 && !found.last().is_some_and(is_right) {
            found.push(ratio(found.len()));
        }
        let is_shown = found.last().is_some_and(is_right);
        // Of two trials on a quiet machine one would be right.
        let quiet = found.iter().flatten().count();
        assert!(is_shown || quiet < 2, "{service_time}: {found:?} of what is expected");
        if !is_shown {
            left_out(format_args!("waits for a session of {service_time}, since the machine was too busy"));
        }
    }
}

/// Checks over seeds are independent of each other only if the services are.
#[test]
fn service_times_follow_the_seed() {
    // Pauses of the machine make calls longer and never shorter: the shortest of three medians is that of the seed.
    let median = |seed: &str| {
        let arguments = ["--scenario", "single", "--queries", "300", "--seed", seed];
        let medians = (0..3).map(|_| of_null("exponential:0.1ms", &arguments).service_p50_ms);
        medians.fold(f64::MAX, f64::min)
    };
    let [first, again, second] = ["1", "1", "2"].map(median);
    assert!((first / again - 1.0).abs() < 0.05, "{first} {again}");
    assert!((first / second - 1.0).abs() > 0.08, "{first} {second}");
}

#[test]
fn a_stall_shows_in_what_users_wait() {
    let row = of_null("0.5ms+100ms/1000", &["--rate", "500/s", "--queries", "4000", "--p99", "20ms"]);
    // On a busy machine the generator is late, too.
    assert!(matches!(row.verdict, Some(Verdict::Failed | Verdict::Invalid)), "{row:?}");
    // On a busy machine some of the services last for milliseconds.
    assert!(row.latency_p99_ms > 50.0 && row.latency_p99_ms > 2.0 * row.service_p99_ms, "{row:?}");
    assert!(row.backlog_most.unwrap() >= 20, "{row:?}");
}

#[test]
fn a_search_finds_the_highest_rate_within_the_bound() {
    let workplace = Workplace::new(&["digits"], &["null"], &[1]);
    let arguments = ["load", "search", "digits", "--backend", "null", "--service-time", "0.4ms"];
    std::fs::write(workplace.path("prices.toml"), "currency = 'USD'\nper_hour = { default = 0.34 }").unwrap();
    let more = ["--percentile", "90", "--bound", "2ms", "--duration", "0.1s", "--queries", "200", "--format", "csv"];
    let more = [&more[..], &["--price", "prices.toml", "--searches", "2"]].concat();
    let searched = |_: usize| {
        let run = workplace.inferbench(&[&arguments[..], &more[..]].concat()).finish();
        let rows: Vec<LoadResult> =
            csv::Reader::from_reader(run.stdout.as_bytes()).deserialize().map(Result::unwrap).collect();
        (run, rows)
    };
    let is_narrow = |highest: &LoadResult| {
        let ends = highest.lowest_failing_rate.zip(highest.rate);
        ends.is_some_and(|(failing, passing)| failing > passing && failing / passing < 1.021)
    };
    // A machine whose speed changes can keep a search from its end, so that it stops with a wider interval, and a busy one has no rate.
    let is_found = |rows: &[LoadResult]| rows.iter().find(|row| row.is_highest).is_some_and(is_narrow);
    let (mut run, mut rows) = searched(0);
    for attempt in 1..3 {
        if !is_found(&rows) {
            (run, rows) = searched(attempt);
        }
    }
    assert!(rows.len() > 3, "{}", run.stderr);
    let Some(highest) = rows.iter().find(|row| row.is_highest) else {
        // Not even the generator was in time.
        run.with_code(4);
        left_out("the highest rate of a search, since the machine was too busy");
        return;
    };
    assert!(is_narrow(highest), "one search of three comes to 2 %: {highest:?}");
    let cost = highest.cost_per_million.unwrap();
    assert!((cost * highest.completed_per_s * 3600.0 / 1e6 / 0.34 - 1.0).abs() < 1e-6, "{highest:?}");
    assert_eq!(highest.loadgen_accepts, Some(true));
    assert_eq!(highest.searches, Some(2));
    let found = highest.found_rate.unwrap();
    if let Some((lower, upper)) = highest.found_rate_lower.zip(highest.found_rate_upper) {
        assert!(lower <= found && found <= upper, "{highest:?}");
    }
    assert!(run.stderr.contains("/s: p90 "), "{}", run.stderr);
    run.with_code(0);
    workplace.inferbench(&["run", "--model", "digits", "--noplot"]).finish().with_code(0);
    workplace.inferbench(&["report", "--charts", "figures"]).finish().with_code(0);
    let chart = std::fs::read_to_string(workplace.path("figures/load.svg")).unwrap();
    assert!(chart.contains("latency under load (ms)") && !chart.contains("NaN"), "{chart}");
}

/// A search that has found `rate`, with its row in the history.
fn write_search(workplace: &Workplace, name: &str, timestamp: &str, host_id: &str, rate: f64) {
    let row = LoadResult {
        run_id: name.into(),
        host_id: host_id.into(),
        case_id: "digits/ort-cpu-f32/1".into(),
        model: "digits".into(),
        backend: "ort".into(),
        variant: "original".into(),
        batch_size: 1,
        rate: Some(rate),
        bound_ms: Some(20.0),
        percentile: 0.99,
        is_of_search: true,
        is_highest: true,
        lowest_failing_rate: Some(1.02 * rate),
        ..LoadResult::default()
    };
    let run = LoadRun {
        run_id: name.into(),
        host_id: host_id.into(),
        timestamp: timestamp.parse().unwrap(),
        results: vec![row],
        ..LoadRun::default()
    };
    inferbench::history::write_load(&workplace.path("target-reports"), &run).unwrap();
}

#[test]
fn a_comparison_fails_if_the_highest_rate_is_lower() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let run = || {
        let arguments = ["run", "--model", "digits", "--backend", "candle", "--noplot"];
        workplace.inferbench(&arguments).finish().with_code(0);
        let listed = workplace.inferbench(&["store", "runs", "--format", "json"]).finish().with_code(0);
        let runs: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
        let newest = runs.as_array().unwrap().last().unwrap();
        let of = |key: &str| newest[key].as_str().unwrap().to_owned();
        (of("run_id"), of("timestamp"), of("host_id"))
    };
    let (base, base_time, host) = run();
    write_search(&workplace, "load-1", &base_time, &host, 400.0);
    let (new, new_time, _) = run();
    assert!(new_time > base_time, "{base_time} {new_time}");
    write_search(&workplace, "load-2", &new_time, &host, 160.0);
    for sides in [["load-1", "load-2"], [base.as_str(), new.as_str()]] {
        let compare = |sides: [&str; 2], tolerance: &str| {
            workplace.inferbench(&["compare", sides[0], sides[1], "--tolerance", tolerance]).finish()
        };
        let lower = compare(sides, "5%").with_code(1);
        assert!(lower.stdout.contains("400/s") && lower.stdout.contains("160/s"), "{}", lower.stdout);
        assert!(lower.stdout.contains("lower"), "{}", lower.stdout);
        // A slower machine may make the times of the two runs differ, too.
        let higher = compare([sides[1], sides[0]], "90%");
        assert!(!higher.stdout.contains("lower rate") && higher.stdout.contains("2.50"), "{}", higher.stdout);
    }
    // One load test per side does not show a quarter, and three do; those of a side are separated by commas.
    for (number, rate) in [402.0, 398.0, 301.0, 300.0, 299.0].into_iter().enumerate() {
        write_search(&workplace, &format!("other-{number}"), "2020-01-01T00:00:00Z", &host, rate);
    }
    workplace.inferbench(&["compare", "load-1", "other-3"]).finish().with_code(0);
    let sides = ["load-1,other-0,other-1", "other-2,other-3,other-4"];
    let several = workplace.inferbench(&["compare", sides[0], sides[1]]).finish().with_code(1);
    assert!(several.stdout.contains("0.75") && several.stdout.contains("3, 3"), "{}", several.stdout);
    workplace.inferbench(&["compare", "load-1, other-0", "other-3"]).finish().with_code(0);
    write_search(&workplace, "elsewhere", "2020-01-01T00:00:00Z", "another-host", 300.0);
    let apart = workplace.inferbench(&["compare", "load-1", "elsewhere"]).finish().with_code(3);
    apart.saying(&["no search of a case in common"]);
    for sides in [["load-1", base.as_str()], [base.as_str(), "load-1"]] {
        let mixed = workplace.inferbench(&["compare", sides[0], sides[1]]).finish().with_code(2);
        mixed.saying(&["load-1 is a load test, and the other side is not"]);
    }
}

#[test]
fn a_soak_test_tells_growth_and_drift_in_windows() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let soak = ["load", "--soak", "--duration", "3s", "--model", "digits", "--max-growth", "10GB/h"];
    for arrivals in [&["--rate", "100/s"][..], &["--scenario", "single"], &["--concurrency", "2"]] {
        let run = workplace.inferbench(&[&soak[..], arrivals, &["--format", "json"]].concat()).finish();
        let found: LoadRun = serde_json::from_str(&run.stdout).unwrap();
        let row = &found.results[0];
        assert_eq!(row.status.to_string(), "ok", "{row:?}");
        assert_eq!(found.windows.iter().map(|window| window.queries).sum::<usize>(), row.queries);
        assert_eq!(found.windows.len(), 20);
        let memory: Vec<f64> = found.windows.iter().filter_map(|window| window.memory_mb).collect();
        // The first looks of a busy machine may be late.
        assert!(memory.len() >= 15 && memory.iter().all(|size| *size > 1.0), "{memory:?}");
        // The log of requests is no growth: it would be a megabyte per second for a stream. Three seconds of a busy machine tell the growth
        // itself badly, but not its lower bound.
        let (growth, least) = (row.growth_mb_per_h.unwrap(), row.least_growth_mb_per_h.unwrap());
        assert!(least <= growth && least < 3000.0, "{row:?}");
    }
    let shown = workplace.inferbench(&[&soak[..], &["--rate", "100/s"]].concat()).finish().stdout;
    for text in ["digits/candle-cpu-f32/1: memory grows by ", "; p50 ", "throttl", " … 3.", "memory"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
}

#[test]
fn a_suite_says_the_terms_of_its_load_tests() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let suite = std::fs::read_to_string(workplace.path("models/suites/quick.toml")).unwrap();
    let with = |table: &str| {
        std::fs::write(workplace.path("models/suites/own.toml"), format!("{suite}\n[load]\n{table}")).unwrap();
    };
    let own = ["--suite", "own", "--model", "digits"];
    with("rate = \"40/s\"\nqueries = 30\np99 = \"30s\"\nmax_batch = 2");
    let row = load(&workplace, &own).remove(0);
    assert_eq!((row.rate, row.queries, row.bound_ms, row.most_batch), (Some(40.0), 30, Some(30e3), 2));
    // A flag goes before, and so does what excludes a key.
    let row = load(&workplace, &[&own[..], &["--bound", "10s", "--queries", "10"]].concat()).remove(0);
    assert_eq!((row.rate, row.queries, row.bound_ms, row.percentile), (Some(40.0), 10, Some(10e3), 0.99));
    let row = load(&workplace, &[&own[..], &["--scenario", "single", "--percentile", "90"]].concat()).remove(0);
    assert_eq!((row.rate, row.percentile, row.scenario.to_string().as_str()), (None, 0.9, "single"));
    for (table, message) in [
        ("ratee = 3", "[load] of suite \"own\": there is no key \"ratee\"; there are scenario, rate, concurrency"),
        ("p99 = \"20\"", "no unit; write 20ms"),
        ("rate = [3]", "rate is a text or a number"),
    ] {
        with(table);
        workplace.inferbench(&[&["load"], &own[..]].concat()).finish().with_code(2).saying(&[message]);
    }
    // A result has no larger number.
    let seeded = workplace.inferbench(&["load", "--model", "digits", "--seed", "4294967296"]).finish().with_code(2);
    seeded.saying(&["4294967296 is not in 0..=4294967295"]);
}

#[test]
fn what_cannot_be_asked_for_is_said() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    for (arguments, message) in [
        (&["digits"][..], "the server scenario needs a rate, such as `--rate 300/s`"),
        (&["search", "digits"], "a search needs a bound"),
        (&["--scenario", "offline", "--rate", "3"], "only the server scenario has a rate"),
        (&["--concurrency", "2", "--rate", "3"], "or else `--scenario` and `--concurrency`"),
        (&["http://127.0.0.1:9", "--rate", "3"], "is an address: `inferbench load --url ADDRESS`"),
        (&["--scenario", "single", "--instances", "2"], "leave `--instances` out"),
        (&["--rate", "3", "--service-time", "2ms"], "`--service-time` is for `--backend null`"),
        (&["--rate", "3", "--p99", "20"], "no unit; write 20ms"),
        (&["--rate", "1e9"], "a trial of 10000000000 queries is more than 10000000 queries"),
        (&["--rate", "3", "--max-growth", "50MB/h"], "`--max-growth` is for a soak test: say `--soak`"),
        (&["--soak", "--max-growth", "50MB"], "write it as 50MB/h"),
        (&["search", "--soak", "--p99", "1s"], "a soak test is one trial over a time"),
        (&["--rate", "3", "--searches", "2"], "`--searches` is for a search"),
        (&["--scenario", "concurrent"], "has a number of users: `--concurrency 4`"),
        (&["--rate", "3", "--ttft", "20ms"], "say their number, such as `--output-tokens 16`"),
        (&["--rate", "3", "--output-tokens", "3", "--max-batch", "2"], "leave `--max-batch`"),
        (&["--rate", "3", "--prompt-tokens", "normal:3"], "write a number of tokens, or lognormal:32,0.5"),
        (&["--rate", "3", "--iterations", "20"], "a load test is as long as `--duration` and `--queries` say"),
    ] {
        let arguments: Vec<&str> = ["load"].iter().chain(arguments).copied().collect();
        workplace.inferbench(&arguments).finish().with_code(2).saying(&[message]);
    }
    // Variables that people export for `cargo bench` are not refused.
    let mut exported = workplace.inferbench(&["load", "digits"]);
    exported.env("INFERBENCH_ITERATIONS", "20").env("INFERBENCH_PROCESSES", "3");
    exported.finish().with_code(2).saying(&["the server scenario needs a rate"]);
}
