//! Rewrites an f32 graph so that its products with weights use eight-bit integers, with ranges of activations that were
//! measured before: static quantisation, in the form of ONNX Runtime's `quantize_static` (QDQ).
//!
//! Operators stay as they are. Their inputs are rounded by `QuantizeLinear` (u8, the calibration's range) and
//! `DequantizeLinear`, and weights are `DequantizeLinear` of i8 (symmetric, one scale per output channel). A runtime
//! fuses an operator and these nodes into an operator on integers. What follows a product decides whether its result is
//! rounded:
//!
//! - The result of `Conv` is rounded, after a `BatchNormalization`, which is folded into the weights, and a `Relu` or
//!   `Clip`, for which integers need nothing. What only moves numbers (`MaxPool`, `Pad`, `Reshape`, `Transpose`,
//!   `Flatten`) keeps the integers, and so does an `Add` of two such results: a convolutional network is in integers
//!   throughout. The bias is i32 on the scale of the sums, as in `quantize_static`.
//! - `MatMul` and `Gemm` give f32. In a transformer, normalisations, softmax, GELU and residual sums come next, which
//!   are more accurate and mostly faster in f32. For the same reason, products of two activations (in attention) stay
//!   f32, as they do in dynamic quantisation.
//!
//! A product stays f32 if one of its ranges is not known, or if its bias is not one constant per channel.
//!
//! Weights use all of i8. On x86 processors without VNNI, ONNX Runtime adds pairs of products of u8 and i8 in i16,
//! which can saturate (its documentation on quantisation, `reduce_range`); dynamic quantisation has the same limit.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, ensure};

use super::calibration::{Calibration, Grid};
use super::draft::Draft;
use super::products::{Product, Products};
use super::quantised::{Bias, Normalisation};
use crate::onnx::proto::{AttributeProto, GraphProto, NodeProto, element};

/// Writes the graph with its products in integers, and returns the bytes of its initializers.
pub(super) fn rewrite(draft: Draft<'_>, calibration: &Calibration) -> Result<u64> {
    for name in calibration.ranges.keys() {
        ensure!(
            draft.types.contains_key(name),
            "the calibration has a value {name:?} that the graph does not have: it was made for another graph"
        );
    }
    let graph = &draft.source.graph;
    let mut rewriter = Rewriter {
        uses: Uses::new(graph),
        folded: HashSet::new(),
        integers: HashMap::new(),
        rounded: HashMap::new(),
        products: Products::new(draft),
        calibration,
    };
    for (place, node) in graph.nodes.iter().enumerate() {
        if rewriter.folded.contains(&place) || rewriter.quantise(node)? || rewriter.pad(node) {
            continue;
        }
        rewriter.keep_integers(node)?;
        rewriter.push(node.clone());
    }
    rewriter.products.finish()
}

/// A value that is rounded: its grid, and the names of its scale, its zero point and its integers.
#[derive(Clone)]
struct Rounded {
    grid: Grid,
    parameters: [String; 2],
    integers: String,
}

struct Rewriter<'a> {
    products: Products<'a>,
    calibration: &'a Calibration,
    uses: Uses<'a>,
    /// The positions of the nodes that were folded into the weights of others.
    folded: HashSet<usize>,
    /// Values that are rounded as soon as they are computed, so that all nodes use the rounded value.
    integers: HashMap<String, Rounded>,
    /// Values of f32 that were rounded only for products, with the names of the rounded values.
    rounded: HashMap<String, String>,
}

