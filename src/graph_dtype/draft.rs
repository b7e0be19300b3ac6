//! A graph that is being written: its nodes, and its initializers before their values are there.

use std::collections::HashSet;

use super::Rewritten;
use super::planned::{Content, Planned};
use crate::onnx::Source;
use crate::onnx::proto::{GraphProto, NodeProto, element};

pub(super) struct Draft {
    /// Names of values that are taken.
    taken: HashSet<String>,
    pub nodes: Vec<NodeProto>,
    pub initializers: Vec<Planned>,
}

impl Draft {
    /// A graph without nodes and with the initializers of the source, whose values must not have a name that is taken.
    pub fn new<'a>(source: &Source, taken: impl Iterator<Item = &'a String>) -> Self {
        let initializers = source.graph.initializers.iter().enumerate();
        let same = initializers.map(|(place, tensor)| Planned {
            name: tensor.name.clone(),
            dims: tensor.dims.clone(),
            element: tensor.data_type,
            content: Content::Same(place),
        });
        Draft { taken: taken.cloned().collect(), nodes: Vec::new(), initializers: same.collect() }
    }

    /// Takes a new name: `name.suffix`, with a number if that is taken.
    pub fn fresh(&mut self, name: &str, suffix: &str) -> String {
        let first = format!("{name}.{suffix}");
        let mut candidates = std::iter::once(first.clone()).chain((2_u64..).map(|number| format!("{first}.{number}")));
        let fresh = candidates.find(|name| !self.taken.contains(name)).unwrap_or(first);
        self.taken.insert(fresh.clone());
        fresh
    }

    /// Adds an initializer under a new name.
    pub fn add(&mut self, name: &str, suffix: &str, dims: &[i64], element: i32, content: Content) -> String {
        let name = self.fresh(name, suffix);
        self.initializers.push(Planned { name: name.clone(), dims: dims.to_vec(), element, content });
        name
    }

    /// Adds an initializer of one f32.
    pub fn add_number(&mut self, name: &str, suffix: &str, number: f32) -> String {
        self.add(name, suffix, &[], element::FLOAT, Content::made(move |_| Ok(number.to_le_bytes().to_vec())))
    }

    /// The graph of the source with these nodes, and those of its initializers that they need: weights that were converted
    /// in another order are not transposed any more.
    pub fn finish(self, graph: &GraphProto) -> Rewritten {
        let Draft { mut nodes, mut initializers, .. } = self;
        let used_by = |nodes: &[NodeProto]| -> HashSet<String> {
            let inputs = nodes.iter().flat_map(|node| &node.inputs);
            inputs.chain(graph.outputs.iter().map(|output| &output.name)).cloned().collect()
        };
        // It is not known which values a graph inside a node uses.
        if !nodes.iter().any(NodeProto::has_subgraph) {
            let used = used_by(&nodes);
            nodes.retain(|node| node.op_type != "Transpose" || node.outputs.iter().any(|name| used.contains(name)));
            let used = used_by(&nodes);
            initializers.retain(|planned| used.contains(&planned.name));
        }
        let inputs = graph.own_inputs().cloned().collect();
        let graph = GraphProto { nodes, initializers: Vec::new(), value_info: Vec::new(), inputs, ..graph.clone() };
        Rewritten { graph, initializers }
    }
}
