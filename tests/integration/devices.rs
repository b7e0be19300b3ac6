//! Devices: an absent device says so, a device computes and no other does, and a fallback is caught.
//!
//! Tests that need a device's package are left out, with the reason, if it is not installed:
//! `scripts/setup --device openvino,qnn,webgpu` adds the packages, and QNN's tests need `INFERBENCH_QNN_OPTIONS` too.

use std::fs;

use crate::support::{Run, Workplace, backends_of_networks, has_device, has_onnxruntime, wait_for};
use inferbench::definition::{Dtype, Status};
use serde_json::Value;

fn verified(workplace: &Workplace, code: u8, arguments: &[&str]) -> Vec<Value> {
    let command = [&["verify", "--format", "json"], arguments].concat();
    let finished = workplace.inferbench(&command).finish().with_code(code);
    let matrix: Value = serde_json::from_str(&finished.stdout).unwrap();
    matrix["cases"].as_array().unwrap().clone()
}

#[test]
fn an_absent_device_is_unavailable_with_what_is_there_and_an_unknown_one_is_refused() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    for device in ["cuda", "cuda:1", "mps", "rocm", "webnn"] {
        let finished = workplace.inferbench(&["run", "--device", device]).finish().with_code(3);
        finished.saying(&[&format!("left out: candle on {device} (1 case): unavailable: "), "candle has cpu here"]);
    }
    if has_onnxruntime() {
        // A library that is installed is no device before it has computed something.
        let finished = workplace.inferbench(&["run", "--device", "cuda:9", "--backend", "ort"]).finish().with_code(3);
        assert_eq!(finished.stderr.contains("xnnpack"), has_device("xnnpack"), "{}", finished.stderr);
    }
    let refused = workplace.inferbench(&["run", "--device", "gpus"]).finish().with_code(2);
    refused.saying(&["unknown device \"gpus\"", "cuda[:n]", "openvino", "auto"]);
}

#[test]
fn auto_is_the_cpu_if_there_is_nothing_better() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let cases = verified(&workplace, 0, &["--device", "auto,cpu"]);
    let ids: Vec<&str> = cases.iter().filter_map(|case| case["case_id"].as_str()).collect();
    assert!(
        ids == ["digits/candle-cpu-f32/1"] || cfg!(feature = "candle-cuda") || cfg!(feature = "candle-metal"),
        "{ids:?}"
    );
}

#[test]
fn a_device_shows_every_node_on_its_own_provider() {
    let workplace = Workplace::new(&["digits", "tenn_eeg"], &["ort"], &[1, 3]);
    for (device, provider) in
        [("openvino", "OpenVINOExecutionProvider"), ("webgpu", "WebGpuExecutionProvider"), ("qnn", "qnn")]
    {
        if !has_onnxruntime() || !has_device(device) {
            continue;
        }
        let cases = verified(&workplace, 0, &["--device", device]);
        assert_eq!(cases.len(), 4);
        for case in &cases {
            assert_eq!(
                (&case["status"], &case["verified"], &case["provider_share"]),
                (&"ok".into(), &true.into(), &1.0.into())
            );
        }
        workplace
            .inferbench(&["run", "--device", device, "--model", "digits", "--iterations", "10"])
            .finish()
            .with_code(0);
        let record = workplace.records().remove(0);
        assert_eq!(
            (record.status, record.providers.as_deref(), record.provider_share),
            (Status::Ok, Some(provider), Some(1.0))
        );
        assert_eq!(record.effective_device.as_deref(), Some(device));
        assert_eq!(record.dtype, if device == "qnn" { Dtype::F16 } else { Dtype::F32 });
    }
}

#[test]
fn a_planted_fallback_is_caught_and_names_the_operator() {
    let workplace = Workplace::new(&[], &["ort"], &[1]);
    workplace.add_model("falls_back.onnx", "models/exported/planted.onnx");
    if has_onnxruntime() {
        let cases = verified(&workplace, 0, &["--device", "cpu"]);
        assert_eq!(cases[0]["status"], "ok", "{cases:?}");
    }
    for device in ["openvino", "webgpu", "qnn"] {
        if !has_onnxruntime() || !has_device(device) {
            continue;
        }
        let cases = verified(&workplace, 3, &["--device", device]);
        assert_eq!(cases[0]["status"], "unsupported", "{cases:?}");
        let message = cases[0]["message"].as_str().unwrap();
        assert!(message.contains("TfIdfVectorizer on CPUExecutionProvider"), "{message}");
        assert!(cases[0]["provider_share"].as_f64().unwrap() < 1.0);
    }
}

