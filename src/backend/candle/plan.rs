//! The plan of a graph: the order of its steps, and how long each value is kept.
//!
//! Consecutive nodes that `candle-onnx` evaluates form a segment, a small model of its own; a node that an
//! [`Operator`] computes is a step alone. A value is dropped after the last step that reads it.

use std::collections::{BTreeSet, HashMap, HashSet};

use candle_core::{Result, Tensor};
use candle_onnx::onnx::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

use super::operator::Operator;
use crate::definition::CaseFailure;

/// `candle-onnx` keeps all values of a segment until its end: a longer one needs more memory, a shorter one more time.
const NODES_PER_SEGMENT: usize = 8;

/// A graph, ready to run.
pub struct Plan {
    /// A graph without nodes, with which `candle-onnx` checks the inputs.
    inputs: ModelProto,
    /// The slot of each value, by name.
    slots: HashMap<String, usize>,
    /// The values before the first step: the constants.
    initial: Vec<Option<Tensor>>,
    steps: Vec<Step>,
    outputs: Vec<Value>,
}

struct Step {
    work: Work,
    /// The slots that no later step reads.
    expired: Vec<usize>,
}

enum Work {
    Segment { model: Box<ModelProto>, inputs: Vec<Value>, outputs: Vec<Value> },
    Own { operator: Operator, input: Value, output: usize },
}

/// A value's name and slot.
type Value = (String, usize);

/// The nodes of a step, before the reads of later steps are known.
enum Group<'a> {
    Segment(Vec<&'a NodeProto>),
    Own(&'a NodeProto, Operator),
}

impl<'a> Group<'a> {
    fn nodes(&self) -> &[&'a NodeProto] {
        match self {
            Group::Segment(nodes) => nodes,
            Group::Own(node, _) => std::slice::from_ref(node),
        }
    }

    /// The values that it needs from other groups.
    fn reads(&self) -> BTreeSet<&'a str> {
        match self {
            Group::Segment(nodes) => {
                let mut names = BTreeSet::new();
                let mut written = HashSet::new();
                for node in nodes {
                    let mut of_node = BTreeSet::new();
                    collect_reads(node, &mut of_node);
                    names.extend(of_node.into_iter().filter(|name| !written.contains(name)));
                    written.extend(node.output.iter().map(String::as_str));
                }
                names
            }
            // The other inputs are constants, which the operator holds.
            Group::Own(node, _) => BTreeSet::from([node.input[0].as_str()]),
        }
    }

    fn writes(&self) -> impl Iterator<Item = &'a str> {
        let names = self.nodes().iter().flat_map(|node| &node.output);
        names.map(String::as_str).filter(|name| !name.is_empty())
    }
}

/// Collects the names that a node reads, also in its subgraphs, which see the values of the graph around them.
fn collect_reads<'a>(node: &'a NodeProto, names: &mut BTreeSet<&'a str>) {
    names.extend(node.input.iter().map(String::as_str).filter(|name| !name.is_empty()));
    for attribute in &node.attribute {
        for subgraph in attribute.g.iter().chain(&attribute.graphs) {
            subgraph.node.iter().for_each(|inner| collect_reads(inner, names));
            names.extend(subgraph.output.iter().map(|output| output.name.as_str()));
        }
    }
}

