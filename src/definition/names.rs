//! Names of backends and devices as people write them: `ort` or `onnxruntime`; `cpu`, `cuda`, `cuda:1`, and the runtimes'
//! names for what drives a device, such as `openvino`.

use anyhow::{Result, bail};

use super::dtype::Dtype;

/// The backend that computes nothing: it measures what the harness itself costs.
pub const NULL: &str = "null";

/// The name of the backend that calls code of other packages.
pub const CLOSURE: &str = "closure";

/// The name of a backend as in ids and records, for the name of the library that it runs: `ort` for `ONNXRuntime`. Other names
/// are returned in lower case.
pub fn backend_name(name: &str) -> String {
    let name = name.to_lowercase();
    match name.as_str() {
        "onnxruntime" | "onnx-runtime" | "onnx_runtime" => "ort".into(),
        "onnxruntime-web" => "ort-web".into(),
        "pytorch" | "torch" | "libtorch" => "tch".into(),
        _ => name,
    }
}

/// The kinds of devices: the name, the hardware unless a runtime reports another (`cpu`, `gpu` or `npu`), and whether a number
/// may choose one of several.
const KINDS: [(&str, &str, bool); 15] = [
    ("cpu", "cpu", false),
    ("cuda", "gpu", true),
    ("tensorrt", "gpu", true),
    ("rocm", "gpu", true),
    ("mps", "gpu", false),
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
        let names = ["ort", "OnnxRuntime", "onnx-runtime", "pytorch", "torch", "Candle", "abacus"].map(backend_name);
        assert_eq!(names, ["ort", "ort", "ort", "tch", "tch", "candle", "abacus"]);
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
