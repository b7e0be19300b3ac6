//! Forms of operators that `candle-onnx` does not compute, or not as ONNX means them: axes that count from the end, what older
//! operator sets say in attributes, padding by a constant, triangles of matrices, and pools whose size is rounded up.
//!
//! Each is a few calls of candle's public functions, most of them on the only input of the node that is not constant.

use std::collections::HashMap;

use candle_core::{D, DType, Error, Result, Shape, Tensor, bail};
use candle_nn::ops::{log_softmax, softmax_last_dim};
use candle_onnx::onnx::NodeProto;

use super::operator::{Operator, attribute, float, given, has_input, int, ints};
use super::{lstm, spatial};

/// The operator that computes this node in place of `candle-onnx`, if it is of such a form.
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
    // Whole numbers of an input, or of the attribute of older operator sets; the outer `None` if they are computed.
    let numbers = |place: usize, name: &str| -> Option<Option<Vec<i64>>> {
        if !has_input(node, place) {
            return Some(attribute(node, name).map(|attribute| attribute.ints.clone()));
        }
        let constant = constants.get(&node.input[place])?.flatten_all().and_then(|flat| flat.to_dtype(DType::I64));
        constant.ok()?.to_vec1().ok().map(Some)
    };
    // `candle-onnx` reduces nothing then, whatever the node says of it.
    let has_empty_axes = || numbers(1, "axes") == Some(Some(Vec::new()));
    // `candle-onnx` takes the larger of two sizes, also where the smaller one is 0, and does not repeat 0 times.
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
        // `candle-onnx` computes another function in place of the approximation.
        "Gelu" if attribute(node, "approximate").is_some_and(|own| own.s == b"tanh") => {
            Operator::new("Gelu", |input| input.gelu())
        }
        "MaxPool" | "AveragePool" => spatial::pool(node),
        "Resize" => spatial::resize(node),
        "ScatterElements" => scatter_elements(node),
        "Reciprocal" => Operator::new("Reciprocal", Tensor::recip),
        "IsNaN" => Operator::new("IsNaN", |input| input.ne(input)),
        // To truth values, which are 1 for all but 0: `candle-onnx` rounds to whole numbers.
        "Cast" if int(node, "to", 0) == 9 => Operator::new("Cast", |input| input.ne(&input.zeros_like()?)),
        "Softmax" => softmax_of_all("Softmax", attribute(node, FLATTENS_FROM)?.i),
        "LogSoftmax" => softmax_of_all("LogSoftmax", attribute(node, FLATTENS_FROM)?.i),
        "ReduceSum" => reduction(node, "ReduceSum", numbers(1, "axes")?),
        "ReduceMean" if has_input(node, 1) || int(node, "noop_with_empty_axes", 0) == 1 => {
            reduction(node, "ReduceMean", numbers(1, "axes")?)
        }
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
            // candle multiplies by a matrix of zeros and ones: it cannot with whole numbers, and what is infinite becomes no number.
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
        "Pow" if node.input.get(1).and_then(|name| constants.get(name)).is_none_or(|own| own.elem_count() > 1) => {
            Operator::of_all("Pow", power)
        }
        // `candle-onnx` takes the slopes for those of the channels.
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
        "Trilu" => {
            let diagonal = if has_input(node, 1) { *numbers(1, "k")??.first()? } else { 0 };
            let is_upper = int(node, "upper", 1) != 0;
            // candle-onnx multiplies by zeros and ones: it does so with one matrix only, and what is infinite becomes no number.
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
        // `candle-onnx` changes the last two axes only.
        "Transpose" if attribute(node, "perm").is_none() => Operator::new("Transpose", |input| {
            input.permute((0..input.rank()).rev().collect::<Vec<usize>>())?.contiguous()
        }),
        // `candle-onnx` counts several axes as those of the input, and they are those of the output.
        "Unsqueeze" => {
            let axes = numbers(1, "axes")?.filter(|axes| axes.len() > 1)?;
            Operator::new("Unsqueeze", move |input| {
                let rank = (input.rank() + axes.len()) as i64;
                let place = |&axis: &i64| usize::try_from(if axis < 0 { axis + rank } else { axis });
                let mut places: Vec<usize> = axes.iter().map(|axis| place(axis).unwrap_or(usize::MAX)).collect();
                places.sort_unstable();
                places.iter().try_fold(input.clone(), |output, &place| output.unsqueeze(place))
            })
        }
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

/// Says of a `Softmax` or `LogSoftmax` of an operator set before 13 from which axis on it is over all axes together.
pub const FLATTENS_FROM: &str = "flattens_from";

/// The input as a matrix, each of whose rows spans all axes from one on.
fn flattened_from(input: &Tensor, axis: i64) -> Result<Tensor> {
    let rows: usize = input.dims()[..input.normalize_axis(axis)?].iter().product();
    input.reshape((rows, input.elem_count() / rows.max(1)))
}

/// A softmax, or its logarithm, over all axes from one on.
fn softmax_of_all(name: &'static str, axis: i64) -> Option<Operator> {
    Operator::new(name, move |input| {
        let table = flattened_from(input, axis)?;
        let computed = if name == "Softmax" { softmax_last_dim(&table)? } else { log_softmax(&table, D::Minus1)? };
        computed.reshape(input.shape())
    })
}

/// Axes from the front, in order.
fn normalized(input: &Tensor, axes: &[i64]) -> Result<Vec<usize>> {
    let mut axes = axes.iter().map(|&axis| input.normalize_axis(axis)).collect::<Result<Vec<_>>>()?;
    axes.sort_unstable();
    Ok(axes)
}

/// An operator of any number of inputs, one after the other.
fn of_several(name: &'static str, of_two: fn(&Tensor, &Tensor) -> Result<Tensor>) -> Option<Operator> {
    Operator::of_all(name, move |inputs| {
        let first = given(inputs, 0)?.clone();
        Ok(vec![(1..inputs.len()).try_fold(first, |left, place| of_two(&left, given(inputs, place)?))?])
    })
}

/// A sum, also of squares, a mean, a Euclidean norm, the largest or the smallest number over axes; over all of them if there are none.
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
            "ReduceMean" => sum(input)? / axes.iter().map(|&axis| input.dims()[axis]).product::<usize>() as f64,
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

/// Whole numbers that are computed, such as the sizes of a shape.
fn sizes(numbers: &Tensor) -> Result<Vec<usize>> {
    numbers.to_vec1::<i64>()?.into_iter().map(|size| usize::try_from(size).map_err(Error::wrap)).collect()
}

/// Powers with exponents that are several or computed. Where they differ, candle goes by the logarithm of the base.
fn power(inputs: &[Option<Tensor>]) -> Result<Vec<Tensor>> {
    let (base, exponents) = (given(inputs, 0)?, given(inputs, 1)?);
    let numbers: Vec<f64> = exponents.flatten_all()?.to_dtype(DType::F64)?.to_vec1()?;
    let exponents = exponents.to_dtype(base.dtype())?;
    let power = match numbers.as_slice() {
        [first, others @ ..] if others.iter().all(|other| other == first) => {
            base.broadcast_mul(&exponents.ones_like()?)?.powf(*first)?
        }
        _ if base.elem_count() > 0 && base.min_all()?.to_dtype(DType::F64)?.to_scalar::<f64>()? <= 0.0 => {
            bail!("Pow: several powers of numbers that are not above 0 are not supported here")
        }
        _ => base.broadcast_pow(&exponents)?,
    };
    Ok(vec![power])
}

/// Adds so many of one value before and behind each axis; takes away where the number is below 0.
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

/// Parts of the sizes that older operator sets say in an attribute, or of one size but for the last, which has what is left.
fn split(node: &NodeProto) -> Option<Operator> {
    // `candle-onnx` gives the last part what is left beyond a smaller size, and does not look at the attribute.
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
            bail!("ScatterElements: places that do not go over all of the other axes are not supported here")
        }
        let from_end = (places + data.dim(axis)? as f64)?;
        let places = places.lt(0_i64)?.where_cond(&from_end, places)?.contiguous()?;
        let updates = updates.contiguous()?;
        Ok(vec![if adds { data.scatter_add(&places, &updates, axis)? } else { data.scatter(&places, &updates, axis)? }])
    })
}

