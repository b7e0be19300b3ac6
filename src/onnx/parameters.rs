//! Finds the initializers of an ONNX graph that are a model's parameters: floating-point ones, and the integers that
//! weights and biases are quantised to. Scales and zero points are not.
//!
//! The operators that read an initializer decide, by the specifications of ONNX and of ONNX Runtime's contrib
//! operators. Integers that no quantising operator reads are indices, shapes and the like.

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
    /// `zero_point` names the value with their zero point, which is 0 if there is no name.
    Integers {
        zero_point: Option<&'a str>,
    },
    /// Packed into bytes, mostly several per byte.
    Packed,
}

impl GraphProto {
    /// The initializers that are parameters, in the order of the file.
    pub(crate) fn parameters(&self) -> Vec<Parameters<'_>> {
        let uses = Uses::of(self);
        self.initializers.iter().filter_map(|tensor| uses.parameters(tensor)).collect()
    }
}

/// The inputs of an operator on quantised numbers, one letter each: numbers (`n`; if they are integers, as biases are,
/// their zero point is 0), quantised numbers (`q`), the zero points of these in the same order (`z`), numbers that are
/// packed into bytes (`p`), and scales and the like (`s`), as are all inputs after the last letter.
fn kinds_of_inputs(node: &NodeProto) -> Option<String> {
    let kinds = match node.op_type.as_str() {
        // The scale and the zero point of the output, and three inputs for each part.
        "QLinearConcat" => return Some(format!("ss{}", "qsz".repeat(node.inputs.len() / 3))),
        "DequantizeLinear" => "qsz",
        "QLinearConv" => "qszqszssn",
        "QLinearMatMul" | "QLinearAdd" | "QLinearMul" => "qszqsz",
        "QGemm" => "qszqszn",
        "MatMulInteger" | "ConvInteger" => "qqzz",
        "DynamicQuantizeMatMul" => "nqszn",
        "MatMulIntegerToFloat" => "qqsszzn",
        "MatMulNBits" => "npsssn",
        "MatMulBnb4" => "nps",
        "QMoE" => "nnpsnpsnpsn",
        "GatherBlockQuantized" => "p",
        "QAttention" => "qqnssszzn",
        "QEmbedLayerNormalization" => "ssqqqqqsssssszzzzz",
        "DynamicQuantizeLSTM" => "nqqnsnnnszsz",
        "QuantizeLinear" | "DynamicQuantizeLinear" => "n",
        name if name.starts_with("QLinear") => "n",
        _ => return None,
    };
    Some(kinds.to_owned())
}

