//! `LSTM` in either direction or both, which `candle-onnx` computes forward only.

use candle_core::{DType, Result, Tensor, bail};
use candle_nn::ops::sigmoid;
use candle_onnx::onnx::NodeProto;

use super::operator::{Operator, attribute, given, has_input, int};

/// The operator of an `LSTM` node. `None` if it has peepholes, other activations than the defaults, or another rare
/// form.
pub fn of(node: &NodeProto) -> Option<Operator> {
    let has_other = ["activation_alpha", "activation_beta", "clip"].iter().any(|name| attribute(node, name).is_some());
    let activations = attribute(node, "activations").map_or(&[][..], |own| own.strings.as_slice());
    let usual = ["Sigmoid", "Tanh", "Tanh"].into_iter().cycle();
    let is_other = activations.iter().zip(usual).any(|(own, usual)| own.as_slice() != usual.as_bytes());
    let has_peepholes = has_input(node, 7);
    if has_other || is_other || has_peepholes || int(node, "input_forget", 0) != 0 || int(node, "layout", 0) != 0 {
        return None;
    }
    let is_backward = match attribute(node, "direction").map(|direction| direction.s.as_slice()) {
        None | Some(b"forward") => vec![false],
        Some(b"reverse") => vec![true],
        Some(b"bidirectional") => vec![false, true],
        Some(_) => return None,
    };
    Operator::of_all("LSTM", move |inputs| {
        if let Some(Some(lengths)) = inputs.get(4) {
            let length = given(inputs, 0)?.dim(0)? as i64;
            let lengths: Vec<i64> = lengths.to_dtype(DType::I64)?.flatten_all()?.to_vec1()?;
            if lengths.iter().any(|own| *own != length) {
                bail!("LSTM: sequences that are shorter than the longest are not supported here")
            }
        }
        let mut of_directions = [Vec::new(), Vec::new(), Vec::new()];
        for (direction, &is_backward) in is_backward.iter().enumerate() {
            let computed = one_direction(inputs, direction, is_backward)?;
            of_directions.iter_mut().zip(computed).for_each(|(all, own)| all.push(own));
        }
        // All states are `[length, directions, batch, hidden]`, the last ones `[directions, batch, hidden]`.
        let [all, last, cell] = of_directions;
        Ok(vec![Tensor::stack(&all, 1)?, Tensor::stack(&last, 0)?, Tensor::stack(&cell, 0)?])
    })
}

/// The states after each element of the sequence, and the last state and cell.
fn one_direction(inputs: &[Option<Tensor>], direction: usize, is_backward: bool) -> Result<[Tensor; 3]> {
    let own = |place: usize| match inputs.get(place) {
        Some(Some(input)) => input.get(direction)?.contiguous().map(Some),
        _ => Ok(None),
    };
    let x = given(inputs, 0)?.contiguous()?;
    let (length, batch, features) = x.dims3()?;
    let (weights, recurrence) = (given(inputs, 1)?.get(direction)?, given(inputs, 2)?.get(direction)?);
    let (gates, recurrence) = (weights.dim(0)?, recurrence.t()?.contiguous()?);
    let hidden = gates / 4;
    let mut of_inputs = x.reshape((length * batch, features))?.matmul(&weights.t()?)?;
    if let Some(biases) = own(3)? {
        // The biases of the inputs, and of the recurrence.
        of_inputs = of_inputs.broadcast_add(&(biases.narrow(0, 0, gates)? + biases.narrow(0, gates, gates)?)?)?;
    }
    let of_inputs = of_inputs.reshape((length, batch, gates))?;
    let initial = |place: usize| match own(place)? {
        Some(state) => Ok(state),
        None => Tensor::zeros((batch, hidden), x.dtype(), x.device()),
    };
    let (mut state, mut cell) = (initial(5)?, initial(6)?);
    let mut states = Vec::with_capacity(length);
    for step in 0..length {
        let place = if is_backward { length - 1 - step } else { step };
        let sums = (of_inputs.get(place)? + state.matmul(&recurrence)?)?;
        // ONNX's order is input, output, forget, cell.
        let gate = |number: usize| sums.narrow(1, number * hidden, hidden);
        let opened = sigmoid(&sums.narrow(1, 0, 3 * hidden)?)?;
        let [input, output, forget] = [0, 1, 2].map(|number| opened.narrow(1, number * hidden, hidden));
        cell = ((forget? * &cell)? + (input? * gate(3)?.tanh()?)?)?;
        state = (output? * cell.tanh()?)?;
        states.push(state.clone());
    }
    if is_backward {
        states.reverse();
    }
    Ok([Tensor::stack(&states, 0)?, state, cell])
}