#[cfg(test)]
mod tests {
    use candle_core::Device;
    use candle_onnx::onnx::AttributeProto;

    use super::super::plan::tests::{
        evaluate, float_attribute, int_attribute, ints_attribute, node, ramp, text_attribute,
    };
    use super::*;

    /// What is computed of `x`, with constants of whole numbers.
    fn computed(node: &NodeProto, constants: &[(&str, &[i64])], input: &Tensor) -> Tensor {
        let constant = |&(name, values): &(&str, &[i64])| {
            (name.to_owned(), Tensor::from_slice(values, values.len(), &Device::Cpu).unwrap())
        };
        of(node, &constants.iter().map(constant).collect()).expect("an operator").apply(input).unwrap()
    }

    fn with(op_type: &str, inputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
        NodeProto { attribute, ..node(op_type, inputs, &["y"]) }
    }

    fn flat(tensor: &Tensor) -> Vec<f32> {
        tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn axes_may_count_from_the_end() {
        let x = ramp(&[2, 3, 4]);
        let flatten = with("Flatten", &["x"], vec![int_attribute("axis", -1)]);
        assert_eq!(computed(&flatten, &[], &x).dims(), [6, 4]);
        let of_last = flat(&x.sum_keepdim(2).unwrap());
        let sum = with("ReduceSum", &["x", "axes"], Vec::new());
        assert_eq!(flat(&computed(&sum, &[("axes", &[-1])], &x)), of_last);
        let older = with("ReduceSum", &["x"], vec![ints_attribute("axes", &[2]), int_attribute("keepdims", 0)]);
        assert_eq!(computed(&older, &[], &x).dims(), [2, 3]);
        assert_eq!(flat(&computed(&older, &[], &x)), of_last);
        let mean = with("ReduceMean", &["x", "axes"], Vec::new());
        let [one, both] = [&[-1][..], &[0, -1]].map(|axes| computed(&mean, &[("axes", axes)], &x));
        assert_eq!((flat(&one)[0], one.dims()), (of_last[0] / 4.0, &[2, 3, 1][..]));
        assert_eq!(both.dims(), [1, 3, 1]);
        let norm = with("ReduceL2", &["x", "axes"], Vec::new());
        let expected = flat(&x.sqr().unwrap().sum_keepdim(2).unwrap().sqrt().unwrap());
        assert_eq!(flat(&computed(&norm, &[("axes", &[-1])], &x)), expected);
        let squares = with("ReduceSumSquare", &["x", "axes"], Vec::new());
        let expected = flat(&x.sqr().unwrap().sum_keepdim(2).unwrap());
        assert_eq!(flat(&computed(&squares, &[("axes", &[-1])], &x)), expected);
        for operator in ["ReduceSum", "ReduceMean"] {
            let nothing = with(operator, &["x"], vec![int_attribute("noop_with_empty_axes", 1)]);
            assert_eq!(flat(&computed(&nothing, &[], &x)), flat(&x), "{operator}");
        }
    }

    #[test]
    fn the_largest_and_the_smallest_number_over_no_axes_are_those_of_all() {
        let x = ramp(&[2, 3]);
        for (operator, expected) in [("ReduceMax", x.max_all()), ("ReduceMin", x.min_all())] {
            let of = |attribute: Vec<AttributeProto>| {
                computed(&with(operator, &["x", "axes"], attribute), &[("axes", &[])], &x)
            };
            let all = of(Vec::new());
            assert_eq!((all.dims(), flat(&all)), (&[1, 1][..], flat(&expected.unwrap())), "{operator}");
            assert_eq!(of(vec![int_attribute("keepdims", 0)]).rank(), 0);
            assert_eq!(of(vec![int_attribute("noop_with_empty_axes", 1)]).dims(), x.dims());
            assert!(super::of(&node(operator, &["x"], &["y"]), &HashMap::new()).is_none());
        }
    }

    /// Computes an operator with two inputs that are not constant.
    fn of_two(op_type: &str, inputs: [Tensor; 2]) -> Result<Tensor> {
        let operator = of(&node(op_type, &["a", "b"], &["y"]), &HashMap::new()).expect("an operator");
        Ok(operator.compute(&inputs.map(Some))?.remove(0))
    }

    #[test]
    fn a_reciprocal_is_one_divided_by_the_number() {
        let x = Tensor::new(&[1_f32, 2.0, -4.0], &Device::Cpu).unwrap();
        assert_eq!(flat(&computed(&with("Reciprocal", &["x"], Vec::new()), &[], &x)), [1.0, 0.5, -0.25]);
    }

    #[test]
    fn several_inputs_are_broadcast_and_pools_of_all_places_keep_the_axes() {
        let [row, column] = [ramp(&[1, 3]), ramp(&[2, 1])];
        let largest = of_two("Max", [row.clone(), column.clone()]).unwrap();
        assert_eq!((largest.dims(), flat(&largest)), (&[2, 3][..], flat(&row.broadcast_maximum(&column).unwrap())));
        let sum = of_two("Sum", [row.clone(), column.clone()]).unwrap();
        assert_eq!(flat(&sum), flat(&row.broadcast_add(&column).unwrap()));
        let x = Tensor::new(&[[[[1_f32, 2.0], [3.0, 6.0]]]], &Device::Cpu).unwrap();
        for (op_type, expected) in [("GlobalAveragePool", 3.0), ("GlobalMaxPool", 6.0)] {
            let pooled = computed(&with(op_type, &["x"], Vec::new()), &[], &x);
            assert_eq!((pooled.dims(), flat(&pooled)), (&[1, 1, 1, 1][..], vec![expected]));
        }
    }

    #[test]
    fn powers_are_of_any_number_where_the_exponents_are_equal() {
        let power = |base: &[f32], exponents: &[f32]| {
            let [base, exponents] = [base, exponents].map(|values| Tensor::new(values, &Device::Cpu).unwrap());
            of_two("Pow", [base, exponents]).map(|power| flat(&power))
        };
        assert_eq!(power(&[-2.0, 3.0], &[2.0, 2.0]).unwrap(), [4.0, 9.0]);
        assert_eq!(power(&[-3.0], &[2.0, 2.0]).unwrap(), [9.0, 9.0]);
        let different = power(&[2.0, 3.0], &[1.0, 2.0]).unwrap();
        assert!((different[0] - 2.0).abs() < 1e-5 && (different[1] - 9.0).abs() < 1e-4, "{different:?}");
        let refused = power(&[-2.0, 3.0], &[2.0, 3.0]).unwrap_err().to_string();
        assert!(refused.contains("not supported"), "{refused}");
        let square = HashMap::from([("b".to_owned(), Tensor::new(2_f32, &Device::Cpu).unwrap())]);
        assert!(of(&node("Pow", &["a", "b"], &["y"]), &square).is_none());
    }

    #[test]
    fn slopes_are_those_of_the_last_axes() {
        let x = Tensor::new(&[[-1_f32, 2.0], [-3.0, -4.0]], &Device::Cpu).unwrap().unsqueeze(2).unwrap();
        let x = x.broadcast_as((2, 2, 2)).unwrap();
        let slopes = |values: &[f32]| Tensor::new(values, &Device::Cpu).unwrap();
        let of_columns = of_two("PRelu", [x.clone(), slopes(&[0.5, 2.0])]).unwrap();
        assert_eq!(flat(&of_columns), [-0.5, -2.0, 2.0, 2.0, -1.5, -6.0, -2.0, -8.0]);
        let of_all = of_two("PRelu", [x, slopes(&[0.5])]).unwrap();
        assert_eq!(flat(&of_all), [-0.5, -0.5, 2.0, 2.0, -1.5, -1.5, -2.0, -2.0]);
    }

    #[test]
    fn what_is_expanded_or_repeated_may_become_empty() {
        let shape = |op_type: &str, x: &[usize], numbers: &[i64]| {
            let numbers = Tensor::new(numbers, &Device::Cpu).unwrap();
            of_two(op_type, [ramp(x), numbers]).map(|computed| computed.dims().to_vec())
        };
        assert_eq!(shape("Expand", &[1, 1], &[2, 0]).unwrap(), [2, 0]);
        assert_eq!(shape("Expand", &[3, 1], &[2, 1, 4]).unwrap(), [2, 3, 4]);
        assert!(shape("Expand", &[3], &[2]).is_err());
        assert_eq!(shape("Tile", &[2, 3], &[1, 0]).unwrap(), [2, 0]);
        assert_eq!(shape("Tile", &[2, 3], &[2, 1]).unwrap(), [4, 3]);
        let known = HashMap::from([("b".to_owned(), Tensor::new(&[2_i64, 3], &Device::Cpu).unwrap())]);
        assert!(of(&node("Expand", &["a", "b"], &["y"]), &known).is_none());
    }

    #[test]
    fn what_is_not_zero_is_true() {
        let cast = with("Cast", &["x"], vec![int_attribute("to", 9)]);
        let x = Tensor::new(&[0.5_f32, -1.0, 0.0, 256.0], &Device::Cpu).unwrap();
        assert_eq!(computed(&cast, &[], &x).to_vec1::<u8>().unwrap(), [1, 1, 0, 1]);
        assert!(of(&with("Cast", &["x"], vec![int_attribute("to", 7)]), &HashMap::new()).is_none());
    }

    #[test]
    fn a_softmax_of_older_operator_sets_is_over_all_axes_from_one_on() {
        let x = ramp(&[2, 3, 4]);
        let of_axis = |operator: &str, axis: i64| {
            let softmax = with(operator, &["x"], vec![int_attribute(FLATTENS_FROM, axis)]);
            let y = computed(&softmax, &[], &x);
            assert_eq!(y.dims(), [2, 3, 4]);
            if operator == "Softmax" { y } else { y.exp().unwrap() }
        };
        for operator in ["Softmax", "LogSoftmax"] {
            for (axis, rows) in [(1, 2), (-1, 6)] {
                let sums =
                    flat(&of_axis(operator, axis)).chunks(24 / rows).map(|row| row.iter().sum()).collect::<Vec<f32>>();
                assert!(sums.len() == rows && sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5), "{operator}: {sums:?}");
            }
        }
        assert!(of(&node("Softmax", &["x"], &["y"]), &HashMap::new()).is_none());
    }

