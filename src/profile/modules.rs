//! The modules of a model, found in its ONNX graphs: `encoder.layer.0.attention.self.query`.
//!
//! Exporters keep the names of modules in the names of weights, and newer ones in the names of nodes too. A node that
//! has neither belongs to the module around the last node with a module before it.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};

use crate::definition::{Cost, Model, Phase, Sizes};
use crate::onnx::proto::{GraphProto, NodeProto};
use crate::onnx::{Source, node_costs};

/// The nodes of the graphs of a phase.
#[derive(Debug, Default)]
pub struct Modules {
    /// In the order of the graphs.
    pub nodes: Vec<Node>,
    /// By the name of a node or of one of its outputs: the node's position in each part that has the name.
    places: HashMap<String, Vec<usize>>,
    /// The position of the first node of each part.
    parts: Vec<usize>,
}

/// A node of the graph.
#[derive(Debug)]
pub struct Node {
    operator: String,
    /// The module that it belongs to.
    pub module: Option<String>,
    /// The cost, if it can be counted. Absent if the node has graphs inside.
    pub cost: Option<Cost>,
    /// The nodes that make its inputs.
    producers: Vec<usize>,
}

/// Parts of the names of products. A product is the main work of the operators that it is fused with.
const PRODUCTS: [&str; 7] = ["conv", "matmul", "gemm", "fullyconnected", "linear", "lstm", "gru"];

/// The module of what belongs to no other module than the whole model.
pub const ROOT: &str = "(model)";

/// The most steps from the node that a fused operator is named after back to its product.
const FUSED: usize = 6;

/// Whether an operator of a runtime or of a graph is a product.
pub fn is_product(operator: &str) -> bool {
    let lower = operator.to_lowercase();
    // They contain `linear` and `conv`.
    let is_other = ["quantizelinear", "upsample", "convert"].iter().any(|other| lower.contains(other));
    !is_other && PRODUCTS.iter().any(|product| lower.contains(product))
}

impl Modules {
    /// The nodes of the phase's parts. Their costs are absent if an operator is not known.
    ///
    /// # Errors
    /// A part has no ONNX graph, or the graph cannot be read.
    pub fn read(model: &Model, phase: Phase, sizes: Sizes) -> Result<Self> {
        let mut modules = Modules::default();
        let costs = node_costs(model, phase, sizes).unwrap_or_default();
        let plan = model.phase(phase).with_context(|| format!("{} has no phase {phase}", model.name))?;
        for (number, name) in plan.parts.iter().enumerate() {
            let part = model.parts.iter().find(|part| part.name == *name);
            let file = part.and_then(|part| model.onnx_file(part));
            let file = file.with_context(|| format!("there is no ONNX graph of part {name:?}"))?;
            let costs = costs.get(number).map(Vec::as_slice).unwrap_or_default();
            modules.add(&Source::read(&file)?.graph, costs);
        }
        Ok(modules)
    }

    pub(super) fn add(&mut self, graph: &GraphProto, costs: &[Cost]) {
        let first = self.nodes.len();
        self.parts.push(first);
        let weights = || graph.initializers.iter().map(|tensor| tensor.name.as_str());
        let mut of_constants: HashMap<&str, String> =
            weights().filter_map(|weight| Some((weight, module_of_weight(weight)?))).collect();
        let mut made_of_constants: HashSet<&str> = weights().collect();
        let mut made_by: HashMap<&str, usize> = HashMap::new();
        // Whether the module of a node is its own, and not that of the node before it.
        let mut is_own: Vec<bool> = Vec::new();
        let mut operators = 0;
        for (place, node) in graph.nodes.iter().enumerate() {
            let inputs = || node.inputs.iter().map(String::as_str).filter(|name| !name.is_empty());
            let of_weight = inputs().find_map(|input| of_constants.get(input).cloned());
            if inputs().all(|input| made_of_constants.contains(input)) {
                for output in node.outputs.iter().map(String::as_str) {
                    made_of_constants.insert(output);
                    if let Some(module) = &of_weight {
                        of_constants.insert(output, module.clone());
                    }
                }
            }
            let producers: Vec<usize> = inputs().filter_map(|input| made_by.get(input).copied()).collect();
            // The node's own name comes first: exporters give equal weights of several modules one name.
            let own = module_of_node(node).or(of_weight);
            is_own.push(own.is_some());
            let module = own.or_else(|| {
                let before = producers.iter().filter(|&&producer| self.nodes[producer].module.is_some()).max()?;
                let module = self.nodes[*before].module.as_deref()?;
                Some(if is_own[before - first] { around(module) } else { module.to_owned() })
            });
            let index = self.nodes.len();
            made_by.extend(node.outputs.iter().map(|output| (output.as_str(), index)));
            // ONNX Runtime calls a node without a name `Conv_3`: it counts all nodes but constants.
            let name = Some(&node.name).filter(|name| !name.is_empty()).cloned();
            let name = name.unwrap_or_else(|| format!("{}_{operators}", node.op_type));
            operators += usize::from(node.op_type != "Constant");
            for name in std::iter::once(&name).chain(&node.outputs).filter(|name| !name.is_empty()) {
                let known = self.places.entry(name.clone()).or_default();
                if known.last().is_none_or(|place| *place < first) {
                    known.push(index);
                }
            }
            // ONNX Runtime lists the nodes of graphs inside by themselves, and subtracts their time from this node's.
            let cost = costs.get(place).copied().filter(|_| !node.has_subgraph());
            let operator = node.op_type.clone();
            self.nodes.push(Node { operator, module, cost, producers });
        }
    }

