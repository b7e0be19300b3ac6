//! Finds the nodes that use the values of a graph.

use std::collections::HashMap;

use crate::onnx::proto::{GraphProto, NodeProto};

pub(super) struct Uses<'a> {
    /// The only use of a value, by the node's place; absent for one that is used more than once or is an output.
    only: HashMap<&'a str, (usize, &'a NodeProto)>,
}

impl<'a> Uses<'a> {
    pub fn new(graph: &'a GraphProto) -> Self {
        let mut times: HashMap<&str, usize> = HashMap::new();
        let inputs = graph.nodes.iter().flat_map(|node| &node.inputs);
        for name in inputs.chain(graph.outputs.iter().map(|output| &output.name)) {
            *times.entry(name).or_default() += 1;
        }
        // It is not known which values a graph inside a node uses.
        let has_subgraph = graph.nodes.iter().any(NodeProto::has_subgraph);
        let first = graph.nodes.iter().enumerate().filter(|_| !has_subgraph);
        let first = first.filter_map(|(place, node)| Some((node.inputs.first()?.as_str(), (place, node))));
        Uses { only: first.filter(|(name, _)| times.get(name) == Some(&1)).collect() }
    }

    /// The place of the only node that uses a value, as its first input, and that node.
    pub fn only(&self, value: &str) -> Option<(usize, &'a NodeProto)> {
        self.only.get(value).copied()
    }

    /// The value after a `Relu` or `Clip`, if all that is done with `value` is that.
    pub fn after_bounds(&self, value: &str) -> String {
        let bounded = self.only(value).filter(|(_, node)| matches!(node.op_type.as_str(), "Relu" | "Clip"));
        let output = bounded.filter(|(_, node)| node.is_standard()).and_then(|(_, node)| node.outputs.first());
        output.map_or_else(|| value.to_owned(), Clone::clone)
    }
}
