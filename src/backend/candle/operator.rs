//! Nodes with constant weights that candle computes faster if it is called directly, and not through `candle-onnx`.
//!
//! Each is a few calls of candle's public functions, prepared from the node's constants when the graph is loaded.
//! Properties that a node does not declare, such as the rank of its input, are checked when it runs.

use std::collections::HashMap;

use candle_core::{D, Error, Result, Tensor};
use candle_nn::ops::{layer_norm, layer_norm_slow};
use candle_onnx::onnx::{AttributeProto, NodeProto};

use super::spatial;
use super::tensor::add_bias;

/// A node that runs without `candle-onnx`.
pub struct Operator {
    /// The ONNX operators that it stands for.
    pub name: &'static str,
    /// The most inputs of the node that it takes.
    most_inputs: usize,
    compute: Box<Compute>,
}

type Compute = dyn Fn(&[Option<Tensor>]) -> Result<Vec<Tensor>>;

impl Operator {
    /// An operator whose only input that is not constant is the first.
    pub fn new(name: &'static str, compute: impl Fn(&Tensor) -> Result<Tensor> + 'static) -> Option<Self> {
        let compute = move |inputs: &[Option<Tensor>]| -> Result<Vec<Tensor>> { Ok(vec![compute(given(inputs, 0)?)?]) };
        Some(Operator { name, most_inputs: 1, compute: Box::new(compute) })
    }

    /// An operator that is given all inputs of the node, `None` for those that are left out, and computes its first
    /// outputs.
    pub fn of_all(
        name: &'static str,
        compute: impl Fn(&[Option<Tensor>]) -> Result<Vec<Tensor>> + 'static,
    ) -> Option<Self> {
        Some(Operator { name, most_inputs: usize::MAX, compute: Box::new(compute) })
    }

    /// The operator that computes this node, if there is one.
    pub fn of(node: &NodeProto, constants: &HashMap<String, Tensor>) -> Option<Operator> {
        if !node.domain.is_empty() || node.output.len() != 1 || node.input.first()?.is_empty() {
            return None;
        }
        let constant = |index: usize| node.input.get(index).and_then(|name| constants.get(name));
        let of_rank = |index: usize, rank: usize| constant(index).filter(|tensor| tensor.rank() == rank).cloned();
        // The input may be absent, but otherwise it must be a constant.
        let optional = |index| if has_input(node, index) { constant(index).cloned().map(Some) } else { Some(None) };
        match node.op_type.as_str() {
            "MatMul" => linear(of_rank(1, 2)?, None),
            "Gemm" => {
                let is_plain = float(node, "alpha", 1.) == 1. && float(node, "beta", 1.) == 1.;
                let weight = of_rank(1, 2).filter(|_| is_plain && int(node, "transA", 0) == 0)?;
                linear(if int(node, "transB", 0) == 0 { weight } else { weight.t().ok()? }, optional(2)?)
            }
            "Conv" => conv(node, constant(1)?, optional(2)?),
            "ConvTranspose" => spatial::conv_transpose(node, constant(1)?, optional(2)?),
            // `candle-onnx` refuses a list of indices if the input is not contiguous, and indices of more than two
            // dimensions.
            "Gather" => {
                let places = constant(1).filter(|places| places.rank() > 0)?;
                let (shape, axis) = (places.dims().to_vec(), int(node, "axis", 0));
                let places = places.flatten_all().ok()?;
                let is_counted_from_front = places.to_vec1::<i64>().ok()?.iter().all(|&place| place >= 0);
                let select = move |input: &Tensor| {
                    let axis = input.normalize_axis(axis)?;
                    let shape = [&input.dims()[..axis], shape.as_slice(), &input.dims()[axis + 1..]].concat();
                    input.contiguous()?.index_select(&places, axis)?.reshape(shape)
                };
                is_counted_from_front.then(|| Operator::new("Gather", select))?
            }
            // `candle-onnx` includes the end in the shape.
            "Shape" if attribute(node, "start").or(attribute(node, "end")).is_some() => {
                let (start, end) = (int(node, "start", 0), int(node, "end", i64::MAX));
                Operator::new("Shape", move |input| {
                    let sizes: Vec<i64> = input.dims().iter().map(|&size| size as i64).collect();
                    let rank = sizes.len() as i64;
                    let place = |axis: i64| (if axis < 0 { axis + rank } else { axis }).clamp(0, rank) as usize;
                    Tensor::new(sizes.get(place(start)..place(end)).unwrap_or_default(), input.device())
                })
            }
            "LayerNormalization" => {
                let scale = of_rank(1, 1)?;
                let bias = optional(2)?.or(scale.zeros_like().ok())?;
                let epsilon = float(node, "epsilon", 1e-5);
                if int(node, "axis", -1) != -1 || bias.shape() != scale.shape() {
                    return None;
                }
                Operator::new("LayerNormalization", move |input| match input.dim(D::Minus1)? == scale.elem_count() {
                    true => layer_norm(&input.contiguous()?, &scale, &bias, epsilon),
                    false => layer_norm_slow(input, &scale, &bias, epsilon),
                })
            }
            _ => None,
        }
    }

