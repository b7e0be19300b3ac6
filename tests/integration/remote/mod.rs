//! Load tests of servers over HTTP, from the command to the history. Nothing leaves the loopback interface.

mod grpc;
mod limits;
mod secure;
mod server;

use inferbench::load::poisson;
use inferbench::run_data::{LoadResult, LoadRun, ServiceTime, Verdict};
use inferbench::statistics::SortedCalls;

use self::server::{Server, Wrong};
use crate::support::{Finished, Run, Workplace, data_folder, wait_for};

fn workplace() -> Workplace {
    Workplace::new(&["digits"], &["null"], &[1])
}

fn run(workplace: &Workplace, url: &str, arguments: &[&str]) -> Finished {
    let fixed = ["load", "--format", "json", "--url", url];
    // Beside other tests the generator is sometimes late, by less than the allowed fraction of this bound.
    let has_bound = arguments.iter().any(|argument| ["--ttft", "--p99", "--bound"].contains(argument));
    let bound: &[&str] = if has_bound { &[] } else { &["--p99", "60s"] };
    workplace.inferbench(&[&fixed, arguments, bound].concat()).finish()
}

fn rows(finished: &Finished) -> Vec<LoadResult> {
    assert!(!finished.stdout.is_empty(), "{}", finished.stderr);
    serde_json::from_str::<LoadRun>(&finished.stdout).unwrap().results
}

fn load(url: &str, arguments: &[&str]) -> LoadResult {
    rows(&run(&workplace(), url, arguments)).remove(0)
}

#[test]
fn a_server_of_protocol_v2_is_put_under_load_in_every_scenario() {
    let server = Server::start();
    let workplace = workplace();
    for (arguments, queries) in [
        (&["--rate", "200/s", "--queries", "60"] as &[&str], 60),
        (&["--rate", "200/s", "--queries", "60", "--binary"], 60),
        (&["--rate", "100/s", "--queries", "20", "--batch-sizes", "4"], 20),
        (&["--scenario", "single", "--queries", "20"], 20),
        (&["--scenario", "offline", "--queries", "40", "--duration", "0.1ms"], 40),
        (&["--concurrency", "3", "--queries", "30"], 30),
    ] {
        let finished = run(&workplace, &server.url, arguments).with_code(0);
        let row = rows(&finished).remove(0);
        assert_eq!((row.status.to_string().as_str(), row.unanswered), ("ok", 0), "{arguments:?}: {row:?}");
        assert!(row.queries >= queries, "{arguments:?}: {row:?}");
        assert_eq!(row.errors, None);
        assert_eq!(row.statuses, Some(format!("200 × {}", row.queries)), "{arguments:?}");
        assert_eq!(row.server.as_deref(), Some("tests 1.2"));
        assert_eq!(row.library_version.as_deref(), Some("tests 1.2"));
        assert_eq!((row.backend.as_str(), row.model.as_str(), row.device.as_str()), ("http", "double", "tests"));
        assert_eq!(row.case_id, format!("double/http-tests-f32/{}", row.batch_size));
        assert_eq!(row.url.as_deref(), Some(server.url.as_str()));
        let protocol = if arguments.contains(&"--binary") { "v2 binary" } else { "v2 json" };
        assert_eq!(row.protocol.as_deref(), Some(protocol));
        assert!(row.connect_p50_ms.unwrap() > 0.0 && row.first_byte_p99_ms.unwrap() > 0.0, "{row:?}");
        assert!(row.sent_bytes.unwrap() > 0 && row.received_bytes.unwrap() > 0, "{row:?}");
        assert!(row.latency_p50_ms <= row.latency_p99_ms && row.latency_p50_ms >= row.first_byte_p50_ms.unwrap() * 0.5);
    }
    // The history has these load tests, like those of inferbench's own cases.
    let reports = workplace.path("target-reports/loads");
    let name = std::fs::read_dir(reports).unwrap().next().unwrap().unwrap().file_name().into_string().unwrap();
    let shown = workplace.inferbench(&["load", &name]).finish().with_code(0);
    assert!(shown.stdout.contains("tests 1.2 at http://127.0.0.1:"), "{}", shown.stdout);
}

