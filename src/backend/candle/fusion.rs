//! Merges nodes when a graph is loaded.
//!
//! - `BatchNormalization` after a `Conv` becomes a part of the weights and bias of the `Conv`.
//! - Some exporters write layer normalization and GELU as several nodes; they become `LayerNormalization` and `Gelu`.
//!
//! Nodes are merged if they follow each other, as exporters write them, and no other node reads the values between
//! them. A graph with subgraphs stays as it is, because subgraphs may read any value.

use std::collections::HashMap;
use std::f32::consts::SQRT_2;

use candle_core::{DType, Result, Tensor};
use candle_onnx::onnx::attribute_proto::AttributeType;
use candle_onnx::onnx::{AttributeProto, GraphProto, NodeProto};

use super::operator::{float, int, ints, name_of};

/// The name of the operator that is merged, the nodes with their inputs and outputs, and the function that makes the
/// merged node. A number stands for a value, and `c` for a constant. If the order of two operands does not matter, the
/// constant is the last one.
const PATTERNS: [(&str, &str, Merge); 4] = [
    ("BatchNormalization", "Conv(0 c)1 BatchNormalization(1 c c c c)2", batch_normalization),
    ("BatchNormalization", "Conv(0 c c)1 BatchNormalization(1 c c c c)2", batch_normalization),
    (
        "LayerNormalization",
        "ReduceMean(0)1 Sub(0 1)2 Pow(2 c)3 ReduceMean(3)4 Add(4 c)5 Sqrt(5)6 Div(2 6)7 Mul(7 c)8 Add(8 c)9",
        layer_normalization,
    ),
    ("Gelu", "Div(0 c)1 Erf(1)2 Add(2 c)3 Mul(0 3)4 Mul(4 c)5", gelu),
];

type Merge = fn(&Found<'_>) -> Option<Merged>;

/// The nodes of a pattern. The input of the first node is the pattern's input.
struct Found<'a> {
    nodes: &'a [NodeProto],
    /// The constants in the order of the pattern, with their names.
    constants: Vec<(&'a str, &'a Tensor)>,
}

/// The node that replaces a pattern, without its outputs, and the constants that it brings.
struct Merged {
    node: NodeProto,
    constants: Vec<(String, Tensor)>,
}

/// Merges nodes of a graph, and returns the names of what it merged.
pub fn fuse(graph: &mut GraphProto, constants: &mut HashMap<String, Tensor>) -> Vec<&'static str> {
    let mut attributes = graph.node.iter().flat_map(|node| &node.attribute);
    if attributes.any(|attribute| attribute.g.is_some() || !attribute.graphs.is_empty()) {
        return Vec::new();
    }
    let mut reads: HashMap<String, usize> = HashMap::new();
    let names = graph.node.iter().flat_map(|node| &node.input);
    for name in names.chain(graph.output.iter().map(|output| &output.name)) {
        *reads.entry(name.clone()).or_default() += 1;
    }
    let mut merged_names = Vec::new();
    for (name, pattern, merge) in PATTERNS {
        let length = pattern.matches('(').count();
        for place in 0.. {
            let Some(nodes) = graph.node.get(place..place + length) else { break };
            let is_begin = pattern.starts_with(&nodes[0].op_type);
            let found = if is_begin { find(nodes, pattern, constants, &reads) } else { None };
            if let Some(merged) = found.and_then(|found| merge(&found)) {
                let output = nodes[length - 1].output.clone();
                graph.node.splice(place..place + length, [NodeProto { output, ..merged.node }]);
                constants.extend(merged.constants);
                merged_names.push(name);
            }
        }
    }
    merged_names
}

/// The nodes as a match of the pattern, if they match and no other node reads the values between them.
fn find<'a>(
    nodes: &'a [NodeProto],
    pattern: &str,
    constants: &'a HashMap<String, Tensor>,
    reads: &HashMap<String, usize>,
) -> Option<Found<'a>> {
    let inputs = || nodes.iter().flat_map(|node| &node.input);
    let (mut values, mut words): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
    let mut word = |name: &'a str| match values.iter().position(|known| *known == name) {
        _ if constants.contains_key(name) => "c".to_owned(),
        Some(number) => number.to_string(),
        None => {
            values.push(name);
            (values.len() - 1).to_string()
        }
    };
    for node in nodes {
        let [output] = node.output.as_slice() else { return None };
        let mut operands: Vec<String> = node.input.iter().map(|name| word(name)).collect();
        if matches!(node.op_type.as_str(), "Add" | "Mul") {
            operands.sort_unstable();
        }
        words.push(format!("{}{}({}){}", node.domain, node.op_type, operands.join(" "), word(output)));
    }
    let (_, between) = nodes.split_last()?;
    let is_inside = |name: &String| reads.get(name) == Some(&inputs().filter(|input| *input == name).count());
    let is_alone = between.iter().flat_map(|node| &node.output).all(is_inside);
    let constants = inputs().filter_map(|name| Some((name.as_str(), constants.get(name)?))).collect();
    (is_alone && words.join(" ") == pattern).then_some(Found { nodes, constants })
}

