//! The floating-point operations of one node, or as many of integers.
//!
//! Matrix products and convolutions count, each multiply-add as two operations; everything else counts nothing, which is
//! what published counters do (fvcore's `FlopCountAnalysis` and the table of torchvision's models, whose figures are
//! multiply-adds: half of these). Biases, activations, normalisations and softmax are left out by both.

use anyhow::{Context, Result, ensure};
use rten_shape_inference::SymTensor;

use super::shapes::{Inputs, elements, input, sizes};
use crate::onnx::proto::NodeProto;

/// `2·n·k` for a product with `n` elements that sums over `k`; 0 for an operator that is no product.
///
/// # Errors
/// The operands do not fit, or there are more operations than a number holds.
pub(super) fn flops(node: &NodeProto, inputs: &Inputs, outputs: &[SymTensor]) -> Result<u64> {
    let operator = node.op_type.as_str();
    // The second operand of a quantised product is after the scale and zero point of the first.
    let operands = || {
        Ok::<_, anyhow::Error>((
            sizes(input(inputs, 0)?)?,
            sizes(input(inputs, if operator.starts_with("QLinear") { 3 } else { 1 })?)?,
        ))
    };
    let too_many = || "more operations than can be counted";
    let summed: u64 = match operator {
        "MatMul" | "MatMulInteger" | "QLinearMatMul" | "Gemm" => {
            let (mut left, mut right) = operands()?;
            if node.int("transA").unwrap_or(0) != 0 {
                left.reverse();
            }
            if node.int("transB").unwrap_or(0) != 0 {
                right.reverse();
            }
            let inner = left.last().copied();
            ensure!(inner == right.iter().nth_back(1).copied(), "shapes {left:?} and {right:?} do not fit");
            inner.unwrap_or(1) as u64
        }
        // Each output sums over the channels of its group and the window.
        "Conv" | "ConvInteger" | "QLinearConv" => {
            let (input, weights) = operands()?;
            let group = node.int("group").and_then(|group| usize::try_from(group).ok()).unwrap_or(1);
            let (channels, of_filter) = (input.get(1).copied().unwrap_or(0), weights.get(1..).unwrap_or_default());
            let of_group = of_filter.first().copied().unwrap_or(0);
            ensure!(group.checked_mul(of_group) == Some(channels), "{channels} channels for filters of {of_group}");
            elements(of_filter).with_context(too_many)?
        }
        _ => return Ok(0),
    };
    let made = outputs.first().map(sizes).transpose()?.and_then(|sizes| elements(&sizes));
    made.and_then(|made| made.checked_mul(summed)?.checked_mul(2)).with_context(too_many)
}
