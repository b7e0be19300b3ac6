//! candle, pure Rust: its native modules where it has them, and otherwise ONNX graphs through `candle-onnx`, planned when
//! they are loaded.
//!
//! [`native`] runs the modules of `candle-transformers`; the rest is about graphs.
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

use std::collections::BTreeSet;
use std::path::Path;

use candle_core::{D, DType, Device, Tensor};

use plan::Plan;

use super::graphs::{Runtime, open_session, parts_of};
use super::{Backend, DeviceReport, Format, LoadRequest, Placement, Session, Versions, check_artifact, classify};
use crate::definition::{CaseFailure, Dtype, Model, Part, TensorSpec, device_index, device_kind};
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
        let gpu =
            |device: &str| device_of(device).map(|_| "candle's own kernels".to_owned()).map_err(|error| error.message);
        vec![
            DeviceReport::certain("cpu", Ok("pure Rust".into())),
            DeviceReport::certain("cuda", gpu("cuda")),
            DeviceReport::certain("mps", gpu("mps")),
        ]
    }

    fn versions(&self, _device: &str) -> Versions {
        Versions { backend: CRATE_VERSION.into(), library: CRATE_VERSION.into() }
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        check_artifact(model, dtype, &[Dtype::F32, Dtype::F16, Dtype::Bf16], Format::Onnx)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        let device = device_of(request.device)?;
        if let Some(session) = native::open_session(request, &device) {
            return session;
        }
        if !device.is_cpu() {
            return Err(CaseFailure::unsupported(
                "candle-onnx computes on the CPU only, and candle has no module of this model",
            ));
        }
        let parts = parts_of(request, Format::Onnx)?;
        let graphs = parts.iter().map(|(part, file)| CandleGraph::load(part, file)).collect::<Result<Vec<_>, _>>()?;
        let placement = Placement {
            effective_device: "cpu".into(),
            effective_dtype: graphs.first().and_then(|graph| graph.weight_dtype).map_or(Some(request.dtype), dtype_of),
            providers: "candle".into(),
            threads: Some(candle_core::utils::get_num_threads()),
            executor: Some(executor(&graphs)),
            ..Placement::default()
        };
        open_session(request, CandleRuntime, &parts, graphs, placement)
    }
}

fn device_of(name: &str) -> Result<Device, CaseFailure> {
    let unavailable = |feature: &str, error: candle_core::Error| {
        let first = error.to_string();
        let first = first.lines().next().unwrap_or_default();
        CaseFailure::unavailable(format!("{first} (a build with `--features {feature}` has it)"))
    };
    match device_kind(name) {
        "cpu" => Ok(Device::Cpu),
        "cuda" => Device::new_cuda(device_index(name)).map_err(|error| unavailable("candle-cuda", error)),
        "mps" => Device::new_metal(0).map_err(|error| unavailable("candle-metal", error)),
        other => Err(CaseFailure::unavailable(format!("candle has no device {other:?}"))),
    }
}

fn dtype_of(dtype: DType) -> Option<Dtype> {
    match dtype {
        DType::F32 => Some(Dtype::F32),
        DType::F16 => Some(Dtype::F16),
        DType::BF16 => Some(Dtype::Bf16),
        _ => None,
    }
}

struct CandleRuntime;

struct CandleGraph {
    plan: Plan,
    weight_dtype: Option<DType>,
    fused: Vec<&'static str>,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl CandleGraph {
    fn load(part: &Part, path: &Path) -> Result<Self, CaseFailure> {
        let (mut graph, mut constants) = graph::read(path)?;
        let names = |specs: &[TensorSpec]| specs.iter().map(|spec| spec.name.clone()).collect::<Vec<_>>();
        let outputs = match part.outputs.as_slice() {
            [] => graph.output.iter().map(|output| output.name.clone()).collect(),
            outputs => names(outputs),
        };
        let weight_dtype = constants.values().map(Tensor::dtype).find(DType::is_float);
        let fused = fusion::fuse(&mut graph, &mut constants);
        let plan = Plan::new(&graph, &constants)?;
        Ok(CandleGraph { plan, weight_dtype, fused, inputs: names(&part.inputs), outputs })
    }

