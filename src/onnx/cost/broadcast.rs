//! Operators that work element by element: the shape that broadcasting makes, and the arithmetic on numbers that shapes
//! are made of.

use super::node::Node;
use super::value::Value;
use anyhow::{Context, Result};

/// The output of an operator with one output of the shape that its inputs broadcast to.
///
/// # Errors
/// The shapes do not go together.
pub(super) fn element_wise(node: &Node<'_>) -> Result<Value> {
    let shapes: Vec<&[usize]> = node.given().map(|value| value.shape.as_slice()).collect();
    let shape = broadcast(&shapes).with_context(|| format!("shapes {shapes:?} do not go together"))?;
    let known = arithmetic(node, &shape);
    Ok(Value::with_known(shape, known))
}

/// The shape of numpy's rule: aligned at the end, and a size of 1 is stretched.
pub(super) fn broadcast(shapes: &[&[usize]]) -> Option<Vec<usize>> {
    let rank = shapes.iter().map(|shape| shape.len()).max()?;
    let mut result = vec![1; rank];
    for shape in shapes {
        let begin = rank - shape.len();
        for (size, &own) in result[begin..].iter_mut().zip(*shape) {
            match (*size, own) {
                (size, own) if size == own => {}
                (_, 1) => {}
                (1, own) => *size = own,
                _ => return None,
            }
        }
    }
    Some(result)
}

/// The result's elements, where those of all inputs are known and are vectors of one length, or of one element.
fn arithmetic(node: &Node<'_>, shape: &[usize]) -> Option<Vec<i64>> {
    let length = shape.iter().product();
    let inputs: Vec<&[i64]> = node.given().map(|value| value.known.as_deref()).collect::<Option<_>>()?;
    let at = |input: &[i64], index: usize| match input.len() {
        1 => Some(input[0]),
        own if own == length => Some(input[index]),
        _ => None,
    };
    let element = |index: usize| {
        let values: Vec<i64> = inputs.iter().map(|input| at(input, index)).collect::<Option<_>>()?;
        compute(node.operator(), &values)
    };
    (0..length).map(element).collect()
}

fn compute(operator: &str, values: &[i64]) -> Option<i64> {
    match (operator, values) {
        ("Add", &[a, b]) => a.checked_add(b),
        ("Sub", &[a, b]) => a.checked_sub(b),
        ("Mul", &[a, b]) => a.checked_mul(b),
        ("Div", &[a, b]) => a.checked_div(b),
        ("Neg", &[a]) => a.checked_neg(),
        ("Abs", &[a]) => a.checked_abs(),
        ("Equal", &[a, b]) => Some((a == b).into()),
        ("Less", &[a, b]) => Some((a < b).into()),
        ("Greater", &[a, b]) => Some((a > b).into()),
        ("Not", &[a]) => Some((a == 0).into()),
        ("Where", &[condition, a, b]) => Some(if condition != 0 { a } else { b }),
        ("Max", values) => values.iter().max().copied(),
        ("Min", values) => values.iter().min().copied(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::NodeProto;

    #[test]
    fn sizes_of_one_are_stretched_and_others_have_to_agree() {
        assert_eq!(broadcast(&[&[2, 1, 4], &[3, 1]]), Some(vec![2, 3, 4]));
        assert_eq!(broadcast(&[&[0, 1], &[1, 5]]), Some(vec![0, 5]));
        assert_eq!(broadcast(&[&[2], &[3]]), None);
    }

    #[test]
    fn numbers_of_shapes_are_computed() {
        let result = |operator: &str, inputs: &[Value]| {
            let proto = NodeProto::new(operator, &[], "y");
            let node = Node { proto: &proto, inputs: inputs.iter().map(Some).collect() };
            element_wise(&node).unwrap().known
        };
        let (numbers, two) = (Value::vector(vec![7, -7]), Value::with_known(vec![], Some(vec![2])));
        // Whole numbers are divided towards zero.
        assert_eq!(result("Div", &[numbers.clone(), two.clone()]), Some(vec![3, -3]));
        assert_eq!(result("Sub", &[two.clone(), numbers.clone()]), Some(vec![-5, 9]));
        assert_eq!(result("Div", &[numbers.clone(), Value::vector(vec![0, 1])]), None);
        assert_eq!(result("Add", &[numbers, Value::of_shape(vec![2])]), None);
        assert_eq!(result("Sqrt", &[two]), None);
    }
}
