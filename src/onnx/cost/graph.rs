//! Walks one graph with inputs of known sizes, to find what its nodes compute, read and write.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use rten_shape_inference::{SymExpr, SymTensor};

use super::control::bodies;
use super::operations::{flops, matrix_products};
use super::shapes::{Inputs, constant, elements, of_sizes, outputs, scalar, sizes};
use crate::definition::Cost;
use crate::onnx::proto::{GraphProto, NodeProto, TensorProto, ValueInfoProto, element, element_bytes};

/// Sizes of tensors, by name.
pub(super) type Shapes = BTreeMap<String, Vec<usize>>;

/// A graph's cost, and the shapes of its outputs.
#[derive(Debug, PartialEq)]
pub(super) struct Walked {
    pub cost: Cost,
    /// The cost of each node, in the order of the nodes.
    pub nodes: Vec<Cost>,
    pub operators: BTreeSet<String>,
    pub outputs: Shapes,
}

/// Operators that only give a constant, or another name or shape to a value; they neither compute nor move anything.
const WITHOUT_WORK: [&str; 8] =
    ["Constant", "Identity", "Shape", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "ConstantOfShape"];

const F32_BYTES: u64 = 4;

/// Finds the shape of every tensor, and adds up the costs. `known` is an input whose value is known. An error names the
/// operator whose cost cannot be found.
pub(super) fn walk(graph: &GraphProto, inputs: &Shapes, known: Option<(&str, i64)>) -> Result<Walked> {
    let mut bytes: u64 = 0;
    let mut given = Vec::new();
    for input in graph.own_inputs() {
        let shape = inputs.get(&input.name).with_context(|| format!("the input {:?} has no size", input.name))?;
        bytes = add(bytes, value_bytes(input, shape)?)?;
        let value = known.filter(|(name, _)| *name == input.name && elements(shape) == Some(1));
        given.push((input.name.as_str(), value.map_or_else(|| of_sizes(shape), |(_, number)| Ok(scalar(number)))?));
    }
    let Body { cost, nodes, operators, outputs, constant_bytes, .. } = walk_body(graph, given, &Scope::default())?;
    bytes = add(bytes, constant_bytes)?;
    let mut shapes = Shapes::new();
    for (output, value) in graph.outputs.iter().zip(&outputs) {
        let shape = sizes(value)?;
        bytes = add(bytes, value_bytes(output, &shape)?)?;
        shapes.insert(output.name.clone(), shape);
    }
    Ok(Walked { cost: Cost { bytes, ..cost }, nodes, operators, outputs: shapes })
}

/// What the nodes of a graph see: its own constants and values, and those of the graphs around it.
#[derive(Clone, Default)]
pub(super) struct Scope<'a> {
    /// From the outermost graph to the current one.
    pub graphs: Vec<&'a GraphProto>,
    constants: HashMap<&'a str, &'a TensorProto>,
    values: HashMap<&'a str, SymTensor>,
    /// The number of graphs that were walked so far, in all scopes of the file.
    walked: Rc<Cell<usize>>,
}

/// The most graphs that are walked, since the runs of nested loops and branches multiply.
const MOST_WALKED: usize = 4000;

/// What walking a graph found, or walking all graphs inside a node.
#[derive(Default)]
pub(super) struct Body {
    /// The cost of all nodes; its `bytes` are 0.
    pub cost: Cost,
    pub nodes: Vec<Cost>,
    pub operators: BTreeSet<String>,
    pub outputs: Vec<SymTensor>,
    /// How many elements of each value are read, `None` for all. The graph's own constants are not among these values.
    pub read: HashMap<String, Option<u64>>,
    /// The bytes of the graph's own constants that are read.
    pub constant_bytes: u64,
}

impl Body {
    /// Adds elements that are read of a value.
    pub fn add_read(&mut self, name: &str, elements: Option<u64>) {
        match self.read.get_mut(name) {
            Some(known) => *known = known.zip(elements).and_then(|(before, more)| before.checked_add(more)),
            None => drop(self.read.insert(name.to_owned(), elements)),
        }
    }
}

