//! The shapes of operators that move, cut and repeat elements without computing anything of them, and the numbers that
//! shapes are made of on their way through.

use super::broadcast::broadcast;
use super::node::Node;
use super::value::{Value, elements};
use anyhow::{Context, Result, anyhow, bail, ensure};

/// The outputs of such a node.
///
/// # Errors
/// The operator is none of those here, or its shape cannot be known before it runs; the message names it.
pub(super) fn outputs(node: &Node<'_>) -> Result<Vec<Value>> {
    let one = match node.operator() {
        "Concat" => concatenated(node)?,
        "Constant" => constant(node)?,
        "ConstantOfShape" => constant_of_shape(node)?,
        "Expand" => expanded(node)?,
        "Flatten" => flattened(node)?,
        "Gather" => gathered(node)?,
        "GatherElements" => Value::of_shape(node.input(1)?.shape.clone()),
        "Pad" => padded(node)?,
        "Range" => range(node)?,
        "Reshape" => reshaped(node)?,
        "Shape" => shape_of(node)?,
        "Size" => {
            let count = elements(&node.input(0)?.shape).and_then(|count| i64::try_from(count).ok());
            Value::with_known(vec![], count.map(|count| vec![count]))
        }
        "Slice" => sliced(node)?,
        "Split" => return split(node),
        "Squeeze" => squeezed(node)?,
        "Transpose" => transposed(node)?,
        "Unsqueeze" => unsqueezed(node)?,
        _ => bail!("an operator whose cost is not known"),
    };
    Ok(vec![one])
}

fn concatenated(node: &Node<'_>) -> Result<Value> {
    let mut shape = node.input(0)?.shape.clone();
    let axis = node.axis(node.int("axis", 0), shape.len())?;
    let fits = |other: &[usize]| {
        other.len() == shape.len() && (0..shape.len()).all(|place| place == axis || other[place] == shape[place])
    };
    if let Some(other) = node.given().find(|value| !fits(&value.shape)) {
        bail!("shapes {shape:?} and {:?} do not fit", other.shape);
    }
    shape[axis] = node.given().map(|value| value.shape[axis]).sum();
    let known: Option<Vec<&[i64]>> = node.given().map(|value| value.known.as_deref()).collect();
    let known = known.filter(|_| shape.len() == 1).map(|known| known.concat());
    Ok(Value::with_known(shape, known))
}

fn constant(node: &Node<'_>) -> Result<Value> {
    let attribute = |name: &str| node.proto.attribute(name);
    if let Some(tensor) = attribute("value").and_then(|attribute| attribute.t.as_ref()) {
        return Value::of_tensor(tensor);
    }
    if let Some(number) = node.proto.int("value_int") {
        return Ok(Value::with_known(vec![], Some(vec![number])));
    }
    if let Some(numbers) = node.ints("value_ints") {
        return Ok(Value::vector(numbers.to_vec()));
    }
    if attribute("value_float").is_some() {
        return Ok(Value::of_shape(vec![]));
    }
    let floats = attribute("value_floats").context("a constant of an unknown kind")?;
    Ok(Value::of_shape(vec![floats.floats.len()]))
}

fn constant_of_shape(node: &Node<'_>) -> Result<Value> {
    let shape = node.sizes(node.numbers(0)?)?;
    let value = node.proto.attribute("value").and_then(|attribute| attribute.t.as_ref());
    let number = value.map(Value::of_tensor).transpose()?.and_then(|value| value.known?.first().copied());
    // More elements than can be of use are not made.
    let count = elements(&shape).filter(|&count| count <= 4096);
    let known = number.zip(count).map(|(number, count)| vec![number; count as usize]);
    Ok(Value::with_known(shape, known))
}

fn expanded(node: &Node<'_>) -> Result<Value> {
    let input = node.input(0)?;
    let asked_for = node.sizes(node.numbers(1)?)?;
    let do_not_fit = || format!("{:?} cannot be stretched to {asked_for:?}", input.shape);
    let shape = broadcast(&[&input.shape, &asked_for]).with_context(do_not_fit)?;
    let known = input.known.clone().filter(|_| shape == input.shape);
    Ok(Value::with_known(shape, known))
}

