//! The shapes that an operator makes of its inputs' shapes, by the rules of the ONNX operator specification.

use super::broadcast::{broadcast, element_wise};
use super::node::Node;
use super::rearranged;
use super::value::{Value, is_whole};
use super::window::Window;
use anyhow::{Context, Result, bail, ensure};

/// The outputs of a node; those after the first only where something can follow from them.
///
/// # Errors
/// The operator is none of those here, or its shape cannot be known before it runs; the message names it.
pub(super) fn outputs(node: &Node<'_>) -> Result<Vec<Value>> {
    ensure!(node.proto.is_standard() && !node.proto.has_subgraph(), "an operator whose cost is not known");
    let one = match node.operator() {
        "Abs" | "Add" | "And" | "Ceil" | "Clip" | "Cos" | "Div" | "Elu" | "Equal" | "Erf" | "Exp" | "Floor"
        | "Gelu" | "Greater" | "GreaterOrEqual" | "HardSigmoid" | "HardSwish" | "IsNaN" | "LeakyRelu" | "Less"
        | "LessOrEqual" | "Log" | "Max" | "Mean" | "Min" | "Mish" | "Mod" | "Mul" | "Neg" | "Not" | "Or" | "PRelu"
        | "Pow" | "Reciprocal" | "Relu" | "Round" | "Sigmoid" | "Sign" | "Sin" | "Softplus" | "Sqrt" | "Sub"
        | "Sum" | "Tanh" | "Where" | "Xor" => element_wise(node)?,
        "BatchNormalization"
        | "CumSum"
        | "DequantizeLinear"
        | "Dropout"
        | "GroupNormalization"
        | "InstanceNormalization"
        | "LayerNormalization"
        | "LogSoftmax"
        | "QuantizeLinear"
        | "Softmax"
        | "Trilu" => Value::of_shape(node.input(0)?.shape.clone()),
        "Identity" => node.input(0)?.clone(),
        "Cast" => cast(node)?,
        "DynamicQuantizeLinear" => {
            // The integers, their scale and their zero point.
            return Ok([node.input(0)?.shape.clone(), vec![], vec![]].map(Value::of_shape).to_vec());
        }
        "MatMul" | "MatMulInteger" => Value::of_shape(product(node, 1)?),
        "QLinearMatMul" => Value::of_shape(product(node, QLINEAR_WEIGHTS)?),
        "Gemm" => Value::of_shape(general_product(node)?),
        "Conv" | "ConvInteger" => Value::of_shape(convolution(node, 1)?),
        "QLinearConv" => Value::of_shape(convolution(node, QLINEAR_WEIGHTS)?),
        "AveragePool" | "LpPool" | "MaxPool" => Value::of_shape(pooling(node)?),
        "GlobalAveragePool" | "GlobalMaxPool" => Value::of_shape(global_pooling(node)?),
        "ArgMax" | "ArgMin" => {
            let axis = node.int("axis", 0);
            Value::of_shape(reduced(node, Some(&[axis]))?)
        }
        operator if operator.starts_with("Reduce") => {
            let axes = node.ints_or_input("axes", 1)?.filter(|axes| !axes.is_empty());
            match axes {
                None if node.int("noop_with_empty_axes", 0) != 0 => Value::of_shape(node.input(0)?.shape.clone()),
                axes => Value::of_shape(reduced(node, axes)?),
            }
        }
        _ => return rearranged::outputs(node),
    };
    Ok(vec![one])
}

/// The place of the second operand among the inputs of `QLinearMatMul` and `QLinearConv`: after the first one's scale and
/// zero point.
pub(super) const QLINEAR_WEIGHTS: usize = 3;

fn cast(node: &Node<'_>) -> Result<Value> {
    let input = node.input(0)?;
    let to = node.int("to", 0);
    let known = input.known.clone().filter(|_| is_whole(to));
    let known = match to {
        9 => known.map(|known| known.into_iter().map(|number| (number != 0).into()).collect()),
        _ => known,
    };
    Ok(Value::with_known(input.shape.clone(), known))
}

