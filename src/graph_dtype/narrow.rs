//! Rewrites a graph of f32 so that it computes in f16 or bf16; its inputs and outputs stay f32.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, bail, ensure};
use half::{bf16, f16};

use super::draft::Draft;
use super::element_types::element_types;
use super::operators::{input_stays_f32, works_on_sequences};
use super::planned::{Content, Planned};
use super::precision::{Precision, precisions};
use super::{Rewritten, Summary};
use crate::definition::Dtype;
use crate::onnx::proto::{AttributeProto, GraphProto, NodeProto, TensorProto, element};
use crate::onnx::{Source, floats};

/// The graph in `dtype`, which is f16 or bf16.
///
/// # Errors
/// The graph has something whose types are not known here, such as a loop.
pub(super) fn rewrite(source: &mut Source, dtype: Dtype) -> Result<Rewritten> {
    check(&source.graph)?;
    make_constants_initializers(&mut source.graph);
    let source = &*source;
    let types = element_types(&source.graph);
    let precisions = precisions(source, &types, dtype);
    let mut rewriter = Rewriter::new(source, types, dtype);
    for (node, precision) in source.graph.nodes.iter().zip(&precisions) {
        rewriter.add(node, *precision);
    }
    for output in &source.graph.outputs {
        rewriter.finish(&output.name);
    }
    let count = |wanted| precisions.iter().filter(|precision| **precision == wanted).count();
    let summary = Summary { converted: count(Precision::Narrow), left: count(Precision::Full) };
    Ok(rewriter.draft.finish(&source.graph, summary))
}

fn check(graph: &GraphProto) -> Result<()> {
    ensure!(graph.sparse_initializers.is_empty(), "it has sparse weights");
    if let Some(node) = graph.nodes.iter().find(|node| node.has_subgraph() || works_on_sequences(node)) {
        bail!("operator {} (node {:?}) works with other things than tensors", node.op_type, node.name);
    }
    let narrow = |tensor: &&TensorProto| matches!(tensor.data_type, element::FLOAT16 | element::BFLOAT16);
    if let Some(tensor) = graph.initializers.iter().find(narrow) {
        bail!("initializer {:?} is f16 or bf16 already", tensor.name);
    }
    Ok(())
}

/// Constants that are nodes become initializers, which are converted by one rule.
fn make_constants_initializers(graph: &mut GraphProto) {
    let mut kept = Vec::with_capacity(graph.nodes.len());
    for mut node in std::mem::take(&mut graph.nodes) {
        let is_constant = node.op_type == "Constant" && node.is_standard() && node.outputs.len() == 1;
        match if is_constant { float_constant(&mut node.attributes) } else { None } {
            Some(value) => graph.initializers.push(TensorProto { name: node.outputs[0].clone(), ..value }),
            None => kept.push(node),
        }
    }
    graph.nodes = kept;
}

fn float_constant(attributes: &mut [AttributeProto]) -> Option<TensorProto> {
    let [attribute] = attributes else { return None };
    let of_floats = |dims: Vec<i64>, float_data: Vec<f32>| TensorProto {
        dims,
        data_type: element::FLOAT,
        float_data,
        ..TensorProto::default()
    };
    match attribute.name.as_str() {
        "value" if attribute.t.as_ref()?.data_type == element::FLOAT => attribute.t.take(),
        "value_float" => Some(of_floats(Vec::new(), vec![attribute.f.unwrap_or_default()])),
        "value_floats" => Some(of_floats(vec![attribute.floats.len() as i64], attribute.floats.clone())),
        _ => None,
    }
}

/// Under which names a value of f32 is there.
#[derive(Default)]
struct Names {
    full: Option<String>,
    narrow: Option<String>,
    /// Whether its numbers may be beyond the narrow type, as the mask of an attention is, which may be the least of f32.
    is_wide: bool,
}

struct Rewriter<'a> {
    dtype: Dtype,
    types: HashMap<String, i32>,
    places: HashMap<&'a str, usize>,
    outputs: HashSet<&'a str>,
    draft: Draft,
    values: HashMap<String, Names>,
    source: &'a Source,
    bounds: Option<[String; 2]>,
}