#[test]
fn a_dtype_that_a_runtime_would_only_pretend_is_unsupported_by_name() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["ort"], &[1]);
    let cases = verified(&workplace, 3, &["--dtype", "f16"]);
    let message = cases[0]["message"].as_str().unwrap();
    assert_eq!(cases[0]["status"], "unsupported", "{message}");
    assert!(message.contains("CPUExecutionProvider has no f16") && message.contains("Conv"), "{message}");
}

#[test]
fn qnn_does_not_guess_the_chip() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["ort"], &[1]);
    let devices = workplace.inferbench(&["devices", "--format", "json"]).env("INFERBENCH_QNN_OPTIONS", "").finish();
    let listed: Value = serde_json::from_str(&devices.with_code(0).stdout).unwrap();
    let is_qnn = |it: &&Value| it["backend"] == "ort" && it["device"] == "qnn";
    let qnn = listed["devices"].as_array().unwrap().iter().find(is_qnn).unwrap();
    assert_eq!(qnn["available"], false);
    let detail = qnn["detail"].as_str().unwrap();
    // Without the package that is the reason.
    assert!(detail.contains("INFERBENCH_QNN_OPTIONS") || detail.contains("scripts/setup --device qnn"), "{detail}");
}

#[test]
fn a_reason_that_several_devices_share_is_said_once() {
    let workplace = Workplace::new(&["digits"], &["ort"], &[1]);
    let printed =
        |arguments: &[&str]| workplace.inferbench(&[&["devices"], arguments].concat()).finish().with_code(0).stdout;
    let listed: Value = serde_json::from_str(&printed(&["--format", "json"])).unwrap();
    let table = printed(&["--wide"]);
    for device in listed["devices"].as_array().unwrap().iter().filter(|it| it["available"] == false) {
        let reason = device["detail"].as_str().unwrap();
        assert!(table.matches(reason).count() <= 1, "{reason}\n{table}");
    }
}

#[test]
fn an_empty_variable_of_a_library_is_no_path() {
    let workplace = Workplace::new(&["digits"], &["ort"], &[1]);
    let list = |variables: &[(&str, &str)]| {
        let mut command = workplace.inferbench(&["devices", "--format", "json"]);
        command.env_remove("ORT_DYLIB_PATH").envs(variables.iter().copied());
        let listed: Value = serde_json::from_str(&command.finish().with_code(0).stdout).unwrap();
        listed["devices"].clone()
    };
    let unset = list(&[]);
    assert_eq!(list(&[("ORT_DYLIB_PATH", ""), ("INFERBENCH_OPENVINO_LIBRARY", "")]), unset);
    assert_ne!(list(&[("ORT_DYLIB_PATH", "nowhere"), ("INFERBENCH_OPENVINO_LIBRARY", "nowhere")]), unset);
}

#[cfg(all(feature = "tch", target_os = "linux", target_arch = "x86_64"))]
#[test]
fn only_a_worker_that_uses_libtorch_has_it_in_its_memory() {
    for backend in backends_of_networks() {
        let workplace = Workplace::new(&["tenn_eeg"], &[backend], &[1]);
        let log = workplace.path("log.txt");
        // As many calls as fit into two seconds: the process is to be there when it is looked at.
        let run = workplace.inferbench(&["run", "--noplot", "--iterations", "1000000", "--budget", "2"]);
        let running = { run }.start(&log);
        wait_for("the samples", || fs::read_to_string(&log).unwrap().contains("calls in").then_some(()));
        let maps = fs::read_to_string(format!("/proc/{}/maps", running.child())).unwrap();
        running.kill();
        assert_eq!(maps.contains("libtorch_cpu.so"), backend == "tch", "{backend}");
    }
}
