//! `inferbench serve`, from outside: as its clients see it, as hostile ones try it, and after it was killed.
#![cfg(all(feature = "serve", feature = "candle"))]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::browser::Browser;
use crate::support::documents::blocks;
use crate::support::{Run, Workplace, checkout, has_onnxruntime, is_alive, signal, wait_for};

/// A case that takes tens of seconds.
const LONG: &str = "/api/v1/benchmark/tenn_eeg?backend=candle&batch_size=64&iterations=5000&threads=1";
/// One that takes about two.
const SHORT: &str = "/api/v1/benchmark/digits?backend=candle&iterations=20&threads=1";
/// The same, as a job.
const SHORT_JOB: &str = r#"{"models": ["digits"], "backends": ["candle"], "iterations": 20, "threads": 1}"#;

/// A server in a workplace.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    fn start(workplace: &Workplace, arguments: &[&str]) -> Self {
        let mut command = workplace.inferbench(&["serve", "--listen", "127.0.0.1:0"]);
        let log = fs::File::options().create(true).append(true).open(workplace.path("server.log")).unwrap();
        command.args(arguments).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
        Server { process, address }
    }

    fn send(&self, request: &str) -> Reply {
        Reply::read(&mut self.open(request))
    }

    /// Sends a request and does not wait for its answer.
    fn open(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        // A server that has refused the head of a request reads no more of it.
        let _ = stream.write_all(request.as_bytes());
        stream
    }

    fn get(&self, path: &str) -> Reply {
        self.send(&head("GET", path, ""))
    }

    fn post(&self, path: &str, body: &str) -> Reply {
        let length = body.len();
        let headers = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
        self.send(&(head("POST", path, &headers) + body))
    }

    /// Starts a job, and returns its id.
    fn submit(&self, body: &str) -> String {
        let reply = self.post("/api/v1/runs", body);
        assert_eq!(reply.code, 202, "{reply:?}");
        reply.json()["id"].as_str().unwrap().to_owned()
    }

    fn state(&self, id: &str) -> String {
        self.get(&format!("/api/v1/runs/{id}")).json()["state"].as_str().unwrap().to_owned()
    }

    fn wait_until(&self, id: &str, state: &str) {
        wait_for(state, || (self.state(id) == state).then_some(()));
    }

    /// The processes that it has started, and those that these have started.
    fn descendants(&self) -> Vec<u32> {
        let mut all = vec![self.process.id()];
        let mut next = 0;
        while next < all.len() {
            let tasks = fs::read_dir(format!("/proc/{}/task", all[next])).into_iter().flatten().flatten();
            let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
            all.extend(lists.collect::<String>().split_whitespace().map(|id| id.parse::<u32>().unwrap()));
            next += 1;
        }
        all.split_off(1)
    }

    /// Waits until a case is measured, and returns the run's process and that of its worker.
    fn measuring(&self) -> (u32, u32) {
        wait_for("a worker", || match self.descendants().as_slice() {
            [run, .., worker] if is_worker(*worker) => Some((*run, *worker)),
            _ => None,
        })
    }

    fn terminate(&mut self) -> Option<i32> {
        signal("TERM", &self.process.id().to_string());
        wait_for("the end of the server", || self.process.try_wait().unwrap()).code()
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn is_worker(process: u32) -> bool {
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    String::from_utf8_lossy(&environment).contains("INFERBENCH_JOB=")
}

impl Drop for Server {
    fn drop(&mut self) {
        let left = self.descendants();
        let _ = self.process.kill();
        let _ = self.process.wait();
        for process in left {
            let _ = Command::new("sh").args(["-c", &format!("kill -KILL {process} 2>/dev/null")]).status();
        }
    }
}

fn head(method: &str, path: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n")
}

#[derive(Debug)]
struct Reply {
    code: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Reply {
    /// Reads what comes until the end of the connection. The code is 0 where nothing comes.
    fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let head = String::from_utf8_lossy(&bytes[..end.unwrap_or(0)]).into_owned();
        let mut lines = head.lines();
        let code = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
        let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        let headers: BTreeMap<String, String> = lines.filter_map(pair).collect();
        let mut body = end.map(|end| bytes[end + 4..].to_vec()).unwrap_or_default();
        if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            body = without_chunks(&body);
        }
        Reply { code, headers, body }
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The message of an error of this code.
    #[track_caller]
    fn error(&self, code: u16) -> String {
        assert_eq!(self.code, code, "{}", String::from_utf8_lossy(&self.body));
        let body = self.json();
        assert_eq!(body["status"], "error");
        body["message"].as_str().unwrap().to_owned()
    }
}

fn without_chunks(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap_or(0);
        let chunk = &bytes[end + 2..];
        whole.extend_from_slice(&chunk[..length.min(chunk.len())]);
        bytes = chunk.get(length + 2..).unwrap_or_default();
    }
    whole
}

