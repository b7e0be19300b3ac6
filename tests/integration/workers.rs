//! Programs outside of inferbench that run models: one in plain Python, what becomes of faults, JAX, and ONNX Runtime Web in a browser.

use std::fs;
use std::path::Path;
use std::process::Command;

use inferbench::definition::Status;
use serde_json::Value;

use crate::support::{Finished, Run, Workplace, checkout, wait_for};

const DIGITS: &str = "digits/plain-cpu-f32/1";

fn example() -> String {
    checkout().join("src/guide/digits_worker.py").display().to_string()
}

/// A workplace with a program that is the example with this fault, and the command that starts it.
fn faulty(fault: &str) -> (Workplace, String) {
    let workplace = Workplace::new(&["digits"], &["plain"], &[1, 3]);
    let guide = checkout().join("src/guide");
    let program = format!(
        "import os, subprocess, sys, time\nsys.path.insert(0, {guide:?})\nimport digits_worker as worker\n\
         whole_bind = worker.Digits.bind\n\
         def bind(self, binding, inputs):\n    if inputs['input'][0][0] == 3:\n        fault()\n    whole_bind(self, binding, inputs)\n\
         worker.Digits.bind = bind\n{fault}\nworker.main()\n"
    );
    workplace.write("program.py", program);
    let command = format!("python3 {}", workplace.path("program.py").display());
    (workplace, command)
}

fn run(workplace: &Workplace, command: &str, arguments: &[&str]) -> Finished {
    let words = [&["run", "--noplot"], arguments].concat();
    workplace.inferbench(&words).env("INFERBENCH_WORKER", format!("plain:{command}")).finish()
}

/// The command lines of processes that have a text in them.
fn processes_with(text: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| {
        let is_process = process.file_name().to_str()?.parse::<u32>().is_ok();
        let line = fs::read(process.path().join("cmdline")).ok().filter(|_| is_process)?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.contains(text)).collect()
}

fn none_is_left(place: &Path) {
    let place = place.display().to_string();
    wait_for("the end of all processes of the program", || processes_with(&place).is_empty().then_some(()));
}

/// Batch size 3 fails with this message, batch size 1 does not, and nothing goes on.
#[track_caller]
fn costs_one_case(fault: &str, status: Status, message: &str) {
    let (workplace, command) = faulty(&format!("def fault():\n    {fault}"));
    let code = if status == Status::OutOfMemory { 0 } else { 5 };
    run(&workplace, &command, &["--timeout", "20"]).with_code(code);
    let record = workplace.record("digits/plain-cpu-f32/3");
    let said = record.message.unwrap();
    assert_eq!((record.status, said.contains(message)), (status, true), "{said}");
    assert_eq!(workplace.record(DIGITS).status, Status::Ok);
    none_is_left(&workplace.path(""));
}

#[test]
fn a_program_in_plain_python_is_a_backend() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[2]);
    let command = format!("python3 {}", example());
    run(&workplace, &command, &["--backend", "plain,candle"]).with_code(0);
    let record = workplace.record("digits/plain-cpu-f32/2");
    assert_eq!((record.status, record.verified), (Status::Ok, Some(true)));
    // Criterion chooses the calls per sample by a single call, which other work may make a short one beside those of the warm-up.
    assert!(record.iterations.is_some_and(|calls| calls > 0 && calls.is_multiple_of(20)), "{:?}", record.iterations);
    assert!(record.max_rel_error.unwrap() < 1e-5);
    assert_eq!((record.effective_device.as_deref(), record.threads), (Some("cpu"), Some(1)));
    assert_eq!(record.backend_version.as_deref(), Some("protocol 1"));
    assert!(record.library_version.unwrap().starts_with("digits in plain Python 0.1 on Python 3"));
    let candle = workplace.record("digits/candle-cpu-f32/2");
    assert!(record.latency_p50_ms > candle.latency_p50_ms);
    // Python alone takes some megabytes, which are counted beside those of the case's own process.
    assert!(record.memory_mb.unwrap() > 8.0, "{:?}", record.memory_mb);
    assert_eq!(record.artifact_sha256.unwrap().len(), 64);

    let devices = workplace.inferbench(&["devices", "--format", "json"]);
    let mut devices = devices;
    let listed = devices.env("INFERBENCH_WORKER", format!("plain:{command}")).finish().with_code(0);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let own = listed["devices"].as_array().unwrap().iter().find(|it| it["backend"] == "plain").unwrap().clone();
    assert_eq!((&own["available"], &own["device"]), (&true.into(), &"cpu".into()));
    none_is_left(Path::new(&example()));
}