impl Plan {
    /// Plans the evaluation of a graph.
    ///
    /// # Errors
    /// The graph has an output that nothing computes.
    pub fn new(graph: &GraphProto, constants: &HashMap<String, Tensor>) -> std::result::Result<Plan, CaseFailure> {
        let groups = group(&graph.node, constants);
        let is_output: HashSet<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();

        let mut last_use: HashMap<&str, usize> = HashMap::new();
        for (index, group) in groups.iter().enumerate() {
            last_use.extend(group.reads().into_iter().chain(group.writes()).map(|name| (name, index)));
        }
        let mut slots: HashMap<String, usize> = HashMap::new();
        let inputs = graph.input.iter().map(|input| input.name.as_str());
        let kept = |name: &&str| last_use.contains_key(name) || is_output.contains(name);
        let needed_constants: Vec<&str> = constants.keys().map(String::as_str).filter(kept).collect();
        let written = groups.iter().flat_map(Group::writes);
        for name in inputs.chain(needed_constants.iter().copied()).chain(written) {
            let next = slots.len();
            slots.entry(name.to_owned()).or_insert(next);
        }
        let mut initial = vec![None; slots.len()];
        for name in needed_constants {
            initial[slots[name]] = constants.get(name).cloned();
        }
        let value = |name: &str| slots.get(name).map(|&slot| (name.to_owned(), slot));

        let mut steps = Vec::new();
        for (index, group) in groups.into_iter().enumerate() {
            let (reads, writes) = (group.reads(), group.writes().collect::<BTreeSet<_>>());
            let touched = reads.union(&writes).copied();
            let expired = touched.filter(|name| last_use[name] == index && !is_output.contains(name));
            let expired = expired.filter(|&name| !constants.contains_key(name));
            let expired = expired.filter_map(|name| slots.get(name).copied()).collect();
            let work = match group {
                Group::Segment(nodes) => {
                    let outlives = |name: &&str| last_use[name] > index || is_output.contains(name);
                    let outputs: Vec<Value> = writes.into_iter().filter(outlives).filter_map(value).collect();
                    let model = Box::new(small_model(nodes, &outputs));
                    Work::Segment { model, inputs: reads.into_iter().filter_map(value).collect(), outputs }
                }
                Group::Own(node, operator) => {
                    let nothing = || CaseFailure::failed(format!("nothing computes {:?}", node.input[0]));
                    let input = value(&node.input[0]).ok_or_else(nothing)?;
                    Work::Own { operator, input, output: slots[&node.output[0]] }
                }
            };
            steps.push(Step { work, expired });
        }
        let outputs = graph.output.iter().map(|output| {
            value(&output.name)
                .ok_or_else(|| CaseFailure::failed(format!("nothing computes the output {:?}", output.name)))
        });
        let outputs = outputs.collect::<std::result::Result<_, _>>()?;
        let inputs = GraphProto { input: graph.input.clone(), ..GraphProto::default() };
        let inputs = ModelProto { graph: Some(inputs), ..ModelProto::default() };
        Ok(Plan { inputs, slots, initial, steps, outputs })
    }

    /// Compares the inputs with the declarations of the graph.
    ///
    /// # Errors
    /// An input is missing, or its shape or dtype differs.
    pub fn check_inputs(&self, inputs: &[(String, Tensor)]) -> Result<()> {
        candle_onnx::simple_eval(&self.inputs, inputs.iter().cloned().collect()).map(drop)
    }

    /// Evaluates the graph: its outputs by name.
    ///
    /// # Errors
    /// A node cannot be evaluated.
    pub fn run(&self, inputs: &[(String, Tensor)]) -> Result<HashMap<String, Tensor>> {
        let mut values = self.initial.clone();
        for (name, tensor) in inputs {
            if let Some(&slot) = self.slots.get(name) {
                values[slot] = Some(tensor.clone());
            }
        }
        for step in &self.steps {
            match &step.work {
                Work::Segment { model, inputs, outputs } => {
                    let given = inputs.iter().filter_map(|(name, slot)| Some((name.clone(), values[*slot].clone()?)));
                    let mut computed = candle_onnx::simple_eval(model, given.collect())?;
                    for (name, slot) in outputs {
                        values[*slot] = computed.remove(name);
                    }
                }
                Work::Own { operator, input, output } => {
                    values[*output] = Some(operator.apply(present(&values, input)?)?);
                }
            }
            for &slot in &step.expired {
                values[slot] = None;
            }
        }
        self.outputs.iter().map(|output| Ok((output.0.clone(), present(&values, output)?.clone()))).collect()
    }

    /// The kinds of the nodes that an [`Operator`] computes.
    pub fn own_operators(&self) -> Vec<&'static str> {
        let own = self.steps.iter().filter_map(|step| match &step.work {
            Work::Own { operator, .. } => Some(operator.name()),
            Work::Segment { .. } => None,
        });
        own.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

fn group<'a>(nodes: &'a [NodeProto], constants: &HashMap<String, Tensor>) -> Vec<Group<'a>> {
    let mut groups = Vec::new();
    for node in nodes {
        if let Some(operator) = Operator::of(node, constants) {
            groups.push(Group::Own(node, operator));
            continue;
        }
        match groups.last_mut() {
            Some(Group::Segment(segment)) if segment.len() < NODES_PER_SEGMENT => segment.push(node),
            _ => groups.push(Group::Segment(vec![node])),
        }
    }
    groups
}