    /// The names of the inputs of its node that it takes.
    pub fn reads<'a>(&self, node: &'a NodeProto) -> &'a [String] {
        &node.input[..node.input.len().min(self.most_inputs)]
    }

    /// Computes the outputs of the node.
    pub fn compute(&self, inputs: &[Option<Tensor>]) -> Result<Vec<Tensor>> {
        (self.compute)(inputs)
    }

    #[cfg(test)]
    pub fn apply(&self, input: &Tensor) -> Result<Tensor> {
        Ok(self.compute(&[Some(input.clone())])?.remove(0))
    }
}

/// The input at a place; an error if it is missing.
pub fn given(inputs: &[Option<Tensor>], place: usize) -> Result<&Tensor> {
    let input = inputs.get(place).and_then(Option::as_ref);
    input.ok_or_else(|| Error::Msg(format!("the input {place} is missing")))
}

/// A product with weights `[in, out]` over the last axis.
fn linear(weight: Tensor, bias: Option<Tensor>) -> Option<Operator> {
    Operator::new("MatMul/Gemm", move |input| {
        let rows = input.elem_count() / input.dim(D::Minus1)?.max(1);
        if input.rank() <= 2 || rows == 0 {
            return add_bias(input.broadcast_matmul(&weight)?, &bias);
        }
        let (features, outputs) = weight.dims2()?;
        let mut shape = input.dims().to_vec();
        shape.pop();
        shape.push(outputs);
        add_bias(input.reshape((rows, features))?.matmul(&weight)?.reshape(shape)?, &bias)
    })
}

/// A convolution with a kernel of one element, or 1-D with a kernel for each channel.
fn conv(node: &NodeProto, weight: &Tensor, bias: Option<Tensor>) -> Option<Operator> {
    let all = |name: &str, value: i64| ints(node, name).iter().all(|&given| given == value);
    let pads = ints(node, "pads");
    if !has_own_pads(node) || pads.iter().any(|&pad| pad < 0) {
        return None;
    }
    if !all("strides", 1) {
        return spatial::conv_of_two_strides(node, weight, bias);
    }
    let bias = bias.map(|bias| bias.reshape(((), 1))).transpose().ok()?;
    let group = int(node, "group", 1);
    let (channels_out, channels_in) = (weight.dim(0).ok()?, weight.dim(1).ok()?);
    let spatial = weight.dims().get(2..)?;
    if group == 1 && all("pads", 0) && !spatial.is_empty() && spatial.iter().all(|&size| size == 1) {
        return pointwise(weight.contiguous().ok()?.reshape((channels_out, channels_in)).ok()?, bias);
    }
    let padding = match *pads {
        [] => [0, 0],
        [before, after] => [before as usize, after as usize],
        _ => return None,
    };
    let &[length] = spatial else { return None };
    if length == 0 || channels_in != 1 || group != channels_out as i64 {
        return None;
    }
    let taps = (0..length).map(|tap| weight.narrow(2, tap, 1)?.reshape((channels_out, 1)));
    let dilation = usize::try_from(ints(node, "dilations").first().copied().unwrap_or(1)).ok()?;
    depthwise(taps.collect::<Result<_>>().ok()?, bias, padding, dilation)
}

/// A matrix product without im2col: weights `[out, in]`, bias `[out, 1]`.
fn pointwise(weight: Tensor, bias: Option<Tensor>) -> Option<Operator> {
    Operator::new("pointwise Conv", move |input| {
        let mut shape = input.dims().to_vec();
        let (batch_size, channels) = (input.dim(0)?, input.dim(1)?);
        let weights = weight.broadcast_left(batch_size)?;
        let output = weights.matmul(&input.contiguous()?.reshape((batch_size, channels, ()))?)?;
        shape[1] = weight.dim(0)?;
        add_bias(output, &bias)?.reshape(shape)
    })
}

