//! Forms of operators that `candle-onnx` does not compute, or computes otherwise than ONNX defines: axes that count
//! from the end, attributes of older operator sets, padding by a constant, triangles of matrices, and others.
//!
//! Each is a few calls of candle's public functions, most of them on the only input of the node that is not constant.

use std::collections::HashMap;

use candle_core::{D, DType, Error, Result, Shape, Tensor, bail};
use candle_nn::ops::{log_softmax, softmax_last_dim};
use candle_onnx::onnx::NodeProto;

use super::operator::{Operator, attribute, float, given, has_input, int, ints};
use super::{lstm, spatial};

/// The operator that computes this node in place of `candle-onnx`, if the node has such a form.
pub fn of(node: &NodeProto, constants: &HashMap<String, Tensor>) -> Option<Operator> {
    if !node.domain.is_empty() || node.input.first()?.is_empty() {
        return None;
    }
    match node.op_type.as_str() {
        "LSTM" => return lstm::of(node),
        "Split" => return split(node),
        _ if node.output.len() != 1 => return None,
        _ => {}
    }
    // Integers from an input, or from the attribute of older operator sets. The outer `None` means that they are
    // computed.
    let numbers = |place: usize, name: &str| -> Option<Option<Vec<i64>>> {
        if !has_input(node, place) {
            return Some(attribute(node, name).map(|attribute| attribute.ints.clone()));
        }
        let constant = constants.get(&node.input[place])?.flatten_all().and_then(|flat| flat.to_dtype(DType::I64));
        constant.ok()?.to_vec1().ok().map(Some)
    };
    // `candle-onnx` reduces nothing over empty axes, whatever `noop_with_empty_axes` says.
    let has_empty_axes = || numbers(1, "axes") == Some(Some(Vec::new()));
    // `candle-onnx` expands to the larger of two sizes even if the other is 0, and cannot repeat 0 times.
    let may_be_empty = || numbers(1, "").is_none_or(|sizes| sizes.is_some_and(|sizes| sizes.contains(&0)));
    match node.op_type.as_str() {
        "Flatten" => {
            let axis = Some(int(node, "axis", 1)).filter(|&axis| axis < 0)?;
            Operator::new("Flatten", move |input| flattened_from(input, axis))
        }
        "HardSigmoid" => {
            let [slope, offset] = [("alpha", 0.2), ("beta", 0.5)].map(|(name, usual)| float(node, name, usual));
            Operator::new("HardSigmoid", move |input| {
                input.affine(f64::from(slope), f64::from(offset))?.clamp(0_f32, 1_f32)
            })
        }
        // `candle-onnx` computes the exact function instead of the approximation.
        "Gelu" if attribute(node, "approximate").is_some_and(|own| own.s == b"tanh") => {
            Operator::new("Gelu", |input| input.gelu())
        }
        "MaxPool" | "AveragePool" => spatial::pool(node),
        "Resize" => spatial::resize(node),
        "ScatterElements" => scatter_elements(node),
        "Reciprocal" => Operator::new("Reciprocal", Tensor::recip),
        "IsNaN" => Operator::new("IsNaN", |input| input.ne(input)),
        // To bool, which is 1 for all numbers but 0: `candle-onnx` rounds to an integer.
        "Cast" if int(node, "to", 0) == 9 => Operator::new("Cast", |input| input.ne(&input.zeros_like()?)),
        "Softmax" => softmax_of_all("Softmax", attribute(node, FLATTENS_FROM)?.i),
        "LogSoftmax" => softmax_of_all("LogSoftmax", attribute(node, FLATTENS_FROM)?.i),
        "ReduceSum" => reduction(node, "ReduceSum", numbers(1, "axes")?),
        "ReduceMean" => reduction(node, "ReduceMean", numbers(1, "axes")?),
        "ReduceMax" if has_empty_axes() => reduction(node, "ReduceMax", None),
        "ReduceMin" if has_empty_axes() => reduction(node, "ReduceMin", None),
        "ReduceL2" => reduction(node, "ReduceL2", numbers(1, "axes")?),
        "ReduceSumSquare" => reduction(node, "ReduceSumSquare", numbers(1, "axes")?),
        "GlobalAveragePool" => {
            let axes = |input: &Tensor| (2..input.rank()).collect::<Vec<_>>();
            Operator::new("GlobalAveragePool", move |input| input.mean_keepdim(axes(input)))
        }
        "GlobalMaxPool" => Operator::new("GlobalMaxPool", |input| {
            (2..input.rank()).try_fold(input.clone(), |left, axis| left.max_keepdim(axis))
        }),
        "Max" => of_several("Max", Tensor::broadcast_maximum),
        "Sum" => of_several("Sum", Tensor::broadcast_add),
        "CumSum" if int(node, "exclusive", 0) == 0 && int(node, "reverse", 0) == 0 => {
            let axis = *numbers(1, "axis")??.first()?;
            // candle multiplies by a matrix of zeros and ones, which fails for integers and turns infinities into NaN.
            Operator::new("CumSum", move |input| {
                let axis = input.normalize_axis(axis)?;
                let size = input.dim(axis)?;
                let (mut sums, mut step) = (input.clone(), 1);
                while step < size {
                    let moved = sums.narrow(axis, 0, size - step)?;
                    let added = (sums.narrow(axis, step, size - step)? + moved)?;
                    sums = Tensor::cat(&[sums.narrow(axis, 0, step)?, added], axis)?;
                    step *= 2;
                }
                Ok(sums)
            })
        }
        "Pow"
            if node
                .input
                .get(1)
                .and_then(|name| constants.get(name))
                .is_none_or(|own| own.elem_count() > 1 || own.rank() > 1) =>
        {
            Operator::of_all("Pow", power)
        }
        // `candle-onnx` takes the slopes as one per channel.
        "PRelu" => Operator::of_all("PRelu", |inputs| {
            let (input, slope) = (given(inputs, 0)?, given(inputs, 1)?);
            Ok(vec![(input.maximum(0_f32)? + input.minimum(0_f32)?.broadcast_mul(slope)?)?])
        }),
        "Expand" if may_be_empty() => Operator::of_all("Expand", |inputs| {
            let input = given(inputs, 0)?;
            let shape = Shape::from(sizes(given(inputs, 1)?)?);
            Ok(vec![input.broadcast_as(input.shape().broadcast_shape_binary_op(&shape, "Expand")?)?])
        }),
        "Tile" if may_be_empty() => Operator::of_all("Tile", |inputs| {
            let mut tiled = given(inputs, 0)?.clone();
            for (axis, count) in sizes(given(inputs, 1)?)?.into_iter().enumerate() {
                tiled = if count == 0 { tiled.narrow(axis, 0, 0)? } else { Tensor::cat(&vec![tiled; count], axis)? };
            }
            Ok(vec![tiled])
        }),
        "Pad" if attribute(node, "mode").is_none_or(|mode| mode.s == b"constant") => {
            let value = match has_input(node, 2) {
                true => constants.get(&node.input[2])?.flatten_all().ok()?.to_dtype(DType::F64).ok()?.to_vec1().ok()?,
                false => vec![f64::from(float(node, "value", 0.0))],
            };
            let axes = if has_input(node, 3) { Some(numbers(3, "axes")??) } else { None };
            padding(numbers(1, "pads")??, axes, *value.first()?)
        }
        "Pad" if numbers(1, "pads").flatten().is_some_and(|pads| pads.iter().any(|&pad| pad < 0)) => {
            Operator::new("Pad", |_| bail!("Pad: taking away in a mode other than constant is not supported here"))
        }
        "GatherElements" => gather_elements(int(node, "axis", 0)),
        "Trilu" => {
            let diagonal = if has_input(node, 1) { *numbers(1, "k")??.first()? } else { 0 };
            let is_upper = int(node, "upper", 1) != 0;
            // candle-onnx multiplies by zeros and ones, which works for a single matrix only and turns infinities into
            // NaN.
            Operator::new("Trilu", move |input| {
                let (rows, columns) = (input.dim(D::Minus2)?, input.dim(D::Minus1)?);
                let is_kept = |place: usize| {
                    let beyond = (place % columns) as i64 - (place / columns) as i64 - diagonal;
                    u8::from(if is_upper { beyond >= 0 } else { beyond <= 0 })
                };
                let kept = (0..rows * columns).map(is_kept).collect::<Vec<u8>>();
                let kept = Tensor::from_vec(kept, (rows, columns), input.device())?;
                kept.broadcast_as(input.shape())?.where_cond(input, &input.zeros_like()?)
            })
        }
        "Clip" if attribute(node, "min").or(attribute(node, "max")).is_some() => {
            let [low, high] = [("min", f32::MIN), ("max", f32::MAX)].map(|(name, none)| float(node, name, none));
            Operator::new("Clip", move |input| input.clamp(low, high))
        }
        // `candle-onnx` swaps only the last two axes.
        "Transpose" if attribute(node, "perm").is_none() => Operator::new("Transpose", |input| {
            input.permute((0..input.rank()).rev().collect::<Vec<usize>>())?.contiguous()
        }),
        // `candle-onnx` counts several axes in the input, but ONNX counts them in the output.
        "Unsqueeze" => match numbers(1, "axes") {
            None => Operator::of_all("Unsqueeze", |inputs| {
                Ok(vec![unsqueezed(given(inputs, 0)?, &given(inputs, 1)?.flatten_all()?.to_vec1::<i64>()?)?])
            }),
            Some(axes) => {
                let axes = axes.filter(|axes| axes.len() > 1)?;
                Operator::new("Unsqueeze", move |input| unsqueezed(input, &axes))
            }
        },
        "Squeeze" if !has_input(node, 1) => {
            let axes = numbers(1, "axes")?;
            Operator::new("Squeeze", move |input| {
                let single = || (0..input.rank()).filter(|&axis| input.dims()[axis] == 1).collect();
                let axes = axes.as_deref().map_or_else(|| Ok(single()), |axes| normalized(input, axes))?;
                axes.iter().rev().try_fold(input.clone(), |squeezed, &axis| squeezed.squeeze(axis))
            })
        }
        "Slice" if !has_input(node, 1) => {
            let (starts, ends) = (numbers(1, "starts")??, numbers(2, "ends")??);
            let axes = numbers(3, "axes")?.unwrap_or_else(|| (0..).take(starts.len()).collect());
            Operator::new("Slice", move |input| {
                let mut sliced = input.clone();
                for ((&start, &end), &axis) in starts.iter().zip(&ends).zip(&axes) {
                    let axis = input.normalize_axis(axis)?;
                    let size = input.dim(axis)? as i64;
                    let place = |place: i64| (if place < 0 { place + size } else { place }).clamp(0, size) as usize;
                    sliced = sliced.narrow(axis, place(start), place(end).saturating_sub(place(start)))?;
                }
                Ok(sliced)
            })
        }
        _ => None,
    }
}