fn workplace() -> Workplace {
    Workplace::new(&["digits", "tenn_eeg"], &["candle"], &[1])
}

fn runs_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().display().to_string()).collect();
    names.retain(|name| name.starts_with("20"));
    names.sort();
    names
}

#[test]
fn a_measurement_is_answered_with_its_record_and_kept() {
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    let reply = server.get(SHORT);
    let answer = reply.json();
    assert_eq!((reply.code, &answer["status"]), (200, &json!("success")), "{answer}");
    assert_eq!((&answer["framework"], &answer["device"]), (&json!("candle"), &json!("cpu")), "{answer}");
    assert_eq!(answer["input_shape"], json!([1, 1, 8, 8]), "{answer}");
    assert!(answer["avg_inference_time_ms"].as_f64().unwrap() > 0.0, "{answer}");
    assert!(answer["throughput_samples_per_sec"].as_f64().unwrap() > 0.0, "{answer}");
    assert!(answer["iterations"].as_u64().unwrap() >= 20 && answer["parameters"].as_u64().unwrap() > 0, "{answer}");
    assert_eq!(answer["record"]["verified"], true, "{answer}");
    assert_eq!(
        (reply.headers["inferbench-queue-place"].as_str(), answer["is_from_history"].as_bool()),
        ("0", Some(false))
    );
    let record = workplace.record("digits/candle-cpu-f32/1");
    assert_eq!((answer["run"].as_str(), record.suite.as_str()), (Some(&*record.run_id), "endpoint"));
    assert_eq!(answer["record"]["latency_p50_ms"].as_f64(), record.latency_p50_ms);

    // An answer that is not too old will do, if it is of the same parameters and the same file.
    let again = server.get(&format!("{SHORT}&max_age=1h")).json();
    assert_eq!((&again["run"], &again["is_from_history"]), (&answer["run"], &json!(true)), "{again}");
    assert_eq!(again["record"], answer["record"]);
    let other = server.get(&format!("{SHORT}&warmup=3&max_age=1h")).json();
    assert_ne!(other["run"], answer["run"]);
    let weights = workplace.path("models/trained/digits.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    let changed = server.get(&format!("{SHORT}&max_age=1h"));
    assert_ne!(changed.json()["run"], answer["run"], "{changed:?}");
}

#[test]
fn a_file_is_found_by_its_name_and_its_extension_chooses_the_backend() {
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    // A file that comes while the server runs.
    workplace.add_model("scaled.pt", "models/exported/best_model.pt");
    workplace.add_model("product.onnx", "models/exported/product.onnx");
    if has_onnxruntime() {
        for file in ["tenn_eeg.onnx", "product.onnx"] {
            let answer = server.get(&format!("/api/v1/benchmark/{file}?device=cpu&iterations=20&threads=1")).json();
            assert_eq!(
                (&answer["framework"], &answer["status"]),
                (&json!("ONNX Runtime"), &json!("success")),
                "{answer}"
            );
            assert_eq!(answer["providers"], json!(["CPUExecutionProvider"]), "{answer}");
        }
    }
    let archive = || server.get("/api/v1/benchmark/best_model.pt?iterations=20&threads=1");
    if cfg!(feature = "tch") {
        // Nothing says what the inputs of a TorchScript file are.
        let message = archive().json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("input"), "{message}");
        let inputs = "[[inputs]]\nname = 'x'\ndtype = 'f32'\nshape = ['batch', 3]\n[[inputs]]\nname = 'scale'\ndtype = 'f32'\nshape = [1, 1]\n";
        workplace.write("models/exported/best_model.toml", inputs);
        let answer = archive().json();
        assert_eq!(
            (&answer["framework"], &answer["input_shape"]),
            (&json!("PyTorch"), &json!([[1, 3], [1, 1]])),
            "{answer}"
        );
    } else {
        assert!(archive().error(409).contains("not in this build"));
    }
}