/// `(x - mean) / sqrt(variance + epsilon) * weight + bias` with constant mean and variance.
fn batch_normalization(found: &Found<'_>) -> Option<Merged> {
    let [conv, node] = found.nodes else { return None };
    let tensors: Vec<&Tensor> = found.constants.iter().map(|(_, tensor)| *tensor).collect();
    let [kernel, conv_bias @ .., weight, bias, mean, variance] = tensors.as_slice() else { return None };
    if kernel.dtype() != DType::F32 || int(node, "training_mode", 0) != 0 {
        return None;
    }
    let fold = || -> Result<[Tensor; 2]> {
        let scale = (*weight / (*variance + f64::from(float(node, "epsilon", 1e-5)))?.sqrt()?)?;
        let mut shape = vec![1; kernel.rank()];
        shape[0] = kernel.dim(0)?;
        let mean = conv_bias.first().map_or_else(|| Ok((*mean).clone()), |conv_bias| *mean - *conv_bias)?;
        Ok([kernel.broadcast_mul(&scale.reshape(shape)?)?, (*bias - (mean * scale)?)?])
    };
    let names = ["weight", "bias"].map(|part| format!("{}/folded {part}", node.output[0]));
    let input = vec![conv.input[0].clone(), names[0].clone(), names[1].clone()];
    let constants = names.into_iter().zip(fold().ok()?).collect();
    Some(Merged { node: NodeProto { name: name_of(conv), input, ..conv.clone() }, constants })
}

/// `d / sqrt(mean(d^2) + epsilon) * weight + bias` with `d = x - mean(x)`, all over the last axis.
fn layer_normalization(found: &Found<'_>) -> Option<Merged> {
    let [(_, exponent), (_, epsilon), (weight_name, weight), (bias_name, bias)] = *found.constants else { return None };
    let mut means = found.nodes.iter().filter(|node| node.op_type == "ReduceMean");
    let is_over_last_axis = means.all(|mean| ints(mean, "axes") == [-1] && int(mean, "keepdims", 1) == 1);
    let is_per_feature = weight.rank() == 1 && weight.shape() == bias.shape();
    let epsilon = AttributeProto {
        name: "epsilon".to_owned(),
        r#type: AttributeType::Float.into(),
        f: scalar(epsilon)?,
        ..AttributeProto::default()
    };
    let is_one = is_over_last_axis && is_per_feature && scalar(exponent)? == 2.0;
    let scales = found.nodes.iter().find(|node| node.input.iter().any(|input| input == weight_name))?;
    is_one.then(|| merged(found, scales, "LayerNormalization", &[weight_name, bias_name], vec![epsilon]))
}

/// `x * (erf(x / sqrt(2)) + 1) * 0.5`.
fn gelu(found: &Found<'_>) -> Option<Merged> {
    let mut numbers = found.constants.iter().zip([SQRT_2, 1.0, 0.5]);
    let is_gelu =
        numbers.all(|((_, tensor), number)| scalar(tensor).is_some_and(|found| (found - number).abs() < 1e-4));
    is_gelu.then(|| merged(found, &found.nodes[1], "Gelu", &[], Vec::new()))
}

/// The operator that replaces a pattern, with the name of `main`: the node that computes most of it or reads its
/// weights.
fn merged(
    found: &Found<'_>,
    main: &NodeProto,
    op_type: &str,
    others: &[&str],
    attribute: Vec<AttributeProto>,
) -> Merged {
    let first = found.nodes[0].input[0].as_str();
    let input = std::iter::once(first).chain(others.iter().copied()).map(str::to_owned).collect();
    let (name, op_type) = (name_of(main), op_type.to_owned());
    let node = NodeProto { name, op_type, input, attribute, ..NodeProto::default() };
    Merged { node, constants: Vec::new() }
}

