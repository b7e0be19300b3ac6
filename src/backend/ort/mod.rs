//! ONNX Runtime through the `ort` crate, with its execution providers.
//!
//! Nothing falls back: a session has one provider, whose registration has to succeed, and every provider but the CPU's
//! must not fall back to the CPU. A profiled run before the measurement shows what runs where. A timed call is ONNX
//! Runtime's own `Run` on existing tensors, plus what generation needs around it. With the providers of CUDA and
//! TensorRT, the inputs and outputs of a forward pass stay in the GPU's memory.

mod graph;
mod older;
mod profile;
mod provider;
mod runner;
mod tape;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ort::memory::AllocationDevice;
use ort::value::Tensor;
use tempfile::TempDir;

use self::graph::{DeviceMemory, OrtGraph, OrtRuntime};
use self::provider::{Located, PROVIDERS, SOFTWARE_DRIVER, chosen_driver, has_gpu, provider_of};
use self::tape::{OrtTape, RunLog, folder_of};
use crate::backend::artifact::{Format, check_graphs, dequantised, names, parts_of};
use crate::backend::cuda::cuda_environment;
use crate::backend::graphs::open_session;
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, Placement, ProfiledSession, Session, Trace};
use crate::backend::recorder::RecordedSession;
use crate::definition::{CaseFailure, Dtype, Model, Phase, device_index, device_kind};
use crate::fixture::HostTensor;

/// ONNX Runtime: the default one, or the one in a Python environment.
pub struct Ort {
    pub place: Option<&'static Path>,
}

/// `y = x + relu(x)` over four numbers.
const PROBE: &[u8] = include_bytes!("probe.onnx");

impl Backend for Ort {
    fn devices(&self) -> Vec<DeviceReport> {
        let report = |device: &String| {
            let provider = provider_of(device, self.place)?;
            let library = provider.check().map_err(|error| CaseFailure::unavailable(error.to_string()))?;
            Ok((provider.needs_probe(&library), library.path.display().to_string()))
        };
        let reports = PROVIDERS.iter().map(|provider| match report(&provider.device) {
            Ok((true, path)) => DeviceReport::probed(&provider.device, Ok(path)),
            found => DeviceReport::certain(&provider.device, found.map(|(_, path)| path)),
        });
        reports.collect()
    }

    fn probe(&self, device: &str) -> Result<String, CaseFailure> {
        let provider = provider_of(device, self.place)?;
        let builder = ort::session::Session::builder(provider.environment()?)?;
        let mut builder = provider.register(builder, device, (1, 1), Dtype::F32)?;
        if provider.device != "cpu" {
            builder = builder.with_disable_cpu_fallback()?;
        }
        let mut session = builder.commit_from_memory(PROBE)?;
        let input = Tensor::from_array(([1_usize, 4], vec![1.0_f32, -2.0, 3.0, -4.0]))?;
        let outputs = session.run(ort::inputs![input])?;
        let (_, computed) = outputs[0].try_extract_tensor::<f32>()?;
        let expected = [2.0, -2.0, 6.0, -4.0_f32];
        let is_right = |(value, expected): (&f32, f32)| (value - expected).abs() < 1e-2;
        if !computed.iter().zip(expected).all(is_right) {
            let name = &provider.name;
            return Err(CaseFailure::failed(format!("{name} computes {computed:?} for x + relu(x) of [1, -2, 3, -4]")));
        }
        let version = provider.library_version().unwrap_or_default();
        let hardware = provider.hardware().map(|(_, words)| format!(" {words}")).unwrap_or_default();
        Ok(format!("{} of ONNX Runtime {version}{hardware}", provider.name))
    }

    fn process_environment(&self, device: &str) -> Vec<(&'static str, OsString)> {
        if device_kind(device) == "webgpu" { webgpu_environment() } else { cuda_environment(device) }
    }

