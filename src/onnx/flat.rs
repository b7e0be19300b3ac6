//! Flattens a graph and the graphs inside its nodes into one, to find all weights and the operators that use them.

use std::collections::HashSet;

use prost::Message;

use super::proto::{GraphProto, TensorProto};

/// How many levels of nested graphs are followed. `flat` ignores deeper ones; `cost::control`, which also counts the
/// outermost graph, refuses them.
pub(super) const DEEPEST: usize = 16;

impl GraphProto {
    /// One graph with all nodes and initializers of this graph and of those inside its nodes, such as the branches of
    /// an `If`.
    ///
    /// Initializers with the same name are listed once. A `Constant` node with more than one element also becomes an
    /// initializer. A sparse initializer has its name, shape and type, but no values.
    pub(crate) fn flat(&self) -> GraphProto {
        let mut flat = GraphProto::default();
        flat.append(self, &mut HashSet::new(), DEEPEST);
        flat
    }

    fn append(&mut self, graph: &GraphProto, known: &mut HashSet<String>, depth: usize) {
        let new = graph.initializers.iter().filter(|tensor| known.insert(tensor.name.clone()));
        self.initializers.extend(new.cloned());
        for sparse in &graph.sparse_initializers {
            let Some(TensorProto { name, data_type, .. }) = &sparse.values else { continue };
            if known.insert(name.clone()) {
                let (name, dims, data_type) = (name.clone(), sparse.dims.clone(), *data_type);
                self.initializers.push(TensorProto { name, dims, data_type, ..TensorProto::default() });
            }
        }
        for node in &graph.nodes {
            let weights = node.constant().filter(|tensor| tensor.elements().is_some_and(|count| count > 1));
            if let Some((name, tensor)) = node.outputs.first().zip(weights)
                && known.insert(name.clone())
            {
                self.initializers.push(TensorProto { name: name.clone(), ..tensor.clone() });
            }
            let inner = node.attributes.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs));
            // A graph that cannot be decoded is skipped here; whoever runs it reports it.
            for graph in inner.filter(|_| depth > 0).filter_map(|bytes| GraphProto::decode(bytes.clone()).ok()) {
                self.append(&graph, known, depth - 1);
            }
            self.nodes.push(node.clone());
        }
    }
}
