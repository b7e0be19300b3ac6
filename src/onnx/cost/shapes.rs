//! Infers the shapes of an operator's outputs, and the small integers that shapes are computed from, by the rules of
//! the crate `rten-shape-inference`. Its symbols are not needed here, because all sizes are known.

use anyhow::{Context, Result, anyhow, bail, ensure};
use rten_shape_inference::ops::{self, Direction, Padding};
use rten_shape_inference::{
    InferShapes, InferShapesContext, ReductionOp, SymExpr, SymTensor, SymbolGen, UnaryOp, VariadicOp,
};

use crate::onnx::proto::{NodeProto, TensorProto, element, place_of_axis};
use crate::printing::caught;

/// The inputs of a node; `None` for one that is left out.
pub(super) type Inputs = Vec<Option<SymTensor>>;

/// Values of longer tensors are not kept, because they are not shapes.
const MOST_KNOWN: u64 = 4096;

/// Operators whose output has the shape of their first input.
const UNARY: &str = "Abs Acos Asin Atan BatchNormalization Ceil Celu Clip Cos Cosh CumSum DequantizeLinear Dropout Elu Erf Exp Floor Gelu \
    GroupNormalization HardSigmoid HardSwish InstanceNormalization IsInf IsNaN LRN LayerNormalization LeakyRelu Log LogSoftmax \
    LpNormalization Mish Not QuantizeLinear Reciprocal Relu Round ScatterElements ScatterND Selu Shrink Sigmoid Sign Sin Sinh Softmax \
    Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Trilu";
/// Operators whose output has the shape that their inputs broadcast to.
const BROADCAST: &str = "And Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Or PRelu Pow Sum Xor";

/// A tensor of these sizes.
pub(super) fn of_sizes(sizes: &[usize]) -> Result<SymTensor> {
    ensure!(sizes.iter().all(|&size| i32::try_from(size).is_ok()), "{sizes:?} are more than can be counted");
    Ok(SymTensor::from_fixed_shape(sizes))
}

/// A number that is known.
pub(super) fn scalar(number: i64) -> SymTensor {
    SymTensor::from_scalar(symbol(number))
}

/// The number that a tensor of one element has, if it is known.
pub(super) fn known_number(value: &SymTensor) -> Option<i64> {
    match (value.as_scalar(), value.values()) {
        (Some(SymExpr::Value(number)), _) | (_, Some([SymExpr::Value(number)])) => Some((*number).into()),
        _ => None,
    }
}

/// A constant of the graph. Its values are kept if they are in the graph's own file.
pub(super) fn constant(tensor: &TensorProto) -> Result<SymTensor> {
    let wrong = || format!("the constant {:?} has a size below 0", tensor.name);
    let sizes: Option<Vec<usize>> = tensor.dims.iter().map(|&size| usize::try_from(size).ok()).collect();
    let sizes = sizes.with_context(wrong)?;
    Ok(match (sizes.as_slice(), whole_numbers(tensor).as_deref()) {
        ([], Some(&[number])) => SymTensor::from_scalar(symbol(number)),
        ([length], Some(numbers)) if numbers.len() == *length => vector(numbers),
        _ => of_sizes(&sizes)?,
    })
}

/// The sizes of a tensor, if they do not depend on the values of the graph's inputs.
pub(super) fn sizes(value: &SymTensor) -> Result<Vec<usize>> {
    let unknown = || "its shape depends on the values of the inputs";
    let size = |size: SymExpr| match size {
        SymExpr::Value(size) => usize::try_from(size).ok().with_context(|| format!("a size of {size}")),
        _ => bail!(unknown()),
    };
    value.shape().with_context(unknown)?.map(size).collect()
}

/// The number of elements. Returns `None` if it is more than a `u64` holds.
pub(super) fn elements(sizes: &[usize]) -> Option<u64> {
    sizes.iter().try_fold(1_u64, |elements, &size| elements.checked_mul(size as u64))
}

