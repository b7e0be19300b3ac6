//! The plan of a graph: its steps in order, and how long each value is kept.
//!
//! Consecutive nodes that `candle-onnx` evaluates form a [`Segment`]; a node that an [`Operator`] computes is a step
//! alone. A value is dropped after the last step that reads it.

use std::collections::{BTreeSet, HashMap, HashSet};

use candle_core::{Error, Result, Tensor};
use candle_onnx::eval::get_tensor;
use candle_onnx::onnx::{GraphProto, NodeProto, ValueInfoProto};

use super::forms;
use super::graph::Segment;
use super::operator::{Operator, attribute, has_input, int, name_of};
use crate::backend::recorder::Recorder;
use crate::definition::CaseFailure;
use crate::run_data::OperatorCall;

/// `candle-onnx` keeps all values of a segment until its end: a longer one needs more memory, a shorter one more time.
const NODES_PER_SEGMENT: usize = 8;

pub struct Plan {
    constants: HashMap<String, Tensor>,
    steps: Vec<Step>,
    inputs: Vec<String>,
    outputs: Vec<String>,
    /// Notes the steps, each of which is then a single node.
    recorder: Option<Recorder>,
}

struct Step {
    work: Work,
    /// Its first node, for a recorder.
    node: OperatorCall,
    /// The values that it reads. For an operator, they are in its order, and an empty name stands for one that is left
    /// out.
    inputs: Vec<String>,
    /// Its own values that are read elsewhere.
    outputs: Vec<String>,
    /// The values that no later step reads.
    expired: Vec<String>,
}

enum Work {
    /// A segment, and whether its inputs have to be contiguous.
    Segment(Box<Segment>, bool),
    /// An operator and the names of its outputs, of which the step keeps those that are read.
    Own(Operator, Vec<String>),
}

impl Plan {
    /// Plans the evaluation of a graph; an output that nothing computes is an error.
    pub fn new(
        graph: &GraphProto,
        constants: &HashMap<String, Tensor>,
        recorder: Option<Recorder>,
    ) -> std::result::Result<Plan, CaseFailure> {
        let nodes_per_segment = if recorder.is_some() { 1 } else { NODES_PER_SEGMENT };
        let mut known: HashSet<&str> = graph.input.iter().map(|input| input.name.as_str()).collect();
        known.extend(constants.keys().map(String::as_str));
        let mut groups: Vec<(Vec<&NodeProto>, Option<Operator>)> = Vec::new();
        for node in needed_nodes(graph) {
            let operator = Operator::of(node, constants).or_else(|| forms::of(node, constants));
            let wrong = wrong_form(node).filter(|_| operator.is_none()).map(|form| (node, form));
            if let Some((NodeProto { op_type, .. }, form)) = wrong.or_else(|| wrong_in_subgraph(node, constants)) {
                return Err(CaseFailure::unsupported(format!("{op_type}: candle-onnx does not support {form}")));
            }
            match (operator, groups.last_mut()) {
                (None, Some((segment, None))) if segment.len() < nodes_per_segment && !takes_no_views(node) => {
                    segment.push(node);
                }
                (operator, _) => groups.push((vec![node], operator)),
            }
        }
        let mut planned = Vec::new();
        for (nodes, operator) in groups {
            let mut reads = BTreeSet::new();
            match &operator {
                Some(own) => {
                    reads.extend(own.reads(nodes[0]).iter().map(String::as_str).filter(|name| !name.is_empty()))
                }
                None => nodes.iter().for_each(|node| collect_reads(node, &mut reads)),
            }
            // A name that is not known yet belongs to the step itself, or to a subgraph of it.
            reads.retain(|name| known.contains(name));
            known.extend(nodes.iter().flat_map(|node| &node.output).map(String::as_str));
            planned.push((nodes, operator, reads));
        }
        let mut kept: HashSet<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
        if let Some(output) = kept.iter().find(|name| !known.contains(*name)) {
            return Err(CaseFailure::failed(format!("nothing computes the output {output:?}")));
        }
        // From the last step to the first: what is read later is kept.
        let mut steps = Vec::new();
        for (nodes, operator, reads) in planned.into_iter().rev() {
            let own = nodes.iter().flat_map(|node| &node.output);
            let outputs: Vec<String> = own.filter(|name| kept.contains(name.as_str())).cloned().collect();
            let inputs = match &operator {
                Some(own) => own.reads(nodes[0]).to_vec(),
                None => reads.iter().map(|&name| name.to_owned()).collect(),
            };
            let expired = reads.into_iter().filter(|&name| kept.insert(name)).map(str::to_owned).collect();
            let node = OperatorCall {
                node: name_of(nodes[0]),
                operator: nodes[0].op_type.clone(),
                kernel: Some(operator.as_ref().map_or("candle-onnx", |own| own.name).to_owned()),
                ..OperatorCall::default()
            };
            let work = match operator {
                Some(own) => Work::Own(own, nodes[0].output.clone()),
                None => {
                    let needs_copies = takes_no_views(nodes[0]);
                    Work::Segment(Box::new(Segment::new(nodes.into_iter().cloned().collect(), &outputs)), needs_copies)
                }
            };
            steps.push(Step { work, node, inputs, outputs, expired });
        }
        steps.reverse();
        let constants = constants.iter().filter(|(name, _)| kept.contains(name.as_str()));
        let constants = constants.map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
        let names = |values: &[ValueInfoProto]| values.iter().map(|value| value.name.clone()).collect();
        Ok(Plan { constants, steps, inputs: names(&graph.input), outputs: names(&graph.output), recorder })
    }

