//! A project of its own in a temporary folder, and the package's executables run in it.

pub mod browser;
pub mod chromium;
pub mod documents;
pub mod peaks;
pub mod synthetic;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use inferbench::backend::{LoadRequest, registry};
use inferbench::criterion_dir::LATENCY_LOG;
use inferbench::definition::{Dtype, Model, Phase, Sizes};
use inferbench::fixture::Artifacts;
use inferbench::history::read_records;
use inferbench::run_data::Record;
use inferbench::run_data::{Outcomes, RunFolder};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A copy of the small packaged models, a suite, and room for Criterion's tree and the reports.
pub struct Workplace {
    folder: TempDir,
    /// The variables of those of `OF_SLOW_BACKENDS` that its suite does not have.
    hidden: Vec<&'static str>,
}

/// Backends that start a browser or Pythons where devices are listed, by how their names begin, and the variables that say where these are.
const OF_SLOW_BACKENDS: [(&str, &str); 3] =
    [("ort-web", "INFERBENCH_BROWSER"), ("jax", "INFERBENCH_JAX_PYTHON"), ("torch", "INFERBENCH_TORCH_PYTHON")];

/// The packaged models that every workplace has.
const SMALLEST: [&str; 2] = ["digits", "tenn_eeg"];

/// What a process came to.
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A request for one session in f32 on the CPU.
pub fn on_one_thread<'a>(model: &'a Model, artifacts: &'a Artifacts, phase: Phase, sizes: Sizes) -> LoadRequest<'a> {
    let (device, dtype) = ("cpu", Dtype::F32);
    LoadRequest { model, artifacts, phase, sizes, device, dtype, threads: 1, instances: 1, callers: 1 }
}

impl Workplace {
    /// The suite measures 20 calls of each of these cases, and of the models that a test adds; on one thread, since
    /// other tests run beside.
    pub fn new(models: &[&str], backends: &[&str], batch_sizes: &[usize]) -> Self {
        let is_hidden = |beginning| !backends.is_empty() && !backends.iter().any(|name| name.starts_with(beginning));
        let hidden = OF_SLOW_BACKENDS.iter().filter(|(beginning, _)| is_hidden(*beginning));
        let hidden = hidden.map(|(_, variable)| *variable).collect();
        let workplace = Workplace { folder: tempfile::tempdir().unwrap(), hidden };
        for model in SMALLEST.iter().chain(models.iter().filter(|model| !SMALLEST.contains(model))) {
            copy_folder(&checkout().join("models/zoo").join(model), &workplace.path("models/zoo").join(model));
        }
        for folder in ["models/suites", "models/exported"] {
            fs::create_dir_all(workplace.path(folder)).unwrap();
        }
        // The weights of packaged models, and their quantised files.
        for folder in ["models/trained", "models/quantized"] {
            copy_folder(&checkout().join(folder), &workplace.path(folder));
        }
        std::os::unix::fs::symlink(checkout().join(".native"), workplace.path(".native")).unwrap();
        let names: Vec<String> = models.iter().map(|name| format!("{{ name = {name:?} }}")).collect();
        let suite = format!(
            "models = [{}]\ninclude_found = true\nbackends = {backends:?}\nbatch_sizes = {batch_sizes:?}\n\
             [effort]\niterations = 20\nleast_s = 0.0\nwarmup = 2\nthreads = 1\nwatch = false\n",
            names.join(", ")
        );
        fs::write(workplace.path("models/suites/quick.toml"), suite).unwrap();
        workplace
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    pub fn write(&self, relative: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(relative), content).unwrap();
    }

    /// Puts a file of `tests/data/models` where users put theirs.
    pub fn add_model(&self, data: &str, relative: &str) {
        fs::copy(data_folder().join("models").join(data), self.path(relative)).unwrap();
    }

    /// Criterion's folder of a case: `entry("digits/candle-cpu-f32/1", "new")`.
    pub fn entry(&self, id: &str, baseline: &str) -> PathBuf {
        self.criterion().join(id).join(baseline)
    }

    pub fn criterion(&self) -> PathBuf {
        self.path("target/criterion")
    }

    pub fn runs(&self) -> PathBuf {
        self.path("target/inferbench/runs")
    }