#[test]
fn what_cannot_be_measured_says_why_and_starts_nothing() {
    let workplace = workplace();
    workplace.write("models/exported/broken.onnx", "no graph");
    let server = Server::start(&workplace, &[]);
    let near = server.get("/api/v1/benchmark/digts");
    assert!(near.error(404).contains("did you mean digits"), "{near:?}");
    assert_eq!(near.json()["near"][0], "digits");
    assert!(server.get("/api/v1/benchmark/zzzzzz").error(404).contains("GET /api/v1/models"));
    assert!(server.get("/api/v1/benchmark/digits?variant=abacus").error(404).contains("no variant"));
    assert!(server.get("/api/v1/nothing").error(404).contains("nothing at this path"));
    assert!(server.post("/api/v1/benchmark/digits", "{}").error(405).contains("method"));
    for (query, part) in [
        ("iterations=0", "iterations: 0 is not from 1 to 100000"),
        ("iterations=1000000", "iterations: 1000000"),
        ("iterations=many", "iterations"),
        ("batch_size=0", "batch_size"),
        ("threads=0", "threads"),
        ("dtype=f99", "dtype: \"f99\""),
        ("device=abacus", "unknown device \"abacus\""),
        ("backend=abacus", "no backend \"abacus\""),
        ("phase=moon", "phase: \"moon\""),
        ("max_age=old", "max_age"),
        ("itrations=5", "unknown field `itrations`"),
    ] {
        let message = server.get(&format!("/api/v1/benchmark/digits?{query}")).error(422);
        assert!(message.contains(part), "{query}: {message}");
    }
    assert!(server.get("/api/v1/benchmark/broken.onnx").error(422).contains("broken"));
    let cuda = server.get("/api/v1/benchmark/digits?device=cuda&backend=candle");
    assert!(cuda.error(409).contains("cuda is not available"), "{cuda:?}");
    assert_eq!(cuda.json()["available_devices"], json!(["cpu"]));
    assert!(runs_in(&workplace.runs()).is_empty());
}

#[test]
fn one_measurement_runs_at_a_time_and_a_client_that_leaves_cancels_its_own() {
    let workplace = workplace();
    let server = Server::start(&workplace, &["--queue", "1"]);
    let first = server.open(&head("GET", LONG, ""));
    let (run, worker) = server.measuring();
    // Two equal requests that wait share one measurement, and one place.
    let waiting: Vec<TcpStream> = (0..2).map(|_| server.open(&head("GET", SHORT, ""))).collect();
    wait_for("the second job", || {
        let jobs = server.get("/api/v1/runs?state=queued");
        (jobs.code == 200 && jobs.json()["items"].as_array().unwrap().len() == 1).then_some(())
    });
    let full = server.get("/api/v1/benchmark/digits?backend=candle&batch_size=2");
    assert!(full.error(503).contains("1 jobs wait already"), "{full:?}");
    assert!(full.headers["retry-after"].parse::<u64>().unwrap() > 0);
    assert!(is_alive(run) && is_alive(worker));
    drop(first);
    wait_for("the end of the cancelled run", || (!is_alive(run) && !is_alive(worker)).then_some(()));
    let answers: Vec<Value> = waiting.into_iter().map(|mut stream| Reply::read(&mut stream).json()).collect();
    assert_eq!(answers[0]["status"], "success", "{answers:?}");
    assert_eq!(answers[0]["run"], answers[1]["run"]);
    // Nothing was left of the cancelled one, and one run of the shared one.
    assert_eq!(runs_in(&workplace.path("target-reports")), [answers[0]["run"].as_str().unwrap()]);
    assert_eq!(runs_in(&workplace.runs()).len(), 1);
    // A client that waits in the queue and leaves never starts a measurement.
    let first = server.open(&head("GET", LONG, ""));
    let (run, _) = server.measuring();
    drop(server.open(&head("GET", SHORT, "")));
    let queued = || server.get("/api/v1/runs?state=queued").json();
    wait_for("an empty queue", || queued()["items"].as_array().is_some_and(Vec::is_empty).then_some(()));
    drop(first);
    wait_for("the end of the run", || (!is_alive(run)).then_some(()));
    thread::sleep(Duration::from_millis(300));
    assert_eq!(server.descendants(), Vec::<u32>::new());
    assert_eq!(runs_in(&workplace.path("target-reports")).len(), 1);
}

