//! `inferbench serve` from outside: ordinary and hostile clients, and what is left after a kill.
#![cfg(all(feature = "serve", feature = "candle"))]

mod clients;
mod jobs;
mod safety;
mod survival;

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
/// A case that takes about two seconds.
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

    /// The processes that it has started, directly or through others.
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
        wait_for("a worker", || {
            let descendants = self.descendants();
            // The processes that a worker starts come after it.
            let worker = descendants.iter().skip(1).copied().find(|process| is_worker(*process))?;
            Some((descendants[0], worker))
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
    /// Reads until the end of the connection. The code is 0 if nothing comes.
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

    // The history answers with the same parameters and the same file, if the answer is not too old.
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
    workplace.add_model("two_inputs.onnx", "models/exported/two_inputs.onnx");
    if has_onnxruntime() {
        for file in ["tenn_eeg.onnx", "two_inputs.onnx"] {
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
        ("iterations=many", "iterations: not a whole number from 0 on"),
        ("batch_size=0", "batch_size"),
        ("threads=0", "threads"),
        ("dtype=f99", "dtype: \"f99\""),
        ("device=abacus", "unknown device \"abacus\""),
        ("backend=abacus", "no backend \"abacus\""),
        ("phase=moon", "phase: \"moon\""),
        ("phase=decode", "phase: digits has no phase decode"),
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
    for (body, part) in [
        (r#"{"models": ["digits"], "iterations": "20"}"#, "invalid type: string \"20\", expected a whole number"),
        (r#"{"models": ["digits""#, "the body is not valid JSON: "),
    ] {
        let message = server.post("/api/v1/runs", body).error(422);
        assert!(message.starts_with(part), "{message}");
    }
    let message = server.get("/api/v1/records?status=ok,foo").error(422);
    assert!(message.starts_with("status: ") && message.contains("out-of-memory"), "{message}");
    let tpu = server.post("/api/v1/runs", r#"{"models": ["digits"], "devices": ["tpu"]}"#);
    assert!(tpu.error(409).starts_with("tpu is not available: "), "{tpu:?}");
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
    assert!(full.error(503).contains("1 job waits already"), "{full:?}");
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
    // What would be started has had the time for it; what has ended may still have to be waited for by the server.
    thread::sleep(Duration::from_millis(300));
    wait_for("no process", || server.descendants().is_empty().then_some(()));
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
    // A job that waits is among those of its suite, as it is when it is over.
    let of_suite = server.get("/api/v1/runs?suite=endpoint").json();
    assert_eq!(of_suite["items"][0]["id"].as_str(), Some(&*id), "{of_suite}");
    drop(file);
    server.wait_until(&id, "done");
}
