//! The floating-point operations of one node, or as many of integers.
//!
//! Matrix products and convolutions count, each multiply-add as two operations; everything else counts nothing, which is
//! what published counters do (fvcore's `FlopCountAnalysis` and the table of torchvision's models, whose figures are
//! multiply-adds: half of these). Biases, activations, normalisations and softmax are left out by both.

use super::node::Node;
use super::shapes::QLINEAR_WEIGHTS;
use super::value::{Value, elements};
use anyhow::{Context, Result};

/// `2·n·k` for a product with `n` elements that sums over `k`; 0 for an operator that is no product.
///
/// # Errors
/// More operations than a number holds.
pub(super) fn flops(node: &Node<'_>, outputs: &[Value]) -> Result<u64> {
    let summed: u64 = match node.operator() {
        "MatMul" | "MatMulInteger" | "QLinearMatMul" => node.input(0)?.shape.last().map_or(1, |&inner| inner as u64),
        "Gemm" => {
            let shape = &node.input(0)?.shape;
            let inner = if node.int("transA", 0) == 0 { shape.last() } else { shape.first() };
            inner.map_or(1, |&inner| inner as u64)
        }
        // Each output sums over the channels of its group and the window.
        "Conv" | "ConvInteger" | "QLinearConv" => {
            let weights = if node.operator() == "QLinearConv" { QLINEAR_WEIGHTS } else { 1 };
            let of_filter = node.input(weights)?.shape.get(1..).unwrap_or_default();
            elements(of_filter).context("more operations than can be counted")?
        }
        _ => return Ok(0),
    };
    let made = outputs.first().and_then(|output| elements(&output.shape));
    let flops = made.and_then(|made| made.checked_mul(summed)?.checked_mul(2));
    flops.context("more operations than can be counted")
}