#[test]
fn the_variable_is_checked() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    for (value, message) in [
        ("python3 worker.py", "is not `name:command`, as in `mine:python3 mine.py`"),
        ("onnxruntime:x", "\"onnxruntime\" is a name of the backend \"ort\""),
        ("a:x;a:y", "\"a\" is a name of the backend \"a\""),
    ] {
        workplace.inferbench(&["devices"]).env("INFERBENCH_WORKER", value).finish().with_code(2).saying(&[message]);
    }
    let absent = run(&workplace, "/no/such/program", &["--backend", "plain"]).with_code(3);
    absent.saying(&["left out: plain on cpu (1 case): unavailable: ", "the process of plain ended with exit code 12"]);
}

#[test]
fn a_program_that_ends_hangs_or_talks_costs_one_case() {
    costs_one_case(
        "print('no more', file=sys.stderr); os.kill(os.getpid(), 9)",
        Status::Failed,
        "the process of plain was ended by signal 9 (SIGKILL); its last words: no more",
    );
    costs_one_case("sys.exit(7)", Status::Failed, "the process of plain ended with exit code 7");
    costs_one_case(
        "worker.OUTPUT.write(b'Loading the model\\n'); worker.OUTPUT.flush()",
        Status::Failed,
        "the process of plain has written \"Loading the mode\", and no frame",
    );
    costs_one_case("raise worker.Refused('out-of-memory', 'too large')", Status::OutOfMemory, "too large");
    costs_one_case(
        "subprocess.Popen(['sleep', '987'], cwd='/'); time.sleep(987)",
        Status::Timeout,
        "no end after 20 s",
    );
    // A process that is no longer of its group ends with the case, too.
    costs_one_case(
        "subprocess.Popen(['sleep', '98765'], cwd='/', start_new_session=True); time.sleep(987)",
        Status::Timeout,
        "no end after 20 s",
    );
    wait_for("the end of a process of the program", || processes_with("sleep 98765").is_empty().then_some(()));
}

#[test]
fn what_a_program_prints_is_in_nobodys_way() {
    let flood = "for line in range(40000): print('x' * 100, line, file=sys.stderr)\nprint('to standard output')";
    let (workplace, command) = faulty(&format!("def fault():\n    pass\n{flood}"));
    run(&workplace, &command, &[]).with_code(0);
    assert!(workplace.records().iter().all(|record| record.status == Status::Ok));
}

#[test]
fn a_clock_that_goes_wrong_makes_the_case_fail() {
    for factor in ["1.05", "1e-3"] {
        let own = format!(
            "def fault():\n    pass\nclass Clock:\n    perf_counter_ns = staticmethod(lambda: int({factor} * time.perf_counter_ns()))\n\
             worker.time = Clock"
        );
        let (workplace, command) = faulty(&own);
        run(&workplace, &command, &["--iterations", "100"]).with_code(3);
        let said = workplace.record(DIGITS).message.unwrap();
        let is_slow =
            said.starts_with("the clock of plain says ") && said.ends_with("its times cannot be compared with others");
        // A clock that is too fast may be found earlier: its calls take longer than the answer.
        let is_fast = said.starts_with("an answer of plain to `run` has calls of ") && factor == "1.05";
        assert!(is_slow || is_fast, "{said}");
    }
}

#[test]
fn a_program_ends_with_the_process_that_has_started_it() {
    let (workplace, command) = faulty("def fault():\n    time.sleep(987)");
    let mut started = workplace.inferbench(&["run", "--noplot"]);
    started.env("INFERBENCH_WORKER", format!("plain:{command}"));
    let running = started.start(&workplace.path("log"));
    let place = workplace.path("program.py").display().to_string();
    wait_for("a case that waits", || {
        let log = fs::read_to_string(workplace.path("log")).unwrap_or_default();
        (log.contains("digits/plain-cpu-f32/3") && !processes_with(&place).is_empty()).then_some(())
    });
    running.kill();
    wait_for("the end of the program", || {
        processes_with(&place).iter().all(|line| !line.starts_with("python3")).then_some(())
    });
}

