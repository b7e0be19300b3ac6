//! candle, pure Rust: its native modules where there are, and ONNX graphs through `candle-onnx` otherwise.
//!
//! [`native`] runs the modules of `candle-transformers`. The rest is about graphs.
//!
//! `candle-onnx` evaluates a graph node by node and prepares nothing: it decodes every initializer on every evaluation,
//! knows no external data, fuses nothing and keeps every value until the end. So a graph is prepared once here, as the
//! other runtimes do: [`graph`] decodes it and computes what is constant, [`fusion`] merges nodes, and [`plan`] says what
//! runs when and which values may go. What computes is candle throughout: `candle-onnx`, or for the nodes that it
//! evaluates in a roundabout way candle's own functions, in [`operator`].

mod fusion;
mod graph;
mod native;
mod operator;
mod plan;

use std::collections::HashMap;
use std::hint::black_box;

use candle_core::{DType, Device, Tensor};

use plan::Plan;

use super::{
    Backend, DeviceReport, Format, LoadRequest, Placement, Session, Versions, artifact_path, check_artifact, classify,
};
use crate::definition::{Dtype, Model, Shortfall};
use crate::fixture::{HostTensor, TensorData};

pub struct Candle;

/// The `candle-core` and `candle-onnx` release in `Cargo.toml`, which is pinned there.
const CRATE_VERSION: &str = "0.11.1";

impl Backend for Candle {
    fn name(&self) -> &'static str {
        "candle"
    }

    fn framework(&self) -> &'static str {
        "candle"
    }

    fn devices(&self) -> Vec<DeviceReport> {
        vec![DeviceReport { device: "cpu".into(), availability: Ok("pure Rust".into()) }]
    }

    fn versions(&self) -> Versions {
        Versions { backend: CRATE_VERSION.into(), library: CRATE_VERSION.into() }
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), Shortfall> {
        check_artifact(model, dtype, Format::Onnx)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, Shortfall> {
        let path = artifact_path(&request.artifacts.onnx, "ONNX")?;
        if request.device != "cpu" {
            return Err(Shortfall::unavailable(format!("candle has no device {:?}", request.device)));
        }
        if let Some(module) = native::load(request.model, request.artifacts) {
            return Ok(Box::new(native::NativeSession::new(module?, request.artifacts.weights.clone())));
        }
        let (mut graph, mut constants) = graph::read(path)?;
        let weight_dtype = constants.values().map(Tensor::dtype).find(DType::is_float);
        let fused = fusion::fuse(&mut graph, &mut constants);
        Ok(Box::new(CandleSession {
            plan: Plan::new(&graph, &constants)?,
            weight_dtype,
            fused,
            input_names: request.model.inputs.iter().map(|input| input.name.clone()).collect(),
            output_names: request.model.outputs.iter().map(|output| output.name.clone()).collect(),
            bound: Vec::new(),
            artifact: path.to_owned(),
        }))
    }
}

struct CandleSession {
    plan: Plan,
    weight_dtype: Option<DType>,
    fused: Vec<&'static str>,
    input_names: Vec<String>,
    output_names: Vec<String>,
    bound: Vec<Vec<(String, Tensor)>>,
    artifact: std::path::PathBuf,
}

impl CandleSession {
    fn forward(&self, binding: usize) -> Result<HashMap<String, Tensor>, Shortfall> {
        self.plan.run(&self.bound[binding]).map_err(classify)
    }

    fn executor(&self) -> String {
        let mut text = "candle-onnx".to_owned();
        let own = self.plan.own_operators();
        if !own.is_empty() {
            text += &format!(" with own {}", own.join(", "));
        }
        if !self.fused.is_empty() {
            text += &format!(" and fused {}", self.fused.join(", "));
        }
        text
    }
}

impl Session for CandleSession {
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, Shortfall> {
        let tensors: Result<Vec<_>, Shortfall> =
            self.input_names.iter().zip(inputs).map(|(name, input)| Ok((name.clone(), to_tensor(input)?))).collect();
        let tensors = tensors?;
        self.plan.check_inputs(&tensors).map_err(classify)?;
        self.bound.push(tensors);
        Ok(self.bound.len() - 1)
    }

    fn run(&mut self, binding: usize) -> Result<(), Shortfall> {
        self.forward(binding).map(|outputs| drop(black_box(outputs)))
    }

    fn sync(&mut self) -> Result<(), Shortfall> {
        // candle computes on the CPU before it returns.
        Ok(())
    }

    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, Shortfall> {
        let outputs = self.forward(binding)?;
        self.output_names
            .iter()
            .map(|name| to_host(outputs.get(name).ok_or_else(|| Shortfall::failed(format!("no output {name:?}")))?))
            .collect()
    }

    fn placement(&self) -> Placement {
        Placement {
            effective_device: "cpu".into(),
            effective_dtype: match self.weight_dtype {
                Some(DType::F32) | None => Some(Dtype::F32),
                Some(DType::F16) => Some(Dtype::F16),
                Some(DType::BF16) => Some(Dtype::Bf16),
                Some(_) => None,
            },
            providers: "candle".into(),
            threads: Some(candle_core::utils::get_num_threads()),
            artifact: Some(self.artifact.clone()),
            executor: Some(self.executor()),
        }
    }
}

fn to_tensor(tensor: &HostTensor) -> Result<Tensor, Shortfall> {
    let shape = tensor.shape.as_slice();
    let unsupported = |element: &str| Err(Shortfall::unsupported(format!("candle has no {element} tensors")));
    match &tensor.data {
        TensorData::F32(values) => Tensor::from_slice(values, shape, &Device::Cpu),
        TensorData::F64(values) => Tensor::from_slice(values, shape, &Device::Cpu),
        TensorData::I64(values) => Tensor::from_slice(values, shape, &Device::Cpu),
        TensorData::U8(values) => Tensor::from_slice(values, shape, &Device::Cpu),
        TensorData::I32(values) => Tensor::from_slice(values, shape, &Device::Cpu),
        TensorData::Bool(_) => return unsupported("bool"),
    }
    .map_err(classify)
}

fn to_host(tensor: &Tensor) -> Result<HostTensor, Shortfall> {
    let shape = tensor.dims().to_vec();
    let flat = tensor.flatten_all().map_err(classify)?;
    let data = match tensor.dtype() {
        DType::F32 => flat.to_vec1().map(TensorData::F32),
        DType::F16 | DType::BF16 => flat.to_dtype(DType::F32).and_then(|flat| flat.to_vec1()).map(TensorData::F32),
        DType::F64 => flat.to_vec1().map(TensorData::F64),
        DType::I64 => flat.to_vec1().map(TensorData::I64),
        DType::U8 => flat.to_vec1().map(TensorData::U8),
        other => return Err(Shortfall::unsupported(format!("an output has the element type {other:?}"))),
    };
    Ok(HostTensor { shape, data: data.map_err(classify)? })
}
