//! Finds graphs in which OpenVINO loses a bias if it knows all sizes.
//!
//! Exporters write a mask as `(1 - mask) * lowest`, where `lowest` is the lowest number of f32. If what is added to it
//! depends on sizes alone, as T5's bias of positions does, OpenVINO 2026.4 folds both into
//! `mask * -lowest + (lowest + bias)`: the bias is too small for the sum, and is lost. With open sizes, the bias is not
//! a constant, and nothing is folded.

use std::collections::HashSet;

use crate::onnx::proto::{GraphProto, TensorProto, element};

/// A number above this loses a bias that is added to it in f32.
const HUGE: f32 = 1e30;

/// Operators that only move or repeat the elements of their first input.
const MOVING: [&str; 7] = ["Slice", "Expand", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Identity"];

/// Whether a value that depends on sizes alone is added to a mask of huge numbers.
pub(super) fn loses_bias(graph: &GraphProto) -> bool {
    let mut huge: HashSet<&str> = graph.initializers.iter().filter(|own| is_huge(own)).map(|own| &*own.name).collect();
    let mut constant: HashSet<&str> = graph.initializers.iter().map(|own| own.name.as_str()).collect();
    // Values that depend on the inputs' elements, and masks of huge numbers.
    let mut computed: HashSet<&str> = graph.own_inputs().map(|input| input.name.as_str()).collect();
    let mut masks: HashSet<&str> = HashSet::new();
    for node in &graph.nodes {
        let inputs: Vec<&str> = node.inputs.iter().map(String::as_str).collect();
        let outputs = node.outputs.iter().map(String::as_str);
        if node.op_type == "Constant" {
            let is_own_huge = node.attributes.iter().filter_map(|own| own.t.as_ref()).any(is_huge);
            huge.extend(outputs.clone().filter(|_| is_own_huge));
            constant.extend(outputs);
            continue;
        }
        let is_of_sizes = |name: &&str| !computed.contains(name) && !constant.contains(name);
        if node.op_type == "Add" && inputs.iter().any(|name| masks.contains(name)) && inputs.iter().any(is_of_sizes) {
            return true;
        }
        let is_moved =
            MOVING.contains(&node.op_type.as_str()) && inputs.first().is_some_and(|name| masks.contains(name));
        if is_moved || (node.op_type == "Mul" && inputs.iter().any(|name| huge.contains(name))) {
            masks.extend(outputs.clone());
        }
        if node.op_type != "Shape" && inputs.iter().any(|name| computed.contains(name)) {
            computed.extend(outputs);
        }
    }
    false
}

fn is_huge(tensor: &TensorProto) -> bool {
    let is_single = tensor.data_type == element::FLOAT && tensor.elements() == Some(1);
    let bytes = if is_single { tensor.inside() } else { None };
    let number = bytes.and_then(|bytes| Some(f32::from_le_bytes(*bytes.first_chunk()?)));
    number.is_some_and(|number| number.abs() > HUGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::{NodeProto, ValueInfoProto};

    /// A mask times `lowest`, to which the elements of a table at `places` are added.
    fn graph(lowest: f32, places: &str) -> GraphProto {
        let number = |name: &str, value: f32| TensorProto {
            name: name.into(),
            data_type: element::FLOAT,
            float_data: vec![value],
            ..TensorProto::default()
        };
        let input = |name: &str| ValueInfoProto { name: name.into(), ..ValueInfoProto::default() };
        GraphProto {
            inputs: vec![input("mask"), input("ids")],
            initializers: vec![number("lowest", lowest), number("one", 1.0), number("table", 2.0)],
            nodes: vec![
                NodeProto::new("Sub", &["one", "mask"], "inverted"),
                NodeProto::new("Mul", &["inverted", "lowest"], "large"),
                NodeProto::new("Unsqueeze", &["large"], "wide"),
                NodeProto::new("Shape", &["mask"], "sizes"),
                NodeProto::new("Range", &["sizes"], "range"),
                NodeProto::new("Gather", &["table", places], "bias"),
                NodeProto::new("Add", &["bias", "wide"], "y"),
            ],
            ..GraphProto::default()
        }
    }

    #[test]
    fn a_bias_of_sizes_alone_that_is_added_to_a_mask_of_huge_numbers_is_lost() {
        assert!(loses_bias(&graph(f32::MIN, "range")));
        assert!(!loses_bias(&graph(-10_000.0, "range")), "there is room for the bias");
        assert!(!loses_bias(&graph(f32::MIN, "ids")), "the bias is no constant");
    }
}
