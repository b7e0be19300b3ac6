//! ONNX Runtime Web in a browser.

use super::*;

/// Whether a browser is here; says so where a test is therefore left out.
fn has_browser() -> bool {
    let is_there = checkout().join(".native/browser/chromium").is_file();
    if !is_there {
        left_out("no browser is here; get one with `scripts/setup browser`");
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
    with_folder(without_samples(Workplace::new(&[model], &["ort-web"], batch_sizes)))
}

fn with_folder(workplace: Workplace) -> Workplace {
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
    let workplace = with_folder(Workplace::new(&["digits"], &["ort-web"], &[2]));
    run(&workplace, &["--device", "wasm,webnn"]).finish().with_code(0);
    for (device, provider, threads) in [("wasm", "WebAssembly", Some(1)), ("webnn", "WebNNExecutionProvider", None)] {
        let record = workplace.record(&format!("digits/ort-web-{device}-f32/2"));
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{device}: {:?}", record.message);
        assert!(record.max_rel_error.unwrap() < 1e-5, "{device}");
        assert!(record.accuracy.unwrap() > 0.9, "{device}");
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
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
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

/// Profiles one call. The `If` named `outer` contains `b` and the `If` named `inner`, which contains `c`. Each begins at the
/// same time as its first node.
const PROFILED: &str = r#"
import { Profiler } from "./profiles.js";
const node = (name, op_name, ts, dur) => ({ cat: "Node", name: `${name}_kernel_time`, ts, dur, args: { op_name } });
const events = [
  { cat: "Session", name: "model_run", ts: 5, dur: 100 },
  node("a", "Conv", 5, 10), node("b", "MatMul", 15, 20), node("c", "Add", 35, 10), node("inner", "If", 35, 15),
  node("outer", "If", 15, 50), node("d", "Relu", 65, 5),
];
const graph = { endProfile: () => ({ endProfiling: () => console.log(JSON.stringify(events)) }) };
const profiler = new Profiler({ graphs: new Map([["main", graph]]) });
profiler.beginCall();
profiler.ran(graph);
const [{ operators }] = await profiler.end();
console.log(operators.map((own) => `${own.node} ${own.start_ns} ${own.duration_ns}`).join("\n"));
"#;

#[test]
fn the_time_of_an_operator_around_a_graph_excludes_that_of_the_nodes_within() {
    if Command::new("node").arg("--version").output().is_err() {
        left_out("node is not here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for file in ["profiles.js", "frames.js"] {
        fs::copy(checkout().join("src/backend/outside/ort_web").join(file), folder.path().join(file)).unwrap();
    }
    fs::write(folder.path().join("package.json"), r#"{"type": "module"}"#).unwrap();
    fs::write(folder.path().join("profiled.js"), PROFILED).unwrap();
    let profiled = Command::new("node").arg(folder.path().join("profiled.js")).finish().with_code(0);
    let expected =
        ["a 0 10000", "outer 10000 15000", "b 10000 20000", "inner 30000 5000", "c 30000 10000", "d 60000 5000"];
    assert_eq!(profiled.stdout.lines().collect::<Vec<_>>(), expected);
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
fn a_variable_that_names_no_browser_is_said() {
    let workplace = workplace("digits", &[1]);
    let absent =
        run(&workplace, &["--device", "wasm"]).env("INFERBENCH_BROWSER", "/no/such/browser").finish().with_code(3);
    absent.saying(&["unavailable: ", "INFERBENCH_BROWSER is /no/such/browser, which is not a file"]);
}
