//! One graph: compiled for the shapes of its inputs, and run by requests that keep their outputs.
//!
//! A graph with fixed shapes is up to a quarter faster, so a graph is compiled when it first runs on inputs of new
//! shapes. A graph with a cache that grows is compiled once, with the open dimensions of its file: decoding would
//! otherwise compile a graph per step.
//!
//! Outputs stay in the request that computed them. While they are held, another request runs. So nothing is copied when
//! the keys and values of one step are the inputs of the next.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use openvino::{
    CompiledModel, Core, DeviceType, ElementType, InferRequest, InferenceError, Model, Node, PartialShape, PropertyKey,
    RwPropertyKey, Tensor,
};

use super::library::{case_device, core, own_name};
use super::lost_bias::loses_bias;
use super::profile::Profiled;
use super::tensor::{shape, to_host, to_tensor};
use crate::backend::graphs::{growing_dimension, largest_of_rows, places};
use crate::backend::interface::{LoadRequest, Placement};
use crate::backend::runtime::Runtime;
use crate::backend::shared::Shared;
use crate::definition::{CaseFailure, Dtype, Part, TensorSpec};
use crate::fixture::HostTensor;
use crate::onnx::Source;

/// The property for the number of activations that OpenVINO rounds to i8 together; 0 if it does not round them.
const GROUP_SIZE: &str = "DYNAMIC_QUANTIZATION_GROUP_SIZE";

/// How a session's graphs are compiled.
pub(super) struct OpenVinoRuntime {
    /// OpenVINO's name of the device.
    device: String,
    dtype: Dtype,
    /// The threads of all calls together.
    threads: usize,
    /// Calls that compute at the same time.
    streams: usize,
    instances: usize,
    /// Whether the graph's weights are stored in blocks.
    is_of_blocks: bool,
    /// Whether a compiled graph serves several sessions, each by requests of its own.
    is_shared: bool,
    /// The list of graphs that are compiled with OpenVINO's profiler.
    profiled: Option<Profiled>,
}

impl OpenVinoRuntime {
    /// Tells the device how to compile graphs.
    pub(super) fn new(
        core: &mut Core,
        request: &LoadRequest<'_>,
        profiled: Option<Profiled>,
    ) -> Result<Self, CaseFailure> {
        let (device, dtype) = (own_name(request.device), request.dtype);
        let threads = request.threads * request.instances;
        // Instances have threads of their own; callers share those of their session.
        let streams = (request.instances * request.callers).min(threads);
        let instances = request.instances;
        // The profiler takes time, so graphs that are compiled with it are not shared.
        let is_shared = profiled.is_none() && request.instances * request.callers > 1;
        let is_of_blocks = request.model.blocks().is_some();
        let runtime = OpenVinoRuntime { device, dtype, threads, streams, instances, is_of_blocks, is_shared, profiled };
        runtime.configure(core)?;
        let device = DeviceType::from(runtime.device.as_str());
        runtime.check(&runtime.device, |key| core.get_property(&device, key))?;
        Ok(runtime)
    }