    /// The position of the node that an operator of a runtime computes, by the runtime's name for it. For an operator
    /// that computes several nodes, it is that of their product. If several parts have the name, the first part from
    /// `from` on counts, or else the last one.
    pub fn find(&self, name: &str, operator: &str, from: usize) -> Option<usize> {
        let of_part = |name: &str| {
            let places = self.places.get(name)?;
            places.iter().find(|place| **place >= from).or(places.last()).copied()
        };
        let found = candidates(name).into_iter().find_map(of_part)?;
        if !is_product(operator) || is_product(&self.nodes[found].operator) {
            return Some(found);
        }
        let mut reached = vec![found];
        for _ in 0..FUSED {
            reached = reached.iter().flat_map(|&node| &self.nodes[node].producers).copied().collect();
            if let Some(product) = reached.iter().copied().find(|&node| is_product(&self.nodes[node].operator)) {
                return Some(product);
            }
        }
        Some(found)
    }

    /// The position of the first node of the part after the one that `place` is in.
    pub fn next_part(&self, place: usize) -> Option<usize> {
        self.parts.iter().copied().find(|begin| *begin > place)
    }

    /// The position of the first node of the part that `place` is in.
    pub fn part_of(&self, place: usize) -> usize {
        self.parts.iter().copied().filter(|begin| *begin <= place).max().unwrap_or(0)
    }

    /// The position of the product of a module, for a runtime that knows the module but not the node. Returns `None` if
    /// the module has none or several.
    pub fn product_of(&self, module: &str) -> Option<usize> {
        let is_its = |node: &Node| node.module.as_deref() == Some(module) && is_product(&node.operator);
        let mut products = self.nodes.iter().enumerate().filter(|(_, node)| is_its(node)).map(|(place, _)| place);
        products.next().filter(|_| products.next().is_none())
    }
}

/// The names that the node may have in its file: runtimes add words to them.
fn candidates(name: &str) -> Vec<&str> {
    let mut names = vec![name];
    let mut rest = name.strip_prefix("fused ").unwrap_or(name);
    for suffix in ["_nchwc", "_kernel_time"] {
        rest = rest.strip_suffix(suffix).unwrap_or(rest);
    }
    names.push(rest);
    // tract adds `.matmatmul` and the like. Modules' names have dots too, so the longest is tried first.
    // ONNX Runtime adds a part to the path of what it fuses: `/fc1/MatMul/MatMulAddFusion`.
    while let Some(end) = rest.rfind(['.', '/']).filter(|&end| end > 0) {
        rest = &rest[..end];
        names.push(rest);
    }
    names
}

/// The module of a weight: its name without the last part. Returns `None` for names that an exporter generated.
fn module_of_weight(name: &str) -> Option<String> {
    let is_made_up = name.starts_with('/') || name.contains("::");
    let path = name.strip_suffix(":0").unwrap_or(name).replace('/', ".");
    let (module, _) = path.rsplit_once('.').filter(|_| !is_made_up)?;
    Some(module.to_owned())
}

/// The module in the name of a node: `/encoder/layer.0/attention/self/query/MatMul`. Other exporters number their
/// nodes.
fn module_of_node(node: &NodeProto) -> Option<String> {
    let path = node.name.strip_prefix('/')?;
    Some(path.rsplit_once('/').map_or_else(|| ROOT.to_owned(), |(module, _)| module.replace('/', ".")))
}

fn around(module: &str) -> String {
    module.rsplit_once('.').map_or(ROOT, |(around, _)| around).to_owned()
}