#[test]
fn a_measurement_waits_for_the_lock_of_the_machine() {
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    // The devices are known before the first answer.
    server.get("/api/v1/devices");
    fs::create_dir_all(workplace.path("target/inferbench")).unwrap();
    let file = fs::File::create(workplace.path("target/inferbench/lock")).unwrap();
    file.lock().unwrap();
    let id = server.submit(SHORT_JOB);
    wait_for("the reason", || {
        let job = server.get(&format!("/api/v1/runs/{id}")).json()["job"].clone();
        (job["message"] == "another measurement runs on this machine").then_some(())
    });
    drop(file);
    server.wait_until(&id, "done");
}

/// Requests that want what they must not have: none of them may read a file outside, start a process or end the server.
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
    for host in ["evil.example", "localhost.evil.example", "", "127.0.0.1.nip.io", "[::1", "a b", "\u{7f}"] {
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
    for file in ["cmdline", "environ"] {
        let bytes = fs::read(format!("/proc/{}/{file}", server.process.id())).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains(TOKEN));
    }
    assert!(!fs::read_to_string(workplace.path("server.log")).unwrap().contains(TOKEN));
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
    // Meanwhile others are served.
    assert_eq!(server.get(SHORT).code, 200);
    assert!([0, 408].contains(&Reply::read(&mut half).code));
    assert_eq!(Reply::read(&mut idle).code, 0);
    assert_eq!(Reply::read(&mut slow).code, 408);
    assert!(start.elapsed() < Duration::from_secs(60));
    let large = head("POST", "/api/v1/runs", "Content-Type: application/json\r\nContent-Length: 2000000\r\n")
        + &" ".repeat(2_000_000);
    let reply = server.send(&large);
    assert!([0, 413].contains(&reply.code), "{reply:?}");
}