    #[test]
    fn running_sums_are_of_whole_numbers_too() {
        let cumsum = node("CumSum", &["x", "axis"], &["y"]);
        let x = Tensor::new(&[[1_i64, 2, 3], [4, 5, 6]], &Device::Cpu).unwrap();
        let sums = computed(&cumsum, &[("axis", &[-1])], &x);
        assert_eq!(sums.to_vec2::<i64>().unwrap(), [[1, 3, 6], [4, 9, 15]]);
        assert_eq!(flat(&computed(&cumsum, &[("axis", &[0])], &x)), [1.0, 2.0, 3.0, 5.0, 7.0, 9.0]);
        let infinite = Tensor::new(&[1_f32, f32::INFINITY, 2.0], &Device::Cpu).unwrap();
        let sums = computed(&cumsum, &[("axis", &[0])], &infinite);
        assert_eq!(flat(&sums), [1.0, f32::INFINITY, f32::INFINITY]);
        assert!(of(&with("CumSum", &["x", "axis"], vec![int_attribute("reverse", 1)]), &HashMap::new()).is_none());
    }

    #[test]
    fn padding_is_by_a_constant_and_may_take_away() {
        let x = Tensor::new(&[[1_f32, 2.0], [3.0, 4.0]], &Device::Cpu).unwrap();
        let older = vec![ints_attribute("pads", &[0, 1, 1, 0]), float_attribute("value", 9.0)];
        let padded = computed(&with("Pad", &["x"], older), &[], &x);
        assert_eq!(padded.to_vec2::<f32>().unwrap(), [[9.0, 1.0, 2.0], [9.0, 3.0, 4.0], [9.0, 9.0, 9.0]]);
        let pad = node("Pad", &["x", "pads", "value", "axes"], &["y"]);
        let constants: [(&str, &[i64]); 3] = [("pads", &[-1, 2]), ("value", &[7]), ("axes", &[-1])];
        let padded = computed(&pad, &constants, &x);
        assert_eq!(padded.to_vec2::<f32>().unwrap(), [[2.0, 7.0, 7.0], [4.0, 7.0, 7.0]]);
        let both = computed(&node("Pad", &["x", "pads"], &["y"]), &[("pads", &[0, 1, 0, 2])], &x);
        assert_eq!(both.to_vec2::<f32>().unwrap()[0], [0.0, 1.0, 2.0, 0.0, 0.0]);
        let mode = AttributeProto { name: "mode".into(), s: b"reflect".to_vec(), ..AttributeProto::default() };
        assert!(of(&with("Pad", &["x", "pads"], vec![mode]), &HashMap::new()).is_none());
    }