/// A sum of shifted products: one weight `[channels, 1]` per tap, bias `[channels, 1]`.
fn depthwise(taps: Vec<Tensor>, bias: Option<Tensor>, padding: [usize; 2], dilation: usize) -> Option<Operator> {
    Operator::new("depthwise Conv", move |input| {
        let padded = input.pad_with_zeros(2, padding[0], padding[1])?;
        let length = (padded.dim(2)? + 1).saturating_sub(dilation * (taps.len() - 1) + 1);
        let products = taps.iter().enumerate();
        let mut products =
            products.map(|(tap, weight)| padded.narrow(2, tap * dilation, length)?.broadcast_mul(weight));
        let first = products.next().unwrap_or_else(|| input.zeros_like())?;
        add_bias(products.try_fold(first, |sum, product| sum + product?)?, &bias)
    })
}

/// The name of a node; that of its first output if it has none.
pub fn name_of(node: &NodeProto) -> String {
    if node.name.is_empty() { node.output.first().cloned().unwrap_or_default() } else { node.name.clone() }
}

/// Whether the attribute `pads` sets the padding.
pub fn has_own_pads(node: &NodeProto) -> bool {
    attribute(node, "auto_pad").is_none_or(|attribute| attribute.s == b"NOTSET")
}

/// Whether the node has the optional input at a place.
pub fn has_input(node: &NodeProto, place: usize) -> bool {
    node.input.get(place).is_some_and(|name| !name.is_empty())
}

pub fn attribute<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name == name)
}

pub fn int(node: &NodeProto, name: &str, default: i64) -> i64 {
    attribute(node, name).map_or(default, |attribute| attribute.i)
}

pub fn float(node: &NodeProto, name: &str, default: f32) -> f32 {
    attribute(node, name).map_or(default, |attribute| attribute.f)
}

