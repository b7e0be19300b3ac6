//! Finds the initializers of an ONNX graph that are a model's parameters: floating-point ones, and the integers that
//! weights and biases are quantised to. Scales and zero points are not.
//!
//! The operators that read an initializer decide, by the specifications of ONNX and of ONNX Runtime's contrib operators. Integers that no quantising operator reads are indices, shapes and the like.

use std::collections::{HashMap, HashSet};

use super::proto::{GraphProto, NodeProto, TensorProto, element};

/// An initializer with parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters<'a> {
    pub tensor: &'a TensorProto,
    /// The number of parameters; `None` if the shape is impossible.
    pub count: Option<u64>,
    pub numbers: Numbers<'a>,
}

/// The kind of numbers, which decides what stands for 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Numbers<'a> {
    Floating,
    /// The value of this name is their zero point; 0 where there is no name.
    Integers {
        zero_point: Option<&'a str>,
    },
    /// Several to a byte.
    Packed,
}

impl GraphProto {
    /// The initializers that are parameters, in the order of the file.
    pub(crate) fn parameters(&self) -> Vec<Parameters<'_>> {
        let uses = Uses::of(self);
        self.initializers.iter().filter_map(|tensor| uses.parameters(tensor)).collect()
    }
}

/// Where the inputs of an operator that works on quantised numbers are: the quantised numbers, each with the place of its zero
/// point; and numbers that are not quantised, or, as biases, by the scales of others and around 0. All others are scales and
/// zero points.
type Paths = (&'static [(usize, usize)], &'static [usize]);

fn paths(op_type: &str) -> Option<Paths> {
    Some(match op_type {
        "QuantizeLinear" => (&[], &[0]),
        "DequantizeLinear" => (&[(0, 2)], &[]),
        "QLinearConv" => (&[(0, 2), (3, 5)], &[8]),
        "QLinearMatMul" | "QLinearAdd" | "QLinearMul" => (&[(0, 2), (3, 5)], &[]),
        "QGemm" => (&[(0, 2), (3, 5)], &[6]),
        "MatMulInteger" | "ConvInteger" => (&[(0, 2), (1, 3)], &[]),
        "DynamicQuantizeMatMul" => (&[(1, 3)], &[0, 4]),
        "MatMulIntegerToFloat" => (&[(0, 4), (1, 5)], &[6]),
        "QAttention" => (&[(0, 6), (1, 7)], &[2, 8]),
        "DynamicQuantizeLSTM" => (&[(1, 9), (2, 11)], &[0, 3, 5, 6, 7]),
        name if name.starts_with("QLinear") => (&[], &[0]),
        _ => return None,
    })
}

/// A product with weights of four bits, or fewer, that are packed into bytes: inputs are activation, weights, scales, zero
/// points, order of groups, bias.
const PACKED: &str = "MatMulNBits";

/// Operators whose output is numbers of their first input, in another order or shape, or some of them.
const MOVING: [&str; 9] =
    ["Gather", "GatherND", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Identity"];

/// How values are used, by their names.
#[derive(Default)]
struct Uses<'a> {
    plain: HashSet<&'a str>,
    scales: HashSet<&'a str>,
    quantised: HashMap<&'a str, Option<&'a str>>,
    packed: HashMap<&'a str, Option<u64>>,
}

impl<'a> Uses<'a> {
    fn of(graph: &'a GraphProto) -> Self {
        let mut uses = Uses::default();
        // Of values that were only moved: what they were before.
        let mut moved: HashMap<&str, &str> = HashMap::new();
        // Of activations, as they are found in each call.
        let mut dynamic_scales: HashSet<&str> = HashSet::new();
        // Nodes are in topological order.
        for node in &graph.nodes {
            let inputs = || node.inputs.iter().map(String::as_str).filter(|name| !name.is_empty());
            let input = |place: usize| node.inputs.get(place).map(String::as_str).filter(|name| !name.is_empty());
            match (paths(&node.op_type), node.op_type.as_str()) {
                (Some(paths), _) => uses.add_quantised(node, paths, &moved),
                (None, PACKED) => {
                    let product = |name: &str| node.int(name).and_then(|size| u64::try_from(size).ok());
                    let count = product("K").zip(product("N")).and_then(|(rows, columns)| rows.checked_mul(columns));
                    uses.packed.extend(input(1).map(|weights| (weights, count)));
                    uses.plain.extend([0, 5].into_iter().filter_map(input));
                    uses.scales.extend((2..5).filter_map(input));
                }
                (None, "DynamicQuantizeLinear") => {
                    uses.plain.extend(inputs());
                    dynamic_scales.extend(node.outputs.get(1).map(String::as_str));
                }
                // The scale of an activation times that of the weights.
                (None, "Mul") if inputs().any(|name| dynamic_scales.contains(name)) => uses.scales.extend(inputs()),
                (None, op_type) => {
                    if let Some((output, first)) =
                        node.outputs.first().zip(input(0)).filter(|_| MOVING.contains(&op_type))
                    {
                        moved.insert(output, moved.get(first).copied().unwrap_or(first));
                    }
                    uses.plain.extend(inputs());
                }
            }
        }
        uses
    }

