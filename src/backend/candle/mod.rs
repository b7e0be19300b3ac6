//! candle, pure Rust: the modules of `candle-transformers` in [`native`], and ONNX graphs through `candle-onnx` for the
//! models that have no module.
//!
//! `candle-onnx` evaluates a graph node by node and prepares nothing: it decodes every initializer on every evaluation,
//! cannot read external data, fuses nothing and keeps every value until the end. So a graph is prepared once here, as the
//! other runtimes do: [`graph`] decodes it and computes the constants, [`fusion`] merges nodes, and [`plan`] decides the
//! order and how long values are kept. candle computes everything: through `candle-onnx`, or through its own functions in
//! [`operator`] for nodes that `candle-onnx` evaluates in a roundabout way.

mod fusion;
mod graph;
mod native;
mod operator;
mod plan;
mod tensor;

use std::collections::BTreeSet;
use std::path::Path;

use candle_core::{DType, Device, Tensor};

use self::plan::Plan;
use self::tensor::{device_of, dtype_of, greedy, to_host, to_tensor};
use crate::backend::artifact::{Format, check_artifact, parts_of};
use crate::backend::graphs::{Runtime, open_session};
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, Placement, Session, Versions};
use crate::definition::{CaseFailure, Dtype, Model, Part, TensorSpec};
use crate::fixture::HostTensor;

pub struct Candle;

/// The `candle-core` and `candle-onnx` release in `Cargo.toml`, which is pinned there.
const CRATE_VERSION: &str = "0.11.1";

impl Backend for Candle {
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
        Versions::of_crate(CRATE_VERSION)
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        check_artifact(model, dtype, &[Dtype::F32, Dtype::F16, Dtype::Bf16], Format::Onnx)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        let device = device_of(request.device)?;
        if let Some(session) = native::open_session(request, &device)? {
            return Ok(session);
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
            serves_other_sizes: true,
            ..Placement::default()
        };
        open_session(request, CandleRuntime, &parts, graphs, placement)
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

/// Describes what executes the graphs.
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
        let mut computed = graph.plan.run(&graph.named(inputs))?;
        let output =
            |name: &String| computed.remove(name).ok_or_else(|| CaseFailure::failed(format!("no output {name:?}")));
        graph.outputs.iter().map(output).collect()
    }

    fn greedy(&self, logits: &Tensor) -> Result<Tensor, CaseFailure> {
        greedy(logits)
    }
}