    #[test]
    fn attributes_of_older_operator_sets_are_read() {
        let x = ramp(&[2, 1, 4, 1]);
        let clip = with("Clip", &["x"], vec![float_attribute("min", 0.0), float_attribute("max", 0.3)]);
        assert!(flat(&computed(&clip, &[], &x)).iter().all(|value| (0.0..=0.3).contains(value)));
        let squeeze = with("Squeeze", &["x"], vec![ints_attribute("axes", &[-1, 1])]);
        assert_eq!(computed(&squeeze, &[], &x).dims(), [2, 4]);
        assert_eq!(computed(&with("Squeeze", &["x"], Vec::new()), &[], &ramp(&[1, 3, 1])).dims(), [3]);
        let slice = [("starts", [1]), ("ends", [i64::MAX]), ("axes", [2])];
        let slice = with("Slice", &["x"], slice.map(|(name, values)| ints_attribute(name, &values)).to_vec());
        let wanted = x.narrow(2, 1, 3).unwrap();
        assert_eq!(flat(&computed(&slice, &[], &x)), flat(&wanted));
        let of_two = with("Slice", &["x"], vec![ints_attribute("starts", &[0, 0]), ints_attribute("ends", &[-1, 1])]);
        assert_eq!(computed(&of_two, &[], &x).dims(), [1, 1, 4, 1]);
    }

