//! Reads ONNX Runtime's profile: which node of a graph ran on which provider, in which element type, and for how long.
//!
//! The file is a list of events in the Trace Event Format. An event of category `Node` whose name ends with
//! `_kernel_time` is one execution of one node.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::backend::interface::Trace;
use crate::definition::{CaseFailure, Dtype};
use crate::run_data::OperatorCall;

/// The end of the names of events that are executions of nodes.
const KERNEL_TIME: &str = "_kernel_time";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    cat: String,
    name: String,
    /// When it began and how long it took, in microseconds.
    ts: u64,
    dur: u64,
    args: Arguments,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Arguments {
    op_name: String,
    provider: String,
    /// One object per input: its element type, and its shape.
    input_type_shape: Vec<BTreeMap<String, serde_json::Value>>,
    /// A number, as text.
    mem_bytes_in_use: Option<String>,
    #[serde(deserialize_with = "scheduling")]
    thread_scheduling_stats: Option<Scheduling>,
}

/// The work of the thread pool for a node.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Scheduling {
    main_thread: MainThread,
}

/// Reads the statistics, which are an empty text if there is no thread pool.
fn scheduling<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Scheduling>, D::Error> {
    Ok(Scheduling::deserialize(serde_json::Value::deserialize(deserializer)?).ok())
}

/// Microseconds of the thread that called the session.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct MainThread {
    distribution: u64,
    run: u64,
    wait: u64,
}

/// The operators of one run of a graph; their starts count from the start of the run.
pub type GraphRun = Vec<OperatorCall>;

/// Parts of the names of operators that compute products, such as `FusedMatMul` and `MultiHeadAttention`. Other
/// operators do not show the dtype of a model: every model computes shapes and masks in integers.
const PRODUCTS: [&str; 9] = ["Attention", "Conv", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "MoE", "RNN"];

/// Parts of the names of operators with quantised weights, whatever the element type of their first input: some
/// quantise it themselves. Four-bit weights count as i8 too, the only integer dtype of a case.
const QUANTISED: [&str; 4] = ["Bnb4", "DynamicQuantize", "Integer", "NBits"];

/// Operators that contain graphs, whose nodes have events too.
const AROUND_GRAPHS: [&str; 7] = ["BeamSearch", "GreedySearch", "If", "Loop", "Sampling", "Scan", "WhisperBeamSearch"];

/// Reads the profiles of a session on `provider` from a folder with a subfolder per graph.
pub fn read(folder: &Path, provider: &str) -> anyhow::Result<Trace> {
    let mut trace = Trace { asked_for: provider.into(), ..Trace::default() };
    for graph in fs_err::read_dir(folder)? {
        profiles(&graph?.path())?.into_iter().for_each(|events| add(events, &mut trace));
    }
    ensure!(!trace.nodes.is_empty(), "{}: the profile names no node", folder.display());
    Ok(trace)
}

/// Reads the runs of a graph, in order, from the profile in its folder.
pub fn read_runs(folder: &Path) -> anyhow::Result<Vec<GraphRun>> {
    Ok(profiles(folder)?.into_iter().flat_map(runs_of).collect())
}

/// The events of each profile of a folder.
fn profiles(folder: &Path) -> anyhow::Result<Vec<Vec<Event>>> {
    let events = |entry: std::io::Result<fs_err::DirEntry>| {
        let path = entry?.path();
        serde_json::from_slice(&fs_err::read(&path)?).with_context(|| path.display().to_string())
    };
    fs_err::read_dir(folder)?.map(events).collect()
}

fn runs_of(mut events: Vec<Event>) -> Vec<GraphRun> {
    let is_around = |args: &Arguments| AROUND_GRAPHS.contains(&args.op_name.as_str());
    // An operator around a graph comes before the first node within it, which may begin in the same microsecond.
    let longest_around = |event: &Event| Reverse(if is_around(&event.args) { event.dur } else { 0 });
    events.sort_by_key(|event| (event.ts, longest_around(event)));
    let is_run = |event: &&Event| event.cat == "Session" && event.name == "model_run";
    let mut runs: Vec<(u64, u64, GraphRun)> =
        events.iter().filter(is_run).map(|run| (run.ts, run.ts + run.dur, Vec::new())).collect();
    // The operators around graphs that are still running: the place of each in its run, and its end.
    let mut open: Vec<(usize, u64)> = Vec::new();
    for Event { cat, name, ts, dur, args } in events {
        let Some(node) = name.strip_suffix(KERNEL_TIME).filter(|_| cat == "Node") else { continue };
        let place = runs.partition_point(|(begin, ..)| *begin <= ts);
        let Some((begin, end, run)) = place.checked_sub(1).map(|place| &mut runs[place]) else { continue };
        if ts > *end {
            continue;
        }
        open.retain(|(_, end)| ts < *end);
        if let Some(outer) = open.last().and_then(|(place, _)| run.get_mut(*place)) {
            outer.duration_ns = outer.duration_ns.saturating_sub(dur * 1000);
        }
        if is_around(&args) {
            open.push((run.len(), ts + dur));
        }
        let threads = args.thread_scheduling_stats.unwrap_or_default().main_thread;
        let all = threads.distribution + threads.run + threads.wait;
        run.push(OperatorCall {
            node: node.into(),
            operator: args.op_name,
            kernel: args.provider.strip_suffix("ExecutionProvider").map(str::to_owned),
            start_ns: Some((ts - *begin) * 1000),
            duration_ns: dur * 1000,
            memory_bytes: args.mem_bytes_in_use.and_then(|bytes| bytes.parse().ok()),
            busy_fraction: (all > 0).then(|| threads.run as f64 / all as f64),
            ..OperatorCall::default()
        });
    }
    runs.into_iter().map(|(_, _, run)| run).collect()
}

