//! Names of backends and devices as people write them: `ort` or `onnxruntime`; `cpu`, `cuda`, `cuda:1`, and the runtimes'
//! names for what drives a device, such as `openvino`.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail, ensure};

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
    if let Some(("pytorch", settings)) = name.split_once('.') {
        return format!("torch.{settings}");
    }
    match name.as_str() {
        "onnxruntime" | "onnx-runtime" | "onnx_runtime" => "ort".into(),
        "onnxruntime-web" => "ort-web".into(),
        "libtorch" | "torchscript" => "tch".into(),
        "pytorch" => "torch".into(),
        "llama.cpp" | "llamacpp" | "llama_cpp" => "llama-cpp".into(),
        _ => name,
    }
}

/// The backends that run modules of PyTorch.
pub const MODULES: [&str; 3] = ["torch", "torch-compile", "torch-aot"];

/// The settings of PyTorch's backends, each with the backends that have it. A setting is a part of the backend's name,
/// as in `torch-compile.max-autotune`.
const SETTINGS: [(&str, &[&str]); 9] = [
    ("autocast", &MODULES),
    ("channels-last", &MODULES),
    ("sdpa", &MODULES),
    ("static-cache", &["torch", "torch-compile"]),
    ("freezing", &["torch-compile", "torch-aot"]),
    ("cache", &["torch-compile", "torch-aot"]),
    ("reduce-overhead", &["torch-compile"]),
    ("max-autotune", &["torch-compile", "torch-aot"]),
    ("max-autotune-no-cudagraphs", &["torch-compile"]),
];

/// Splits the name of a backend of PyTorch into the backend and its settings: `torch-compile` and `max-autotune`. Other names
/// have no settings.
pub fn backend_and_settings(name: &str) -> (&str, &str) {
    match name.split_once('.') {
        Some((backend, settings)) if MODULES.contains(&backend) => (backend, settings),
        _ => (name, ""),
    }
}

/// The name of a backend with these settings besides its own, separated by dots; `default` adds none. Returns `None` if
/// the backend lacks one of them.
///
/// # Errors
/// No backend has such a setting, or settings exclude each other; the message lists the settings.
pub fn with_settings(backend: &str, settings: &str) -> Result<Option<String>> {
    let (base, own) = backend_and_settings(backend);
    let mut all: Vec<&str> = own.split('.').filter(|setting| !setting.is_empty()).collect();
    for setting in settings.split('.').filter(|setting| !matches!(*setting, "" | "default")) {
        let known = SETTINGS.iter().find(|(name, _)| *name == setting).with_context(|| {
            let names: Vec<&str> = SETTINGS.iter().map(|(name, _)| *name).collect();
            format!("PyTorch has no setting {setting:?}; there are default, {}", names.join(", "))
        })?;
        if !known.1.contains(&base) {
            return Ok(None);
        }
        if !all.contains(&setting) {
            all.push(setting);
        }
    }
    let modes = all
        .iter()
        .filter(|setting| matches!(**setting, "reduce-overhead" | "max-autotune" | "max-autotune-no-cudagraphs"));
    ensure!(modes.count() <= 1, "{}: Inductor has one mode at a time", all.join("."));
    // One name, in whichever order the settings are given.
    all.sort_unstable();
    Ok(Some([&[base], all.as_slice()].concat().join(".")))
}

/// The one name of a backend and its settings, however they are written: `torch-compile.autocast.max-autotune` for
/// `Torch-Compile.max-autotune.autocast`. What follows an `@` is left as it is.
///
/// # Errors
/// As [`with_settings`], or the backend does not have one of the settings.
pub fn usual_backend(text: &str) -> Result<String> {
    if let Some((backend, place)) = text.split_once('@') {
        return Ok(format!("{}@{place}", usual_backend(backend)?));
    }
    let name = backend_name(text);
    let (base, settings) = backend_and_settings(&name);
    with_settings(base, settings)?.with_context(|| format!("{base} does not have all of the settings {settings}"))
}

/// The variable with the environments of backends, one per line: `ort@old=/home/me/old`. A run's processes inherit it.
const PLACES: &str = "INFERBENCH_PLACES";

/// The backends that have an environment of their own, with its folder.
pub fn backends_in_places() -> Vec<(String, PathBuf)> {
    let text = std::env::var(PLACES).unwrap_or_default();
    text.lines().filter_map(|line| line.split_once('=')).map(|(name, place)| (name.to_owned(), place.into())).collect()
}

