//! What the endpoint refuses: hostile requests, requests without a token, slow clients, and too many.

use super::*;

/// Hostile requests. None of them may read a file outside, start a process or end the server.
fn hostile_requests() -> Vec<String> {
    let mut requests = Vec::new();
    let names = [
        "..",
        ".",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "%2fetc%2fpasswd",
        "....//....//etc/passwd",
        "..%5c..%5cetc%5cpasswd",
        "%252e%252e%252fetc%252fpasswd",
        "..%c0%af..%c0%afetc%c0%afpasswd",
        "%00",
        "digits%00.onnx",
        "digits.onnx%00",
        "/etc/passwd",
        "outside.onnx",
        "link.onnx",
        "digits%0d%0aX-Injected:%20yes",
        "-rf",
        "--help",
        "--output-dir=%2ftmp",
        "digits,tenn_eeg",
        "digits%20--save-baseline",
        "$(touch%20owned)",
        "`touch%20owned`",
        ";touch%20owned",
        "|id",
        "&&id",
        "d%D1%96gits",
        "digits.onnх",
        "%ff%fe",
        "%",
        "%2",
        "%zz",
        "CON",
        "NUL",
        "aux.onnx",
        "digits.safetensors%2f..%2f..%2f..%2fCargo.toml",
        "trained%2fdigits",
        "..%2ftrained%2fdigits.safetensors",
        "models%2ftrained%2fdigits.safetensors",
        ".hidden.onnx",
        "digits.onnx%2f",
        "%E2%80%AEstigid",
        "digits%E2%88%95..",
        "%EF%BC%8E%EF%BC%8E%EF%BC%8Fetc",
        "{model}",
        "%7B%7B7*7%7D%7D",
        "'%20OR%201=1--",
        "<script>alert(1)</script>",
    ];
    for name in names {
        requests.push(head("GET", &format!("/api/v1/benchmark/{name}"), ""));
        requests.push(head("GET", &format!("/api/v1/runs/{name}/report"), ""));
        requests.push(head("GET", &format!("/api/v1/runs/profiles/{name}/profile.html"), ""));
        requests.push(head("DELETE", &format!("/api/v1/runs/{name}"), ""));
    }
    requests.push(head("GET", &format!("/api/v1/benchmark/{}", "a".repeat(5000)), ""));
    requests.push(head("GET", &format!("/api/v1/benchmark/{}", "a".repeat(100_000)), ""));
    for query in [
        "iterations=-1",
        "iterations=1e9",
        "iterations=99999999999999999999",
        "iterations=NaN",
        "batch_size=18446744073709551615",
        "threads=1000000",
        "warmup=999999999",
        "device=cpu;id",
        "device=cpu%20--output-dir%20x",
        "backend=..%2f..",
        "backend=null",
        "dtype=%00",
        "variant=..%2f..",
        "variant=--help",
        "max_age=-1h",
        "max_age=9999999999999999d",
        "device=cpu&device=cuda",
        "=",
        "&&&=&",
        "%00=1",
        "__proto__=1",
        "sequence_length=99999999",
        "phase=..",
    ] {
        requests.push(head("GET", &format!("/api/v1/benchmark/digits?{query}"), ""));
        requests.push(head("GET", &format!("/api/v1/records?{query}"), ""));
    }
    for path in [
        "/../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/api/v1/../../../etc/passwd",
        "//etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/page/../../../Cargo.toml",
        "/api/v1/compare?base=/etc/passwd&candidate=--output=owned",
        "/api/v1/compare?base=-o&candidate=owned",
        "/api/v1/records?run=../../etc",
        "/api/v1/runs?limit=18446744073709551615&offset=18446744073709551615",
        "/server-status",
        "/.git/config",
        "/.env",
        "/wp-login.php",
    ] {
        requests.push(head("GET", path, ""));
    }
    for headers in [
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Origin: http://127.0.0.1.evil.example\r\n",
        "Origin: http://127.0.0.1:1\r\n",
        "Host: evil.example\r\n",
    ] {
        requests.push(head("GET", "/api/v1/benchmark/digits?backend=candle", headers));
        requests.push(
            head("POST", "/api/v1/runs", &format!("{headers}Content-Type: application/json\r\nContent-Length: 2\r\n"))
                + "{}",
        );
    }
    for host in
        ["evil.example", "localhost.evil.example", "0.0.0.0:8000", "", "127.0.0.1.nip.io", "[::1", "a b", "\u{7f}"]
    {
        requests.push(format!("GET {SHORT} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    }
    for body in [
        "",
        "[]",
        "null",
        "{",
        "{\"models\": \"digits\"}",
        "{\"models\": [\"../../etc/passwd\"]}",
        "{\"suite\": \"../../etc/passwd\"}",
        "{\"suite\": \"/etc/passwd\"}",
        "{\"models\": [\"digits\"], \"backends\": [\"--output-dir=/tmp\"]}",
        "{\"models\": [\"digits\"], \"output_dir\": \"/tmp\"}",
        "{\"models\": [\"digits\"], \"variants\": [\"a,b --help\"]}",
        "{\"models\": [\"digits\"], \"iterations\": 1e400}",
        "{\"models\": [\"digits\"], \"batch_sizes\": [-1]}",
        "{\"models\": [null]}",
        "{\"models\": []}",
        "\u{feff}{}",
    ] {
        let headers = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        requests.push(head("POST", "/api/v1/runs", &headers) + body);
    }
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    requests.push(
        head(
            "POST",
            "/api/v1/runs",
            &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", nested.len()),
        ) + &nested,
    );
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
        requests.push(
            head("POST", "/api/v1/runs", &format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", SHORT_JOB.len()))
                + SHORT_JOB,
        );
    }
    for raw in [
        "\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\u{16}\u{3}\u{1}",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /etc/passwd HTTP/1.1\nHost: 127.0.0.1\n\n",
        "POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        "POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n",
        "CONNECT evil.example:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "TRACE / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
    ] {
        requests.push(raw.into());
    }
    let large = format!("X-Large: {}\r\n", "a".repeat(200_000));
    requests.push(head("GET", "/api/v1/devices", &large));
    requests.push(head("GET", "/api/v1/devices", &"X-Many: 1\r\n".repeat(500)));
    requests.push(head("DELETE", "/api/v1/runs/..%2f..%2fmodels", ""));
    requests.push(head("PUT", "/api/v1/benchmark/digits", ""));
    requests
}

#[test]
fn two_hundred_hostile_requests_get_nothing() {
    let workplace = workplace();
    workplace.write("outside.onnx", "the secret outside");
    let outside = tempfile::tempdir().unwrap();
    fs::write(
        outside.path().join("link.onnx"),
        fs::read(crate::support::data_folder().join("models/product.onnx")).unwrap(),
    )
    .unwrap();
    std::os::unix::fs::symlink(outside.path().join("link.onnx"), workplace.path("models/exported/link.onnx")).unwrap();
    let mut server = Server::start(&workplace, &[]);
    server.get("/api/v1/devices");
    assert!(server.get("/api/v1/benchmark/link.onnx").error(404).contains("leads out of the folder of models"));
    let requests = hostile_requests();
    assert!(requests.len() >= 200, "{} requests", requests.len());
    let mut refused = 0;
    for request in &requests {
        let mut stream = server.open(request);
        if !request.contains("Connection: close") {
            // More might come.
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        let reply = Reply::read(&mut stream);
        refused += usize::from(reply.code >= 400);
        let shown: String = request.chars().take(200).collect();
        assert!(reply.code == 0 || reply.code >= 400 || is_harmless(&reply), "{shown}\n{reply:?}");
        let text = String::from_utf8_lossy(&reply.body);
        for secret in ["root:x:", "the secret outside", "panicked", "[package]"] {
            assert!(!text.contains(secret), "{shown}\n{text}");
        }
        assert!(!reply.headers.contains_key("x-injected"), "{shown}");
        assert!(reply.code != 500, "{shown}\n{text}");
    }
    assert!(refused >= 200, "{refused} of {} were answered with an error", requests.len());
    assert_eq!(server.descendants(), Vec::<u32>::new());
    assert!(runs_in(&workplace.runs()).is_empty() && !workplace.path("owned").exists());
    assert!(server.process.try_wait().unwrap().is_none());
    assert_eq!(server.get("/api/v1/devices").code, 200);
    assert!(!fs::read_to_string(workplace.path("server.log")).unwrap().contains("panicked"));
}

/// The empty list of a filter that nothing passes.
fn is_harmless(reply: &Reply) -> bool {
    reply.code == 200 && serde_json::from_slice::<Value>(&reply.body).is_ok_and(|body| body["items"] == json!([]))
}

#[test]
fn a_server_for_other_machines_needs_a_token_which_no_list_of_processes_shows() {
    let workplace = workplace();
    let refused = workplace.inferbench(&["serve", "--listen", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--token FILE"));
    workplace.write("token", "short\n");
    let refused = workplace.inferbench(&["serve", "--listen", "127.0.0.1:0", "--token", "token"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("at least 16 characters"));
    const TOKEN: &str = "correct-horse-battery-staple";
    workplace.write("token", format!("{TOKEN}\n"));
    let server = Server::start(&workplace, &["--token", "token"]);
    let with = |header: &str| server.send(&head("GET", "/api/v1/devices", header));
    for header in [
        "",
        "Authorization: Bearer wrong\r\n",
        "Authorization: Bearer correct-horse-battery-staplf\r\n",
        "Authorization: Bearer correct-horse-battery-staple2\r\n",
        "Authorization: Basic bm9uZTp3cm9uZw==\r\n",
        "Authorization: Basic %%%\r\n",
        "Authorization: correct-horse-battery-staple\r\n",
    ] {
        let reply = with(header);
        assert!(reply.error(401).contains("Bearer TOKEN"), "{header}");
        assert!(reply.headers["www-authenticate"].starts_with("Basic "));
    }
    assert_eq!(server.get(&format!("/api/v1/devices?token={TOKEN}")).code, 401);
    assert_eq!(with(&format!("Authorization: Bearer {TOKEN}\r\n")).code, 200);
    // As a browser sends it: anyone with the password TOKEN.
    assert_eq!(with("Authorization: Basic YW55b25lOmNvcnJlY3QtaG9yc2UtYmF0dGVyeS1zdGFwbGU=\r\n").code, 200);
    // A request for a picture in a page of another site would have it, too.
    let basic = "Authorization: Basic YW55b25lOmNvcnJlY3QtaG9yc2UtYmF0dGVyeS1zdGFwbGU=\r\n";
    assert_eq!(server.send(&head("GET", SHORT, basic)).code, 401);
    for file in ["cmdline", "environ"] {
        let bytes = fs::read(format!("/proc/{}/{file}", server.process.id())).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains(TOKEN));
    }
    assert!(!fs::read_to_string(workplace.path("server.log")).unwrap().contains(TOKEN));
}

/// The connections of a server, with the one that it listens on.
fn sockets(server: &Server) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", server.process.id())).unwrap().flatten();
    let targets: Vec<String> =
        files.filter_map(|file| Some(fs::read_link(file.path()).ok()?.display().to_string())).collect();
    let tables =
        ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default()).concat();
    let is_tcp = |target: &&String| {
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| tables.lines().any(|line| line.split_whitespace().nth(9) == Some(inode)))
    };
    targets.iter().filter(is_tcp).count()
}

#[test]
fn slow_clients_are_left_behind() {
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    let start = Instant::now();
    let mut half = server.open("GET /api/v1/devices HTTP/1.1\r\nHost: 127");
    let mut idle = server.open("");
    let body = head("POST", "/api/v1/runs", "Content-Type: application/json\r\nContent-Length: 100\r\n") + "{";
    let mut slow = server.open(&body);
    // It asks for 40 MB and reads nothing.
    let greedy = server.open(&"GET /page/report.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".repeat(6000));
    // Meanwhile others are served.
    assert_eq!(server.get(SHORT).code, 200);
    assert!([0, 408].contains(&Reply::read(&mut half).code));
    assert_eq!(Reply::read(&mut idle).code, 0);
    assert_eq!(Reply::read(&mut slow).code, 408);
    assert!(start.elapsed() < Duration::from_secs(60));
    wait_for("the end of all connections", || (sockets(&server) == 1).then_some(()));
    drop(greedy);
    let large = head("POST", "/api/v1/runs", "Content-Type: application/json\r\nContent-Length: 2000000\r\n")
        + &" ".repeat(2_000_000);
    let reply = server.send(&large);
    assert!([0, 413].contains(&reply.code), "{reply:?}");
}

#[test]
fn five_hundred_clients_are_answered_or_refused_while_a_case_is_measured() {
    let workplace = workplace();
    let server = Server::start(&workplace, &["--queue", "1"]);
    let id = server.submit(
        r#"{"models": ["tenn_eeg"], "backends": ["candle"], "batch_sizes": [64], "iterations": 5000, "threads": 1}"#,
    );
    let (run, _) = server.measuring();
    let paths = ["/api/v1/devices", "/api/v1/records", "/api/v1/benchmark/digts", "/"];
    let clients: Vec<TcpStream> = (0..500).map(|client| server.open(&head("GET", paths[client % 4], ""))).collect();
    let mut codes: BTreeMap<u16, usize> = BTreeMap::new();
    for mut client in clients {
        *codes.entry(Reply::read(&mut client).code).or_default() += 1;
    }
    // The history is read once per second. Its other readers get 503.
    assert_eq!((codes[&404], codes[&200] + codes[&503]), (125, 375), "{codes:?}");
    assert!(codes[&503] > 60, "{codes:?}");
    // Refused requests wait, too: twenty are answered in each fifth of a second.
    let start = Instant::now();
    let strangers: Vec<TcpStream> =
        (0..100).map(|_| server.open(&head("GET", "/", "Origin: http://evil.example\r\n"))).collect();
    strangers.into_iter().for_each(|mut stranger| assert_eq!(Reply::read(&mut stranger).code, 403));
    assert!(start.elapsed() >= Duration::from_millis(700), "{:?}", start.elapsed());
    assert!(is_alive(run));
    server.send(&head("DELETE", &format!("/api/v1/runs/{id}"), ""));
    server.wait_until(&id, "cancelled");
}
