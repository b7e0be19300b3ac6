//! Rewrites a graph of f32 so that its products with weights are of eight-bit integers: dynamic quantisation.
//!
//! `A·W` becomes `MatMulInteger(q(A), q(W)) · a · w` with `q(A), a` by `DynamicQuantizeLinear` (u8, its range that of
//! the values in each call) and `q(W), w` fixed (i8, symmetric, one scale per output channel), as in ONNX's
//! specification of these operators and in ONNX Runtime's `quantize_dynamic`. Everything else stays f32.

use std::collections::HashMap;

use anyhow::{Result, ensure};

use super::planned::Content;
use super::products::{Product, Products};
use super::{NOTHING_TO_QUANTISE, Rewritten};
use crate::onnx::Source;
use crate::onnx::proto::{NodeProto, element};

/// The graph with its weights in i8.
///
/// # Errors
/// It has nothing that could be quantised.
pub(super) fn rewrite(source: &Source) -> Result<Rewritten> {
    let mut rewriter = Rewriter { products: Products::new(source), activations: HashMap::new() };
    let mut converted = 0;
    for node in &source.graph.nodes {
        // Runtimes have no ConvInteger of groups.
        if let Some(product) = rewriter.products.find(node).filter(|product| product.groups == 1) {
            rewriter.quantise(node, &product);
            converted += 1;
        } else {
            rewriter.products.draft.nodes.push(node.clone());
        }
    }
    ensure!(converted > 0, NOTHING_TO_QUANTISE);
    Ok(rewriter.products.draft.finish(&source.graph))
}

struct Rewriter<'a> {
    products: Products<'a>,
    /// By the name of the activation: its integers, their scale and zero point.
    activations: HashMap<String, [String; 3]>,
}

impl Rewriter<'_> {
    fn quantise(&mut self, node: &NodeProto, product: &Product) {
        let Some(output) = node.outputs.first() else { return };
        let is_convolution = node.op_type == "Conv";
        // The scales and the bias of a convolution are one number per channel, before height and width.
        let behind = if is_convolution { product.weight_dims.len() - 2 } else { 0 };
        let mut channel_dims = vec![product.channels];
        channel_dims.resize(1 + behind, 1);
        let [integers, scale, zero_point] = self.activation(&node.inputs[0]);
        let [weight, weight_scale, _] = self.products.weight(product, &channel_dims);
        let draft = &mut self.products.draft;
        let sums = draft.fresh(output, "sums");
        let integer_op = if is_convolution { "ConvInteger" } else { "MatMulInteger" };
        let mut integer = NodeProto::new(integer_op, &[&integers, &weight, &zero_point], &sums);
        if is_convolution {
            integer.attributes.clone_from(&node.attributes);
        }
        let [float, scales] = ["float", "scales"].map(|suffix| draft.fresh(output, suffix));
        let product_name = if product.bias.is_some() { draft.fresh(output, "product") } else { output.clone() };
        draft.nodes.extend([
            integer,
            NodeProto::cast(&sums, &float, element::FLOAT),
            NodeProto::new("Mul", &[&scale, &weight_scale], &scales),
            NodeProto::new("Mul", &[&float, &scales], &product_name),
        ]);
        if let Some(bias) = &product.bias {
            let mut name = bias.clone();
            if let Some(&place) = self.products.places.get(bias.as_str()).filter(|_| is_convolution) {
                name = draft.add(bias, "channels", &channel_dims, element::FLOAT, Content::Same(place));
            }
            draft.nodes.push(NodeProto::new("Add", &[&product_name, &name], output));
        }
    }

    /// The names of the activation in integers, which are made once.
    fn activation(&mut self, name: &str) -> [String; 3] {
        if let Some(names) = self.activations.get(name) {
            return names.clone();
        }
        let names = ["integers", "scale", "zero"].map(|suffix| self.products.draft.fresh(name, suffix));
        let node = NodeProto::new("DynamicQuantizeLinear", &[name], &names[0]);
        self.products.draft.nodes.push(NodeProto { outputs: names.to_vec(), ..node });
        self.activations.insert(name.to_owned(), names.clone());
        names
    }
}