/// The input with additional axes of size 1.
fn unsqueezed(input: &Tensor, axes: &[i64]) -> Result<Tensor> {
    let rank = (input.rank() + axes.len()) as i64;
    let place = |&axis: &i64| usize::try_from(if axis < 0 { axis + rank } else { axis });
    let mut places: Vec<usize> = axes.iter().map(|axis| place(axis).unwrap_or(usize::MAX)).collect();
    places.sort_unstable();
    places.iter().try_fold(input.clone(), |output, &place| output.unsqueeze(place))
}

/// The elements at places along an axis. candle needs the data to be as large as the places along the other axes, so it
/// is cut first.
fn gather_elements(axis: i64) -> Option<Operator> {
    Operator::of_all("GatherElements", move |inputs| {
        let (mut data, places) = (given(inputs, 0)?.clone(), given(inputs, 1)?);
        let axis = data.normalize_axis(axis)?;
        for other in (0..data.rank().min(places.rank())).filter(|&other| other != axis) {
            data = data.narrow(other, 0, places.dim(other)?)?;
        }
        let places = from_front(places, data.dim(axis)?)?;
        Ok(vec![data.contiguous()?.gather(&places, axis)?])
    })
}

/// Converts places along an axis of this size, of which negative ones count from its end, to places from its front.
fn from_front(places: &Tensor, size: usize) -> Result<Tensor> {
    let from_end = (places + size as f64)?;
    places.lt(0_i64)?.where_cond(&from_end, places)?.contiguous()
}