    fn library_version(&self, device: &str) -> Option<String> {
        let provider = provider_of(device, self.place).ok();
        Some(provider.and_then(|provider| provider.library_version()).unwrap_or_default())
    }

    fn library_path(&self, device: &str) -> Option<PathBuf> {
        Some(provider_of(device, self.place).ok()?.check().ok()?.path)
    }

    fn needs_one_shape(&self, device: &str) -> bool {
        device != "cpu"
    }

    /// ONNX Runtime's providers for other devices serialise calls, or are not known to be thread-safe.
    fn serves_callers(&self, device: &str) -> bool {
        device == "cpu"
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        check_graphs(model, dtype, &[Dtype::I8, Dtype::F32], &Dtype::ALL)
    }

    fn trace(&self, request: &LoadRequest<'_>, inputs: &[HostTensor]) -> Result<Option<Trace>, CaseFailure> {
        let is_of_blocks = request.model.blocks().is_some();
        // The CPU's provider uses no other device, and f32 is not emulated in another dtype.
        if request.device == "cpu" && request.dtype == Dtype::F32 && !is_of_blocks {
            return Ok(None);
        }
        let (folder, _) = profile_folder(request)?;
        let mut session = open(self.place, request, Some(&|graph| folder_of(folder.path(), graph)), None)?;
        let binding = session.bind(inputs)?;
        session.run(binding)?;
        session.sync()?;
        // Writes the profile.
        drop(session);
        let mut trace = profile::read(folder.path(), &provider_of(request.device, self.place)?.name)?;
        if is_of_blocks {
            profile::note_blocks(&mut trace, request.dtype)?;
        }
        Ok(Some(trace))
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        open(self.place, request, None, None)
    }

    fn load_exact(&self, request: &LoadRequest<'_>, folder: &Path) -> Result<Option<Box<dyn Session>>, CaseFailure> {
        let Some(artifacts) = dequantised(request, folder)? else { return Ok(None) };
        let request = LoadRequest { artifacts: &artifacts, dtype: Dtype::F32, ..*request };
        open(self.place, &request, None, None).map(Some)
    }

    fn load_profiled(&self, request: &LoadRequest<'_>) -> Result<Box<dyn ProfiledSession>, CaseFailure> {
        if has_own_memory(request.device) {
            let why = "ONNX Runtime's nodes return before a GPU has computed them, so their times cannot be measured";
            return Err(CaseFailure::unsupported(why));
        }
        let (folder, graphs) = profile_folder(request)?;
        let log = RunLog::default();
        let session = open(self.place, request, Some(&|graph| folder_of(folder.path(), graph)), Some(log.clone()))?;
        Ok(Box::new(RecordedSession { session, tape: OrtTape { log, folder, graphs } }))
    }
}

/// A folder with a subfolder for each graph's profile, and the number of graphs. Older releases name a profile after
/// the current second, so the profiles of several graphs could be the same file.
fn profile_folder(request: &LoadRequest<'_>) -> Result<(TempDir, usize), CaseFailure> {
    let folder = tempfile::tempdir().context("the profile's folder")?;
    let graphs = parts_of(request, Format::Onnx)?.len();
    for graph in 0..graphs {
        fs_err::create_dir(folder_of(folder.path(), graph)).context("the profile's folder")?;
    }
    Ok((folder, graphs))
}

