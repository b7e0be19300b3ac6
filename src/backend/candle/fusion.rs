//! Merges nodes when a graph is loaded.
//!
//! - `BatchNormalization` after a `Conv` becomes a part of the weights and bias of the `Conv`.
//! - Some exporters write layer normalization and GELU as several nodes; they become `LayerNormalization` and `Gelu`.
//!
//! A node is merged only if no other node reads its outputs. A graph with subgraphs stays as it is, because subgraphs may
//! read any value.

use std::collections::{HashMap, HashSet};

use candle_core::{DType, Result, Tensor};
use candle_onnx::onnx::attribute_proto::AttributeType;
use candle_onnx::onnx::{AttributeProto, GraphProto, NodeProto};

use super::operator::{float, int, ints};

/// The node that replaces the nodes of a pattern.
struct Fused {
    node: NodeProto,
    /// The outputs of the replaced nodes, except the last.
    replaced: Vec<String>,
    constants: Vec<(String, Tensor)>,
}

type Pattern = fn(&Surroundings<'_>, &NodeProto) -> Option<Fused>;

const PATTERNS: [(&str, Pattern); 3] =
    [("BatchNormalization", batch_normalization), ("LayerNormalization", layer_normalization), ("Gelu", gelu)];

/// Merges nodes of a graph, and returns the names of the patterns that it found.
pub fn fuse(graph: &mut GraphProto, constants: &mut HashMap<String, Tensor>) -> Vec<&'static str> {
    let mut attributes = graph.node.iter().flat_map(|node| &node.attribute);
    if attributes.any(|attribute| attribute.g.is_some() || !attribute.graphs.is_empty()) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (name, pattern) in PATTERNS {
        let surroundings = Surroundings::new(graph, constants);
        // The merged node stands where the last node of the pattern was, so that all its inputs are computed before it.
        let matches = graph.node.iter().enumerate();
        let matches = matches.filter_map(|(index, node)| Some((index, pattern(&surroundings, node)?)));
        let matches: Vec<(usize, Fused)> = matches.collect();
        if !matches.is_empty() {
            found.push(name);
        }
        let mut replaced = HashSet::new();
        for (index, fused) in matches {
            graph.node[index] = fused.node;
            replaced.extend(fused.replaced);
            constants.extend(fused.constants);
        }
        graph.node.retain(|node| !node.output.iter().any(|output| replaced.contains(output)));
    }
    found
}

/// Which node computes a value, and how often it is read.
struct Surroundings<'a> {
    producers: HashMap<&'a str, &'a NodeProto>,
    reads: HashMap<&'a str, usize>,
    constants: &'a HashMap<String, Tensor>,
}

impl<'a> Surroundings<'a> {
    fn new(graph: &'a GraphProto, constants: &'a HashMap<String, Tensor>) -> Self {
        let outputs = graph.node.iter().flat_map(|node| node.output.iter().map(move |name| (name.as_str(), node)));
        let mut reads = HashMap::new();
        let names = graph.node.iter().flat_map(|node| &node.input);
        for name in names.chain(graph.output.iter().map(|output| &output.name)) {
            *reads.entry(name.as_str()).or_default() += 1;
        }
        Surroundings { producers: outputs.collect(), reads, constants }
    }

    /// The node that computes a value, if it is of that kind and the value is read that often.
    fn made_by(&self, name: &str, op_type: &str, reads: usize) -> Option<&'a NodeProto> {
        let node = *self.producers.get(name)?;
        (is(node, op_type) && node.output.len() == 1 && self.reads.get(name) == Some(&reads)).then_some(node)
    }

    fn constant(&self, node: &NodeProto, index: usize) -> Option<&'a Tensor> {
        self.constants.get(node.input.get(index)?)
    }

    /// The index of the constant operand of a commutative node, and the name of the other operand.
    fn operands<'b>(&self, node: &'b NodeProto) -> Option<(usize, &'b str)> {
        let [left, right] = node.input.as_slice() else { return None };
        match (self.constants.contains_key(left), self.constants.contains_key(right)) {
            (false, true) => Some((1, left)),
            (true, false) => Some((0, right)),
            _ => None,
        }
    }

    /// The other operand of a commutative node that has a scalar near `value` as one operand.
    fn with_scalar<'b>(&self, node: &'b NodeProto, value: f32) -> Option<&'b str> {
        let (constant, other) = self.operands(node)?;
        (scalar(self.constant(node, constant)?)? - value).abs().le(&1e-6).then_some(other)
    }
}

/// `(x - mean) / sqrt(variance + epsilon) * weight + bias` with constant mean and variance.
fn batch_normalization(graph: &Surroundings<'_>, node: &NodeProto) -> Option<Fused> {
    if !is(node, "BatchNormalization") || int(node, "training_mode", 0) != 0 || node.output.len() != 1 {
        return None;
    }
    let conv = graph.made_by(node.input.first()?, "Conv", 1)?;
    let kernel = graph.constant(conv, 1).filter(|kernel| kernel.dtype() == DType::F32)?;
    let conv_bias = match conv.input.get(2).filter(|name| !name.is_empty()) {
        Some(name) => Some(graph.constants.get(name)?),
        None => None,
    };
    let [weight, bias, mean, variance] = [1, 2, 3, 4].map(|index| graph.constant(node, index));
    let (weight, bias, mean, variance) = (weight?, bias?, mean?, variance?);
    let fold = || -> Result<(Tensor, Tensor)> {
        let scale = (weight / (variance + f64::from(float(node, "epsilon", 1e-5)))?.sqrt()?)?;
        let mut shape = vec![1; kernel.rank()];
        shape[0] = kernel.dim(0)?;
        let mean = conv_bias.map_or_else(|| Ok(mean.clone()), |conv_bias| mean - conv_bias)?;
        Ok((kernel.broadcast_mul(&scale.reshape(shape)?)?, (bias - (mean * scale)?)?))
    };
    let (kernel, bias) = fold().ok()?;
    let output = &node.output[0];
    let names = ["weight", "bias"].map(|part| format!("{output}/folded {part}"));
    let input = vec![conv.input[0].clone(), names[0].clone(), names[1].clone()];
    Some(Fused {
        node: NodeProto { input, output: vec![output.clone()], ..conv.clone() },
        replaced: conv.output.clone(),
        constants: names.into_iter().zip([kernel, bias]).collect(),
    })
}