#[test]
fn the_highest_rate_of_a_server_is_searched_for() {
    let server = Server::with_service(Some((ServiceTime::Constant(0.004), 1)));
    let arguments =
        ["--percentile", "90", "--bound", "40ms", "--searches", "1", "--duration", "0.2s", "--connections", "32"];
    let search = || {
        let fixed = ["load", "search", "--format", "json", "--url", &server.url];
        let finished = workplace().inferbench(&[&fixed, &arguments[..]].concat()).finish();
        // Where other work makes the generator late, a test is invalid, and a search ends without a rate.
        finished.stderr.lines().filter(|line| line.contains("invalid")).for_each(|line| println!("{line}"));
        rows(&finished)
    };
    let rows = (0..3).map(|_| search()).find(|rows| rows.iter().any(|row| row.is_highest)).expect("three searches");
    let highest = rows.iter().find(|row| row.is_highest).unwrap();
    // One request after the other takes 4 ms.
    assert!((60.0..255.0).contains(&highest.rate.unwrap()), "{highest:?}");
    assert!(rows.iter().all(|row| row.url.is_some() && row.is_of_search));
}

#[test]
fn every_fault_of_a_server_is_counted_by_its_kind() {
    for (wrong, kind) in [
        (Wrong::Dies, "refused"),
        (Wrong::Hangs, "timeout"),
        (Wrong::Resets, "reset"),
        (Wrong::Closes, "closed"),
        (Wrong::Status(429), "busy"),
        (Wrong::Status(503), "busy"),
        (Wrong::Status(404), "client-error"),
        (Wrong::Status(500), "server-error"),
        (Wrong::HalfAnswer, "truncated"),
        (Wrong::Slow, "timeout"),
        (Wrong::HugeHeader, "head"),
        (Wrong::HugeLength, "too-large"),
        (Wrong::Echoes, "server-error"),
        (Wrong::Redirects, "redirect"),
        (Wrong::NoJson, "wrong-type"),
        (Wrong::NotFinite, "not-finite"),
        (Wrong::OtherShape, "wrong-shape"),
    ] {
        let server = Server::doing(wrong);
        let arguments = ["--rate", "100/s", "--queries", "20", "--patience", "300ms", "--connections", "8"];
        let finished = run(&workplace(), &server.url, &arguments);
        let row = rows(&finished).remove(0);
        let errors = row.errors.clone().unwrap_or_default();
        assert!(errors.contains(&format!("{kind} × ")), "{wrong:?}: {errors}: {row:?}");
        assert_eq!(row.unanswered, 20, "{wrong:?}: {row:?}");
        assert!(row.message.as_ref().unwrap().contains("; the first "), "{wrong:?}: {row:?}");
        let is_wrong_answer = ["wrong-type", "not-finite", "wrong-shape"].contains(&kind);
        assert_eq!(row.status.to_string(), if is_wrong_answer { "wrong-output" } else { "failed" }, "{wrong:?}");
        if let Wrong::Status(status) = wrong {
            assert_eq!(row.statuses, Some(format!("{status} × 20")), "{wrong:?}");
            assert_eq!(row.retry_after_s, Some(1.0), "{wrong:?}");
        }
        assert_ne!(finished.code, Some(0), "{wrong:?}");
    }
}

#[test]
fn a_few_errors_fail_a_trial_and_leave_its_figures() {
    let server = Server::start();
    let (wrong, requests) = (server.wrong.clone(), server.requests.clone());
    std::thread::spawn(move || {
        // However long the program takes to start.
        let is_half = || requests.load(std::sync::atomic::Ordering::SeqCst) >= 150;
        wait_for("half of the requests", || is_half().then_some(()));
        *wrong.lock().unwrap() = Wrong::Status(503);
    });
    let row = load(&server.url, &["--rate", "100/s", "--queries", "300"]);
    assert_eq!((row.status.to_string().as_str(), row.verdict), ("ok", Some(Verdict::Failed)), "{row:?}");
    assert!(row.unanswered > 0 && row.unanswered < 300 && row.latency_p50_ms > 0.0, "{row:?}");
    assert!(row.message.unwrap().contains("busy × "));
}