    fn add_quantised(&mut self, node: &'a NodeProto, (quantised, plain): Paths, moved: &HashMap<&'a str, &'a str>) {
        for (place, name) in node.inputs.iter().map(String::as_str).enumerate().filter(|(_, name)| !name.is_empty()) {
            let quantised = quantised.iter().find(|(numbers, _)| *numbers == place);
            if let Some((_, zero_point)) = quantised {
                let zero_point = node.inputs.get(*zero_point).map(String::as_str).filter(|name| !name.is_empty());
                self.quantised.insert(moved.get(name).copied().unwrap_or(name), zero_point);
            } else if plain.contains(&place) {
                self.plain.insert(name);
                // A bias is a sum of products: an integer whose zero point is 0.
                self.quantised.entry(name).or_insert(None);
            } else {
                self.scales.insert(name);
            }
        }
    }

    fn parameters(&self, tensor: &'a TensorProto) -> Option<Parameters<'a>> {
        let name = tensor.name.as_str();
        let parameters = |count, numbers| Some(Parameters { tensor, count, numbers });
        if let Some(count) = self.packed.get(name) {
            return parameters(*count, Numbers::Packed);
        }
        if is_floating(tensor) {
            let is_scale = self.scales.contains(name) && !self.plain.contains(name);
            return if is_scale { None } else { parameters(tensor.elements(), Numbers::Floating) };
        }
        let zero_point = *self.quantised.get(name)?;
        let is_packed = matches!(tensor.data_type, element::UINT4 | element::INT4);
        parameters(tensor.elements(), if is_packed { Numbers::Packed } else { Numbers::Integers { zero_point } })
    }
}

fn is_floating(tensor: &TensorProto) -> bool {
    matches!(tensor.data_type, element::FLOAT | element::FLOAT16 | element::DOUBLE | element::BFLOAT16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::AttributeProto;

    fn tensor(name: &str, data_type: i32, dims: &[i64]) -> TensorProto {
        TensorProto { name: name.into(), data_type, dims: dims.to_vec(), ..TensorProto::default() }
    }

    fn counted(nodes: Vec<NodeProto>, initializers: Vec<TensorProto>) -> Vec<(String, Option<u64>)> {
        let graph = GraphProto { nodes, initializers, ..GraphProto::default() };
        let named = |found: &Parameters| (found.tensor.name.clone(), found.count);
        graph.parameters().iter().map(named).collect()
    }

    #[test]
    fn weights_and_biases_are_counted_and_scales_and_zero_points_are_not() {
        let node = NodeProto::new("QLinearConv", &["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], "y");
        let scalars = ["xs", "ws", "ys"].map(|name| tensor(name, element::FLOAT, &[]));
        let zeros = ["xz", "wz", "yz"].map(|name| tensor(name, element::UINT8, &[]));
        let own = [tensor("w", element::INT8, &[4, 3, 3, 3]), tensor("b", element::INT32, &[4])];
        let all = scalars.into_iter().chain(zeros).chain(own).collect();
        assert_eq!(counted(vec![node], all), [("w".into(), Some(108)), ("b".into(), Some(4))]);
    }

    #[test]
    fn a_table_that_is_looked_up_before_it_is_dequantised_is_counted_and_its_indices_are_not() {
        let nodes = vec![
            NodeProto::new("Gather", &["table", "ids"], "rows"),
            NodeProto::new("DequantizeLinear", &["rows", "scale", "zero"], "y"),
            NodeProto::new("Add", &["y", "offset"], "z"),
        ];
        let initializers = vec![
            tensor("table", element::UINT8, &[100, 8]),
            tensor("ids", element::INT64, &[5]),
            tensor("scale", element::FLOAT, &[]),
            tensor("zero", element::UINT8, &[]),
            tensor("offset", element::FLOAT16, &[8]),
        ];
        assert_eq!(counted(nodes, initializers), [("table".into(), Some(800)), ("offset".into(), Some(8))]);
    }

    #[test]
    fn numbers_of_four_bits_are_counted_one_by_one() {
        let product = NodeProto {
            attributes: vec![AttributeProto::int("K", 64), AttributeProto::int("N", 32)],
            ..NodeProto::new("MatMulNBits", &["x", "w", "scales", "zeros"], "y")
        };
        let nodes = vec![product, NodeProto::new("DequantizeLinear", &["four", "s"], "z")];
        let initializers = vec![
            tensor("w", element::UINT8, &[32, 2, 16]),
            tensor("scales", element::FLOAT, &[64]),
            tensor("zeros", element::UINT8, &[32]),
            tensor("four", element::INT4, &[6, 5]),
            tensor("s", element::FLOAT, &[]),
        ];
        assert_eq!(counted(nodes, initializers), [("w".into(), Some(2048)), ("four".into(), Some(30))]);
    }

    #[test]
    fn a_number_that_is_a_weight_somewhere_is_a_parameter() {
        let nodes =
            vec![NodeProto::new("QuantizeLinear", &["w", "one"], "q"), NodeProto::new("Mul", &["x", "one"], "y")];
        let initializers = vec![tensor("w", element::FLOAT, &[7]), tensor("one", element::FLOAT, &[])];
        assert_eq!(counted(nodes, initializers), [("w".into(), Some(7)), ("one".into(), Some(1))]);
    }
}
