//! Operators over the height and width of pictures that `candle-onnx` lacks: transposed convolutions, convolutions
//! whose two strides differ, pools that round up or have no strides, and resizing.

use candle_core::{DType, Result, Tensor, bail};
use candle_onnx::onnx::NodeProto;

use super::operator::{Operator, attribute, given, has_input, has_own_pads, int, ints};
use super::tensor::add_bias;

/// The numbers for the height and the width, from an attribute with a number per axis. A single axis is the width.
fn pair(values: &[i64], rank: usize, usual: usize) -> Option<[usize; 2]> {
    let of_axis = |axis: usize| values.get(axis).map_or(Some(usual), |&value| usize::try_from(value).ok());
    if rank == 1 { Some([usual, of_axis(0)?]) } else { Some([of_axis(0)?, of_axis(1)?]) }
}

/// Whether strides or dilations are neither 0 nor larger than in any network: kernels of their size are made.
fn are_usable(numbers: [usize; 2]) -> bool {
    numbers.iter().all(|own| (1..=4096).contains(own))
}

/// A transposed convolution of one group, in one or two dimensions, as matrix products with parts of the kernel.
///
/// A part has the size of the strides, so the tiles that it makes from the elements do not overlap. The output is the
/// sum of the tiles of all parts, moved by whole strides.
pub fn conv_transpose(node: &NodeProto, weight: &Tensor, bias: Option<Tensor>) -> Option<Operator> {
    let rank = weight.rank().checked_sub(2).filter(|rank| [1, 2].contains(rank))?;
    if !has_own_pads(node) || int(node, "group", 1) != 1 || attribute(node, "output_shape").is_some() {
        return None;
    }
    let of_node = |name: &str, usual: usize| pair(ints(node, name), rank, usual);
    let (strides, dilations, more) = (of_node("strides", 1)?, of_node("dilations", 1)?, of_node("output_padding", 0)?);
    let pads = ints(node, "pads");
    let (before, after) = (pair(pads, rank, 0)?, pair(pads.get(rank..).unwrap_or_default(), rank, 0)?);
    if !are_usable(strides) || !are_usable(dilations) {
        return None;
    }
    let weight = if rank == 1 { weight.unsqueeze(2).ok()? } else { weight.clone() };
    let weight = dilated(&dilated(&weight, 2, dilations[0]).ok()?, 3, dilations[1]).ok()?;
    let kernel = [weight.dim(2).ok()?, weight.dim(3).ok()?];
    let counts = [kernel[0].div_ceil(strides[0]), kernel[1].div_ceil(strides[1])];
    let parts = parts_of(&weight, strides, counts).ok()?;
    let bias = bias.map(|bias| bias.reshape((1, (), 1, 1))).transpose().ok()?;
    Operator::new("ConvTranspose", move |input| {
        let input = if rank == 1 { input.unsqueeze(2)? } else { input.clone() };
        let (batch, channels, height, width) = input.dims4()?;
        let elements = input.contiguous()?.reshape((batch, channels, height * width))?;
        let mut sum: Option<Tensor> = None;
        for (place, part) in parts.iter().enumerate() {
            let tiles = part.broadcast_left(batch)?.matmul(&elements)?;
            let channels = part.dim(0)? / (strides[0] * strides[1]);
            let tiles = tiles.reshape(&[batch, channels, strides[0], strides[1], height, width][..])?;
            let mut moved = tiles.permute([0, 1, 4, 2, 5, 3])?.reshape((
                batch,
                channels,
                height * strides[0],
                width * strides[1],
            ))?;
            for (axis, number) in [place / counts[1], place % counts[1]].into_iter().enumerate() {
                let (less, more) = (number * strides[axis], (counts[axis] - 1 - number) * strides[axis]);
                moved = moved.pad_with_zeros(2 + axis, less, more)?;
            }
            sum = Some(sum.map_or_else(|| Ok(moved.clone()), |sum| sum + &moved)?);
        }
        let Some(sum) = sum else { bail!("ConvTranspose: an empty kernel is not supported here") };
        let cut = |output: Tensor, axis: usize| -> Result<Tensor> {
            let all = input.dim(2 + axis)?.saturating_sub(1) * strides[axis] + kernel[axis] + more[axis];
            let size = all.saturating_sub(before[axis] + after[axis]);
            let missing = (before[axis] + size).saturating_sub(output.dim(2 + axis)?);
            output.pad_with_zeros(2 + axis, 0, missing)?.narrow(2 + axis, before[axis], size)
        };
        let output = add_bias(cut(cut(sum, 0)?, 1)?, &bias)?;
        if rank == 1 { output.squeeze(2) } else { Ok(output) }
    })
}