    /// Evaluates the graph, whose inputs and outputs are in its own order.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut values: HashMap<&str, Tensor> =
            self.inputs.iter().map(String::as_str).zip(inputs.iter().cloned()).collect();
        let find = |values: &HashMap<&str, Tensor>, name: &String| {
            let value = values.get(name.as_str()).or_else(|| self.constants.get(name));
            value.cloned().ok_or_else(|| Error::Msg(format!("no value {name:?}")))
        };
        for step in &self.steps {
            let compute = || step.compute(|name| find(&values, name));
            let computed = match &self.recorder {
                Some(recorder) => recorder.time(|| step.node.clone(), compute)?,
                None => compute()?,
            };
            values.extend(computed);
            for name in &step.expired {
                values.remove(name.as_str());
            }
        }
        self.outputs.iter().map(|name| find(&values, name)).collect()
    }

    /// The kinds of the nodes that an [`Operator`] computes.
    pub fn own_operators(&self) -> BTreeSet<&'static str> {
        let own = self.steps.iter().filter_map(|step| match &step.work {
            Work::Own(operator, _) => Some(operator.name),
            Work::Segment(..) => None,
        });
        own.collect()
    }
}

impl Step {
    /// Computes the outputs from the values of other steps.
    fn compute(&self, find: impl Fn(&String) -> Result<Tensor>) -> Result<Vec<(&str, Tensor)>> {
        match &self.work {
            Work::Segment(segment, needs_copies) => {
                let value = |name| if *needs_copies { find(name)?.contiguous() } else { find(name) };
                let given = || -> Result<HashMap<String, Tensor>> {
                    self.inputs.iter().map(|name| Ok((name.clone(), value(name)?))).collect()
                };
                let computed = segment.evaluate(given()?);
                let mut computed = computed.map_err(|error| segment.named(error, given()))?;
                Ok(self.outputs.iter().filter_map(|name| Some((name.as_str(), computed.remove(name)?))).collect())
            }
            Work::Own(operator, names) => {
                let input = |name: &String| if name.is_empty() { Ok(None) } else { find(name).map(Some) };
                let computed = operator.compute(&self.inputs.iter().map(input).collect::<Result<Vec<_>>>()?)?;
                let named = names.iter().map(String::as_str).zip(computed);
                Ok(named.filter(|(name, _)| self.outputs.iter().any(|own| own == name)).collect())
            }
        }
    }
}

/// The nodes that the outputs of a graph need, in its order.
pub fn needed_nodes(graph: &GraphProto) -> Vec<&NodeProto> {
    let mut read: BTreeSet<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
    let mut nodes = Vec::new();
    for node in graph.node.iter().rev() {
        if node.output.iter().any(|name| read.contains(name.as_str())) {
            collect_reads(node, &mut read);
            nodes.push(node);
        }
    }
    nodes.reverse();
    nodes
}