/// Opens the session of a request. If it is profiled, each graph writes its profile into the folder that `profile`
/// gives for its number, and notes its runs in the log.
fn open(
    place: Option<&'static Path>,
    request: &LoadRequest<'_>,
    profile: Option<&dyn Fn(usize) -> PathBuf>,
    log: Option<RunLog>,
) -> Result<Box<dyn Session>, CaseFailure> {
    let provider = provider_of(request.device, place)?;
    if !provider.dtypes.contains(&request.dtype) {
        let (name, dtype, dtypes) = (&provider.name, request.dtype, names(&provider.dtypes));
        return Err(CaseFailure::unsupported(format!("{name} runs {dtypes} here, not {dtype}")));
    }
    let parts = parts_of(request, Format::Onnx)?;
    let load = |number: usize| {
        let folder = profile.map(|folder_of| folder_of(number));
        OrtGraph::load(number, &parts, request, provider, folder.as_deref())
    };
    let graphs = (0..parts.len()).map(load).collect::<Result<_, _>>()?;
    // A profiled session may use the CPU too, and the steps of generation hand values to each other through the host.
    let is_whole = matches!(request.phase, Phase::Forward | Phase::Encoder);
    let memory = if is_whole && profile.is_none() { memory(request.device) } else { None };
    let placement = Placement {
        effective_device: request.device.into(),
        device_type: provider.hardware().map(|(device_type, _)| device_type.into()),
        // For the other dtypes, the trace shows which dtype was used.
        effective_dtype: request.computed_f32(),
        providers: provider.name.clone(),
        threads: Some(request.threads),
        executor: executor(provider, memory.is_some()),
        has_fixed_sizes: provider.device != "cpu",
        serves_other_sizes: provider.device == "cpu",
        ..Placement::default()
    };
    open_session(request, OrtRuntime { memory, log }, &parts, graphs, placement)
}

/// The memory of a device in which ONNX Runtime can keep tensors; `None` if tensors are in host memory.
fn memory(device: &str) -> Option<DeviceMemory> {
    let kind = match device_kind(device) {
        "cuda" | "tensorrt" => AllocationDevice::CUDA,
        // MIGraphX reports its memory as CUDA's, so the crate would copy outputs with a provider that is missing.
        _ => return None,
    };
    Some(DeviceMemory(kind, i32::try_from(device_index(device)).ok()?))
}

/// Whether a device has memory of its own, and computes after its nodes have returned.
fn has_own_memory(device: &str) -> bool {
    matches!(device_kind(device), "cuda" | "tensorrt" | "rocm" | "webgpu")
}

/// A provider's name and what a reader has to know about its figures; `None` if that is nothing.
fn executor(provider: Located, is_bound: bool) -> Option<String> {
    let tensors = match (has_own_memory(&provider.device), is_bound) {
        // `scripts/check-gpu` has yet to show on a GPU that nothing is copied.
        (true, true) => Some("inputs and outputs on the device (not verified)".to_owned()),
        (true, false) => Some("inputs and outputs copied in each call".to_owned()),
        (false, _) => None,
    };
    let notes: Vec<String> = provider.hardware().map(|(_, words)| words).into_iter().chain(tensors).collect();
    (!notes.is_empty()).then(|| format!("{} {}", provider.name, notes.join(", ")))
}

/// Allows a software driver, and chooses Chromium's if there is no GPU: other software drivers are too old.
fn webgpu_environment() -> Vec<(&'static str, OsString)> {
    let mut variables = vec![("ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER", "1".into())];
    let software = Path::new(SOFTWARE_DRIVER);
    if chosen_driver().is_none() && !has_gpu() && software.is_file() {
        variables.push(("VK_DRIVER_FILES", software.into()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Sizes, Status};
    use crate::fixture::Artifacts;

    #[test]
    fn a_gpu_has_no_profile_because_its_nodes_return_early() {
        for device in ["cuda:1", "tensorrt", "rocm", "webgpu"] {
            let request = LoadRequest {
                model: &Model::of_tensors("m", Vec::new(), Vec::new()),
                artifacts: &Artifacts::default(),
                phase: Phase::Forward,
                sizes: Sizes { batch: 1, sequence: None },
                device,
                dtype: Dtype::F32,
                threads: 1,
                instances: 1,
                callers: 1,
            };
            let failure = Ort { place: None }.load_profiled(&request).err().unwrap();
            assert!(failure.message.contains("before a GPU has computed them"), "{device}: {failure}");
            assert_eq!(failure.status, Status::Unsupported);
        }
    }
}