#[test]
fn a_program_is_put_through_the_protocol() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let check = |command: &str, code: u8| -> Vec<(String, bool, String)> {
        let finished = workplace.inferbench(&["devices", "--format", "json", "--conformance", command]).finish();
        let checks: Value = serde_json::from_str(&finished.with_code(code).stdout).unwrap();
        let checks = checks["checks"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        checks.map(|it| (text(&it["what"]), it["right"] == true, text(&it["found"]))).collect()
    };
    let checks = check(&format!("python3 {}", example()), 0);
    assert_eq!((checks.len(), checks.iter().all(|(_, is_right, _)| *is_right)), (10, true), "{checks:?}");

    for (fault, what, found) in [
        (
            "whole = worker.write_frame\n\
             worker.write_frame = lambda header, tensors=(): sys.exit(1) if 'error' in header else whole(header, tensors)",
            "answers an unknown verb with an error, and goes on",
            "ended with exit code 1",
        ),
        ("worker.sys.exit = lambda code: time.sleep(100)", "ends when its input ends", "it goes on after 5 s"),
        ("worker.Digits.scores = lambda self, values: [0.0] * 10", "gives the same outputs each time", "are the same"),
        (
            "worker.product = lambda *_: [time.perf_counter() % 1.0] * 64",
            "gives the same outputs each time",
            "of one batch differ",
        ),
    ] {
        let (_workplace, command) = faulty(&format!("def fault():\n    pass\n{fault}"));
        let checks = check(&command, 1);
        let (last, is_right, why) = checks.last().unwrap();
        assert!(last.starts_with(what) && !is_right && why.contains(found), "{fault}: {checks:?}");
    }
}

/// The environment of an external worker.
#[cfg(any(feature = "jax", feature = "torch"))]
pub fn environment(name: &str) -> std::path::PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(std::path::PathBuf::from);
    let cache = cache.unwrap_or_else(|| Path::new(&std::env::var_os("HOME").unwrap()).join(".cache"));
    cache.join("inferbench").join(name)
}

/// Whether the environment of an external worker is here; says so where a test is therefore left out.
#[cfg(any(feature = "jax", feature = "torch"))]
pub fn has_environment(name: &str) -> bool {
    let is_there = environment(name).join("requirements").is_file();
    if !is_there {
        eprintln!("left out: {name} is not here; get it with `scripts/setup {name}`");
    }
    is_there
}

#[cfg(feature = "jax")]
mod jax {
    use inferbench::definition::Phase;
    use inferbench::onnx::cost;

    use super::*;
    use crate::support::has_onnxruntime;

    #[test]
    fn networks_of_all_kinds_are_right_and_say_how_long_they_were_compiled() {
        if !has_environment("jax") {
            return;
        }
        let workplace = Workplace::new(&["digits", "llama-small", "t5-tiny"], &["jax"], &[1, 3]);
        workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
        let records = workplace.records();
        assert_eq!(records.len(), 12, "digits, prefill and decode of llama-small, all phases of t5-tiny");
        let (mut compiled_ms, mut traced_ms) = (0.0, 0.0);
        for record in records {
            let id = record.case().to_string();
            assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {:?}", record.message);
            assert!(record.max_rel_error.unwrap() < 1e-4, "{id}");
            assert_eq!((record.threads, record.providers.as_deref()), (Some(1), Some("XLA cpu")), "{id}");
            let (compiled, traced) = (record.compilation_time_ms.unwrap(), record.trace_time_ms.unwrap());
            assert!(compiled > 0.0 && traced > 0.0 && record.load_time_ms.unwrap() > 0.0, "{id}");
            compiled_ms += compiled;
            traced_ms += traced;
            assert!(record.library_version.unwrap().starts_with("jax 0."), "{id}");
            let says = record.message.unwrap_or_default();
            assert_eq!(says.contains("executable"), id.contains("decode"), "{id}: {says}");
            // T5's decoder counts the positions of its cache.
            assert!(
                !id.contains("llama-small-seq32-decode") || says.contains("one executable for all steps"),
                "{id}: {says}"
            );
        }
        // Of all cases together: a pause while a single one is traced would be longer than its compilation.
        assert!(compiled_ms > traced_ms, "{compiled_ms} {traced_ms}");
    }

