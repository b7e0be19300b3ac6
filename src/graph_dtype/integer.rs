//! Rewrites an f32 graph so that its products with weights use eight-bit integers: dynamic quantisation.
//!
//! `A·W` becomes `MatMulInteger(q(A), q(W)) · a · w` with `q(A), a` by `DynamicQuantizeLinear` (u8, its range that of
//! the values in each call) and `q(W), w` fixed (i8, symmetric, one scale per output channel), as in ONNX's
//! specification of these operators and in ONNX Runtime's `quantize_dynamic`. Everything else stays f32.

use std::collections::HashMap;

use anyhow::Result;

use super::draft::{Draft, little_endian};
use super::products::{Product, Products};
use crate::onnx::proto::{NodeProto, element};

/// Writes the graph with its weights in i8, and returns the bytes of its initializers.
pub(super) fn rewrite(draft: Draft<'_>) -> Result<u64> {
    let graph = &draft.source.graph;
    let mut rewriter = Rewriter { products: Products::new(draft), activations: HashMap::new() };
    for node in &graph.nodes {
        // Runtimes have no ConvInteger with groups.
        match rewriter.products.find(node).filter(|_| node.int("group").unwrap_or(1) == 1) {
            Some(product) => rewriter.quantise(node, &product)?,
            None => rewriter.products.draft.nodes.push(node.clone()),
        }
    }
    rewriter.products.finish()
}

struct Rewriter<'a> {
    products: Products<'a>,
    /// By activation: the names of its integers, scale and zero point.
    activations: HashMap<String, [String; 3]>,
}

impl Rewriter<'_> {
    fn quantise(&mut self, node: &NodeProto, product: &Product) -> Result<()> {
        let output = &node.outputs[0];
        let is_convolution = node.op_type == "Conv";
        // The scales and the bias of a convolution are one number per channel, before height and width.
        let behind = if is_convolution { product.weight_dims.len() - 2 } else { 0 };
        let mut channel_dims = vec![product.channels];
        channel_dims.resize(1 + behind, 1);
        let [integers, scale, zero_point] = self.activation(&node.inputs[0]);
        let weight = self.products.write(product, &channel_dims, false)?.weight;
        let draft = &mut self.products.draft;
        let sums = draft.fresh(output, "sums");
        let integer_op = if is_convolution { "ConvInteger" } else { "MatMulInteger" };
        let mut integer = NodeProto::new(integer_op, &[&integers, &weight[0], &zero_point], &sums);
        if is_convolution {
            integer.attributes.clone_from(&node.attributes);
        }
        let [float, scales] = ["float", "scales"].map(|suffix| draft.fresh(output, suffix));
        let product_name = if product.bias.is_some() { draft.fresh(output, "product") } else { output.clone() };
        draft.nodes.extend([
            integer,
            NodeProto::cast(&sums, &float, element::FLOAT),
            NodeProto::new("Mul", &[&scale, &weight[1]], &scales),
            NodeProto::new("Mul", &[&float, &scales], &product_name),
        ]);
        if let Some(bias) = &product.bias {
            let mut name = bias.clone();
            if let Some(&place) = draft.places.get(bias.as_str()).filter(|_| is_convolution) {
                let bytes = little_endian(&draft.floats(place)?);
                name = draft.add(bias, "channels", &channel_dims, element::FLOAT, bytes)?;
            }
            draft.nodes.push(NodeProto::new("Add", &[&product_name, &name], output));
        }
        Ok(())
    }

    /// The names of the activation's integers, scale and zero point, which are computed once.
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
