//! Decides which nodes of a graph compute in the narrow type and which stay in f32.
//!
//! Values that are computed from whole numbers (positions, distances, masks) stay in f32 until they meet an activation of
//! the model: f16 has no 2049, and the sine of a rounded position is another number. Libraries compute these in f32 as
//! well, and it is little work.

use std::collections::HashMap;

use super::operators::computes_in;
use crate::definition::Dtype;
use crate::onnx::proto::{NodeProto, element};
use crate::onnx::{Source, floats};

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
    /// In f32, since it is computed from whole numbers; `is_wide` where values may be beyond the narrow type.
    Exact {
        is_wide: bool,
    },
}

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Made {
    /// Weights with what a user gives.
    Activation,
    WholeNumbers {
        is_wide: bool,
    },
    Constants {
        is_large: bool,
        is_wide: bool,
    },
}

/// The precision of each node.
pub(super) fn precisions(
    source: &Source,
    nodes: &[NodeProto],
    types: &HashMap<String, i32>,
    dtype: Dtype,
    largest: f32,
) -> Vec<Precision> {
    let is_float = |name: &&String| !name.is_empty() && types.get(*name) == Some(&element::FLOAT);
    let mut values: HashMap<&str, Made> = source
        .graph
        .initializers
        .iter()
        .map(|tensor| {
            let is_large = tensor.elements().is_none_or(|elements| elements > FORMULA);
            // The writer reports missing data.
            let bytes = (!is_large && tensor.data_type == element::FLOAT).then(|| source.float_bytes(tensor).ok());
            let is_beyond = |value: f32| value.is_finite() && value.abs() > largest;
            let is_wide = bytes.flatten().is_some_and(|bytes| floats(bytes.as_slice()).any(is_beyond));
            (tensor.name.as_str(), Made::Constants { is_large, is_wide })
        })
        .collect();
    let constants = values.clone();
    let made: Vec<Option<Made>> = nodes
        .iter()
        .map(|node| {
            let inputs: Vec<&String> = node.inputs.iter().filter(is_float).collect();
            if inputs.is_empty() && !node.outputs.iter().any(|name| is_float(&name)) {
                return None;
            }
            let looks_up =
                node.op_type.starts_with("Gather") && inputs.iter().any(|name| constants.contains_key(name.as_str()));
            let of_inputs = inputs.iter().map(|name| values.get(name.as_str()).copied().unwrap_or(Made::Activation));
            let made = match looks_up {
                true => Made::Activation,
                false => made_from(node, of_inputs.collect(), largest),
            };
            values.extend(node.outputs.iter().map(|name| (name.as_str(), made)));
            Some(made)
        })
        .collect();

    // A value of constants alone is exact where what it goes into is.
    let mut is_used_exactly: HashMap<&str, bool> = HashMap::new();
    let mut precisions = vec![Precision::NotFloat; nodes.len()];
    for (place, node) in nodes.iter().enumerate().rev() {
        let Some(made) = made[place] else { continue };
        let makes_float = node.outputs.iter().any(|name| is_float(&name));
        let is_used = || node.outputs.iter().any(|name| is_used_exactly.get(name.as_str()).copied().unwrap_or(false));
        precisions[place] = match made {
            Made::WholeNumbers { is_wide } => Precision::Exact { is_wide },
            Made::Constants { is_wide, .. } if !makes_float || is_used() => Precision::Exact { is_wide },
            _ if computes_in(node, dtype, source.opset()) => Precision::Narrow,
            _ => Precision::Full,
        };
        if matches!(precisions[place], Precision::Exact { .. }) {
            is_used_exactly.extend(node.inputs.iter().map(|name| (name.as_str(), true)));
        }
    }
    precisions
}

fn made_from(node: &NodeProto, inputs: Vec<Made>, largest: f32) -> Made {
    let wide = |made: &Made| match made {
        Made::Activation => false,
        Made::WholeNumbers { is_wide } | Made::Constants { is_wide, .. } => *is_wide,
    };
    let is_bounded = matches!(node.op_type.as_str(), "Sin" | "Cos" | "Tanh" | "Sigmoid" | "Softmax");
    let is_wide = !is_bounded && (inputs.iter().any(wide) || fills_beyond(node, largest));
    let is_large = inputs.iter().any(|made| matches!(made, Made::Constants { is_large: true, .. }));
    let has_whole = inputs.iter().any(|made| matches!(made, Made::WholeNumbers { .. }));
    match inputs.as_slice() {
        [] => Made::WholeNumbers { is_wide },
        _ if inputs.contains(&Made::Activation) || has_whole && is_large => Made::Activation,
        _ if has_whole => Made::WholeNumbers { is_wide },
        _ => Made::Constants { is_large, is_wide },
    }
}

/// Whether the node fills a tensor with a number beyond `largest`.
fn fills_beyond(node: &NodeProto, largest: f32) -> bool {
    let Some(value) = node.attribute("value").and_then(|attribute| attribute.t.as_ref()) else { return false };
    let raw = value.raw_data.as_deref().unwrap_or_default();
    value.data_type == element::FLOAT
        && value.float_data.iter().copied().chain(floats(raw)).any(|value| value.is_finite() && value.abs() > largest)
}
