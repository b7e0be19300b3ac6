//! Limits of time, requests, rate and connections, which always hold.

use std::time::Duration;

use super::*;

#[test]
fn limits_always_end_a_load_test() {
    let server = Server::start();
    // Three of the requests warm the server up.
    let row = load(&server.url, &["--concurrency", "2", "--duration", "30s", "--max-requests", "50"]);
    assert!(row.message.as_ref().unwrap().contains("the limit of 50 requests is reached"), "{row:?}");
    assert_eq!((row.ended_early, row.queries, row.unanswered), (true, 47, 0), "{row:?}");
    assert_eq!((row.errors, row.verdict), (None, Some(Verdict::Undecided)));
    assert_eq!(server.requests.load(std::sync::atomic::Ordering::SeqCst), 50);
    let exactly = ["--rate", "200/s", "--queries", "50", "--max-requests", "53"];
    let row = rows(&run(&workplace(), &server.url, &exactly).with_code(0)).remove(0);
    assert_eq!((row.ended_early, row.queries, row.unanswered), (false, 50, 0), "{row:?}");
    assert!(!row.message.unwrap_or_default().contains("limit"));
    let row = load(&server.url, &["--rate", "50/s", "--queries", "900", "--max-time", "500ms"]);
    assert!(row.message.as_ref().unwrap().contains("the limit of 0.5 s is reached") && row.ended_early, "{row:?}");
    assert!((5..200).contains(&row.queries), "{row:?}");
    let workplace = workplace();
    for (arguments, why) in [
        (&["--rate", "60000/s", "--queries", "10"] as &[&str], "--max-rate"),
        (&["--rate", "10/s", "--duration", "1h"], "--max-time"),
        (&["--rate", "10/s", "--queries", "2000000"], "--max-requests"),
        (&["--rate", "200/s", "--queries", "50", "--max-requests", "52"], "--max-requests"),
        (&["--scenario", "multi", "--queries", "5", "--max-requests", "42"], "a trial of 40 requests"),
        (&["--concurrency", "2", "--max-requests", "0"], "leaves no request after the 3"),
        (&["--concurrency", "2", "--max-requests", "3"], "leaves no request after the 3"),
        (&["--concurrency", "9", "--connections", "8"], "--connections"),
        (&["--rate", "10/s", "--instances", "2"], "--instances"),
        (&["--rate", "10/s", "--model", "other"], "no model"),
        (&["--rate", "10/s", "--input", "z:f32[batch,2]"], "no input z"),
        (&["--rate", "10/s", "digits"], "no cases to choose"),
        (&["--rate", "10/s", "--backend", "ort"], "leave --backend and its variable out"),
        (&["--rate", "10/s", "--tg", "16"], "leave --tg and its variable out"),
        (&["--rate", "10/s", "--ttft", "1s"], "token by token"),
        (&["--rate", "10/s", "--ttft", "1s", "--output-tokens", "4"], "has no effect in the protocol v2"),
        (&["--protocol", "completions", "--no-stream", "--rate", "10/s", "--ttft", "1s"], "token by token"),
        (&["--protocol", "chat", "--no-stream", "--rate", "10/s", "--tpot", "1ms"], "token by token"),
    ] {
        let finished = run(&workplace, &server.url, arguments);
        let said = format!("{}{}", finished.stderr, finished.stdout);
        assert!(finished.code != Some(0) && said.contains(why), "{arguments:?}: {said}");
    }
    let before = server.requests.load(std::sync::atomic::Ordering::SeqCst);
    let elsewhere = run(&workplace, "http://192.0.2.7:80", &["--rate", "10/s"]).with_code(2);
    elsewhere.saying(&["--allow-host 192.0.2.7"]);
    assert_eq!(server.requests.load(std::sync::atomic::Ordering::SeqCst), before);
}

#[test]
fn a_limit_of_the_rate_ends_a_search() {
    let server = Server::start();
    let arguments =
        ["--percentile", "90", "--bound", "2s", "--searches", "1", "--duration", "0.2s", "--max-rate", "600/s"];
    let search = [&["load", "search", "--url", &server.url], &arguments[..]].concat();
    let finished = workplace().inferbench(&search).finish().with_code(0);
    assert!(finished.stdout.contains("no rate failed up to 600.0/s"), "{}", finished.stdout);
}

