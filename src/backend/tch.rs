//! libtorch through the `tch` crate: TorchScript archives.
//!
//! The archive of a packaged model has no weights; they are read from the safetensors file and put into the module by
//! name, without a copy of the archive's placeholders.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::rc::Rc;

use safetensors::SafeTensors;
use tch::{CModule, Device, IValue, Kind, Tensor};

use super::graphs::{Runtime, open_session, parts_of};
use super::{Backend, DeviceReport, Format, LoadRequest, Placement, Session, Versions, check_artifact, classify};
use crate::definition::{CaseFailure, Dtype, Model, device_index, device_kind};
use crate::fixture::{HostTensor, TensorData};

pub struct Tch;

/// The `tch` release in `Cargo.toml`, and the libtorch that its `torch-sys` was built for and checked against.
const CRATE_VERSION: &str = "0.24.0";
const LIBTORCH_VERSION: &str = "2.11.0";

fn parse_device(name: &str) -> Result<Device, CaseFailure> {
    let index = device_index(name);
    match device_kind(name) {
        "cpu" => Ok(Device::Cpu),
        kind @ ("cuda" | "rocm") => {
            check_gpu(kind).map_err(CaseFailure::unavailable)?;
            let count = tch::Cuda::device_count();
            if index as i64 >= count {
                return Err(CaseFailure::unavailable(format!("there are {count} {kind} devices, counted from 0")));
            }
            Ok(Device::Cuda(index))
        }
        "mps" => check_mps().map(|_| Device::Mps).map_err(CaseFailure::unavailable),
        other => Err(CaseFailure::unavailable(format!("tch has no device {other:?}"))),
    }
}

/// Builds for ROCm say CUDA wherever a program asks.
fn check_gpu(kind: &str) -> Result<String, String> {
    let own = if tch::utils::has_hip() { "rocm" } else { "cuda" };
    if !(tch::utils::has_cuda() || tch::utils::has_hip()) || own != kind {
        let kind = if kind == "rocm" { "ROCm" } else { "CUDA 13" };
        return Err(format!("this libtorch was built without {kind}; set LIBTORCH to one with it, and build again"));
    }
    if !tch::Cuda::is_available() {
        return Err("libtorch finds no GPU, or no driver for it".into());
    }
    Ok(format!("libtorch {LIBTORCH_VERSION}, {} GPUs", tch::Cuda::device_count()))
}

fn check_mps() -> Result<String, String> {
    if tch::utils::has_mps() {
        Ok(format!("libtorch {LIBTORCH_VERSION}"))
    } else {
        Err("MPS is a part of macOS".into())
    }
}

/// What floating-point numbers are computed in; in an archive that was quantised these are its inputs and outputs.
fn kind_of(model: &Model, dtype: Dtype) -> Result<Kind, CaseFailure> {
    match dtype {
        Dtype::I8 if model.dtype == Dtype::I8 => Ok(Kind::Float),
        Dtype::F32 => Ok(Kind::Float),
        Dtype::F16 => Ok(Kind::Half),
        Dtype::Bf16 => Ok(Kind::BFloat16),
        Dtype::I8 => Err(CaseFailure::unsupported("libtorch runs i8 only in archives that were quantised")),
    }
}

fn dtype_of(kind: Kind) -> Option<Dtype> {
    match kind {
        Kind::Float => Some(Dtype::F32),
        Kind::Half => Some(Dtype::F16),
        Kind::BFloat16 => Some(Dtype::Bf16),
        _ => None,
    }
}

/// Sets libtorch's thread counts, once a process: a second call of the inter-op setter would panic.
fn set_threads(threads: usize) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        tch::set_num_interop_threads(1);
        tch::set_num_threads(i32::try_from(threads).unwrap_or(i32::MAX));
    });
}