fn add(events: Vec<Event>, trace: &mut Trace) {
    let mut seen = BTreeSet::new();
    for Event { cat, name, args, .. } in events {
        // A node may run more than once, as in a loop.
        if cat != "Node" || !name.ends_with(KERNEL_TIME) || !seen.insert(name) {
            continue;
        }
        if let Some(dtype) = dtype_of_product(&args) {
            trace.products.entry(dtype).or_default().insert(args.op_name.clone());
        }
        *trace.nodes.entry(args.provider).or_default().entry(args.op_name).or_default() += 1;
    }
}

/// Checks that ONNX Runtime's operator for weights in blocks ran, and notes its dtype, which is the one that the graph
/// sets for the activations.
///
/// # Errors
/// `unsupported`: no such operator ran.
pub fn note_blocks(trace: &mut Trace, dtype: Dtype) -> Result<(), CaseFailure> {
    const OPERATOR: &str = "MatMulNBits";
    let quantised = trace.products.entry(Some(Dtype::I8)).or_default();
    if !quantised.remove(OPERATOR) {
        let others: Vec<&str> = trace.products.values().flatten().map(String::as_str).collect();
        return Err(CaseFailure::unsupported(format!("ONNX Runtime ran no {OPERATOR}, but {}", others.join(", "))));
    }
    trace.products.retain(|_, operators| !operators.is_empty());
    trace.products.entry(Some(dtype)).or_default().insert(OPERATOR.into());
    Ok(())
}

/// The dtype in which an operator computes products. The inner `None` is an element type that is not a [`Dtype`]; the
/// outer `None` means that the operator computes no products.
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
            add(serde_json::from_value(events).unwrap(), &mut trace);
            assert_eq!(trace.products_not_in(Dtype::I8), None, "{operator}");
            assert_eq!(trace.products_not_in(Dtype::F32), Some((Dtype::I8, vec![operator])));
        }
    }

    #[test]
    fn nodes_belong_to_the_run_during_which_they_ran() {
        let event = |cat: &str, name: &str, ts: u64, dur: u64| {
            let threads = serde_json::json!({ "main_thread": { "Distribution": 1, "Run": 3, "Wait": 4, "core": 0 } });
            serde_json::json!({ "cat": cat, "name": name, "ts": ts, "dur": dur, "args": { "op_name": "Conv",
                "provider": "CPUExecutionProvider", "mem_bytes_in_use": "77", "thread_scheduling_stats": threads } })
        };
        let events = serde_json::json!([
            event("Node", "early_kernel_time", 10, 1),
            event("Node", "b_kernel_time", 230, 5),
            event("Session", "model_run", 100, 50),
            event("Session", "model_run", 200, 60),
            event("Node", "a_kernel_time", 120, 7),
            event("Node", "a_fence_before", 110, 7),
            event("Node", "late_kernel_time", 170, 1),
        ]);
        let on_one_thread = serde_json::json!([{ "args": { "thread_scheduling_stats": "" } }]);
        assert!(runs_of(serde_json::from_value(on_one_thread).unwrap()).is_empty());
        let runs = runs_of(serde_json::from_value(events).unwrap());
        let a = OperatorCall {
            node: "a".into(),
            operator: "Conv".into(),
            kernel: Some("CPU".into()),
            start_ns: Some(20_000),
            duration_ns: 7_000,
            memory_bytes: Some(77),
            busy_fraction: Some(0.375),
            ..OperatorCall::default()
        };
        assert_eq!(runs[0], [a]);
        assert_eq!((runs.len(), runs[1].len(), runs[1][0].start_ns), (2, 1, Some(30_000)));
    }

    #[test]
    fn an_operator_around_a_graph_is_without_the_nodes_within() {
        let event = |name: &str, operator: &str, ts: u64, dur: u64| {
            let cat = if operator.is_empty() { "Session" } else { "Node" };
            serde_json::json!({ "cat": cat, "name": name, "ts": ts, "dur": dur, "args": { "op_name": operator } })
        };
        // In the order in which they end.
        let events = serde_json::json!([
            event("gemm_kernel_time", "Gemm", 20, 30),
            event("add_kernel_time", "Add", 50, 10),
            event("if_kernel_time", "If", 20, 45),
            event("loop_kernel_time", "Loop", 20, 60),
            event("relu_kernel_time", "Relu", 80, 5),
            event("model_run", "", 10, 100),
        ]);
        let runs = runs_of(serde_json::from_value(events).unwrap());
        let times: Vec<_> = runs[0].iter().map(|it| (it.node.as_str(), it.duration_ns / 1000)).collect();
        assert_eq!(times, [("loop", 15), ("if", 5), ("gemm", 30), ("add", 10), ("relu", 5)]);
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
        let folder = tempfile::tempdir().unwrap();
        for graph in ["0", "1"].map(|graph| folder.path().join(graph)) {
            std::fs::create_dir(&graph).unwrap();
            std::fs::write(graph.join("profile"), events.to_string()).unwrap();
        }
        let trace = read(folder.path(), "GPU").unwrap();
        assert_eq!((trace.share(), trace.nodes["GPU"]["Conv"]), (2.0 / 3.0, 4), "of both graphs");
        assert_eq!(trace.elsewhere(), ["Gather on CPU"]);
        assert_eq!(trace.products_not_in(Dtype::F16), None);
        assert_eq!(trace.products_not_in(Dtype::Bf16), Some((Dtype::F16, vec!["Conv"])));
        std::fs::write(folder.path().join("0/cut"), "[{\"cat\"").unwrap();
        assert!(read(folder.path(), "GPU").is_err());
    }
}