fn small_model(nodes: Vec<&NodeProto>, outputs: &[Value]) -> ModelProto {
    let outputs = outputs.iter().map(|(name, _)| ValueInfoProto { name: name.clone(), ..ValueInfoProto::default() });
    let graph =
        GraphProto { node: nodes.into_iter().cloned().collect(), output: outputs.collect(), ..GraphProto::default() };
    ModelProto { graph: Some(graph), ..ModelProto::default() }
}

fn present<'a>(values: &'a [Option<Tensor>], (name, slot): &Value) -> Result<&'a Tensor> {
    values[*slot].as_ref().ok_or_else(|| candle_core::Error::Msg(format!("no value {name:?}")))
}

#[cfg(test)]
pub(super) mod tests {
    use candle_core::{DType, Device};
    use candle_onnx::onnx::AttributeProto;
    use candle_onnx::onnx::attribute_proto::AttributeType;

    use super::*;

    pub fn node(op_type: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
        NodeProto {
            op_type: op_type.into(),
            input: inputs.iter().map(|&name| name.into()).collect(),
            output: outputs.iter().map(|&name| name.into()).collect(),
            ..NodeProto::default()
        }
    }

    pub fn int_attribute(name: &str, value: i64) -> AttributeProto {
        AttributeProto { i: value, ..attribute(name, AttributeType::Int) }
    }

    pub fn ints_attribute(name: &str, values: &[i64]) -> AttributeProto {
        AttributeProto { ints: values.to_vec(), ..attribute(name, AttributeType::Ints) }
    }

    pub fn float_attribute(name: &str, value: f32) -> AttributeProto {
        AttributeProto { f: value, ..attribute(name, AttributeType::Float) }
    }

    fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
        AttributeProto { name: name.into(), r#type: kind.into(), ..AttributeProto::default() }
    }