/// `[…, m, k] × […, k, n]`; a vector is a matrix of one row or column, which the result does not have.
fn product(node: &Node<'_>, second: usize) -> Result<Vec<usize>> {
    let (left, right) = (&node.input(0)?.shape, &node.input(second)?.shape);
    let do_not_fit = || format!("shapes {left:?} and {right:?} do not fit");
    ensure!(!left.is_empty() && !right.is_empty(), do_not_fit());
    let rows = (left.len() > 1).then(|| left[left.len() - 2]);
    let columns = (right.len() > 1).then(|| right[right.len() - 1]);
    let inner = right[right.len().saturating_sub(2)];
    ensure!(left[left.len() - 1] == inner, do_not_fit());
    let batches = [&left[..left.len().saturating_sub(2)], &right[..right.len().saturating_sub(2)]];
    let mut shape = broadcast(&batches).with_context(do_not_fit)?;
    shape.extend(rows);
    shape.extend(columns);
    Ok(shape)
}

fn general_product(node: &Node<'_>) -> Result<Vec<usize>> {
    let (left, right) = (&node.input(0)?.shape, &node.input(1)?.shape);
    let (&[a, b], &[c, d]) = (left.as_slice(), right.as_slice()) else {
        bail!("shapes {left:?} and {right:?} are no matrices");
    };
    let (rows, inner) = if node.int("transA", 0) == 0 { (a, b) } else { (b, a) };
    let (own_inner, columns) = if node.int("transB", 0) == 0 { (c, d) } else { (d, c) };
    ensure!(inner == own_inner, "shapes {left:?} and {right:?} do not fit");
    Ok(vec![rows, columns])
}

fn convolution(node: &Node<'_>, weights: usize) -> Result<Vec<usize>> {
    let (input, weights) = (&node.input(0)?.shape, &node.input(weights)?.shape);
    let (Some((&[batch, channels], spatial)), Some((&[filters, of_group], kernel))) =
        (input.split_first_chunk::<2>(), weights.split_first_chunk::<2>())
    else {
        bail!("an input of fewer than two dimensions");
    };
    let grouped = node.size(node.int("group", 1))?.checked_mul(of_group);
    ensure!(grouped == Some(channels), "{channels} channels for filters of {of_group}");
    let counts = Window { kernel, is_ceiled: false }.count(node, spatial)?;
    Ok([batch, filters].into_iter().chain(counts).collect())
}

fn pooling(node: &Node<'_>) -> Result<Vec<usize>> {
    let Some((&[batch, channels], spatial)) = node.input(0)?.shape.split_first_chunk::<2>() else {
        bail!("an input of fewer than two dimensions");
    };
    let kernel = node.ints("kernel_shape").context("no kernel_shape")?;
    let kernel = node.sizes(kernel)?;
    let counts = Window { kernel: &kernel, is_ceiled: node.int("ceil_mode", 0) != 0 }.count(node, spatial)?;
    Ok([batch, channels].into_iter().chain(counts).collect())
}

fn global_pooling(node: &Node<'_>) -> Result<Vec<usize>> {
    let shape = &node.input(0)?.shape;
    Ok(shape.iter().enumerate().map(|(axis, &size)| if axis < 2 { size } else { 1 }).collect())
}

/// Without axes, all are reduced.
fn reduced(node: &Node<'_>, axes: Option<&[i64]>) -> Result<Vec<usize>> {
    let shape = &node.input(0)?.shape;
    let axes: Vec<usize> = match axes {
        Some(axes) => node.axes(axes, shape.len())?,
        None => (0..shape.len()).collect(),
    };
    let keeps = node.int("keepdims", 1) != 0;
    let of_axis = |(axis, &size): (usize, &usize)| match axes.contains(&axis) {
        true => keeps.then_some(1),
        false => Some(size),
    };
    Ok(shape.iter().enumerate().filter_map(of_axis).collect())
}