impl<'a> Rewriter<'a> {
    fn new(source: &'a Source, types: HashMap<String, i32>, dtype: Dtype) -> Self {
        let graph = &source.graph;
        let mut values = HashMap::new();
        for input in graph.own_inputs() {
            let full = Some(input.name.clone());
            let is_wide = is_added(&graph.nodes, &input.name);
            values.insert(input.name.clone(), Names { full, is_wide, ..Names::default() });
        }
        let mut draft = Draft::new(source, types.keys());
        draft.initializers.retain(|planned| planned.element != element::FLOAT);
        Rewriter {
            dtype,
            draft,
            types,
            places: graph.places(),
            outputs: graph.outputs.iter().map(|output| output.name.as_str()).collect(),
            values,
            source,
            bounds: None,
        }
    }

    fn is_float(&self, name: &str) -> bool {
        !name.is_empty() && self.types.get(name) == Some(&element::FLOAT)
    }

    fn element(&self) -> i32 {
        if self.dtype == Dtype::F16 { element::FLOAT16 } else { element::BFLOAT16 }
    }

    fn add(&mut self, node: &NodeProto, precision: Precision) {
        let mut node = node.clone();
        if precision == Precision::NotFloat {
            self.draft.nodes.push(node);
            return;
        }
        let is_narrow = precision == Precision::Narrow;
        for place in 0..node.inputs.len() {
            if self.is_float(&node.inputs[place]) {
                let narrow = is_narrow && !input_stays_f32(&node, place);
                node.inputs[place] = self.name_of(&node.inputs[place], narrow);
            }
        }
        if is_narrow && node.op_type == "Cast" && node.int("to") == Some(element::FLOAT.into()) {
            node.attributes = vec![AttributeProto::int("to", self.element().into())];
        }
        let is_bounded = matches!(node.op_type.as_str(), "Sin" | "Cos" | "Tanh" | "Sigmoid" | "Softmax");
        let is_wide = precision == Precision::Exact && !is_bounded;
        let mut finished = Vec::new();
        for output in &mut node.outputs {
            if !self.is_float(output) {
                continue;
            }
            let name = output.clone();
            let mut names = Names { is_wide, ..Names::default() };
            if is_narrow {
                if self.outputs.contains(output.as_str()) {
                    *output = self.draft.fresh(output, self.dtype.name());
                    finished.push(name.clone());
                }
                names.narrow = Some(output.clone());
            } else {
                names.full = Some(output.clone());
            }
            self.values.insert(name, names);
        }
        self.draft.nodes.push(node);
        for name in finished {
            self.finish(&name);
        }
    }

    /// Sees that an output of the graph is there in f32 under its own name.
    fn finish(&mut self, output: &str) {
        if !self.is_float(output) || self.values.get(output).is_some_and(|names| names.full.is_some()) {
            return;
        }
        match self.values.get_mut(output).and_then(|names| names.narrow.clone()) {
            Some(narrow) => {
                self.draft.nodes.push(NodeProto::cast(&narrow, output, element::FLOAT));
                self.values.entry(output.to_owned()).or_default().full = Some(output.to_owned());
            }
            None => drop(self.name_of(output, false)),
        }
    }

    /// The name under which the value is there in f32 or in the narrow type; makes it so where it is not yet.
    fn name_of(&mut self, value: &str, is_narrow: bool) -> String {
        let names = self.values.get(value);
        let (wanted, other, is_wide) = match names {
            Some(Names { full, narrow, is_wide }) if is_narrow => (narrow.clone(), full.clone(), *is_wide),
            Some(Names { full, narrow, .. }) => (full.clone(), narrow.clone(), false),
            None => (None, None, false),
        };
        if let Some(name) = wanted {
            return name;
        }
        let place = self.places.get(value).copied();
        let name = match place {
            // An initializer keeps its name for its narrow form, and an output of the graph its f32 form.
            Some(_) if is_narrow != self.outputs.contains(value) => value.to_owned(),
            _ => self.draft.fresh(value, if is_narrow { self.dtype.name() } else { "f32" }),
        };
        if let Some(place) = place {
            let content = match (is_narrow, self.dtype) {
                (false, _) => Content::Same(place),
                (true, Dtype::F16) => narrowed(place, |value| to_f16(value).to_le_bytes()),
                (true, _) => narrowed(place, |value| to_bf16(value).to_le_bytes()),
            };
            let element = if is_narrow { self.element() } else { element::FLOAT };
            let dims = self.source.graph.initializers[place].dims.clone();
            self.draft.initializers.push(Planned { name: name.clone(), dims, element, content });
        } else {
            let mut from = other.unwrap_or_else(|| value.to_owned());
            if is_wide {
                from = self.clipped(&from);
            }
            let element = if is_narrow { self.element() } else { element::FLOAT };
            self.draft.nodes.push(NodeProto::cast(&from, &name, element));
        }
        let names = self.values.entry(value.to_owned()).or_default();
        *(if is_narrow { &mut names.narrow } else { &mut names.full }) = Some(name.clone());
        name
    }

