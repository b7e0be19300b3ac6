//! Rewrites a graph of f32 so that it computes in f16 or bf16; its inputs and outputs stay f32.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, bail, ensure};
use half::{bf16, f16};

use super::Rewritten;
use super::draft::Draft;
use super::element_types::element_types;
use super::operators::{input_stays_f32, works_on_sequences};
use super::planned::Content;
use super::precision::{Precision, precisions};
use crate::definition::Dtype;
use crate::onnx::Source;
use crate::onnx::proto::{AttributeProto, GraphProto, NodeProto, TensorProto, element};

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
        if rewriter.is_float(&output.name) {
            rewriter.full(&output.name);
        }
    }
    Ok(rewriter.draft.finish(&source.graph))
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

/// The values of f32 of a graph: in f32 they have their own names, and in the narrow type others.
struct Rewriter<'a> {
    dtype: Dtype,
    types: HashMap<String, i32>,
    places: HashMap<&'a str, usize>,
    draft: Draft,
    /// Values that are there in f32.
    full: HashSet<String>,
    /// The names of values that are there in the narrow type.
    narrow: HashMap<String, String>,
    /// Values whose numbers may be beyond the narrow type, as the mask of an attention, which may be the least of f32.
    wide: HashSet<String>,
    source: &'a Source,
    bounds: Option<[String; 2]>,
}

impl<'a> Rewriter<'a> {
    fn new(source: &'a Source, types: HashMap<String, i32>, dtype: Dtype) -> Self {
        let graph = &source.graph;
        let places = graph.places();
        let inputs = || graph.own_inputs().map(|input| input.name.as_str());
        Rewriter {
            dtype,
            draft: Draft::new(source, types.keys()),
            types,
            full: inputs().chain(places.keys().copied()).map(str::to_owned).collect(),
            narrow: HashMap::new(),
            wide: inputs().filter(|input| is_added(&graph.nodes, input)).map(str::to_owned).collect(),
            places,
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
        let is_narrow = precision == Precision::Narrow;
        for place in 0..node.inputs.len() {
            if self.is_float(&node.inputs[place]) && precision != Precision::NotFloat {
                let stays = !is_narrow || input_stays_f32(&node, place);
                let value = &node.inputs[place];
                node.inputs[place] = if stays { self.full(value) } else { self.narrow(value) };
            }
        }
        if is_narrow && node.op_type == "Cast" && node.int("to") == Some(element::FLOAT.into()) {
            node.attributes = vec![AttributeProto::int("to", self.element().into())];
        }
        let is_bounded = matches!(node.op_type.as_str(), "Sin" | "Cos" | "Tanh" | "Sigmoid" | "Softmax");
        for output in &mut node.outputs {
            if !self.is_float(output) {
                continue;
            }
            if precision == Precision::Exact && !is_bounded {
                self.wide.insert(output.clone());
            }
            if is_narrow {
                let name = self.draft.fresh(output, self.dtype.name());
                self.narrow.insert(std::mem::replace(output, name.clone()), name);
            } else {
                self.full.insert(output.clone());
            }
        }
        self.draft.nodes.push(node);
    }

    /// The value in f32, under its own name.
    fn full(&mut self, value: &str) -> String {
        if self.full.insert(value.to_owned())
            && let Some(narrow) = self.narrow.get(value)
        {
            self.draft.nodes.push(NodeProto::cast(narrow, value, element::FLOAT));
        }
        value.to_owned()
    }

    /// The name of the value in the narrow type.
    fn narrow(&mut self, value: &str) -> String {
        if let Some(name) = self.narrow.get(value) {
            return name.clone();
        }
        let name = if let Some(&place) = self.places.get(value) {
            let content = match self.dtype {
                Dtype::F16 => narrowed(place, |value| to_f16(value).to_le_bytes()),
                _ => narrowed(place, |value| to_bf16(value).to_le_bytes()),
            };
            let dims = &self.source.graph.initializers[place].dims;
            self.draft.add(value, self.dtype.name(), dims, self.element(), content)
        } else {
            let from = if self.wide.contains(value) { self.clipped(value) } else { value.to_owned() };
            let name = self.draft.fresh(value, self.dtype.name());
            self.draft.nodes.push(NodeProto::cast(&from, &name, self.element()));
            name
        };
        self.narrow.insert(value.to_owned(), name.clone());
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
        let numbers = source.floats(&source.graph.initializers[place])?;
        Ok(numbers.into_iter().flat_map(narrow).collect())
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