#[test]
fn no_server_is_a_row_that_says_why() {
    for (url, arguments, kind) in
        [("http://127.0.0.1:9", &[] as &[&str], "refused"), ("http://127.0.0.1:9", &["--concurrency", "2"], "refused")]
    {
        let rate: &[&str] = if arguments.is_empty() { &["--rate", "10/s"] } else { &[] };
        let finished = run(&workplace(), url, &[arguments, rate].concat()).with_code(3);
        let row = rows(&finished).remove(0);
        assert_eq!(row.status.to_string(), "unavailable", "{row:?}");
        assert_eq!(row.errors, Some(format!("{kind} × 1")));
        assert!(row.message.as_ref().unwrap().contains("refused: nothing listens at 127.0.0.1:9"), "{row:?}");
    }
}

#[test]
fn language_models_stream_their_tokens() {
    let server = Server::start();
    let lengths = ["--prompt-tokens", "20", "--output-tokens", "12"];
    for (path, protocol) in [("", "openai chat stream"), ("/v1/completions", "openai completions stream")] {
        let url = format!("{}{path}", server.url);
        let arguments = ["--rate", "40/s", "--queries", "40", "--ttft", "1s", "--protocol"];
        let name = if path.is_empty() { "chat" } else { "completions" };
        let row = load(&url, &[&arguments[..], &[name], &lengths].concat());
        assert_eq!((row.status.to_string().as_str(), row.unanswered), ("ok", 0), "{row:?}");
        assert_eq!(row.protocol.as_deref(), Some(protocol));
        assert_eq!((row.model.as_str(), row.server.as_deref()), ("tiny-lm", Some("vllm 0.9")));
        // Two tokens come in an event: the server's count is right.
        assert_eq!((row.output_tokens, row.prompt_tokens), (Some(40 * 12), Some(40 * 40)));
        assert_eq!(row.tokens_by.as_deref(), Some("usage"));
        let (ttft, tpot, itl) = (row.ttft_p50_ms.unwrap(), row.tpot_p50_ms.unwrap(), row.itl_p50_ms.unwrap());
        // Six events are two milliseconds apart.
        assert!(ttft >= 2.0 && tpot >= 5.0 * 2.0 / 11.0 && itl >= 1.8, "{ttft} {tpot} {itl}");
        assert!(row.latency_p50_ms >= 12.0, "{row:?}");
    }
    let silent = Server::doing(Wrong::NoUsage);
    let url = format!("{}/v1/completions", silent.url);
    let tokenizer = data_folder().join("tokenizer.json").display().to_string();
    for (counted_by, flags) in [("events", &[] as &[&str]), ("tokenizer ", &["--tokenizer", &tokenizer])] {
        let row = load(&url, &[&["--concurrency", "1", "--queries", "5"], &lengths[..], flags].concat());
        assert!(row.tokens_by.as_ref().unwrap().starts_with(counted_by), "{row:?}");
        // Six events have two words each.
        let (events, prompts) = (6 * row.queries, 20 * row.queries);
        match flags {
            [] => assert_eq!((row.output_tokens, row.prompt_tokens), (Some(events), None), "{row:?}"),
            _ => assert!(row.output_tokens.unwrap() > events && row.prompt_tokens.unwrap() >= prompts, "{row:?}"),
        }
    }
    let url = format!("{}/v1/completions", server.url);
    let workplace = workplace();
    workplace.write("texts.txt", "one two three\nfour\n");
    let row = rows(&run(&workplace, &url, &["--concurrency", "1", "--queries", "5", "--text", "texts.txt"])).remove(0);
    assert_eq!((row.status.to_string().as_str(), row.lengths.as_deref()), ("ok", Some("texts → 16")), "{row:?}");
    let whole = load(&url, &["--concurrency", "2", "--queries", "10", "--no-stream"]);
    assert_eq!((whole.output_tokens.unwrap() / whole.queries, whole.ttft_p50_ms), (3, None), "{whole:?}");
    assert_eq!(whole.protocol.as_deref(), Some("openai completions"));
    let embeddings =
        load(&format!("{}/v1/embeddings", server.url), &["--rate", "50/s", "--queries", "10", "--batch-sizes", "3"]);
    assert_eq!((embeddings.status.to_string().as_str(), embeddings.batch_size), ("ok", 3), "{embeddings:?}");
}