/// The outputs of a node. `scales` are the constant scales of a `Resize` or `Upsample`.
pub(super) fn outputs(node: &NodeProto, given: &Inputs, scales: Option<&[f32]>) -> Result<Vec<SymTensor>> {
    let unknown = || anyhow!("an operator whose cost is not known");
    // ONNX Runtime has operators of these names for types that the standard did not allow.
    let is_rounding = matches!(node.op_type.as_str(), "QuantizeLinear" | "DequantizeLinear");
    let is_known = node.is_standard() || is_rounding && node.domain == "com.microsoft";
    ensure!(is_known && !node.has_subgraph(), unknown());
    let inputs = &inputs_of(node, given)?;
    let list = match node.op_type.as_str() {
        "ConstantOfShape" => Some(0),
        "Expand" | "Reshape" => Some(1),
        _ => None,
    };
    // A list of unknown sizes may be as long as a hostile file says, and the rule would make a symbol for each size.
    let is_open = |place: usize| inputs.get(place).and_then(Option::as_ref).is_some_and(|it| it.values().is_none());
    ensure!(!list.is_some_and(is_open), "its shape depends on the values of the inputs");
    let infer = |rule: &dyn InferShapes| infer(rule, inputs);
    let is_in = |names: &str| names.split_ascii_whitespace().any(|name| name == node.op_type);
    let int = |name: &str, default: i64| node.int(name).map_or(default, |number| number) as i32;
    let tensor = |name: &str| node.attribute(name).and_then(|attribute| attribute.t.as_ref());
    match node.op_type.as_str() {
        "Add" => infer(&ops::Add),
        "Sub" => infer(&ops::Sub),
        "Mul" => infer(&ops::Mul),
        "Div" => infer(&ops::Div),
        "Neg" => infer(&ops::Neg),
        "Equal" => infer(&ops::Equal),
        "Where" => infer(&ops::Where),
        _ if is_in(UNARY) => infer(&UnaryOp),
        _ if is_in(BROADCAST) => infer(&VariadicOp),
        "Identity" => infer(&ops::Identity),
        // A value that is cast to a float is no longer a size.
        "Cast" if matches!(node.int("to"), Some(2..=7 | 9 | 12 | 13)) => infer(&ops::Identity),
        "Cast" => infer(&UnaryOp),
        "Concat" => {
            let concat = ops::Concat { axis: int("axis", 0) };
            let known = inputs.iter().flatten().filter_map(SymTensor::values).map(|values| values.len() as u64);
            if known.sum::<u64>() <= MOST_KNOWN {
                return infer(&concat);
            }
            // A longer value is not a shape, and a graph that doubles it again and again would take all memory.
            let plain = |value: &Option<SymTensor>| value.as_ref().map(|value| of_sizes(&sizes(value)?)).transpose();
            self::infer(&concat, &inputs.iter().map(plain).collect::<Result<Inputs>>()?)
        }
        "Constant" => match (tensor("value"), node.int("value_int"), node.attribute("value_ints")) {
            (Some(value), ..) => Ok(vec![constant(value)?]),
            (None, Some(number), _) => Ok(vec![SymTensor::from_scalar(symbol(number))]),
            (None, None, Some(numbers)) => Ok(vec![vector(&numbers.ints)]),
            _ if node.attribute("value_float").is_some() => Ok(vec![of_sizes(&[])?]),
            _ => Err(unknown()),
        },
        "ConstantOfShape" => {
            let asked_for = inputs.first().and_then(|shape| shape.as_ref()?.values()?.first().cloned());
            let is_short = !matches!(asked_for, Some(SymExpr::Value(size)) if i64::from(size) > MOST_KNOWN as i64);
            let number = tensor("value").filter(|_| is_short).and_then(|value| whole_numbers(value)?.first().copied());
            infer(&ops::ConstantOfShape { value: number.map(clamped) })
        }
        "DynamicQuantizeLinear" => infer(&ops::DynamicQuantizeLinear),
        "Expand" => infer(&ops::Expand),
        "Flatten" => infer(&ops::Flatten { axis: int("axis", 1) }),
        "Gather" => infer(&ops::Gather { axis: int("axis", 0) }),
        "GatherElements" => infer(&ops::GatherElements),
        "Pad" => infer(&ops::Pad),
        "Range" => infer(&ops::Range),
        "Reshape" => {
            let made = infer(&ops::Reshape { allow_zero: int("allowzero", 0) != 0 })?;
            let (from, to) = (sizes(input(inputs, 0)?)?, sizes(&made[0])?);
            ensure!(elements(&from) == elements(&to), "{from:?} cannot become {to:?}");
            Ok(made)
        }
        "Shape" => infer(&ops::Shape { start: Some(int("start", 0)), end: node.int("end").map(clamped) }),
        "Size" => infer(&ops::Size),
        "Slice" => infer(&ops::Slice),
        "Split" => infer(&ops::Split { axis: int("axis", 0), num_outputs: None }),
        "Squeeze" => infer(&ops::Squeeze),
        "Tile" => infer(&ops::Tile),
        "Transpose" => {
            let order = node.attribute("perm").map(|order| to_sizes(&order.ints)).transpose()?;
            infer(&ops::Transpose { perm: order.as_deref() })
        }
        "Unsqueeze" => infer(&ops::Unsqueeze),
        "MatMul" | "MatMulInteger" | "QLinearMatMul" => product(inputs),
        "Gemm" => infer(&ops::Gemm { transpose_a: int("transA", 0) != 0, transpose_b: int("transB", 0) != 0 }),
        "Conv" | "ConvInteger" | "QLinearConv" => {
            let (strides, dilations, pads) = window(node, inputs)?;
            let padding = pads.as_deref().map_or(Padding::Same, Padding::Fixed);
            infer(&ops::Conv { dilations: &dilations, padding, strides: &strides })
        }
        "AveragePool" | "LpPool" | "MaxPool" => {
            let (strides, dilations, pads) = window(node, inputs)?;
            let kernel_size = to_sizes(&node.attribute("kernel_shape").context("no kernel_shape")?.ints)?;
            infer(&ops::Pool {
                dilations: &dilations,
                kernel_size: &kernel_size,
                padding: pads.as_deref().map_or(Padding::Same, Padding::Fixed),
                strides: &strides,
                ceil_mode: int("ceil_mode", 0) != 0,
            })
        }
        "GlobalAveragePool" | "GlobalMaxPool" => infer(&ops::GlobalPool),
        "ConvTranspose" => {
            ensure!(node.attribute("output_shape").is_none(), unknown());
            let (strides, dilations, pads) = window(node, inputs)?;
            let given = node.attribute("output_padding").map(|given| to_sizes(&given.ints)).transpose()?;
            infer(&ops::ConvTranspose {
                groups: usize::try_from(int("group", 1))?,
                padding: pads.as_deref().map_or(Padding::Same, Padding::Fixed),
                strides: &strides,
                dilations: &dilations,
                output_padding: given.as_deref(),
            })
        }
        "GRU" | "LSTM" => {
            ensure!(int("layout", 0) == 0, unknown());
            let is_both = node.attribute("direction").is_some_and(|it| it.s.as_deref() == Some(b"bidirectional"));
            let direction = if is_both { Direction::Bidirectional } else { Direction::Unidirectional };
            if node.op_type == "GRU" { infer(&ops::GRU { direction }) } else { infer(&ops::LSTM { direction }) }
        }
        "Resize"
            if ["axes", "keep_aspect_ratio_policy"]
                .iter()
                .any(|name| node.attribute(name).is_some_and(|it| it.s.as_deref() != Some(b"stretch"))) =>
        {
            Err(unknown())
        }
        "Resize" | "Upsample" => match scales.filter(|scales| !scales.is_empty()) {
            Some(scales) => {
                let from = sizes(input(inputs, 0)?)?;
                ensure!(from.len() == scales.len(), "{} scales for shape {from:?}", scales.len());
                // In f32, as in ONNX Runtime: 0.7 · 10 is 7.
                let made = from.iter().zip(scales).map(|(&size, &scale)| (size as f32 * scale).floor());
                Ok(vec![of_sizes(&made.map(|size| size as usize).collect::<Vec<_>>())?])
            }
            None => infer(&ops::Resize),
        },
        "DepthToSpace" => infer(&ops::DepthToSpace {
            block_size: u32::try_from(int("blocksize", 0)).ok().filter(|&size| size > 0).with_context(unknown)?,
        }),
        "STFT" => infer(&ops::STFT { onesided: int("onesided", 1) != 0 }),
        "TopK" => infer(&ops::TopK { axis: Some(int("axis", -1)) }),
        "Einsum" => {
            let equation = node.attribute("equation").and_then(|equation| equation.s.as_deref());
            infer(&ops::Einsum { equation: std::str::from_utf8(equation.context("no equation")?)? })
        }
        "ArgMax" | "ArgMin" => {
            infer(&ReductionOp { axes: Some(&[int("axis", 0)]), keep_dims: int("keepdims", 1) != 0 })
        }
        name if name.starts_with("Reduce") => match inputs.len() {
            1 if int("noop_with_empty_axes", 0) != 0 => infer(&UnaryOp),
            _ => infer(&ReductionOp { axes: None, keep_dims: int("keepdims", 1) != 0 }),
        },
        _ => Err(unknown()),
    }
}

