//! Rewrites a graph of f32 so that its products with weights are of eight-bit integers, with ranges of activations that
//! were measured before: static quantisation, in the form of ONNX Runtime's `quantize_static` (QDQ).
//!
//! Operators stay as they are. Their inputs are rounded by `QuantizeLinear` (u8, the calibration's range) and
//! `DequantizeLinear`, and weights are `DequantizeLinear` of i8 (symmetric, one scale per output channel); a runtime puts
//! an operator and those around it into one of integers. Which products give f32 is decided by what follows them:
//!
//! - `Conv` has its result rounded too, after a `BatchNormalization`, which is computed in its weights, and a `Relu` or
//!   `Clip`, for which integers need nothing. What only moves numbers (`MaxPool`, `Pad`, `Reshape`, `Transpose`, `Flatten`)
//!   keeps the integers, and so does an `Add` of two such results: a convolutional network is in integers throughout.
//!   The bias is i32 on the scale of the sums, as `quantize_static` has it.
//! - `MatMul` and `Gemm` give f32. In a transformer normalisations, softmax, GELU and sums of residuals come next, which
//!   are better off and mostly faster in f32; rounding them costs accuracy for nothing. For the same reason products of
//!   two activations (those of attention) stay f32, as they do in dynamic quantisation.
//!
//! A product of which a range is not known stays f32.
//!
//! Weights use all of i8. On x86 processors without VNNI, ONNX Runtime adds pairs of products of u8 and i8 in i16, which can
//! saturate (its documentation on quantisation, `reduce_range`); dynamic quantisation has the same limit.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, bail, ensure};

use super::calibration::{Calibration, Grid};
use super::planned::Content;
use super::products::{Product, Products, computed, little_endian};
use super::quantised::{Bias, Normalisation};
use super::uses::Uses;
use super::{NOTHING_TO_QUANTISE, Rewritten};
use crate::onnx::Source;
use crate::onnx::proto::{AttributeProto, NodeProto, element};

/// The first operator set whose `DequantizeLinear` has one scale per channel.
pub(super) const OLDEST_OPSET: i64 = 13;

/// The graph with its products in integers.
///
/// # Errors
/// The calibration has values that the graph lacks, or the graph has nothing that could be quantised.
pub(super) fn rewrite(source: &Source, calibration: &Calibration) -> Result<Rewritten> {
    let graph = &source.graph;
    let products = Products::new(source);
    for name in calibration.names() {
        ensure!(
            products.types.contains_key(name),
            "the calibration has a value {name:?}, which the graph has not: it is of another graph"
        );
    }
    let mut rewriter = Rewriter {
        uses: Uses::new(source),
        awaited: HashMap::new(),
        integers: HashMap::new(),
        rounded: HashMap::new(),
        products,
        calibration,
    };
    let (mut folded, mut converted) = (HashSet::new(), 0);
    for (place, node) in graph.nodes.iter().enumerate() {
        if folded.contains(&place) {
            continue;
        }
        match rewriter.plan(node) {
            Some(plan) => {
                folded.extend(plan.normalised_by);
                rewriter.quantise(node, plan);
                converted += 1;
            }
            None => rewriter.keep(node),
        }
    }
    if converted == 0 {
        let has_product = graph.nodes.iter().any(|node| rewriter.products.find(node).is_some());
        ensure!(has_product, NOTHING_TO_QUANTISE);
        bail!("the calibration has no range of an activation of a product: nothing to quantise");
    }
    Ok(rewriter.products.draft.finish(graph))
}

/// A product that is going to be quantised.
struct Plan {
    product: Product,
    activation: Grid,
    /// Name of the result, which is that of the `BatchNormalization` where one is computed in the weights.
    output: String,
    /// The place of that node.
    normalised_by: Option<usize>,
}

/// A grid, and the names of its scale and its zero point in the new graph.
#[derive(Clone)]
struct Named {
    grid: Grid,
    parameters: [String; 2],
}

/// A value that was rounded, and the name of its integers.
struct Rounded {
    named: Named,
    integers: String,
}