impl Backend for Tch {
    fn name(&self) -> &'static str {
        "tch"
    }

    fn framework(&self) -> &'static str {
        "pytorch"
    }

    fn devices(&self) -> Vec<DeviceReport> {
        vec![
            DeviceReport::certain("cpu", Ok(format!("libtorch {LIBTORCH_VERSION}"))),
            DeviceReport::certain("cuda", check_gpu("cuda")),
            DeviceReport::certain("rocm", check_gpu("rocm")),
            DeviceReport::certain("mps", check_mps()),
        ]
    }

    fn versions(&self, _device: &str) -> Versions {
        Versions { backend: CRATE_VERSION.into(), library: LIBTORCH_VERSION.into() }
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        kind_of(model, dtype)?;
        check_artifact(model, dtype, &Dtype::ALL, Format::TorchScript)
    }

    fn process_environment(&self, device: &str) -> Vec<(&'static str, OsString)> {
        // TensorFloat-32 would be f32 by name only; cuDNN uses it where it is not told otherwise.
        if device_kind(device) == "cuda" { vec![("NVIDIA_TF32_OVERRIDE", "0".into())] } else { Vec::new() }
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        let device = parse_device(request.device)?;
        let kind = kind_of(request.model, request.dtype)?;
        set_threads(request.threads);
        let parts = parts_of(request, Format::TorchScript)?;
        let mut modules = Vec::new();
        for (_, path) in &parts {
            let mut module = CModule::load_on_device(path, device).map_err(|error| brief(&error))?;
            module.f_set_eval().map_err(|error| brief(&error))?;
            modules.push(module);
        }
        match &request.artifacts.weights {
            Some(weights) => fill_parameters(&modules, weights, device, kind)?,
            None if kind != Kind::Float => modules.iter_mut().for_each(|module| module.to(device, kind, false)),
            None => {}
        }
        let parameters = modules.first().and_then(|module| module.named_parameters().ok()).unwrap_or_default();
        let parameter =
            parameters.iter().map(|(_, parameter)| parameter).find(|parameter| parameter.is_floating_point());
        let placement = Placement {
            effective_device: parameter
                .map_or_else(|| request.device.into(), |it| device_name(it.device(), request.device)),
            effective_dtype: parameter.map_or(Some(request.dtype), |parameter| dtype_of(parameter.kind())),
            providers: "libtorch".into(),
            threads: usize::try_from(tch::get_num_threads()).ok(),
            ..Placement::default()
        };
        open_session(request, TchRuntime { device, kind }, &parts, modules, placement)
    }
}

/// Gives the parameters of all parts their weights; a weight that several parts have is in memory once.
fn fill_parameters(modules: &[CModule], weights: &Path, device: Device, kind: Kind) -> Result<(), CaseFailure> {
    let failed = |error: String| CaseFailure::failed(format!("{}: {error}", weights.display()));
    let file = std::fs::File::open(weights).map_err(|error| failed(error.to_string()))?;
    // SAFETY: the map is read only, and every tensor is copied out of it.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| failed(error.to_string()))?;
    let tensors = SafeTensors::deserialize(&map).map_err(|error| failed(error.to_string()))?;
    let mut filled: BTreeMap<String, Tensor> = BTreeMap::new();
    for module in modules {
        for (name, mut parameter) in module.named_parameters().map_err(|error| brief(&error))? {
            if !filled.contains_key(&name) {
                let view = tensors.tensor(&name).map_err(|_| failed(format!("no tensor {name:?}")))?;
                let shape: Vec<i64> = view.shape().iter().map(|&size| size as i64).collect();
                if shape != parameter.size() {
                    let wanted = parameter.size();
                    return Err(failed(format!("{name:?} has shape {shape:?}, and {wanted:?} in the archive")));
                }
                let value =
                    Tensor::f_from_data_size(view.data(), &shape, Kind::Float).map_err(|error| brief(&error))?;
                filled.insert(name.clone(), value.to_device(device).to_kind(kind));
            }
            tch::no_grad(|| parameter.f_set_data(&filled[&name])).map_err(|error| brief(&error))?;
        }
    }
    Ok(())
}

/// libtorch's errors end with a C++ stack trace; its first lines say what happened.
fn brief(error: &tch::TchError) -> CaseFailure {
    let text = error.to_string();
    // Of an error in an archive's code the last line says what, and the others where in the code.
    if let Some(what) = text.lines().find_map(|line| line.strip_prefix("RuntimeError: ")) {
        let mixes_dtypes = what.contains("same dtype") || what.contains("should be the same");
        return if mixes_dtypes {
            CaseFailure::unsupported(format!("the archive converts to f32 inside: {what}"))
        } else {
            classify(what)
        };
    }
    let lines =
        text.lines().take_while(|line| !line.starts_with("Exception raised from") && !line.starts_with("frame #"));
    classify(lines.collect::<Vec<_>>().join("\n"))
}

