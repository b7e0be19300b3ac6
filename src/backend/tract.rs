//! tract, pure Rust: ONNX graphs, optimised for the shapes of the case.
//!
//! tract optimises for known shapes, so a graph is compiled when it first runs on inputs of new shapes. Only the length
//! of a cache stays a symbol: decoding would otherwise compile a graph per step.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::time::{Duration, Instant};

use regex::Regex;
use tract_linalg::multithread::{Executor, multithread_tract_scope, set_default_executor};
use tract_onnx::prelude::*;
use tract_onnx::tract_core::ops::gru_seq::GruSeq;
use tract_onnx::tract_core::ops::matmul::optimized::OptMatMul;
use tract_onnx::tract_core::ops::scan::Scan;
use tract_onnx::tract_core::plan::eval;
use tract_onnx::tract_hir::internal::{TDim, ToDim};

use crate::backend::artifact::{Format, check_artifact, parts_of};
use crate::backend::graphs::{PAST, growing_dimension, largest_of_rows, open_session, places};
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, Placement, ProfiledSession, Session};
use crate::backend::recorder::{RecordedSession, Recorder};
use crate::backend::runtime::{Runtime, output_of_bytes};
use crate::definition::{CaseFailure, Dtype, ElementType, Model, Part, Status, TensorSpec};
use crate::fixture::{HostTensor, TensorData};
use crate::onnx::proto::{AttributeProto, NodeProto};
use crate::onnx::{MASKS, Source};
use crate::run_data::OperatorCall;

pub struct TractBackend;

impl Backend for TractBackend {
    fn devices(&self) -> Vec<DeviceReport> {
        vec![DeviceReport::certain("cpu", Ok("pure Rust".into()))]
    }

    fn needs_one_shape(&self, _device: &str) -> bool {
        true
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        if model.blocks().is_some() {
            let why =
                "tract's products with weights in blocks are wrong for some shapes, as in llama-small at batch size 2";
            return Err(CaseFailure::unsupported(why));
        }
        check_artifact(model, dtype, &[Dtype::F32, Dtype::I8], Format::Onnx)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        open(request, None)
    }

    fn load_profiled(&self, request: &LoadRequest<'_>) -> Result<Box<dyn ProfiledSession>, CaseFailure> {
        let tape = Recorder::default();
        Ok(Box::new(RecordedSession { session: open(request, Some(tape.clone()))?, tape }))
    }
}

fn open(request: &LoadRequest<'_>, recorder: Option<Recorder>) -> Result<Box<dyn Session>, CaseFailure> {
    let executor = own_executor(request.threads, request.instances);
    if executor.is_none() {
        set_threads(request.threads);
    }
    let parts = parts_of(request, Format::Onnx)?;
    let graphs = parts.iter().map(|(part, file)| TractGraph::load(part, file)).collect::<Result<_, _>>()?;
    let placement = Placement {
        effective_device: "cpu".into(),
        // tract does not report how it computes quantised operators.
        effective_dtype: request.computed_f32(),
        providers: "tract".into(),
        threads: Some(request.threads),
        serves_other_sizes: true,
        ..Placement::default()
    };
    open_session(request, TractRuntime { recorder, executor }, &parts, graphs, placement)
}

/// A thread pool for a session that serves beside others: the process's pool has only the threads of one session.
fn own_executor(threads: usize, instances: usize) -> Option<Executor> {
    (threads > 1 && instances > 1).then(|| Executor::multithread(threads))
}

/// Sets up tract's thread pool, once per process.
fn set_threads(threads: usize) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if threads > 1 {
            set_default_executor(Executor::multithread(threads));
        }
    });
}

struct TractRuntime {
    /// Notes the operators, if the session is profiled.
    recorder: Option<Recorder>,
    /// The threads of the session, if they are not those of the process.
    executor: Option<Executor>,
}

struct TractGraph {
    model: InferenceModel,
    /// For each input of the graph, its place in the part's definition.
    places: Vec<usize>,
    /// For each input of the definition, the axis that grows with the cache, and how many positions it is longer than
    /// the cache: 0 for a cache, 1 for a mask of all positions.
    growing: Vec<Option<(usize, i64)>>,
    /// Compiled graphs by the shapes of their inputs.
    compiled: HashMap<Vec<Shape>, TypedSimpleState>,
    /// How long all compilations took.
    compilation: Duration,
}

