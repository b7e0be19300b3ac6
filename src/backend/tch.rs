//! libtorch through the `tch` crate: TorchScript archives.
//!
//! The archive of a packaged model has no weights; they are read from the safetensors file and put into the module by
//! name, without a copy of the archive's placeholders.

use std::collections::BTreeMap;

use tch::{CModule, Device, IValue, Kind, Tensor};

use super::{
    Backend, DeviceReport, Format, LoadRequest, Placement, Session, Versions, artifact_path, check_artifact, classify,
};
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
        let path = artifact_path(&request.artifacts.torchscript, "TorchScript")?;
        let device = parse_device(request.device)?;
        set_threads(request.threads);
        let mut module = CModule::load_on_device(path, device).map_err(|error| brief(&error))?;
        module.f_set_eval().map_err(|error| brief(&error))?;
        if let Some(weights) = &request.artifacts.weights {
            let tensors = Tensor::read_safetensors(weights).map_err(|error| brief(&error))?;
            fill_parameters(&module, tensors.into_iter().collect(), device)?;
        }
        Ok(Box::new(TchSession { module, device, bound: Vec::new(), artifact: path.to_owned() }))
    }
}

fn fill_parameters(module: &CModule, mut weights: BTreeMap<String, Tensor>, device: Device) -> Result<(), Shortfall> {
    for (name, mut parameter) in module.named_parameters().map_err(|error| brief(&error))? {
        let value = weights
            .remove(&name)
            .ok_or_else(|| Shortfall::failed(format!("the weights have no tensor {name:?} that the archive needs")))?;
        if value.size() != parameter.size() {
            return Err(Shortfall::failed(format!(
                "tensor {name:?} has shape {:?} in the weights and {:?} in the archive",
                value.size(),
                parameter.size()
            )));
        }
        tch::no_grad(|| parameter.f_set_data(&value.to_device(device))).map_err(|error| brief(&error))?;
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

struct TchSession {
    module: CModule,
    device: Device,
    bound: Vec<Vec<IValue>>,
    artifact: std::path::PathBuf,
}

impl TchSession {
    fn forward(&self, binding: usize) -> Result<IValue, Shortfall> {
        tch::no_grad(|| self.module.forward_is(&self.bound[binding])).map_err(|error| brief(&error))
    }
}

impl Session for TchSession {
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, Shortfall> {
        let tensors: Result<Vec<IValue>, Shortfall> =
            inputs.iter().map(|input| Ok(IValue::Tensor(to_tensor(input)?.to_device(self.device)))).collect();
        self.bound.push(tensors?);
        Ok(self.bound.len() - 1)
    }

    fn run(&mut self, binding: usize) -> Result<(), Shortfall> {
        self.forward(binding).map(drop)
    }

    fn sync(&mut self) -> Result<(), Shortfall> {
        if let Device::Cuda(index) = self.device {
            tch::Cuda::synchronize(index as i64);
        }
        Ok(())
    }

    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, Shortfall> {
        let mut outputs = Vec::new();
        collect_outputs(self.forward(binding)?, &mut outputs)?;
        Ok(outputs)
    }

    fn placement(&self) -> Placement {
        let parameter_kind =
            self.module.named_parameters().ok().and_then(|parameters| parameters.first().map(|(_, p)| p.kind()));
        Placement {
            effective_device: "cpu".into(),
            effective_dtype: match parameter_kind {
                Some(Kind::Float) | None => Some(Dtype::F32),
                Some(Kind::Half) => Some(Dtype::F16),
                Some(Kind::BFloat16) => Some(Dtype::Bf16),
                Some(_) => None,
            },
            providers: "libtorch".into(),
            threads: usize::try_from(tch::get_num_threads()).ok(),
            artifact: Some(self.artifact.clone()),
            executor: None,
        }
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
fn collect_outputs(value: IValue, outputs: &mut Vec<HostTensor>) -> Result<(), Shortfall> {
    match value {
        IValue::Tensor(tensor) => outputs.push(to_host(&tensor)?),
        IValue::TensorList(tensors) => {
            for tensor in &tensors {
                outputs.push(to_host(tensor)?);
            }
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