/// The kernel with zeros between its elements along an axis.
fn dilated(kernel: &Tensor, axis: usize, dilation: usize) -> Result<Tensor> {
    let mut shape = kernel.dims().to_vec();
    let size = shape[axis];
    shape[axis] = size * dilation;
    let spread = kernel.unsqueeze(axis + 1)?.pad_with_zeros(axis + 1, 0, dilation - 1)?.reshape(shape)?;
    spread.narrow(axis, 0, (size * dilation + 1).saturating_sub(dilation))
}

/// The parts of a kernel `[in, out, height, width]`, row by row, each a matrix `[out * rows * columns, in]`.
fn parts_of(kernel: &Tensor, [rows, columns]: [usize; 2], counts: [usize; 2]) -> Result<Vec<Tensor>> {
    let (channels, _, height, width) = kernel.dims4()?;
    let padded = kernel.pad_with_zeros(2, 0, counts[0] * rows - height)?;
    let padded = padded.pad_with_zeros(3, 0, counts[1] * columns - width)?;
    let part = |place: usize| {
        let part = padded.narrow(2, place / counts[1] * rows, rows)?;
        let part = part.narrow(3, place % counts[1] * columns, columns)?;
        part.contiguous()?.reshape((channels, ()))?.t()?.contiguous()
    };
    (0..counts[0] * counts[1]).map(part).collect()
}

/// A convolution in two dimensions whose strides differ, as a convolution with the largest stride that divides both.
/// Neighbours along an axis with a larger stride become channels.
pub fn conv_of_two_strides(node: &NodeProto, weight: &Tensor, bias: Option<Tensor>) -> Option<Operator> {
    let strides = pair(ints(node, "strides"), 2, 1)?;
    let is_plain = ints(node, "dilations").iter().all(|&dilation| dilation == 1);
    if weight.rank() != 4 || strides[0] == strides[1] || !are_usable(strides) || !is_plain {
        return None;
    }
    let pads = ints(node, "pads");
    let (before, after) = (pair(pads, 2, 0)?, pair(pads.get(2..).unwrap_or_default(), 2, 0)?);
    let groups = usize::try_from(int(node, "group", 1)).ok()?;
    let stride = (1..=strides[0]).rev().find(|divisor| strides.iter().all(|stride| stride % divisor == 0))?;
    let neighbours = strides.map(|own| own / stride);
    let kernel = [weight.dim(2).ok()?, weight.dim(3).ok()?];
    let folded = with_neighbours_as_channels(weight, neighbours).ok()?;
    let bias = bias.map(|bias| bias.reshape((1, (), 1, 1))).transpose().ok()?;
    Operator::new("Conv", move |input| {
        let padded = input.pad_with_zeros(2, before[0], after[0])?.pad_with_zeros(3, before[1], after[1])?;
        let output = with_neighbours_as_channels(&padded, neighbours)?.conv2d(&folded, 0, stride, 1, groups)?;
        // The last places may cover nothing but the zeros that fill up the neighbours.
        let size = |axis: usize| -> Result<usize> {
            Ok(padded.dim(2 + axis)?.saturating_sub(kernel[axis]) / strides[axis] + 1)
        };
        add_bias(output.narrow(2, 0, size(0)?)?.narrow(3, 0, size(1)?)?, &bias)
    })
}

/// Reshapes pictures to `[n, channels * rows * columns, height / rows, width / columns]`, rounded up and filled with
/// zeros.
fn with_neighbours_as_channels(pictures: &Tensor, [rows, columns]: [usize; 2]) -> Result<Tensor> {
    let (count, channels, height, width) = pictures.dims4()?;
    let (down, across) = (height.div_ceil(rows), width.div_ceil(columns));
    let filled = pictures.pad_with_zeros(2, 0, down * rows - height)?.pad_with_zeros(3, 0, across * columns - width)?;
    let split = filled.contiguous()?.reshape(&[count, channels, down, rows, across, columns][..])?;
    split.permute([0, 1, 3, 5, 2, 4])?.reshape((count, channels * rows * columns, down, across))
}