    #[test]
    fn axes_are_those_of_the_output_where_some_are_added_and_all_turn_around_without_a_list() {
        let x = ramp(&[2, 3]);
        let unsqueeze = node("Unsqueeze", &["x", "axes"], &["y"]);
        let shape = |axes: &[i64]| computed(&unsqueeze, &[("axes", axes)], &x).dims().to_vec();
        assert_eq!([shape(&[1, 2]), shape(&[-2, -3]), shape(&[3, 0])], [[2, 1, 1, 3], [2, 1, 1, 3], [1, 2, 3, 1]]);
        let older = with("Unsqueeze", &["x"], vec![ints_attribute("axes", &[1, 2])]);
        assert_eq!(computed(&older, &[], &x).dims(), [2, 1, 1, 3]);
        assert!(of(&with("Unsqueeze", &["x"], vec![ints_attribute("axes", &[0])]), &HashMap::new()).is_none());
        let turned = computed(&node("Transpose", &["x"], &["y"]), &[], &ramp(&[2, 3, 4]));
        assert_eq!(turned.dims(), [4, 3, 2]);
    }

    #[test]
    fn parts_have_the_sizes_that_are_said_and_the_last_one_is_the_smallest() {
        let sizes = |attributes: Vec<AttributeProto>, outputs: &[&str], size: usize| -> Vec<usize> {
            let node = NodeProto { attribute: attributes, ..node("Split", &["x"], outputs) };
            let parts = of(&node, &HashMap::new()).unwrap().compute(&[Some(ramp(&[size, 2]))]).unwrap();
            parts.iter().map(|part| part.dim(0).unwrap()).collect()
        };
        assert_eq!(sizes(vec![ints_attribute("split", &[1, 3])], &["a", "b"], 4), [1, 3]);
        assert_eq!(sizes(vec![int_attribute("num_outputs", 3)], &["a", "b", "c"], 7), [3, 3, 1]);
        let larger = vec![ints_attribute("split", &[3, 3])];
        let larger = NodeProto { attribute: larger, ..node("Split", &["x"], &["a", "b"]) };
        assert!(of(&larger, &HashMap::new()).unwrap().compute(&[Some(ramp(&[4]))]).is_err());
        assert!(of(&node("Split", &["x"], &["a", "b"]), &HashMap::new()).is_none());
    }

