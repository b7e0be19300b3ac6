//! libtorch through the `tch` crate: TorchScript archives.
//!
//! The archive of a packaged model has no weights. They are read from the safetensors file and replace the archive's
//! placeholders by name.

mod library;
mod modules;
mod operators;
mod tensor;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use safetensors::SafeTensors;
use tch::{CModule, Device, IValue, Kind, Tensor};

use self::operators::{OperatorTape, convert};
use self::tensor::{as_tensor, collect_outputs, dtype_of, to_host, to_tensor, weight};

use crate::backend::artifact::{Format, check_artifact, parts_of};
use crate::backend::cuda::cuda_environment;
use crate::backend::graphs::open_session;
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, Placement, ProfiledSession, Session};
use crate::backend::recorder::RecordedSession;
use crate::backend::runtime::Runtime;
use crate::backend::shared::Shared;
use crate::definition::{CaseFailure, Dtype, Model, device_index, device_kind};
use crate::fixture::HostTensor;
use crate::onnx::map_file;

pub struct Tch;

/// The version of libtorch: the one that is beside its folder of libraries, or else the one of torch-sys.
fn version() -> String {
    let read = |library: PathBuf| std::fs::read_to_string(library.parent()?.parent()?.join("build-version")).ok();
    library::file().and_then(read).map_or_else(|| "2.11.0".into(), |version| version.trim().to_owned())
}

fn parse_device(name: &str) -> Result<Device, CaseFailure> {
    let why = match device_kind(name) {
        "cpu" => return Ok(Device::Cpu),
        "mps" if tch::utils::has_mps() => return Ok(Device::Mps),
        "mps" => "MPS is a part of macOS".into(),
        kind @ ("cuda" | "rocm") => {
            // Builds for ROCm call their devices CUDA, too.
            let (is_here, label) = match kind {
                "rocm" => (tch::utils::has_hip(), "ROCm"),
                _ => (tch::utils::has_cuda() && !tch::utils::has_hip(), "CUDA 13"),
            };
            let index = device_index(name);
            if !is_here {
                format!("this libtorch was built without {label}; set LIBTORCH to one with it, and build again")
            } else if !tch::Cuda::is_available() {
                "libtorch finds no GPU, or no driver for it".into()
            } else if (index as i64) < tch::Cuda::device_count() {
                return Ok(Device::Cuda(index));
            } else {
                format!("there are {} {kind} devices, counted from 0", tch::Cuda::device_count())
            }
        }
        other => format!("tch has no device {other:?}"),
    };
    Err(CaseFailure::unavailable(why))
}

/// The kind of floating-point numbers. In a quantised archive, only inputs and outputs are of this kind.
fn kind_of(model: &Model, dtype: Dtype) -> Result<Kind, CaseFailure> {
    match dtype {
        Dtype::I8 if model.dtype == Dtype::I8 => Ok(Kind::Float),
        Dtype::F32 => Ok(Kind::Float),
        Dtype::F16 => Ok(Kind::Half),
        Dtype::Bf16 => Ok(Kind::BFloat16),
        Dtype::I8 => Err(CaseFailure::unsupported("libtorch runs i8 only in archives that were quantised")),
    }
}

/// Sets libtorch's thread counts once per process: a second call of the inter-op setter would panic.
fn set_threads(threads: usize) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        tch::set_num_interop_threads(1);
        tch::set_num_threads(i32::try_from(threads).unwrap_or(i32::MAX));
    });
}

impl Backend for Tch {
    fn devices(&self) -> Vec<DeviceReport> {
        let describe = |name: &str| {
            library::load()?;
            Ok(match parse_device(name)? {
                Device::Cuda(_) => format!("libtorch {}, {} GPUs", version(), tch::Cuda::device_count()),
                _ => format!("libtorch {}", version()),
            })
        };
        ["cpu", "cuda", "rocm", "mps"].map(|name| DeviceReport::certain(name, describe(name))).into()
    }

    fn library_version(&self, _device: &str) -> Option<String> {
        // Loads libtorch here, so that this is not timed as a part of loading a model. `load` returns the error.
        Some(version())
    }

    fn library_path(&self, _device: &str) -> Option<PathBuf> {
        library::file()
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        kind_of(model, dtype)?;
        check_artifact(model, dtype, &Dtype::ALL, Format::TorchScript)
    }