/// The name of the device that a tensor lies on, in the words of the one that was asked for.
fn device_name(device: Device, asked_for: &str) -> String {
    match device {
        Device::Cuda(index)
            if device_index(asked_for) == index && matches!(device_kind(asked_for), "cuda" | "rocm") =>
        {
            asked_for.to_owned()
        }
        Device::Cuda(index) => format!("cuda:{index}"),
        Device::Cpu => "cpu".into(),
        Device::Mps => "mps".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

struct TchRuntime {
    device: Device,
    /// What floating-point numbers are computed in.
    kind: Kind,
}

impl Runtime for TchRuntime {
    type Graph = CModule;
    /// A tensor, in the wrapping that a module takes.
    type Value = Rc<IValue>;

    fn upload(&self, tensor: &HostTensor) -> Result<Rc<IValue>, CaseFailure> {
        let uploaded = to_tensor(tensor)?.to_device(self.device);
        let is_given_in_full = uploaded.kind() == Kind::Float;
        let uploaded = if is_given_in_full { uploaded.to_kind(self.kind) } else { uploaded };
        Ok(Rc::new(IValue::Tensor(uploaded)))
    }

    fn download(&self, value: &Rc<IValue>) -> Result<HostTensor, CaseFailure> {
        to_host(as_tensor(value)?)
    }

    fn run(&self, graph: &mut CModule, inputs: &[&Rc<IValue>]) -> Result<Vec<Rc<IValue>>, CaseFailure> {
        let inputs: Vec<&IValue> = inputs.iter().map(|input| &***input).collect();
        let output = tch::no_grad(|| graph.forward_is(&inputs)).map_err(|error| brief(&error))?;
        let mut outputs = Vec::new();
        collect_outputs(output, &mut outputs)?;
        Ok(outputs)
    }

    fn greedy(&self, logits: &Rc<IValue>) -> Result<Rc<IValue>, CaseFailure> {
        let tokens = as_tensor(logits)?.f_argmax(-1, true).map_err(|error| brief(&error))?;
        Ok(Rc::new(IValue::Tensor(tokens)))
    }

    fn sync(&self) -> Result<(), CaseFailure> {
        match self.device {
            Device::Cuda(index) => tch::Cuda::synchronize(index as i64),
            // There is no call for it: a copy to the host waits for all that was begun before.
            Device::Mps => drop(Tensor::zeros([1], (Kind::Float, self.device)).to_device(Device::Cpu)),
            _ => {}
        }
        Ok(())
    }
}

fn as_tensor(value: &IValue) -> Result<&Tensor, CaseFailure> {
    match value {
        IValue::Tensor(tensor) => Ok(tensor),
        other => Err(CaseFailure::failed(format!("{other:?} is not a tensor"))),
    }
}

fn to_tensor(tensor: &HostTensor) -> Result<Tensor, CaseFailure> {
    let shape: Vec<i64> = tensor.shape.iter().map(|&size| size as i64).collect();
    let flat = match &tensor.data {
        TensorData::F32(values) => Tensor::from_slice(values),
        TensorData::F64(values) => Tensor::from_slice(values),
        TensorData::I32(values) => Tensor::from_slice(values),
        TensorData::I64(values) => Tensor::from_slice(values),
        TensorData::U8(values) => Tensor::from_slice(values),
        TensorData::Bool(values) => Tensor::from_slice(values),
    };
    flat.f_reshape(&shape).map_err(|error| brief(&error))
}

/// The tensors of an output, in order, whatever containers they are in.
fn collect_outputs(value: IValue, outputs: &mut Vec<Rc<IValue>>) -> Result<(), CaseFailure> {
    match value {
        IValue::Tensor(_) => outputs.push(Rc::new(value)),
        IValue::TensorList(tensors) => {
            outputs.extend(tensors.into_iter().map(|tensor| Rc::new(IValue::Tensor(tensor))));
        }
        IValue::Tuple(values) | IValue::GenericList(values) => {
            for value in values {
                collect_outputs(value, outputs)?;
            }
        }
        IValue::GenericDict(entries) => {
            for (_, value) in entries {
                collect_outputs(value, outputs)?;
            }
        }
        IValue::None => {}
        other => return Err(CaseFailure::unsupported(format!("an output is {other:?} and not a tensor"))),
    }
    Ok(())
}

fn to_host(tensor: &Tensor) -> Result<HostTensor, CaseFailure> {
    let shape = tensor.size().into_iter().map(|size| size as usize).collect();
    let flat = tensor.to_device(Device::Cpu).contiguous().view(-1);
    let vector = |error: tch::TchError| brief(&error);
    let data = match tensor.kind() {
        Kind::Float => TensorData::F32(Vec::try_from(&flat).map_err(vector)?),
        Kind::Half | Kind::BFloat16 => TensorData::F32(Vec::try_from(&flat.to_kind(Kind::Float)).map_err(vector)?),
        Kind::Double => TensorData::F64(Vec::try_from(&flat).map_err(vector)?),
        Kind::Int => TensorData::I32(Vec::try_from(&flat).map_err(vector)?),
        Kind::Int64 => TensorData::I64(Vec::try_from(&flat).map_err(vector)?),
        Kind::Uint8 => TensorData::U8(Vec::try_from(&flat).map_err(vector)?),
        Kind::Bool => TensorData::Bool(Vec::try_from(&flat).map_err(vector)?),
        other => return Err(CaseFailure::unsupported(format!("an output has the element type {other:?}"))),
    };
    Ok(HostTensor { shape, data })
}