    /// The precision of all numbers that are not quantised.
    fn precision(&self) -> &'static str {
        if self.dtype == Dtype::I8 { Dtype::F32.name() } else { self.dtype.name() }
    }

    /// The placement that every compiled graph has to report; `device` is the case's name.
    pub(super) fn placement(&self, device: &str) -> Placement {
        Placement {
            effective_device: device.into(),
            effective_dtype: Some(self.dtype).filter(|dtype| *dtype != Dtype::I8),
            providers: self.device.clone(),
            threads: (self.device == "CPU").then_some(self.threads / self.streams),
            executor: (self.device != "CPU").then(|| format!("{} inputs and outputs copied in each call", self.device)),
            ..Placement::default()
        }
    }

    /// Checks that the devices, the precision and the threads are those of the request.
    fn check(
        &self,
        devices: &str,
        property: impl Fn(&PropertyKey) -> Result<String, InferenceError>,
    ) -> Result<(), CaseFailure> {
        let asked = |wanted: &str, found: String| CaseFailure::unsupported(format!("asked for {wanted}, and {found}"));
        if case_device(devices) != case_device(&self.device) {
            return Err(asked(&self.device, format!("it runs on {devices}")));
        }
        let precision = property(&RwPropertyKey::HintInferencePrecision.into())?;
        if !precision.eq_ignore_ascii_case(self.precision()) {
            return Err(asked(self.precision(), format!("it computes in {precision}")));
        }
        // Devices other than the CPU have no such property.
        let threads = property(&RwPropertyKey::InferenceNumThreads.into()).ok().and_then(|count| count.parse().ok());
        if let Some(threads) = threads.filter(|&threads: &usize| threads != self.threads) {
            let flags = match threads / self.instances {
                0 => format!("--instances {threads} --threads 1"),
                of_each => format!("--threads {of_each}"),
            };
            let found = format!("OpenVINO takes {threads} here; `{flags}` asks for these");
            return Err(asked(&format!("{} threads", self.threads), found));
        }
        Ok(())
    }

    fn configure(&self, core: &mut Core) -> Result<(), CaseFailure> {
        let (threads, streams) = (self.threads.to_string(), self.streams.to_string());
        let mut properties = vec![
            (RwPropertyKey::HintPerformanceMode, "LATENCY"),
            (RwPropertyKey::HintInferencePrecision, self.precision()),
            (RwPropertyKey::NumStreams, streams.as_str()),
            // Always set, because one core compiles the graphs of all sessions.
            (RwPropertyKey::EnableProfiling, if self.profiled.is_some() { "YES" } else { "NO" }),
        ];
        if self.device == "CPU" {
            properties.push((RwPropertyKey::InferenceNumThreads, threads.as_str()));
            // Otherwise OpenVINO uses at most as many threads as there are physical cores.
            properties.push((RwPropertyKey::HintEnableHyperThreading, "YES"));
        }
        let device = DeviceType::from(self.device.as_str());
        // Releases without this property do not round activations.
        let may_round = || core.get_property(&device, &PropertyKey::Other(GROUP_SIZE.into())).is_ok();
        if self.is_of_blocks || self.device == "CPU" && may_round() {
            // The default is 32, which takes effect for compressed weights on processors that are faster with it. A
            // case of i8 has to restore it, because one core compiles the graphs of all cases.
            let keeps_default = self.dtype == Dtype::I8 && !self.is_of_blocks;
            properties.push((RwPropertyKey::Other(GROUP_SIZE.into()), if keeps_default { "32" } else { "0" }));
        }
        for (key, value) in properties {
            core.set_property(&device, &key, value).map_err(|error| {
                let why = CaseFailure::from(error).message;
                CaseFailure::unsupported(format!("OpenVINO refuses {}={value} on {}: {why}", key.as_ref(), self.device))
            })?;
        }
        Ok(())
    }

    /// The index of the graph for inputs of these shapes, compiled at the first request.
    fn compiled(&self, graph: &mut Graph, shapes: Vec<Rc<[usize]>>) -> Result<usize, CaseFailure> {
        if let Some(place) = graph.compiled.iter().position(|compiled| compiled.shapes == shapes) {
            return Ok(place);
        }
        let start = Instant::now();
        let compiled = self.compile(graph, shapes).map_err(|CaseFailure { status, message }| {
            CaseFailure::new(status, format!("{}: {message}", graph.file.display()))
        })?;
        if let Some(profiled) = &self.profiled {
            profiled.add(&compiled.requests);
        }
        graph.compiled.push(compiled);
        graph.compilation += start.elapsed();
        Ok(graph.compiled.len() - 1)
    }

    fn compile(&self, graph: &mut Graph, shapes: Vec<Rc<[usize]>>) -> Result<Compiled, CaseFailure> {
        let mut core = core()?;
        self.configure(&mut core)?;
        if !shapes.is_empty() {
            let fixed = shapes.iter().map(|shape| {
                let dimensions: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
                PartialShape::new_static(dimensions.len() as i64, &dimensions)
            });
            let fixed = fixed.collect::<Result<Vec<_>, _>>()?;
            let named = graph.part.inputs.iter().map(|input| input.name.as_str()).zip(&fixed);
            graph.model.reshape(&named.collect::<Vec<_>>())?;
        }
        let mut compile = || {
            let compiled = core.compile_model(&graph.model, DeviceType::from(self.device.as_str()))?;
            let property = |key: &PropertyKey| compiled.get_property(key).map(|value| value.trim().to_owned());
            let devices = property(&PropertyKey::Other("EXECUTION_DEVICES".into()))?;
            self.check(&devices, property)?;
            Ok(Mutex::new(compiled))
        };
        let compiled = if self.is_shared {
            static COMPILED: Shared<Mutex<CompiledModel>> = Shared::new();
            let OpenVinoRuntime { device, dtype, threads, streams, .. } = self;
            let key = format!("{} {shapes:?} {device} {dtype} {threads} {streams}", graph.file.display());
            COMPILED.get(key, compile)?
        } else {
            Arc::new(compile()?)
        };
        Compiled::new(compiled, &graph.part, shapes)
    }
}

