//! Sessions of the backends that run a model's parts as graphs.
//!
//! A backend implements [`Runtime`] for one of its graphs and its own tensors; [`open_session`] makes the session of a phase
//! out of it.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::generation::{GenerationSession, Generator};
use super::interface::{LoadRequest, Placement, Session, Stages};
use crate::definition::{CaseFailure, Generation, Part, Phase};
use crate::fixture::{HostTensor, TensorData};

/// A library's own tensors and graphs.
pub(super) trait Runtime {
    type Graph;
    /// A tensor on the device; a clone shares it.
    type Value: Clone;

    fn upload(&self, tensor: &HostTensor) -> Result<Self::Value, CaseFailure>;
    fn download(&self, value: &Self::Value) -> Result<HostTensor, CaseFailure>;
    /// Runs a graph; inputs and outputs are in the order of the part's definition. May return before the device is done.
    fn run(&self, graph: &mut Self::Graph, inputs: &[&Self::Value]) -> Result<Vec<Self::Value>, CaseFailure>;
    /// The index of the largest logit of each row: `[batch, vocabulary]` to i64 `[batch, 1]`.
    fn greedy(&self, logits: &Self::Value) -> Result<Self::Value, CaseFailure>;
    /// Checks that the graph takes these inputs, if there is a way to know before it runs.
    fn check_inputs(&self, _graph: &Self::Graph, _inputs: &[&Self::Value]) -> Result<(), CaseFailure> {
        Ok(())
    }
    /// Finishes what has to happen once per batch of inputs, such as copying them to the device.
    fn prepare(&self, _graph: &mut Self::Graph, _inputs: &[&Self::Value]) -> Result<(), CaseFailure> {
        Ok(())
    }
    /// Returns when the device is idle.
    fn sync(&self) -> Result<(), CaseFailure> {
        Ok(())
    }
    /// Time that the graph's compilations took, if they are not a part of loading it.
    fn compilation(&self, _graph: &Self::Graph) -> Option<Duration> {
        None
    }
}

/// The session of the request's phase. `graphs` are those of `parts`, in the same order.
///
/// # Errors
/// The definition does not fit together.
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
            let place = |names: &[&str], name: &str| {
                let missing = || CaseFailure::failed(format!("part {:?}: nothing gives {name:?}", part.name));
                names.iter().position(|known| *known == name).ok_or_else(missing)
            };
            let inputs = part.inputs.iter().map(|input| place(&input_names, &input.name)).collect::<Result<_, _>>()?;
            let own: Vec<&str> = part.outputs.iter().map(|output| output.name.as_str()).collect();
            let outputs = request.model.output_names(request.phase);
            let outputs = outputs.iter().map(|name| place(&own, name)).collect::<Result<Vec<_>, _>>()?;
            let outputs = (!outputs.is_empty()).then_some(outputs);
            Ok(Box::new(GraphSession::new(runtime, graph, inputs, outputs, placement)))
        }
        Phase::Prefill | Phase::Decode => {
            let generator = GraphGenerator::new(request, runtime, parts.zip(graphs).collect(), &input_names)?;
            Ok(Box::new(GenerationSession::new(request, generator, placement)?))
        }
    }
}

/// A session that runs one graph on inputs that are given whole.
pub(super) struct GraphSession<R: Runtime> {
    runtime: R,
    graph: R::Graph,
    /// For each input of the graph, its place among the model's.
    inputs: Vec<usize>,
    /// The places of the outputs that are asked for; `None` for all.
    outputs: Option<Vec<usize>>,
    bound: Vec<Vec<R::Value>>,
    placement: Placement,
}

impl<R: Runtime> GraphSession<R> {
    /// `inputs` are the places of the graph's inputs among the model's; `outputs` are the places of the graph's outputs that
    /// are asked for, or `None` for all.
    pub(super) fn new(
        runtime: R,
        graph: R::Graph,
        inputs: Vec<usize>,
        outputs: Option<Vec<usize>>,
        placement: Placement,
    ) -> Self {
        GraphSession { runtime, graph, inputs, outputs, bound: Vec::new(), placement }
    }