/// Walks a graph with these inputs. Its nodes also see the values of `outer`.
pub(super) fn walk_body<'a>(
    graph: &'a GraphProto,
    given: Vec<(&'a str, SymTensor)>,
    outer: &Scope<'a>,
) -> Result<Body> {
    outer.walked.set(outer.walked.get() + 1);
    ensure!(outer.walked.get() <= MOST_WALKED, "its graphs run more often than can be followed");
    let mut scope = outer.clone();
    scope.graphs.push(graph);
    for tensor in &graph.initializers {
        scope.constants.insert(&tensor.name, tensor);
        scope.values.insert(&tensor.name, constant(tensor)?);
    }
    scope.values.extend(given);
    let mut body = Body::default();
    for node in &graph.nodes {
        let operator = || format!("{} {:?}", node.op_type, node.name);
        let find = |name: &String| match name.as_str() {
            "" => Ok(None),
            name => {
                let value = scope.values.get(name).cloned().map(Some);
                value.with_context(|| format!("nothing gives its input {name:?}"))
            }
        };
        let mut inputs: Inputs = node.inputs.iter().map(find).collect::<Result<_>>().with_context(operator)?;
        if node.op_type == "Range" {
            let whole = |name: &String| whole_number(name, &scope);
            inputs = node.inputs.iter().zip(inputs).map(|(name, value)| whole(name).or(value)).collect();
        }
        let (own, made) = match bodies(node, &inputs, &scope).with_context(operator)? {
            Some(inner) => {
                body.operators.extend(inner.operators);
                body.constant_bytes = add(body.constant_bytes, inner.constant_bytes)?;
                inner.read.iter().for_each(|(name, elements)| body.add_read(name, *elements));
                let shapes = inner.outputs.iter().map(sizes).collect::<Result<Vec<_>>>().with_context(operator)?;
                let [_, bytes] = moved(&inputs, &shapes);
                (Cost { bytes, ..inner.cost }, inner.outputs)
            }
            None => {
                let made = outputs(node, &inputs, scales(node, &scope).as_deref()).with_context(operator)?;
                (cost_of(node, &inputs, &made).with_context(operator)?, made)
            }
        };
        body.cost = body.cost.plus(Cost { bytes: 0, ..own }).context("more than can be counted")?;
        body.nodes.push(own);
        for (place, input) in node.inputs.iter().enumerate().filter(|_| node.op_type != "Identity") {
            // A `Gather` reads only the rows that it looks up.
            let looked_up = made.first().filter(|_| node.op_type == "Gather" && place == 0);
            body.add_read(input, looked_up.and_then(|made| elements(&sizes(made).ok()?)));
        }
        body.operators.insert(node.op_type.clone());
        scope.values.extend(node.outputs.iter().map(String::as_str).zip(made));
    }
    // An `Identity` gives its input another name, so what is read of its output is read of its input.
    graph.outputs.iter().for_each(|output| body.add_read(&output.name, None));
    for node in graph.nodes.iter().rev().filter(|node| node.op_type == "Identity") {
        if let ([input], [output]) = (&*node.inputs, &*node.outputs)
            && let Some(read) = body.read.remove(output)
        {
            body.add_read(input, read);
        }
    }
    // Some exporters write weights as nodes.
    let of_node = |node: &'a NodeProto| {
        let tensor = node.constant()?;
        Some((node.outputs.first()?, tensor)).filter(|_| element_bytes(tensor.data_type).is_some())
    };
    let own = graph.initializers.iter().map(|tensor| (&tensor.name, tensor));
    for (name, tensor) in own.chain(graph.nodes.iter().filter_map(of_node)) {
        let Some(read) = body.read.remove(name) else { continue };
        let of = |all: u64| all.min(read.unwrap_or(all)).checked_mul(element_bytes(tensor.data_type)? as u64);
        let missing = || format!("the constant {:?} has no size in bytes", tensor.name);
        body.constant_bytes = add(body.constant_bytes, tensor.elements().and_then(of).with_context(missing)?)?;
    }
    for output in &graph.outputs {
        let value = scope.values.get(output.name.as_str()).cloned();
        body.outputs.push(value.with_context(|| format!("nothing gives the output {:?}", output.name))?);
    }
    Ok(body)
}