/// The shape of a compiled graph's input. `None` is a length that grows with the cache; with an empty cache, all are
/// known.
type Shape = TVec<Option<usize>>;

/// Whether tract would compute a recurrence wrongly: it ignores a reverse direction, activations other than the
/// defaults, `clip` and `input_forget`.
fn is_misread(node: &NodeProto) -> bool {
    let usual: &[&[u8]] = match node.op_type.as_str() {
        "LSTM" => &[b"Sigmoid", b"Tanh", b"Tanh"],
        "GRU" => &[b"Sigmoid", b"Tanh"],
        "RNN" => &[b"Tanh"],
        _ => return false,
    };
    let attribute = |name: &str| node.attributes.iter().find(|own| own.name == name);
    let is_other =
        |own: &AttributeProto| own.strings.iter().zip(usual.iter().cycle()).any(|(own, usual)| own[..] != **usual);
    attribute("direction").is_some_and(|own| own.s.as_deref() == Some(b"reverse"))
        || attribute("clip").is_some()
        || node.int("input_forget").unwrap_or(0) != 0
        || attribute("activations").is_some_and(is_other)
}

impl TractGraph {
    fn load(part: &Part, path: &Path) -> Result<Self, CaseFailure> {
        let narrow = part.inputs.iter().chain(&part.outputs).find(|it| it.dtype == ElementType::Bf16);
        if let Some(TensorSpec { name, .. }) = narrow {
            return Err(CaseFailure::unsupported(format!("{name:?} has the element type bf16, which tract lacks")));
        }
        if let Some(NodeProto { op_type, name, .. }) =
            Source::read(path)?.graph.nodes.iter().find(|node| is_misread(node))
        {
            return Err(CaseFailure::unsupported(format!(
                "tract computes this form of {op_type} wrongly (node {name:?})"
            )));
        }
        // The file's shapes of intermediate values may not hold for the sizes of the case.
        let reader = tract_onnx::onnx().with_ignore_value_info(true);
        let mut model = reader.model_for_path(path).map_err(refused)?;
        let own = model.input_outlets()?.iter().map(|outlet| model.node(outlet.node).name.clone());
        let defined: Vec<&str> = part.inputs.iter().map(|input| input.name.as_str()).collect();
        let places = places(own, &defined, path.display())?;
        let has_cache = part.inputs.iter().any(|input| growing_dimension(input).is_some());
        let growing = |input: &TensorSpec| match growing_dimension(input) {
            Some(axis) => Some((axis, 0)),
            None => (has_cache && MASKS.contains(&input.name.as_str())).then_some((1, 1)),
        };
        let growing = part.inputs.iter().map(growing).collect();
        if !part.outputs.is_empty() {
            model.select_outputs_by_name(part.outputs.iter().map(|output| &output.name))?;
        }
        Ok(TractGraph { model, places, growing, compiled: HashMap::new(), compilation: Duration::ZERO })
    }

    fn shapes(&self, inputs: &[&TValue]) -> Vec<Shape> {
        let is_empty = |(input, growing): (&&TValue, &Option<(usize, i64)>)| {
            growing.is_some_and(|(axis, more)| more == 0 && input.shape().get(axis) == Some(&0))
        };
        let is_first = inputs.iter().zip(&self.growing).any(is_empty);
        let shape = |(input, growing): (&&TValue, &Option<(usize, i64)>)| {
            let grows = |axis| !is_first && growing.is_some_and(|(growing, _)| growing == axis);
            let size = |(axis, &size): (usize, &usize)| (!grows(axis)).then_some(size);
            input.shape().iter().enumerate().map(size).collect()
        };
        inputs.iter().zip(&self.growing).map(shape).collect()
    }