    #[test]
    fn an_approximation_of_gelu_is_that_by_tanh() {
        let x = Tensor::new(&[-2_f32, 0.5, 2.0], &Device::Cpu).unwrap();
        let gelu = flat(&computed(&with("Gelu", &["x"], vec![text_attribute("approximate", "tanh")]), &[], &x));
        let expected = flat(&x).into_iter().map(|x| {
            let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        });
        assert!(gelu.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-5), "{gelu:?}");
        assert!(of(&node("Gelu", &["x"], &["y"]), &HashMap::new()).is_none());
    }

    #[test]
    fn a_triangle_is_cut_of_each_matrix_of_any_type() {
        let x = Tensor::arange(1_i64, 13, &Device::Cpu).unwrap().reshape((2, 2, 3)).unwrap();
        let lower = computed(&with("Trilu", &["x"], vec![int_attribute("upper", 0)]), &[], &x);
        assert_eq!(flat(&lower), [1.0, 0.0, 0.0, 4.0, 5.0, 0.0, 7.0, 0.0, 0.0, 10.0, 11.0, 0.0]);
        let infinite = Tensor::full(f32::NEG_INFINITY, (2, 2), &Device::Cpu).unwrap();
        let upper = computed(&node("Trilu", &["x", "k"], &["y"]), &[("k", &[1])], &infinite);
        assert_eq!(flat(&upper), [0.0, f32::NEG_INFINITY, 0.0, 0.0]);
    }

    #[test]
    fn a_hard_sigmoid_has_its_slope_and_offset() {
        let x = Tensor::new(&[-4_f32, -1.0, 0.0, 0.5, 4.0], &Device::Cpu).unwrap();
        let usual = flat(&computed(&node("HardSigmoid", &["x"], &["y"]), &[], &x));
        let expected = [0.0, 0.3, 0.5, 0.6, 1.0_f32];
        assert!(usual.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-6), "{usual:?}");
        let other = with("HardSigmoid", &["x"], vec![float_attribute("alpha", 0.25), float_attribute("beta", 0.5)]);
        assert_eq!(flat(&computed(&other, &[], &x)), [0.0, 0.25, 0.5, 0.625, 1.0]);
    }

    /// The numbers are ONNX Runtime's.
    #[test]
    fn elements_are_scattered_to_places_that_count_from_both_ends() {
        let scattered = |attribute, data: Tensor, places: &[i64], shape: &[usize]| {
            let node = NodeProto { attribute, ..node("ScatterElements", &["x", "i", "u"], &["y"]) };
            let places = Tensor::from_slice(places, shape, &Device::Cpu).unwrap();
            let updates = (ramp(shape) + 1.0).unwrap();
            let operator = of(&node, &HashMap::new()).unwrap();
            operator.compute(&[data, places, updates].map(Some)).map(|computed| flat(&computed[0]))
        };
        let is_near = |computed: Vec<f32>, expected: &[f32]| {
            assert_eq!(computed.len(), expected.len());
            let is_near = computed.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-5);
            assert!(is_near, "{computed:?}");
        };
        let adds = vec![int_attribute("axis", 1), text_attribute("reduction", "add")];
        let places = [0, 1, 2, -1, 0, 0, 1, 1, 1, 1, -3, 0, 2, 2, 2, 0];
        let sums = [
            2.54706, 2.09508, 0.72229, 2.02386, 1.31929, 1.13634, 0.36936, 2.09596, 2.05916, 1.59674, 1.83330, 1.07118,
        ];
        is_near(scattered(adds, ramp(&[2, 3, 2]), &places, &[2, 4, 2]).unwrap(), &sums);
        let written = scattered(vec![int_attribute("axis", 1)], ramp(&[2, 3]), &[-1, 0], &[2, 1]).unwrap();
        is_near(written, &[0.1, 0.59583, 1.1, 1.59583, 0.34706, 0.49924]);
        for shape in [&[1, 2][..], &[2]] {
            let fewer = scattered(Vec::new(), ramp(&[2, 3]), &[0, 1], shape).unwrap_err();
            assert!(fewer.to_string().contains("not supported"), "{fewer}");
        }
        let most = NodeProto {
            attribute: vec![text_attribute("reduction", "max")],
            ..node("ScatterElements", &["x", "i", "u"], &["y"])
        };
        assert!(of(&most, &HashMap::new()).is_none());
    }

    #[test]
    fn what_is_no_number_is_found() {
        let x = Tensor::new(&[1_f32, f32::NAN, f32::INFINITY], &Device::Cpu).unwrap();
        assert_eq!(computed(&node("IsNaN", &["x"], &["y"]), &[], &x).to_vec1::<u8>().unwrap(), [0, 1, 0]);
    }

    #[test]
    fn other_forms_are_left_to_candle_onnx() {
        let x = ramp(&[2, 3]);
        for other in [
            with("Flatten", &["x"], vec![int_attribute("axis", 1)]),
            with("ReduceMean", &["x"], vec![ints_attribute("axes", &[-1])]),
            node("Clip", &["x"], &["y"]),
        ] {
            assert!(of(&other, &HashMap::new()).is_none());
            evaluate(&[other], &["y"], HashMap::from([("x".to_owned(), x.clone())]));
        }
        assert!(of(&node("ReduceSum", &["x", "computed"], &["y"]), &HashMap::new()).is_none());
    }
}