struct Rewriter<'a> {
    products: Products<'a>,
    calibration: &'a Calibration,
    uses: Uses<'a>,
    /// Values that are to be rounded as soon as they are computed.
    awaited: HashMap<String, Named>,
    /// Values that were, so that all that use them use what is rounded.
    integers: HashMap<String, Rounded>,
    /// Values of f32 that were rounded for products alone, and the names of what they were rounded to.
    rounded: HashMap<String, String>,
}

impl<'a> Rewriter<'a> {
    /// The node as a product whose ranges are known.
    fn plan(&mut self, node: &NodeProto) -> Option<Plan> {
        let mut product = self.products.find(node)?;
        let [given, output] = [node.inputs.first()?, node.outputs.first()?];
        let activation =
            self.integers.get(given).map(|rounded| rounded.named.grid).or_else(|| self.calibration.grid(given))?;
        let bias = match &product.bias {
            Some(name) => Some(self.channel_numbers(name, &product)?),
            None => None,
        };
        let mut output = output.clone();
        let mut normalised_by = None;
        if node.op_type == "Conv" {
            if let Some((place, next)) = self.uses.only(&output)
                && let Some(normalisation) = self.normalisation(next, &product)
            {
                product.weight.normalisation = Some(normalisation);
                normalised_by = Some(place);
                output.clone_from(next.outputs.first()?);
            }
            let last = self.uses.after_bounds(&output);
            let grid = self.calibration.grid(&last)?;
            self.await_integers(last, grid);
        }
        if bias.is_some() || normalised_by.is_some() {
            product.weight.bias = Some(Bias { source: bias, activation_scale: activation.scale });
        }
        Some(Plan { product, activation, output, normalised_by })
    }

    /// The place of an initializer with one f32 per channel.
    fn channel_numbers(&self, name: &str, product: &Product) -> Option<usize> {
        let &place = self.products.places.get(name)?;
        let tensor = &self.products.source.graph.initializers[place];
        (tensor.data_type == element::FLOAT && tensor.dims == [product.channels]).then_some(place)
    }

    /// A `BatchNormalization` of the product's channels by numbers that are known.
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

    fn quantise(&mut self, node: &NodeProto, plan: Plan) {
        let Plan { product, output, activation, .. } = plan;
        let given = self.rounded(&node.inputs[0], activation);
        let axis = if node.op_type == "Conv" { 0 } else { 1 };
        let weight = self.products.weight(&product, &[product.channels]);
        // ONNX Runtime makes no integer Gemm without the zero points.
        let mut inputs = vec![given, self.dequantised(&weight, axis)];
        if product.weight.bias.is_some() {
            let original = &self.products.source.graph.initializers[product.weight.source].name;
            let name = product.bias.unwrap_or_else(|| format!("{original}.bias"));
            let bias =
                computed(product.weight, |numbers| numbers.bias.iter().flat_map(|bias| bias.to_le_bytes()).collect());
            let scales = computed(product.weight, |numbers| little_endian(&numbers.bias_scales));
            let draft = &mut self.products.draft;
            let names = [
                draft.add(&name, "i32", &[product.channels], element::INT32, bias),
                draft.add(&name, "i32.scale", &[product.channels], element::FLOAT, scales),
            ];
            inputs.push(self.dequantised(&names, 0));
        }
        let mut attributes = node.attributes.clone();
        // The integers of the weight are in the order that needs no transposition.
        attributes.retain(|attribute| attribute.name != "transB");
        self.push(NodeProto { inputs, outputs: vec![output], attributes, ..node.clone() });
    }

    /// Takes over a node that is no quantised product, and sees whether integers come out of it.
    fn keep(&mut self, node: &NodeProto) {
        if let Some((value, named)) = self.integers_after(node) {
            self.awaited.insert(value, named);
        } else if self.pad(node).is_some() {
            return;
        }
        self.push(node.clone());
    }

