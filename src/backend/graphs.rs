//! Sessions of the backends that run a model's parts as graphs.
//!
//! A backend implements [`Runtime`] for its own graphs and tensors; [`open_session`] makes the session of a phase from
//! it.

use std::collections::HashMap;
use std::fmt::Display;
use std::hint::black_box;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::generation::{GenerationSession, Generator, likeliest, rows_at_end};
use super::interface::{LoadRequest, Placement, Session, Stages};
use super::runtime::Runtime;
use crate::definition::{
    BATCH, CaseFailure, Dimension, ElementType, Generation, Model, Part, Phase, TensorSpec, value_name,
};
use crate::fixture::{HostTensor, TensorData};
use crate::onnx::{BIAS, BRANCH, KEPT, MASKS, PLACES, POSITIONS, made_inputs};

/// The session of the request's phase. `graphs` are those of `parts`, in the same order.
pub(super) fn open_session<R: Runtime + 'static>(
    request: &LoadRequest<'_>,
    runtime: R,
    parts: &[(&Part, &Path)],
    graphs: Vec<R::Graph>,
    placement: Placement,
) -> Result<Box<dyn Session>, CaseFailure> {
    let artifacts = parts.iter().map(|(_, file)| PathBuf::from(file)).collect();
    let placement = Placement { artifacts, ..placement };
    let input_names: Vec<&str> = request.model.inputs.iter().map(|input| input.name.as_str()).collect();
    let parts = parts.iter().map(|(part, _)| *part);
    match request.phase {
        Phase::Forward | Phase::Encoder => {
            let first = parts.zip(graphs).next();
            let (part, graph) = first.ok_or_else(|| CaseFailure::failed("a phase without a part"))?;
            let whose = format!("part {:?}", part.name);
            let inputs = places(part.inputs.iter().map(|input| &input.name), &input_names, &whose)?;
            let own: Vec<&str> = part.outputs.iter().map(|output| output.name.as_str()).collect();
            let outputs = places(request.model.output_names(request.phase), &own, &whose)?;
            Ok(Box::new(GraphSession { runtime, graph, inputs, outputs, bound: Vec::new(), placement }))
        }
        Phase::Prefill | Phase::Decode => {
            let generator = GraphGenerator::new(request.model, parts.zip(graphs))?;
            Ok(Box::new(GenerationSession::new(request, runtime, generator, placement)?))
        }
    }
}

/// The index of each of `names` in `known`. The error about a missing name begins with `whose`.
pub(super) fn places<N: AsRef<str>>(
    names: impl IntoIterator<Item = N>,
    known: &[impl AsRef<str>],
    whose: impl Display,
) -> Result<Vec<usize>, CaseFailure> {
    let place = |name: N| {
        let all = || known.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
        let missing = || CaseFailure::failed(format!("{whose}: no {:?} among {}", name.as_ref(), all()));
        known.iter().position(|known| known.as_ref() == name.as_ref()).ok_or_else(missing)
    };
    names.into_iter().map(place).collect()
}

/// The name of the dimension of a cache that grows by a position per step.
pub(super) const PAST: &str = "past";

/// The index of the dimension [`PAST`], if the input has one.
pub(super) fn growing_dimension(input: &TensorSpec) -> Option<usize> {
    input.shape.iter().position(|dimension| *dimension == Dimension::Symbol(PAST.into()))
}

/// A session that runs one graph on inputs that are given whole.
struct GraphSession<R: Runtime> {
    runtime: R,
    graph: R::Graph,
    /// For each input of the graph, its place among the model's.
    inputs: Vec<usize>,
    /// The places of the requested outputs; empty for all outputs.
    outputs: Vec<usize>,
    bound: Vec<Vec<R::Value>>,
    placement: Placement,
}

impl<R: Runtime> GraphSession<R> {
    fn upload(&mut self, inputs: &[HostTensor]) -> Result<Vec<R::Value>, CaseFailure> {
        let uploaded = self.inputs.iter().map(|&place| self.runtime.upload(&inputs[place]));
        let uploaded = uploaded.collect::<Result<Vec<_>, _>>()?;
        self.runtime.prepare(&mut self.graph, &uploaded.iter().collect::<Vec<_>>())?;
        Ok(uploaded)
    }

    fn forward(&mut self, binding: usize) -> Result<Vec<R::Value>, CaseFailure> {
        let inputs: Vec<&R::Value> = self.bound[binding].iter().collect();
        self.runtime.run(&mut self.graph, &inputs)
    }