/// What a node without a body costs; `bytes` are those that it reads and writes, also if it only reshapes a value.
fn cost_of(node: &NodeProto, inputs: &Inputs, made: &[SymTensor]) -> Result<Cost> {
    let flops = flops(node, inputs, made)?;
    let shapes = made.iter().map(sizes).collect::<Result<Vec<_>>>()?;
    let [written, all] = moved(inputs, &shapes);
    // A `Gather` reads as many bytes of its table as it writes.
    let table = inputs.first().filter(|_| node.op_type == "Gather").and_then(read_elements).map(in_bytes);
    let least = table.map_or(all, |table| all - table + written.min(table));
    let is_work = !WITHOUT_WORK.contains(&node.op_type.as_str());
    Ok(Cost {
        flops,
        convolution_flops: if node.op_type.contains("Conv") { flops } else { 0 },
        bytes: least,
        nodes: is_work.into(),
        node_bytes: if is_work { least } else { 0 },
        matrix_products: matrix_products(node, inputs, &shapes),
    })
}

/// The bytes that a node writes, and the bytes that it reads and writes.
fn moved(inputs: &Inputs, made: &[Vec<usize>]) -> [u64; 2] {
    let written = made.iter().filter_map(|shape| elements(shape)).fold(0, u64::saturating_add);
    let all = inputs.iter().filter_map(read_elements).fold(written, u64::saturating_add);
    [written, all].map(in_bytes)
}

fn read_elements(input: &Option<SymTensor>) -> Option<u64> {
    elements(&sizes(input.as_ref()?).ok()?)
}

fn in_bytes(elements: u64) -> u64 {
    elements.saturating_mul(F32_BYTES)
}

/// The scales by which a node changes the size of a picture, if they are constant.
fn scales(node: &NodeProto, scope: &Scope) -> Option<Vec<f32>> {
    let has_sizes = node.inputs.get(3).is_some_and(|name| !name.is_empty());
    let name = match node.op_type.as_str() {
        "Upsample" => node.inputs.get(1)?,
        "Resize" if !has_sizes => node.inputs.get(2).or(node.inputs.get(1))?,
        _ => return None,
    };
    floats(name, scope)
}

/// The node that gives a value.
fn giver<'a>(name: &str, scope: &Scope<'a>) -> Option<&'a NodeProto> {
    let nodes = scope.graphs.iter().rev().flat_map(|graph| &graph.nodes);
    nodes.into_iter().find(|node| node.outputs.first().is_some_and(|own| own == name))
}