#[test]
fn a_job_tells_its_cases_as_they_come_and_leaves_records_in_three_forms() {
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    let body =
        r#"{"models": ["digits"], "backends": ["candle"], "batch_sizes": [1, 2], "iterations": 20, "threads": 1}"#;
    let reply = server.post("/api/v1/runs", body);
    let id = reply.json()["id"].as_str().unwrap().to_owned();
    assert_eq!((reply.code, reply.headers["location"].as_str()), (202, &*format!("/api/v1/runs/{id}")));
    let events = server.get(&format!("/api/v1/runs/{id}/events"));
    assert_eq!(events.headers["content-type"], "text/event-stream");
    let text = String::from_utf8(events.body).unwrap();
    let data = |part: &str| {
        part.lines()
            .find_map(|line| line.strip_prefix("data: "))
            .map(|data| serde_json::from_str::<Value>(data).unwrap())
    };
    let of_kind = |kind: &str| -> Vec<Value> {
        let line = format!("event: {kind}");
        text.split("\n\n").filter(|part| part.lines().any(|it| it == line)).filter_map(data).collect()
    };
    assert_eq!(of_kind("planned")[0]["cases"], json!(["digits/candle-cpu-f32/1", "digits/candle-cpu-f32/2"]), "{text}");
    let finished: Vec<Value> = of_kind("case").into_iter().filter(|case| case["state"] == "finished").collect();
    assert_eq!(finished.len(), 2, "{text}");
    assert!(
        finished.iter().all(|case| case["status"] == "ok" && case["latency_p50_ms"].as_f64().unwrap() > 0.0),
        "{text}"
    );
    let states: Vec<Value> = of_kind("state").iter().map(|status| status["state"].clone()).collect();
    assert_eq!((states.first(), states.last()), (Some(&json!("queued")), Some(&json!("done"))), "{text}");
    // A reader that comes back goes on after the last event that it has seen.
    let last = text.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let rest = server.send(&head(
        "GET",
        &format!("/api/v1/runs/{id}/events"),
        &format!("Last-Event-ID: {}\r\n", last.parse::<usize>().unwrap() - 1),
    ));
    assert_eq!(String::from_utf8(rest.body).unwrap().matches("event: ").count(), 1);

    let run = server.get(&format!("/api/v1/runs/{id}")).json();
    assert_eq!((&run["state"], &run["facts"]["cases_ok"]), (&json!("done"), &json!(2)), "{run}");
    assert_eq!(run["job"]["finished_cases"], 2, "{run}");
    let records = format!("/api/v1/records?run={id}&batch_size=2&model=digits&status=ok");
    let listed = server.get(&records).json();
    assert_eq!(
        (listed["items"].as_array().unwrap().len(), &listed["items"][0]["batch_size"]),
        (1, &json!(2)),
        "{listed}"
    );
    let first = server.get(&format!("/api/v1/records?run={id}&limit=1")).json();
    assert_eq!((&first["next_offset"], first["items"].as_array().unwrap().len()), (&json!(1), 1));
    let csv = server.send(&head("GET", &records, "Accept: text/csv\r\n"));
    let csv = inferbench::history::read_records(csv.body.as_slice()).unwrap();
    assert_eq!((csv.len(), csv[0].batch_size), (1, 2));
    let parquet = server.send(&head("GET", &records, "Accept: application/vnd.apache.parquet\r\n"));
    assert!(parquet.body.starts_with(b"PAR1") && parquet.body.ends_with(b"PAR1"));
    assert!(server.send(&head("GET", &records, "Accept: image/png\r\n")).error(406).contains("text/csv"));
    let report = server.get(&format!("/api/v1/runs/{id}/report"));
    assert!(String::from_utf8(report.body).unwrap().contains("id=\"payload\""));

    let second = server.submit(body);
    server.wait_until(&second, "done");
    let comparison = server.get(&format!("/api/v1/compare?base={id}&candidate={second}"));
    assert_eq!(comparison.code, 200, "{comparison:?}");
    assert_eq!(comparison.json()["cases"].as_array().unwrap().len(), 2, "{comparison:?}");
    let runs = server.get("/api/v1/runs").json();
    let ids: Vec<&str> = runs["items"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [second.as_str(), id.as_str()]);
    let models = server.get("/api/v1/models").json();
    assert!(models["items"].as_array().unwrap().iter().any(|model| model["model"] == "digits"), "{models}");
    let devices = server.get("/api/v1/devices").json();
    let is_candle = |device: &&Value| device["backend"] == "candle" && device["device"] == "cpu";
    assert_eq!(devices["devices"].as_array().unwrap().iter().find(is_candle).unwrap()["available"], true);
    assert_eq!(server.get("/api/v1/suites").json()["items"], json!(["quick"]));
}

#[test]
fn a_job_is_cancelled_and_keeps_the_cases_that_are_finished() {
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    let body = r#"{"models": ["digits", "tenn_eeg"], "backends": ["candle"], "batch_sizes": [64], "iterations": 5000, "threads": 1}"#;
    let id = server.submit(body);
    wait_for("the second case", || {
        let job = server.get(&format!("/api/v1/runs/{id}")).json()["job"].clone();
        (job["current"] == "tenn_eeg/candle-cpu-f32/64").then_some(())
    });
    let (run, worker) = server.measuring();
    assert_eq!(server.send(&head("DELETE", &format!("/api/v1/runs/{id}"), "")).code, 202);
    server.wait_until(&id, "cancelled");
    assert!(!is_alive(run) && !is_alive(worker));
    let records = server.get(&format!("/api/v1/records?run={id}")).json();
    assert_eq!(records["items"].as_array().unwrap().len(), 1, "{records}");
    assert_eq!(records["items"][0]["case_id"], "digits/candle-cpu-f32/64");
    assert!(server.send(&head("DELETE", &format!("/api/v1/runs/{id}"), "")).error(409).contains("over"));
}