#[test]
fn faults_of_streams_are_counted() {
    for (wrong, kind) in
        [(Wrong::NoEnd, "no-end"), (Wrong::HalfAnswer, "truncated"), (Wrong::ErrorInStream, "server-error")]
    {
        let server = Server::doing(wrong);
        let row = load(&format!("{}/v1/chat/completions", server.url), &["--rate", "50/s", "--queries", "10"]);
        assert_eq!(row.errors, Some(format!("{kind} × 10")), "{wrong:?}: {row:?}");
        assert_eq!(row.unanswered, 10);
    }
    let server = Server::doing(Wrong::StaysOpen);
    let row = load(&format!("{}/v1/chat/completions", server.url), &["--concurrency", "1", "--queries", "5"]);
    assert_eq!((row.errors.as_deref(), row.unanswered), (None, 0), "{row:?}");
    assert!(row.latency_p50_ms < 150.0, "{row:?}");
}

#[test]
fn wrong_values_are_found_and_never_ranked() {
    let workplace = workplace();
    let tensors = |factor: f32| {
        let values: Vec<f32> = (0..16).map(|value| 0.3 * value as f32 - 1.0).collect();
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let (x, y) = (bytes(&values), bytes(&values.iter().map(|value| factor * value).collect::<Vec<_>>()));
        let view = |bytes| safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![8, 2], bytes).unwrap();
        let tensors = [("input.x".to_owned(), view(&x)), ("output.y".to_owned(), view(&y))];
        safetensors::serialize(tensors, None).unwrap()
    };
    workplace.write("right.safetensors", tensors(2.0));
    workplace.write("wrong.safetensors", tensors(2.2));
    let server = Server::start();
    let arguments = |file| ["--reference", file, "--rate", "100/s", "--queries", "20"];
    run(&workplace, &server.url, &arguments("right.safetensors")).with_code(0);
    let finished = run(&workplace, &server.url, &arguments("wrong.safetensors")).with_code(1);
    let row = rows(&finished).remove(0);
    assert_eq!(row.status.to_string(), "wrong-output");
    assert!(row.message.unwrap().contains("wrong-values"));
    // Answers that become wrong in the middle.
    let server = Server::doing(Wrong::OtherValues);
    let row = rows(&run(&workplace, &server.url, &arguments("right.safetensors")).with_code(1)).remove(0);
    assert_eq!((row.status.to_string().as_str(), row.errors.as_deref()), ("wrong-output", Some("wrong-values × 20")));
}

#[test]
fn samples_of_a_file_take_turns_as_inputs() {
    let workplace = workplace();
    let values: Vec<u8> = [1.5_f32, 2.0, 3.5, 4.0, 5.5, 6.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![3, 2], &values).unwrap();
    workplace.write("samples.safetensors", safetensors::serialize([("input.x".to_owned(), view)], None).unwrap());
    let server = Server::start();
    let arguments = ["--rate", "200/s", "--queries", "30", "--data-source", "recorded:samples.safetensors"];
    run(&workplace, &server.url, &arguments).with_code(0);
    let bodies = std::mem::take(&mut *server.bodies.lock().unwrap());
    let data =
        |body: &Vec<u8>| serde_json::from_slice::<serde_json::Value>(body).unwrap()["inputs"][0]["data"].to_string();
    let sent: std::collections::BTreeSet<String> = bodies.iter().map(data).collect();
    assert_eq!(sent.into_iter().collect::<Vec<_>>(), ["[1.5,2.0]", "[3.5,4.0]", "[5.5,6.0]"]);
    let url = format!("{}/v1/completions", server.url);
    run(&workplace, &url, &arguments).with_code(2).saying(&["--data-source", "protocols v2 and grpc"]);
}