/// A pool in two dimensions that rounds its size up or has no strides, which means 1. `candle-onnx` rounds down, and
/// takes the kernel's size for missing strides. Pools with padding or dilations are left to `candle-onnx`, which
/// refuses them.
pub fn pool(node: &NodeProto) -> Option<Operator> {
    let is_rounded_up = int(node, "ceil_mode", 0) != 0;
    if ints(node, "kernel_shape").len() != 2 || !is_rounded_up && attribute(node, "strides").is_some() {
        return None;
    }
    let all = |name: &str, value: i64| ints(node, name).iter().all(|&given| given == value);
    let (strides, kernel) = (pair(ints(node, "strides"), 2, 1)?, pair(ints(node, "kernel_shape"), 2, 0)?);
    if !has_own_pads(node) || !all("pads", 0) || !all("dilations", 1) || strides.contains(&0) || kernel.contains(&0) {
        return None;
    }
    let name = if node.op_type == "MaxPool" { "MaxPool" } else { "AveragePool" };
    Operator::new(name, move |input| {
        let (_, _, height, width) = input.dims4()?;
        let is_rounded = |axis: usize| [height, width][axis].saturating_sub(kernel[axis]) % strides[axis] != 0;
        if is_rounded_up && (is_rounded(0) || is_rounded(1)) {
            bail!("{name}: a size that is rounded up is not supported here")
        }
        let [kernel, strides] = [kernel, strides].map(|[down, across]| (down, across));
        match name {
            "MaxPool" => input.max_pool2d_with_stride(kernel, strides),
            _ => input.avg_pool2d_with_stride(kernel, strides),
        }
    })
}