/// `d / sqrt(mean(d^2) + epsilon) * scale + bias` with `d = x - mean(x)`, all over the last axis.
fn layer_normalization(graph: &Surroundings<'_>, node: &NodeProto) -> Option<Fused> {
    if !is(node, "Add") || node.output.len() != 1 {
        return None;
    }
    let is_last_axis = |mean: &NodeProto| ints(mean, "axes") == [-1] && int(mean, "keepdims", 1) == 1;
    let (bias, scaled) = graph.operands(node)?;
    let scaled = graph.made_by(scaled, "Mul", 1)?;
    let (scale, normalized) = graph.operands(scaled)?;
    let normalized = graph.made_by(normalized, "Div", 1)?;
    let [difference, deviation] = normalized.input.as_slice() else { return None };
    let deviation = graph.made_by(deviation, "Sqrt", 1)?;
    let stabilized = graph.made_by(deviation.input.first()?, "Add", 1)?;
    let (epsilon, variance) = graph.operands(stabilized)?;
    let epsilon = scalar(graph.constant(stabilized, epsilon)?)?;
    let variance = graph.made_by(variance, "ReduceMean", 1).filter(|mean| is_last_axis(mean))?;
    let square = graph.made_by(variance.input.first()?, "Pow", 1)?;
    if square.input.first() != Some(difference) || scalar(graph.constant(square, 1)?)? != 2. {
        return None;
    }
    let centred = graph.made_by(difference, "Sub", 2)?;
    let [input, mean] = centred.input.as_slice() else { return None };
    let mean = graph.made_by(mean, "ReduceMean", 1).filter(|mean| is_last_axis(mean))?;
    let (weight, offset) = (graph.constant(scaled, scale)?, graph.constant(node, bias)?);
    if mean.input.first() != Some(input) || weight.rank() != 1 || weight.shape() != offset.shape() {
        return None;
    }
    let inner = [scaled, normalized, deviation, stabilized, variance, square, centred, mean];
    let fused = NodeProto {
        op_type: "LayerNormalization".to_owned(),
        input: vec![input.clone(), scaled.input[scale].clone(), node.input[bias].clone()],
        output: node.output.clone(),
        attribute: vec![AttributeProto {
            name: "epsilon".to_owned(),
            r#type: AttributeType::Float.into(),
            f: epsilon,
            ..AttributeProto::default()
        }],
        ..NodeProto::default()
    };
    Some(Fused { node: fused, replaced: outputs(&inner), constants: Vec::new() })
}

/// `x * (erf(x / sqrt(2)) + 1) * 0.5`.
fn gelu(graph: &Surroundings<'_>, node: &NodeProto) -> Option<Fused> {
    if !is(node, "Mul") || node.output.len() != 1 {
        return None;
    }
    let product = graph.made_by(graph.with_scalar(node, 0.5)?, "Mul", 1)?;
    let [left, right] = product.input.as_slice() else { return None };
    let (input, sum) = match graph.made_by(right, "Add", 1) {
        Some(sum) => (left, sum),
        None => (right, graph.made_by(left, "Add", 1)?),
    };
    let erf = graph.made_by(graph.with_scalar(sum, 1.)?, "Erf", 1)?;
    let quotient = graph.made_by(erf.input.first()?, "Div", 1)?;
    let divisor = scalar(graph.constant(quotient, 1)?)?;
    if quotient.input.first() != Some(input) || (divisor - std::f32::consts::SQRT_2).abs() > 1e-4 {
        return None;
    }
    let fused = NodeProto {
        op_type: "Gelu".to_owned(),
        input: vec![input.clone()],
        output: node.output.clone(),
        ..NodeProto::default()
    };
    Some(Fused { node: fused, replaced: outputs(&[product, sum, erf, quotient]), constants: Vec::new() })
}

fn is(node: &NodeProto, op_type: &str) -> bool {
    node.op_type == op_type && node.domain.is_empty()
}

/// The value of a constant with one `f32` element and at most one axis, so that broadcasting adds no axis.
fn scalar(tensor: &Tensor) -> Option<f32> {
    if tensor.rank() > 1 || tensor.dtype() != DType::F32 {
        return None;
    }
    match tensor.flatten_all().and_then(|flat| flat.to_vec1::<f32>()).ok()?.as_slice() {
        [value] => Some(*value),
        _ => None,
    }
}

fn outputs(nodes: &[&NodeProto]) -> Vec<String> {
    nodes.iter().flat_map(|node| &node.output).cloned().collect()
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
        let computed = Plan::new(&graph, &constants).unwrap().run(std::slice::from_ref(input)).unwrap();
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
        assert_eq!(fused(&nodes, &["y"], constants, &ramp(&[2, 4, 6])), ["LayerNormalization"]);
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