pub fn ints<'a>(node: &'a NodeProto, name: &str) -> &'a [i64] {
    attribute(node, name).map_or(&[], |attribute| &attribute.ints)
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::{evaluate, float_attribute, int_attribute, ints_attribute, node, ramp};
    use super::*;

    /// The largest difference between what the operator and what `candle-onnx` computes.
    fn difference(node: &NodeProto, constants: &[(&str, Tensor)], input: &Tensor) -> f32 {
        let mut values: HashMap<String, Tensor> =
            constants.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect();
        let operator = Operator::of(node, &values).expect("an operator");
        values.insert("x".into(), input.clone());
        let expected = &evaluate(std::slice::from_ref(node), &["y"], values)["y"];
        let output = operator.apply(input).unwrap();
        assert_eq!(output.dims(), expected.dims());
        let difference = (output - expected).unwrap().abs().unwrap().flatten_all().unwrap();
        difference.max(0).unwrap().to_scalar().unwrap()
    }

    #[test]
    fn matmul_is_that_of_candle_onnx_for_each_rank() {
        let weight = ramp(&[3, 5]);
        for shape in [&[4, 3][..], &[2, 4, 3], &[2, 2, 4, 3], &[1, 1, 3]] {
            let matmul = node("MatMul", &["x", "w"], &["y"]);
            assert!(difference(&matmul, &[("w", weight.clone())], &ramp(shape)) < 1e-6, "{shape:?}");
        }
        let transposed = ramp(&[2, 3, 4]).transpose(1, 2).unwrap();
        assert!(difference(&node("MatMul", &["x", "w"], &["y"]), &[("w", weight)], &transposed) < 1e-6);
    }

    #[test]
    fn gemm_is_that_of_candle_onnx_and_its_bias_may_be_empty() {
        let mut gemm = node("Gemm", &["x", "w", "b"], &["y"]);
        gemm.attribute.push(int_attribute("transB", 1));
        let (weight, bias) = (ramp(&[5, 3]), ramp(&[5]));
        assert!(difference(&gemm, &[("w", weight.clone()), ("b", bias)], &ramp(&[4, 3])) < 1e-6);

        gemm.input[2].clear();
        let constants = HashMap::from([("w".to_owned(), weight.clone())]);
        let output = Operator::of(&gemm, &constants).unwrap().apply(&ramp(&[4, 3])).unwrap();
        let product = ramp(&[4, 3]).matmul(&weight.t().unwrap()).unwrap();
        assert_eq!(output.to_vec2::<f32>().unwrap(), product.to_vec2::<f32>().unwrap());
    }

    #[test]
    fn pointwise_conv_is_that_of_candle_onnx_in_one_and_two_dimensions() {
        let bias = ("b", ramp(&[4]));
        for (kernel, input) in [(vec![4, 3, 1], vec![2, 3, 6]), (vec![4, 3, 1, 1], vec![2, 3, 5, 6])] {
            let constants = [("w", ramp(&kernel)), bias.clone()];
            let conv = node("Conv", &["x", "w", "b"], &["y"]);
            assert_eq!(of(&conv, &constants).unwrap().name, "pointwise Conv");
            assert!(difference(&conv, &constants, &ramp(&input)) < 1e-6);
            let conv = node("Conv", &["x", "w"], &["y"]);
            assert!(difference(&conv, &constants[..1], &ramp(&input)) < 1e-6);
        }
    }

    #[test]
    fn depthwise_conv_is_that_of_candle_onnx_with_padding_and_dilation() {
        for (pads, dilation) in [([2, 2], 1), ([3, 1], 2), ([0, 0], 2)] {
            let mut conv = node("Conv", &["x", "w", "b"], &["y"]);
            conv.attribute = vec![
                int_attribute("group", 3),
                ints_attribute("pads", &pads),
                ints_attribute("dilations", &[dilation]),
                ints_attribute("strides", &[1]),
            ];
            let constants = [("w", ramp(&[3, 1, 5])), ("b", ramp(&[3]))];
            assert_eq!(of(&conv, &constants).unwrap().name, "depthwise Conv");
            assert!(difference(&conv, &constants, &ramp(&[2, 3, 16])) < 1e-6, "{pads:?} {dilation}");
        }
    }

    #[test]
    fn places_are_gathered_from_an_input_that_is_not_contiguous() {
        let places = Tensor::new(&[2i64, 0, 2], &candle_core::Device::Cpu).unwrap();
        let constants = [("i", places)];
        let gather = NodeProto { attribute: vec![int_attribute("axis", 1)], ..node("Gather", &["x", "i"], &["y"]) };
        assert_eq!(of(&gather, &constants).unwrap().name, "Gather");
        assert!(difference(&gather, &constants, &ramp(&[2, 3, 4])) < 1e-9);
        let transposed = ramp(&[3, 2]).t().unwrap();
        let output = of(&gather, &constants).unwrap().apply(&transposed).unwrap();
        let expected = transposed.contiguous().unwrap();
        let column = |tensor: &Tensor, index| tensor.narrow(1, index, 1).unwrap().flatten_all().unwrap();
        assert_eq!(column(&output, 0).to_vec1::<f32>().unwrap(), column(&expected, 2).to_vec1::<f32>().unwrap());
    }

    #[test]
    fn a_part_of_a_shape_ends_before_its_end() {
        let sizes = |attributes: &[(&str, i64)]| {
            let attribute = attributes.iter().map(|(name, value)| int_attribute(name, *value)).collect();
            let shape = NodeProto { attribute, ..node("Shape", &["x"], &["y"]) };
            of(&shape, &[]).unwrap().apply(&ramp(&[3, 4, 5])).unwrap().to_vec1::<i64>().unwrap()
        };
        assert_eq!(sizes(&[("end", -1)]), [3, 4]);
        assert_eq!(sizes(&[("start", -2), ("end", 9)]), [4, 5]);
        assert_eq!(sizes(&[("start", 2), ("end", 1)]), [0; 0]);
        assert!(of(&node("Shape", &["x"], &["y"]), &[]).is_none());
    }

    #[test]
    fn other_nodes_are_left_to_candle_onnx() {
        let empty = ("empty", ramp(&[3, 1, 0]));
        let kernel = [("w", ramp(&[4, 2, 1])), ("k", ramp(&[3, 1, 5])), ("m", ramp(&[3, 4])), empty];
        let conv = |kernel: &str, attributes: Vec<AttributeProto>| NodeProto {
            attribute: attributes,
            ..node("Conv", &["x", kernel], &["y"])
        };
        assert!(of(&conv("w", vec![ints_attribute("strides", &[2])]), &kernel).is_none());
        assert!(of(&conv("w", vec![ints_attribute("pads", &[1, 1])]), &kernel).is_none());
        assert!(of(&conv("w", vec![int_attribute("group", 2)]), &kernel).is_none());
        assert!(of(&conv("k", vec![int_attribute("group", 3), ints_attribute("strides", &[2])]), &kernel).is_none());
        assert!(of(&conv("empty", vec![int_attribute("group", 3)]), &kernel).is_none());
        assert!(of(&node("MatMul", &["x", "other"], &["y"]), &kernel).is_none());
        assert!(of(&node("Gemm", &["x", "m", "other"], &["y"]), &kernel).is_none());
        let mut scaled = node("Gemm", &["x", "m"], &["y"]);
        scaled.attribute.push(float_attribute("alpha", 2.));
        assert!(of(&scaled, &kernel).is_none());
    }

    fn of(node: &NodeProto, constants: &[(&str, Tensor)]) -> Option<Operator> {
        let constants = constants.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect();
        Operator::of(node, &constants)
    }
}
