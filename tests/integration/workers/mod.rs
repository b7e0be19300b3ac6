//! Programs outside of inferbench that run models: one in plain Python, what becomes of faults, JAX, and ONNX Runtime Web in a browser.

#[cfg(feature = "jax")]
mod jax;
#[cfg(feature = "ort-web")]
mod ort_web;

use std::fs;
use std::path::Path;
use std::process::Command;

use inferbench::definition::Status;
use inferbench::run_data::LoadRun;
use serde_json::Value;

use crate::support::{Finished, Run, Workplace, checkout, left_out, wait_for};

const DIGITS: &str = "digits/plain-cpu-f32/1";

fn example() -> String {
    checkout().join("src/guide/digits_worker.py").display().to_string()
}

/// A workplace with `digits` and without its labelled samples, all of which would be answered after each measurement.
fn without_samples(workplace: Workplace) -> Workplace {
    let toml = fs::read_to_string(workplace.path("models/zoo/digits/model.toml")).unwrap();
    let (source, others): (Vec<&str>, Vec<&str>) = toml.lines().partition(|line| line.starts_with("data_source = "));
    assert_eq!(source.len(), 1, "{toml}");
    workplace.write("models/zoo/digits/model.toml", others.join("\n"));
    // A file that no model names would be a model of its own.
    fs::remove_file(workplace.path("models/trained/digits-held-out.safetensors")).unwrap();
    workplace
}

/// A workplace with a program that is the example with this fault, and the command that starts it.
fn faulty(fault: &str) -> (Workplace, String) {
    let workplace = without_samples(Workplace::new(&["digits"], &["plain"], &[1, 3]));
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
    run(&workplace, &command, &["--timeout", "8"]).with_code(code);
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
    assert!(record.accuracy.is_some() && record.accuracy == candle.accuracy, "{:?}", record.accuracy);
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
        ("mine: ", "is not `name:command`"),
        ("onnxruntime:x", "\"onnxruntime\" is a name of the backend \"ort\""),
        ("a:x;a:y", "\"a\" is a name of the backend \"a\""),
    ] {
        workplace.inferbench(&["devices"]).env("INFERBENCH_WORKER", value).finish().with_code(2).saying(&[message]);
    }
    let absent = run(&workplace, "/no/such/program", &["--backend", "plain"]).with_code(3);
    absent.saying(&["left out: plain on cpu (1 case): unavailable: ", "the process of plain ended with exit code 12"]);
    let on_cuda = run(&workplace, "/no/such/program", &["--backend", "plain", "--device", "cuda"]).with_code(3);
    on_cuda.saying(&["plain has no device \"cuda\", and no cpu: the process of plain ended with exit code 12"]);
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
        "the process of plain has written \"Loading the mode\", which is not a frame",
    );
    // A process that holds its output open ends with it.
    costs_one_case(
        "if not os.fork(): time.sleep(987)\n    os.kill(os.getpid(), 9)",
        Status::Failed,
        "the process of plain was ended by signal 9 (SIGKILL)",
    );
    costs_one_case("raise worker.Refused('out-of-memory', 'too large')", Status::OutOfMemory, "too large");
    costs_one_case(
        "print('  what():  std::bad_alloc', file=sys.stderr); sys.exit(134)",
        Status::OutOfMemory,
        "ended with exit code 134; its last words: what():  std::bad_alloc",
    );
    costs_one_case(
        "subprocess.Popen(['sleep', '987'], cwd='/'); time.sleep(987)",
        Status::Timeout,
        "not finished after 8 s",
    );
    // A process that is no longer of its group ends with the case, too.
    costs_one_case(
        "subprocess.Popen(['sleep', '98765'], cwd='/', start_new_session=True); time.sleep(987)",
        Status::Timeout,
        "not finished after 8 s",
    );
    wait_for("the end of a process of the program", || processes_with("sleep 98765").is_empty().then_some(()));
}

#[test]
fn a_case_that_fails_when_it_is_profiled_is_told_by_the_exit_code() {
    let (workplace, command) = faulty("def fault():\n    sys.exit(7)");
    let profile = |code: u8, arguments: &[&str]| {
        let words = [&["profile", "--backend", "plain,candle"], arguments].concat();
        workplace.inferbench(&words).env("INFERBENCH_WORKER", format!("plain:{command}")).finish().with_code(code);
    };
    profile(5, &["--batch-sizes", "3"]);
    profile(0, &["--batch-sizes", "3", "--allow-failed"]);
    // The program has no profiler, which is no failure.
    profile(0, &["--batch-sizes", "1"]);
}

#[test]
fn the_stacks_of_the_process_that_waits_for_a_program_are_not_sampled() {
    let (workplace, command) = faulty(
        "def fault():\n    pass\nmade, whole = [], worker.answer\n\
         def answer(verb, request, tensors, session):\n    if verb == 'run':\n        \
         made.extend({'operators': [{'operator': 'Conv', 'duration_ns': 1000}]} for _ in tensors['turns'][1])\n    \
         if verb != 'profile':\n        return whole(verb, request, tensors, session)\n    \
         if request['is_on']:\n        made.clear()\n        return session, {}, ()\n    \
         return session, {'calls': made}, ()\nworker.answer = answer",
    );
    let mut profile = workplace.inferbench(&["profile", "--backend", "plain", "--batch-sizes", "1", "--cpu"]);
    let profiled = profile.env("INFERBENCH_WORKER", format!("plain:{command}")).finish().with_code(0);
    profiled.saying(&["no stacks of threads: ", "plain computes in another process"]);
}