fn flattened(node: &Node<'_>) -> Result<Value> {
    let shape = &node.input(0)?.shape;
    let axis = match node.int("axis", 1) {
        axis if usize::try_from(axis) == Ok(shape.len()) => shape.len(),
        axis => node.axis(axis, shape.len())?,
    };
    let too_large = || "more elements than can be counted";
    let count = |sizes: &[usize]| elements(sizes).and_then(|count| usize::try_from(count).ok()).with_context(too_large);
    Ok(Value::of_shape(vec![count(&shape[..axis])?, count(&shape[axis..])?]))
}

fn gathered(node: &Node<'_>) -> Result<Value> {
    let (data, indices) = (node.input(0)?, node.input(1)?);
    let axis = node.axis(node.int("axis", 0), data.shape.len())?;
    let shape = [&data.shape[..axis], &indices.shape, &data.shape[axis + 1..]].concat();
    let known = match (&data.known, &indices.known) {
        (Some(data), Some(indices)) if node.input(0)?.shape.len() == 1 => {
            let element = |&index: &i64| node.axis(index, data.len()).map(|place| data[place]);
            Some(indices.iter().map(element).collect::<Result<_, _>>()?)
        }
        _ => None,
    };
    Ok(Value::with_known(shape, known))
}

fn padded(node: &Node<'_>) -> Result<Value> {
    let shape = &node.input(0)?.shape;
    let rank = shape.len();
    let pads = node.ints_or_input("pads", 1)?.filter(|pads| pads.len() == 2 * rank);
    let pads = pads.filter(|_| node.optional(3).is_none()).context("pads that do not fit")?;
    let along = |axis: usize| {
        let size = (shape[axis] as i64).checked_add(pads[axis]).and_then(|size| size.checked_add(pads[rank + axis]));
        node.size(size.unwrap_or(-1))
    };
    Ok(Value::of_shape((0..rank).map(along).collect::<Result<_, _>>()?))
}

fn range(node: &Node<'_>) -> Result<Value> {
    let number = |place| node.numbers(place)?.first().copied().context("no number");
    let (begin, end, step) = (number(0)?, number(1)?, number(2)?);
    ensure!(step != 0, "a step of 0");
    let count = (i128::from(end) - i128::from(begin) + i128::from(step) - i128::from(step.signum())) / i128::from(step);
    let count = usize::try_from(count.max(0)).context("more elements than can be counted")?;
    let known = (count <= 4096).then(|| (0..count as i64).map(|index| begin + index * step).collect());
    Ok(Value::with_known(vec![count], known))
}

fn reshaped(node: &Node<'_>) -> Result<Value> {
    let input = node.input(0)?;
    let asked_for = node.numbers(1)?;
    let keeps_zeros = node.int("allowzero", 0) != 0;
    let own = |place: usize| input.shape.get(place).copied().context("a 0 without a size to take");
    let mut shape: Vec<usize> = Vec::with_capacity(asked_for.len());
    let mut open = None;
    for (place, &number) in asked_for.iter().enumerate() {
        shape.push(match number {
            -1 if open.is_none() => {
                open = Some(place);
                1
            }
            0 if !keeps_zeros => own(place)?,
            number => node.size(number)?,
        });
    }
    let do_not_fit = || format!("{:?} cannot become {asked_for:?}", input.shape);
    let (count, others) =
        (elements(&input.shape).with_context(do_not_fit)?, elements(&shape).with_context(do_not_fit)?);
    if let Some(open) = open {
        shape[open] = count.checked_div(others).unwrap_or(0) as usize;
    }
    ensure!(elements(&shape) == Some(count), do_not_fit());
    Ok(Value::with_known(shape, input.known.clone()))
}

fn shape_of(node: &Node<'_>) -> Result<Value> {
    let shape = &node.input(0)?.shape;
    let place = |number: i64| {
        let from_begin = if number < 0 { number.saturating_add(shape.len() as i64) } else { number };
        from_begin.clamp(0, shape.len() as i64) as usize
    };
    let (begin, end) = (place(node.int("start", 0)), place(node.int("end", i64::MAX)));
    let numbers = shape.get(begin..end).unwrap_or_default();
    Ok(Value::vector(numbers.iter().map(|&size| size as i64).collect()))
}