/// A required input.
pub(super) fn input(inputs: &Inputs, place: usize) -> Result<&SymTensor> {
    inputs.get(place).and_then(Option::as_ref).with_context(|| format!("input {place} is missing"))
}

/// The inputs as in newer opsets: attributes of older ones become inputs, and the operands of a quantised product
/// become the first two.
fn inputs_of(node: &NodeProto, given: &Inputs) -> Result<Inputs> {
    let moved: &[(&str, usize)] = match node.op_type.as_str() {
        "Pad" => &[("pads", 1)],
        "Slice" => &[("starts", 1), ("ends", 2), ("axes", 3)],
        "Split" => &[("split", 1)],
        "Squeeze" | "Unsqueeze" => &[("axes", 1)],
        name if name.starts_with("Reduce") => &[("axes", 1)],
        "QLinearMatMul" | "QLinearConv" => {
            return Ok(vec![given.first().cloned().flatten(), given.get(3).cloned().flatten()]);
        }
        _ => &[],
    };
    let mut inputs = given.clone();
    for &(name, place) in moved {
        if let Some(attribute) = node.attribute(name) {
            inputs.resize(inputs.len().max(place + 1), None);
            inputs[place] = Some(vector(&attribute.ints));
        }
    }
    let is_empty =
        |axes: &Option<SymTensor>| axes.as_ref().is_none_or(|axes| axes.values().is_some_and(<[_]>::is_empty));
    if node.op_type.starts_with("Reduce") && inputs.get(1).is_some_and(is_empty) {
        inputs.truncate(1);
    }
    if node.op_type == "Split" && inputs.get(1).is_none_or(Option::is_none) {
        let shape = sizes(input(&inputs, 0)?)?;
        let axis = place_of_axis(node.int("axis").unwrap_or(0), shape.len()).context("no such axis")?;
        let parts = node.outputs.len().max(1);
        let longest = shape[axis].div_ceil(parts);
        let length = |part: usize| longest.min(shape[axis].saturating_sub(part * longest)) as i64;
        inputs.truncate(1);
        inputs.push(Some(vector(&(0..parts).map(length).collect::<Vec<_>>())));
    }
    Ok(inputs)
}