    /// The value within what the narrow type has.
    fn clipped(&mut self, name: &str) -> String {
        let clipped = self.draft.fresh(name, "clipped");
        if self.bounds.is_none() {
            let largest = if self.dtype == Dtype::F16 { f16::MAX.to_f32() } else { bf16::MAX.to_f32() };
            let bounds = [("least", -largest), ("largest", largest)];
            self.bounds = Some(bounds.map(|(name, bound)| self.draft.add_number(name, self.dtype.name(), bound)));
        }
        let [least, largest] = self.bounds.clone().unwrap_or_default();
        self.draft.nodes.push(NodeProto::new("Clip", &[name, &least, &largest], &clipped));
        clipped
    }
}

/// Whether a graph's input is added to something, as a bias of the attention is, whose values may be the least of f32.
fn is_added(nodes: &[NodeProto], input: &str) -> bool {
    let mut same = HashSet::from([input]);
    // Nodes are in topological order.
    nodes.iter().any(|node| {
        let reads = node.inputs.iter().any(|name| same.contains(name.as_str()));
        match node.op_type.as_str() {
            "Add" | "Sub" | "Where" | "Min" | "Max" => return reads,
            "Concat" | "Expand" | "Identity" | "Reshape" | "Slice" | "Squeeze" | "Tile" | "Transpose" | "Unsqueeze"
                if reads =>
            {
                same.extend(node.outputs.iter().map(String::as_str));
            }
            _ => {}
        }
        false
    })
}

/// The values of an initializer as numbers of two bytes.
fn narrowed(place: usize, narrow: fn(f32) -> [u8; 2]) -> Content {
    Content::made(move |source| {
        let bytes = source.float_bytes(&source.graph.initializers[place])?;
        Ok(floats(bytes.as_slice()).flat_map(narrow).collect())
    })
}

/// The nearest f16. A finite number stays finite, and a number other than 0 does not become 0: the small constant under a
/// root must keep its quotient finite.
fn to_f16(value: f32) -> f16 {
    if value.is_infinite() {
        return f16::from_f32(value);
    }
    let nearest = f16::from_f32(value.clamp(f16::MIN.to_f32(), f16::MAX.to_f32()));
    if value != 0.0 && nearest.to_f32() == 0.0 {
        return if value > 0.0 { f16::MIN_POSITIVE_SUBNORMAL } else { -f16::MIN_POSITIVE_SUBNORMAL };
    }
    nearest
}

/// The nearest bf16; a finite number stays finite.
fn to_bf16(value: f32) -> bf16 {
    if value.is_infinite() {
        return bf16::from_f32(value);
    }
    bf16::from_f32(value.clamp(bf16::MIN.to_f32(), bf16::MAX.to_f32()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_becomes_the_nearest_that_is_as_finite_and_as_much_zero(value in any::<f32>()) {
            let narrow = [to_f16(value).to_f32(), to_bf16(value).to_f32()];
            for narrow in narrow {
                prop_assert_eq!((narrow.is_nan(), narrow.is_infinite()), (value.is_nan(), value.is_infinite()));
                prop_assert!(value.is_nan() || narrow.is_sign_positive() == value.is_sign_positive());
            }
            prop_assert_eq!(narrow[0] == 0.0, value == 0.0);
            if value.abs() > 1e-4 && value.abs() < 65504.0 {
                prop_assert!((narrow[0] - value).abs() <= value.abs() / 2048.0);
            }
            if value.is_normal() && value.abs() < 3.38e38 {
                prop_assert!((narrow[1] - value).abs() <= value.abs() / 256.0);
            }
        }
    }

    #[test]
    fn an_attention_bias_of_the_least_f32_is_the_least_f16() {
        assert_eq!(to_f16(f32::MIN).to_f32(), -65504.0);
        assert_eq!(to_bf16(f32::MIN), bf16::MIN);
        assert_eq!(to_f16(f32::NEG_INFINITY), f16::NEG_INFINITY);
        assert_eq!(to_f16(1e-12), f16::MIN_POSITIVE_SUBNORMAL);
    }
}