fn sliced(node: &Node<'_>) -> Result<Value> {
    let input = node.input(0)?;
    let numbers = |name: &str, place| node.ints_or_input(name, place);
    let unknown = || "no begin or no end";
    let begins = numbers("starts", 1)?.with_context(unknown)?;
    let ends = numbers("ends", 2)?.filter(|ends| ends.len() == begins.len()).with_context(unknown)?;
    let of_each = |given: Option<&[i64]>, otherwise: fn(usize) -> i64| {
        let given = given.map_or_else(|| (0..begins.len()).map(otherwise).collect(), <[i64]>::to_vec);
        if given.len() == begins.len() { Ok(given) } else { Err(anyhow!(unknown())) }
    };
    let axes = of_each(numbers("axes", 3)?, |place| place as i64)?;
    let steps = of_each(numbers("steps", 4)?, |_| 1)?;
    let mut shape = input.shape.clone();
    let mut kept = input.known.clone().filter(|_| shape.len() == 1 && axes.len() == 1);
    for (index, &step) in steps.iter().enumerate() {
        let axis = node.axis(axes[index], shape.len())?;
        let places = slice_places(input.shape[axis], begins[index], ends[index], step);
        let (begin, count) = places.context("a step of 0")?;
        shape[axis] = count;
        kept = kept.map(|known| {
            let place = |number: usize| (begin as i128 + number as i128 * i128::from(step)) as usize;
            (0..count).filter_map(|number| known.get(place(number)).copied()).collect()
        });
    }
    Ok(Value::with_known(shape, kept))
}

/// Where a slice of `size` elements begins, and how many it takes.
fn slice_places(size: usize, begin: i64, end: i64, step: i64) -> Option<(usize, usize)> {
    let size = i128::try_from(size).ok()?;
    let from_begin = |place: i64| i128::from(place) + if place < 0 { size } else { 0 };
    let (begin, end, step) = (from_begin(begin), from_begin(end), i128::from(step));
    let (begin, end) = match step {
        0 => return None,
        1.. => (begin.clamp(0, size), end.clamp(0, size)),
        _ => (begin.clamp(0, (size - 1).max(0)), end.clamp(-1, size)),
    };
    let count = (end - begin + step - step.signum()) / step;
    Some((begin as usize, if size == 0 { 0 } else { count.max(0) as usize }))
}

fn split(node: &Node<'_>) -> Result<Vec<Value>> {
    let shape = &node.input(0)?.shape;
    let axis = node.axis(node.int("axis", 0), shape.len())?;
    let parts = node.proto.outputs.len().max(1);
    let lengths: Vec<usize> = match node.ints_or_input("split", 1)? {
        Some(lengths) => node.sizes(lengths)?,
        None => {
            let longest = shape[axis].div_ceil(parts);
            (0..parts).map(|part| longest.min(shape[axis].saturating_sub(part * longest))).collect()
        }
    };
    let part = |length: usize| {
        let mut shape = shape.clone();
        shape[axis] = length;
        Value::of_shape(shape)
    };
    Ok(lengths.into_iter().map(part).collect())
}

fn squeezed(node: &Node<'_>) -> Result<Value> {
    let input = node.input(0)?;
    let rank = input.shape.len();
    let axes: Vec<usize> = match node.ints_or_input("axes", 1)? {
        Some(axes) => node.axes(axes, rank)?,
        None => (0..rank).filter(|&axis| input.shape[axis] == 1).collect(),
    };
    if let Some(axis) = axes.iter().find(|&&axis| input.shape[axis] != 1) {
        bail!("axis {axis} of {:?} is not 1", input.shape);
    }
    let kept = (0..rank).filter(|axis| !axes.contains(axis)).map(|axis| input.shape[axis]).collect();
    Ok(Value::with_known(kept, input.known.clone()))
}

fn transposed(node: &Node<'_>) -> Result<Value> {
    let shape = &node.input(0)?.shape;
    let order: Vec<usize> = match node.ints("perm") {
        Some(order) => node.axes(order, shape.len())?,
        None => (0..shape.len()).rev().collect(),
    };
    ensure!(order.len() == shape.len(), "an order of {} axes for {}", order.len(), shape.len());
    Ok(Value::of_shape(order.into_iter().map(|axis| shape[axis]).collect()))
}