/// The attribute that is added to a `Softmax` or `LogSoftmax` of an operator set before 13: the first of the axes over
/// which it computes together.
pub const FLATTENS_FROM: &str = "flattens_from";

/// The input as a matrix, each of whose rows spans all axes from `axis` on.
fn flattened_from(input: &Tensor, axis: i64) -> Result<Tensor> {
    let rows: usize = input.dims()[..input.normalize_axis(axis)?].iter().product();
    input.reshape((rows, input.elem_count() / rows.max(1)))
}

/// A softmax, or its logarithm, over all axes from `axis` on together.
fn softmax_of_all(name: &'static str, axis: i64) -> Option<Operator> {
    Operator::new(name, move |input| {
        let table = flattened_from(input, axis)?;
        let computed = if name == "Softmax" { softmax_last_dim(&table)? } else { log_softmax(&table, D::Minus1)? };
        computed.reshape(input.shape())
    })
}

/// Axes counted from the front, in ascending order.
fn normalized(input: &Tensor, axes: &[i64]) -> Result<Vec<usize>> {
    let mut axes = axes.iter().map(|&axis| input.normalize_axis(axis)).collect::<Result<Vec<_>>>()?;
    axes.sort_unstable();
    Ok(axes)
}

/// An operator that combines any number of inputs, one after the other, by a function of two.
fn of_several(name: &'static str, of_two: fn(&Tensor, &Tensor) -> Result<Tensor>) -> Option<Operator> {
    Operator::of_all(name, move |inputs| {
        let first = given(inputs, 0)?.clone();
        Ok(vec![(1..inputs.len()).try_fold(first, |left, place| of_two(&left, given(inputs, place)?))?])
    })
}

