//! ONNX Runtime through the `ort` crate, with its execution providers.
//!
//! Nothing falls back: a session has one provider, whose registration has to succeed, and for any but the CPU's the
//! fall-back to the CPU is forbidden. What ran where is read from a profiled run before. A timed call is ONNX Runtime's
//! own `Run` on tensors that are there already, and what generation needs around it.

mod graph;
mod library;
mod profile;
mod provider;
mod values;

use std::ffi::OsString;
use std::path::Path;

use ort::value::Tensor;

use graph::{Opening, OrtGraph, OrtRuntime};
use provider::{PROVIDERS, Provider, provider_of};

use super::graphs::{open_session, parts_of};
use super::{
    Backend, DeviceReport, Format, LoadRequest, Placement, Session, Trace, Versions, check_artifact, classify,
};
use crate::definition::{CaseFailure, Dtype, Model, device_kind};
use crate::fixture::HostTensor;

pub struct Ort;

/// The `ort` release in `Cargo.toml`, which is pinned there.
const CRATE_VERSION: &str = "2.0.0-rc.15";

/// `y = x + relu(x)` over four numbers.
const PROBE: &[u8] = include_bytes!("probe.onnx");

impl Backend for Ort {
    fn name(&self) -> &'static str {
        "ort"
    }

    fn framework(&self) -> &'static str {
        "onnxruntime"
    }

    fn devices(&self) -> Vec<DeviceReport> {
        let report = |provider: &Provider| {
            let needs_probe = provider.device != "cpu";
            DeviceReport { device: provider.device.into(), availability: provider.look(), needs_probe }
        };
        PROVIDERS.iter().map(report).collect()
    }

    fn probe(&self, device: &str) -> Result<String, String> {
        let provider = provider_of(device).map_err(|failure| failure.message)?;
        provider.look()?;
        let computed = compute_probe(provider, device).map_err(|failure| failure.message)?;
        let expected = [2.0, -2.0, 6.0, -4.0_f32];
        let is_right = |(value, expected): (&f32, f32)| (value - expected).abs() < 1e-2;
        if !computed.iter().zip(expected).all(is_right) {
            return Err(format!("{} computes {computed:?} for x + relu(x) of [1, -2, 3, -4]", provider.name));
        }
        let version = library::version(provider).unwrap_or_default();
        let hardware = describe_hardware(provider).map(|words| format!(" {words}")).unwrap_or_default();
        Ok(format!("{} of ONNX Runtime {version}{hardware}", provider.name))
    }

    fn process_environment(&self, device: &str) -> Vec<(&'static str, OsString)> {
        match device_kind(device) {
            "webgpu" => webgpu_environment(),
            // TensorFloat-32 would be f32 by name only.
            "cuda" | "tensorrt" => vec![("NVIDIA_TF32_OVERRIDE", "0".into())],
            _ => Vec::new(),
        }
    }

    fn versions(&self, device: &str) -> Versions {
        let library = provider_of(device).ok().and_then(library::version);
        Versions { backend: CRATE_VERSION.into(), library: library.unwrap_or_default() }
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        check_artifact(model, dtype, &Dtype::ALL, Format::Onnx)
    }

    fn trace(&self, request: &LoadRequest<'_>, inputs: &[HostTensor]) -> Result<Option<Trace>, CaseFailure> {
        // A session of the CPU's provider has nothing else to run on, and f32 has nothing to be made of.
        if request.device == "cpu" && request.dtype == Dtype::F32 {
            return Ok(None);
        }
        let failed = |error: std::io::Error| CaseFailure::failed(format!("the profile's folder: {error}"));
        let folder = std::env::temp_dir().join(format!("inferbench-profile-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let traced = trace_into(&folder, request, inputs);
        let _ = std::fs::remove_dir_all(&folder);
        traced.map(Some)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        open(request, None)
    }
}

fn open(request: &LoadRequest<'_>, profile: Option<&Path>) -> Result<Box<dyn Session>, CaseFailure> {
    let provider = provider_of(request.device)?;
    if !provider.dtypes.contains(&request.dtype) {
        let names: Vec<&str> = provider.dtypes.iter().map(|dtype| dtype.name()).collect();
        let dtypes = names.join(", ");
        return Err(CaseFailure::unsupported(format!("{} has no {} here, but {dtypes}", provider.name, request.dtype)));
    }
    let parts = parts_of(request, Format::Onnx)?;
    let opening = Opening { request, provider, profile };
    let graphs = parts.iter().map(|(part, file)| OrtGraph::load(part, file, &opening)).collect::<Result<_, _>>()?;
    let placement = Placement {
        effective_device: request.device.into(),
        device_type: provider.hardware().map(|(device_type, _)| device_type.into()),
        // Of other dtypes the profile says what they are computed in.
        effective_dtype: (request.dtype == Dtype::F32).then_some(Dtype::F32),
        providers: provider.name.into(),
        threads: Some(request.threads),
        executor: executor(provider),
        has_fixed_sizes: provider.device != "cpu",
        ..Placement::default()
    };
    open_session(request, OrtRuntime, &parts, graphs, placement)
}

fn trace_into(folder: &Path, request: &LoadRequest<'_>, inputs: &[HostTensor]) -> Result<Trace, CaseFailure> {
    let mut session = open(request, Some(folder))?;
    let binding = session.bind(inputs)?;
    session.run(binding)?;
    session.sync()?;
    // Writes the profile.
    drop(session);
    profile::read(folder, provider_of(request.device)?.name).map_err(CaseFailure::failed)
}

fn compute_probe(provider: &'static Provider, device: &str) -> Result<Vec<f32>, CaseFailure> {
    let builder = ort::session::Session::builder(library::environment(provider)?).map_err(classify)?;
    let builder = provider.register(builder, device, 1)?;
    let mut builder = builder.with_disable_cpu_fallback().map_err(classify)?;
    let mut session = builder.commit_from_memory(PROBE).map_err(classify)?;
    let input = Tensor::from_array(([1_usize, 4], vec![1.0_f32, -2.0, 3.0, -4.0])).map_err(classify)?;
    let outputs = session.run(ort::inputs![input]).map_err(classify)?;
    let (_, values) = outputs[0].try_extract_tensor::<f32>().map_err(classify)?;
    Ok(values.to_vec())
}

/// What a plugin's device is made of, where that is not what its name says.
fn describe_hardware(provider: &'static Provider) -> Option<String> {
    let (device_type, vendor) = provider.hardware()?;
    match (provider.device, device_type) {
        ("webgpu", "cpu") => Some(format!("on a software driver ({vendor} CPU)")),
        ("qnn", "cpu") => Some(format!("on Qualcomm's emulator ({vendor} CPU)")),
        _ => Some(format!("on a {} of {vendor}", device_type.to_uppercase())),
    }
}

/// What a reader has to know about the figures of a provider, besides its name.
fn executor(provider: &'static Provider) -> Option<String> {
    let has_own_memory = matches!(provider.device, "cuda" | "tensorrt" | "rocm" | "directml" | "webgpu");
    let copies = has_own_memory.then(|| "inputs and outputs copied in each call".to_owned());
    let parts: Vec<String> = describe_hardware(provider).into_iter().chain(copies).collect();
    (!parts.is_empty()).then(|| format!("{} {}", provider.name, parts.join(", ")))
}

/// Lets a software driver be used, and chooses that of Chromium where there is no GPU: others are too old for it.
fn webgpu_environment() -> Vec<(&'static str, OsString)> {
    let mut variables = vec![("ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER", "1".into())];
    let is_chosen = std::env::var_os("VK_DRIVER_FILES").or_else(|| std::env::var_os("VK_ICD_FILENAMES")).is_some();
    let has_gpu = Path::new("/dev/dri/renderD128").exists();
    let software = Path::new("/usr/lib/chromium/vk_swiftshader_icd.json");
    if !is_chosen && !has_gpu && software.is_file() {
        variables.push(("VK_DRIVER_FILES", software.into()));
    }
    variables
}
