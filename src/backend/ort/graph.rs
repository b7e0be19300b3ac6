//! A part of a model as a session of ONNX Runtime, and the conversion of its tensors and errors.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, Session as OrtRuntimeSession};
use ort::value::{
    DynTensor, DynTensorValueType, DynValue, PrimitiveTensorElementType, Tensor, TensorElementType, ValueType,
};

use super::provider::Located;
use super::runner::{Runner, Value};
use super::tape::{Logged, RunLog};
use crate::backend::failure::classify;
use crate::backend::graphs::{largest_of_rows, places};
use crate::backend::interface::LoadRequest;
use crate::backend::runtime::Runtime;
use crate::definition::{BATCH, CaseFailure, Dimension, Part, Phase, SEQUENCE};
use crate::fixture::{HostTensor, TensorData, with_values};
use crate::onnx::Source;

/// How graphs run.
pub struct OrtRuntime {
    /// The memory in which inputs and outputs stay, if it is not the host's.
    pub memory: Option<DeviceMemory>,
    /// Notes which graph runs when, if the session is profiled.
    pub log: Option<RunLog>,
}

/// Memory of a device, with the device's number.
pub struct DeviceMemory(pub AllocationDevice<'static>, pub i32);

/// A session, and the inputs that are bound to it.
pub struct OrtGraph {
    session: Runner,
    /// Inputs that ONNX Runtime has copied to the device's memory, with the binding that holds the copies.
    bound: Vec<(Vec<Rc<Value>>, IoBinding)>,
    /// For each input of the session, its place in the part's definition.
    inputs: Vec<usize>,
    /// For each output of the part's definition, its place in the session.
    outputs: Vec<usize>,
    /// The index of the part among those of the session.
    number: usize,
}

impl OrtGraph {
    /// Opens a session of the part with this number. A session that writes a profile may use the CPU too; the profile
    /// shows for which nodes.
    ///
    /// Each session has its own thread pool, whose threads spin for a while after a run. If another session runs next,
    /// they would compete with it, so they have to stop.
    pub fn load(
        number: usize,
        parts: &[(&Part, &Path)],
        request: &LoadRequest<'_>,
        provider: Located,
        profile: Option<&Path>,
    ) -> Result<Self, CaseFailure> {
        let (part, path) = parts[number];
        let builder = OrtRuntimeSession::builder(provider.environment()?)?;
        let mut builder = builder.with_intra_threads(request.threads)?.with_inter_threads(1)?;
        // In decoding, each step calls the last part, so the threads of this part may spin. If a step has several
        // parts, these threads compete with those of the other parts.
        let is_followed = number + 1 < parts.len() || (parts.len() > 1 && request.phase == Phase::Prefill);
        if is_followed {
            builder = builder.with_config_entry("session.force_spinning_stop", "1")?;
        }
        let shares = (request.threads, request.instances);
        let mut builder = provider.register(builder, request.device, shares, request.dtype)?;
        let is_accelerator = provider.device != "cpu";
        if let Some(folder) = profile {
            builder = builder.with_profiling(folder.join("profile"))?;
        } else if is_accelerator {
            builder = builder.with_disable_cpu_fallback()?;
        }
        if is_accelerator {
            for (symbol, size) in sizes(part, path, request)? {
                builder = builder.with_dimension_override(symbol, size)?;
            }
        }
        let mut open = || Ok(builder.commit_from_file(path)?);
        let runner = match (request.callers, profile) {
            // A profile is written when its session ends, so a profiled session is not shared.
            (1, _) | (_, Some(_)) => Runner::own(open()?)?,
            _ => Runner::shared(format!("{number} {} {}", request.threads, path.display()), open)?,
        };
        let session = runner.session();
        let defined: Vec<&str> = part.inputs.iter().map(|input| input.name.as_str()).collect();
        let inputs = places(session.inputs().iter().map(|input| input.name()), &defined, path.display())?;
        let named: Vec<&str> = session.outputs().iter().map(|output| output.name()).collect();
        let outputs = match part.outputs.as_slice() {
            [] => (0..named.len()).collect(),
            outputs => places(outputs.iter().map(|output| &output.name), &named, path.display())?,
        };
        Ok(OrtGraph { session: runner, bound: Vec::new(), inputs, outputs, number })
    }
}

/// The case's sizes for the open dimensions of the part's inputs, by the file's names for them. Accelerators compile
/// for these sizes, and values that depend only on sizes are computed in advance.
fn sizes(part: &Part, path: &Path, request: &LoadRequest<'_>) -> Result<BTreeMap<String, i64>, CaseFailure> {
    let is_whole = matches!(request.phase, Phase::Forward | Phase::Encoder);
    let mut sizes = BTreeMap::new();
    for own in Source::read(path)?.graph.inputs {
        let Some(input) = part.inputs.iter().find(|input| input.name == own.name) else { continue };
        for (dimension, open) in input.shape.iter().zip(own.dimensions()) {
            let size = match dimension {
                Dimension::Symbol(name) if name == BATCH => Some(request.sizes.batch),
                // A generative model's parts see the prompt, and then one token per step.
                Dimension::Symbol(name) if name == SEQUENCE && is_whole => request.sizes.sequence,
                Dimension::Fixed(size) if is_whole => Some(*size),
                _ => None,
            };
            let symbol = open.symbol.as_ref().filter(|symbol| !symbol.is_empty());
            sizes.extend(symbol.cloned().zip(size.and_then(|size| i64::try_from(size).ok())));
        }
    }
    Ok(sizes)
}

impl Runtime for OrtRuntime {
    type Graph = OrtGraph;
    type Value = Rc<Value>;

    fn upload(&self, tensor: &HostTensor) -> Result<Rc<Value>, CaseFailure> {
        Ok(Rc::new(to_value(tensor)?.into_dyn().into()))
    }

    fn download(&self, value: &Rc<Value>) -> Result<HostTensor, CaseFailure> {
        to_host(value.read())
    }

    fn run(&self, graph: &mut OrtGraph, inputs: &[&Rc<Value>]) -> Result<Vec<Rc<Value>>, CaseFailure> {
        let is_bound = |own: &[Rc<Value>]| own.iter().zip(inputs).all(|(own, given)| Rc::ptr_eq(own, given));
        if let Some(log) = &self.log {
            log.borrow_mut().push(Logged::Run(graph.number, Instant::now()));
        }
        let computed = match (&mut graph.session, graph.bound.iter().find(|(own, _)| is_bound(own))) {
            (Runner::Own(own), Some((_, binding))) => own.run_bound(binding)?,
            (runner, _) => runner.run(graph.inputs.iter().map(|&place| &**inputs[place]))?,
        };
        let is_in_order = graph.outputs.iter().copied().eq(0..computed.len());
        let in_order = || graph.outputs.iter().map(|&place| Rc::clone(&computed[place])).collect();
        Ok(if is_in_order { computed } else { in_order() })
    }

    /// Copies the inputs to the device, if it has memory of its own.
    fn prepare(&self, graph: &mut OrtGraph, inputs: &[&Rc<Value>]) -> Result<(), CaseFailure> {
        let Some(DeviceMemory(device, index)) = &self.memory else { return Ok(()) };
        // Inputs that only `bound` still holds cannot be passed again.
        graph.bound.retain(|(inputs, _)| inputs.iter().all(|input| Rc::strong_count(input) > 1));
        let memory = MemoryInfo::new(device.clone(), *index, AllocatorType::Device, MemoryType::Default)?;
        let session = graph.session.session();
        let mut binding = session.create_binding()?;
        for (input, &place) in session.inputs().iter().zip(&graph.inputs) {
            binding.bind_input(input.name(), inputs[place].read())?;
        }
        for output in session.outputs() {
            binding.bind_output_to_device(output.name(), &memory)?;
        }
        binding.synchronize_inputs()?;
        graph.bound.push((inputs.iter().map(|&input| Rc::clone(input)).collect(), binding));
        Ok(())
    }

    fn greedy(&self, logits: &Rc<Value>) -> Result<Rc<Value>, CaseFailure> {
        let logits = logits.read();
        let tokens = largest_of::<f32>(logits).or_else(|| largest_of::<half::f16>(logits));
        if let Some(tokens) = tokens.or_else(|| largest_of::<half::bf16>(logits)) {
            return self.upload(&tokens);
        }
        match to_host(logits)? {
            HostTensor { shape, data: TensorData::F32(values) } => self.upload(&largest_of_rows(&values, &shape)),
            other => Err(CaseFailure::unsupported(format!("logits of the element type {}", other.element_type()))),
        }
    }
}

/// The indices of the largest logits; `None` if the logits have another element type, or are not in host memory.
fn largest_of<T: PrimitiveTensorElementType + Copy + Into<f32>>(logits: &DynValue) -> Option<HostTensor> {
    let (shape, values) = logits.try_extract_tensor::<T>().ok()?;
    let shape: Vec<usize> = shape.iter().map(|&size| size.max(0) as usize).collect();
    Some(largest_of_rows(values, &shape))
}

impl<T> From<ort::Error<T>> for CaseFailure {
    fn from(error: ort::Error<T>) -> Self {
        classify(error)
    }
}

/// A tensor in host memory, of the same shape.
fn to_value(tensor: &HostTensor) -> ort::Result<DynTensor> {
    let shape = tensor.shape.clone();
    Ok(with_values!(&tensor.data, values => Tensor::from_array((shape, values.clone()))?.upcast()))
}

/// A copy on the host, of the same shape, from whatever memory the tensor is in.
fn to_host(value: &DynValue) -> Result<HostTensor, CaseFailure> {
    let ValueType::Tensor { ty, .. } = value.dtype() else {
        return Err(CaseFailure::unsupported(format!("an output is {} and not a tensor", value.dtype())));
    };
    let tensor = value.view().downcast::<DynTensorValueType>()?;
    if !tensor.memory_info().is_cpu_accessible() {
        return to_host(&tensor.to(AllocationDevice::CPU, 0)?.into_dyn());
    }
    fn widened<T: PrimitiveTensorElementType + Copy + Into<f32>>(value: &DynValue) -> ort::Result<TensorData> {
        let values: Vec<f32> = value.try_extract_tensor::<T>()?.1.iter().map(|&value| value.into()).collect();
        Ok(values.into())
    }
    let data = match ty {
        TensorElementType::Float32 => value.try_extract_tensor::<f32>()?.1.to_vec().into(),
        TensorElementType::Float16 => widened::<half::f16>(value)?,
        TensorElementType::Bfloat16 => widened::<half::bf16>(value)?,
        TensorElementType::Float64 => value.try_extract_tensor::<f64>()?.1.to_vec().into(),
        TensorElementType::Int8 => value.try_extract_tensor::<i8>()?.1.to_vec().into(),
        TensorElementType::Int16 => value.try_extract_tensor::<i16>()?.1.to_vec().into(),
        TensorElementType::Int32 => value.try_extract_tensor::<i32>()?.1.to_vec().into(),
        TensorElementType::Int64 => value.try_extract_tensor::<i64>()?.1.to_vec().into(),
        TensorElementType::Uint8 => value.try_extract_tensor::<u8>()?.1.to_vec().into(),
        TensorElementType::Uint16 => value.try_extract_tensor::<u16>()?.1.to_vec().into(),
        TensorElementType::Uint32 => value.try_extract_tensor::<u32>()?.1.to_vec().into(),
        TensorElementType::Uint64 => value.try_extract_tensor::<u64>()?.1.to_vec().into(),
        TensorElementType::Bool => value.try_extract_tensor::<bool>()?.1.to_vec().into(),
        other => return Err(CaseFailure::unsupported(format!("an output has the element type {other}"))),
    };
    Ok(HostTensor { shape: tensor.shape().iter().map(|&size| size.max(0) as usize).collect(), data })
}

#[cfg(test)]
mod tests {
    use super::super::provider::provider_of;
    use super::*;

    #[test]
    fn bound_inputs_compute_the_same_and_are_copied_once() {
        let provider = provider_of("cpu", None).unwrap();
        let environment = match provider.environment() {
            Ok(environment) => environment,
            Err(why) => {
                eprintln!("left out: {why}");
                return;
            }
        };
        let session =
            OrtRuntimeSession::builder(environment).unwrap().commit_from_memory(include_bytes!("probe.onnx")).unwrap();
        let mut graph = OrtGraph {
            session: Runner::own(session).unwrap(),
            bound: Vec::new(),
            inputs: vec![0],
            outputs: vec![0],
            number: 0,
        };
        let runtime = OrtRuntime { memory: Some(DeviceMemory(AllocationDevice::CPU, 0)), log: None };
        let upload = |first: f32| {
            let data = TensorData::F32(vec![first, -2.0, 3.0, -4.0]);
            runtime.upload(&HostTensor { shape: vec![1, 4], data }).unwrap()
        };
        let run = |graph: &mut OrtGraph, input: &Rc<Value>| {
            let output = runtime.run(graph, &[input]).unwrap().remove(0);
            runtime.download(&output).unwrap().data
        };
        let (one, other) = (upload(1.0), upload(5.0));
        assert_eq!(run(&mut graph, &one), TensorData::F32(vec![2.0, -2.0, 6.0, -4.0]), "inputs that are not bound");
        for input in [&one, &other] {
            runtime.prepare(&mut graph, &[input]).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(run(&mut graph, &one), TensorData::F32(vec![2.0, -2.0, 6.0, -4.0]));
            assert_eq!(run(&mut graph, &other), TensorData::F32(vec![10.0, -2.0, 6.0, -4.0]));
        }
        drop(other);
        runtime.prepare(&mut graph, &[&upload(7.0)]).unwrap();
        assert_eq!(graph.bound.len(), 2, "the binding of inputs that are gone is gone");
    }
}
