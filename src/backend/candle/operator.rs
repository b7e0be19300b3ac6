//! Nodes with constant weights that candle computes faster than `candle-onnx` asks it to.
//!
//! Each is a few calls of candle's public functions, prepared from the node's constants when the graph is loaded.
//! Properties that a node does not declare, such as the rank of its input, are checked when it runs.

use std::collections::HashMap;

use candle_core::{D, Result, Tensor};
use candle_onnx::onnx::{AttributeProto, NodeProto};

/// A node that runs without `candle-onnx`. Only its first input is not constant.
#[derive(Debug)]
pub enum Operator {
    /// `MatMul` or `Gemm` with constant weights `[in, out]`, over the last axis.
    Linear { weight: Tensor, bias: Option<Tensor> },
    /// `Conv` with a kernel of size 1, as a matrix product without im2col: weights `[out, in]`, bias `[out, 1]`.
    PointwiseConv { weight: Tensor, bias: Option<Tensor> },
    /// 1-D `Conv` with a kernel for each channel, as a sum of shifted products: one `[channels, 1]` per tap.
    DepthwiseConv1d { taps: Vec<Tensor>, bias: Option<Tensor>, padding: [usize; 2], dilation: usize },
    /// `LayerNormalization` over the last axis.
    LayerNorm { scale: Tensor, bias: Tensor, epsilon: f32 },
    /// `Gather` of listed indices, which `candle-onnx` refuses if the input is not contiguous.
    Select { places: Tensor, axis: usize },
}

impl Operator {
    /// The operator that computes this node, if there is one.
    pub fn of(node: &NodeProto, constants: &HashMap<String, Tensor>) -> Option<Operator> {
        if !node.domain.is_empty() || node.output.len() != 1 || node.input.first()?.is_empty() {
            return None;
        }
        let constant = |index: usize| node.input.get(index).and_then(|name| constants.get(name));
        // The input may be absent, but it must not be computed.
        let optional = |index: usize| match node.input.get(index) {
            None => Some(None),
            Some(name) if name.is_empty() => Some(None),
            Some(name) => constants.get(name).map(|tensor| Some(tensor.clone())),
        };
        match node.op_type.as_str() {
            "MatMul" => {
                let weight = constant(1).filter(|weight| weight.rank() == 2)?;
                Some(Operator::Linear { weight: weight.clone(), bias: None })
            }
            "Gemm" => {
                let is_plain = float(node, "alpha", 1.) == 1. && float(node, "beta", 1.) == 1.;
                if !is_plain || int(node, "transA", 0) != 0 {
                    return None;
                }
                let weight = constant(1).filter(|weight| weight.rank() == 2)?;
                let weight = if int(node, "transB", 0) == 0 { weight.clone() } else { weight.t().ok()? };
                Some(Operator::Linear { weight, bias: optional(2)? })
            }
            "Conv" => conv(node, constant(1)?, optional(2)?),
            "Gather" => {
                let places = constant(1).filter(|places| places.rank() == 1)?;
                let axis = usize::try_from(int(node, "axis", 0)).ok()?;
                let is_counted_from_front = places.to_vec1::<i64>().ok()?.iter().all(|&place| place >= 0);
                is_counted_from_front.then(|| Operator::Select { places: places.clone(), axis })
            }
            "LayerNormalization" => {
                let scale = constant(1).filter(|scale| scale.rank() == 1)?.clone();
                let bias = match optional(2)? {
                    Some(bias) => bias,
                    None => scale.zeros_like().ok()?,
                };
                let is_last = int(node, "axis", -1) == -1 && bias.shape() == scale.shape();
                let epsilon = float(node, "epsilon", 1e-5);
                is_last.then_some(Operator::LayerNorm { scale, bias, epsilon })
            }
            _ => None,
        }
    }

    /// The name of the ONNX operator that it stands for.
    pub fn name(&self) -> &'static str {
        match self {
            Operator::Linear { .. } => "MatMul/Gemm",
            Operator::PointwiseConv { .. } => "pointwise Conv",
            Operator::DepthwiseConv1d { .. } => "depthwise Conv",
            Operator::LayerNorm { .. } => "LayerNormalization",
            Operator::Select { .. } => "Gather",
        }
    }

    /// Computes the node's output.
    ///
    /// # Errors
    /// The shape or dtype does not fit.
    pub fn apply(&self, input: &Tensor) -> Result<Tensor> {
        match self {
            Operator::Linear { weight, bias } => {
                let rows = input.elem_count() / input.dim(D::Minus1)?.max(1);
                let output = if input.rank() > 2 && rows > 0 {
                    let mut shape = input.dims().to_vec();
                    let (features, outputs) = weight.dims2()?;
                    shape.pop();
                    shape.push(outputs);
                    input.reshape((rows, features))?.matmul(weight)?.reshape(shape)?
                } else {
                    input.broadcast_matmul(weight)?
                };
                add(output, bias)
            }
            Operator::PointwiseConv { weight, bias } => {
                let mut shape = input.dims().to_vec();
                let (batch_size, channels) = (input.dim(0)?, input.dim(1)?);
                let weights = weight.broadcast_left(batch_size)?;
                let output = weights.matmul(&input.contiguous()?.reshape((batch_size, channels, ()))?)?;
                shape[1] = weight.dim(0)?;
                add(output, bias)?.reshape(shape)
            }
            Operator::DepthwiseConv1d { taps, bias, padding, dilation } => {
                let padded = input.pad_with_zeros(2, padding[0], padding[1])?;
                let length = (padded.dim(2)? + 1).saturating_sub(dilation * (taps.len() - 1) + 1);
                let products = taps.iter().enumerate();
                let mut products =
                    products.map(|(tap, weight)| padded.narrow(2, tap * dilation, length)?.broadcast_mul(weight));
                let first = products.next().unwrap_or_else(|| input.zeros_like())?;
                add(products.try_fold(first, |sum, product| sum + product?)?, bias)
            }
            Operator::Select { places, axis } => input.contiguous()?.index_select(places, *axis),
            Operator::LayerNorm { scale, bias, epsilon } => {
                if input.dim(D::Minus1)? == scale.elem_count() {
                    candle_nn::ops::layer_norm(&input.contiguous()?, scale, bias, *epsilon)
                } else {
                    candle_nn::ops::layer_norm_slow(input, scale, bias, *epsilon)
                }
            }
        }
    }
}

