//! Reads an ONNX file as a graph of `candle-onnx` and its constants, and evaluates nodes of it.
//!
//! The initializers are decoded, also those in another file, and the values that depend on constants alone, such as a
//! transposed weight, are computed.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;
use candle_core::{DType, Device, Error, Tensor};
use candle_onnx::onnx::attribute_proto::AttributeType;
use candle_onnx::onnx::tensor_proto::DataType;
use candle_onnx::onnx::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use prost::Message;

use super::forms;
use super::operator::{Operator, int};
use super::plan::{needed_nodes, wrong_form};
use crate::backend::failure::caught;
use crate::definition::CaseFailure;
use crate::onnx::{Source, proto};

/// The graph of an ONNX file without its initializers, and the constants that its nodes need, by name.
pub fn read(path: &Path) -> Result<(GraphProto, HashMap<String, Tensor>), CaseFailure> {
    let mut source = Source::read(path)?;
    let opset = source.opset();
    let mut constants = HashMap::new();
    for initializer in &source.graph.initializers {
        constants.insert(initializer.name.clone(), decoded(&source, initializer)?);
    }
    // candle-onnx reads the numbers of constants, but not the shapes of all of them.
    source.graph.nodes.iter_mut().for_each(make_constant_a_tensor);
    for node in &source.graph.nodes {
        if let (Some(tensor), [output]) = (node.constant(), node.outputs.as_slice()) {
            constants.insert(output.clone(), decoded(&source, tensor)?);
        }
    }
    source.graph.nodes.retain(|node| node.constant().is_none());
    let own = &mut source.graph;
    own.initializers.clear();
    // Older exporters list initializers among the inputs too.
    own.inputs.retain(|input| !constants.contains_key(&input.name));
    // Without the attribute, there is no padding either.
    let is_no_padding = |own: &proto::AttributeProto| own.name == "auto_pad" && own.s.as_deref() == Some(b"VALID");
    own.nodes.iter_mut().for_each(|node| node.attributes.retain(|own| !is_no_padding(own)));
    // Some of candle-onnx's operators read the numbers of a tensor only from its raw bytes.
    for tensor in own.nodes.iter_mut().flat_map(|node| &mut node.attributes).filter_map(|own| own.t.as_mut()) {
        if let Some(bytes) = tensor.inside() {
            tensor.raw_data = Some(bytes);
        }
    }
    let mut graph = GraphProto::decode(own.encode_to_vec().as_slice()).with_context(|| path.display().to_string())?;
    make_standard(&mut graph.node, opset)?;
    fold_constants(&mut graph, &mut constants)?;
    Ok((graph, constants))
}

/// Brings nodes, including those of subgraphs, into the form that everything below expects.
fn make_standard(nodes: &mut [NodeProto], opset: i64) -> Result<(), CaseFailure> {
    for node in nodes {
        // The standard set has two names; everything below knows only the empty one.
        if node.domain == "ai.onnx" {
            node.domain.clear();
        }
        let NodeProto { op_type, domain, .. } = &*node;
        // candle-onnx looks only at the name of an operator, not at its set.
        if !["", "com.microsoft"].contains(&domain.as_str()) {
            return Err(CaseFailure::unsupported(format!(
                "candle-onnx has no operator {op_type} of the set {domain:?}"
            )));
        }
        if opset < 13 && ["Softmax", "LogSoftmax"].contains(&op_type.as_str()) {
            let axis = AttributeProto {
                name: forms::FLATTENS_FROM.to_owned(),
                r#type: AttributeType::Int.into(),
                i: int(node, "axis", 1),
                ..AttributeProto::default()
            };
            node.attribute.push(axis);
        }
        for attribute in &mut node.attribute {
            for subgraph in attribute.g.iter_mut().chain(&mut attribute.graphs) {
                subgraph.initializer.iter_mut().for_each(make_wide);
                let constants = subgraph.node.iter_mut().filter(|node| node.op_type == "Constant");
                constants.flat_map(|node| &mut node.attribute).filter_map(|own| own.t.as_mut()).for_each(make_wide);
                make_standard(&mut subgraph.node, opset)?;
            }
        }
    }
    Ok(())
}