/// A sum, a sum of squares, a mean, a Euclidean norm, a maximum or a minimum over axes; over all axes if none are
/// given.
fn reduction(node: &NodeProto, name: &'static str, axes: Option<Vec<i64>>) -> Option<Operator> {
    let axes = axes.unwrap_or_default();
    let (keeps_axes, is_nothing) =
        (int(node, "keepdims", 1) == 1, axes.is_empty() && int(node, "noop_with_empty_axes", 0) == 1);
    Operator::new(name, move |input| {
        if is_nothing {
            return Ok(input.clone());
        }
        let axes = if axes.is_empty() { (0..input.rank()).collect() } else { normalized(input, &axes)? };
        let sum = |input: &Tensor| {
            if keeps_axes { input.sum_keepdim(axes.as_slice()) } else { input.sum(axes.as_slice()) }
        };
        match name {
            "ReduceMean" => {
                let count = axes.iter().map(|&axis| input.dims()[axis]).product::<usize>() as f64;
                // candle multiplies by the reciprocal, which is 0 for integers.
                let (sum, dtype) = (sum(input)?, input.dtype());
                if dtype.is_float() { sum / count } else { (sum.to_dtype(DType::F64)? / count)?.to_dtype(dtype) }
            }
            "ReduceL2" => sum(&input.sqr()?)?.sqrt(),
            "ReduceSumSquare" => sum(&input.sqr()?),
            "ReduceMax" | "ReduceMin" => axes.iter().rev().try_fold(input.clone(), |left, &axis| {
                let most = if name == "ReduceMax" { left.max_keepdim(axis)? } else { left.min_keepdim(axis)? };
                if keeps_axes { Ok(most) } else { most.squeeze(axis) }
            }),
            _ => sum(input),
        }
    })
}

/// The values of a computed tensor of integers, such as a shape.
fn sizes(numbers: &Tensor) -> Result<Vec<usize>> {
    numbers.to_vec1::<i64>()?.into_iter().map(|size| usize::try_from(size).map_err(Error::wrap)).collect()
}