/// Starts a job of a short and a long case, and waits for the long one.
fn start_to_the_middle(server: &Server) -> (String, u32, u32) {
    let body = r#"{"models": ["digits", "tenn_eeg"], "backends": ["candle"], "batch_sizes": [64], "iterations": 5000, "threads": 1}"#;
    let id = server.submit(body);
    wait_for("the second case", || {
        let job = server.get(&format!("/api/v1/runs/{id}")).json()["job"].clone();
        (job["current"] == "tenn_eeg/candle-cpu-f32/64").then_some(())
    });
    let (run, worker) = server.measuring();
    (id, run, worker)
}

#[test]
fn a_child_that_is_killed_fails_its_job_only() {
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    let (id, run, worker) = start_to_the_middle(&server);
    signal("KILL", &run.to_string());
    server.wait_until(&id, "failed");
    assert!(!is_alive(worker));
    let job = server.get(&format!("/api/v1/runs/{id}")).json();
    assert_eq!(job["job"]["message"], "the process was ended by signal 9 (SIGKILL)", "{job}");
    // The case that was finished is in the history, and the one that was not says so.
    let records = server.get(&format!("/api/v1/records?run={id}")).json();
    let statuses: Vec<&Value> = records["items"].as_array().unwrap().iter().map(|record| &record["status"]).collect();
    assert_eq!(statuses, ["ok", "failed"], "{records}");
    let mut waiting = server.open(&head("GET", LONG, ""));
    let (_, worker) = server.measuring();
    signal("KILL", &worker.to_string());
    let message = Reply::read(&mut waiting).error(500);
    assert!(message.contains("ended by signal 9 (SIGKILL)"), "{message}");
    assert_eq!(server.get(SHORT).code, 200);
}