    fn process_environment(&self, device: &str) -> Vec<(&'static str, OsString)> {
        if device_kind(device) == "mps" {
            // With another value, operators that MPS lacks would run on the CPU.
            return vec![("PYTORCH_ENABLE_MPS_FALLBACK", "0".into())];
        }
        cuda_environment(device)
    }

    /// TorchScript's profiling executor compiles in the first call and, by what it saw there, again in the second.
    fn least_warm_up_calls(&self) -> usize {
        4
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        open_modules(request, load_modules(request)?)
    }

    fn load_profiled(&self, request: &LoadRequest<'_>) -> Result<Box<dyn ProfiledSession>, CaseFailure> {
        if device_kind(request.device) != "cpu" {
            let why = "libtorch's operators return before a GPU has computed them, so their times cannot be measured";
            return Err(CaseFailure::unsupported(why));
        }
        let modules = load_modules(request)?;
        let tape = OperatorTape::new(&modules)?;
        Ok(Box::new(RecordedSession { session: open_modules(request, modules)?, tape }))
    }
}

/// The modules of the request's parts, with their weights.
fn load_modules(request: &LoadRequest<'_>) -> Result<Vec<CModule>, CaseFailure> {
    library::load()?;
    let device = parse_device(request.device)?;
    let kind = kind_of(request.model, request.dtype)?;
    set_threads(request.threads);
    let mut modules = Vec::new();
    for (_, path) in parts_of(request, Format::TorchScript)? {
        let mut module = CModule::load_on_device(path, device)?;
        module.f_set_eval()?;
        modules.push(module);
    }
    match &request.artifacts.weights {
        Some(weights) if request.instances > 1 => {
            static FILLED: Shared<Mutex<BTreeMap<String, Tensor>>> = Shared::new();
            let filled = FILLED.get(format!("{} {device:?} {kind:?}", weights.display()), || Ok(Mutex::default()))?;
            let mut filled = filled.lock().unwrap_or_else(PoisonError::into_inner);
            fill_parameters(&modules, weights, (device, kind), &mut filled)?;
        }
        Some(weights) => fill_parameters(&modules, weights, (device, kind), &mut BTreeMap::new())?,
        None if kind != Kind::Float => modules.iter().try_for_each(|module| convert(module, kind))?,
        None => {}
    }
    Ok(modules)
}

/// The dtype in which an archive computes. In a quantised archive, only operators that are not quantised have
/// parameters.
fn computed_in(asked: Dtype, parameters: Option<Kind>) -> Option<Dtype> {
    match parameters {
        Some(kind) if asked != Dtype::I8 => dtype_of(kind),
        _ => Some(asked),
    }
}

fn open_modules(request: &LoadRequest<'_>, modules: Vec<CModule>) -> Result<Box<dyn Session>, CaseFailure> {
    let runtime = TchRuntime { device: parse_device(request.device)?, kind: kind_of(request.model, request.dtype)? };
    let parameters = modules.first().and_then(|module| module.named_parameters().ok()).unwrap_or_default();
    let parameter = parameters.iter().map(|(_, parameter)| parameter).find(|parameter| parameter.is_floating_point());
    let placement = Placement {
        effective_device: match parameter.map(Tensor::device) {
            Some(found) if found != runtime.device => format!("{found:?}").to_lowercase(),
            _ => request.device.into(),
        },
        effective_dtype: computed_in(request.dtype, parameter.map(Tensor::kind)),
        providers: "libtorch".into(),
        threads: usize::try_from(tch::get_num_threads()).ok(),
        parameters: Some(parameters.iter().map(|(_, parameter)| parameter.numel() as u64).sum()).filter(|&sum| sum > 0),
        ..Placement::default()
    };
    let parts = parts_of(request, Format::TorchScript)?;
    let graphs = modules.into_iter().map(|module| TchGraph { module, first_calls: Vec::new() }).collect();
    open_session(request, runtime, &parts, graphs, placement)
}

