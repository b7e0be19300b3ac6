//! tract, pure Rust: ONNX graphs, optimised for the shapes of the case.
//!
//! tract optimises for known shapes, so a graph is compiled when it first runs on inputs of these shapes. Only the length
//! of a cache stays a symbol: decoding would otherwise compile a graph per step.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use tract_linalg::multithread::{Executor, set_default_executor};
use tract_onnx::prelude::*;
use tract_onnx::tract_hir::internal::{TDim, ToDim};

use crate::backend::artifact::{Format, check_artifact, parts_of};
use crate::backend::graphs::{Runtime, largest_of_rows, open_session, places};
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, Placement, Session, Versions};
use crate::definition::{CaseFailure, Dimension, Dtype, Model, Part};
use crate::fixture::{HostTensor, TensorData, with_values};

pub struct TractBackend;

/// The `tract-onnx` release in `Cargo.toml`, which is pinned there.
const CRATE_VERSION: &str = "0.23.9";

impl Backend for TractBackend {
    fn devices(&self) -> Vec<DeviceReport> {
        vec![DeviceReport::certain("cpu", Ok("pure Rust".into()))]
    }

    fn versions(&self, _device: &str) -> Versions {
        Versions::of_crate(CRATE_VERSION)
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        check_artifact(model, dtype, &[Dtype::F32, Dtype::I8], Format::Onnx)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        if request.device != "cpu" {
            return Err(CaseFailure::unavailable(format!("tract has no device {:?}", request.device)));
        }
        set_threads(request.threads);
        let parts = parts_of(request, Format::Onnx)?;
        let graphs = parts.iter().map(|(part, file)| TractGraph::load(part, file)).collect::<Result<_, _>>()?;
        let placement = Placement {
            effective_device: "cpu".into(),
            // tract does not report how it computes quantised operators.
            effective_dtype: (request.dtype == Dtype::F32).then_some(Dtype::F32),
            providers: "tract".into(),
            threads: Some(request.threads),
            serves_other_sizes: true,
            ..Placement::default()
        };
        open_session(request, TractRuntime, &parts, graphs, placement)
    }
}

/// Sets up tract's pool, once per process.
fn set_threads(threads: usize) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if threads > 1 {
            set_default_executor(Executor::multithread(threads));
        }
    });
}

struct TractRuntime;

struct TractGraph {
    model: InferenceModel,
    /// For each input of the part's definition, its place in the graph.
    places: Vec<usize>,
    /// Which dimension of an input is the length of a cache.
    growing: Vec<Option<usize>>,
    /// Compiled graphs by the shapes of their inputs.
    compiled: HashMap<Vec<TVec<Size>>, TypedSimpleState>,
    /// How long all compilations took.
    compilation: Duration,
}

/// A dimension of a compiled graph's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Size {
    Fixed(usize),
    /// Any length but 0.
    Growing,
}

/// The dimension of a cache that grows by a position per step.
const PAST: &str = "past";

impl TractGraph {
    fn load(part: &Part, path: &Path) -> Result<Self, CaseFailure> {
        let mut model = tract_onnx::onnx().model_for_path(path)?;
        let outlets = model.input_outlets()?.to_vec();
        let names: Vec<String> = outlets.iter().map(|outlet| model.node(outlet.node).name.clone()).collect();
        let places = places(part.inputs.iter().map(|input| &input.name), &names, path.display())?;
        let is_past = |dimension: &Dimension| *dimension == Dimension::Symbol(PAST.into());
        let growing = part.inputs.iter().map(|input| input.shape.iter().position(is_past)).collect();
        if !part.outputs.is_empty() {
            model.select_outputs_by_name(part.outputs.iter().map(|output| &output.name))?;
        }
        Ok(TractGraph { model, places, growing, compiled: HashMap::new(), compilation: Duration::ZERO })
    }

    fn shapes(&self, inputs: &[&TValue]) -> Vec<TVec<Size>> {
        let shape = |(input, growing): (&&TValue, &Option<usize>)| {
            let size = |(axis, &size): (usize, &usize)| {
                if *growing == Some(axis) && size > 0 { Size::Growing } else { Size::Fixed(size) }
            };
            input.shape().iter().enumerate().map(size).collect()
        };
        inputs.iter().zip(&self.growing).map(shape).collect()
    }

    /// The graph for these inputs, which is compiled on the first call.
    fn compiled(&mut self, inputs: &[&TValue]) -> Result<&mut TypedSimpleState, CaseFailure> {
        let shapes = self.shapes(inputs);
        if !self.compiled.contains_key(&shapes) {
            let start = Instant::now();
            let mut model = self.model.clone();
            let past = model.symbols.sym(PAST);
            for ((input, shape), &place) in inputs.iter().zip(&shapes).zip(&self.places) {
                let dimension = |size: &Size| match size {
                    Size::Fixed(size) => size.to_dim(),
                    Size::Growing => TDim::from(past.clone()),
                };
                let shape: TVec<TDim> = shape.iter().map(dimension).collect();
                model.set_input_fact(place, InferenceFact::dt_shape(input.datum_type(), shape))?;
            }
            let runnable = model.into_optimized().and_then(|model| model.into_runnable())?;
            self.compiled.insert(shapes.clone(), runnable.spawn()?);
            self.compilation += start.elapsed();
        }
        self.compiled.get_mut(&shapes).ok_or_else(|| CaseFailure::failed("a graph that was just compiled is gone"))
    }
}

impl Runtime for TractRuntime {
    type Graph = TractGraph;
    type Value = TValue;

    fn upload(&self, tensor: &HostTensor) -> Result<TValue, CaseFailure> {
        let shape = tensor.shape.as_slice();
        let tensor = with_values!(&tensor.data, values => Tensor::from_shape(shape, values));
        Ok(tensor.map(TValue::from)?)
    }

    fn download(&self, value: &TValue) -> Result<HostTensor, CaseFailure> {
        let shape = value.shape().to_vec();
        let view = value.try_as_plain_ram()?;
        let data: TensorData = match value.datum_type() {
            DatumType::F32 => view.as_slice::<f32>()?.to_vec().into(),
            DatumType::F64 => view.as_slice::<f64>()?.to_vec().into(),
            DatumType::I32 => view.as_slice::<i32>()?.to_vec().into(),
            DatumType::I64 => view.as_slice::<i64>()?.to_vec().into(),
            DatumType::U8 => view.as_slice::<u8>()?.to_vec().into(),
            DatumType::Bool => view.as_slice::<bool>()?.to_vec().into(),
            other => return Err(CaseFailure::unsupported(format!("an output has the element type {other:?}"))),
        };
        Ok(HostTensor { shape, data })
    }

    fn run(&self, graph: &mut TractGraph, inputs: &[&TValue]) -> Result<Vec<TValue>, CaseFailure> {
        let places = graph.places.clone();
        let state = graph.compiled(inputs)?;
        let mut given: TVec<TValue> = inputs.iter().map(|&input| input.clone()).collect();
        for (&place, &input) in places.iter().zip(inputs) {
            given[place] = input.clone();
        }
        // tract computes on the CPU before it returns.
        Ok(state.run(given)?.into_vec())
    }

    fn compilation(&self, graph: &TractGraph) -> Option<Duration> {
        Some(graph.compilation)
    }

    fn greedy(&self, logits: &TValue) -> Result<TValue, CaseFailure> {
        let rows = logits.shape().first().copied().unwrap_or(1);
        let view = logits.try_as_plain_ram()?;
        self.upload(&largest_of_rows(view.as_slice::<f32>()?, rows))
    }
}