    fn named(&self, inputs: &[&Tensor]) -> Vec<(String, Tensor)> {
        self.inputs.iter().zip(inputs).map(|(name, tensor)| (name.clone(), (*tensor).clone())).collect()
    }
}

/// What executes the graphs, in words.
fn executor(graphs: &[CandleGraph]) -> String {
    let own: BTreeSet<&str> = graphs.iter().flat_map(|graph| graph.plan.own_operators()).collect();
    let fused: BTreeSet<&str> = graphs.iter().flat_map(|graph| graph.fused.iter().copied()).collect();
    let list = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(", ");
    let mut text = "candle-onnx".to_owned();
    if !own.is_empty() {
        text += &format!(" with own {}", list(own));
    }
    if !fused.is_empty() {
        text += &format!(" and fused {}", list(fused));
    }
    text
}

impl Runtime for CandleRuntime {
    type Graph = CandleGraph;
    type Value = Tensor;

    fn upload(&self, tensor: &HostTensor) -> Result<Tensor, CaseFailure> {
        to_tensor(tensor, &Device::Cpu)
    }

    fn download(&self, value: &Tensor) -> Result<HostTensor, CaseFailure> {
        to_host(value)
    }

    fn run(&self, graph: &mut CandleGraph, inputs: &[&Tensor]) -> Result<Vec<Tensor>, CaseFailure> {
        // candle computes on the CPU before it returns.
        let mut computed = graph.plan.run(&graph.named(inputs)).map_err(classify)?;
        let output =
            |name: &String| computed.remove(name).ok_or_else(|| CaseFailure::failed(format!("no output {name:?}")));
        graph.outputs.iter().map(output).collect()
    }

    fn greedy(&self, logits: &Tensor) -> Result<Tensor, CaseFailure> {
        logits.argmax_keepdim(D::Minus1).and_then(|tokens| tokens.to_dtype(DType::I64)).map_err(classify)
    }

    fn check_inputs(&self, graph: &CandleGraph, inputs: &[&Tensor]) -> Result<(), CaseFailure> {
        graph.plan.check_inputs(&graph.named(inputs)).map_err(classify)
    }
}

fn to_tensor(tensor: &HostTensor, device: &Device) -> Result<Tensor, CaseFailure> {
    let shape = tensor.shape.as_slice();
    let unsupported = |element: &str| Err(CaseFailure::unsupported(format!("candle has no {element} tensors")));
    match &tensor.data {
        TensorData::F32(values) => Tensor::from_slice(values, shape, device),
        TensorData::F64(values) => Tensor::from_slice(values, shape, device),
        TensorData::I64(values) => Tensor::from_slice(values, shape, device),
        TensorData::U8(values) => Tensor::from_slice(values, shape, device),
        TensorData::I32(values) => Tensor::from_slice(values, shape, device),
        TensorData::Bool(_) => return unsupported("bool"),
    }
    .map_err(classify)
}

fn to_host(tensor: &Tensor) -> Result<HostTensor, CaseFailure> {
    let shape = tensor.dims().to_vec();
    let flat = tensor.flatten_all().map_err(classify)?;
    let data = match tensor.dtype() {
        DType::F32 => flat.to_vec1().map(TensorData::F32),
        DType::F16 | DType::BF16 => flat.to_dtype(DType::F32).and_then(|flat| flat.to_vec1()).map(TensorData::F32),
        DType::F64 => flat.to_vec1().map(TensorData::F64),
        DType::I64 => flat.to_vec1().map(TensorData::I64),
        DType::U8 => flat.to_vec1().map(TensorData::U8),
        other => return Err(CaseFailure::unsupported(format!("an output has the element type {other:?}"))),
    };
    Ok(HostTensor { shape, data: data.map_err(classify)? })
}
