//! Finds the products of a graph with weights that are known, which both ways of quantising work on.

use std::collections::HashMap;

use super::draft::Draft;
use super::element_types::element_types;
use super::planned::Content;
use super::quantised::{Numbers, Quantised};
use crate::onnx::Source;
use crate::onnx::proto::{NodeProto, element};

/// A product of an activation with weights that are known.
pub(super) struct Product {
    pub weight: Quantised,
    /// Shape of the weight in the new graph: that of a convolution, or inner times output channels.
    pub weight_dims: Vec<i64>,
    /// Output channels.
    pub channels: i64,
    /// Groups of channels of a convolution; 1 otherwise.
    pub groups: i64,
    pub bias: Option<String>,
}

/// A graph whose products are found, and the graph that is written.
pub(super) struct Products<'a> {
    pub source: &'a Source,
    pub types: HashMap<String, i32>,
    /// The places of the initializers, by name.
    pub places: HashMap<&'a str, usize>,
    /// For a value that is an initializer transposed: that initializer.
    transposed: HashMap<&'a str, usize>,
    pub draft: Draft,
    weights: Vec<(Quantised, Weight)>,
}

/// The names of a quantised weight: its integers, their scales and their zero points.
pub(super) type Weight = [String; 3];

fn is_product(node: &NodeProto) -> bool {
    matches!(node.op_type.as_str(), "MatMul" | "Gemm" | "Conv") && node.is_standard()
}

impl<'a> Products<'a> {
    pub fn new(source: &'a Source) -> Self {
        let graph = &source.graph;
        let places = graph.places();
        let is_matrix_transpose = |node: &&NodeProto| {
            let permutation = node.attribute("perm").map(|perm| perm.ints.as_slice());
            node.op_type == "Transpose" && node.is_standard() && permutation.is_none_or(|perm| perm == [1, 0])
        };
        let transposed = graph
            .nodes
            .iter()
            .filter(is_matrix_transpose)
            .filter_map(|node| Some((node.outputs.first()?.as_str(), *places.get(node.inputs.first()?.as_str())?)));
        let types = element_types(graph);
        let draft = Draft::new(source, types.keys());
        Products { transposed: transposed.collect(), types, places, source, draft, weights: Vec::new() }
    }

    /// The node as a product of an activation with known weights.
    pub fn find(&self, node: &NodeProto) -> Option<Product> {
        let [activation, weight, ..] = node.inputs.as_slice() else { return None };
        let is_known = |name: &str| self.places.contains_key(name);
        if !is_product(node) || self.types.get(activation) != Some(&element::FLOAT) || is_known(activation) {
            return None;
        }
        let direct = self.places.get(weight.as_str()).map(|&place| (place, false));
        let (source, mut is_transposed) =
            direct.or_else(|| self.transposed.get(weight.as_str()).map(|&place| (place, true)))?;
        let tensor = &self.source.graph.initializers[source];
        if tensor.data_type != element::FLOAT || tensor.elements().is_none_or(|elements| elements == 0) {
            return None;
        }
        let plain =
            Quantised { source, channels_are_rows: true, is_transposed: false, normalisation: None, bias: None };
        let bias = node.inputs.get(2).filter(|name| !name.is_empty()).cloned();
        if node.op_type == "Conv" {
            let is_plain = !is_transposed && tensor.dims.len() >= 3 && bias.as_deref().is_none_or(is_known);
            return is_plain.then(|| Product {
                weight: plain,
                weight_dims: tensor.dims.clone(),
                channels: tensor.dims[0],
                groups: node.int("group").unwrap_or(1),
                bias,
            });
        }
        let &[rows, columns] = tensor.dims.as_slice() else { return None };
        if node.op_type == "Gemm" {
            let number = |name: &str, value: f32| node.attribute(name).is_none_or(|found| found.f == Some(value));
            if !number("alpha", 1.0) || !number("beta", 1.0) || node.int("transA").unwrap_or(0) != 0 {
                return None;
            }
            is_transposed ^= node.int("transB").unwrap_or(0) != 0;
        }
        let [inner, channels] = if is_transposed { [columns, rows] } else { [rows, columns] };
        let weight = Quantised { channels_are_rows: is_transposed, is_transposed, ..plain };
        Some(Product { weight, weight_dims: vec![inner, channels], channels, groups: 1, bias })
    }
    /// Adds the weight of a product to the new graph, once. `scale_dims` is the shape of the scales, one per channel.
    pub fn weight(&mut self, product: &Product, scale_dims: &[i64]) -> Weight {
        let weight = product.weight;
        if let Some((_, names)) = self.weights.iter().find(|(known, _)| *known == weight) {
            return names.clone();
        }
        let original = &self.source.graph.initializers[weight.source].name;
        let channels = product.channels;
        let zeros = Content::made(move |_| Ok(vec![0; channels.max(0) as usize]));
        let integers =
            computed(weight, |numbers| numbers.integers.iter().map(|number| number.cast_unsigned()).collect());
        let scales = computed(weight, |numbers| little_endian(&numbers.scales));
        let draft = &mut self.draft;
        let names = [
            draft.add(original, "i8", &product.weight_dims, element::INT8, integers),
            draft.add(original, "i8.scale", scale_dims, element::FLOAT, scales),
            draft.add(original, "i8.zero", &[channels], element::INT8, zeros),
        ];
        self.weights.push((weight, names.clone()));
        names
    }
}

/// Content that follows from a quantised weight.
pub(super) fn computed(weight: Quantised, bytes: fn(&Numbers) -> Vec<u8>) -> Content {
    Content::made(move |source| Ok(bytes(&weight.numbers(source)?)))
}

pub(super) fn little_endian(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