/// The floats of a constant.
fn floats(name: &str, scope: &Scope) -> Option<Vec<f32>> {
    let of_node = || giver(name, scope)?.constant();
    let tensor = scope.constants.get(name).copied().or_else(of_node)?;
    let bytes = tensor.inside().filter(|_| tensor.data_type == element::FLOAT)?;
    Some(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

/// The value of an input of a `Range` of floats, if it is a constant whole number or was cast from a known number.
fn whole_number(name: &str, scope: &Scope) -> Option<SymTensor> {
    let is_known = |value: &&SymTensor| matches!(value.as_scalar(), Some(SymExpr::Value(_)));
    let known = |name: &str| scope.values.get(name).filter(is_known).cloned();
    let of_constant = || {
        let number = floats(name, scope).filter(|numbers| numbers.len() == 1)?[0];
        let is_whole = number.fract() == 0.0 && number.abs() < 1e9;
        is_whole.then(|| SymTensor::from_scalar(SymExpr::Value(number as i32)))
    };
    let before_cast = || known(giver(name, scope).filter(|node| node.op_type == "Cast")?.inputs.first()?);
    known(name).or_else(of_constant).or_else(before_cast)
}

fn add(sum: u64, more: u64) -> Result<u64> {
    sum.checked_add(more).context("more than can be counted")
}

fn value_bytes(value: &ValueInfoProto, shape: &[usize]) -> Result<u64> {
    let kind = value.r#type.as_ref().and_then(|kind| kind.tensor.as_ref());
    let bytes = kind.and_then(|tensor| elements(shape)?.checked_mul(element_bytes(tensor.element)? as u64));
    bytes.with_context(|| format!("{:?} has no size in bytes", value.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::AttributeProto;

    fn weights(name: &str, dims: &[i64]) -> TensorProto {
        TensorProto { name: name.into(), dims: dims.to_vec(), data_type: 1, ..TensorProto::default() }
    }

    fn graph(nodes: Vec<NodeProto>, initializers: Vec<TensorProto>, inputs: &[(&str, i32)]) -> GraphProto {
        let inputs = inputs.iter().map(|(name, element)| ValueInfoProto::tensor(name, *element, None)).collect();
        let outputs = vec![ValueInfoProto::tensor("y", 1, None)];
        GraphProto { nodes, initializers, inputs, outputs, ..GraphProto::default() }
    }

    fn with_ints(mut node: NodeProto, name: &str, ints: &[i64]) -> NodeProto {
        node.attributes.push(AttributeProto::ints(name, ints));
        node
    }

    fn walk_of(graph: &GraphProto, inputs: &Shapes) -> Result<Walked> {
        walk(graph, inputs, None)
    }

    fn refused(graph: &GraphProto, inputs: &Shapes) -> String {
        format!("{:#}", walk_of(graph, inputs).unwrap_err())
    }

    fn sizes(shape: &[usize]) -> Shapes {
        BTreeMap::from([("x".to_owned(), shape.to_vec())])
    }

    #[test]
    fn a_product_takes_two_operations_for_each_pair_it_multiplies() {
        let graph = graph(vec![NodeProto::new("MatMul", &["x", "w"], "y")], vec![weights("w", &[5, 7])], &[("x", 1)]);
        let walked = walk_of(&graph, &sizes(&[2, 3, 5])).unwrap();
        assert_eq!(walked.outputs["y"], [2, 3, 7]);
        let flops = 2 * (2 * 3 * 7) * 5;
        let bytes = 4 * (2 * 3 * 5 + 5 * 7 + 2 * 3 * 7);
        let expected = Cost { flops, bytes, nodes: 1, node_bytes: bytes, matrix_products: 1, ..Cost::default() };
        assert_eq!(walked.cost, expected);
        let wrong = refused(&graph, &sizes(&[2, 4]));
        assert_eq!(wrong, "MatMul \"MatMul_y\": shapes [2, 4] and [5, 7] do not fit");
    }

    #[test]
    fn weights_that_are_written_as_a_node_are_read_like_others() {
        let value = AttributeProto { name: "value".into(), t: Some(weights("", &[5, 7])), ..AttributeProto::default() };
        let constant = NodeProto { attributes: vec![value], ..NodeProto::new("Constant", &[], "w") };
        let graph = graph(vec![constant, NodeProto::new("MatMul", &["x", "w"], "y")], Vec::new(), &[("x", 1)]);
        let counted = walk_of(&graph, &sizes(&[2, 3, 5])).unwrap().cost;
        assert_eq!(counted.bytes, 4 * (2 * 3 * 5 + 5 * 7 + 2 * 3 * 7));
    }

    #[test]
    fn batches_of_matrices_are_as_many_products() {
        let products = |second: NodeProto| {
            let nodes = vec![NodeProto::new("Transpose", &["x"], "t"), second];
            let mut graph = graph(nodes, vec![weights("w", &[5, 7])], &[("x", 1)]);
            graph.nodes[0] = with_ints(graph.nodes[0].clone(), "perm", &[0, 1, 3, 2]);
            walk_of(&graph, &sizes(&[2, 3, 4, 5])).unwrap().cost.matrix_products
        };
        assert_eq!(products(NodeProto::new("MatMul", &["x", "t"], "y")), 2 * 3);
        assert_eq!(products(NodeProto::new("MatMul", &["x", "w"], "y")), 1);
        assert_eq!(products(NodeProto::new("Relu", &["x"], "y")), 0);
    }

    #[test]
    fn a_convolution_in_groups_sums_over_the_channels_of_its_group() {
        let mut node = NodeProto::new("Conv", &["x", "w", "b"], "y");
        node.attributes.push(AttributeProto::int("group", 2));
        let node = with_ints(with_ints(node, "strides", &[2, 2]), "pads", &[1, 1, 1, 1]);
        let initializers = vec![weights("w", &[6, 2, 3, 3]), weights("b", &[6])];
        let graph = graph(vec![node, NodeProto::new("Relu", &["y"], "z")], initializers, &[("x", 1)]);
        let walked = walk_of(&graph, &sizes(&[1, 4, 9, 8])).unwrap();
        assert_eq!(walked.outputs["y"], [1, 6, 5, 4]);
        assert_eq!(walked.cost.flops, 2 * (6 * 5 * 4) * (2 * 3 * 3));
        assert_eq!((walked.cost.convolution_flops, walked.cost.nodes), (walked.cost.flops, 2));
        // The image, the filters and the bias; the result counts three times, since the second node reads and writes
        // it, too.
        assert_eq!(walked.cost.node_bytes, 4 * (4 * 9 * 8 + 6 * 2 * 3 * 3 + 6 + 3 * (6 * 5 * 4)));
        assert_eq!(walked.operators.iter().map(String::as_str).collect::<Vec<_>>(), ["Conv", "Relu"]);
        assert!(refused(&graph, &sizes(&[1, 3, 9, 8])).starts_with("Conv \"Conv_y\": 3 channels"));
    }

    #[test]
    fn recurrent_and_transposed_weights_are_multiplied_by_each_step_and_place() {
        let inputs = ["x", "w", "r"];
        let weights_of = |gates: i64| vec![weights("w", &[2, gates * 16, 8]), weights("r", &[2, gates * 16, 16])];
        let mut recurrent = NodeProto::new("LSTM", &inputs, "y");
        recurrent.attributes.push(AttributeProto {
            name: "direction".into(),
            s: Some(b"bidirectional".to_vec().into()),
            ..AttributeProto::default()
        });
        let walked = walk_of(&graph(vec![recurrent], weights_of(4), &[("x", 1)]), &sizes(&[5, 3, 8])).unwrap();
        assert_eq!(walked.outputs["y"], [5, 2, 3, 16]);
        assert_eq!(walked.cost.flops, 2 * (5 * 3) * (2 * 4 * 16) * (8 + 16));
        assert_eq!(walked.cost.matrix_products, 5 * 2);
        let transposed = with_ints(NodeProto::new("ConvTranspose", &["x", "w"], "y"), "strides", &[2, 2]);
        let walked =
            walk_of(&graph(vec![transposed], vec![weights("w", &[4, 6, 2, 2])], &[("x", 1)]), &sizes(&[1, 4, 5, 7]))
                .unwrap();
        assert_eq!(walked.outputs["y"], [1, 6, 10, 14]);
        assert_eq!((walked.cost.flops, walked.cost.convolution_flops), (2 * (6 * 10 * 14) * 4, walked.cost.flops));
    }

    #[test]
    fn a_sum_over_products_costs_all_combinations_of_its_indices() {
        let of = |equation: &str, second: &[i64]| {
            let mut node = NodeProto::new("Einsum", &["x", "w"], "y");
            node.attributes.push(AttributeProto {
                name: "equation".into(),
                s: Some(equation.as_bytes().to_vec().into()),
                ..AttributeProto::default()
            });
            walk_of(&graph(vec![node], vec![weights("w", second)], &[("x", 1)]), &sizes(&[2, 3, 5]))
                .map(|walked| walked.cost.flops)
        };
        assert_eq!(of("bij,jk->bik", &[5, 7]).unwrap(), 2 * (2 * 3 * 7) * 5);
        assert_eq!(of("bij, bjk -> bik", &[2, 5, 7]).unwrap(), 2 * (2 * 3 * 7) * 5);
        assert!(of("...j,jk->...k", &[5, 7]).is_err());
    }

    #[test]
    fn a_range_of_floats_is_as_long_as_the_whole_numbers_say_that_were_cast() {
        let float = |name: &str, number: f32| {
            let data = number.to_le_bytes().to_vec();
            TensorProto { name: name.into(), data_type: 1, raw_data: Some(data.into()), ..TensorProto::default() }
        };
        let place = TensorProto {
            name: "i".into(),
            data_type: 7,
            raw_data: Some(2_i64.to_le_bytes().to_vec().into()),
            ..TensorProto::default()
        };
        let nodes = vec![
            NodeProto::new("Shape", &["x"], "s"),
            NodeProto::new("Gather", &["s", "i"], "h"),
            NodeProto::cast("h", "f", element::FLOAT),
            NodeProto::new("Range", &["zero", "f", "two"], "y"),
        ];
        let graph = graph(nodes, vec![place, float("zero", 0.0), float("two", 2.0)], &[("x", 1)]);
        assert_eq!(walk_of(&graph, &sizes(&[1, 3, 9, 5])).unwrap().outputs["y"], [5]);
    }

    #[test]
    fn of_a_table_only_the_rows_that_are_looked_up_are_read() {
        let lookup = NodeProto::new("Gather", &["w", "x"], "y");
        let table = || vec![weights("w", &[1000, 8])];
        let rows = walk_of(&graph(vec![lookup.clone()], table(), &[("x", 7)]), &sizes(&[1, 3])).unwrap();
        assert_eq!((rows.cost.flops, rows.cost.bytes), (0, 8 * 3 + 2 * 4 * (3 * 8)));
        assert_eq!(rows.cost.node_bytes, 4 * (3 + 2 * (3 * 8)));
        assert_eq!(rows.nodes[0].bytes, rows.cost.node_bytes);
        // The same if the table has other names.
        let named = |from: &str, to: &str| NodeProto::new("Identity", &[from], to);
        let nodes = vec![named("w", "v"), named("v", "u"), NodeProto::new("Gather", &["u", "x"], "y")];
        let of_names = walk_of(&graph(nodes, table(), &[("x", 7)]), &sizes(&[1, 3])).unwrap();
        assert_eq!(of_names.cost.bytes, rows.cost.bytes);
        // An output of the graph counts as read.
        let given = graph(vec![named("w", "y")], table(), &[]);
        assert_eq!(walk_of(&given, &Shapes::new()).unwrap().cost.bytes, 2 * 4 * (1000 * 8));
        // If a product reads the table too, the whole table is read.
        let transposed = NodeProto::new("Transpose", &["w"], "t");
        let nodes = vec![lookup, transposed, NodeProto::new("MatMul", &["y", "t"], "z")];
        let whole = walk_of(&graph(nodes, table(), &[("x", 7)]), &sizes(&[1, 3])).unwrap();
        assert_eq!(whole.cost.bytes, 8 * 3 + 4 * (1000 * 8) + 4 * (3 * 8));
        assert_eq!(whole.cost.flops, 2 * (3 * 1000) * 8);
    }

    #[test]
    fn an_operator_that_is_not_known_is_named_and_nothing_is_guessed() {
        let unknown = graph(vec![NodeProto::new("NonMaxSuppression", &["x"], "y")], vec![], &[("x", 1)]);
        assert!(refused(&unknown, &sizes(&[1])).starts_with("NonMaxSuppression \"NonMaxSuppression_y\""));
        let mut other = NodeProto::new("MatMul", &["x", "x"], "y");
        other.domain = "com.example".into();
        assert!(walk_of(&graph(vec![other], vec![], &[("x", 1)]), &sizes(&[1])).is_err());
        let mut rounding = NodeProto::new("QuantizeLinear", &["x", "x"], "y");
        rounding.domain = "com.microsoft".into();
        assert!(walk_of(&graph(vec![rounding], vec![], &[("x", 1)]), &sizes(&[1])).is_ok());
        let of_values = graph(vec![NodeProto::new("Expand", &["x", "x"], "y")], vec![], &[("x", 7)]);
        assert!(refused(&of_values, &sizes(&[1])).contains("depends on the values"));
        assert_eq!(refused(&unknown, &Shapes::new()), "the input \"x\" has no size");
    }

    #[test]
    fn more_than_can_be_counted_is_an_error() {
        let huge = weights("w", &[i64::MAX / 2, i64::MAX / 2]);
        let graph = graph(vec![NodeProto::new("MatMul", &["x", "w"], "y")], vec![huge], &[("x", 1)]);
        assert!(refused(&graph, &sizes(&[1, (i64::MAX / 2) as usize])).contains("than can be counted"));
    }
}
