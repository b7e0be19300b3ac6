//! Raises a graph to a newer opset, for rewrites that read only the newer operators.

use std::collections::HashSet;

use anyhow::{Result, ensure};

use super::Source;
use super::proto::{AttributeProto, GraphProto, NodeProto, TensorProto, element};

/// The oldest opset that is read: before it, more operators had another form.
pub(crate) const OLDEST_OPSET: i64 = 11;

/// The opset that graphs are raised to: the first whose `DequantizeLinear` has one scale per channel.
const OPSET: i64 = 13;

/// Operators with an attribute of integers that became an input in opset 13, and the attribute's name.
const TO_INPUT: [(&str, &str); 4] =
    [("Squeeze", "axes"), ("Unsqueeze", "axes"), ("ReduceSum", "axes"), ("Split", "split")];

impl Source {
    /// Raises the graph to opset 13 if its own is older. Values keep their names.
    ///
    /// # Errors
    /// The opset is older, and a node has graphs inside, which are not converted.
    pub(crate) fn raise_opset(&mut self) -> Result<()> {
        let opset = self.opset();
        if opset >= OPSET {
            return Ok(());
        }
        let inside = self.graph.nodes.iter().find(|node| node.has_subgraph());
        ensure!(
            inside.is_none(),
            "its operator set {opset} is older than {OPSET}, and some of its nodes have graphs inside; export it with a newer one"
        );
        raise(&mut self.graph);
        for import in &mut self.model.opset_imports {
            if matches!(import.domain.as_str(), "" | "ai.onnx") {
                import.version = OPSET;
            }
        }
        Ok(())
    }
}

fn raise(graph: &mut GraphProto) {
    let values = graph.nodes.iter().flat_map(|node| &node.outputs).chain(graph.initializers.iter().map(|it| &it.name));
    let mut taken: HashSet<String> =
        values.cloned().chain(graph.inputs.iter().map(|input| input.name.clone())).collect();
    let mut fresh = |name: &str| {
        let name = (0..).map(|number| format!("{name}.opset13.{number}")).find(|name| !taken.contains(name));
        let name = name.unwrap_or_default();
        taken.insert(name.clone());
        name
    };
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for mut node in std::mem::take(&mut graph.nodes) {
        // All operators that are converted have an input and an output.
        if !node.is_standard() || node.inputs.is_empty() || node.outputs.is_empty() {
            nodes.push(node);
            continue;
        }
        let to_input = TO_INPUT.iter().find(|(operator, _)| *operator == node.op_type);
        if let Some((_, attribute)) = to_input
            && let Some(place) = node.attributes.iter().position(|own| own.name == *attribute)
        {
            let ints = node.attributes.remove(place).ints;
            let name = fresh(&node.outputs[0]);
            node.inputs.push(name.clone());
            graph.initializers.push(TensorProto {
                name,
                dims: vec![ints.len() as i64],
                data_type: element::INT64,
                int64_data: ints,
                ..TensorProto::default()
            });
        }
        match node.op_type.as_str() {
            // `ratio` is for training, and has become an input.
            "Dropout" => node.attributes.retain(|own| own.name != "ratio"),
            // Before opset 13, it covered all axes from this one on; since then, it covers one axis.
            "Softmax" | "LogSoftmax" | "Hardmax" if node.int("axis") != Some(-1) => {
                let axis = node.int("axis").unwrap_or(1);
                let [sizes, table, result] =
                    ["sizes", "table", "result"].map(|what| fresh(&format!("{}.{what}", node.outputs[0])));
                let input = node.inputs[0].clone();
                let with_axis =
                    |node: NodeProto, axis| NodeProto { attributes: vec![AttributeProto::int("axis", axis)], ..node };
                nodes.push(NodeProto::new("Shape", &[&input], &sizes));
                nodes.push(with_axis(NodeProto::new("Flatten", &[&input], &table), axis));
                let own = NodeProto { inputs: vec![table], outputs: vec![result.clone()], ..node.clone() };
                nodes.push(with_axis(own, -1));
                nodes.push(NodeProto::new("Reshape", &[&result, &sizes], &node.outputs[0]));
                continue;
            }
            _ => {}
        }
        nodes.push(node);
    }
    graph.nodes = nodes;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_inputs_or_outputs_is_left_as_it_is() {
        let softmax = NodeProto { op_type: "Softmax".into(), ..NodeProto::default() };
        let split = NodeProto {
            op_type: "Split".into(),
            inputs: vec!["x".into()],
            attributes: vec![AttributeProto { name: "split".into(), ..AttributeProto::default() }],
            ..NodeProto::default()
        };
        let mut graph = GraphProto { nodes: vec![softmax, split], ..GraphProto::default() };
        let before = graph.clone();
        raise(&mut graph);
        assert_eq!(graph, before);
    }

    #[test]
    fn attributes_become_inputs_and_softmax_is_of_a_table() {
        let with = |node: NodeProto, attributes: Vec<AttributeProto>| NodeProto { attributes, ..node };
        let mut graph = GraphProto {
            nodes: vec![
                with(NodeProto::new("Unsqueeze", &["x"], "a"), vec![AttributeProto::ints("axes", &[0, 2])]),
                with(
                    NodeProto::new("ReduceSum", &["a"], "b"),
                    vec![AttributeProto::ints("axes", &[-1]), AttributeProto::int("keepdims", 0)],
                ),
                NodeProto::new("Squeeze", &["b"], "c"),
                with(NodeProto::new("Softmax", &["c"], "d"), vec![AttributeProto::int("axis", -1)]),
                NodeProto::new("Softmax", &["d"], "y"),
            ],
            ..GraphProto::default()
        };
        raise(&mut graph);
        let told =
            |node: &NodeProto| format!("{} {} > {}", node.op_type, node.inputs.join(" "), node.outputs.join(" "));
        assert_eq!(
            graph.nodes.iter().map(told).collect::<Vec<_>>(),
            [
                "Unsqueeze x a.opset13.0 > a",
                "ReduceSum a b.opset13.0 > b",
                "Squeeze b > c",
                "Softmax c > d",
                "Shape d > y.sizes.opset13.0",
                "Flatten d > y.table.opset13.0",
                "Softmax y.table.opset13.0 > y.result.opset13.0",
                "Reshape y.result.opset13.0 y.sizes.opset13.0 > y",
            ]
        );
        assert_eq!(
            graph.initializers.iter().map(|it| it.int64_data.clone()).collect::<Vec<_>>(),
            [vec![0, 2], vec![-1]]
        );
        assert_eq!(
            (graph.nodes[1].int("keepdims"), graph.nodes[5].int("axis"), graph.nodes[6].int("axis")),
            (Some(0), Some(1), Some(-1))
        );
    }
}
