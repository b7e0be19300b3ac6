//! Rewrites a graph of f32 so that its products with weights are of eight-bit integers: dynamic quantisation.
//!
//! `A·W` becomes `MatMulInteger(q(A), q(W)) · a · w` with `q(A), a` by `DynamicQuantizeLinear` (u8, its range that of
//! the values in each call) and `q(W), w` fixed (i8, symmetric, one scale an output channel), as ONNX's specification of
//! these operators and ONNX Runtime's `quantize_dynamic` have it. All else stays f32.

use std::collections::HashMap;

use super::names::FreeNames;
use super::planned::{Content, Planned};
use super::products::{Product, Products, is_product, unchanged, with_nodes};
use super::quantised::Quantised;
use super::{NOTHING_TO_QUANTISE, Rewritten, Summary};
use crate::onnx::Source;
use crate::onnx::proto::{NodeProto, element};

/// The graph with its weights in i8.
///
/// # Errors
/// It has nothing that could be quantised.
pub(super) fn rewrite(source: &Source) -> Result<Rewritten, String> {
    let graph = &source.graph;
    let products = Products::new(source);
    let mut rewriter = Rewriter {
        free: FreeNames::new(products.types.keys()),
        nodes: Vec::with_capacity(graph.nodes.len()),
        initializers: unchanged(graph),
        activations: HashMap::new(),
        weights: Vec::new(),
        products,
    };
    let mut summary = Summary::default();
    for node in &graph.nodes {
        // ConvInteger of groups is not what runtimes have.
        if let Some(product) = rewriter.products.find(node).filter(|product| product.groups == 1) {
            rewriter.quantise(node, &product);
            summary.converted += 1;
        } else {
            rewriter.nodes.push(node.clone());
            summary.left += usize::from(is_product(node));
        }
    }
    if summary.converted == 0 {
        return Err(NOTHING_TO_QUANTISE.into());
    }
    let (graph, initializers) = with_nodes(graph, rewriter.nodes, rewriter.initializers);
    Ok(Rewritten { graph, initializers, summary })
}

struct Rewriter<'a> {
    products: Products<'a>,
    free: FreeNames,
    nodes: Vec<NodeProto>,
    initializers: Vec<Planned>,
    /// By the name of the activation: its integers, their scale and zero point.
    activations: HashMap<String, [String; 3]>,
    weights: Vec<(Quantised, [String; 2])>,
}

impl Rewriter<'_> {
    fn quantise(&mut self, node: &NodeProto, product: &Product) {
        let Some(output) = node.outputs.first() else { return };
        let is_convolution = node.op_type == "Conv";
        // The scales and the bias of a convolution are numbers a channel, before height and width.
        let behind = if is_convolution { product.weight_dims.len() - 2 } else { 0 };
        let mut channel_dims = vec![product.channels];
        channel_dims.resize(1 + behind, 1);
        let [integers, scale, zero_point] = self.activation(&node.inputs[0]);
        let [weight, weight_scale] = self.weight(product, &channel_dims);
        let sums = self.free.fresh(output, "sums");
        let integer_op = if is_convolution { "ConvInteger" } else { "MatMulInteger" };
        let mut integer = NodeProto::new(integer_op, &[&integers, &weight, &zero_point], &sums);
        if is_convolution {
            integer.attributes.clone_from(&node.attributes);
        }
        let [float, scales] = ["float", "scales"].map(|suffix| self.free.fresh(output, suffix));
        let product_name = if product.bias.is_some() { self.free.fresh(output, "product") } else { output.clone() };
        self.nodes.extend([
            integer,
            NodeProto::cast(&sums, &float, element::FLOAT),
            NodeProto::new("Mul", &[&scale, &weight_scale], &scales),
            NodeProto::new("Mul", &[&float, &scales], &product_name),
        ]);
        if let Some(bias) = &product.bias {
            let mut name = bias.clone();
            if let Some(&place) = self.products.places.get(bias.as_str()).filter(|_| is_convolution) {
                name = self.free.fresh(bias, "channels");
                let content = Content::Same(place);
                self.initializers.push(Planned { name: name.clone(), dims: channel_dims, content });
            }
            self.nodes.push(NodeProto::new("Add", &[&product_name, &name], output));
        }
    }

    /// The activation in integers; those of one are made once.
    fn activation(&mut self, name: &str) -> [String; 3] {
        if let Some(names) = self.activations.get(name) {
            return names.clone();
        }
        let names = ["integers", "scale", "zero"].map(|suffix| self.free.fresh(name, suffix));
        let node = NodeProto::new("DynamicQuantizeLinear", &[name], &names[0]);
        self.nodes.push(NodeProto { outputs: names.to_vec(), ..node });
        self.activations.insert(name.to_owned(), names.clone());
        names
    }

    /// The names of the weight in integers and of its scale.
    fn weight(&mut self, product: &Product, scale_dims: &[i64]) -> [String; 2] {
        if let Some((_, names)) = self.weights.iter().find(|(weight, _)| *weight == product.weight) {
            return names.clone();
        }
        let original = self.products.source.graph.initializers[product.weight.source].name.clone();
        let names = ["i8", "i8.scale"].map(|suffix| self.free.fresh(&original, suffix));
        let dims = [&product.weight_dims, scale_dims];
        let contents = [Content::I8(product.weight), Content::Scale(product.weight)];
        for ((name, dims), content) in names.iter().zip(dims).zip(contents) {
            self.initializers.push(Planned { name: name.clone(), dims: dims.to_vec(), content });
        }
        self.weights.push((product.weight, names.clone()));
        names
    }
}