    fn forward(&mut self, binding: usize) -> Result<Vec<R::Value>, CaseFailure> {
        let inputs: Vec<&R::Value> = self.bound[binding].iter().collect();
        self.runtime.run(&mut self.graph, &inputs)
    }

    /// Copies the outputs that are asked for to the host.
    fn download(&self, outputs: &[R::Value]) -> Result<Vec<HostTensor>, CaseFailure> {
        match &self.outputs {
            None => outputs.iter().map(|output| self.runtime.download(output)).collect(),
            Some(places) => {
                let missing = |place| CaseFailure::failed(format!("the graph has no output {place}"));
                let output = |&place: &usize| outputs.get(place).ok_or_else(|| missing(place));
                places.iter().map(|place| self.runtime.download(output(place)?)).collect()
            }
        }
    }
}

impl<R: Runtime> Session for GraphSession<R> {
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, CaseFailure> {
        let bound = self.inputs.iter().map(|&place| self.runtime.upload(&inputs[place]));
        let bound = bound.collect::<Result<Vec<_>, _>>()?;
        let given: Vec<&R::Value> = bound.iter().collect();
        self.runtime.check_inputs(&self.graph, &given)?;
        self.runtime.prepare(&mut self.graph, &given)?;
        self.bound.push(bound);
        Ok(self.bound.len() - 1)
    }

    fn reset(&mut self, _request: &LoadRequest<'_>) -> Result<(), CaseFailure> {
        self.bound.clear();
        Ok(())
    }

    fn rebind(&mut self, binding: usize, inputs: &[HostTensor]) -> Result<(), CaseFailure> {
        for (bound, &place) in self.bound[binding].iter_mut().zip(&self.inputs) {
            *bound = self.runtime.upload(&inputs[place])?;
        }
        self.runtime.prepare(&mut self.graph, &self.bound[binding].iter().collect::<Vec<_>>())
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

    fn call_from_host(&mut self, binding: usize, inputs: &[HostTensor]) -> Result<Stages, CaseFailure> {
        let begin = Instant::now();
        self.rebind(binding, inputs)?;
        self.runtime.sync()?;
        let uploaded = Instant::now();
        let outputs = self.forward(binding)?;
        self.runtime.sync()?;
        let computed = Instant::now();
        black_box(self.download(&outputs)?);
        let to_host = computed.elapsed();
        Ok(Stages { to_device: uploaded - begin, compute: computed - uploaded, to_host })
    }

    fn compilation(&self) -> Option<Duration> {
        self.runtime.compilation(&self.graph)
    }

    fn placement(&self) -> Placement {
        self.placement.clone()
    }
}

/// Generates with the parts of a model as graphs, wired by the names of their inputs and outputs.
struct GraphGenerator<R: Runtime> {
    runtime: R,
    graphs: Vec<WiredGraph<R::Graph>>,
    /// The graphs that run in each phase, in order.
    prefill: Vec<usize>,
    decode: Vec<usize>,
    slots: Slots,
    /// The slots of the model's inputs, in its order; `None` for an input that no part reads.
    inputs: Vec<Option<usize>>,
    /// Inputs that begin empty: their slots and their shapes with 0 for the batch size.
    past: Vec<(usize, Vec<usize>)>,
    /// The same for inputs that are empty after the prefill.
    once: Vec<(usize, Vec<usize>)>,
    tokens: usize,
    logits: usize,
    prefix_positions: usize,
}

/// A part's graph, and the slots that it reads and writes.
struct WiredGraph<G> {
    graph: G,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

/// The values that parts hand to each other, by name.
#[derive(Default)]
struct Slots(Vec<String>);

impl Slots {
    fn of(&mut self, name: &str) -> usize {
        self.find(name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        })
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| known == name)
    }
}

/// The value of each slot.
type Values<V> = Vec<Option<V>>;

const POSITIONS: &str = "position_ids";
const BIAS: &str = "attention_bias";