    /// Pads the integers themselves, with that of 0 or with what is there: runtimes do so only where it is written.
    fn pad(&mut self, node: &NodeProto) -> Option<()> {
        let ([given, pads, others @ ..], [output]) = (node.inputs.as_slice(), node.outputs.as_slice()) else {
            return None;
        };
        if node.op_type != "Pad" || !node.is_standard() || others.iter().any(|name| !name.is_empty()) {
            return None;
        }
        let Rounded { named, integers } = self.integers.get(given)?;
        let (named, [scale, zero_point]) = (named.clone(), &named.parameters);
        let padded = self.products.draft.fresh(output, "u8");
        let inputs = [integers, pads, zero_point].map(Clone::clone).to_vec();
        self.products.draft.nodes.extend([
            NodeProto { inputs, outputs: vec![padded.clone()], ..node.clone() },
            NodeProto::new("DequantizeLinear", &[&padded, scale, zero_point], output),
        ]);
        self.integers.insert(output.clone(), Rounded { named, integers: padded });
        Some(())
    }

    /// The value that is integers because of what the node is given, and which.
    fn integers_after(&mut self, node: &NodeProto) -> Option<(String, Named)> {
        let of_input = |place: usize| Some(&self.integers.get(node.inputs.get(place)?)?.named);
        let [output] = node.outputs.as_slice() else { return None };
        if !node.is_standard() || self.awaited.contains_key(output) {
            return None;
        }
        match node.op_type.as_str() {
            "MaxPool" | "Reshape" | "Transpose" | "Flatten" => Some((output.clone(), of_input(0)?.clone())),
            "Add" => {
                of_input(0).and(of_input(1))?;
                let last = self.uses.after_bounds(output);
                let grid = self.calibration.grid(&last)?;
                Some((last.clone(), self.named(&last, grid)))
            }
            _ => None,
        }
    }

    fn await_integers(&mut self, value: String, grid: Grid) {
        let named = self.named(&value, grid);
        self.awaited.insert(value, named);
    }

    /// Adds a node, and rounds what comes out of it where that is awaited.
    fn push(&mut self, mut node: NodeProto) {
        let named = node.outputs.first().and_then(|output| self.awaited.remove(output));
        let Some(named) = named else { return self.products.draft.nodes.push(node) };
        // The rounded value takes the name, so that it is what all others use.
        let output = node.outputs[0].clone();
        node.outputs[0] = self.products.draft.fresh(&output, "exact");
        let exact = node.outputs[0].clone();
        self.products.draft.nodes.push(node);
        let integers = self.round(&exact, &output, &named);
        self.integers.insert(output, Rounded { named, integers });
    }

    /// The input of a product for a value: the value itself if it is rounded already.
    fn rounded(&mut self, value: &str, grid: Grid) -> String {
        if self.integers.contains_key(value) {
            return value.to_owned();
        }
        if let Some(rounded) = self.rounded.get(value) {
            return rounded.clone();
        }
        let named = self.named(value, grid);
        let rounded = self.products.draft.fresh(value, "rounded");
        self.round(value, &rounded, &named);
        self.rounded.insert(value.to_owned(), rounded.clone());
        rounded
    }

    /// Rounds a value, and returns the name of its integers.
    fn round(&mut self, from: &str, to: &str, named: &Named) -> String {
        let integers = self.products.draft.fresh(to, "u8");
        let [scale, zero_point] = &named.parameters;
        self.products.draft.nodes.extend([
            NodeProto::new("QuantizeLinear", &[from, scale, zero_point], &integers),
            NodeProto::new("DequantizeLinear", &[&integers, scale, zero_point], to),
        ]);
        integers
    }

    fn named(&mut self, value: &str, grid: Grid) -> Named {
        let zero_point = Content::made(move |_| Ok(vec![grid.zero_point]));
        let draft = &mut self.products.draft;
        let parameters =
            [draft.add_number(value, "scale", grid.scale), draft.add(value, "zero", &[], element::UINT8, zero_point)];
        Named { grid, parameters }
    }

    /// Numbers in f32 out of integers that do not change, whose name comes first.
    fn dequantised(&mut self, names: &[String], axis: i64) -> String {
        let name = self.products.draft.fresh(&names[0], "f32");
        let inputs: Vec<&str> = names.iter().map(String::as_str).collect();
        let node = NodeProto::new("DequantizeLinear", &inputs, &name);
        self.products.draft.nodes.push(NodeProto { attributes: vec![AttributeProto::int("axis", axis)], ..node });
        name
    }
}
