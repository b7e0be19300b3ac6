//! Names of backends and devices as people write them: `ort` or `onnxruntime`; `cpu`, `cuda`, `cuda:1`, and the runtimes'
//! names for what drives a device, such as `openvino`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::case::{check_component, usable_name};
use super::dtype::Dtype;

/// The backend that computes nothing: it measures what the harness itself costs.
pub const NULL: &str = "null";

/// The backend that loads a model's TorchScript archive, where others load its graph.
pub const TORCHSCRIPT: &str = "tch";

/// The name of the backend that calls code of other packages.
pub const CLOSURE: &str = "closure";

/// The name of a backend as in ids and records, for the name of the library that it runs: `ort` for `ONNXRuntime`. Other names
/// are returned in lower case.
pub fn backend_name(name: &str) -> String {
    let name = name.to_lowercase();
    match name.as_str() {
        "onnxruntime" | "onnx-runtime" | "onnx_runtime" => "ort".into(),
        "onnxruntime-web" => "ort-web".into(),
        "libtorch" | "torchscript" => "tch".into(),
        "pytorch" => "torch".into(),
        "llama.cpp" | "llamacpp" | "llama_cpp" => "llama-cpp".into(),
        _ => name,
    }
}

/// The variable with the environments of backends, one a line: `ort@old=/home/me/old`. All processes of a run inherit it.
const PLACES: &str = "INFERBENCH_PLACES";

/// The backends that have an environment of their own, with its folder.
pub fn backends_in_places() -> Vec<(String, PathBuf)> {
    let text = std::env::var(PLACES).unwrap_or_default();
    text.lines().filter_map(|line| line.split_once('=')).map(|(name, place)| (name.to_owned(), place.into())).collect()
}

/// Reads the name of a backend as a flag has it. `ort@FOLDER` is ONNX Runtime out of a Python environment: it gets the name of the
/// folder, `ort@old`, and is known by that to this process and to those that it starts. `main` reads its flags before it starts a thread.
///
/// # Errors
/// There is no such folder, its name cannot be a part of an id, or another environment has the same name.
pub fn backend_of_flag(text: &str) -> Result<String> {
    let Some((backend, place)) = text.split_once('@') else { return Ok(backend_name(text)) };
    let mut known = backends_in_places();
    let named = format!("{}@{place}", backend_name(backend));
    if known.iter().any(|(name, _)| *name == named) {
        return Ok(named);
    }
    let folder =
        Path::new(place).canonicalize().with_context(|| format!("{text:?}: there is no environment {place:?}"))?;
    // `.venv` says less than the folder of the project that it is in.
    let is_usual = |name: &&std::ffi::OsStr| [".venv", "venv", ".env", "env"].iter().any(|usual| *name == *usual);
    let last = folder.file_name().filter(|name| !is_usual(name));
    let last = last.or_else(|| folder.parent()?.file_name()).unwrap_or_default();
    let name = format!("{}@{}", backend_name(backend), usable_name(&last.to_string_lossy()));
    check_component(&name)?;
    match known.iter().find(|(other, _)| *other == name) {
        Some((_, other)) if *other == folder => return Ok(name),
        Some((_, other)) => {
            bail!("{} and {} would both be {name}: rename one of the folders", other.display(), folder.display())
        }
        None => known.push((name.clone(), folder)),
    }
    let lines: Vec<String> = known.iter().map(|(name, place)| format!("{name}={}", place.display())).collect();
    // SAFETY: the process has no other thread yet.
    unsafe { std::env::set_var(PLACES, lines.join("\n")) };
    Ok(name)
}

/// The kinds of devices: the name, the hardware unless a runtime reports another (`cpu`, `gpu` or `npu`), and whether a number
/// may choose one of several.
const KINDS: [(&str, &str, bool); 16] = [
    ("cpu", "cpu", false),
    ("cuda", "gpu", true),
    ("tensorrt", "gpu", true),
    ("rocm", "gpu", true),
    ("mps", "gpu", false),
    ("vulkan", "gpu", true),
    ("openvino", "cpu", false),
    ("qnn", "npu", false),
    ("webgpu", "gpu", false),
    ("wasm", "cpu", false),
    ("webnn", "cpu", false),
    ("webnn-gpu", "gpu", false),
    ("webnn-npu", "npu", false),
    ("xnnpack", "cpu", false),
    ("gpu", "gpu", true),
    ("npu", "npu", false),
];

/// The best device that a backend has here: the first of [`PREFERRED`].
pub const AUTO: &str = "auto";

/// The order in which `auto` looks for a device.
pub const PREFERRED: [&str; 4] = ["cuda", "rocm", "mps", "cpu"];

/// Returns the name if it is that of a device: a kind, and for some a number after a colon.
///
/// # Errors
/// The kind is unknown; the message lists the known ones.
pub fn parse_device(name: &str) -> Result<String> {
    let (kind, number) = split(name);
    let is_right = |(known, _, is_numbered): &(&str, &str, bool)| {
        *known == kind && number.is_none_or(|number| *is_numbered && number.parse::<u32>().is_ok())
    };
    if name == AUTO || KINDS.iter().any(is_right) {
        return Ok(name.to_owned());
    }
    let names = KINDS.iter().map(|(kind, _, is_numbered)| format!("{kind}{}", if *is_numbered { "[:n]" } else { "" }));
    bail!("unknown device {name:?}; the devices are {} and {AUTO}", names.collect::<Vec<_>>().join(", "))
}

/// The kind of a device: `cuda` for `cuda:1`.
pub fn device_kind(name: &str) -> &str {
    split(name).0
}

/// The number of a device: 1 for `cuda:1`, and 0 without a number.
pub fn device_index(name: &str) -> usize {
    split(name).1.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The hardware of a device: `cpu`, `gpu` or `npu`. Returns `None` if the kind is unknown.
pub fn device_type(name: &str) -> Option<&'static str> {
    KINDS.iter().find(|(kind, ..)| *kind == device_kind(name)).map(|(_, device_type, _)| *device_type)
}

/// The dtype of a case that names none: f32, if the device has it.
pub fn own_dtype(device: &str) -> Dtype {
    // The floating-point unit of Qualcomm's HTP has no other.
    if device_kind(device) == "qnn" { Dtype::F16 } else { Dtype::F32 }
}

fn split(name: &str) -> (&str, Option<&str>) {
    match name.split_once(':') {
        Some((kind, number)) => (kind, Some(number)),
        None => (name, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_known_by_its_library() {
        let names = ["ort", "OnnxRuntime", "onnx-runtime", "PyTorch", "libtorch", "torch", "Candle", "abacus"]
            .map(backend_name);
        assert_eq!(names, ["ort", "ort", "ort", "torch", "tch", "torch", "candle", "abacus"]);
    }

    #[test]
    fn only_kinds_with_several_devices_have_numbers() {
        for good in ["cpu", "cuda", "cuda:1", "auto", "webgpu"] {
            assert!(parse_device(good).is_ok(), "{good}");
        }
        for bad in ["gpus", "cpu:1", "cuda:", "cuda:x", "auto:1", ""] {
            assert!(
                parse_device(bad).unwrap_err().to_string().contains("cuda[:n], tensorrt[:n], rocm[:n], mps"),
                "{bad}"
            );
        }
        assert_eq!((device_kind("cuda:1"), device_index("cuda:1"), device_index("cuda")), ("cuda", 1, 0));
        assert_eq!(
            (device_type("rocm:2"), device_type("qnn"), device_type("abacus")),
            (Some("gpu"), Some("npu"), None)
        );
    }
}
