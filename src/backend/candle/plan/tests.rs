use candle_core::{DType, Device};
use candle_onnx::onnx::attribute_proto::AttributeType;
use candle_onnx::onnx::{AttributeProto, ModelProto, TensorProto};

use super::*;
use crate::backend::NullSession;
use crate::backend::recorder::Tape;
use crate::definition::Dtype;

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

pub fn text_attribute(name: &str, value: &str) -> AttributeProto {
    AttributeProto { s: value.into(), ..attribute(name, AttributeType::String) }
}

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: kind.into(), ..AttributeProto::default() }
}

/// Values without a pattern, so that a wrong order shows.
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

/// A graph of three steps, whose last step reads `a` again after the `MatMul`.
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
    let plan = Plan::new(&graph(&nodes(), &["x"], &["y"]), &constants(), None).unwrap();
    let [first, matmul, last] = plan.steps.as_slice() else { panic!("{} steps", plan.steps.len()) };
    assert!(matches!(&first.work, Work::Segment(..)) && matches!(&last.work, Work::Segment(..)));
    assert!(matches!(&matmul.work, Work::Own(operator, _) if operator.name == "MatMul/Gemm"));
    assert_eq!((&first.inputs, &first.outputs), (&vec!["c".into(), "x".into()], &vec!["a".into(), "b".into()]));
    assert_eq!((&last.inputs, &last.outputs), (&vec!["a".into(), "m".into()], &vec!["y".into()]));
    let expired = |step: &Step| step.expired.iter().filter(|name| *name != "c").cloned().collect::<Vec<_>>();
    assert_eq!([first, matmul, last].map(expired), [vec!["x"], vec!["b"], vec!["a", "m"]]);
    assert_eq!(plan.constants.keys().collect::<Vec<_>>(), ["c"], "only the operator has w");
}

#[test]
fn a_plan_computes_what_candle_onnx_does() {
    // An intermediate value, an input and a constant are outputs too.
    let outputs = ["y", "a", "x", "w"];
    let plan = Plan::new(&graph(&nodes(), &["x"], &outputs), &constants(), None).unwrap();
    let x = ramp(&[2, 4, 3]);
    let mut values = constants();
    values.insert("x".into(), x.clone());
    let expected = evaluate(&nodes(), &outputs, values);
    for _ in 0..2 {
        let computed = plan.run(std::slice::from_ref(&x)).unwrap();
        assert_eq!(computed.len(), 4);
        for (name, tensor) in outputs.iter().zip(&computed) {
            assert_eq!(flat(tensor), flat(&expected[*name]), "{name}");
        }
    }
}