impl<R: Runtime> GraphGenerator<R> {
    fn new(
        request: &LoadRequest<'_>,
        runtime: R,
        parts: Vec<(&Part, R::Graph)>,
        input_names: &[&str],
    ) -> Result<Self, CaseFailure> {
        let broken = |what: &str| CaseFailure::failed(format!("{}: {what}", request.model.name));
        let Generation { tokens, prefix_positions, once } =
            request.model.generation.as_ref().ok_or_else(|| broken("the definition has no [generation]"))?;
        let mut slots = Slots::default();
        let mut graphs = Vec::new();
        let (mut past, mut empty_later) = (Vec::new(), Vec::new());
        let mut names = Vec::new();
        for (part, graph) in parts {
            names.push(part.name.as_str());
            for input in &part.inputs {
                let slot = slots.of(&input.name);
                let shape = || input.shape.iter().map(|dimension| dimension.fixed().unwrap_or(0)).collect();
                if input.name.starts_with("past.") {
                    past.push((slot, shape()));
                } else if once.contains(&input.name) {
                    empty_later.push((slot, shape()));
                }
            }
            let of_next_step = |name: &str| name.strip_prefix("present.").map(|rest| format!("past.{rest}"));
            graphs.push(WiredGraph {
                graph,
                inputs: part.inputs.iter().map(|input| slots.of(&input.name)).collect(),
                outputs: part
                    .outputs
                    .iter()
                    .map(|output| slots.of(of_next_step(&output.name).as_deref().unwrap_or(&output.name)))
                    .collect(),
            });
        }
        let order = |phase| {
            let plan = request.model.phase(phase).map(|plan| plan.parts.as_slice()).unwrap_or_default();
            plan.iter().filter_map(|name| names.iter().position(|known| known == name)).collect()
        };
        Ok(GraphGenerator {
            runtime,
            graphs,
            prefill: order(Phase::Prefill),
            decode: order(Phase::Decode),
            inputs: input_names.iter().map(|name| slots.find(name)).collect(),
            past,
            once: empty_later,
            tokens: slots.find(tokens).ok_or_else(|| broken("no part reads the tokens"))?,
            logits: slots.find("logits").ok_or_else(|| broken("no part has an output \"logits\""))?,
            slots,
            prefix_positions: *prefix_positions,
        })
    }

    fn run_phase(&mut self, phase: Phase, values: &mut Values<R::Value>) -> Result<R::Value, CaseFailure> {
        let order = if phase == Phase::Decode { &self.decode } else { &self.prefill };
        for &index in order {
            let WiredGraph { graph, inputs, outputs } = &mut self.graphs[index];
            let given = inputs.iter().map(|&slot| {
                let missing = || CaseFailure::failed(format!("nothing gives {:?}", self.slots.0[slot]));
                values[slot].as_ref().ok_or_else(missing)
            });
            let given = given.collect::<Result<Vec<_>, _>>()?;
            let computed = self.runtime.run(graph, &given)?;
            for (&slot, value) in outputs.iter().zip(computed) {
                values[slot] = Some(value);
            }
        }
        values[self.logits].take().ok_or_else(|| CaseFailure::failed("no logits"))
    }

    fn empty(&self, shape: &[usize], batch: usize) -> Result<R::Value, CaseFailure> {
        let mut shape = shape.to_vec();
        shape[0] = batch;
        self.runtime.upload(&HostTensor { shape, data: TensorData::F32(Vec::new()) })
    }
}

impl<R: Runtime> Generator for GraphGenerator<R> {
    type Value = R::Value;
    type Inputs = GraphInputs<R::Value>;
    /// All values after a call; the next call needs the keys and values among them.
    type Cache = Values<R::Value>;