impl Rewriter<'_> {
    /// Writes the node as a product of integers if it is a product whose ranges are known. Returns whether it did.
    fn quantise(&mut self, node: &NodeProto) -> Result<bool> {
        let Some(mut product) = self.products.find(node) else { return Ok(false) };
        let known = self.integers.get(&node.inputs[0]).map(|rounded| rounded.grid);
        let Some(activation) = known.or_else(|| self.calibration.grid(&node.inputs[0])) else { return Ok(false) };
        let bias = match product.bias.as_deref().map(|name| self.channel_numbers(name, &product)) {
            // It is not constant, or not one number per channel.
            Some(None) => return Ok(false),
            found => found.flatten(),
        };
        let mut output = node.outputs[0].clone();
        if node.op_type == "Conv" {
            let next = self.uses.only(&output);
            let folded = next.and_then(|(place, next)| Some((place, next, self.normalisation(next, &product)?)));
            if let Some((_, next, normalisation)) = folded {
                product.weight.normalisation = Some(normalisation);
                output.clone_from(&next.outputs[0]);
            }
            let last = self.uses.after_bounds(&output);
            let Some(grid) = self.calibration.grid(&last) else { return Ok(false) };
            self.round_when_computed(last, grid)?;
            self.folded.extend(folded.map(|(place, ..)| place));
        }
        if bias.is_some() || product.weight.normalisation.is_some() {
            product.weight.bias = Some(Bias { source: bias, activation_scale: activation.scale });
        }
        let given = self.rounded(&node.inputs[0], activation)?;
        let weight = self.products.write(&product, &[product.channels], true)?;
        // ONNX Runtime makes no integer Gemm without the zero points.
        let mut inputs = vec![given, self.dequantised(&weight.weight, if node.op_type == "Conv" { 0 } else { 1 })];
        if !weight.bias.is_empty() {
            inputs.push(self.dequantised(&weight.bias, 0));
        }
        let mut attributes = node.attributes.clone();
        // The integers of the weight are in the order that needs no transposition.
        attributes.retain(|attribute| attribute.name != "transB");
        self.push(NodeProto { inputs, outputs: vec![output], attributes, ..node.clone() });
        Ok(true)
    }

    /// The place of an initializer with one f32 per channel.
    fn channel_numbers(&self, name: &str, product: &Product) -> Option<usize> {
        let &place = self.products.draft.places.get(name)?;
        let tensor = &self.products.draft.source.graph.initializers[place];
        (tensor.data_type == element::FLOAT && tensor.dims == [product.channels]).then_some(place)
    }

    /// A `BatchNormalization` of the product's channels with constant numbers.
    fn normalisation(&self, node: &NodeProto, product: &Product) -> Option<Normalisation> {
        let is_inference = node.int("training_mode").unwrap_or(0) == 0 && node.outputs.len() == 1;
        if node.op_type != "BatchNormalization" || !node.is_standard() || !is_inference {
            return None;
        }
        let number = |place: usize| self.channel_numbers(node.inputs.get(place)?, product);
        let epsilon = node.attribute("epsilon").map_or(1e-5, |found| found.f.unwrap_or_default());
        let [gamma, beta, mean, variance] = [number(1)?, number(2)?, number(3)?, number(4)?];
        Some(Normalisation { gamma, beta, mean, variance, epsilon })
    }

    /// Writes a `Pad` of integers, which pads with their zero point or with existing numbers. Runtimes pad integers
    /// only if the graph says so. Returns whether the node is such a `Pad`.
    fn pad(&mut self, node: &NodeProto) -> bool {
        let ([given, pads, others @ ..], [output]) = (node.inputs.as_slice(), node.outputs.as_slice()) else {
            return false;
        };
        if node.op_type != "Pad" || !node.is_standard() || others.iter().any(|name| !name.is_empty()) {
            return false;
        }
        let Some(Rounded { grid, parameters, integers }) = self.integers.get(given).cloned() else { return false };
        let [scale, zero_point] = &parameters;
        let padded = self.products.draft.fresh(output, "u8");
        let inputs = vec![integers, pads.clone(), zero_point.clone()];
        self.products.draft.nodes.extend([
            NodeProto { inputs, outputs: vec![padded.clone()], ..node.clone() },
            NodeProto::new("DequantizeLinear", &[&padded, scale, zero_point], output),
        ]);
        self.integers.insert(output.clone(), Rounded { grid, parameters, integers: padded });
        true
    }

    /// Keeps a node's output in integers if the node only moves integers, or adds them.
    fn keep_integers(&mut self, node: &NodeProto) -> Result<()> {
        let is_integers = |place: usize| node.inputs.get(place).and_then(|name| self.integers.get(name));
        let [output] = node.outputs.as_slice() else { return Ok(()) };
        match (node.op_type.as_str(), is_integers(0).cloned()) {
            _ if !node.is_standard() || self.integers.contains_key(output) => {}
            ("MaxPool" | "Reshape" | "Transpose" | "Flatten", Some(given)) => {
                let integers = self.products.draft.fresh(output, "u8");
                self.integers.insert(output.clone(), Rounded { integers, ..given });
            }
            ("Add", Some(_)) if is_integers(1).is_some() => {
                let last = self.uses.after_bounds(output);
                if let Some(grid) = self.calibration.grid(&last) {
                    self.round_when_computed(last, grid)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn round_when_computed(&mut self, value: String, grid: Grid) -> Result<()> {
        let rounded = self.grid_of(&value, &value, grid)?;
        self.integers.insert(value, rounded);
        Ok(())
    }

    /// Adds a node, and rounds its output if that is to be integers.
    fn push(&mut self, mut node: NodeProto) {
        let rounded = node.outputs.first().and_then(|output| self.integers.get(output)).cloned();
        let Some(rounded) = rounded else { return self.products.draft.nodes.push(node) };
        // The rounded value takes the name, so that all nodes use it.
        let exact = self.products.draft.fresh(&node.outputs[0], "exact");
        let output = std::mem::replace(&mut node.outputs[0], exact.clone());
        self.products.draft.nodes.push(node);
        self.round(&exact, &output, &rounded);
    }

    /// The input of a product for a value: the value itself if it is rounded already.
    fn rounded(&mut self, value: &str, grid: Grid) -> Result<String> {
        if self.integers.contains_key(value) {
            return Ok(value.to_owned());
        }
        if let Some(rounded) = self.rounded.get(value) {
            return Ok(rounded.clone());
        }
        let to = self.products.draft.fresh(value, "rounded");
        let rounded = self.grid_of(value, &to, grid)?;
        self.round(value, &to, &rounded);
        self.rounded.insert(value.to_owned(), to.clone());
        Ok(to)
    }

    fn round(&mut self, from: &str, to: &str, Rounded { parameters: [scale, zero_point], integers, .. }: &Rounded) {
        self.products.draft.nodes.extend([
            NodeProto::new("QuantizeLinear", &[from, scale, zero_point], integers),
            NodeProto::new("DequantizeLinear", &[integers, scale, zero_point], to),
        ]);
    }

    /// Adds the scale and the zero point of a value that is rounded to `to`.
    fn grid_of(&mut self, value: &str, to: &str, grid: Grid) -> Result<Rounded> {
        let draft = &mut self.products.draft;
        let scale = draft.add_number(value, "scale", grid.scale)?;
        let zero_point = draft.add(value, "zero", &[], element::UINT8, vec![grid.zero_point])?;
        Ok(Rounded { grid, parameters: [scale, zero_point], integers: draft.fresh(to, "u8") })
    }

    /// Dequantises a constant, whose `names` begin with that of its integers.
    fn dequantised(&mut self, names: &[String], axis: i64) -> String {
        let name = self.products.draft.fresh(&names[0], "f32");
        let inputs: Vec<&str> = names.iter().map(String::as_str).collect();
        let node = NodeProto::new("DequantizeLinear", &inputs, &name);
        self.products.draft.nodes.push(NodeProto { attributes: vec![AttributeProto::int("axis", axis)], ..node });
        name
    }
}

/// The nodes that use the values of a graph.
struct Uses<'a> {
    /// By value: the position of the only node that uses it, and the node. Values that are used more than once or are
    /// an output are absent.
    only: HashMap<&'a str, (usize, &'a NodeProto)>,
}

impl<'a> Uses<'a> {
    fn new(graph: &'a GraphProto) -> Self {
        let mut times: HashMap<&str, usize> = HashMap::new();
        let inputs = graph.nodes.iter().flat_map(|node| &node.inputs);
        for name in inputs.chain(graph.outputs.iter().map(|output| &output.name)) {
            *times.entry(name).or_default() += 1;
        }
        // It is not known which values a graph inside a node uses.
        let has_subgraph = graph.nodes.iter().any(NodeProto::has_subgraph);
        let first = graph.nodes.iter().enumerate().filter(|_| !has_subgraph);
        let first = first.filter_map(|(place, node)| Some((node.inputs.first()?.as_str(), (place, node))));
        Uses { only: first.filter(|(name, _)| times.get(name) == Some(&1)).collect() }
    }

    /// The only node that uses a value, if the value is its first input, and the node's position.
    fn only(&self, value: &str) -> Option<(usize, &'a NodeProto)> {
        self.only.get(value).copied()
    }

    /// The output of the `Relu` or `Clip` that is the only node to use `value`, or else `value`.
    fn after_bounds(&self, value: &str) -> String {
        let bounded = self.only(value).filter(|(_, node)| matches!(node.op_type.as_str(), "Relu" | "Clip"));
        let output = bounded.filter(|(_, node)| node.is_standard()).and_then(|(_, node)| node.outputs.first());
        output.map_or_else(|| value.to_owned(), Clone::clone)
    }
}