#[test]
fn with_a_recorder_each_node_is_computed_alone() {
    let mut recorder = Recorder::default();
    let mut named = nodes();
    named[0].name = "first".into();
    let plan = Plan::new(&graph(&named, &["x"], &["y"]), &constants(), Some(recorder.clone())).unwrap();
    recorder.call_begins().unwrap();
    plan.run(&[ramp(&[2, 4, 3])]).unwrap();
    recorder.call_ends().unwrap();
    let calls = recorder.end(Box::new(NullSession::new(Dtype::F32))).unwrap();
    let told = calls[0].operators.iter().map(|own| [&own.node, &own.operator, own.kernel.as_ref().unwrap()]);
    let alone = "candle-onnx";
    let expected = [
        ["first", "Relu", alone],
        ["b", "Add", alone],
        ["m", "MatMul", "MatMul/Gemm"],
        ["s", "Add", alone],
        ["y", "Neg", alone],
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[test]
fn long_chains_are_cut_into_segments() {
    let names: Vec<String> = (0..=2 * NODES_PER_SEGMENT).map(|index| format!("v{index}")).collect();
    let chain: Vec<NodeProto> = names.windows(2).map(|pair| node("Neg", &[&pair[0]], &[&pair[1]])).collect();
    let last = names.last().unwrap();
    let plan = Plan::new(&graph(&chain, &["v0"], &[last]), &HashMap::new(), None).unwrap();
    assert_eq!(plan.steps.len(), 2);
    let x = ramp(&[3]);
    assert_eq!(flat(&plan.run(std::slice::from_ref(&x)).unwrap()[0]), flat(&x));
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
    let plan = Plan::new(&graph(&nodes, &["x", "condition"], &["y", "m"]), &constants(), None).unwrap();
    assert_eq!(plan.steps.len(), 3);
    let x = ramp(&[2, 3]);
    for (condition, expected) in [(1u8, x.relu().unwrap().neg().unwrap()), (0, x.relu().unwrap())] {
        let condition = Tensor::full(condition, 1, &Device::Cpu).unwrap();
        assert_eq!(condition.dtype(), DType::U8);
        assert_eq!(flat(&plan.run(&[x.clone(), condition]).unwrap()[0]), flat(&expected));
    }
}

#[test]
fn a_form_in_a_subgraph_that_would_be_computed_as_another_is_refused() {
    let refused = |inner: &[NodeProto]| {
        let branch =
            AttributeProto { g: Some(graph(inner, &[], &["inner"])), ..attribute("then_branch", AttributeType::Graph) };
        let choice = NodeProto { attribute: vec![branch], ..node("If", &["condition"], &["y"]) };
        let graph = graph(&[choice], &["x", "condition"], &["y"]);
        Plan::new(&graph, &constants(), None).err().map(|failure| (failure.status, failure.message))
    };
    let squeeze = NodeProto { attribute: vec![ints_attribute("axes", &[0])], ..node("Squeeze", &["x"], &["inner"]) };
    let message = "Squeeze: candle-onnx does not support this form in a subgraph";
    assert_eq!(refused(&[squeeze]), Some((crate::definition::Status::Unsupported, message.to_owned())));
    let unsqueeze = |axes: &[i64]| {
        let dims = vec![axes.len() as i64];
        let t = Some(TensorProto { dims, data_type: 7, int64_data: axes.to_vec(), ..TensorProto::default() });
        let value = AttributeProto { t, ..attribute("value", AttributeType::Tensor) };
        let axes = NodeProto { attribute: vec![value], ..node("Constant", &[], &["axes"]) };
        [axes, node("Unsqueeze", &["x", "axes"], &["inner"])]
    };
    assert!(refused(&unsqueeze(&[0, 1])).is_some_and(|(_, message)| message.starts_with("Unsqueeze: ")));
    assert_eq!(refused(&unsqueeze(&[0])), None);
    assert!(refused(&[node("MaxPool", &["x"], &["inner"])]).is_some());
    assert_eq!(refused(&[node("ReduceSum", &["x", "c"], &["inner"])]), None);
}

#[test]
fn what_no_output_needs_is_neither_computed_nor_refused() {
    let nodes = [
        node("Relu", &["x"], &["a"]),
        node("Shrink", &["a"], &["b"]),
        node("MaxPool", &["a"], &["c"]),
        node("Neg", &["a"], &["y"]),
    ];
    let plan = Plan::new(&graph(&nodes, &["x"], &["y"]), &HashMap::new(), None).unwrap();
    let x = ramp(&[3]);
    let expected = x.relu().unwrap().neg().unwrap();
    assert_eq!(flat(&plan.run(&[x]).unwrap()[0]), flat(&expected));
}

#[test]
fn a_pool_without_strides_or_whose_size_is_rounded_up_is_never_left_to_candle_onnx() {
    let kernel = || ints_attribute("kernel_shape", &[2, 2]);
    let up = vec![kernel(), ints_attribute("strides", &[2, 2]), int_attribute("ceil_mode", 1)];
    for attribute in [vec![kernel()], up] {
        let pool = NodeProto { attribute, ..node("MaxPool", &["x"], &["y", "places"]) };
        let error = Plan::new(&graph(&[pool], &["x"], &["y"]), &constants(), None).err().unwrap();
        assert_eq!(error.status, crate::definition::Status::Unsupported);
    }
}

#[test]
fn an_output_that_nothing_computes_is_an_error_and_so_is_a_missing_input() {
    let error = Plan::new(&graph(&nodes(), &["x"], &["z"]), &constants(), None).err().unwrap();
    assert!(error.message.contains("\"z\""), "{error}");
    let plan = Plan::new(&graph(&nodes(), &["x"], &["y"]), &constants(), None).unwrap();
    assert!(plan.run(&[]).is_err());
    let mean = [node("ReduceMean", &["x", "axes"], &["y"])];
    let error = Plan::new(&graph(&mean, &["x", "axes"], &["y"]), &constants(), None).err().unwrap();
    assert_eq!(error.status, crate::definition::Status::Unsupported);
}

#[test]
fn an_operator_may_read_all_inputs_and_have_several_outputs() {
    let lstm = NodeProto {
        attribute: vec![text_attribute("direction", "reverse"), int_attribute("hidden_size", 2)],
        ..node("LSTM", &["a", "w", "r", "", "", "h"], &["all", "", "cell"])
    };
    let nodes = [node("Neg", &["x"], &["a"]), lstm, node("Neg", &["cell"], &["y"])];
    let constants = HashMap::from([("w".to_owned(), ramp(&[1, 8, 3])), ("r".to_owned(), ramp(&[1, 8, 2]))]);
    let plan = Plan::new(&graph(&nodes, &["x", "h"], &["y"]), &constants, None).unwrap();
    let [_, own, last] = plan.steps.as_slice() else { panic!("{} steps", plan.steps.len()) };
    assert_eq!((&own.outputs, &last.expired), (&vec!["cell".to_owned()], &vec!["cell".to_owned()]));
    let (x, h) = (ramp(&[4, 1, 3]), ramp(&[1, 1, 2]));
    let computed = plan.run(&[x.clone(), h.clone()]).unwrap();
    // The same LSTM forward, on the reversed sequence.
    let backwards = Tensor::new(&[3_i64, 2, 1, 0], &Device::Cpu).unwrap();
    let mut values = constants;
    values.extend(
        [("a", x.index_select(&backwards, 0).unwrap().neg().unwrap()), ("h", h)]
            .map(|(name, value)| (name.to_owned(), value)),
    );
    let forward = NodeProto {
        attribute: vec![int_attribute("hidden_size", 2)],
        ..node("LSTM", &["a", "w", "r", "", "", "h"], &["all", "state", "cell"])
    };
    let expected = &evaluate(&[forward, node("Neg", &["cell"], &["y"])], &["y"], values)["y"];
    for (one, other) in flat(&computed[0]).iter().zip(flat(expected)) {
        assert!((one - other).abs() < 1e-6, "{one} {other}");
    }
}

#[test]
fn an_empty_optional_input_is_not_a_value() {
    let nodes = [node("MatMul", &["x", "w"], &["m"]), node("Clip", &["m", "", "high"], &["y"])];
    let constants = HashMap::from([("w".to_owned(), ramp(&[3, 3])), ("high".to_owned(), ramp(&[1]))]);
    let plan = Plan::new(&graph(&nodes, &["x"], &["y"]), &constants, None).unwrap();
    let x = ramp(&[2, 2, 3]);
    let computed = plan.run(std::slice::from_ref(&x)).unwrap();
    let values = constants.into_iter().chain([("x".to_owned(), x)]).collect();
    assert_eq!(flat(&computed[0]), flat(&evaluate(&nodes, &["y"], values)["y"]));
}