    /// Copies the requested outputs to the host.
    fn download(&self, outputs: &[R::Value]) -> Result<Vec<HostTensor>, CaseFailure> {
        if self.outputs.is_empty() {
            return outputs.iter().map(|output| self.runtime.download(output)).collect();
        }
        let missing = |place| CaseFailure::failed(format!("the graph has no output {place}"));
        let output = |&place: &usize| outputs.get(place).ok_or_else(|| missing(place));
        self.outputs.iter().map(|place| self.runtime.download(output(place)?)).collect()
    }
}

impl<R: Runtime> Session for GraphSession<R> {
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, CaseFailure> {
        let bound = self.upload(inputs)?;
        self.bound.push(bound);
        Ok(self.bound.len() - 1)
    }

    fn reset(&mut self, _request: &LoadRequest<'_>) -> Result<(), CaseFailure> {
        self.bound.clear();
        Ok(())
    }

    fn rebind(&mut self, binding: usize, inputs: &[HostTensor]) -> Result<(), CaseFailure> {
        self.bound[binding].clear();
        self.bound[binding] = self.upload(inputs)?;
        Ok(())
    }

    fn run(&mut self, binding: usize) -> Result<(), CaseFailure> {
        self.forward(binding).map(|outputs| drop(black_box(outputs)))
    }

    fn sync(&mut self) -> Result<(), CaseFailure> {
        self.runtime.sync()
    }

    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, CaseFailure> {
        let outputs = self.forward(binding)?;
        self.download(&outputs)
    }

    fn call_from_host(
        &mut self,
        binding: usize,
        inputs: &[HostTensor],
    ) -> Result<(Vec<HostTensor>, Stages), CaseFailure> {
        let begin = Instant::now();
        self.rebind(binding, inputs)?;
        self.runtime.sync()?;
        let uploaded = Instant::now();
        let outputs = self.forward(binding)?;
        self.runtime.sync()?;
        let computed = Instant::now();
        let outputs = black_box(self.download(&outputs)?);
        let to_host = computed.elapsed();
        Ok((outputs, Stages { to_device: uploaded - begin, compute: computed - uploaded, to_host }))
    }

    fn compilation(&self) -> Option<Duration> {
        self.runtime.compilation(&self.graph)
    }

    fn placement(&self) -> Placement {
        self.placement.clone()
    }
}

/// Generates with the parts of a model as graphs, wired by the names of their inputs and outputs.
struct GraphGenerator<G> {
    /// By the names of the parts.
    graphs: HashMap<String, WiredGraph<G>>,
    tokens: Name,
    model: Model,
}

/// A part's graph, and the values that it reads and writes.
struct WiredGraph<G> {
    graph: G,
    inputs: Vec<Name>,
    /// Each with whether decoding steps change it: an encoder's cache keeps its value from the prefill.
    outputs: Vec<(Name, bool)>,
}

type Name = Rc<str>;
/// The values that parts hand to each other.
type Values<V> = HashMap<Name, V>;
/// The values that differ from step to step, with their shapes.
type OfAStep = Rc<[(Name, Vec<usize>)]>;

const LOGITS: &str = "logits";

impl<G> GraphGenerator<G> {
    fn new<'a>(model: &Model, parts: impl Iterator<Item = (&'a Part, G)>) -> Result<Self, CaseFailure> {
        let missing = || CaseFailure::failed(format!("{}: the definition has no [generation]", model.name));
        let generation = model.generation.as_ref().ok_or_else(missing)?;
        let wired = |(part, graph): (&Part, G)| {
            let inputs = part.inputs.iter().map(|input| generation.value_of(&part.name, &input.name).into()).collect();
            let outputs = values_given(generation, part).map(|(name, changes)| (name.into(), changes)).collect();
            (part.name.clone(), WiredGraph { graph, inputs, outputs })
        };
        let tokens = generation.tokens.as_str().into();
        Ok(GraphGenerator { graphs: parts.map(wired).collect(), tokens, model: model.clone() })
    }

    /// Whether a part has an input of that name.
    fn reads(&self, name: &str) -> bool {
        self.graphs.values().flat_map(|wired| &wired.inputs).any(|input| **input == *name)
    }

    fn run_phase<R: Runtime<Graph = G>>(
        &mut self,
        runtime: &R,
        phase: Phase,
        values: &mut Values<R::Value>,
    ) -> Result<R::Value, CaseFailure> {
        for name in self.model.phase(phase).map(|plan| plan.parts.as_slice()).unwrap_or_default() {
            let Some(WiredGraph { graph, inputs, outputs }) = self.graphs.get_mut(name) else { continue };
            let missing = |name: &Name| CaseFailure::failed(format!("nothing gives {name:?}"));
            let given = inputs.iter().map(|name| values.get(name).ok_or_else(|| missing(name)));
            let computed = runtime.run(graph, &given.collect::<Result<Vec<_>, _>>()?)?;
            let new = outputs.iter().zip(computed).filter(|((_, changes), _)| *changes || phase != Phase::Decode);
            values.extend(new.map(|((name, _), value)| (Name::clone(name), value)));
        }
        values.remove(LOGITS).ok_or_else(|| CaseFailure::failed("no part has an output \"logits\""))
    }
}