    /// The ids of the cases whose results Criterion's tree holds, in order.
    pub fn measured(&self) -> Vec<String> {
        let files = walkdir::WalkDir::new(self.criterion()).sort_by_file_name().into_iter().flatten();
        let samples = files.filter(|file| file.path().ends_with("new/sample.json"));
        let id = |sample: walkdir::DirEntry| {
            let id = sample.path().ancestors().nth(2).and_then(|id| id.strip_prefix(self.criterion()).ok());
            id.unwrap().display().to_string()
        };
        samples.map(id).collect()
    }

    pub fn latest_run(&self) -> RunFolder {
        RunFolder::find(&self.runs(), None).unwrap()
    }

    /// Of the last run that keeps no measurement: a verification, a test, a profile.
    pub fn unkept_outcomes(&self) -> Outcomes {
        let runs = self.runs().with_file_name("unkept-runs");
        RunFolder::find(&runs, None).unwrap().read_outcomes().unwrap()
    }

    /// The records of the latest conversion, in the order of the file.
    pub fn records(&self) -> Vec<Record> {
        let history = inferbench::history::History::open(&[self.path("target-reports")]).unwrap();
        let results = history.latest().unwrap().folder().join("results.csv");
        read_records(File::open(results).unwrap()).unwrap()
    }

    /// The record of a case in the latest conversion.
    pub fn record(&self, id: &str) -> Record {
        let records = self.records();
        let known: Vec<String> = records.iter().map(|record| record.case().to_string()).collect();
        let found = records.into_iter().find(|record| record.case().to_string() == id);
        found.unwrap_or_else(|| panic!("no record of {id} in {known:?}"))
    }

    /// The command `inferbench`, with this folder for its project.
    pub fn inferbench(&self, arguments: &[&str]) -> Command {
        self.command(Path::new(env!("CARGO_BIN_EXE_inferbench")), arguments)
    }

    /// The bench executable as `cargo bench --bench inference -- <arguments>` starts it.
    pub fn bench(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(bench_executable(), arguments);
        command.arg("--bench");
        command
    }

    /// The bench executable `load`, as `cargo bench --bench load -- <arguments>` starts it.
    pub fn load_bench(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&build_bench("load"), arguments);
        command.arg("--bench");
        command
    }

    /// The bench executable as `cargo test --bench inference -- <arguments>` starts it.
    pub fn bench_as_test(&self, arguments: &[&str]) -> Command {
        self.command(bench_executable(), arguments)
    }

    /// Any executable, in this folder and with this folder for its project.
    pub fn command(&self, executable: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(executable);
        for (name, _) in std::env::vars_os() {
            if ["INFERBENCH_", "CRITERION_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("INFERBENCH_ROOT", self.folder.path())
            // What is installed on this machine is no matter of the tests.
            .env("INFERBENCH_ENVIRONMENT", "none")
            .envs(self.hidden.iter().map(|variable| (variable, "/nowhere")))
            .env("INFERBENCH_PEAKS", peaks::file())
            // Tables and messages as in a terminal that is wide enough for them.
            .env("COLUMNS", "1000")
            .env("CRITERION_HOME", self.criterion());
        command
    }
}

/// What is done with a command once it is complete.
pub trait Run {
    /// Runs it to its end, whatever that is.
    fn finish(&mut self) -> Finished;
    /// Starts it as the leader of a process group of its own; what it says goes into the file.
    fn start(&mut self, log: &Path) -> Running;
}

impl Run for Command {
    fn finish(&mut self) -> Finished {
        let command = self.stdin(Stdio::null());
        let output = until_it_starts(|| command.output());
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Finished { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    fn start(&mut self, log: &Path) -> Running {
        self.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(log).unwrap());
        let command = self.process_group(0);
        Running(until_it_starts(|| command.spawn()))
    }
}

/// A program that a test has just written may still be open in a process that another test is starting.
fn until_it_starts<T>(mut start: impl FnMut() -> io::Result<T>) -> T {
    loop {
        match start() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => thread::sleep(Duration::from_millis(10)),
            started => return started.unwrap(),
        }
    }
}

impl Finished {
    /// Fails the test unless the process ended with this code.
    #[track_caller]
    pub fn with_code(self, code: u8) -> Self {
        assert_eq!(self.code, Some(code.into()), "\n{}\n{}", self.stdout, self.stderr);
        self
    }

    /// Fails the test unless standard error holds all of these.
    #[track_caller]
    pub fn saying(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "no {part:?} in\n{}", self.stderr);
        }
        self
    }
}