#[test]
fn a_server_that_is_killed_loses_no_finished_record_and_says_what_it_has_interrupted() {
    let workplace = workplace();
    let mut server = Server::start(&workplace, &[]);
    let (id, run, worker) = start_to_the_middle(&server);
    let waiting = server.submit(SHORT_JOB);
    server.kill();
    wait_for("the end of the run", || (!is_alive(run) && !is_alive(worker)).then_some(()));
    let mut server = Server::start(&workplace, &[]);
    for id in [&id, &waiting] {
        let run = server.get(&format!("/api/v1/runs/{id}")).json();
        assert_eq!(run["state"], "interrupted", "{run}");
        assert!(run["job"]["message"].as_str().unwrap().contains("the server was ended"), "{run}");
    }
    wait_for("the record", || {
        let records = server.get(&format!("/api/v1/records?run={id}")).json();
        (records["items"][0]["case_id"] == "digits/candle-cpu-f32/64").then_some(())
    });
    assert_eq!(server.get(SHORT).code, 200);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn sigterm_finishes_the_case_and_ends() {
    let workplace = workplace();
    let mut server = Server::start(&workplace, &[]);
    let case = "/api/v1/benchmark/tenn_eeg?backend=candle&batch_size=64&iterations=200&threads=1";
    let mut first = server.open(&head("GET", case, ""));
    server.measuring();
    let mut second = server.open(&head("GET", SHORT, ""));
    wait_for("the second job", || {
        let jobs = server.get("/api/v1/runs?state=queued");
        (jobs.code == 200 && jobs.json()["items"].as_array().unwrap().len() == 1).then_some(())
    });
    assert_eq!(server.terminate(), Some(0));
    assert!(Reply::read(&mut second).error(503).contains("ending"));
    let answer = Reply::read(&mut first).json();
    assert_eq!(answer["status"], "success", "{answer}");
    assert_eq!(workplace.records().len(), 1);
}

#[test]
fn what_breaks_under_the_server_is_an_error_and_the_server_stays() {
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    assert_eq!(server.get(SHORT).code, 200);
    // A history with a run that cannot be read.
    fs::create_dir_all(workplace.path("target-reports/20250101T000000Z")).unwrap();
    workplace.write("target-reports/20250101T000000Z/results.csv", "no records");
    let records = server.get("/api/v1/records").json();
    assert_eq!(
        (records["items"].as_array().unwrap().len(), records["unreadable"].as_array().unwrap().len()),
        (1, 1),
        "{records}"
    );
    assert_eq!(server.get("/api/v1/runs").json()["items"].as_array().unwrap().len(), 2);
    // A folder of reports that cannot be written, as on a full disk.
    fs::remove_dir_all(workplace.path("target-reports")).unwrap();
    workplace.write("target-reports", "no folder");
    let failed = server.get(&format!("{SHORT}&warmup=3"));
    assert!(failed.error(500).contains("target-reports"), "{failed:?}");
    fs::remove_file(workplace.path("target-reports")).unwrap();
    // A model that goes away.
    fs::remove_dir_all(workplace.path("models/zoo/tenn_eeg")).unwrap();
    assert!(server.get("/api/v1/benchmark/tenn_eeg").error(404).contains("no model"));
    assert_eq!(server.get(SHORT).code, 200);
}

#[test]
fn a_browser_starts_follows_reloads_compares_and_cancels_runs() {
    let Some(mut browser) = Browser::start() else { return };
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    let home = format!("http://{}/", server.address);
    browser.open(&home);
    let ready =
        "document.documentElement?.dataset.ready === 'yes' && document.querySelector('#models option') !== null";
    let wait = |browser: &mut Browser, expression: &str| {
        wait_for(expression, || (browser.value(expression) == true).then_some(()));
    };
    wait(&mut browser, ready);
    let choose = |model: &str, batches: &str, iterations: usize| {
        format!(
            "for (const option of document.querySelectorAll('#models option')) option.selected = option.value === '{model}';
            for (const box of document.querySelectorAll('#backends input')) box.checked = box.value === 'candle';
            document.querySelector('#batches').value = '{batches}';
            document.querySelector('#iterations').value = '{iterations}';
            document.querySelector('#threads').value = '1';
            document.querySelector('#batches').focus();"
        )
    };
    let row = "document.querySelector('#cases tbody tr')?.textContent ?? ''";
    let id =
        |browser: &mut Browser| browser.value("location.hash").as_str().unwrap().trim_start_matches("#run=").to_owned();
    let has_result = format!(
        "({row}).startsWith('digits/candle-cpu-f32/1ok') && /[nµm]s/.test({row}) && document.querySelector('iframe')?.dataset.loaded === 'yes' \
         && document.querySelector('iframe').contentDocument.querySelectorAll('svg').length > 0"
    );
    let mut runs = Vec::new();
    for _ in 0..2 {
        // Without a mouse: Enter in a field starts.
        browser.value(&choose("digits", "1", 20));
        let before = browser.value("location.hash");
        browser.press("Enter", 13, "\r");
        wait(
            &mut browser,
            &format!("location.hash.startsWith('#run=') && location.hash !== '{}'", before.as_str().unwrap()),
        );
        wait(&mut browser, "document.querySelector('#state').textContent.startsWith('done')");
        wait(&mut browser, &has_result);
        runs.push(id(&mut browser));
    }
    browser.call("Page.reload", json!({}));
    wait(&mut browser, &format!("{ready} && {has_result}"));
    // A link that somebody else opens.
    browser.open("about:blank");
    browser.open(&format!("{home}#run={}", runs[0]));
    wait(
        &mut browser,
        &format!("{ready} && document.querySelector('#run-title').textContent === 'Run {}' && {has_result}", runs[0]),
    );
    let narrow = json!({ "width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": false });
    browser.call("Emulation.setDeviceMetricsOverride", narrow);
    let beyond = browser.value("document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth");
    assert_eq!(beyond, 0);

    browser.value(&format!(
        "document.querySelector('input[name=base][value=\"{}\"]').click(); document.querySelector('input[name=candidate][value=\"{}\"]').click(); \
         document.querySelector('#compare').click()",
        runs[0], runs[1]
    ));
    wait(&mut browser, "document.querySelectorAll('#compared tr').length === 1");
    let verdict = browser.value("document.querySelector('#compared tr td:last-child').textContent");
    assert!(["same", "faster", "slower", "cannot-say"].contains(&verdict.as_str().unwrap()), "{verdict}");

    browser.value(&choose("tenn_eeg", "64", 5000));
    browser.press("Enter", 13, "\r");
    wait(&mut browser, &format!("({row}).startsWith('tenn_eeg/candle-cpu-f32/64measuring')"));
    assert_eq!(browser.value("document.querySelector('#cancel').hidden"), false);
    browser.value("document.querySelector('#cancel').click()");
    wait(&mut browser, "document.querySelector('#state').textContent.startsWith('cancelled')");

    browser.open(&format!("{home}docs"));
    wait(
        &mut browser,
        "document.documentElement?.dataset.ready === 'yes' && document.querySelectorAll('section').length > 15",
    );
    assert_eq!(browser.complaints, Vec::<String>::new());
}

fn has(command: &str, arguments: &[&str]) -> bool {
    let there = Command::new(command).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = there.is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("left out: `{command} {}` does not work here", arguments.join(" "));
    }
    is_there
}