impl<R: Runtime> Generator<R> for GraphGenerator<R::Graph> {
    /// A batch on the device, the values that replace some of it after the prefill, and the values that each step makes
    /// anew.
    type Inputs = (Values<R::Value>, Values<R::Value>, OfAStep);
    /// All values after a call; the next call needs the keys and values among them.
    type Cache = (Values<R::Value>, OfAStep);

    fn upload(&self, runtime: &R, inputs: &[HostTensor]) -> Result<Self::Inputs, CaseFailure> {
        let upload = |(name, value): (&str, &HostTensor)| -> Result<(Name, R::Value), CaseFailure> {
            Ok((name.into(), runtime.upload(value)?))
        };
        let is_read = |(name, _): &(&str, &HostTensor)| self.reads(name);
        let [prefill, decode] = &made_values(&self.model, inputs)?;
        let given = self.model.inputs.iter().map(|input| input.name.as_str()).zip(inputs);
        let for_prefill = given.chain(named(prefill)).filter(is_read).map(upload).collect::<Result<_, _>>()?;
        let for_steps = named(decode).filter(is_read).map(upload).collect::<Result<_, _>>()?;
        let of_a_step = named(decode).filter(is_read).filter(|(name, _)| differs_in_steps(name));
        Ok((for_prefill, for_steps, of_a_step.map(|(name, value)| (name.into(), value.shape.clone())).collect()))
    }

    fn prefill(
        &mut self,
        runtime: &R,
        (values, for_steps, of_a_step): &Self::Inputs,
    ) -> Result<(R::Value, Self::Cache), CaseFailure> {
        let mut values = values.clone();
        let logits = self.run_phase(runtime, Phase::Prefill, &mut values)?;
        values.extend(for_steps.clone());
        Ok((logits, (values, Rc::clone(of_a_step))))
    }

    fn step(
        &mut self,
        runtime: &R,
        tokens: &R::Value,
        position: usize,
        (values, of_a_step): &mut Self::Cache,
    ) -> Result<R::Value, CaseFailure> {
        values.insert(self.tokens.clone(), tokens.clone());
        for (name, shape) in of_a_step.iter() {
            let is_mask = MASKS.contains(&&**name);
            let shape = if is_mask { vec![shape[0], position + 1] } else { shape.clone() };
            values.insert(name.clone(), runtime.upload(&made_value(name, shape, Phase::Decode, position))?);
        }
        self.run_phase(runtime, Phase::Decode, values)
    }

    fn compilation(&self, runtime: &R) -> Option<Duration> {
        self.graphs.values().map(|wired| runtime.compilation(&wired.graph)).sum()
    }
}

/// The name of the value of each of a part's outputs, in order, and whether decoding steps change that value.
pub(super) fn values_given(generation: &Generation, part: &Part) -> impl Iterator<Item = (String, bool)> {
    part.outputs.iter().map(move |output| {
        let name = value_name(&output.name);
        let taken = |input: &TensorSpec| generation.value_of(&part.name, &input.name);
        let keeps = part.inputs.iter().any(|input| is_constant(input) && taken(input) == name);
        (name, !keeps)
    })
}

/// The values, by name, that parts take besides the model's inputs: in the prefill of these inputs, and in the first
/// step after it.
pub(super) fn made_values(model: &Model, inputs: &[HostTensor]) -> Result<[Vec<(String, HostTensor)>; 2], CaseFailure> {
    let missing = || CaseFailure::failed("the tokens are no input of the model");
    let generation = model.generation.as_ref().ok_or_else(missing)?;
    let tokens = model.inputs.iter().position(|input| input.name == generation.tokens).ok_or_else(missing)?;
    let (batch, prompt) = (inputs[tokens].shape[0], generation.prefix_positions + inputs[tokens].shape[1]);
    let of_phase = |phase, positions: Range<usize>| {
        let from = positions.start;
        let made = made_inputs(model, phase, batch, positions).into_iter();
        made.map(|(name, shape)| {
            let value = made_value(&name, shape, phase, from).for_input(element_type(model, &name));
            (name, value)
        })
        .collect()
    };
    Ok([of_phase(Phase::Prefill, 0..prompt), of_phase(Phase::Decode, prompt..prompt + 1)])
}