/// A process that was started and is to be disturbed. Whatever is left of its group ends with the test.
pub struct Running(Child);

impl Running {
    /// The process that measures, once there is one.
    pub fn child(&self) -> u32 {
        wait_for("a child process", || children(self.0.id()).first().copied())
    }

    pub fn kill(&self) {
        signal("KILL", &self.0.id().to_string());
    }

    /// What `kill` and a shutdown do: only this process is told.
    pub fn terminate(&self) {
        signal("TERM", &self.0.id().to_string());
    }

    /// What Ctrl-C does in a terminal.
    pub fn interrupt(&self) {
        signal("INT", &format!("-{}", self.0.id()));
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait_for("the end of the process", || self.0.try_wait().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("sh").args(["-c", &format!("kill -KILL -{} 2>/dev/null", self.0.id())]).status();
        let _ = self.0.wait();
    }
}

/// Waits until there is something, for at most two minutes.
#[track_caller]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "waited for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// `process` is a process id, or a process group with a minus before it.
pub fn signal(name: &str, process: &str) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status().unwrap();
    assert!(status.success(), "kill -{name} {process}");
}

/// Whether a process is there and has not ended.
pub fn is_alive(process: u32) -> bool {
    process_state(process).is_some_and(|(state, _)| state != 'Z')
}

pub fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|&id| process_state(id).is_some_and(|(state, its_parent)| state != 'Z' && its_parent == parent))
        .collect()
}

/// State and parent of a process.
fn process_state(process: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before the state is in parentheses and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Says, once for each reason, that tests are left out. Unlike what a test prints, it is shown though the test passes.
pub fn left_out(reason: impl std::fmt::Display) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let line = format!("left out: {reason}\n");
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(line.clone()) {
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

/// Whether this build and machine have ONNX Runtime; says so where a test is therefore left out.
pub fn has_onnxruntime() -> bool {
    let is_there = cfg!(feature = "ort") && onnxruntime_library().is_file();
    if !is_there {
        left_out("ONNX Runtime is not here; get it with `scripts/setup ort`");
    }
    is_there
}

/// Whether ONNX Runtime has what it needs for a device here; says so where a test is therefore left out.
pub fn has_device(device: &str) -> bool {
    static LISTED: OnceLock<Value> = OnceLock::new();
    let listed = LISTED.get_or_init(|| {
        let mut devices = Command::new(env!("CARGO_BIN_EXE_inferbench"));
        devices
            .args(["devices", "--format", "json"])
            .envs(OF_SLOW_BACKENDS.map(|(_, variable)| (variable, "/nowhere")));
        serde_json::from_slice(&devices.output().unwrap().stdout).unwrap()
    });
    let found =
        listed["devices"].as_array().unwrap().iter().find(|it| it["backend"] == "ort" && it["device"] == device);
    let is_there = found.is_some_and(|found| found["available"] == true);
    if !is_there {
        left_out(format_args!("{device}: {}", found.map_or(&Value::Null, |found| &found["detail"])));
    }
    is_there
}

fn onnxruntime_library() -> PathBuf {
    let own = checkout().join(".native/onnxruntime/libonnxruntime.so");
    std::env::var_os("ORT_DYLIB_PATH").map_or(own, PathBuf::from)
}

/// Whether this build and machine have OpenVINO; says so where a test is therefore left out.
pub fn has_openvino() -> bool {
    let is_there = cfg!(feature = "openvino") && openvino_library().is_file();
    if !is_there {
        left_out("OpenVINO is not here; get it with `scripts/setup openvino` and the feature `openvino`");
    }
    is_there
}

/// Whether this build and machine have llama.cpp; says so where a test is therefore left out.
pub fn has_llama_cpp() -> bool {
    let is_there = cfg!(feature = "llama-cpp") && checkout().join(".native/llama-cpp").is_dir();
    if !is_there {
        left_out("llama.cpp is not here; get it with `scripts/setup llama-cpp`");
    }
    is_there
}

fn openvino_library() -> PathBuf {
    let own = checkout().join(".native/openvino/libopenvino_c.so.2641");
    std::env::var_os("INFERBENCH_OPENVINO_LIBRARY").map_or(own, PathBuf::from)
}

/// Every real backend, and whether this build and machine have it.
pub fn real_backends() -> Vec<(&'static str, bool)> {
    let has_cpu = |entry: &registry::Entry| {
        let devices = entry.backend().map(|backend| backend.devices()).unwrap_or_default();
        devices.iter().any(|report| report.device == "cpu" && report.availability.is_ok())
    };
    registry::real().map(|entry| (entry.name, has_cpu(entry))).collect()
}

/// The real backends of this build and machine that run networks of any kind; llama.cpp has language models only.
pub fn backends_of_networks() -> Vec<&'static str> {
    let here = real_backends().into_iter().filter_map(|(name, is_here)| is_here.then_some(name));
    here.filter(|name| *name != "llama-cpp").collect()
}

/// Those that run ONNX files.
pub fn backends_of_graphs() -> Vec<&'static str> {
    backends_of_networks()
        .into_iter()
        .filter(|name| !["tch", "torch", "torch-compile", "torch-aot"].contains(name))
        .collect()
}

pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn data_folder() -> PathBuf {
    checkout().join("tests/data")
}

/// A measurement of these calls in the files of an entry of Criterion's tree.
pub fn put_calls(entry: &Path, samples_ns: &[Vec<u64>]) {
    let sums: Vec<f64> = samples_ns.iter().map(|calls| calls.iter().sum::<u64>() as f64).collect();
    let counts: Vec<f64> = samples_ns.iter().map(|calls| calls.len() as f64).collect();
    let mean = sums.iter().zip(&counts).map(|(sum, count)| sum / count).sum::<f64>() / sums.len() as f64;
    let mut estimates = read_json(&entry.join("estimates.json"));
    estimates["mean"]["point_estimate"] = mean.into();
    let mut log = read_json(&entry.join(LATENCY_LOG));
    log["samples_ns"] = json!(samples_ns);
    let sample = json!({ "sampling_mode": "Flat", "iters": counts, "times": sums });
    for (name, content) in [("estimates.json", estimates), (LATENCY_LOG, log), ("sample.json", sample)] {
        fs::write(entry.join(name), content.to_string()).unwrap();
    }
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn bench_executable() -> &'static Path {
    static EXECUTABLE: OnceLock<PathBuf> = OnceLock::new();
    EXECUTABLE.get_or_init(|| build_bench("inference"))
}

/// Cargo gives tests the path of a binary, but not of a bench executable: it is built here, with the test's features.
fn build_bench(name: &str) -> PathBuf {
    let others = [
        (cfg!(feature = "default"), "default"),
        (cfg!(feature = "charts"), "charts"),
        (cfg!(feature = "cpu-stacks"), "cpu-stacks"),
        (cfg!(feature = "program"), "program"),
        (cfg!(feature = "duckdb"), "duckdb"),
        (cfg!(feature = "http-load"), "http-load"),
        (cfg!(feature = "serve"), "serve"),
    ];
    let others = others.into_iter().filter(|(has, _)| *has).map(|(_, name)| name);
    let features: Vec<&str> = registry::features().into_iter().chain(others).collect();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(checkout()).args(["build", "--bench", name, "--message-format=json"]);
    cargo.args(["--no-default-features", "--features", &features.join(",")]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    // Those that cargo has set for this test; build scripts that look at them would run again, and all after them.
    let is_of_this_test =
        |name: &str| name == "OUT_DIR" || ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|it| name.starts_with(it));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_this_test)) {
        cargo.env_remove(name);
    }
    let built = cargo.finish().with_code(0);
    let messages = built.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_bench = |message: &Value| message["target"]["name"] == name;
    let executable = messages.filter(is_bench).find_map(|message| message["executable"].as_str().map(PathBuf::from));
    executable.expect("cargo names the executable that it built")
}