#[test]
fn no_request_is_like_another_one() {
    let server = Server::start();
    let arguments =
        ["--percentile", "90", "--bound", "2s", "--searches", "2", "--duration", "0.2s", "--max-rate", "900/s"];
    let search = [&["load", "search", "--format", "json", "--url", &server.url], &arguments[..]].concat();
    let rows = rows(&workplace().inferbench(&search).finish());
    // No rate is above the limit.
    assert!(rows.iter().all(|row| row.rate.unwrap() <= 900.0), "{rows:?}");
    let contents = |server: &Server, content: fn(&serde_json::Value) -> String| {
        let bodies = std::mem::take(&mut *server.bodies.lock().unwrap());
        let all: Vec<String> = bodies.iter().map(|body| content(&serde_json::from_slice(body).unwrap())).collect();
        (all.len(), all.into_iter().collect::<std::collections::BTreeSet<_>>().len())
    };
    let (requests, different) = contents(&server, |body| body["inputs"][0]["data"].to_string());
    assert!(requests > 500 && different == requests, "{different} of {requests}");
    let url = format!("{}/v1/completions", server.url);
    load(&url, &["--rate", "100/s", "--queries", "40", "--no-stream"]);
    let (requests, different) = contents(&server, |body| body["prompt"].to_string());
    assert_eq!((requests, different), (43, 43));
    let url = format!("{}/v1/embeddings", server.url);
    load(&url, &["--scenario", "multi", "--queries", "5"]);
    let (requests, different) = contents(&server, |body| body["input"].to_string());
    assert_eq!((requests, different), (43, 43));
}

#[test]
fn what_a_server_asks_to_wait_for_is_in_no_latency() {
    let server = Server::doing(Wrong::BusyAt(6));
    let row = load(&server.url, &["--concurrency", "1", "--queries", "10"]);
    assert_eq!((row.queries, row.unanswered, row.errors.as_deref()), (10, 1, Some("busy × 1")), "{row:?}");
    assert_eq!((row.retry_after_s, row.statuses.as_deref()), (Some(1.0), Some("200 × 9, 503 × 1")));
    assert!(row.seconds >= 1.0 && row.latency_max_ms < 900.0, "{row:?}");
    // The pause is longer than the rest of the trial, in which no request could be sent.
    let server = Server::doing(Wrong::BusyAt(6));
    let row = load(&server.url, &["--concurrency", "1", "--duration", "500ms"]);
    assert!(row.seconds >= 0.5, "{row:?}");
    // A query of eight samples has no answer if one sample is refused.
    let server = Server::doing(Wrong::BusyAt(6));
    let row = load(&server.url, &["--scenario", "multi", "--queries", "4"]);
    assert_eq!((row.queries, row.unanswered, row.errors.as_deref()), (4, 1, Some("busy × 1")), "{row:?}");
}

#[test]
fn what_may_have_been_processed_is_not_sent_again() {
    let requests = |server: &Server| server.requests.load(std::sync::atomic::Ordering::SeqCst);
    let server = Server::doing(Wrong::Closes);
    let row = load(&server.url, &["--concurrency", "1", "--queries", "10"]);
    assert_eq!((row.errors.as_deref(), requests(&server)), (Some("closed × 9, stale × 1"), 13), "{row:?}");
    // A connection that was closed while it was idle is no fault of a request.
    let server = Server::doing(Wrong::ClosesAfter);
    let row = load(&server.url, &["--rate", "50/s", "--queries", "40", "--connections", "4"]);
    assert_eq!((row.errors.as_deref(), row.unanswered, requests(&server)), (None, 0, 43), "{row:?}");
    assert!(row.connects.unwrap() >= 39, "{row:?}");
}