/// Operators whose output has the numbers of their first input, or some of them, in another order or shape.
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
        // For values that were only moved: the value before.
        let mut moved: HashMap<&str, &str> = HashMap::new();
        // Scales of activations, which are computed in each call.
        let mut dynamic_scales: HashSet<&str> = HashSet::new();
        // Nodes are in topological order.
        for node in &graph.nodes {
            let inputs = || node.inputs.iter().map(String::as_str).filter(|name| !name.is_empty());
            if let Some(kinds) = kinds_of_inputs(node) {
                uses.add_quantised(graph, node, &kinds, &moved);
                let scale = node.outputs.get(1).filter(|_| node.op_type == "DynamicQuantizeLinear");
                dynamic_scales.extend(scale.map(String::as_str));
            } else if node.op_type == "Mul" && inputs().any(|name| dynamic_scales.contains(name)) {
                // The scale of an activation times that of the weights.
                uses.scales.extend(inputs());
            } else {
                let output = node.outputs.first().filter(|_| MOVING.contains(&node.op_type.as_str()));
                if let Some((output, first)) = output.zip(inputs().next()) {
                    moved.insert(output, moved.get(first).copied().unwrap_or(first));
                }
                uses.plain.extend(inputs());
            }
        }
        uses
    }

    fn add_quantised(
        &mut self,
        graph: &GraphProto,
        node: &'a NodeProto,
        kinds: &str,
        moved: &HashMap<&'a str, &'a str>,
    ) {
        let input = |place: usize| node.inputs.get(place).map(String::as_str).filter(|name| !name.is_empty());
        for (place, name) in (0..node.inputs.len()).filter_map(|place| Some((place, input(place)?))) {
            match kinds.as_bytes().get(place) {
                Some(b'n') => {
                    self.plain.insert(name);
                    self.quantised.entry(name).or_insert(None);
                }
                Some(b'q') => {
                    let before = kinds[..place].matches('q').count();
                    let zero_point = kinds.match_indices('z').nth(before).and_then(|(place, _)| input(place));
                    self.quantised.insert(moved.get(name).copied().unwrap_or(name), zero_point);
                }
                Some(b'p') => {
                    let size = |name: &str| node.int(name).and_then(|size| u64::try_from(size).ok());
                    let count = size("K").zip(size("N")).and_then(|(rows, columns)| rows.checked_mul(columns));
                    // Other operators do not say their sizes, and a byte may hold several numbers.
                    let of_shape = || {
                        let table = graph.initializer(name)?;
                        let bits = size("bits").or(size("expert_weight_bits")).unwrap_or(4);
                        let in_element = if table.data_type == element::UINT8 { 8_u64.checked_div(bits)? } else { 1 };
                        table.elements()?.checked_mul(in_element)
                    };
                    self.packed.insert(name, count.or_else(of_shape));
                }
                _ => {
                    self.scales.insert(name);
                }
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
    fn the_parts_that_are_put_together_are_counted_and_their_scales_are_not() {
        let node = NodeProto::new("QLinearConcat", &["ys", "yz", "x", "xs", "xz", "w", "ws", "wz"], "y");
        let scalars = ["ys", "xs", "ws"].map(|name| tensor(name, element::FLOAT, &[]));
        let zeros = ["yz", "xz", "wz"].map(|name| tensor(name, element::UINT8, &[]));
        let all = scalars.into_iter().chain(zeros).chain([tensor("w", element::UINT8, &[4, 3])]).collect();
        assert_eq!(counted(vec![node], all), [("w".into(), Some(12))]);
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
    fn tables_in_blocks_are_counted_by_their_numbers() {
        let count = |data_type: i32, bits: i64| {
            let look_up = NodeProto::new("GatherBlockQuantized", &["table", "ids", "scales"], "y");
            let nodes = vec![NodeProto { attributes: vec![AttributeProto::int("bits", bits)], ..look_up }];
            let scales = tensor("scales", element::FLOAT, &[100, 2]);
            counted(nodes, vec![tensor("table", data_type, &[100, 32]), scales])
        };
        assert_eq!(count(element::INT4, 4), [("table".into(), Some(3200))]);
        assert_eq!(count(element::UINT8, 4), [("table".into(), Some(6400))]);
        assert_eq!(count(element::UINT8, 8), [("table".into(), Some(3200))]);
    }

    #[test]
    fn numbers_of_four_bits_are_counted_one_by_one() {
        let product = NodeProto {
            attributes: vec![AttributeProto::int("K", 64), AttributeProto::int("N", 32)],
            ..NodeProto::new("MatMulNBits", &["x", "w", "scales", "zeros"], "y")
        };
        let attributes = product.attributes.clone();
        let other = NodeProto { attributes, ..NodeProto::new("MatMulBnb4", &["x", "v", "most"], "v") };
        let nodes = vec![product, other, NodeProto::new("DequantizeLinear", &["four", "s"], "z")];
        let initializers = vec![
            tensor("w", element::UINT8, &[32, 2, 16]),
            tensor("scales", element::FLOAT, &[64]),
            tensor("zeros", element::UINT8, &[32]),
            tensor("v", element::UINT8, &[1024]),
            tensor("most", element::FLOAT, &[32]),
            tensor("four", element::INT4, &[6, 5]),
            tensor("s", element::FLOAT, &[]),
        ];
        let expected = [("w", 2048), ("v", 2048), ("four", 30)].map(|(name, count)| (name.to_owned(), Some(count)));
        assert_eq!(counted(nodes, initializers), expected);
    }

    #[test]
    fn experts_are_counted_by_their_numbers_and_with_their_biases() {
        let count = |bits: i64| {
            let inputs = ["x", "router", "w", "ws", "b", "v", "vs", "", "", "", "", "wz"];
            let attributes = vec![AttributeProto::int("expert_weight_bits", bits)];
            let initializers = vec![
                tensor("w", element::UINT8, &[4, 128, 32]),
                tensor("ws", element::FLOAT, &[4, 128]),
                tensor("wz", element::UINT8, &[4, 64]),
                tensor("b", element::FLOAT, &[4, 128]),
                tensor("v", element::UINT8, &[4, 64, 64]),
                tensor("vs", element::FLOAT, &[4, 64]),
            ];
            counted(vec![NodeProto { attributes, ..NodeProto::new("QMoE", &inputs, "y") }], initializers)
        };
        let biases = || ("b".to_owned(), Some(512));
        assert_eq!(count(4), [("w".into(), Some(32768)), biases(), ("v".into(), Some(32768))]);
        assert_eq!(count(8), [("w".into(), Some(16384)), biases(), ("v".into(), Some(16384))]);
    }

    #[test]
    fn each_table_of_quantised_embeddings_has_its_own_zero_point() {
        let inputs = [
            ["ids", "", "words", "places", "", "gamma"],
            ["beta", "", "words_s", "places_s", "", "gamma_s"],
            ["beta_s", "words_z", "places_z", "", "gamma_z", "beta_z"],
        ];
        let node = NodeProto::new("QEmbedLayerNormalization", &inputs.concat(), "y");
        let of_table = |(name, rows): (&str, i64)| {
            let [scale, zero_point] = ["s", "z"].map(|suffix| format!("{name}_{suffix}"));
            let table = tensor(name, element::UINT8, &[rows, 8]);
            [table, tensor(&scale, element::FLOAT, &[]), tensor(&zero_point, element::UINT8, &[])]
        };
        let tables = [("words", 100), ("places", 16), ("gamma", 1), ("beta", 1)];
        let initializers = tables.into_iter().flat_map(of_table).collect();
        let graph = GraphProto { nodes: vec![node], initializers, ..GraphProto::default() };
        let found: Vec<_> = graph.parameters().iter().map(|found| (found.count, found.numbers)).collect();
        let expected = [(800, "words_z"), (128, "places_z"), (8, "gamma_z"), (8, "beta_z")];
        assert_eq!(found, expected.map(|(count, name)| (Some(count), Numbers::Integers { zero_point: Some(name) })));
    }

    #[test]
    fn a_number_that_is_a_weight_somewhere_is_a_parameter() {
        let nodes =
            vec![NodeProto::new("QuantizeLinear", &["w", "one"], "q"), NodeProto::new("Mul", &["x", "one"], "y")];
        let initializers = vec![tensor("w", element::FLOAT, &[7]), tensor("one", element::FLOAT, &[])];
        assert_eq!(counted(nodes, initializers), [("w".into(), Some(7)), ("one".into(), Some(1))]);
    }
}