fn conv(node: &NodeProto, weight: &Tensor, bias: Option<Tensor>) -> Option<Operator> {
    let all = |name: &str, value: i64| ints(node, name).iter().all(|&given| given == value);
    let pads = ints(node, "pads");
    let is_explicit = attribute(node, "auto_pad").is_none_or(|attribute| attribute.s == b"NOTSET");
    if !is_explicit || !all("strides", 1) || pads.iter().any(|&pad| pad < 0) {
        return None;
    }
    let bias = match bias {
        Some(bias) => Some(bias.reshape(((), 1)).ok()?),
        None => None,
    };
    let group = int(node, "group", 1);
    let (channels_out, channels_in) = (weight.dim(0).ok()?, weight.dim(1).ok()?);
    let spatial = weight.dims().get(2..)?;
    if group == 1 && all("pads", 0) && !spatial.is_empty() && spatial.iter().all(|&size| size == 1) {
        let weight = weight.contiguous().ok()?.reshape((channels_out, channels_in)).ok()?;
        return Some(Operator::PointwiseConv { weight, bias });
    }
    let padding = match *pads {
        [] => [0, 0],
        [before, after] => [before as usize, after as usize],
        _ => return None,
    };
    if spatial.len() != 1 || channels_in != 1 || group != channels_out as i64 {
        return None;
    }
    let taps = (0..spatial[0]).map(|tap| weight.narrow(2, tap, 1)?.reshape((channels_out, 1)));
    let taps = taps.collect::<Result<Vec<_>>>().ok()?;
    let dilation = usize::try_from(ints(node, "dilations").first().copied().unwrap_or(1)).ok()?;
    Some(Operator::DepthwiseConv1d { taps, bias, padding, dilation })
}

fn add(output: Tensor, bias: &Option<Tensor>) -> Result<Tensor> {
    match bias {
        Some(bias) => output.broadcast_add(bias),
        None => Ok(output),
    }
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
            assert!(matches!(of(&conv, &constants), Some(Operator::PointwiseConv { .. })));
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
            assert!(matches!(of(&conv, &constants), Some(Operator::DepthwiseConv1d { .. })));
            assert!(difference(&conv, &constants, &ramp(&[2, 3, 16])) < 1e-6, "{pads:?} {dilation}");
        }
    }

    #[test]
    fn places_are_gathered_from_an_input_that_is_not_contiguous() {
        let places = Tensor::new(&[2i64, 0, 2], &candle_core::Device::Cpu).unwrap();
        let constants = [("i", places)];
        let gather = NodeProto { attribute: vec![int_attribute("axis", 1)], ..node("Gather", &["x", "i"], &["y"]) };
        assert!(matches!(of(&gather, &constants), Some(Operator::Select { .. })));
        assert!(difference(&gather, &constants, &ramp(&[2, 3, 4])) < 1e-9);
        let transposed = ramp(&[3, 2]).t().unwrap();
        let output = of(&gather, &constants).unwrap().apply(&transposed).unwrap();
        let expected = transposed.contiguous().unwrap();
        let column = |tensor: &Tensor, index| tensor.narrow(1, index, 1).unwrap().flatten_all().unwrap();
        assert_eq!(column(&output, 0).to_vec1::<f32>().unwrap(), column(&expected, 2).to_vec1::<f32>().unwrap());
    }

    #[test]
    fn other_nodes_are_left_to_candle_onnx() {
        let kernel = [("w", ramp(&[4, 2, 1])), ("k", ramp(&[3, 1, 5])), ("m", ramp(&[3, 4]))];
        let conv = |kernel: &str, attributes: Vec<AttributeProto>| NodeProto {
            attribute: attributes,
            ..node("Conv", &["x", kernel], &["y"])
        };
        assert!(of(&conv("w", vec![ints_attribute("strides", &[2])]), &kernel).is_none());
        assert!(of(&conv("w", vec![ints_attribute("pads", &[1, 1])]), &kernel).is_none());
        assert!(of(&conv("w", vec![int_attribute("group", 2)]), &kernel).is_none());
        assert!(of(&conv("k", vec![int_attribute("group", 3), ints_attribute("strides", &[2])]), &kernel).is_none());
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