    /// The graph for inputs of these shapes, compiled at the first request.
    fn compiled(&mut self, inputs: &[&TValue]) -> Result<&mut TypedSimpleState, CaseFailure> {
        let shapes = self.shapes(inputs);
        let new = match self.compiled.entry(shapes) {
            Entry::Occupied(known) => return Ok(known.into_mut()),
            Entry::Vacant(new) => new,
        };
        let start = Instant::now();
        let mut model = self.model.clone();
        let past = TDim::from(model.symbols.sym(PAST));
        for (index, &place) in self.places.iter().enumerate() {
            let more = self.growing[place].map_or(0, |(_, more)| more);
            let dimension = |size: &Option<usize>| size.map_or_else(|| past.clone() + more, |size| size.to_dim());
            let shape: TVec<TDim> = new.key()[place].iter().map(dimension).collect();
            model.set_input_fact(index, InferenceFact::dt_shape(inputs[place].datum_type(), shape))?;
        }
        let optimized = model.into_typed().and_then(|mut model| {
            forget_states(&mut model);
            model.into_optimized()
        });
        let runnable = optimized.and_then(|model| model.into_runnable()).map_err(refused)?;
        let compiled = runnable.spawn()?;
        self.compilation += start.elapsed();
        Ok(new.insert(compiled))
    }
}

/// Makes each call begin with the initial states of the graph's loops. tract would continue from the last call's
/// states.
fn forget_states(model: &mut TypedModel) {
    for node in &mut model.nodes {
        if let Some(scan) = node.op_as_mut::<Scan>() {
            scan.reset_every_turn = true;
            forget_states(&mut scan.body);
        }
        if let Some(recurrence) = node.op_as_mut::<GruSeq>() {
            recurrence.reset_every_turn = true;
        }
    }
}

/// tract's error about a graph that it cannot read or compile, reworded to name the operator.
fn refused(error: TractError) -> CaseFailure {
    let text = format!("{error:#}");
    let find = |pattern: &str| Regex::new(pattern).ok()?.captures(&text);
    // A pass of the optimiser failed. The rest of the text is the whole model.
    if let Some(found) = find(r#"^running pass (\w+).*? of #\d+ "([^"]*)" (\w+)"#) {
        let (pass, node, operator) = (&found[1], &found[2], &found[3]);
        return CaseFailure::unsupported(format!("tract's pass {pass} fails at {operator} (node {node:?})"));
    }
    let found = find(
        r#"^(?:Translating|Failed analyse for) node #\d+ "([^"]*)" (?:Inference)?(\w+)(?:\((\w+)\))?[^:]*: (?s)(.*)$"#,
    );
    let Some(found) = found.or_else(|| find(r"^Building node (\S*) \((\w+)\)(): (?s)(.*)$")) else {
        return CaseFailure::from(error);
    };
    let (node, what) = (&found[1], &found[4]);
    if &found[2] == "Unimplemented" {
        return CaseFailure::unsupported(format!("tract has no {} (node {node:?})", &found[3]));
    }
    // Sizes that contradict each other are not a limit of the library.
    let status = if what.contains("Impossible to unify Val(") { Status::Failed } else { Status::Unsupported };
    CaseFailure::new(status, format!("tract does not compute {} of this form (node {node:?}): {what}", &found[2]))
}

impl Runtime for TractRuntime {
    type Graph = TractGraph;
    type Value = TValue;

    fn upload(&self, tensor: &HostTensor) -> Result<TValue, CaseFailure> {
        let shape = tensor.shape.as_slice();
        let uploaded = match &tensor.data {
            TensorData::F32(values) => Tensor::from_shape(shape, values),
            TensorData::F16(values) => Tensor::from_shape(shape, values),
            TensorData::F64(values) => Tensor::from_shape(shape, values),
            TensorData::I8(values) => Tensor::from_shape(shape, values),
            TensorData::I16(values) => Tensor::from_shape(shape, values),
            TensorData::I32(values) => Tensor::from_shape(shape, values),
            TensorData::I64(values) => Tensor::from_shape(shape, values),
            TensorData::U8(values) => Tensor::from_shape(shape, values),
            TensorData::U16(values) => Tensor::from_shape(shape, values),
            TensorData::U32(values) => Tensor::from_shape(shape, values),
            TensorData::U64(values) => Tensor::from_shape(shape, values),
            TensorData::Bool(values) => Tensor::from_shape(shape, values),
            TensorData::Bf16(_) => {
                return Err(CaseFailure::unsupported("an input has the element type bf16, which tract lacks"));
            }
        };
        Ok(uploaded.map(TValue::from)?)
    }