/// Resizes the height and width to sizes or by factors, which may be computed: bilinearly, or from the nearest place
/// before. `candle-onnx` has only the latter. It ignores factors of the batch and the channels. If a factor gives no
/// whole size, it uses the ratio of the sizes instead.
pub fn resize(node: &NodeProto) -> Option<Operator> {
    let text = |name: &str, usual: &'static str| match attribute(node, name) {
        Some(attribute) => String::from_utf8_lossy(&attribute.s).into_owned(),
        None => usual.to_owned(),
    };
    let (mode, coordinates) = (text("mode", "nearest"), text("coordinate_transformation_mode", "half_pixel"));
    let is_before = text("nearest_mode", "round_prefer_floor") == "floor";
    let (is_nearest, aligns_corners) = match (mode.as_str(), coordinates.as_str()) {
        ("nearest", "asymmetric") if is_before => (true, false),
        ("linear", "align_corners") => (false, true),
        ("linear", "half_pixel") => (false, false),
        _ => return None,
    };
    let is_stretched = text("keep_aspect_ratio_policy", "stretch") == "stretch";
    // Operator set 10 has the factors at another place.
    let has_sizes = has_input(node, 2) || has_input(node, 3);
    if !has_sizes || int(node, "antialias", 0) != 0 || attribute(node, "axes").is_some() || !is_stretched {
        return None;
    }
    Operator::of_all("Resize", move |inputs| {
        let input = given(inputs, 0)?;
        let numbers = |place: usize| -> Result<Option<Vec<f32>>> {
            let numbers = inputs.get(place).and_then(Option::as_ref).filter(|numbers| numbers.elem_count() > 0);
            numbers.map(|numbers| numbers.to_dtype(DType::F32)?.flatten_all()?.to_vec1()).transpose()
        };
        let scales = numbers(2)?;
        let sizes: Vec<f32> = match (&scales, numbers(3)?) {
            (Some(scales), _) => input.dims().iter().zip(scales).map(|(&size, scale)| size as f32 * scale).collect(),
            (None, Some(sizes)) => sizes,
            (None, None) => bail!("Resize: neither sizes nor scales are given"),
        };
        let shape: Vec<usize> = sizes.iter().map(|&size| size as usize).collect();
        let &[batch, channels, height, width] = shape.as_slice() else {
            bail!("Resize: other than 2 spatial dimensions are not supported here")
        };
        if input.dims().get(..2) != Some(&[batch, channels][..]) {
            bail!("Resize: resizing the batch or the channels is not supported here")
        }
        let is_rounded = scales.is_some() && sizes.iter().any(|size| size.fract() != 0.0);
        let resized = match &scales {
            _ if is_nearest && is_rounded => {
                bail!("Resize: the nearest places by a factor that gives no whole size are not supported here")
            }
            _ if input.dims() == shape => input.clone(),
            // If the factor gives no whole size, the factor counts, not the ratio of the sizes.
            Some(scales) if is_rounded && !aligns_corners => {
                let [down, across] = [f64::from(scales[2]), f64::from(scales[3])];
                input.upsample_bilinear2d_with_scale(down, across, false)?
            }
            _ if is_nearest => input.upsample_nearest2d(height, width)?,
            _ => input.upsample_bilinear2d(height, width, aligns_corners)?,
        };
        if resized.dims() != shape {
            bail!("Resize: this factor, which gives no whole size, is not supported here")
        }
        Ok(vec![resized])
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use candle_core::Device;
    use candle_onnx::onnx::AttributeProto;

    use super::super::forms;
    use super::super::plan::tests::{int_attribute, ints_attribute, node, ramp, text_attribute};
    use super::*;

    /// Compares with the numbers of ONNX Runtime 1.32.
    #[track_caller]
    fn is_near(computed: &Tensor, shape: &[usize], expected: &[f32]) {
        assert_eq!(computed.dims(), shape);
        let computed = computed.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(computed.len(), expected.len());
        let is_near = computed.iter().zip(expected).all(|(one, other)| (one - other).abs() < 2e-5);
        assert!(is_near, "{computed:?}");
    }

    /// The output of a convolution with the weights `ramp(kernel)`, and with the bias `ramp([bias])` unless `bias` is
    /// 0.
    fn convolved(op_type: &str, kernel: &[usize], bias: usize, attributes: &[(&str, &[i64])], x: &[usize]) -> Tensor {
        let attribute = attributes.iter().map(|(name, values)| match *name {
            "group" => int_attribute(name, values[0]),
            name => ints_attribute(name, values),
        });
        let inputs = if bias > 0 { &["x", "w", "b"][..] } else { &["x", "w"] };
        let node = NodeProto { attribute: attribute.collect(), ..node(op_type, inputs, &["y"]) };
        let constants = HashMap::from([("w".to_owned(), ramp(kernel)), ("b".to_owned(), ramp(&[bias.max(1)]))]);
        let operator = Operator::of(&node, &constants).expect("an operator");
        assert_eq!(operator.name, op_type);
        operator.apply(&ramp(x)).unwrap()
    }

    #[test]
    fn transposed_convolutions_overlap_and_are_cut_and_made_longer() {
        let attributes: [(&str, &[i64]); 3] =
            [("strides", &[2, 2]), ("pads", &[1, 1, 1, 1]), ("output_padding", &[1, 1])];
        let computed = convolved("ConvTranspose", &[2, 1, 3, 3], 1, &attributes, &[1, 2, 2, 2]);
        let expected = [
            0.15056, 0.09926, 0.32959, 0.20481, 0.34498, -0.02760, 0.10820, 0.32402, 0.07894, 0.18887, -0.03550,
            -0.00050, -0.02907, 0.16575, 0.06305, -0.05188,
        ];
        is_near(&computed, &[1, 1, 4, 4], &expected);
        let attributes: [(&str, &[i64]); 3] = [("strides", &[1, 3]), ("dilations", &[2, 1]), ("pads", &[0, 1, 1, 0])];
        let computed = convolved("ConvTranspose", &[1, 2, 2, 3], 0, &attributes, &[1, 1, 2, 2]);
        let expected = [
            0.05958, -0.00278, 0.05958, 0.35502, -0.01655, -0.01655, 0.00077, -0.03629, -0.21623, 0.01008, 0.03471,
            0.04992, -0.21623, 0.20679, 0.29747, -0.02091, 0.05296, -0.14892, -0.12457, 0.31554, 0.00581, -0.01471,
            0.09070, 0.07587, -0.19219, -0.03807, 0.00255, 0.17778, -0.22683, 0.01519,
        ];
        is_near(&computed, &[1, 2, 3, 5], &expected);
    }

    #[test]
    fn transposed_convolutions_are_of_one_dimension_and_of_batches_too() {
        let computed = convolved("ConvTranspose", &[2, 1, 4], 1, &[("strides", &[2]), ("pads", &[1, 1])], &[1, 2, 3]);
        is_near(&computed, &[1, 1, 6], &[-0.02160, 0.36796, 0.66786, 0.16720, 0.04391, -0.02401]);
        let computed = convolved("ConvTranspose", &[1, 2, 2, 2], 2, &[("strides", &[2, 2])], &[2, 1, 2, 1]);
        let expected = [
            0.11000, 0.15958, 0.09722, 0.06371, 0.15958, 0.45502, 0.08345, -0.11623, 0.63054, 0.64576, 0.57084,
            0.57493, 0.80262, 0.89330, 0.44691, 0.47126, 0.09722, 0.08345, 0.10077, 0.11008, 0.06371, -0.11623,
            0.11008, 0.23170, 0.58619, 0.58197, 0.60277, 0.60164, 0.46988, 0.41465, 0.68654, 0.67170,
        ];
        is_near(&computed, &[2, 2, 4, 2], &expected);
        let groups =
            NodeProto { attribute: vec![int_attribute("group", 2)], ..node("ConvTranspose", &["x", "w"], &["y"]) };
        assert!(conv_transpose(&groups, &ramp(&[2, 1, 2, 2]), None).is_none());
    }

    #[test]
    fn the_strides_of_a_convolution_may_differ() {
        let computed =
            convolved("Conv", &[2, 2, 3, 3], 2, &[("strides", &[1, 2]), ("pads", &[1, 0, 1, 1])], &[1, 2, 5, 7]);
        let expected = [
            0.42395, 0.49907, -0.42916, 2.00248, -1.00222, 1.13564, 2.44646, -1.77095, 2.17808, 1.97425, -1.65141,
            2.41915, 0.42177, -0.30260, 1.08944, -0.03415, 1.73658, -0.46290, 1.16371, 0.97833, 0.08740, 2.37255,
            -0.36180, 1.46983, 2.90812, -1.20528, 2.56522, 1.95401, -0.74383, 2.39787,
        ];
        is_near(&computed, &[1, 2, 5, 3], &expected);
        let computed = convolved("Conv", &[2, 1, 3, 2], 0, &[("strides", &[3, 2]), ("group", &[2])], &[1, 2, 6, 5]);
        let expected = [0.32246, -0.17439, 0.43383, -0.25709, -0.07116, 0.16236, -0.19398, 0.26839];
        is_near(&computed, &[1, 2, 2, 2], &expected);
        let computed =
            convolved("Conv", &[1, 1, 3, 4], 0, &[("strides", &[4, 2]), ("pads", &[1, 1, 0, 0])], &[1, 1, 9, 7]);
        is_near(&computed, &[1, 1, 2, 3], &[-0.34957, 0.72613, -0.44643, -0.28953, 0.16170, -0.10349]);
    }

    #[test]
    fn pools_have_strides_of_one_without_an_attribute_and_are_not_cut_where_they_are_rounded_up() {
        let pooled = |op_type: &str, attributes: &[(&str, &[i64])], x: &[usize]| {
            let attribute = attributes.iter().map(|(name, values)| match *name {
                "ceil_mode" => int_attribute(name, values[0]),
                name => ints_attribute(name, values),
            });
            let node = NodeProto { attribute: attribute.collect(), ..node(op_type, &["x"], &["y"]) };
            forms::of(&node, &HashMap::new()).map(|operator| operator.compute(&[Some(ramp(x))]))
        };
        for op_type in ["MaxPool", "AveragePool"] {
            let of_one = pooled(op_type, &[("kernel_shape", &[2, 2])], &[1, 1, 3, 4]).unwrap().unwrap();
            assert_eq!(of_one[0].dims(), [1, 1, 2, 3]);
            let up: [(&str, &[i64]); 3] = [("kernel_shape", &[3, 3]), ("strides", &[2, 2]), ("ceil_mode", &[1])];
            assert_eq!(pooled(op_type, &up, &[1, 1, 7, 5]).unwrap().unwrap()[0].dims(), [1, 1, 3, 2]);
            let cut = pooled(op_type, &up, &[1, 1, 7, 6]).unwrap().unwrap_err().to_string();
            assert!(cut.contains("not supported"), "{cut}");
            assert!(pooled(op_type, &up[..2], &[1, 1, 7, 6]).is_none(), "left to candle-onnx");
        }
    }

    #[test]
    fn pictures_are_resized_to_sizes_and_by_factors() {
        let resized = |mode: &str, x: &[usize], scales: Option<&[f32]>, sizes: Option<&[i64]>| {
            let attribute: Vec<AttributeProto> =
                vec![text_attribute("mode", "linear"), text_attribute("coordinate_transformation_mode", mode)];
            let node = NodeProto { attribute, ..node("Resize", &["x", "", "f", "s"], &["y"]) };
            let scales = scales.map(|values| Tensor::new(values, &Device::Cpu).unwrap());
            let sizes = sizes.map(|values| Tensor::new(values, &Device::Cpu).unwrap());
            let operator = forms::of(&node, &HashMap::new()).expect("an operator");
            operator.compute(&[Some(ramp(x)), None, scales, sizes]).map(|mut computed| computed.remove(0))
        };
        let x = [1, 1, 2, 3];
        let larger = [
            0.10000, 0.40990, 0.36198, -0.02777, -0.01573, 0.32763, 0.37252, 0.10398, -0.24718, 0.16309, 0.39359,
            0.36749, -0.36291, 0.08082, 0.40413, 0.49924,
        ];
        is_near(&resized("half_pixel", &x, None, Some(&[1, 1, 4, 4])).unwrap(), &[1, 1, 4, 4], &larger);
        let aligned = [
            0.10000, 0.34792, 0.59583, 0.28403, -0.02777, -0.13145, 0.17000, 0.47144, 0.35359, 0.23574, -0.36291,
            -0.00793, 0.34706, 0.42315, 0.49924,
        ];
        is_near(&resized("align_corners", &x, None, Some(&[1, 1, 3, 5])).unwrap(), &[1, 1, 3, 5], &aligned);
        // 4.5 columns.
        let by_factor = [
            0.10000, 0.34792, 0.49190, 0.07616, -0.13145, 0.17000, 0.43216, 0.27502, -0.36291, -0.00793, 0.37242,
            0.47388,
        ];
        let factors = Some(&[1.0, 1.0, 1.5, 1.5][..]);
        is_near(&resized("half_pixel", &x, factors, None).unwrap(), &[1, 1, 3, 4], &by_factor);
        let smaller = [0.05921, 0.10932, 0.12278, 0.21702, -0.02417, 0.22307];
        let computed = resized("half_pixel", &[1, 1, 4, 6], None, Some(&[1, 1, 2, 3])).unwrap();
        is_near(&computed, &[1, 1, 2, 3], &smaller);
        let same = resized("half_pixel", &x, None, Some(&[1, 1, 2, 3])).unwrap();
        is_near(&same, &x, &ramp(&x).flatten_all().unwrap().to_vec1::<f32>().unwrap());
        assert!(
            resized("half_pixel", &x, None, Some(&[1, 2, 2, 3])).unwrap_err().to_string().contains("not supported")
        );
        let nearest = node("Resize", &["x", "", "f"], &["y"]);
        assert!(resize(&nearest).is_none());
    }

    #[test]
    fn nearest_places_are_by_whole_sizes_of_pictures_alone() {
        let attribute = vec![
            text_attribute("coordinate_transformation_mode", "asymmetric"),
            text_attribute("nearest_mode", "floor"),
            text_attribute("keep_aspect_ratio_policy", "stretch"),
        ];
        let node = NodeProto { attribute, ..node("Resize", &["x", "", "f"], &["y"]) };
        let resized = |width: usize, factors: [f32; 4]| {
            let factors = Tensor::new(&factors, &Device::Cpu).unwrap();
            let operator = forms::of(&node, &HashMap::new()).expect("an operator");
            operator.compute(&[Some(ramp(&[1, 1, 1, width])), None, Some(factors)])
        };
        is_near(&resized(2, [1.0, 1.0, 1.0, 1.5]).unwrap()[0], &[1, 1, 1, 3], &[0.1, 0.1, 0.59583]);
        for factors in [[1.0, 1.0, 1.0, 1.25], [1.0, 2.0, 1.0, 1.0]] {
            let refused = resized(10, factors).unwrap_err().to_string();
            assert!(refused.contains("not supported"), "{refused}");
        }
    }
}
