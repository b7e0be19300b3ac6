//! A graph and those inside of its nodes as one, for what is asked of all of them: weights, and the operators that use them.

use std::collections::HashSet;

use prost::Message;

use super::proto::{GraphProto, TensorProto};

/// Graphs lie in each other to this depth.
pub(super) const DEEPEST: usize = 16;

impl GraphProto {
    /// The nodes and the constants of the graph and of those inside of its nodes, as the branches of an `If`. What both branches have under one
    /// name is there once. Constants that are written as nodes are initializers, but for single numbers, which are parts of formulas. Of
    /// those that are written sparsely there are names, shapes and types.
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
            // One that is not whole is found by what runs it.
            for graph in inner.filter(|_| depth > 0).filter_map(|bytes| GraphProto::decode(bytes.clone()).ok()) {
                self.append(&graph, known, depth - 1);
            }
            self.nodes.push(node.clone());
        }
    }
}