#[test]
fn a_search_that_a_limit_ends_says_so() {
    let server = Server::start();
    let arguments =
        ["--percentile", "90", "--bound", "2s", "--searches", "3", "--duration", "0.2s", "--max-rate", "300/s"];
    let arguments = [&arguments[..], &["--max-time", "6s"]].concat();
    let search = [&["load", "search", "--format", "json", "--url", &server.url], &arguments[..]].concat();
    let found = rows(&workplace().inferbench(&search).finish());
    let ended =
        found.iter().find(|row| row.message.as_ref().is_some_and(|it| it.contains("the limit of 6 s is reached")));
    assert!(ended.is_some() && found.iter().any(|row| row.queries > 0), "{found:?}");
}

/// A server that answers the first requests with `{}`, and no others. Returns its address, and the most connections that
/// were open at the same time.
fn stalling(answers: usize) -> (String, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    use std::io::{Read, Write};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (open, most, left) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), AtomicUsize::new(answers));
    let (shown, left) = (most.clone(), Arc::new(left));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            open.fetch_add(1, SeqCst);
            let (open, most, left) = (open.clone(), most.clone(), left.clone());
            std::thread::spawn(move || {
                // The end of another connection may be seen a little later.
                std::thread::sleep(Duration::from_millis(20));
                most.fetch_max(open.load(SeqCst), SeqCst);
                let mut bytes = [0; 4096];
                while stream.read(&mut bytes).is_ok_and(|read| read > 0) {
                    if left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
                    }
                }
                open.fetch_sub(1, SeqCst);
            });
        }
    });
    (url, shown)
}

#[test]
fn a_server_that_stalls_has_no_more_connections_than_are_allowed() {
    let (url, most) = stalling(3);
    let workplace = workplace();
    workplace.write("template.toml", "path = \"/\"\nbody = \"{{text}}\"\n");
    let arguments = ["--template", "template.toml", "--rate", "100/s", "--queries", "40", "--connections", "4"];
    let arguments = [&arguments[..], &["--patience", "300ms"]].concat();
    let row = rows(&run(&workplace, &url, &arguments)).remove(0);
    assert_eq!((row.unanswered, row.connections, row.connections_used), (40, Some(4), Some(4)), "{row:?}");
    assert!((2..=4).contains(&most.load(std::sync::atomic::Ordering::SeqCst)), "{most:?}");
}

#[test]
fn a_limit_of_time_holds_before_the_first_request_and_between_requests() {
    let workplace = workplace();
    workplace.write("template.toml", "path = \"/\"\nbody = \"{{text}}\"\n");
    let template = ["--template", "template.toml"];
    // The server does not describe itself, does not answer the warm-up, and the second request comes in minutes.
    for (answers, arguments, why, code) in [
        (0, &["--protocol", "chat", "--model", "m", "--rate", "10/s"] as &[&str], "interrupted × 1", 3),
        (0, &template, "interrupted × 1", 3),
        (4, &template, "", 0),
    ] {
        let (url, _) = stalling(answers);
        let begin = std::time::Instant::now();
        let rate: &[&str] =
            if why.is_empty() { &["--rate", "0.01/s", "--queries", "3"] } else { &["--concurrency", "2"] };
        let rate: &[&str] = if arguments.contains(&"--rate") { &[] } else { rate };
        let finished =
            run(&workplace, &url, &[arguments, rate, &["--max-time", "500ms", "--duration", "300ms"]].concat());
        assert!(begin.elapsed() < Duration::from_secs(15), "{arguments:?}: {:?}", begin.elapsed());
        let row = rows(&finished.with_code(code)).remove(0);
        assert!(row.message.as_ref().unwrap().contains("the limit of 0.5 s is reached"), "{row:?}");
        assert_eq!(row.errors.as_deref().unwrap_or_default(), why, "{row:?}");
    }
}