    #[test]
    fn calls_from_host_to_host_have_stages_by_the_clock_of_the_process() {
        if !has_environment("jax") {
            return;
        }
        let workplace = Workplace::new(&["digits", "llama-small"], &["jax"], &[1]);
        workplace.inferbench(&["run", "--noplot", "--boundary", "end-to-end"]).finish().with_code(0);
        let records = workplace.records();
        assert_eq!(records.len(), 3);
        for record in records {
            let id = record.case().to_string();
            if id.contains("decode") {
                assert_eq!(record.status, Status::Unsupported, "{id}");
                continue;
            }
            assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {:?}", record.message);
            let stages = [record.h2d_ms, record.compute_ms, record.d2h_ms].map(Option::unwrap);
            assert!(stages.iter().all(|ms| *ms > 0.0), "{id}: {stages:?}");
        }
    }

    /// The operations of the graphs of a case of a batch of one.
    fn flops_of_graphs(case_id: &str) -> f64 {
        let (name, phase) = match case_id.split_once('/').unwrap().0 {
            "llama-small-seq32-prefill" => ("llama-small", Phase::Prefill),
            "llama-small-seq32-decode" => ("llama-small", Phase::Decode),
            name => (name, Phase::Forward),
        };
        let model = crate::cost::model(name);
        let length = model.has_sequence().then_some(32);
        cost(&model, phase, crate::cost::sizes(1, length)).unwrap().flops as f64
    }

    #[test]
    fn a_profile_names_the_nodes_that_xlas_instructions_come_from() {
        if !has_environment("jax") {
            return;
        }
        let workplace = Workplace::new(&["tenn_eeg", "llama-small"], &["jax"], &[1]);
        let profiled = workplace.inferbench(&["profile", "--format", "json"]).finish().with_code(0);
        let profile: Value = serde_json::from_str(&profiled.stdout).unwrap();
        let cases = profile["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 3, "{}", profiled.stderr);
        for case in cases {
            let text = case["rows"].to_string();
            assert!(text.contains("MatMul") || text.contains("Conv"), "{text}");
            // XLA counts elementwise operations, too, and of convolutions none with what pads them.
            let rows = case["rows"].as_array().unwrap();
            let by_xla: f64 = rows.iter().filter_map(|row| row["flops"].as_f64()).sum();
            let of_graph = flops_of_graphs(case["case_id"].as_str().unwrap());
            assert!((0.8..1.6).contains(&(by_xla / of_graph)), "{by_xla} of {of_graph}: {case}");
            let has_cost = |row: &&Value| row["bytes"].as_f64().is_some_and(|bytes| bytes > 0.0);
            assert!(10 * rows.iter().filter(has_cost).count() > 9 * (rows.len() - 1), "{case}");
        }
    }

    #[test]
    fn pictures_grow_as_in_onnxruntime() {
        if !has_environment("jax") || !has_onnxruntime() {
            return;
        }
        let workplace = Workplace::new(&[], &["ort", "jax"], &[2]);
        workplace.add_model("growing_pictures.onnx", "models/exported/planted.onnx");
        workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
        let record = workplace.record("planted/jax-cpu-f32/2");
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{:?}", record.message);
    }

    #[test]
    fn what_jax_cannot_compile_is_unsupported_by_name() {
        if !has_environment("jax") {
            return;
        }
        let workplace = Workplace::new(&[], &["jax"], &[1]);
        workplace.add_model("falls_back.onnx", "models/exported/planted.onnx");
        workplace.inferbench(&["run", "--noplot"]).finish().with_code(3);
        let record = workplace.record("planted/jax-cpu-f32/1");
        assert_eq!(
            (record.status, record.message.as_deref()),
            (Status::Unsupported, Some("no operator TfIdfVectorizer here"))
        );
    }

    #[test]
    fn without_its_environment_it_says_what_adds_it() {
        let workplace = Workplace::new(&["digits"], &["jax"], &[1]);
        let absent = workplace.inferbench(&["run"]).env("XDG_CACHE_HOME", workplace.path("")).finish().with_code(3);
        absent
            .saying(&["left out: jax on cpu (1 case): unavailable: JAX is not here; get it with `scripts/setup jax`"]);
        let mut own = Command::new("python3");
        if own.args(["-c", "import jax"]).finish().code != Some(0) {
            let other =
                workplace.inferbench(&["run"]).env("INFERBENCH_JAX_PYTHON", "/usr/bin/python3").finish().with_code(3);
            other.saying(&["unavailable: ", "No module named"]);
        }
    }
}

#[cfg(feature = "ort-web")]
mod ort_web {
    use super::*;