#[test]
fn what_is_secret_is_sent_and_kept_nowhere() {
    let server = Server::start();
    let workplace = workplace();
    workplace.write("token", "s3cret-t0ken\n");
    workplace.write("headers", "x-api-key: s3cret-k3y\n");
    let url = format!("{}/?code=s3cret-query", server.url);
    let arguments =
        ["--rate", "100/s", "--queries", "10", "--token", "token", "--headers", "headers", "--model", "double"];
    let finished = run(&workplace, &url, &arguments).with_code(0);
    // A server may repeat what it was sent.
    *server.wrong.lock().unwrap() = Wrong::Echoes;
    let echoed = run(&workplace, &url, &arguments);
    let message = rows(&echoed).remove(0).message.unwrap();
    assert!(message.contains("[31mno: POST") && message.contains("***") && message.chars().count() < 450, "{message}");
    assert!(!echoed.stdout.contains("s3cret") && !message.contains(char::is_control), "{message:?}");
    let heads = server.heads.lock().unwrap().join("\n");
    for sent in ["authorization: Bearer s3cret-t0ken", "x-api-key: s3cret-k3y", "?code=s3cret-query"] {
        assert!(heads.contains(sent), "{heads}");
    }
    assert!(!finished.stdout.contains("s3cret") && !finished.stderr.contains("s3cret"), "{}", finished.stderr);
    for file in walkdir::WalkDir::new(workplace.path("target-reports")).into_iter().flatten() {
        let content = std::fs::read(file.path()).unwrap_or_default();
        assert!(!content.windows(6).any(|part| part == b"s3cret"), "{}", file.path().display());
    }
}

#[test]
fn an_interrupt_keeps_what_was_measured() {
    let server = Server::start();
    let workplace = workplace();
    let log = workplace.path("log");
    let arguments = ["load", "--url", &server.url, "--rate", "50/s", "--duration", "60s"];
    let mut running = workplace.inferbench(&arguments).start(&log);
    wait_for("some requests", || (server.requests.load(std::sync::atomic::Ordering::SeqCst) > 30).then_some(()));
    running.interrupt();
    assert_eq!(running.wait().code(), Some(130));
    let folder = std::fs::read_dir(workplace.path("target-reports/loads")).unwrap().next().unwrap().unwrap().path();
    let kept: LoadRun = serde_json::from_slice(&std::fs::read(folder.join("load.json")).unwrap()).unwrap();
    let row = &kept.results[0];
    assert!(row.ended_early && row.queries > 20 && row.message.as_ref().unwrap().contains("interrupted"), "{row:?}");
}

#[test]
fn any_other_protocol_is_described_by_a_template_and_arrivals_by_a_trace() {
    let server = Server::start();
    let workplace = workplace();
    workplace.write(
        "template.toml",
        r#"
            path = "/predict"
            body = '{"instances": {{tensor}}, "text": "{{text}}", "id": {{number}}}'
            tensor = "x:f32[batch,3]"
            answer = "/predictions/0"
            model = "linear"
            [headers]
            content-type = "application/json"
        "#,
    );
    workplace.write("trace.csv", "time\n0\n0.05\n0.06\n0.30\n");
    let arguments = ["--template", "template.toml", "--trace", "trace.csv"];
    let row = rows(&run(&workplace, &server.url, &arguments).with_code(0)).remove(0);
    assert_eq!((row.case_id.as_str(), row.queries), ("linear/http-server-f32/1", 4), "{row:?}");
    assert!((row.rate.unwrap() - 10.0).abs() < 1e-6 && row.seconds >= 0.3, "{row:?}");
    let wrong = workplace.path("template.toml");
    std::fs::write(&wrong, std::fs::read_to_string(&wrong).unwrap().replace("/predictions/0", "/answers")).unwrap();
    let row = rows(&run(&workplace, &server.url, &arguments).with_code(1)).remove(0);
    assert_eq!(row.status.to_string(), "wrong-output", "{row:?}");
    // A trace is for cases of this program, too.
    let own = ["load", "--format", "json", "--model", "digits", "--backend", "null", "--trace", "trace.csv"];
    // The verdict depends on how busy the machine is.
    let row = rows(&workplace.inferbench(&own).finish()).remove(0);
    assert_eq!((row.queries, row.backend.as_str(), row.status.to_string().as_str()), (4, "null", "ok"));
    workplace.write("lengths.csv", "time,input,output\n0,8,4\n0.02,16,6\n");
    let url = format!("{}/v1/chat/completions", server.url);
    let row = rows(&run(&workplace, &url, &["--trace", "lengths.csv"]).with_code(0)).remove(0);
    assert_eq!((row.queries, row.output_tokens), (2, Some(10)), "{row:?}");
}

