//! Reads ONNX Runtime's profile: which node of a graph ran on which provider, and in which element type.
//!
//! The file is a list of events in the Trace Event Format. An event of category `Node` whose name ends with
//! `_kernel_time` is one execution of one node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::backend::interface::Trace;
use crate::definition::Dtype;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    cat: String,
    name: String,
    args: Arguments,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Arguments {
    op_name: String,
    provider: String,
    /// One object per input: its element type, and its shape.
    input_type_shape: Vec<BTreeMap<String, serde_json::Value>>,
}

/// What is in the names of operators that compute products, such as `FusedMatMul` and `MultiHeadAttention`. The other
/// operators do not tell the dtype of a model: every model computes shapes and masks in integers.
const PRODUCTS: [&str; 9] = ["Attention", "Conv", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "MoE", "RNN"];

/// What is in the names of those whose weights are quantised, whatever the element type of their first input is: some quantise
/// it themselves. Weights of four bits count as i8 too, which is the only integer dtype of a case.
const QUANTISED: [&str; 4] = ["Bnb4", "DynamicQuantize", "Integer", "NBits"];

/// Reads the profiles of a folder, which a session on `provider` has written.
pub fn read(folder: &Path, provider: &str) -> anyhow::Result<Trace> {
    let mut trace = Trace { asked_for: provider.into(), ..Trace::default() };
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        add(&fs_err::read(&path)?, &mut trace).with_context(|| path.display().to_string())?;
    }
    ensure!(!trace.nodes.is_empty(), "{}: the profile names no node", folder.display());
    Ok(trace)
}

fn add(bytes: &[u8], trace: &mut Trace) -> Result<(), serde_json::Error> {
    let events: Vec<Event> = serde_json::from_slice(bytes)?;
    let mut seen = BTreeSet::new();
    for Event { cat, name, args } in events {
        // A node may run more than once, as in a loop.
        if cat != "Node" || !name.ends_with("_kernel_time") || !seen.insert(name) {
            continue;
        }
        if let Some(dtype) = dtype_of_product(&args) {
            trace.products.entry(dtype).or_default().insert(args.op_name.clone());
        }
        *trace.nodes.entry(args.provider).or_default().entry(args.op_name).or_default() += 1;
    }
    Ok(())
}

/// What an operator computes products in, where the inner `None` is an element type that is no [`Dtype`]. Returns `None` if
/// the operator computes no products.
fn dtype_of_product(node: &Arguments) -> Option<Option<Dtype>> {
    let has = |words: &[&str]| words.iter().any(|word| node.op_name.contains(word));
    if !has(&PRODUCTS) {
        return None;
    }
    if node.op_name.starts_with('Q') || has(&QUANTISED) {
        return Some(Some(Dtype::I8));
    }
    let first = node.input_type_shape.first().and_then(|input| input.keys().next())?;
    Some(match first.as_str() {
        "float" => Some(Dtype::F32),
        "float16" => Some(Dtype::F16),
        "bfloat16" => Some(Dtype::Bf16),
        "int8" | "uint8" => Some(Dtype::I8),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_with_quantised_weights_are_i8_whatever_their_first_input_is() {
        for operator in ["DynamicQuantizeMatMul", "QAttention", "MatMulNBits", "QLinearConv"] {
            let events = serde_json::json!([
                { "cat": "Node", "name": "a_kernel_time", "args": { "op_name": operator,
                    "provider": "CPU", "input_type_shape": [{ "float": [1, 2] }] } },
                { "cat": "Node", "name": "b_kernel_time", "args": { "op_name": "MatMul",
                    "provider": "CPU", "input_type_shape": [{ "float": [1, 2] }] } },
            ]);
            let mut trace = Trace::default();
            add(events.to_string().as_bytes(), &mut trace).unwrap();
            assert_eq!(trace.products_not_in(Dtype::I8), None, "{operator}");
            assert_eq!(trace.products_not_in(Dtype::F32), Some((Dtype::I8, vec![operator])));
        }
    }

    #[test]
    fn a_profile_says_what_ran_where_and_in_what() {
        let event = |name: &str, operator: &str, provider: &str, element: &str| {
            serde_json::json!({ "cat": "Node", "name": format!("{name}_kernel_time"), "dur": 3, "args": {
                "op_name": operator, "provider": provider, "input_type_shape": [{ element: [1, 2] }] } })
        };
        let events = serde_json::json!([
            { "cat": "Session", "name": "model_loading", "args": {} },
            event("a", "Conv", "GPU", "float16"),
            event("a", "Conv", "GPU", "float16"),
            event("b", "Conv", "GPU", "float16"),
            event("c", "Gather", "CPU", "int64"),
            { "cat": "Node", "name": "a_fence_before", "args": { "op_name": "Conv" } },
        ]);
        let mut trace = Trace { asked_for: "GPU".into(), ..Trace::default() };
        add(events.to_string().as_bytes(), &mut trace).unwrap();
        assert_eq!(trace.share(), 2.0 / 3.0);
        assert_eq!(trace.elsewhere(), ["Gather on CPU"]);
        assert_eq!(trace.products_not_in(Dtype::F16), None);
        assert_eq!(trace.products_not_in(Dtype::Bf16), Some((Dtype::F16, vec!["Conv"])));
        assert!(add(b"[{\"cat\"", &mut trace).is_err());
    }
}