    fn upload(&mut self, inputs: &[HostTensor]) -> Result<Self::Inputs, CaseFailure> {
        let mut values = vec![None; self.slots.0.len()];
        let (mut batch, mut positions) = (0, 0);
        for (slot, tensor) in self.inputs.iter().zip(inputs) {
            let Some(slot) = *slot else { continue };
            if slot == self.tokens {
                (batch, positions) = (tensor.shape[0], self.prefix_positions + tensor.shape[1]);
            }
            values[slot] = Some(self.runtime.upload(tensor)?);
        }
        let counted = HostTensor { shape: vec![1, positions], data: TensorData::I64((0..positions as i64).collect()) };
        if let Some(slot) = self.slots.find(POSITIONS) {
            values[slot] = Some(self.runtime.upload(&counted)?);
        }
        for (slot, shape) in &self.past {
            values[*slot] = Some(self.empty(shape, batch)?);
        }
        let mut for_steps = Vec::new();
        if let Some(slot) = self.slots.find(BIAS) {
            values[slot] = Some(self.runtime.upload(&causal_bias(positions))?);
            for_steps.push((slot, self.runtime.upload(&causal_bias(1))?));
        }
        for (slot, shape) in &self.once {
            for_steps.push((*slot, self.empty(shape, batch)?));
        }
        Ok(GraphInputs { values, for_steps })
    }

    fn prefill(&mut self, inputs: &Self::Inputs) -> Result<(R::Value, Self::Cache), CaseFailure> {
        let mut values = inputs.values.clone();
        let logits = self.run_phase(Phase::Prefill, &mut values)?;
        for (slot, value) in &inputs.for_steps {
            values[*slot] = Some(value.clone());
        }
        Ok((logits, values))
    }

    fn step(&mut self, tokens: &R::Value, position: usize, cache: &mut Self::Cache) -> Result<R::Value, CaseFailure> {
        cache[self.tokens] = Some(tokens.clone());
        if let Some(slot) = self.slots.find(POSITIONS) {
            let position = HostTensor { shape: vec![1, 1], data: TensorData::I64(vec![position as i64]) };
            cache[slot] = Some(self.runtime.upload(&position)?);
        }
        self.run_phase(Phase::Decode, cache)
    }

    fn greedy(&mut self, logits: &R::Value) -> Result<R::Value, CaseFailure> {
        self.runtime.greedy(logits)
    }

    fn download(&self, value: &R::Value) -> Result<HostTensor, CaseFailure> {
        self.runtime.download(value)
    }

    fn sync(&mut self) -> Result<(), CaseFailure> {
        self.runtime.sync()
    }

    fn compilation(&self) -> Option<Duration> {
        self.graphs.iter().map(|wired| self.runtime.compilation(&wired.graph)).sum()
    }
}

/// A batch on the device.
struct GraphInputs<V> {
    values: Values<V>,
    /// Values that replace some of them in every step.
    for_steps: Vec<(usize, V)>,
}

/// The bias `[1, 1, positions, positions]` of attention scores, by which a position sees only itself and those before it.
fn causal_bias(positions: usize) -> HostTensor {
    let row = |query: usize| (0..positions).map(move |key| if key <= query { 0.0 } else { f32::MIN });
    let bias = (0..positions).flat_map(row).collect();
    HostTensor { shape: vec![1, 1, positions, positions], data: TensorData::F32(bias) }
}

/// The index of the largest number of each row, the first if several are equal: i64 `[rows, 1]`.
pub(super) fn largest_of_rows(values: &[f32], rows: usize) -> HostTensor {
    let columns = (values.len() / rows.max(1)).max(1);
    let largest = |row: &[f32]| {
        let begin = (0, f32::NEG_INFINITY);
        let larger = |best: (usize, f32), (place, &value): (usize, &f32)| {
            if value > best.1 { (place, value) } else { best }
        };
        row.iter().enumerate().fold(begin, larger).0 as i64
    };
    let tokens = values.chunks_exact(columns).map(largest).collect();
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
        let tokens = largest_of_rows(&[1.0, 3.0, 3.0, -2.0, -1.0, -5.0], 2);
        assert_eq!(tokens, HostTensor { shape: vec![2, 1], data: TensorData::I64(vec![1, 1]) });
    }
}