/// Widens integers to 64 bits: candle-onnx computes with these, and reads a tensor of 32 bits as a list, whatever its
/// shape.
fn make_wide(tensor: &mut TensorProto) {
    if tensor.data_type != proto::element::INT32 {
        return;
    }
    let of_bytes = || tensor.raw_data.as_chunks::<4>().0.iter().map(|it| i64::from(i32::from_le_bytes(*it))).collect();
    let of_numbers = || tensor.int32_data.iter().map(|&number| number.into()).collect();
    let numbers: Vec<i64> = if tensor.int32_data.is_empty() { of_bytes() } else { of_numbers() };
    (tensor.data_type, tensor.int64_data) = (proto::element::INT64, numbers);
    tensor.int32_data.clear();
    tensor.raw_data.clear();
}

/// Gives a constant that is a number or a list of numbers the form of a tensor.
fn make_constant_a_tensor(node: &mut proto::NodeProto) {
    if node.op_type != "Constant" {
        return;
    }
    for attribute in &mut node.attributes {
        let (dims, data_type) = match attribute.name.as_str() {
            "value_int" => (Vec::new(), proto::element::INT64),
            "value_float" => (Vec::new(), proto::element::FLOAT),
            "value_ints" => (vec![attribute.ints.len() as i64], proto::element::INT64),
            "value_floats" => (vec![attribute.floats.len() as i64], proto::element::FLOAT),
            _ => continue,
        };
        let is_list = !dims.is_empty();
        let tensor = proto::TensorProto {
            int64_data: if is_list { attribute.ints.clone() } else { vec![attribute.i.unwrap_or_default()] },
            float_data: if is_list { attribute.floats.clone() } else { vec![attribute.f.unwrap_or_default()] },
            dims,
            data_type,
            ..proto::TensorProto::default()
        };
        // The number of `AttributeType.TENSOR`.
        *attribute = proto::AttributeProto {
            name: "value".into(),
            t: Some(tensor),
            r#type: 4,
            ..proto::AttributeProto::default()
        };
    }
}

/// Evaluates the nodes whose inputs are all constant, and drops those that no output needs.
fn fold_constants(graph: &mut GraphProto, constants: &mut HashMap<String, Tensor>) -> candle_core::Result<()> {
    let mut kept = Vec::new();
    for node in needed_nodes(graph).into_iter().cloned() {
        let has_subgraph = node.attribute.iter().any(|attribute| attribute.g.is_some());
        let is_constant = node.input.iter().all(|input| input.is_empty() || constants.contains_key(input));
        if has_subgraph || !is_constant || node.op_type.starts_with("Random") {
            kept.push(node);
            continue;
        }
        let operator = Operator::of(&node, constants).or_else(|| forms::of(&node, constants));
        // The plan refuses it if an output needs it.
        if operator.is_none() && wrong_form(&node).is_some() {
            kept.push(node);
            continue;
        }
        match operator {
            Some(operator) => {
                let given: Vec<_> = operator.reads(&node).iter().map(|name| constants.get(name).cloned()).collect();
                let computed = node.output.iter().cloned().zip(operator.compute(&given)?);
                constants.extend(computed.filter(|(name, _)| !name.is_empty()));
            }
            None => {
                let constant = |input: &String| Some((input.clone(), constants.get(input)?.clone()));
                let inputs: HashMap<String, Tensor> = node.input.iter().filter_map(constant).collect();
                let outputs: Vec<String> = node.output.iter().filter(|output| !output.is_empty()).cloned().collect();
                let segment = Segment::new(vec![node], &outputs);
                let computed = segment.evaluate(inputs.clone()).map_err(|error| segment.named(error, Ok(inputs)))?;
                constants.extend(computed);
            }
        }
    }
    graph.node = kept;
    Ok(())
}

/// Nodes that `candle-onnx` evaluates one after the other.
pub struct Segment {
    model: ModelProto,
}

impl Segment {
    /// A segment of nodes that returns these of their outputs.
    pub fn new(nodes: Vec<NodeProto>, outputs: &[String]) -> Self {
        let output = outputs.iter().map(|name| ValueInfoProto { name: name.clone(), ..ValueInfoProto::default() });
        let graph = GraphProto { output: output.collect(), node: nodes, ..GraphProto::default() };
        Segment { model: ModelProto { graph: Some(graph), ..ModelProto::default() } }
    }