#[test]
fn the_memory_of_a_load_test_is_also_that_of_the_program() {
    let (workplace, command) = faulty("def fault():\n    pass\nheld = b'x' * (300 << 20)");
    let mut load = workplace.inferbench(&["load", "--rate", "20", "--queries", "5", "--format", "json"]);
    let loaded = load.env("INFERBENCH_WORKER", format!("plain:{command}")).finish().with_code(0);
    let row = serde_json::from_str::<LoadRun>(&loaded.stdout).unwrap().results.remove(0);
    assert!(row.memory_mb.unwrap() > 300.0, "{row:?}");
}

#[test]
fn a_coarse_clock_does_not_lead_to_endless_calls() {
    // Calls of 10 µs, by a clock with steps of 100 µs.
    let (workplace, command) = faulty(
        "def fault():\n    pass\nwhole, exact = worker.answer, time.perf_counter_ns\n\
         def clock():\n    return exact() // 100_000 * 100_000\n\
         def timed(count):\n    begin, ends = clock(), exact()\n    for _ in range(count):\n        \
         ends += 10_000\n        while exact() < ends:\n            pass\n    return clock() - begin\n\
         def answer(verb, request, tensors, session):\n    if verb == 'clock':\n        return session, {'ns': clock()}, ()\n    \
         if verb != 'run':\n        return whole(verb, request, tensors, session)\n    \
         calls = len(tensors['turns'][1])\n    if calls > 100_000:\n        sys.exit(f'{calls} calls in one request')\n    \
         times = [timed(min(32, calls - place)) for place in range(0, calls, 32)]\n    \
         return session, {'together': 32}, [('times', 'i64', [len(times)], times)]\nworker.answer = answer",
    );
    run(&workplace, &command, &["--iterations", "6400", "--batch-sizes", "1"]).with_code(0);
    let record = workplace.record(DIGITS);
    assert_eq!((record.status, record.calls_together), (Status::Ok, Some(32)), "{:?}", record.message);
    assert!(record.latency_p50_ms.unwrap() > 0.005, "{:?}", record.latency_p50_ms);
}

#[test]
fn the_size_of_a_python_file_is_not_that_of_its_model() {
    let (workplace, command) = faulty(
        "def fault():\n    pass\nwhole = worker.answer\n\
         def answer(verb, *others):\n    session, fields, results = whole(verb, *others)\n    \
         if verb == 'load':\n        fields['files'].insert(0, os.path.abspath(__file__))\n    \
         return session, fields, results\nworker.answer = answer",
    );
    run(&workplace, &command, &["--iterations", "100", "--batch-sizes", "1"]).with_code(0);
    let record = workplace.record(DIGITS);
    assert_eq!((record.model_size_mb, record.artifact_sha256.is_some()), (None, true));
}

#[test]
fn a_row_is_of_one_version_of_its_runtime() {
    // Batch size 3 fails once. From then on, the program has another version.
    let (workplace, command) = faulty(
        "NEWER = os.path.abspath(__file__) + '.newer'\n\
         def fault():\n    if not os.path.exists(NEWER):\n        open(NEWER, 'w').close()\n        sys.exit(7)\n\
         whole = worker.answer\n\
         def answer(verb, *others):\n    session, fields, results = whole(verb, *others)\n    \
         if verb == 'describe':\n        fields['version'] = '2' if os.path.exists(NEWER) else '1'\n    \
         return session, fields, results\nworker.answer = answer",
    );
    let arguments = ["--processes", "2", "--iterations", "10"];
    let row_of = |batch: usize| {
        let row = workplace.record(&format!("digits/plain-cpu-f32/{batch}"));
        (row.status, row.library_version, row.processes)
    };
    let version = |number: u8| Some(format!("digits in plain Python {number}"));
    let said = run(&workplace, &command, &arguments).with_code(5);
    let lost = "it was measured with plain digits in plain Python 1, and now there is plain digits in plain Python 2";
    said.saying(&["process 2 is lost: ", lost]);
    assert_eq!((row_of(1), row_of(3).0), ((Status::Ok, version(1), Some(1)), Status::Failed));
    run(&workplace, &command, &[&arguments[..], &["--resume"]].concat()).with_code(0).saying(&[lost]);
    assert_eq!([1, 3].map(row_of), [(Status::Ok, version(1), Some(1)), (Status::Ok, version(2), Some(2))]);
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
        run(&workplace, &command, &["--iterations", "100", "--batch-sizes", "1"]).with_code(3);
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
    let deaf = |verb: &str| {
        format!(
            "whole = worker.read_frame\ndef read():\n    found = whole()\n    return read() \
             if found[0]['verb'] == '{verb}' else found\nworker.read_frame = read"
        )
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
        // It does not answer what it does not know, and it does not know `end`.
        (
            format!("print('I wait', file=sys.stderr)\n{}", deaf("no-such-verb")).as_str(),
            "answers an unknown verb with an error",
            "did not answer within 10 s; then the process of the program was ended by signal 9 (SIGKILL); its last words: I wait",
        ),
        (deaf("end").as_str(), "ends when it is told to", "it goes on after 5 s"),
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
        left_out(format_args!("{name} is not here; get it with `scripts/setup {name}`"));
    }
    is_there
}
