//! Rewrites a graph of f32 so that it computes in f16 or bf16; its inputs and outputs stay f32.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, bail, ensure};

use super::draft::Draft;
use super::element_types::element_types;
use super::operators::{input_stays_f32, works_on_sequences};
use super::planned::{Content, Planned};
use super::precision::{Precision, precisions};
use super::products::unchanged;
use super::{Rewritten, Summary};
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
    let largest = match dtype {
        Dtype::F16 => half::f16::MAX.to_f32(),
        _ => half::bf16::MAX.to_f32(),
    };
    let precisions = precisions(source, &source.graph.nodes, &types, dtype, largest);
    let mut rewriter = Rewriter::new(source, types, dtype, largest);
    for (node, precision) in source.graph.nodes.iter().zip(&precisions) {
        rewriter.add(node, *precision);
    }
    for output in &source.graph.outputs {
        rewriter.finish(&output.name);
    }
    let summary = Summary {
        converted: precisions.iter().filter(|precision| **precision == Precision::Narrow).count(),
        left: precisions.iter().filter(|precision| **precision == Precision::Full).count(),
    };
    let Draft { nodes, initializers, .. } = rewriter.draft;
    let graph = GraphProto {
        nodes,
        initializers: Vec::new(),
        value_info: Vec::new(),
        inputs: source.graph.own_inputs().cloned().collect(),
        ..source.graph.clone()
    };
    Ok(Rewritten { graph, initializers, summary })
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
    /// Whether its numbers may be beyond the narrow type.
    is_wide: bool,
}

struct Rewriter<'a> {
    dtype: Dtype,
    largest: f32,
    types: HashMap<String, i32>,
    places: HashMap<&'a str, usize>,
    outputs: HashSet<&'a str>,
    draft: Draft,
    values: HashMap<String, Names>,
    source: &'a Source,
    bounds: Option<[String; 2]>,
}

impl<'a> Rewriter<'a> {
    fn new(source: &'a Source, types: HashMap<String, i32>, dtype: Dtype, largest: f32) -> Self {
        let graph = &source.graph;
        let mut values = HashMap::new();
        for input in graph.own_inputs() {
            let full = Some(input.name.clone());
            let is_wide = is_added(&graph.nodes, &input.name);
            values.insert(input.name.clone(), Names { full, is_wide, ..Names::default() });
        }
        let is_float = |planned: &Planned| planned.element(source) == element::FLOAT;
        let initializers = unchanged(graph).into_iter().filter(|planned| !is_float(planned)).collect();
        Rewriter {
            dtype,
            largest,
            draft: Draft::new(types.keys(), initializers),
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
        let is_wide = matches!(precision, Precision::Exact { is_wide: true });
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
                (true, Dtype::F16) => Content::F16(place),
                (true, _) => Content::Bf16(place),
            };
            let dims = self.source.graph.initializers[place].dims.clone();
            self.draft.add(&name, &dims, content);
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
            let bounds = [("least", -self.largest), ("largest", self.largest)].map(|(name, bound)| {
                let name = self.draft.fresh(name, self.dtype.name());
                self.draft.add(&name, &[], Content::Number(bound));
                name
            });
            self.bounds = Some(bounds);
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
