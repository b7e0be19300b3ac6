//! Decides which nodes of a graph compute in the narrow type and which stay in f32.
//!
//! Values that are computed from whole numbers (positions, distances, masks) stay in f32 until they meet an activation of
//! the model: f16 has no 2049, and the sine of a rounded position is another number. Libraries compute these in f32 as
//! well, and it is little work.

use std::collections::{HashMap, HashSet};

use super::operators::computes_in;
use crate::definition::Dtype;
use crate::onnx::Source;
use crate::onnx::proto::{TensorProto, element};

/// Constants with more elements than this are weights, and not numbers of a formula.
const FORMULA: u64 = 1024;

/// How a node computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Precision {
    /// It has no f32 input or output.
    NotFloat,
    Narrow,
    /// In f32, since the operator has no other type.
    Full,
    /// In f32, since it is computed from whole numbers.
    Exact,
}

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Made {
    /// Weights with what a user gives.
    Activation,
    WholeNumbers,
    Constants {
        is_large: bool,
    },
}

/// The precision of each node.
pub(super) fn precisions(source: &Source, types: &HashMap<String, i32>, dtype: Dtype) -> Vec<Precision> {
    let nodes = &source.graph.nodes;
    let is_float = |name: &&String| !name.is_empty() && types.get(*name) == Some(&element::FLOAT);
    let constant =
        |tensor: &TensorProto| Made::Constants { is_large: tensor.elements().is_none_or(|count| count > FORMULA) };
    let constants: HashMap<&str, Made> =
        source.graph.initializers.iter().map(|tensor| (tensor.name.as_str(), constant(tensor))).collect();
    let mut values = constants.clone();
    let mut made: Vec<Option<Made>> = Vec::new();
    for node in nodes {
        let inputs: Vec<&str> = node.inputs.iter().filter(is_float).map(String::as_str).collect();
        if inputs.is_empty() && !node.outputs.iter().any(|name| is_float(&name)) {
            made.push(None);
            continue;
        }
        let looks_up = node.op_type.starts_with("Gather") && inputs.iter().any(|name| constants.contains_key(name));
        let of_inputs = inputs.iter().map(|name| values.get(name).copied().unwrap_or(Made::Activation));
        let of_node = if looks_up { Made::Activation } else { made_from(&of_inputs.collect::<Vec<_>>()) };
        values.extend(node.outputs.iter().map(|name| (name.as_str(), of_node)));
        made.push(Some(of_node));
    }

    // A value of constants alone is exact where what it goes into is.
    let mut is_used_exactly: HashSet<&str> = HashSet::new();
    let mut precisions = vec![Precision::NotFloat; nodes.len()];
    for (place, node) in nodes.iter().enumerate().rev() {
        let Some(made) = made[place] else { continue };
        let makes_float = node.outputs.iter().any(|name| is_float(&name));
        let is_used = || node.outputs.iter().any(|name| is_used_exactly.contains(name.as_str()));
        precisions[place] = match made {
            Made::WholeNumbers => Precision::Exact,
            Made::Constants { .. } if !makes_float || is_used() => Precision::Exact,
            _ if computes_in(node, dtype, source.opset()) => Precision::Narrow,
            _ => Precision::Full,
        };
        if precisions[place] == Precision::Exact {
            is_used_exactly.extend(node.inputs.iter().map(String::as_str));
        }
    }
    precisions
}

fn made_from(inputs: &[Made]) -> Made {
    let is_large = inputs.contains(&Made::Constants { is_large: true });
    let has_whole = inputs.contains(&Made::WholeNumbers);
    match inputs {
        [] => Made::WholeNumbers,
        _ if inputs.contains(&Made::Activation) || has_whole && is_large => Made::Activation,
        _ if has_whole => Made::WholeNumbers,
        _ => Made::Constants { is_large },
    }
}