    /// Whether a browser is here; says so where a test is therefore left out.
    fn has_browser() -> bool {
        let is_there = checkout().join(".native/browser/chromium").is_file();
        if !is_there {
            eprintln!("left out: no browser is here; get one with `scripts/setup browser`");
        }
        is_there
    }

    /// Everything of the browser is gone: its processes, and its folder, which is made below the workplace.
    fn nothing_is_left(workplace: &Workplace) {
        none_is_left(&workplace.path("tmp"));
        wait_for("the end of the browser's folder", || {
            let mut left = fs::read_dir(workplace.path("tmp")).unwrap().flatten();
            left.all(|entry| !entry.file_name().to_string_lossy().starts_with("inferbench-browser-")).then_some(())
        });
    }

    fn workplace(model: &str, batch_sizes: &[usize]) -> Workplace {
        let workplace = Workplace::new(&[model], &["ort-web"], batch_sizes);
        fs::create_dir(workplace.path("tmp")).unwrap();
        workplace
    }

    fn run(workplace: &Workplace, arguments: &[&str]) -> Command {
        let mut command = workplace.inferbench(&[&["run", "--noplot"], arguments].concat());
        command.env("TMPDIR", workplace.path("tmp"));
        command
    }

    /// The number of the browser's first process, once this case is measured: the browsers of probes have ended.
    fn browser_of(workplace: &Workplace, case: &str) -> String {
        wait_for("the case", || {
            let log = fs::read_to_string(workplace.path("log")).unwrap_or_default();
            log.contains(case).then_some(())
        });
        let place = workplace.path("tmp").display().to_string();
        let is_browser = |line: &str| line.contains(&place) && line.contains("--headless") && !line.contains("--type=");
        wait_for("a browser", || {
            let processes = fs::read_dir("/proc").unwrap().flatten();
            let names = processes.filter_map(|process| process.file_name().into_string().ok());
            let mut names = names.filter(|name| name.parse::<u32>().is_ok());
            names.find(|name| {
                let line = fs::read(format!("/proc/{name}/cmdline")).unwrap_or_default();
                is_browser(&String::from_utf8_lossy(&line).replace('\0', " "))
            })
        })
    }

    #[test]
    fn webassembly_and_webnn_are_right_and_say_what_they_are() {
        if !has_browser() {
            return;
        }
        let workplace = workplace("digits", &[2]);
        run(&workplace, &["--device", "wasm,webnn"]).finish().with_code(0);
        for (device, provider, threads) in [("wasm", "WebAssembly", Some(1)), ("webnn", "WebNNExecutionProvider", None)]
        {
            let record = workplace.record(&format!("digits/ort-web-{device}-f32/2"));
            assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{device}: {:?}", record.message);
            assert!(record.max_rel_error.unwrap() < 1e-5, "{device}");
            assert_eq!(
                (record.effective_device.as_deref(), record.device_type.as_deref(), record.providers.as_deref()),
                (Some(device), Some("cpu"), Some(provider))
            );
            assert_eq!(record.threads, threads);
            assert!(record.compilation_time_ms.unwrap() > 0.0 && record.load_time_ms.unwrap() > 0.0, "{device}");
            assert!(record.calls_together.unwrap() >= 1, "{device}");
            assert_eq!(record.library_version.as_deref(), Some("onnxruntime-web 1.30.0"));
            // The processes of a browser take more than a hundred megabytes together.
            assert!(record.memory_mb.unwrap() > 100.0, "{:?}", record.memory_mb);
        }
        nothing_is_left(&workplace);
    }