/// The innermost module around both. Returns `None` if there is none but the model.
pub fn common(one: &str, other: &str) -> Option<String> {
    let parts = one.split('.').zip(other.split('.')).take_while(|(one, other)| one == other);
    let shared: Vec<&str> = parts.map(|(part, _)| part).collect();
    (!shared.is_empty()).then(|| shared.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::{AttributeProto, TensorProto};

    fn modules(nodes: &[(&str, &[&str], &str)], weights: &[&str]) -> Modules {
        let nodes = nodes.iter().map(|(op_type, inputs, output)| NodeProto::new(op_type, inputs, output)).collect();
        let initializers =
            weights.iter().map(|&name| TensorProto { name: name.into(), ..TensorProto::default() }).collect();
        let mut modules = Modules::default();
        modules.add(&GraphProto { nodes, initializers, ..GraphProto::default() }, &[]);
        modules
    }

    fn module<'a>(modules: &'a Modules, name: &str, operator: &str) -> Option<&'a str> {
        modules.nodes[modules.find(name, operator, 0)?].module.as_deref()
    }

    #[test]
    fn names_that_contain_those_of_products_are_no_products() {
        assert!(["Convolution", "aten::linear", "FusedMatMul"].into_iter().all(is_product));
        assert!(!["Convert", "QuantizeLinear", "aten::upsample_bilinear2d"].into_iter().any(is_product));
    }

    #[test]
    fn attention_without_weights_belongs_to_the_module_around_its_products() {
        let weights = ["l.0.self.query.weight", "l.0.self.key.weight", "l.0.output.dense.weight"];
        let nodes: [(&str, &[&str], &str); 7] = [
            ("Transpose", &[weights[0]], "wq"),
            ("MatMul", &["x", "wq"], "q"),
            ("MatMul", &["x", weights[1]], "k"),
            ("MatMul", &["q", "k"], "scores"),
            ("Softmax", &["scores"], "p"),
            ("MatMul", &["p", weights[2]], "y"),
            ("Relu", &["y"], "z"),
        ];
        let modules = modules(&nodes, &weights);
        let of = |name| module(&modules, name, "?");
        assert_eq!(of("q"), Some("l.0.self.query"));
        assert_eq!((of("scores"), of("Softmax_p")), (Some("l.0.self"), Some("l.0.self")));
        assert_eq!((of("y"), of("z")), (Some("l.0.output.dense"), Some("l.0.output")));
        assert_eq!(of("elsewhere"), None);
        assert_eq!(modules.product_of("l.0.self.query"), modules.find("q", "MatMul", 0));
        assert_eq!(modules.product_of("l.0"), None);
    }

    #[test]
    fn nodes_without_names_are_numbered_as_onnx_runtime_does() {
        let nodes: [(&str, &[&str], &str); 4] =
            [("Conv", &["x"], "a"), ("Constant", &[], "c"), ("Relu", &["a"], "r"), ("Conv", &["r"], "y")];
        let mut nodes: Vec<NodeProto> =
            nodes.iter().map(|(operator, inputs, output)| NodeProto::new(operator, inputs, output)).collect();
        nodes.iter_mut().for_each(|node| node.name.clear());
        let mut modules = Modules::default();
        modules.add(&GraphProto { nodes, ..GraphProto::default() }, &[]);
        let places = ["Conv_0", "Relu_1", "Conv_2", "Conv_3"].map(|name| modules.find(name, "?", 0));
        assert_eq!(places, [Some(0), Some(2), Some(3), None]);
    }

    #[test]
    fn a_node_with_graphs_inside_does_not_cost_what_the_nodes_of_these_cost() {
        let branch = AttributeProto {
            name: "then_branch".into(),
            g: Some(Vec::<u8>::new().into()),
            ..AttributeProto::default()
        };
        let choice = NodeProto { attributes: vec![branch], ..NodeProto::new("If", &["c"], "y") };
        let nodes = vec![choice, NodeProto::new("MatMul", &["y", "w"], "z")];
        let mut modules = Modules::default();
        let cost = Cost { flops: 30, ..Cost::default() };
        modules.add(&GraphProto { nodes, ..GraphProto::default() }, &[cost; 2]);
        assert_eq!(modules.nodes.iter().map(|node| node.cost).collect::<Vec<_>>(), [None, Some(cost)]);
    }

    #[test]
    fn an_operator_that_is_fused_is_its_product_whatever_it_is_named_after() {
        let weights = ["conv1.weight", "bn1.weight"];
        let nodes: [(&str, &[&str], &str); 3] =
            [("Conv", &["x", weights[0]], "c"), ("BatchNormalization", &["c", weights[1]], "b"), ("Relu", &["b"], "r")];
        let modules = modules(&nodes, &weights);
        for name in ["r_nchwc", "Conv_c.matmatmul.0", "BatchNormalization_b", "fused Conv_c/Fusion"] {
            assert_eq!(module(&modules, name, "FusedConv"), Some("conv1"), "{name}");
        }
        assert_eq!(module(&modules, "b", "BatchNormalization"), Some("bn1"));
    }

    #[test]
    fn names_that_an_exporter_has_made_up_name_no_module() {
        assert_eq!(module_of_weight("onnx::MatMul_12.weight"), None);
        assert_eq!(module_of_weight("/layer/Constant_output_0"), None);
        assert_eq!(module_of_weight("12"), None);
        assert_eq!(module_of_weight("dense/kernel:0"), Some("dense".into()));
        let node = NodeProto { name: "/encoder/layer.0/query/MatMul".into(), ..NodeProto::default() };
        assert_eq!(module_of_node(&node), Some("encoder.layer.0.query".into()));
        let outermost = NodeProto { name: "/MatMul".into(), ..NodeProto::default() };
        assert_eq!(module_of_node(&outermost), Some(ROOT.into()));
        assert_eq!((common("a.b.c", "a.b.d"), common("a", "b")), (Some("a.b".into()), None));
    }
}