fn infer(rule: &dyn InferShapes, inputs: &Inputs) -> Result<Vec<SymTensor>> {
    // The rules trust the graph, and may panic on one that no exporter writes.
    let inferred = caught(|| {
        let made = rule.infer_shapes(InferShapesContext::new(inputs), &mut SymbolGen::new())?;
        Ok::<Vec<SymTensor>, anyhow::Error>(made.into_iter().map(SymTensor::simplify).collect())
    });
    let shapes = || inputs.iter().map(|input| sizes(input.as_ref()?).ok()).collect::<Vec<_>>();
    match inferred {
        Ok(Ok(made)) => Ok(made),
        Ok(Err(error)) => Err(error.context(format!("shapes {:?} do not fit", shapes()))),
        Err(_) => bail!("shapes {:?} do not fit", shapes()),
    }
}

/// The product of two batches of matrices. A vector on the left is taken as a row and one on the right as a column, and
/// the product lacks that dimension.
fn product(inputs: &Inputs) -> Result<Vec<SymTensor>> {
    let (mut left, mut right) = (sizes(input(inputs, 0)?)?, sizes(input(inputs, 1)?)?);
    let (is_row, is_column) = (left.len() == 1, right.len() == 1);
    if is_row {
        left.insert(0, 1);
    }
    if is_column {
        right.push(1);
    }
    let made = infer(&ops::MatMul, &vec![Some(of_sizes(&left)?), Some(of_sizes(&right)?)])?;
    if !is_row && !is_column {
        return Ok(made);
    }
    let mut shape = sizes(made.first().context("no product")?)?;
    if is_column {
        shape.pop();
    }
    if is_row {
        shape.remove(shape.len() - 1 - usize::from(!is_column));
    }
    Ok(vec![of_sizes(&shape)?])
}