fn unsqueezed(node: &Node<'_>) -> Result<Value> {
    let input = node.input(0)?;
    let axes = node.ints_or_input("axes", 1)?.context("no axes")?;
    let rank = input.shape.len() + axes.len();
    let axes: Vec<usize> = node.axes(axes, rank)?;
    let mut own = input.shape.iter().copied();
    let shape: Vec<usize> =
        (0..rank).map(|axis| if axes.contains(&axis) { 1 } else { own.next().unwrap_or(1) }).collect();
    Ok(Value::with_known(shape, input.known.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::{AttributeProto, NodeProto};

    fn result(operator: &str, attributes: &[(&str, i64)], inputs: &[Value]) -> Result<Value> {
        let mut proto = NodeProto::new(operator, &[], "y");
        proto.attributes = attributes.iter().map(|(name, value)| AttributeProto::int(name, *value)).collect();
        let node = Node { proto: &proto, inputs: inputs.iter().map(Some).collect() };
        outputs(&node).map(|mut values| values.remove(0))
    }

    fn shape(sizes: &[usize]) -> Value {
        Value::of_shape(sizes.to_vec())
    }

    fn numbers(numbers: &[i64]) -> Value {
        Value::vector(numbers.to_vec())
    }

    #[test]
    fn a_shape_goes_through_the_operators_that_exporters_compute_it_with() {
        let of = result("Shape", &[], &[shape(&[2, 3, 5])]).unwrap();
        assert_eq!(of, numbers(&[2, 3, 5]));
        let batch = result("Gather", &[], &[of.clone(), Value::with_known(vec![], Some(vec![0]))]).unwrap();
        let batch = result("Unsqueeze", &[], &[batch, numbers(&[0])]).unwrap();
        let rest = result("Slice", &[], &[of, numbers(&[-2]), numbers(&[i64::MAX])]).unwrap();
        let all = result("Concat", &[("axis", 0)], &[batch, rest]).unwrap();
        assert_eq!(all, numbers(&[2, 3, 5]));
        assert_eq!(result("Reshape", &[], &[shape(&[30]), all]).unwrap(), shape(&[2, 3, 5]));
    }

    #[test]
    fn reshape_fills_what_is_left_open_and_refuses_what_does_not_fit() {
        let reshape = |target: &[i64]| result("Reshape", &[], &[shape(&[2, 6, 5]), numbers(target)]);
        assert_eq!(reshape(&[0, -1]).unwrap(), shape(&[2, 30]));
        assert_eq!(reshape(&[3, 4, -1]).unwrap(), shape(&[3, 4, 5]));
        assert!(reshape(&[7, -1]).unwrap_err().to_string().starts_with("[2, 6, 5] cannot become"));
        let unknown = result("Reshape", &[], &[shape(&[2]), shape(&[1])]).unwrap_err().to_string();
        assert!(unknown.contains("depends on the values of the inputs"), "{unknown}");
    }

    #[test]
    fn slices_count_from_both_ends_and_backwards() {
        assert_eq!(slice_places(10, 2, -1, 3), Some((2, 3)));
        assert_eq!(slice_places(10, 0, i64::MAX, 1), Some((0, 10)));
        assert_eq!(slice_places(10, -1, i64::MIN, -1), Some((9, 10)));
        assert_eq!(slice_places(10, 8, 2, 1), Some((8, 0)));
        assert_eq!(slice_places(0, 0, 5, 1), Some((0, 0)));
        assert_eq!(slice_places(10, 0, 5, 0), None);
        let backwards = [numbers(&[1, 2, 3]), numbers(&[-1]), numbers(&[i64::MIN]), numbers(&[0]), numbers(&[-1])];
        assert_eq!(result("Slice", &[], &backwards).unwrap(), numbers(&[3, 2, 1]));
    }

    #[test]
    fn a_range_ends_before_its_end() {
        let range = |values: [i64; 3]| {
            let inputs = values.map(|value| Value::with_known(vec![], Some(vec![value])));
            result("Range", &[], &inputs).unwrap()
        };
        assert_eq!(range([1, 6, 2]), numbers(&[1, 3, 5]));
        assert_eq!(range([3, 0, -1]), numbers(&[3, 2, 1]));
        assert_eq!(range([3, 3, 1]), numbers(&[]));
    }
}