/// Reads the name of a backend in a flag. `ort@FOLDER` is ONNX Runtime of a Python environment: it gets the folder's
/// name, `ort@old`, which this process and its children know. `main` reads its flags before it starts a thread.
///
/// # Errors
/// There is no such folder, its name cannot be a part of an id, or another environment has the same name.
pub fn backend_of_flag(text: &str) -> Result<String> {
    let Some((backend, place)) = text.split_once('@') else { return usual_backend(text) };
    // The environments of the parent process. A flag of this process may mean another folder of the same name.
    static INHERITED: LazyLock<Vec<(String, PathBuf)>> = LazyLock::new(backends_in_places);
    let backend = &usual_backend(backend)?;
    let named = format!("{backend}@{place}");
    if INHERITED.iter().any(|(name, _)| *name == named) {
        return Ok(named);
    }
    let mut known = backends_in_places();
    let folder =
        Path::new(place).canonicalize().with_context(|| format!("{text:?}: there is no environment {place:?}"))?;
    // `.venv` says less than the folder of the project that it is in.
    let is_usual = |name: &&std::ffi::OsStr| [".venv", "venv", ".env", "env"].iter().any(|usual| *name == *usual);
    let last = folder.file_name().filter(|name| !is_usual(name));
    let last = last.or_else(|| folder.parent()?.file_name()).unwrap_or_default();
    let name = format!("{backend}@{}", usable_name(&last.to_string_lossy()));
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
const KINDS: [(&str, &str, bool); 18] = [
    ("cpu", "cpu", false),
    ("cuda", "gpu", true),
    ("tensorrt", "gpu", true),
    ("rocm", "gpu", true),
    ("mps", "gpu", false),
    ("vulkan", "gpu", true),
    ("xpu", "gpu", true),
    ("tpu", "npu", true),
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

/// Returns the name if it is that of a device: a kind, and for some kinds a number after a colon. `cuda:01` is refused,
/// because each device has one name.
///
/// # Errors
/// The kind is unknown; the message lists the known ones.
pub fn parse_device(name: &str) -> Result<String> {
    let (kind, number) = split(name);
    let is_number = |text: &str| text.parse().is_ok_and(|number: u32| number.to_string() == text);
    let is_right = |(known, _, is_numbered): &(&str, &str, bool)| {
        *known == kind && number.is_none_or(|number| *is_numbered && is_number(number))
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
    // Qualcomm's HTP has no other floating-point type.
    if device_kind(device) == "qnn" { Dtype::F16 } else { Dtype::F32 }
}

fn split(name: &str) -> (&str, Option<&str>) {
    name.split_once(':').map_or((name, None), |(kind, number)| (kind, Some(number)))
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
    fn settings_of_pytorch_are_a_part_of_its_name() {
        let named = |name: &str| backend_of_flag(name).map_err(|error| error.to_string());
        assert_eq!(named("torch-compile.max-autotune.autocast").unwrap(), "torch-compile.autocast.max-autotune");
        assert_eq!(named("PyTorch").unwrap(), "torch");
        assert_eq!(named("PyTorch.SDPA.default.autocast").unwrap(), "torch.autocast.sdpa");
        assert_eq!(usual_backend("torch.sdpa.autocast@Old").unwrap(), "torch.autocast.sdpa@Old");
        assert!(
            named("torch.fast")
                .unwrap_err()
                .starts_with("PyTorch has no setting \"fast\"; there are default, autocast, ")
        );
        assert_eq!(named("torch.freezing").unwrap_err(), "torch does not have all of the settings freezing");
        assert!(named("torch-compile.max-autotune.reduce-overhead").unwrap_err().ends_with("one mode at a time"));
        assert_eq!(with_settings("torch", "max-autotune").unwrap(), None);
        assert_eq!(with_settings("torch-aot.cache", "default").unwrap().as_deref(), Some("torch-aot.cache"));
        assert_eq!(backend_and_settings("mine.v2"), ("mine.v2", ""));
    }

    #[test]
    fn only_kinds_with_several_devices_have_numbers() {
        for good in ["cpu", "cuda", "cuda:1", "auto", "webgpu", "xpu", "xpu:1", "tpu"] {
            assert!(parse_device(good).is_ok(), "{good}");
        }
        for bad in ["gpus", "cpu:1", "cuda:", "cuda:x", "cuda:+1", "cuda:01", "auto:1", ""] {
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