#[test]
fn the_clients_of_the_guide_work() {
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    let guide = checkout().join("src/guide/service.md");
    let address = format!("http://{}", server.address);
    let of = |language: &str| -> Vec<String> {
        blocks(&guide, language).into_iter().map(|block| block.replace("http://127.0.0.1:8000", &address)).collect()
    };
    let [measuring, jobs] = of("sh").try_into().unwrap();
    if has("curl", &["--version"]) && has("jq", &["--version"]) && has_onnxruntime() {
        let done = workplace.command(Path::new("sh"), &["-e", "-c", &measuring]).finish().with_code(0);
        let lines: Vec<&str> = done.stdout.lines().rev().take(3).collect();
        let milliseconds = lines[2].strip_prefix("cpu ").and_then(|rest| rest.parse::<f64>().ok());
        assert!(milliseconds.is_some_and(|ms| ms > 0.0), "{}", done.stdout);
        assert!(
            lines[1].starts_with("not here, but: [\"cpu\"") && lines[1].contains("cuda is not available"),
            "{}",
            done.stdout
        );
        assert!(lines[0].contains("mps is not available"), "{}", done.stdout);
        let done = workplace.command(Path::new("sh"), &["-e", "-c", &jobs]).finish().with_code(0);
        assert!(
            done.stdout.contains("\"state\": \"queued\"") && done.stdout.contains("run_id,timestamp,"),
            "{}",
            done.stdout
        );
    }
    if has("python3", &["-c", "import requests"]) {
        let [client] = of("python").try_into().unwrap();
        let done = workplace.command(Path::new("python3"), &["-c", &client]).finish().with_code(0);
        assert_eq!(
            done.stdout.split_whitespace().count(),
            3 + usize::from(done.stdout.contains("ONNX Runtime")),
            "{}",
            done.stdout
        );
    }
}

#[test]
fn the_unit_is_one_that_systemd_reads() {
    if !has("systemd-analyze", &["--version"]) {
        return;
    }
    // The executable and the user are those of another machine.
    let unit = fs::read_to_string(checkout().join("scripts/inferbench.service")).unwrap();
    let unit = unit
        .replace("/srv/inferbench/target/release/inferbench", env!("CARGO_BIN_EXE_inferbench"))
        .replace("User=inferbench\n", "");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("inferbench.service");
    fs::write(&file, unit).unwrap();
    let done = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).finish();
    let complaints: Vec<&str> = done.stderr.lines().filter(|line| line.contains("inferbench.service")).collect();
    assert_eq!(complaints, Vec::<&str>::new(), "{}", done.stderr);
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
    // The history is read once per second, and the rest of its readers are asked to come again.
    assert_eq!((codes[&404], codes[&200] + codes[&503]), (125, 375), "{codes:?}");
    assert!(codes[&503] > 60, "{codes:?}");
    assert!(is_alive(run));
    server.send(&head("DELETE", &format!("/api/v1/runs/{id}"), ""));
    server.wait_until(&id, "cancelled");
}
