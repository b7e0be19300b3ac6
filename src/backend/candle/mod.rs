//! candle, pure Rust: the modules of `candle-transformers` in [`native`], and ONNX graphs through `candle-onnx` for the
//! models that have no module.
//!
//! `candle-onnx` evaluates a graph node by node and prepares nothing: it decodes every initializer on every evaluation,
//! cannot read external data, fuses nothing and keeps every value until the end. So a graph is prepared once here, as the
//! other runtimes do: [`graph`] decodes it and computes the constants, [`fusion`] merges nodes, and [`plan`] decides the
//! order and how long values are kept. candle computes everything: through `candle-onnx`, or through its own functions in
//! [`operator`] for nodes that `candle-onnx` evaluates in a roundabout way, and in [`forms`] for those that it does not evaluate.

mod forms;
mod fusion;
mod graph;
mod native;
mod operator;
mod plan;
mod tensor;

use std::collections::BTreeSet;

use candle_core::{DType, Tensor};
use candle_onnx::onnx::ValueInfoProto;

use self::plan::Plan;
use self::tensor::{Forward, Place, device_of, dtype_of, placement};
use crate::backend::artifact::{Format, check_artifact, parts_of};
use crate::backend::graphs::open_session;
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, Session};
use crate::definition::{CaseFailure, Dtype, Model, TensorSpec};

pub struct Candle;

impl Backend for Candle {
    fn devices(&self) -> Vec<DeviceReport> {
        let describe = |device: &str| match device_of(device) {
            Ok(device) if device.is_cpu() => Ok("pure Rust".into()),
            Ok(_) => Ok("candle's own kernels".into()),
            Err(failure) => Err(failure.message),
        };
        ["cpu", "cuda", "mps"].map(|device| DeviceReport::certain(device, describe(device))).into()
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
        let (mut own, mut fused, mut weight_dtype) = (BTreeSet::new(), BTreeSet::new(), None);
        let mut graphs = Vec::new();
        for (part, file) in &parts {
            let (mut graph, mut constants) = graph::read(file)?;
            graph.input = names(&part.inputs);
            // The definition may leave the outputs to the file.
            if !part.outputs.is_empty() {
                graph.output = names(&part.outputs);
            }
            weight_dtype = weight_dtype.or_else(|| constants.values().map(Tensor::dtype).find(DType::is_float));
            fused.extend(fusion::fuse(&mut graph, &mut constants));
            let plan = Plan::new(&graph, &constants)?;
            own.extend(plan.own_operators());
            // candle computes on the CPU before it returns.
            graphs.push(Box::new(move |given: &[Tensor]| plan.run(given)) as Forward);
        }
        let effective_dtype = weight_dtype.map_or(Some(request.dtype), dtype_of);
        let placement = placement(request, effective_dtype, executor(own, fused));
        // The graphs convert by themselves.
        open_session(request, Place { device, dtype: DType::F32 }, &parts, graphs, placement)
    }
}

fn names(values: &[TensorSpec]) -> Vec<ValueInfoProto> {
    values.iter().map(|value| ValueInfoProto { name: value.name.clone(), ..ValueInfoProto::default() }).collect()
}

fn executor(own: BTreeSet<&str>, fused: BTreeSet<&str>) -> String {
    let list = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(", ");
    let own = if own.is_empty() { String::new() } else { format!(" with own {}", list(own)) };
    let fused = if fused.is_empty() { String::new() } else { format!(" and fused {}", list(fused)) };
    format!("candle-onnx{own}{fused}")
}
