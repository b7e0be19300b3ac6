//! Finds the products of a graph with known weights, which every quantisation works on, and writes the weights in i8.

use std::collections::HashMap;

use anyhow::{Result, ensure};

use super::draft::{Draft, little_endian};
use super::quantised::{Numbers, Quantised};
use crate::onnx::proto::{NodeProto, element};

/// A product of an activation with weights that are known.
pub(super) struct Product {
    pub weight: Quantised,
    /// The shape of the weight in the new graph: as it is for a convolution, and `[inner, channels]` otherwise.
    pub weight_dims: Vec<i64>,
    /// The number of output channels.
    pub channels: i64,
    pub bias: Option<String>,
}

/// A graph whose products are found, and the graph that is written.
pub(super) struct Products<'a> {
    pub draft: Draft<'a>,
    /// By value that is a transposed initializer: the initializer's position.
    transposed: HashMap<&'a str, usize>,
    /// The weights that were written, with their scales.
    written: Vec<(Quantised, Vec<f32>, Written)>,
}

/// The names of the initializers of a weight and its bias.
#[derive(Clone)]
pub(super) struct Written {
    /// Integers, scales and, if they are asked for, zero points.
    pub weight: Vec<String>,
    /// Integers and scales; empty if the bias is not quantised.
    pub bias: Vec<String>,
}

impl<'a> Products<'a> {
    pub fn new(draft: Draft<'a>) -> Self {
        let is_matrix_transpose = |node: &&NodeProto| {
            let permutation = node.attribute("perm").map(|perm| perm.ints.as_slice());
            node.op_type == "Transpose" && node.is_standard() && permutation.is_none_or(|perm| perm == [1, 0])
        };
        let places = &draft.places;
        let transposed = draft
            .source
            .graph
            .nodes
            .iter()
            .filter(is_matrix_transpose)
            .filter_map(|node| Some((node.outputs.first()?.as_str(), *places.get(node.inputs.first()?.as_str())?)));
        Products { transposed: transposed.collect(), draft, written: Vec::new() }
    }

    /// The node as a product, if it multiplies an activation by known weights.
    pub fn find(&self, node: &NodeProto) -> Option<Product> {
        let [activation, weight, ..] = node.inputs.as_slice() else { return None };
        let is_known = |name: &str| self.draft.places.contains_key(name);
        let is_product = matches!(node.op_type.as_str(), "MatMul" | "Gemm" | "Conv") && node.is_standard();
        if !is_product || !self.draft.is_float(activation) || is_known(activation) || node.outputs.is_empty() {
            return None;
        }
        let direct = self.draft.places.get(weight.as_str()).map(|&place| (place, false));
        let (source, mut is_transposed) =
            direct.or_else(|| self.transposed.get(weight.as_str()).map(|&place| (place, true)))?;
        let tensor = &self.draft.source.graph.initializers[source];
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
        Some(Product { weight, weight_dims: vec![inner, channels], channels, bias })
    }

    /// Writes the weight of a product, once. `scale_dims` is the shape of the scales, one per channel.
    pub fn write(&mut self, product: &Product, scale_dims: &[i64], has_zero_points: bool) -> Result<Written> {
        let Product { weight, channels, .. } = *product;
        if let Some((.., names)) = self.written.iter().find(|(known, ..)| *known == weight) {
            return Ok(names.clone());
        }
        let draft = &mut self.draft;
        let numbers = match draft.destination {
            Some(_) => weight.numbers(draft.source)?,
            None => Numbers::default(),
        };
        let original = &draft.source.graph.initializers[weight.source].name;
        let integers = numbers.integers.iter().map(|number| number.cast_unsigned()).collect();
        // The bias depends on the scale of the activation, and the weight does not.
        let alone = |of: Quantised| Quantised { bias: None, ..of };
        let is_same = |(known, scales, _): &&(Quantised, Vec<f32>, Written)| {
            alone(*known) == alone(weight) && *scales == numbers.scales
        };
        let names = match self.written.iter().find(is_same) {
            Some((.., known)) => known.weight.clone(),
            None => {
                let mut names = vec![
                    draft.add(original, "i8", &product.weight_dims, element::INT8, integers)?,
                    draft.add(original, "i8.scale", scale_dims, element::FLOAT, little_endian(&numbers.scales))?,
                ];
                if has_zero_points {
                    let zeros = vec![0; numbers.scales.len()];
                    names.push(draft.add(original, "i8.zero", &[channels], element::INT8, zeros)?);
                }
                names
            }
        };
        let mut bias = Vec::new();
        if weight.bias.is_some() {
            let name = product.bias.clone().unwrap_or_else(|| format!("{original}.bias"));
            let integers = numbers.bias.iter().flat_map(|bias| bias.to_le_bytes()).collect();
            bias = vec![
                draft.add(&name, "i32", &[channels], element::INT32, integers)?,
                draft.add(&name, "i32.scale", &[channels], element::FLOAT, little_endian(&numbers.bias_scales))?,
            ];
        }
        let names = Written { weight: names, bias };
        self.written.push((weight, numbers.scales, names.clone()));
        Ok(names)
    }

    /// Writes the graph, and returns the bytes of its initializers.
    pub fn finish(self) -> Result<u64> {
        ensure!(
            !self.written.is_empty(),
            "it has no product with constant f32 weights (MatMul, Gemm or Conv), or the calibration has no range for \
             the activation of any, or no bias is one constant per channel: nothing to quantise"
        );
        self.draft.finish()
    }
}
