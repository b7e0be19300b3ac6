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

use candle_core::{DType, Tensor};
use candle_onnx::onnx::GraphProto;

use self::plan::Plan;
use self::tensor::{Forward, Place, device_of, dtype_of};
use crate::backend::artifact::{Format, check_artifact, parts_of};
use crate::backend::graphs::open_session;
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, Placement, Session, Versions};
use crate::definition::{CaseFailure, Dtype, Model, Part};

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
        let (mut own, mut fused, mut weight_dtype) = (BTreeSet::new(), BTreeSet::new(), None);
        let mut graphs = Vec::new();
        for (part, file) in &parts {
            let (mut graph, mut constants) = graph::read(file)?;
            weight_dtype = weight_dtype.or_else(|| constants.values().map(Tensor::dtype).find(DType::is_float));
            fused.extend(fusion::fuse(&mut graph, &mut constants));
            let plan = Plan::new(&graph, &constants)?;
            own.extend(plan.own_operators());
            graphs.push(forward(plan, part, &graph));
        }
        let placement = Placement {
            effective_device: "cpu".into(),
            effective_dtype: weight_dtype.map_or(Some(request.dtype), dtype_of),
            providers: "candle".into(),
            threads: Some(candle_core::utils::get_num_threads()),
            executor: Some(executor(own, fused)),
            serves_other_sizes: true,
            ..Placement::default()
        };
        // The graphs convert by themselves.
        open_session(request, Place { device, dtype: DType::F32 }, &parts, graphs, placement)
    }
}

/// A part as a function of its inputs. candle computes on the CPU before it returns.
fn forward(plan: Plan, part: &Part, graph: &GraphProto) -> Forward {
    let inputs: Vec<String> = part.inputs.iter().map(|input| input.name.clone()).collect();
    let outputs: Vec<String> = match part.outputs.as_slice() {
        [] => graph.output.iter().map(|output| output.name.clone()).collect(),
        outputs => outputs.iter().map(|output| output.name.clone()).collect(),
    };
    Box::new(move |given| {
        let named: Vec<(String, Tensor)> = inputs.iter().cloned().zip(given.iter().cloned()).collect();
        let mut computed = plan.run(&named)?;
        let missing = |name| candle_core::Error::Msg(format!("no output {name:?}"));
        outputs.iter().map(|name| computed.remove(name).ok_or_else(|| missing(name))).collect()
    })
}

/// Describes what executes the graphs.
fn executor(own: BTreeSet<&str>, fused: BTreeSet<&str>) -> String {
    let list = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(", ");
    let own = if own.is_empty() { String::new() } else { format!(" with own {}", list(own)) };
    let fused = if fused.is_empty() { String::new() } else { format!(" and fused {}", list(fused)) };
    format!("candle-onnx{own}{fused}")
}
