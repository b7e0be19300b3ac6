//! libtorch through the `tch` crate: TorchScript archives.
//!
//! The archive of a packaged model has no weights; they are read from the safetensors file and put into the module by
//! name, without a copy of the archive's placeholders.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use safetensors::SafeTensors;
use tch::{CModule, Device, IValue, Kind, Tensor};

use super::graphs::{Runtime, open_session, parts_of};
use super::{Backend, DeviceReport, Format, LoadRequest, Placement, Session, Versions, check_artifact, classify};
use crate::definition::{Dtype, Model, Shortfall};
use crate::fixture::{HostTensor, TensorData};

pub struct Tch;

/// The `tch` release in `Cargo.toml`, and the libtorch that its `torch-sys` was built for and checked against.
const CRATE_VERSION: &str = "0.24.0";
const LIBTORCH_VERSION: &str = "2.11.0";

fn parse_device(name: &str) -> Result<Device, Shortfall> {
    match name {
        "cpu" => Ok(Device::Cpu),
        other => Err(Shortfall::unavailable(format!("tch has no device {other:?}"))),
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
        vec![DeviceReport { device: "cpu".into(), availability: Ok(format!("libtorch {LIBTORCH_VERSION}")) }]
    }

    fn versions(&self) -> Versions {
        Versions { backend: CRATE_VERSION.into(), library: LIBTORCH_VERSION.into() }
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), Shortfall> {
        check_artifact(model, dtype, Format::TorchScript)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, Shortfall> {
        let device = parse_device(request.device)?;
        set_threads(request.threads);
        let parts = parts_of(request, Format::TorchScript)?;
        let mut modules = Vec::new();
        for (_, path) in &parts {
            let mut module = CModule::load_on_device(path, device).map_err(|error| brief(&error))?;
            module.f_set_eval().map_err(|error| brief(&error))?;
            modules.push(module);
        }
        if let Some(weights) = &request.artifacts.weights {
            fill_parameters(&modules, weights, device)?;
        }
        let parameters = modules.first().and_then(|module| module.named_parameters().ok());
        let kind = parameters.and_then(|parameters| parameters.first().map(|(_, parameter)| parameter.kind()));
        let placement = Placement {
            effective_device: "cpu".into(),
            effective_dtype: match kind {
                Some(Kind::Float) | None => Some(Dtype::F32),
                Some(Kind::Half) => Some(Dtype::F16),
                Some(Kind::BFloat16) => Some(Dtype::Bf16),
                Some(_) => None,
            },
            providers: "libtorch".into(),
            threads: usize::try_from(tch::get_num_threads()).ok(),
            ..Placement::default()
        };
        open_session(request, TchRuntime { device }, &parts, modules, placement)
    }
}

/// Gives the parameters of all parts their weights; a weight that several parts have is in memory once.
fn fill_parameters(modules: &[CModule], weights: &Path, device: Device) -> Result<(), Shortfall> {
    let failed = |error: String| Shortfall::failed(format!("{}: {error}", weights.display()));
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
                filled.insert(name.clone(), value.to_device(device));
            }
            tch::no_grad(|| parameter.f_set_data(&filled[&name])).map_err(|error| brief(&error))?;
        }
    }
    Ok(())
}

/// libtorch's errors end with a C++ stack trace; its first lines say what happened.
fn brief(error: &tch::TchError) -> Shortfall {
    let text = error.to_string();
    let lines =
        text.lines().take_while(|line| !line.starts_with("Exception raised from") && !line.starts_with("frame #"));
    classify(lines.collect::<Vec<_>>().join("\n"))
}

struct TchRuntime {
    device: Device,
}

impl Runtime for TchRuntime {
    type Graph = CModule;
    /// A tensor, in the wrapping that a module takes.
    type Value = Rc<IValue>;

    fn upload(&self, tensor: &HostTensor) -> Result<Rc<IValue>, Shortfall> {
        Ok(Rc::new(IValue::Tensor(to_tensor(tensor)?.to_device(self.device))))
    }

    fn download(&self, value: &Rc<IValue>) -> Result<HostTensor, Shortfall> {
        to_host(as_tensor(value)?)
    }

    fn run(&self, graph: &mut CModule, inputs: &[&Rc<IValue>]) -> Result<Vec<Rc<IValue>>, Shortfall> {
        let inputs: Vec<&IValue> = inputs.iter().map(|input| &***input).collect();
        let output = tch::no_grad(|| graph.forward_is(&inputs)).map_err(|error| brief(&error))?;
        let mut outputs = Vec::new();
        collect_outputs(output, &mut outputs)?;
        Ok(outputs)
    }

    fn greedy(&self, logits: &Rc<IValue>) -> Result<Rc<IValue>, Shortfall> {
        let tokens = as_tensor(logits)?.f_argmax(-1, true).map_err(|error| brief(&error))?;
        Ok(Rc::new(IValue::Tensor(tokens)))
    }

    fn sync(&self) -> Result<(), Shortfall> {
        if let Device::Cuda(index) = self.device {
            tch::Cuda::synchronize(index as i64);
        }
        Ok(())
    }
}

fn as_tensor(value: &IValue) -> Result<&Tensor, Shortfall> {
    match value {
        IValue::Tensor(tensor) => Ok(tensor),
        other => Err(Shortfall::failed(format!("{other:?} is not a tensor"))),
    }
}

fn to_tensor(tensor: &HostTensor) -> Result<Tensor, Shortfall> {
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
fn collect_outputs(value: IValue, outputs: &mut Vec<Rc<IValue>>) -> Result<(), Shortfall> {
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
        other => return Err(Shortfall::unsupported(format!("an output is {other:?} and not a tensor"))),
    }
    Ok(())
}

fn to_host(tensor: &Tensor) -> Result<HostTensor, Shortfall> {
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
        other => return Err(Shortfall::unsupported(format!("an output has the element type {other:?}"))),
    };
    Ok(HostTensor { shape, data })
}
