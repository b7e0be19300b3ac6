//! ONNX Runtime's own profile: which node of a graph ran on which provider, and in which element type.
//!
//! The file is a list of events in the Trace Event Format. An event of category `Node` whose name ends with
//! `_kernel_time` is one execution of one node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use crate::backend::Trace;
use crate::definition::Dtype;

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    args: Arguments,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Arguments {
    op_name: String,
    provider: String,
    /// An object an input: its element type, and its shape.
    input_type_shape: Vec<BTreeMap<String, serde_json::Value>>,
}

/// Operators whose element type is that of the model; shapes and masks are computed in integers everywhere.
const PRODUCTS: [&str; 14] = [
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "FusedConv",
    "FusedGemm",
    "FusedMatMul",
    "Gemm",
    "MatMul",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "NhwcFusedConv",
    "QGemm",
    "QLinearConv",
    "QLinearMatMul",
];

/// What the profiles of a folder say about a session that was to run on `provider`.
///
/// # Errors
/// A file is no profile, or there is none.
pub fn read(folder: &Path, provider: &str) -> Result<Trace, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
    let mut trace = Trace { asked_for: provider.into(), ..Trace::default() };
    for entry in std::fs::read_dir(folder).map_err(|error| named(&error))? {
        let bytes = entry.and_then(|entry| std::fs::read(entry.path())).map_err(|error| named(&error))?;
        add(&bytes, &mut trace).map_err(|error| named(&error))?;
    }
    if trace.nodes.is_empty() {
        return Err(named(&"the profile names no node"));
    }
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
        if PRODUCTS.contains(&args.op_name.as_str()) {
            let first = args.input_type_shape.first().and_then(|input| input.keys().next());
            let dtype = first.and_then(|element| match element.as_str() {
                "float" => Some(Dtype::F32),
                "float16" => Some(Dtype::F16),
                "bfloat16" => Some(Dtype::Bf16),
                "int8" | "uint8" => Some(Dtype::I8),
                _ => None,
            });
            trace.products.entry(dtype).or_default().insert(args.op_name.clone());
        }
        *trace.nodes.entry(args.provider).or_default().entry(args.op_name).or_default() += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
