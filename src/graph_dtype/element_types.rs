//! The element type of every value of a graph, as the operators' specifications give it.

use std::collections::HashMap;

use crate::onnx::proto::{GraphProto, NodeProto, ValueInfoProto, element};

/// The element types by the values' names.
///
/// What the file says comes first; the rest follows from the operators. Operators of other sets than ONNX's own are
/// taken to make what they are given.
pub(super) fn element_types(graph: &GraphProto) -> HashMap<String, i32> {
    let said = |value: &ValueInfoProto| {
        let element = value.r#type.as_ref()?.tensor.as_ref()?.element;
        (element != 0).then(|| (value.name.clone(), element))
    };
    let mut types: HashMap<String, i32> =
        graph.inputs.iter().chain(&graph.outputs).chain(&graph.value_info).filter_map(said).collect();
    types.extend(graph.initializers.iter().map(|tensor| (tensor.name.clone(), tensor.data_type)));
    // Nodes are in topological order.
    for node in &graph.nodes {
        for (place, output) in node.outputs.iter().enumerate() {
            if !output.is_empty() && !types.contains_key(output) {
                types.insert(output.clone(), output_type(node, place, &types));
            }
        }
    }
    types
}

fn output_type(node: &NodeProto, place: usize, types: &HashMap<String, i32>) -> i32 {
    let of_input = |place: usize| {
        let named = node.inputs.get(place).filter(|name| !name.is_empty());
        named.and_then(|name| types.get(name)).copied().unwrap_or(element::FLOAT)
    };
    let attribute = |name: &str| node.int(name).and_then(|number| i32::try_from(number).ok());
    let of_tensor = || node.attribute("value").and_then(|attribute| attribute.t.as_ref()).map(|value| value.data_type);
    match (node.op_type.as_str(), place) {
        ("Cast", _) => attribute("to").unwrap_or(element::FLOAT),
        ("Shape" | "Size" | "NonZero" | "ArgMax" | "ArgMin" | "NonMaxSuppression", _) => element::INT64,
        ("TopK" | "MaxPool", 1) | ("Unique", 1..) => element::INT64,
        (
            "Equal" | "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" | "And" | "Or" | "Xor" | "Not" | "IsNaN"
            | "IsInf",
            _,
        )
        | ("Dropout", 1) => element::BOOL,
        ("MatMulInteger" | "ConvInteger", _) => element::INT32,
        ("DynamicQuantizeLinear", 0 | 2) => element::UINT8,
        ("QuantizeLinear", _) if node.inputs.len() < 3 => element::UINT8,
        ("QuantizeLinear", _) => of_input(2),
        ("QLinearConv" | "QLinearMatMul", _) => of_input(7),
        ("DequantizeLinear" | "Where" | "CastLike", _) => of_input(1),
        ("OneHot", _) => of_input(2),
        ("ConstantOfShape", _) => of_tensor().unwrap_or(element::FLOAT),
        ("Constant", _) if node.attribute("value_int").or(node.attribute("value_ints")).is_some() => element::INT64,
        ("Constant", _) => of_tensor().unwrap_or(element::FLOAT),
        // Numbers by chance and the like.
        _ => attribute("dtype").unwrap_or_else(|| of_input(0)),
    }
}