/// The value of a constant with one `f32` element and at most one axis, so that broadcasting adds no axis.
fn scalar(tensor: &Tensor) -> Option<f32> {
    let is_number = tensor.rank() <= 1 && tensor.elem_count() == 1 && tensor.dtype() == DType::F32;
    is_number.then(|| tensor.flatten_all()?.get(0)?.to_scalar()).and_then(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::super::plan::Plan;
    use super::super::plan::tests::{evaluate, graph, int_attribute, ints_attribute, node, ramp};
    use super::*;
    use candle_core::Device;

    type Constants = Vec<(&'static str, Tensor)>;

    fn number(value: f32) -> Tensor {
        Tensor::new(value, &Device::Cpu).unwrap()
    }

    /// Fuses, and compares the plan's outputs with those of `candle-onnx` without fusion.
    fn fused(nodes: &[NodeProto], outputs: &[&str], constants: Constants, input: &Tensor) -> Vec<String> {
        let mut constants: HashMap<String, Tensor> =
            constants.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect();
        let mut values = constants.clone();
        values.insert("x".into(), input.clone());
        let expected = evaluate(nodes, outputs, values);
        let mut graph = graph(nodes, &["x"], outputs);
        fuse(&mut graph, &mut constants);
        let computed = Plan::new(&graph, &constants, None).unwrap().run(std::slice::from_ref(input)).unwrap();
        for (name, tensor) in outputs.iter().zip(&computed) {
            let difference = (tensor - &expected[*name]).unwrap().abs().unwrap().flatten_all().unwrap();
            assert!(difference.max(0).unwrap().to_scalar::<f32>().unwrap() < 1e-5, "{name}");
        }
        graph.node.into_iter().map(|node| node.op_type).collect()
    }

    fn conv_and_batch_normalization() -> (Vec<NodeProto>, Constants) {
        let nodes = vec![
            node("Conv", &["x", "k", "kb"], &["c"]),
            node("BatchNormalization", &["c", "w", "b", "mean", "variance"], &["n"]),
            node("Relu", &["n"], &["y"]),
        ];
        let variance = (ramp(&[4]).sqr().unwrap() + 0.5).unwrap();
        let [bias, weight, offset, mean] = [1.0, 2.0, 0.5, -1.0].map(|scale| (ramp(&[4]) * scale).unwrap());
        let constants = vec![("k", ramp(&[4, 3, 2, 2])), ("kb", bias), ("w", weight), ("b", offset), ("mean", mean)];
        (nodes, constants.into_iter().chain([("variance", variance)]).collect())
    }

    #[test]
    fn batch_normalization_goes_into_the_conv_with_and_without_a_bias() {
        let (mut nodes, constants) = conv_and_batch_normalization();
        assert_eq!(fused(&nodes, &["y"], constants.clone(), &ramp(&[2, 3, 5, 5])), ["Conv", "Relu"]);
        nodes[0].input.pop();
        assert_eq!(fused(&nodes, &["y"], constants, &ramp(&[2, 3, 5, 5])), ["Conv", "Relu"]);
    }

    #[test]
    fn a_value_that_is_read_elsewhere_stays() {
        let (mut nodes, constants) = conv_and_batch_normalization();
        let input = ramp(&[2, 3, 5, 5]);
        assert_eq!(fused(&nodes, &["y", "c"], constants.clone(), &input).len(), 3);
        nodes.push(node("Neg", &["c"], &["z"]));
        assert_eq!(fused(&nodes, &["y", "z"], constants, &input).len(), 4);
    }

    fn spelled_out_layer_normalization() -> (Vec<NodeProto>, Constants) {
        let mean = |input: &str, output: &str| NodeProto {
            attribute: vec![ints_attribute("axes", &[-1]), int_attribute("keepdims", 1)],
            ..node("ReduceMean", &[input], &[output])
        };
        let nodes = vec![
            mean("x", "mean"),
            node("Sub", &["x", "mean"], &["d"]),
            node("Pow", &["d", "two"], &["square"]),
            mean("square", "variance"),
            node("Add", &["variance", "epsilon"], &["stable"]),
            node("Sqrt", &["stable"], &["deviation"]),
            node("Div", &["d", "deviation"], &["n"]),
            node("Mul", &["n", "w"], &["scaled"]),
            node("Add", &["b", "scaled"], &["y"]),
        ];
        (nodes, vec![("two", number(2.)), ("epsilon", number(1e-3)), ("w", ramp(&[6])), ("b", ramp(&[6]))])
    }

    #[test]
    fn a_spelled_out_layer_normalization_becomes_one_node() {
        let (nodes, constants) = spelled_out_layer_normalization();
        assert_eq!(fused(&nodes, &["y"], constants.clone(), &ramp(&[2, 4, 6])), ["LayerNormalization"]);
        let mut merged = graph(&nodes, &["x"], &["y"]);
        fuse(&mut merged, &mut constants.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect());
        assert_eq!(merged.node[0].name, "scaled", "the product with its weights");
    }

    #[test]
    fn what_only_resembles_a_layer_normalization_stays() {
        let (nodes, mut constants) = spelled_out_layer_normalization();
        let input = ramp(&[2, 4, 6]);
        assert_eq!(fused(&nodes, &["y", "n"], constants.clone(), &input).len(), 9);
        let mut other_axis = nodes.clone();
        other_axis[3].attribute[0] = ints_attribute("axes", &[1]);
        assert_eq!(fused(&other_axis, &["y"], constants.clone(), &input).len(), 9);
        constants[0].1 = number(4.);
        assert_eq!(fused(&nodes, &["y"], constants, &input).len(), 9);
    }

    #[test]
    fn a_spelled_out_gelu_becomes_one_node() {
        let nodes = vec![
            node("Div", &["x", "root"], &["q"]),
            node("Erf", &["q"], &["e"]),
            node("Add", &["e", "one"], &["s"]),
            node("Mul", &["x", "s"], &["p"]),
            node("Mul", &["p", "half"], &["y"]),
        ];
        let constants = |root| vec![("root", number(root)), ("one", number(1.)), ("half", number(0.5))];
        let input = ramp(&[2, 7]);
        assert_eq!(fused(&nodes, &["y"], constants(std::f32::consts::SQRT_2), &input), ["Gelu"]);
        assert_eq!(fused(&nodes, &["y"], constants(2.), &input).len(), 5);
    }
}
