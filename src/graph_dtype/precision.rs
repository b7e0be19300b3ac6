//! Decides which nodes of a graph compute in the narrow type and which stay in f32.
//!
//! Values that are computed from whole numbers (positions, distances, masks) stay in f32 until they meet an activation
//! of the model: f16 cannot hold 2049, and the sine of a rounded position is wrong. Libraries compute these in f32 as
//! well, and it is little work.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::LazyLock;

use super::draft::Draft;
use crate::definition::Dtype;
use crate::onnx::proto::{NodeProto, TensorProto};

/// Constants with more elements than this are weights, and not numbers of a formula.
const FORMULA: u64 = 1024;

/// Operators whose constants are weights, however few they are.
const WEIGHTED: [&str; 6] = ["Conv", "ConvTranspose", "Gemm", "GRU", "LSTM", "RNN"];

/// How a node computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Precision {
    Narrow,
    /// In f32, since the operator has no other type.
    Full,
    /// In f32, since it computes with whole numbers, or from them.
    Exact,
}

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Made {
    /// Computed from the model's inputs, or with weights.
    Activation,
    WholeNumbers,
    Constants {
        is_large: bool,
    },
}

/// The precision of each node.
pub(super) fn precisions(draft: &Draft<'_>, dtype: Dtype) -> Vec<Precision> {
    let graph = &draft.source.graph;
    let is_float = |name: &&String| draft.is_float(name);
    let constant =
        |tensor: &TensorProto| Made::Constants { is_large: tensor.elements().is_none_or(|count| count > FORMULA) };
    let mut values: HashMap<&str, Made> =
        graph.initializers.iter().map(|tensor| (tensor.name.as_str(), constant(tensor))).collect();
    let mut made: Vec<Made> = Vec::new();
    for node in &graph.nodes {
        let inputs = || node.inputs.iter().filter(is_float).map(String::as_str);
        let has_weights = node.op_type.starts_with("Gather") || WEIGHTED.contains(&node.op_type.as_str());
        let has_weights = has_weights && inputs().any(|name| draft.places.contains_key(name));
        let of_inputs = inputs().map(|name| values.get(name).copied().unwrap_or(Made::Activation));
        let of_node = if has_weights { Made::Activation } else { made_from(&of_inputs.collect::<Vec<_>>()) };
        values.extend(node.outputs.iter().map(|name| (name.as_str(), of_node)));
        made.push(of_node);
    }

    // A value of constants alone is exact if a node that uses it is exact.
    let mut is_used_exactly: HashSet<&str> = HashSet::new();
    let mut precisions = vec![Precision::Exact; graph.nodes.len()];
    for (place, node) in graph.nodes.iter().enumerate().rev() {
        let makes_float = node.outputs.iter().any(|name| is_float(&name));
        let is_used = || node.outputs.iter().any(|name| is_used_exactly.contains(name.as_str()));
        precisions[place] = match made[place] {
            Made::WholeNumbers => Precision::Exact,
            Made::Constants { .. } if !makes_float || is_used() => Precision::Exact,
            _ if computes_in(node, dtype, draft.source.opset()) => Precision::Narrow,
            _ => Precision::Full,
        };
        if precisions[place] == Precision::Exact {
            is_used_exactly.extend(node.inputs.iter().map(String::as_str));
        }
    }
    precisions
}

/// By dtype and opset: the names of the operators that have the dtype since that opset, separated by spaces.
type Since = BTreeMap<String, BTreeMap<String, String>>;

static SINCE: LazyLock<Since> =
    LazyLock::new(|| toml::from_str(include_str!("operators.toml")).expect("the file is a part of the program"));

/// Whether the node may have inputs and outputs of `dtype`. An operator that is not known to have the type is left in
/// f32, with a cast before and after it.
fn computes_in(node: &NodeProto, dtype: Dtype, opset: i64) -> bool {
    // The optional outputs, the mean and the deviation, are f32 or bf16.
    if dtype == Dtype::F16 && node.op_type == "LayerNormalization" && node.outputs.len() > 1 {
        return false;
    }
    let is_in = |(since, names): (&String, &String)| {
        since.parse().is_ok_and(|since: i64| since <= opset)
            && names.split_ascii_whitespace().any(|name| name == node.op_type)
    };
    node.is_standard() && SINCE.get(dtype.name()).into_iter().flatten().any(is_in)
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
