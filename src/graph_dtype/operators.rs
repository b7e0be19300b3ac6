//! Knows which operators compute in f16 and bf16, and which of their inputs stay f32.
//!
//! An operator that is not known to have a type is left in f32, with a cast before and after it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::definition::Dtype;
use crate::onnx::proto::NodeProto;

/// By the name of a dtype and the version of the operator set: the operators' names, separated by spaces.
type Since = BTreeMap<String, BTreeMap<String, String>>;

static SINCE: LazyLock<Since> =
    LazyLock::new(|| toml::from_str(include_str!("operators.toml")).expect("the file is a part of the program"));

/// Whether the node may have inputs and outputs of `dtype`.
pub(super) fn computes_in(node: &NodeProto, dtype: Dtype, opset: i64) -> bool {
    // The mean and the deviation, where they are asked for, are f32 or bf16.
    if dtype == Dtype::F16 && node.op_type == "LayerNormalization" && node.outputs.len() > 1 {
        return false;
    }
    let is_in = |(since, names): (&String, &String)| {
        since.parse().is_ok_and(|since: i64| since <= opset)
            && names.split_ascii_whitespace().any(|name| name == node.op_type)
    };
    node.is_standard() && SINCE.get(dtype.name()).into_iter().flatten().any(is_in)
}

/// Whether the node's input at this place is f32 whatever the node computes in.
pub(super) fn input_stays_f32(node: &NodeProto, place: usize) -> bool {
    // Regions and scales; the values are the first input.
    node.op_type == "Resize" && place > 0
}

/// Whether the node takes or makes sequences of tensors, or tensors that may be absent.
pub(super) fn works_on_sequences(node: &NodeProto) -> bool {
    node.op_type.contains("Sequence") && node.op_type != "ReverseSequence" || node.op_type.starts_with("Optional")
}