fn named(values: &[(String, HostTensor)]) -> impl Iterator<Item = (&str, &HostTensor)> {
    values.iter().map(|(name, value)| (name.as_str(), value))
}

/// Whether the value of this name differs from step to step.
pub(super) fn differs_in_steps(name: &str) -> bool {
    [POSITIONS, PLACES].contains(&name) || MASKS.contains(&name)
}

/// The element type of the input by which the first part takes the value of this name; f32 if no part takes it.
fn element_type(model: &Model, name: &str) -> ElementType {
    let takes = |(part, input): &(&Part, &TensorSpec)| {
        model.generation.as_ref().is_some_and(|own| own.value_of(&part.name, &input.name) == name)
    };
    let mut inputs = model.parts.iter().flat_map(|part| part.inputs.iter().map(move |input| (part, input)));
    inputs.find(takes).map_or(ElementType::F32, |(_, input)| input.dtype)
}

/// Whether a part's input keeps the value of the prefill, as an encoder's cache does: it has an open length that does
/// not grow with the positions. A graph that has both phases outputs this value in each step too, but empty.
fn is_constant(input: &TensorSpec) -> bool {
    let is_open = |dimension: &Dimension| matches!(dimension, Dimension::Symbol(name) if name != BATCH);
    growing_dimension(input).is_none() && input.shape.iter().any(is_open)
}

/// Makes a value for a call of the phase whose first position is `from`. A name that is not matched here is an empty
/// cache.
fn made_value(name: &str, shape: Vec<usize>, phase: Phase, from: usize) -> HostTensor {
    let elements: usize = shape.iter().product();
    let last = shape.last().copied().unwrap_or(1).max(1);
    let data = match name {
        POSITIONS | PLACES => TensorData::I64((0..elements).map(|place| (from + place % last) as i64).collect()),
        BIAS => return causal_bias(last),
        BRANCH => TensorData::Bool(vec![phase == Phase::Decode; elements]),
        name if name == KEPT || MASKS.contains(&name) => TensorData::I64(vec![1; elements]),
        _ => TensorData::F32(vec![0.0; elements]),
    };
    HostTensor { shape, data }
}

/// The bias `[1, 1, positions, positions]` of attention scores, with which a position sees only itself and earlier
/// ones.
fn causal_bias(positions: usize) -> HostTensor {
    let row = |query: usize| (0..positions).map(move |key| if key <= query { 0.0 } else { f32::MIN });
    let bias = (0..positions).flat_map(row).collect();
    HostTensor { shape: vec![1, 1, positions, positions], data: TensorData::F32(bias) }
}

/// The index of the largest number at each row's last position, i64 `[rows, 1]`; the first if several are equal. The
/// values are `[rows, columns]` or `[rows, positions, columns]`.
pub(super) fn largest_of_rows<T: Copy + Into<f32>>(values: &[T], shape: &[usize]) -> HostTensor {
    let (rows, columns) = (shape.first().copied().unwrap_or(1), shape.last().copied().unwrap_or(1));
    let tokens = rows_at_end(values, rows, columns).map(|row| likeliest(row) as i64).collect();
    HostTensor { shape: vec![rows, 1], data: TensorData::I64(tokens) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_sees_itself_and_those_before() {
        let bias = causal_bias(2);
        assert_eq!(bias.data, TensorData::F32(vec![0.0, f32::MIN, 0.0, 0.0]));
        assert_eq!(causal_bias(1).data, TensorData::F32(vec![0.0]));
    }

    #[test]
    fn the_first_of_equal_logits_is_chosen() {
        let tokens = largest_of_rows(&[1.0_f32, 3.0, 3.0, -2.0, -1.0, -5.0], &[2, 3]);
        assert_eq!(tokens, HostTensor { shape: vec![2, 1], data: TensorData::I64(vec![1, 1]) });
        let halves = [9.0, 1.0, 2.0, 3.0, 8.0, 1.0, 6.0, 5.0].map(half::f16::from_f32);
        let of_last_positions = largest_of_rows(&halves, &[2, 2, 2]);
        assert_eq!(of_last_positions.data, TensorData::I64(vec![1, 0]));
    }
}