/// Sets the parameters of all parts to their weights. A weight that several parts share, or that is in `filled`
/// already, is in memory once.
fn fill_parameters(
    modules: &[CModule],
    weights: &Path,
    (device, kind): (Device, Kind),
    filled: &mut BTreeMap<String, Tensor>,
) -> Result<(), CaseFailure> {
    let map = map_file(weights)?;
    let tensors = SafeTensors::deserialize(&map).with_context(|| weights.display().to_string())?;
    for module in modules {
        for (name, mut parameter) in module.named_parameters()? {
            if !filled.contains_key(&name) {
                let view = tensors.tensor(&name).with_context(|| format!("{}: {name:?}", weights.display()))?;
                filled.insert(name.clone(), weight(&view)?.f_to_device(device)?.f_to_kind(kind)?);
            }
            tch::no_grad(|| parameter.f_set_data(&filled[&name]))?;
        }
    }
    Ok(())
}

/// A module, and how long its first calls took.
struct TchGraph {
    module: CModule,
    first_calls: Vec<Duration>,
}

/// TorchScript profiles the first call and optimises in the second; the third runs the optimised code.
const WATCHED_CALLS: usize = 3;

struct TchRuntime {
    device: Device,
    /// The kind of floating-point numbers.
    kind: Kind,
}

impl Runtime for TchRuntime {
    type Graph = TchGraph;
    /// A tensor, in the wrapper that a module takes.
    type Value = Rc<IValue>;

    fn upload(&self, tensor: &HostTensor) -> Result<Rc<IValue>, CaseFailure> {
        let uploaded = to_tensor(tensor)?.f_to_device(self.device)?;
        let is_given_in_full = uploaded.kind() == Kind::Float;
        let uploaded = if is_given_in_full { uploaded.f_to_kind(self.kind)? } else { uploaded };
        Ok(Rc::new(IValue::Tensor(uploaded)))
    }

    fn download(&self, value: &Rc<IValue>) -> Result<HostTensor, CaseFailure> {
        to_host(as_tensor(value)?)
    }

    fn run(&self, graph: &mut TchGraph, inputs: &[&Rc<IValue>]) -> Result<Vec<Rc<IValue>>, CaseFailure> {
        let inputs: Vec<&IValue> = inputs.iter().map(|input| &***input).collect();
        let is_watched = graph.first_calls.len() < WATCHED_CALLS;
        let start = is_watched.then(Instant::now);
        let output = tch::no_grad(|| graph.module.forward_is(&inputs))?;
        if let Some(start) = start {
            self.sync()?;
            graph.first_calls.push(start.elapsed());
        }
        let mut outputs = Vec::new();
        collect_outputs(output, &mut outputs)?;
        Ok(outputs)
    }

    /// The time that the profiling call and the optimising call take beyond the call after them.
    fn compilation(&self, graph: &TchGraph) -> Option<Duration> {
        let [profiled, optimised, plain] = graph.first_calls.as_slice().try_into().ok()?;
        Some(Duration::saturating_sub(profiled, plain) + Duration::saturating_sub(optimised, plain))
    }

    fn greedy(&self, logits: &Rc<IValue>) -> Result<Rc<IValue>, CaseFailure> {
        let tokens = as_tensor(logits)?.f_argmax(-1, true)?;
        Ok(Rc::new(IValue::Tensor(tokens)))
    }

    fn sync(&self) -> Result<(), CaseFailure> {
        match self.device {
            Device::Cuda(index) => tch::Cuda::synchronize(index as i64),
            // There is no call for this, but a copy to the host waits for all earlier work.
            Device::Mps => drop(Tensor::zeros([1], (Kind::Float, self.device)).to_device(Device::Cpu)),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_that_mps_lacks_do_not_run_on_the_cpu() {
        let variables = Tch.process_environment("mps");
        assert_eq!(variables, [("PYTORCH_ENABLE_MPS_FALLBACK", OsString::from("0"))]);
        assert!(Tch.process_environment("cpu").is_empty());
    }

    #[test]
    fn the_file_and_the_version_are_those_of_the_loaded_library() {
        let file = Tch.library_path("cpu").unwrap();
        assert!(file.is_file() && file.file_stem().is_some_and(|name| name == "libtorch_cpu"), "{}", file.display());
        assert!(Tch.library_version("cpu").unwrap().starts_with("2.11."));
    }

    #[test]
    fn a_quantised_archive_computes_in_i8_whatever_its_other_parameters_are() {
        assert_eq!(computed_in(Dtype::I8, Some(Kind::Float)), Some(Dtype::I8));
        assert_eq!(computed_in(Dtype::F16, Some(Kind::Float)), Some(Dtype::F32));
        assert_eq!(computed_in(Dtype::F32, None), Some(Dtype::F32));
    }
}