#[cfg(test)]
mod tests {
    use candle_core::Device;
    use candle_onnx::onnx::AttributeProto;

    use super::super::plan::tests::{float_attribute, int_attribute, node, ramp, text_attribute};
    use super::*;

    fn with(inputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
        NodeProto { attribute, ..node("LSTM", inputs, &["all", "last", "cell"]) }
    }

    /// Compares with the numbers of ONNX Runtime 1.32.
    fn is_near(computed: &Tensor, shape: &[usize], expected: &[f32]) {
        assert_eq!(computed.dims(), shape);
        let expected = Tensor::new(expected, &Device::Cpu).unwrap();
        let difference = (computed.flatten_all().unwrap() - expected).unwrap().abs().unwrap().max(0).unwrap();
        assert!(difference.to_scalar::<f32>().unwrap() < 2e-5, "{computed}");
    }

    #[test]
    fn both_directions_begin_with_their_own_states() {
        let attributes = vec![text_attribute("direction", "bidirectional"), int_attribute("hidden_size", 2)];
        let lstm = of(&with(&["x", "w", "r", "b", "", "h", "c"], attributes)).unwrap();
        let recurrence = (ramp(&[2, 8, 2]) * 0.9).unwrap();
        let state = ramp(&[2, 1, 2]);
        let inputs = [ramp(&[3, 1, 2]), ramp(&[2, 8, 2]), recurrence, ramp(&[2, 16]), state.clone()];
        let [x, w, r, b, h] = inputs.map(Some);
        let computed = lstm.compute(&[x, w, r, b, None, h, Some((state * 0.5).unwrap())]).unwrap();
        let all = [
            -0.16492, 0.12461, 0.11207, 0.40109, -0.19111, 0.12459, 0.18985, 0.22083, -0.32620, 0.10748, 0.09320,
            0.17268,
        ];
        is_near(&computed[0], &[3, 2, 1, 2], &all);
        is_near(&computed[1], &[2, 1, 2], &[-0.32620, 0.10748, 0.11207, 0.40109]);
        is_near(&computed[2], &[2, 1, 2], &[-0.80451, 0.29450, 0.26018, 0.53507]);
    }

    #[test]
    fn backwards_the_last_state_is_that_of_the_first_element() {
        let attributes = vec![text_attribute("direction", "reverse"), int_attribute("hidden_size", 2)];
        let lstm = of(&with(&["x", "w", "r"], attributes)).unwrap();
        let computed = lstm.compute(&[ramp(&[3, 2, 2]), ramp(&[1, 8, 2]), ramp(&[1, 8, 2])].map(Some)).unwrap();
        let all = [
            0.15180, 0.00273, -0.04240, 0.00469, 0.15766, -0.01997, -0.06146, 0.04005, 0.10271, -0.02548, -0.05171,
            0.03987,
        ];
        is_near(&computed[0], &[3, 1, 2, 2], &all);
        is_near(&computed[1], &[1, 2, 2], &all[..4]);
        is_near(&computed[2], &[1, 2, 2], &[0.26174, 0.00602, -0.09406, 0.00897]);
    }

    #[test]
    fn lengths_may_be_those_of_the_whole() {
        let lstm = of(&with(&["x", "w", "r", "", "lengths"], vec![int_attribute("hidden_size", 2)])).unwrap();
        let of_lengths = |lengths: [i32; 2]| {
            let lengths = Tensor::new(&lengths, &Device::Cpu).unwrap();
            let [x, w, r] = [ramp(&[3, 2, 2]), ramp(&[1, 8, 2]), ramp(&[1, 8, 2])].map(Some);
            lstm.compute(&[x, w, r, None, Some(lengths)])
        };
        assert_eq!(of_lengths([3, 3]).unwrap()[0].dims(), [3, 1, 2, 2]);
        assert!(of_lengths([3, 2]).is_err());
    }

    #[test]
    fn other_forms_have_no_operator() {
        assert!(of(&with(&["x", "w", "r", "", "", "", "", "peepholes"], Vec::new())).is_none());
        assert!(of(&with(&["x", "w", "r"], vec![float_attribute("clip", 1.0)])).is_none());
    }
}