    /// Computes the outputs. `candle-onnx` panics where it expects another form of an operator.
    pub fn evaluate(&self, inputs: HashMap<String, Tensor>) -> candle_core::Result<HashMap<String, Tensor>> {
        let evaluated = caught(|| candle_onnx::simple_eval(&self.model, inputs));
        evaluated
            .unwrap_or_else(|_| Err(Error::Msg("this form of the operator is not supported by candle-onnx".into())))
    }

    /// The error of an evaluation with the operator at fault at its beginning: the first that cannot be computed from
    /// the same inputs.
    pub fn named(&self, error: Error, inputs: candle_core::Result<HashMap<String, Tensor>>) -> Error {
        let (Ok(inputs), Some(graph)) = (inputs, &self.model.graph) else { return error };
        let first = |count: usize| Segment::new(graph.node[..count].to_vec(), &[]);
        match (1..=graph.node.len()).find(|&count| first(count).evaluate(inputs.clone()).is_err()) {
            Some(count) => about(&graph.node[count - 1], &error),
            // All can be computed, but one does not give a requested output.
            None if graph.node.len() == 1 => about(&graph.node[0], &error),
            None => error,
        }
    }
}

fn about(node: &NodeProto, error: &Error) -> Error {
    let mut inner = error;
    while let Error::WithBacktrace { inner: next, .. } = inner {
        inner = next;
    }
    let text = inner.to_string();
    // The rest is the whole node with all its attributes.
    let what = text.split(" for op NodeProto").next().unwrap_or_default();
    // candle-onnx's own messages mean that it expects another form; all other errors are about shapes. Types differ
    // only where it has computed in other types than ONNX defines.
    let is_form = match inner {
        Error::Msg(_) => !["unsupported", "not supported"].iter().any(|words| what.contains(words)),
        other => matches!(other, Error::DTypeMismatchBinaryOp { .. }),
    };
    let form = if is_form { "not supported by candle-onnx in this form: " } else { "" };
    Error::Msg(format!("{}: {form}{what}", node.op_type))
}