pub(super) struct Graph {
    file: PathBuf,
    model: Model,
    part: Part,
    /// True if the graph is compiled for open sizes: an input is a cache that grows by a position per step, or OpenVINO
    /// would lose a bias.
    has_open_sizes: bool,
    compiled: Vec<Compiled>,
    /// How long all compilations took.
    compilation: Duration,
}

impl Graph {
    pub(super) fn read(core: &mut Core, part: &Part, path: &Path) -> Result<Self, CaseFailure> {
        let file = path.to_str().ok_or_else(|| CaseFailure::failed(format!("{} is not UTF-8", path.display())))?;
        let model = core.read_model_from_file(file, "").map_err(|error| {
            let CaseFailure { status, message } = error.into();
            CaseFailure::new(status, format!("{file}: {message}"))
        })?;
        let grows = part.inputs.iter().any(|input| growing_dimension(input).is_some());
        Ok(Graph {
            file: path.to_owned(),
            model,
            part: part.clone(),
            has_open_sizes: grows || loses_bias(&Source::read(path)?.graph),
            compiled: Vec::new(),
            compilation: Duration::ZERO,
        })
    }
}

/// The requests of a compiled graph that have run so far.
#[derive(Default)]
pub(super) struct Requests {
    /// A request runs again when nobody else holds it.
    pub all: Vec<Rc<InferRequest>>,
    /// The number of runs of all of them.
    pub runs: u64,
}

/// A compiled graph for inputs of these shapes; without shapes, for all that the file allows.
struct Compiled {
    shapes: Vec<Rc<[usize]>>,
    model: Arc<Mutex<CompiledModel>>,
    requests: Rc<RefCell<Requests>>,
    /// For each input of the compiled graph, its place in the part's definition.
    inputs: Vec<usize>,
    /// For each output of the part's definition, its place in the compiled graph.
    outputs: Vec<usize>,
}

impl Compiled {
    /// Finds the named inputs and outputs. A tensor may have several names, and OpenVINO always returns the same one of
    /// them. Without names the outputs are all outputs of the graph.
    fn new(shared: Arc<Mutex<CompiledModel>>, part: &Part, shapes: Vec<Rc<[usize]>>) -> Result<Self, CaseFailure> {
        let model = lock(&shared);
        let known = |tensor: &TensorSpec, node: Result<Node, InferenceError>| {
            node.and_then(|node| node.get_name()).unwrap_or_else(|_| tensor.name.clone())
        };
        let defined = part.inputs.iter().map(|input| known(input, model.get_input_by_name(&input.name)));
        let defined: Vec<String> = defined.collect();
        let own_input = |index| model.get_input_by_index(index).and_then(|node| node.get_name());
        let own = (0..model.get_input_size()?).map(own_input).collect::<Result<Vec<String>, _>>()?;
        let inputs = places(&own, &defined, "the inputs of the definition")?;

        let own_output = |index| model.get_output_by_index(index).and_then(|node| node.get_name());
        let own = (0..model.get_output_size()?).map(own_output).collect::<Result<Vec<String>, _>>()?;
        let outputs = match part.outputs.as_slice() {
            [] => (0..own.len()).collect(),
            outputs => {
                let wanted = outputs.iter().map(|output| known(output, model.get_output_by_name(&output.name)));
                places(wanted, &own, "the outputs of the graph")?
            }
        };
        drop(model);
        Ok(Compiled { shapes, model: shared, requests: Rc::default(), inputs, outputs })
    }

    fn run(&mut self, inputs: &[&Value]) -> Result<Vec<Value>, CaseFailure> {
        let Requests { all, runs } = &mut *self.requests.borrow_mut();
        let free = all.iter().position(|request| Rc::strong_count(request) == 1);
        let place = free.unwrap_or(all.len());
        if free.is_none() {
            all.push(Rc::new(lock(&self.model).create_infer_request()?));
        }
        let held = || CaseFailure::failed("a request whose outputs are still held");
        let request = Rc::get_mut(&mut all[place]).ok_or_else(held)?;
        for (index, &input) in self.inputs.iter().enumerate() {
            inputs[input].with(|tensor| Ok(request.set_input_tensor_by_index(index, tensor)?))?;
        }
        request.infer()?;
        *runs += 1;
        let request = &all[place];
        Ok(self.outputs.iter().map(|&output| Value::Output(Rc::clone(request), output)).collect())
    }
}

fn lock(model: &Mutex<CompiledModel>) -> MutexGuard<'_, CompiledModel> {
    model.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
pub(super) enum Value {
    Own(Rc<Tensor>, Rc<[usize]>),
    /// An output of a request, by its index.
    Output(Rc<InferRequest>, usize),
}

