//! What a node computes: floating-point operations, and products of two matrices.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use rten_shape_inference::SymTensor;

use super::shapes::{Inputs, elements, input, sizes};
use crate::onnx::proto::NodeProto;

/// The floating-point or integer operations of a node: `2·n·k` for a product with `n` elements, each a sum over `k`; 0
/// for an operator that is not a product.
pub(super) fn flops(node: &NodeProto, inputs: &Inputs, outputs: &[SymTensor]) -> Result<u64> {
    let operator = node.op_type.as_str();
    let shape = |place: usize| sizes(input(inputs, place)?);
    let operands = || Ok::<_, anyhow::Error>((shape(0)?, shape(second_operand(operator))?));
    let made = || Ok::<_, anyhow::Error>(outputs.first().map(sizes).transpose()?.and_then(|sizes| elements(&sizes)));
    let (places, summed): (Option<u64>, Option<u64>) = match operator {
        "MatMul" | "MatMulInteger" | "QLinearMatMul" | "Gemm" => {
            let (mut left, mut right) = operands()?;
            if node.int("transA").unwrap_or(0) != 0 {
                left.reverse();
            }
            if node.int("transB").unwrap_or(0) != 0 {
                right.reverse();
            }
            let inner = left.last().copied();
            let of_right = if right.len() == 1 { right.last() } else { right.iter().nth_back(1) };
            ensure!(inner == of_right.copied(), "shapes {left:?} and {right:?} do not fit");
            (made()?, Some(inner.unwrap_or(1) as u64))
        }
        // Each output sums over the channels of its group and the window.
        "Conv" | "ConvInteger" | "QLinearConv" => {
            let (input, weights) = operands()?;
            let group = node.int("group").and_then(|group| usize::try_from(group).ok()).unwrap_or(1);
            let (channels, of_filter) = (input.get(1).copied().unwrap_or(0), weights.get(1..).unwrap_or_default());
            let of_group = of_filter.first().copied().unwrap_or(0);
            ensure!(group.checked_mul(of_group) == Some(channels), "{channels} channels for filters of {of_group}");
            (made()?, elements(of_filter))
        }
        // Each input is multiplied by all weights of its channel.
        "ConvTranspose" => {
            let (input, weights) = operands()?;
            (elements(&input), elements(weights.get(1..).unwrap_or_default()))
        }
        // Each step multiplies its input and its state by the weights of all gates.
        "GRU" | "LSTM" => {
            let (input, weights) = operands()?;
            let of_state = elements(&shape(2)?);
            let all = elements(&weights).zip(of_state).and_then(|(one, other)| one.checked_add(other));
            (elements(&input[..input.len().min(2)]), all)
        }
        "Einsum" => (Some(1), Some(multiply_adds(node, inputs).context("an equation whose cost is not known")?)),
        _ => return Ok(0),
    };
    let all = places.zip(summed).and_then(|(places, summed)| places.checked_mul(summed)?.checked_mul(2));
    all.context("more operations than can be counted")
}

/// The multiply-adds of an `Einsum`: none for one tensor, and for two tensors one per combination of their indices.
/// Returns `None` for more tensors and for an equation with an ellipsis.
fn multiply_adds(node: &NodeProto, inputs: &Inputs) -> Option<u64> {
    let equation = std::str::from_utf8(node.attribute("equation")?.s.as_deref()?).ok()?;
    let terms: Vec<&str> = equation.split("->").next()?.split(',').collect();
    if terms.len() == 1 {
        return Some(0);
    }
    let mut indices: BTreeMap<char, u64> = BTreeMap::new();
    for (place, term) in terms.iter().enumerate() {
        let shape = sizes(input(inputs, place).ok()?).ok()?;
        let names: Vec<char> = term.chars().filter(|name| !name.is_whitespace()).collect();
        if names.len() != shape.len() {
            return None;
        }
        for (name, size) in names.into_iter().zip(shape) {
            let known = indices.entry(name).or_default();
            *known = (*known).max(size as u64);
        }
    }
    let all = indices.values().try_fold(1_u64, |product, &size| product.checked_mul(size));
    all.filter(|_| terms.len() == 2 && !equation.contains('.'))
}

/// How many products of two matrices a node computes. If the right operand is a batch of matrices, it is one per matrix
/// of the result. If it is one matrix, the rows of all matrices on the left make one product.
pub(super) fn matrix_products(node: &NodeProto, inputs: &Inputs, outputs: &[Vec<usize>]) -> u64 {
    let operator = node.op_type.as_str();
    let is_product = operator.contains("MatMul") || ["Gemm", "Einsum"].contains(&operator);
    let rank = |place: usize| input(inputs, place).and_then(sizes).map_or(0, |sizes| sizes.len());
    let all = |sizes: &[usize]| elements(sizes).unwrap_or(u64::MAX);
    match outputs.first() {
        // One per step and direction.
        Some(made) if ["GRU", "LSTM"].contains(&operator) => all(&made[..made.len().min(2)]),
        _ if !is_product => 0,
        Some(made) if rank(second_operand(operator)) > 2 => all(&made[..made.len().saturating_sub(2)]),
        _ => 1,
    }
}

/// The position of the second operand. In a quantised product, it comes after the scale and zero point of the first.
fn second_operand(operator: &str) -> usize {
    if operator.starts_with("QLinear") { 3 } else { 1 }
}