    /// Values without a pattern that a wrong order would keep.
    pub fn ramp(shape: &[usize]) -> Tensor {
        let count = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..count).map(|index| (index as f32 * 1.7).sin() * 0.5 + 0.1).collect();
        Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
    }

    pub fn graph(nodes: &[NodeProto], inputs: &[&str], outputs: &[&str]) -> GraphProto {
        let info = |&name: &&str| ValueInfoProto { name: name.into(), ..ValueInfoProto::default() };
        GraphProto {
            node: nodes.to_vec(),
            input: inputs.iter().map(info).collect(),
            output: outputs.iter().map(info).collect(),
            ..GraphProto::default()
        }
    }

    /// What `candle-onnx` alone computes.
    pub fn evaluate(nodes: &[NodeProto], outputs: &[&str], values: HashMap<String, Tensor>) -> HashMap<String, Tensor> {
        let model = ModelProto { graph: Some(graph(nodes, &[], outputs)), ..ModelProto::default() };
        candle_onnx::simple_eval(&model, values).unwrap()
    }

    fn flat(tensor: &Tensor) -> Vec<f32> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    fn constants() -> HashMap<String, Tensor> {
        HashMap::from([("w".to_owned(), ramp(&[3, 3])), ("c".to_owned(), ramp(&[3]))])
    }

    /// Reads `a` in three steps, of which the last is after the `MatMul`.
    fn nodes() -> Vec<NodeProto> {
        vec![
            node("Relu", &["x"], &["a"]),
            node("Add", &["a", "c"], &["b"]),
            node("MatMul", &["b", "w"], &["m"]),
            node("Add", &["m", "a"], &["s"]),
            node("Neg", &["s"], &["y"]),
        ]
    }

    #[test]
    fn segments_pass_on_what_later_steps_read_and_values_expire_after_it() {
        let plan = Plan::new(&graph(&nodes(), &["x"], &["y"]), &constants()).unwrap();
        let names = |values: &[Value]| values.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let slot_names = |step: &Step| {
            let expired = plan.slots.iter().filter(|(_, slot)| step.expired.contains(slot));
            expired.map(|(name, _)| name.clone()).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        let [first, matmul, last] = plan.steps.as_slice() else { panic!("{} steps", plan.steps.len()) };
        let Work::Segment { inputs, outputs, .. } = &first.work else { panic!("not a segment") };
        assert_eq!((names(inputs), names(outputs)), (vec!["c".into(), "x".into()], vec!["a".into(), "b".into()]));
        assert_eq!(slot_names(first), ["x"]);
        assert!(matches!(&matmul.work, Work::Own { operator: Operator::Linear { .. }, .. }));
        assert_eq!(slot_names(matmul), ["b"]);
        let Work::Segment { inputs, outputs, .. } = &last.work else { panic!("not a segment") };
        assert_eq!((names(inputs), names(outputs)), (vec!["a".into(), "m".into()], vec!["y".into()]));
        assert_eq!(slot_names(last), ["a", "m", "s"]);
        assert!(plan.initial[plan.slots["c"]].is_some(), "a segment reads it");
        assert!(!plan.slots.contains_key("w"), "only the operator has it");
    }

    #[test]
    fn a_plan_computes_what_candle_onnx_does() {
        // An intermediate value, an input and a constant are outputs too.
        let outputs = ["y", "a", "x", "w"];
        let plan = Plan::new(&graph(&nodes(), &["x"], &outputs), &constants()).unwrap();
        let x = ramp(&[2, 4, 3]);
        let mut values = constants();
        values.insert("x".into(), x.clone());
        let expected = evaluate(&nodes(), &outputs, values);
        for _ in 0..2 {
            let computed = plan.run(&[("x".into(), x.clone())]).unwrap();
            assert_eq!(computed.len(), 4);
            for (name, tensor) in &expected {
                assert_eq!(flat(&computed[name]), flat(tensor), "{name}");
            }
        }
    }

    #[test]
    fn long_chains_are_cut_into_segments() {
        let names: Vec<String> = (0..=2 * NODES_PER_SEGMENT).map(|index| format!("v{index}")).collect();
        let chain: Vec<NodeProto> = names.windows(2).map(|pair| node("Neg", &[&pair[0]], &[&pair[1]])).collect();
        let last = names.last().unwrap();
        let plan = Plan::new(&graph(&chain, &["v0"], &[last]), &HashMap::new()).unwrap();
        assert_eq!(plan.steps.len(), 2);
        let x = ramp(&[3]);
        assert_eq!(flat(&plan.run(&[("v0".into(), x.clone())]).unwrap()[last]), flat(&x));
    }

    #[test]
    fn a_subgraph_reads_values_of_earlier_steps() {
        let branch = |op_type: &str| {
            let name = format!("{op_type}_out");
            graph(&[node(op_type, &["a"], &[&name])], &[], &[&name])
        };
        let subgraph = |name: &str, op_type: &str| AttributeProto {
            g: Some(branch(op_type)),
            ..attribute(name, AttributeType::Graph)
        };
        let mut choice = node("If", &["condition"], &["y"]);
        choice.attribute = vec![subgraph("then_branch", "Neg"), subgraph("else_branch", "Abs")];
        let nodes = [node("Relu", &["x"], &["a"]), node("MatMul", &["x", "w"], &["m"]), choice];
        let plan = Plan::new(&graph(&nodes, &["x", "condition"], &["y", "m"]), &constants()).unwrap();
        assert_eq!(plan.steps.len(), 3);
        let x = ramp(&[2, 3]);
        for (condition, expected) in [(1u8, x.relu().unwrap().neg().unwrap()), (0, x.relu().unwrap())] {
            let condition = Tensor::full(condition, 1, &Device::Cpu).unwrap();
            assert_eq!(condition.dtype(), DType::U8);
            let inputs = [("x".to_owned(), x.clone()), ("condition".to_owned(), condition)];
            assert_eq!(flat(&plan.run(&inputs).unwrap()["y"]), flat(&expected));
        }
    }

    #[test]
    fn an_output_that_nothing_computes_is_an_error_and_so_is_a_missing_input() {
        let error = Plan::new(&graph(&nodes(), &["x"], &["z"]), &constants()).err().unwrap();
        assert!(error.message.contains("\"z\""), "{error}");
        let plan = Plan::new(&graph(&nodes(), &["x"], &["y"]), &constants()).unwrap();
        assert!(plan.run(&[]).is_err());
    }

    #[test]
    fn an_empty_optional_input_is_not_a_value() {
        let nodes = [node("MatMul", &["x", "w"], &["m"]), node("Clip", &["m", "", "high"], &["y"])];
        let constants = HashMap::from([("w".to_owned(), ramp(&[3, 3])), ("high".to_owned(), ramp(&[1]))]);
        let plan = Plan::new(&graph(&nodes, &["x"], &["y"]), &constants).unwrap();
        let x = ramp(&[2, 2, 3]);
        let computed = plan.run(&[("x".into(), x.clone())]).unwrap();
        let values = constants.into_iter().chain([("x".to_owned(), x)]).collect();
        assert_eq!(flat(&computed["y"]), flat(&evaluate(&nodes, &["y"], values)["y"]));
    }
}