/// Whether `candle-onnx` computes the node only from contiguous values, which views may not be.
fn takes_no_views(node: &NodeProto) -> bool {
    ["MatMul", "Softmax", "LogSoftmax", "Gather", "GatherElements", "Pad"].contains(&node.op_type.as_str())
}

/// The property of a node that `candle-onnx` would compute wrongly.
pub fn wrong_form(node: &NodeProto) -> Option<&'static str> {
    match node.op_type.as_str() {
        "MaxPool" | "AveragePool" if int(node, "ceil_mode", 0) != 0 => Some("a size that is rounded up in this form"),
        "MaxPool" | "AveragePool" if attribute(node, "strides").is_none() => {
            Some("missing strides beside its other attributes")
        }
        "Resize" if attribute(node, "keep_aspect_ratio_policy").is_some_and(|policy| policy.s != b"stretch") => {
            Some("a size that keeps the ratio of height and width")
        }
        "ReduceMean" | "ReduceL2" if has_input(node, 1) => Some("axes that are computed"),
        "LSTM" => Some("this form, whose outputs it mixes up for several sequences"),
        "Gemm" if int(node, "transA", 0) != 0 => Some("a first matrix that is transposed"),
        "ScatterND" => {
            let reduction = &attribute(node, "reduction")?.s;
            (!matches!(reduction.as_slice(), b"none" | b"add")).then_some("this reduction")
        }
        _ => None,
    }
}

/// The first node in a node's subgraphs that `candle-onnx` would compute wrongly, and the property that causes this.
/// Subgraphs are evaluated by `candle-onnx` alone.
fn wrong_in_subgraph<'a>(
    node: &'a NodeProto,
    constants: &HashMap<String, Tensor>,
) -> Option<(&'a NodeProto, &'static str)> {
    for subgraph in node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs)) {
        let mut known = constants.clone();
        known.extend(subgraph.node.iter().filter_map(constant_of));
        let own = subgraph.initializer.iter();
        known.extend(own.filter_map(|it| Some((it.name.clone(), get_tensor(it, &it.name).ok()?))));
        for inner in &subgraph.node {
            let is_own_form = match inner.op_type.as_str() {
                // Except for rare numbers and sizes, `candle-onnx` computes these correctly or refuses them.
                "Cast" | "CumSum" | "Expand" | "GatherElements" | "Pow" | "Tile" => false,
                // A single computed axis is handled correctly.
                "Unsqueeze" if inner.input.get(1).is_some_and(|axes| !known.contains_key(axes)) => false,
                "ReduceMean" => has_input(inner, 1) || int(inner, "noop_with_empty_axes", 0) == 1,
                "ReduceL2" | "ReduceSum" => attribute(inner, "axes").is_some(),
                "Shape" => attribute(inner, "start").or(attribute(inner, "end")).is_some(),
                _ => forms::of(inner, &known).is_some(),
            };
            let form = if is_own_form { Some("this form in a subgraph") } else { wrong_form(inner) };
            let wrong = form.map(|form| (inner, form)).or_else(|| wrong_in_subgraph(inner, &known));
            if wrong.is_some() {
                return wrong;
            }
        }
    }
    None
}

/// The name and the value of a constant node's output.
fn constant_of(node: &NodeProto) -> Option<(String, Tensor)> {
    let value = attribute(node, "value").filter(|_| node.op_type == "Constant")?.t.as_ref()?;
    Some((node.output.first()?.clone(), get_tensor(value, &node.name).ok()?))
}

/// Collects the names that a node reads, including those read in its subgraphs, which see the values of the graph
/// around them.
fn collect_reads<'a>(node: &'a NodeProto, names: &mut BTreeSet<&'a str>) {
    names.extend(node.input.iter().map(String::as_str).filter(|name| !name.is_empty()));
    for attribute in &node.attribute {
        for subgraph in attribute.g.iter().chain(&attribute.graphs) {
            subgraph.node.iter().for_each(|inner| collect_reads(inner, names));
            names.extend(subgraph.output.iter().map(|output| output.name.as_str()));
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