impl Value {
    /// Calls `read` with the tensor.
    fn with<T>(&self, read: impl FnOnce(&Tensor) -> Result<T, CaseFailure>) -> Result<T, CaseFailure> {
        match self {
            Value::Own(tensor, _) => read(tensor),
            Value::Output(request, place) => read(&request.get_output_tensor_by_index(*place)?),
        }
    }

    fn shape(&self) -> Result<Rc<[usize]>, CaseFailure> {
        match self {
            Value::Own(_, shape) => Ok(Rc::clone(shape)),
            Value::Output(..) => self.with(|tensor| shape(tensor).map(Rc::from)),
        }
    }
}

impl Runtime for OpenVinoRuntime {
    type Graph = Graph;
    type Value = Value;

    fn upload(&self, tensor: &HostTensor) -> Result<Value, CaseFailure> {
        Ok(Value::Own(Rc::new(to_tensor(tensor)?), tensor.shape.as_slice().into()))
    }

    fn download(&self, value: &Value) -> Result<HostTensor, CaseFailure> {
        value.with(to_host)
    }

    fn run(&self, graph: &mut Graph, inputs: &[&Value]) -> Result<Vec<Value>, CaseFailure> {
        self.timed("hand over tensors", || self.infer(graph, inputs))
    }

    fn compilation(&self, graph: &Graph) -> Option<Duration> {
        Some(graph.compilation)
    }

    fn greedy(&self, logits: &Value) -> Result<Value, CaseFailure> {
        self.timed("choose the next token", || self.largest(logits))
    }
}

impl OpenVinoRuntime {
    /// Runs work of this program within a call, and notes it if the session is profiled.
    fn timed<O>(&self, operator: &'static str, run: impl FnOnce() -> O) -> O {
        match &self.profiled {
            Some(profiled) => profiled.time(operator, run),
            None => run(),
        }
    }

    fn infer(&self, graph: &mut Graph, inputs: &[&Value]) -> Result<Vec<Value>, CaseFailure> {
        let shapes =
            if graph.has_open_sizes { Ok(Vec::new()) } else { inputs.iter().map(|input| input.shape()).collect() };
        let place = self.compiled(graph, shapes?)?;
        let compiled = &mut graph.compiled[place];
        if let Some(profiled) = &self.profiled {
            profiled.runs(&compiled.requests);
        }
        compiled.run(inputs)
    }

    fn largest(&self, logits: &Value) -> Result<Value, CaseFailure> {
        let tokens = logits.with(|tensor| {
            let shape = shape(tensor)?;
            match tensor.get_element_type()? {
                ElementType::F32 => Ok(largest_of_rows(tensor.get_data::<f32>()?, &shape)),
                ElementType::F16 => Ok(largest_of_rows(tensor.get_data::<half::f16>()?, &shape)),
                ElementType::Bf16 => Ok(largest_of_rows(tensor.get_data::<half::bf16>()?, &shape)),
                other => Err(CaseFailure::unsupported(format!("logits of the element type {other}"))),
            }
        })?;
        self.upload(&tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Model as Definition, Phase, Sizes};
    use crate::fixture::Artifacts;

    /// Runs a test with a request for the CPU, if OpenVINO is here.
    fn with_request(test: impl FnOnce(&mut Core, LoadRequest<'_>)) {
        let mut core = match core() {
            Ok(core) => core,
            Err(why) => {
                eprintln!("left out: {why}");
                return;
            }
        };
        let request = LoadRequest {
            model: &Definition::of_tensors("m", Vec::new(), Vec::new()),
            artifacts: &Artifacts::default(),
            phase: Phase::Forward,
            sizes: Sizes { batch: 1, sequence: None },
            device: "cpu",
            dtype: Dtype::F32,
            threads: 1,
            instances: 1,
            callers: 2,
        };
        test(&mut core, request);
    }

    #[test]
    fn a_graph_that_is_compiled_with_the_profiler_is_shared_with_no_other_session() {
        with_request(|core, request| {
            let mut is_shared = |profiled| OpenVinoRuntime::new(core, &request, profiled).unwrap().is_shared;
            assert_eq!([is_shared(None), is_shared(Some(Profiled::default()))], [true, false]);
        });
    }

    #[test]
    fn only_cases_of_i8_round_activations_whatever_ran_before() {
        with_request(|core, request| {
            let group_size = |dtype| {
                OpenVinoRuntime::new(core, &LoadRequest { dtype, ..request }, None).unwrap();
                core.get_property(&DeviceType::CPU, &PropertyKey::Other(GROUP_SIZE.into())).unwrap()
            };
            assert_eq!([Dtype::I8, Dtype::F32, Dtype::I8].map(group_size), ["32", "0", "32"]);
        });
    }
}