    fn download(&self, value: &TValue) -> Result<HostTensor, CaseFailure> {
        let kind = format!("{:?}", value.datum_type()).to_lowercase();
        output_of_bytes(&kind, value.shape().to_vec(), value.try_as_plain_ram()?.as_bytes())
    }

    fn run(&self, graph: &mut TractGraph, inputs: &[&TValue]) -> Result<Vec<TValue>, CaseFailure> {
        let given: TVec<TValue> = graph.places.iter().map(|&place| inputs[place].clone()).collect();
        let compiled = graph.compiled(inputs)?;
        // tract computes on the CPU before it returns.
        let Some(recorder) = &self.recorder else {
            let outputs = match &self.executor {
                Some(own) => multithread_tract_scope(own.clone(), || compiled.run(given))?,
                None => compiled.run(given)?,
            };
            return Ok(outputs.into_vec());
        };
        let outputs = compiled.run_plan_with_eval(given, |turn, state, node, inputs| {
            // An input of the graph is a node too.
            if node.inputs.is_empty() {
                return eval(turn, state, node, inputs);
            }
            recorder.time(|| operator_of(node), || eval(turn, state, node, inputs))
        })?;
        Ok(outputs.into_vec())
    }

    fn compilation(&self, graph: &TractGraph) -> Option<Duration> {
        Some(graph.compilation)
    }

    fn greedy(&self, logits: &TValue) -> Result<TValue, CaseFailure> {
        let logits = logits.cast_to::<f32>()?;
        let view = logits.try_as_plain_ram()?;
        self.upload(&largest_of_rows(view.as_slice::<f32>()?, logits.shape()))
    }
}

/// Describes a node of a compiled graph. The optimiser names it after the file's node that it came from, with a suffix.
fn operator_of(node: &TypedNode) -> OperatorCall {
    let product = node.op_as::<OptMatMul>().and_then(|product| product.mmm.first());
    OperatorCall {
        node: node.name.clone(),
        operator: node.op().name().into_owned(),
        kernel: product.map(|kernel| kernel.name().to_owned()),
        ..OperatorCall::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_serve_together_have_their_own_threads() {
        let pools: Vec<_> = (0..2).map(|_| own_executor(3, 2)).collect();
        let [Some(Executor::MultiThread(one)), Some(Executor::MultiThread(other))] = pools.as_slice() else {
            panic!("{pools:?}")
        };
        assert!(!std::sync::Arc::ptr_eq(one, other));
        assert_eq!(one.current_num_threads(), 3);
        assert!(own_executor(3, 1).is_none() && own_executor(1, 2).is_none());
    }

    #[test]
    fn what_tract_refuses_is_said_with_its_operator() {
        let said = |text: &'static str| {
            let CaseFailure { status, message } = refused(TractError::msg(text));
            (status, message)
        };
        for (text, message) in [
            (
                "Translating node #1 \"Y\" Unimplemented(TreeEnsemble) ToTypedTranslator: Operator can not be made a TypedOp.",
                "tract has no TreeEnsemble (node \"Y\")",
            ),
            (
                "Failed analyse for node #11 \"r\" Unimplemented(Loop): Wrong number of outputs.",
                "tract has no Loop (node \"r\")",
            ),
            (
                "Translating node #2 \"\" Reduce13 ToTypedTranslator: expected axes as a constant",
                "tract does not compute Reduce13 of this form (node \"\"): expected axes as a constant",
            ),
            (
                "Building node Squeeze_41 (Squeeze): Node Squeeze_41 (Squeeze): expected attribute 'axes'",
                "tract does not compute Squeeze of this form (node \"Squeeze_41\"): Node Squeeze_41 (Squeeze): expected attribute 'axes'",
            ),
        ] {
            assert_eq!(said(text), (Status::Unsupported, message.to_owned()));
        }
        let pass = "running pass FoldUniformMask(43): Trying to substitute a 2,1,F32 by 1,1,F32 as output #0 of #42 \"/Where\" Iff.\nModelPatch { context";
        let message = "tract's pass FoldUniformMask fails at Iff (node \"/Where\")";
        assert_eq!(said(pass), (Status::Unsupported, message.to_owned()));
        let sizes = "Failed analyse for node #3 \"sum\" Add: Infering facts: Impossible to unify Val(3) with Val(4).";
        assert_eq!(said(sizes).0, Status::Failed);
    }
}