    /// One graph that is called once, and two graphs of which one is called again and again.
    #[test]
    fn a_profile_on_webassembly_has_the_times_of_nodes() {
        if !has_browser() {
            return;
        }
        let workplace = Workplace::new(&["tenn_eeg", "whisper-mini"], &["ort-web"], &[1]);
        fs::create_dir(workplace.path("tmp")).unwrap();
        let mut command = workplace.inferbench(&["profile", "--device", "wasm", "--format", "json"]);
        let profiled = command.env("TMPDIR", workplace.path("tmp")).finish().with_code(0);
        let profile: Value = serde_json::from_str(&profiled.stdout).unwrap();
        let cases = profile["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 4, "{}", profiled.stderr);
        for case in cases {
            let rows = case["rows"].as_array().unwrap();
            let sum: f64 = rows.iter().filter_map(|row| row["raw_us"].as_f64()).sum();
            // What is outside of the operators is that of a plain call, which other work may have made longer than a profiled one.
            let [profiled_us, plain_us] = ["profiled_us", "plain_us"].map(|key| case[key].as_f64().unwrap());
            let most = 1.1 * profiled_us.max(plain_us);
            assert!(sum > 0.3 * profiled_us && sum < most, "{sum} of {profiled_us}, plain {plain_us}: {case}");
            assert!(rows.iter().any(|row| ["Conv", "MatMul"].iter().any(|it| row["operator"] == *it)), "{case}");
        }
        nothing_is_left(&workplace);
    }

    #[test]
    fn a_graph_that_the_browser_refuses_is_unsupported_with_its_reason() {
        if !has_browser() {
            return;
        }
        let workplace = workplace("clip-small", &[1]);
        run(&workplace, &["--device", "webnn", "--timeout", "100"]).finish().with_code(3);
        let records = workplace.records();
        let said = records[0].message.as_deref().unwrap_or_default();
        assert_eq!(
            (records[0].status, said.contains("gatherElements only supports constant indices")),
            (Status::Unsupported, true),
            "{said}"
        );
        nothing_is_left(&workplace);
    }

    #[test]
    fn what_a_browser_would_compute_elsewhere_is_refused() {
        if !has_browser() {
            return;
        }
        let workplace = workplace("digits", &[1]);
        let finished = run(&workplace, &["--device", "webnn-gpu"]).finish().with_code(3);
        finished.saying(&["unsupported: asked for WebNN's gpu, and the browser computes on cpu"]);
    }

    #[test]
    fn a_browser_that_is_killed_costs_one_case() {
        if !has_browser() {
            return;
        }
        let workplace = workplace("digits", &[1, 3]);
        let mut running = run(&workplace, &["--device", "wasm", "--iterations", "10000"]).start(&workplace.path("log"));
        let browser = browser_of(&workplace, "digits/ort-web-wasm-f32/1");
        Command::new("kill").args(["-KILL", &browser]).finish().with_code(0);
        assert_eq!(running.wait().code(), Some(5));
        let record = workplace.record("digits/ort-web-wasm-f32/1");
        let said = record.message.unwrap();
        assert_eq!((record.status, said.contains("was ended by signal 9 (SIGKILL)")), (Status::Failed, true), "{said}");
        assert_eq!(workplace.record("digits/ort-web-wasm-f32/3").status, Status::Ok);
        nothing_is_left(&workplace);
    }

    #[test]
    fn a_browser_ends_with_the_process_that_has_started_it() {
        if !has_browser() {
            return;
        }
        let workplace = workplace("digits", &[1]);
        let running = run(&workplace, &["--device", "webnn", "--iterations", "100000"]).start(&workplace.path("log"));
        browser_of(&workplace, "digits/ort-web-webnn-f32/1");
        running.kill();
        nothing_is_left(&workplace);
    }

    #[test]
    fn without_a_browser_it_says_what_adds_it() {
        let workplace = workplace("digits", &[1]);
        let absent =
            run(&workplace, &["--device", "wasm"]).env("INFERBENCH_BROWSER", "/no/such/browser").finish().with_code(3);
        absent.saying(&["unavailable: ", "get it with `scripts/setup browser`"]);
    }
}