/// Strides, dilations and pads; no pads if the number of windows depends on the strides alone.
type Window = (Vec<usize>, Vec<usize>, Option<Vec<usize>>);

/// The window of a convolution or pooling, which slides over the dimensions after the first two.
fn window(node: &NodeProto, inputs: &Inputs) -> Result<Window> {
    let rank = sizes(input(inputs, 0)?)?.len().saturating_sub(2);
    ensure!(rank == 1 || rank == 2, "windows over {rank} dimensions are not known");
    let numbers = |name: &str, default: Vec<usize>| match node.attribute(name) {
        Some(given) if !given.ints.is_empty() => to_sizes(&given.ints),
        _ => Ok(default),
    };
    let pads = match node.attribute("auto_pad").and_then(|attribute| attribute.s.as_deref()) {
        Some(b"SAME_UPPER" | b"SAME_LOWER") => None,
        Some(b"VALID") => Some(vec![0; 2 * rank]),
        _ => Some(numbers("pads", vec![0; 2 * rank])?),
    };
    Ok((numbers("strides", vec![1; rank])?, numbers("dilations", vec![1; rank])?, pads))
}

fn vector(numbers: &[i64]) -> SymTensor {
    SymTensor::from_vec(numbers.iter().map(|&number| symbol(number)).collect())
}

fn symbol(number: i64) -> SymExpr {
    SymExpr::Value(clamped(number))
}

/// The nearest number that the rules can hold. A larger one stands for "to the end".
fn clamped(number: i64) -> i32 {
    number.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

fn to_sizes(numbers: &[i64]) -> Result<Vec<usize>> {
    numbers.iter().map(|&size| usize::try_from(size).ok().with_context(|| format!("a size of {size}"))).collect()
}

fn whole_numbers(tensor: &TensorProto) -> Option<Vec<i64>> {
    if tensor.elements()? > MOST_KNOWN {
        return None;
    }
    let bytes = tensor.inside()?;
    match tensor.data_type {
        element::INT64 => Some(bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()),
        element::INT32 => {
            Some(bytes.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes).into()).collect())
        }
        element::BOOL => Some(bytes.iter().map(|&byte| byte.into()).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