/// The latencies, in nanoseconds, of requests that arrive by this seed and are served one after the other for these
/// times (Lindley 1952, "The theory of queues with a single server").
fn of_queue(rate: f64, seed: u64, services: &[u64]) -> SortedCalls {
    let mut free = 0;
    let latency = |(arrival, service): (u64, &u64)| {
        free = free.max(arrival) + service;
        free - arrival
    };
    SortedCalls::new(poisson(rate, seed, services.len()).into_iter().zip(services).map(latency).collect()).unwrap()
}

/// A load test, and the ratios of its p50 and p99 to those of a queue with the same arrivals and the server's own
/// service times. The ratios show what HTTP and the client add.
fn beside_queue(utilisation: f64, service: ServiceTime, seconds: f64, queries: usize) -> (LoadResult, [f64; 2]) {
    let rate = utilisation / seconds;
    let server = Server::with_service(Some((service, 1)));
    let arguments =
        ["--rate", &rate.to_string(), "--queries", &queries.to_string(), "--duration", "1ms", "--connections", "200"];
    let row = load(&server.url, &arguments);
    // The client warms up with three requests.
    let queue = of_queue(rate, 1, &server.served.lock().unwrap()[3..]);
    let [p50, p99] = [0.5, 0.99].map(|p| queue.percentile(p) as f64 / 1e6);
    let ratios = [row.latency_p50_ms / p50, row.latency_p99_ms / p99];
    (row, ratios)
}

#[test]
fn latencies_are_those_of_the_servers_queue() {
    let service = ServiceTime::Constant(0.02);
    // A machine that tests share pauses now and then, and is slow to wake threads.
    let is_right = |_: usize| {
        let (row, ratios) = beside_queue(0.6, service, 0.02, 100);
        let is_right = ratios.iter().all(|ratio| (0.99..1.25).contains(ratio));
        if !is_right {
            eprintln!("{ratios:?}: {row:?}");
        }
        is_right
    };
    assert!((0..3).any(is_right));
}

#[test]
#[ignore = "prints the table of the guide"]
fn print_latencies_beside_those_of_queues() {
    println!(
        "| queue | busy | requests | p50 | p99 | p50 over that of the queue | p99 over that of the queue | lag p50 | lag p99 |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let show = |name: &str, utilisation: f64, service: ServiceTime, seconds: f64, queries: usize| {
        let (row, [p50, p99]) = beside_queue(utilisation, service, seconds, queries);
        println!(
            "| {name} | {:.0} % | {queries} | {:.2} ms | {:.2} ms | {p50:.4} | {p99:.4} | {:.0} µs | {:.0} µs |",
            100.0 * utilisation,
            row.latency_p50_ms,
            row.latency_p99_ms,
            row.issue_lag_p50_us.unwrap(),
            row.issue_lag_p99_us.unwrap(),
        );
    };
    let mean = 0.05;
    for (name, service) in [("M/D/1", ServiceTime::Constant(mean)), ("M/M/1", ServiceTime::Exponential(mean))] {
        for (utilisation, queries) in [(0.3, 70), (0.6, 140), (0.9, 210)] {
            show(name, utilisation, service, mean, queries);
        }
    }
    let stalling = ServiceTime::Stalling { seconds: 0.002, stall: 0.2, every: 500 };
    show("2 ms, and 200 ms every 500 requests", 0.36, stalling, 0.0024, 4000);
}