/// Powers with several or computed exponents. If the exponents differ, candle uses the logarithm of the base.
fn power(inputs: &[Option<Tensor>]) -> Result<Vec<Tensor>> {
    let (base, exponents) = (given(inputs, 0)?, given(inputs, 1)?);
    let numbers: Vec<f64> = exponents.flatten_all()?.to_dtype(DType::F64)?.to_vec1()?;
    let exponents = exponents.to_dtype(base.dtype())?;
    let power = match numbers.as_slice() {
        [first, others @ ..] if others.iter().all(|other| other == first) => {
            base.broadcast_mul(&exponents.ones_like()?)?.powf(*first)?
        }
        _ if base.elem_count() > 0 && base.min_all()?.to_dtype(DType::F64)?.to_scalar::<f64>()? <= 0.0 => {
            bail!("Pow: different exponents for bases that are not above 0 are not supported here")
        }
        _ => base.broadcast_pow(&exponents)?,
    };
    Ok(vec![power])
}

/// Pads axes before and after with a value. A negative number removes elements instead.
fn padding(pads: Vec<i64>, axes: Option<Vec<i64>>, value: f64) -> Option<Operator> {
    Operator::new("Pad", move |input| {
        let (before, after) = pads.split_at(pads.len() / 2);
        let mut padded = input.clone();
        for (place, (&before, &after)) in before.iter().zip(after).enumerate() {
            let axis = match &axes {
                Some(axes) => input.normalize_axis(axes.get(place).copied().unwrap_or_default())?,
                None => place,
            };
            let size = padded.dim(axis)?;
            let removed = [before, after].map(|count| count.min(0).unsigned_abs() as usize);
            padded = padded.narrow(axis, removed[0], size.saturating_sub(removed[0] + removed[1]))?;
            let filled = |count: i64| {
                let mut shape = padded.dims().to_vec();
                shape[axis] = count.max(0) as usize;
                Tensor::full(value, shape, input.device())?.to_dtype(input.dtype())
            };
            if before > 0 || after > 0 {
                padded = Tensor::cat(&[filled(before)?, padded.clone(), filled(after)?], axis)?;
            }
        }
        Ok(padded)
    })
}

/// Splits into parts of the sizes in the attribute of older operator sets, or of equal sizes, where the last part has
/// what is left.
fn split(node: &NodeProto) -> Option<Operator> {
    // `candle-onnx` ignores the attribute, and rounds the size down, so that the last part is larger.
    if has_input(node, 1) || attribute(node, "split").or(attribute(node, "num_outputs")).is_none() {
        return None;
    }
    let (axis, count, sizes) = (int(node, "axis", 0), node.output.len().max(1), ints(node, "split").to_vec());
    Operator::of_all("Split", move |inputs| {
        let input = given(inputs, 0)?;
        let axis = input.normalize_axis(axis)?;
        let whole = input.dim(axis)?;
        let mut begin = 0;
        let part = |place: usize| -> Result<Tensor> {
            let usual = whole.div_ceil(count).min(whole - begin);
            let size = sizes.get(place).map_or(usual, |&size| usize::try_from(size).unwrap_or(usize::MAX));
            if size > whole - begin {
                bail!("Split: the parts are larger than the whole")
            }
            begin += size;
            input.narrow(axis, begin - size, size)
        };
        (0..count).map(part).collect()
    })
}

/// Adds or writes elements at places along an axis.
fn scatter_elements(node: &NodeProto) -> Option<Operator> {
    let adds = match attribute(node, "reduction").map(|reduction| reduction.s.as_slice()) {
        None | Some(b"none") => false,
        Some(b"add") => true,
        _ => return None,
    };
    let axis = int(node, "axis", 0);
    Operator::of_all("ScatterElements", move |inputs| {
        let (data, places, updates) = (given(inputs, 0)?, given(inputs, 1)?, given(inputs, 2)?);
        let axis = data.normalize_axis(axis)?;
        let differs = |other: usize| other != axis && data.dims()[other] != places.dims()[other];
        if data.rank() != places.rank() || (0..data.rank()).any(differs) {
            bail!("ScatterElements: places that do not cover the other axes are not supported here")
        }
        let places = from_front(places, data.dim(axis)?)?;
        let updates = updates.contiguous()?;
        Ok(vec![if adds { data.scatter_add(&places, &updates, axis)? } else { data.scatter(&places, &updates, axis)? }])
    })
}

#[cfg(test)]
mod tests;