/// The numbers of an initializer; i64 instead of i32, because `candle-onnx` computes with i64.
fn decoded(source: &Source, initializer: &proto::TensorProto) -> Result<Tensor, CaseFailure> {
    let dtype = match DataType::try_from(initializer.data_type) {
        Ok(DataType::Int32) => Some(DType::I32),
        Ok(data_type) => candle_onnx::eval::dtype(data_type),
        Err(_) => None,
    };
    let dtype = dtype.ok_or_else(|| {
        let (element, name) = (proto::element::name(initializer.data_type), &initializer.name);
        CaseFailure::unsupported(format!(
            "{name:?} has elements of the type {element}, which candle-onnx does not read"
        ))
    })?;
    let shape: Vec<usize> = initializer.dims.iter().map(|&size| size.max(0) as usize).collect();
    let tensor = Tensor::from_raw_buffer(&source.bytes(initializer)?, dtype, &shape, &Device::Cpu)?;
    Ok(if dtype == DType::I32 { tensor.to_dtype(DType::I64)? } else { tensor })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::{AttributeProto, ModelProto, NodeProto, TensorProto, element};

    fn tensor(name: &str, data_type: i32, dims: &[i64]) -> TensorProto {
        TensorProto { name: name.into(), data_type, dims: dims.to_vec(), ..TensorProto::default() }
    }

    /// The constants of a model of these nodes and initializers, whose outputs are those of all nodes.
    fn constants(
        nodes: Vec<NodeProto>,
        initializers: Vec<TensorProto>,
    ) -> Result<HashMap<String, Tensor>, CaseFailure> {
        let outputs = nodes.iter().flat_map(|node| &node.outputs);
        let outputs = outputs.map(|name| proto::ValueInfoProto::tensor(name, element::FLOAT, None)).collect();
        constants_for(outputs, nodes, initializers)
    }

    /// The constants of a model with these outputs.
    fn constants_for(
        outputs: Vec<proto::ValueInfoProto>,
        nodes: Vec<NodeProto>,
        initializers: Vec<TensorProto>,
    ) -> Result<HashMap<String, Tensor>, CaseFailure> {
        let graph = proto::GraphProto { nodes, initializers, outputs, ..proto::GraphProto::default() };
        let model = ModelProto { graph: Some(graph), ..ModelProto::default() };
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, model.encode_to_vec()).unwrap();
        read(file.path()).map(|(_, constants)| constants)
    }

    #[test]
    fn the_number_of_an_attribute_may_lie_in_any_field() {
        let value = TensorProto { int64_data: vec![7], ..tensor("", element::INT64, &[1]) };
        // The type of an attribute that is a tensor.
        let value = AttributeProto { name: "value".into(), t: Some(value), r#type: 4, ..AttributeProto::default() };
        let node = NodeProto { attributes: vec![value], ..NodeProto::new("ConstantOfShape", &["shape"], "y") };
        let shape = TensorProto { int64_data: vec![2], ..tensor("shape", element::INT64, &[1]) };
        assert_eq!(constants(vec![node], vec![shape]).unwrap()["y"].to_vec1::<i64>().unwrap(), [7, 7]);
    }

    #[test]
    fn constants_of_whole_numbers_keep_their_shape_and_may_be_empty() {
        let scalar = TensorProto { int32_data: vec![-3], ..tensor("scalar", element::INT32, &[]) };
        let truth = TensorProto { int32_data: vec![1, 0], ..tensor("truth", element::BOOL, &[2]) };
        let empty = tensor("empty", element::INT64, &[0]);
        let empty = TensorProto { raw_data: Some(Vec::new().into()), ..empty };
        let constants = constants(Vec::new(), vec![scalar, truth, empty]).unwrap();
        assert_eq!(constants["scalar"].to_scalar::<i64>().unwrap(), -3);
        assert_eq!(constants["truth"].to_vec1::<u8>().unwrap(), [1, 0]);
        assert_eq!(constants["empty"].dims(), [0]);
    }

    #[test]
    fn the_type_of_a_constant_that_is_not_read_is_named() {
        let failure = constants(Vec::new(), vec![tensor("w", element::INT4, &[2])]).unwrap_err();
        assert_eq!(failure.message, "\"w\" has elements of the type int4, which candle-onnx does not read");
    }

    #[test]
    fn an_operator_of_the_users_own_is_not_taken_for_that_of_the_same_name() {
        let own = NodeProto { domain: "mine".into(), ..NodeProto::new("Softmax", &["x"], "y") };
        let failure = constants(vec![own], Vec::new()).unwrap_err();
        assert_eq!(failure.message, "candle-onnx has no operator Softmax of the set \"mine\"");
    }

    #[test]
    fn an_operator_of_the_users_own_is_not_taken_for_another_in_a_subgraph_either() {
        let own = NodeProto { domain: "mine".into(), ..NodeProto::new("Relu", &["x"], "y") };
        let branch = proto::GraphProto { nodes: vec![own], ..proto::GraphProto::default() };
        let g = Some(branch.encode_to_vec().into());
        // The type of an attribute that is a graph.
        let branch = AttributeProto { name: "then_branch".into(), g, r#type: 5, ..AttributeProto::default() };
        let choice = NodeProto { attributes: vec![branch], ..NodeProto::new("If", &["c"], "z") };
        let failure = constants(vec![choice], Vec::new()).unwrap_err();
        assert_eq!(failure.message, "candle-onnx has no operator Relu of the set \"mine\"");
    }

    #[test]
    fn a_constant_is_computed_as_any_other_value_or_left_to_the_plan() {
        let weight = TensorProto { float_data: vec![0.5; 12], ..tensor("w", element::FLOAT, &[3, 4]) };
        let places = TensorProto { int64_data: vec![0], ..tensor("i", element::INT64, &[1, 1]) };
        let row = TensorProto { float_data: vec![2.0; 4], ..tensor("u", element::FLOAT, &[1, 4]) };
        let end = AttributeProto::int("end", -1);
        let shape = NodeProto { attributes: vec![end], ..NodeProto::new("Shape", &["w"], "shape") };
        let s = Some(b"mul".to_vec().into());
        // The type of an attribute that is a text.
        let reduction = AttributeProto { name: "reduction".into(), s, r#type: 3, ..AttributeProto::default() };
        let product =
            NodeProto { attributes: vec![reduction], ..NodeProto::new("ScatterND", &["w", "i", "u"], "product") };
        let constants = constants(vec![shape, product], vec![weight, places, row]).unwrap();
        assert_eq!(constants["shape"].to_vec1::<i64>().unwrap(), [3]);
        assert!(!constants.contains_key("product"));
    }

    #[test]
    fn a_constant_may_be_a_number_or_a_list() {
        let attribute = |name: &str| AttributeProto { name: name.into(), ..AttributeProto::default() };
        let constant = |output: &str, attribute| NodeProto {
            attributes: vec![attribute],
            ..NodeProto::new("Constant", &[], output)
        };
        let nodes = vec![
            constant("one", AttributeProto { i: Some(3), ..attribute("value_int") }),
            constant("list", AttributeProto { ints: vec![1, -1], ..attribute("value_ints") }),
            constant("half", AttributeProto { f: Some(0.5), ..attribute("value_float") }),
            constant("halves", AttributeProto { floats: vec![0.5, 1.5], ..attribute("value_floats") }),
        ];
        let constants = constants(nodes, Vec::new()).unwrap();
        assert_eq!(constants["one"].to_scalar::<i64>().unwrap(), 3);
        assert_eq!(constants["list"].to_vec1::<i64>().unwrap(), [1, -1]);
        assert_eq!(constants["half"].to_scalar::<f32>().unwrap(), 0.5);
        assert_eq!(constants["halves"].to_vec1::<f32>().unwrap(), [0.5, 1.5]);
    }

    #[test]
    fn a_panic_of_the_library_is_no_panic_here_and_names_the_operator() {
        let values = TensorProto { float_data: vec![1.0, 2.0], ..tensor("x", element::FLOAT, &[2]) };
        // `candle-onnx` takes the third input of a `Gemm` for granted. A `Gemm` whose weights are not a matrix is left
        // to it.
        let failure = constants(vec![NodeProto::new("Gemm", &["x", "x"], "y")], vec![values]).unwrap_err();
        assert_eq!(failure.message, "Gemm: this form of the operator is not supported by candle-onnx");
        assert_eq!(failure.status, crate::definition::Status::Unsupported);
    }

    #[test]
    fn the_operator_of_an_error_among_several_is_found() {
        let node = |op_type: &str, input: &str, output: &str| candle_onnx::onnx::NodeProto {
            op_type: op_type.into(),
            input: vec![input.into()],
            output: vec![output.into()],
            ..candle_onnx::onnx::NodeProto::default()
        };
        let nodes = vec![node("Relu", "x", "a"), node("Shrink", "a", "b"), node("Neg", "b", "y")];
        let segment = Segment::new(nodes, &["y".into()]);
        let inputs = || HashMap::from([("x".to_owned(), Tensor::new(1_f32, &Device::Cpu).unwrap())]);
        let error = segment.evaluate(inputs()).unwrap_err();
        assert_eq!(segment.named(error, Ok(inputs())).to_string(), "Shrink: unsupported op_type Shrink");
    }

    #[test]
    fn an_operator_that_cannot_be_computed_is_named() {
        let shape = TensorProto { int64_data: vec![2], ..tensor("shape", element::INT64, &[1]) };
        let refused = |operator: &str| {
            let failure = constants(vec![NodeProto::new(operator, &["shape"], "y")], vec![shape.clone()]).unwrap_err();
            assert_eq!(failure.status, crate::definition::Status::Unsupported);
            failure.message
        };
        assert_eq!(refused("Shrink"), "Shrink: unsupported op_type Shrink");
        let unneeded = vec![NodeProto::new("Shrink", &["shape"], "y")];
        assert!(!constants_for(Vec::new(), unneeded, vec![shape.clone()]).unwrap().contains_key("y"));
        let form = refused("Concat");
        assert!(form.starts_with("Concat: not supported by candle-onnx in this form: "), "{form}");
        let outputs = vec!["y".into(), "mask".into()];
        let masked = NodeProto { outputs, ..NodeProto::new("Dropout", &["shape"], "y") };
        let failure = constants(vec![masked], vec![shape.clone()]).unwrap_err();
        assert_eq!(failure.status, crate::definition::Status::Unsupported, "{failure}");
    }
}
