use candle_core::Device;
use candle_onnx::onnx::AttributeProto;

use super::super::plan::tests::{evaluate, float_attribute, int_attribute, ints_attribute, node, ramp, text_attribute};
use super::*;

/// The output for `x`, with constants of integers.
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
fn the_mean_of_whole_numbers_is_a_whole_number() {
    let x = Tensor::new(&[[3_i64, 5, 8], [-7, 0, 1]], &Device::Cpu).unwrap();
    let mean = with("ReduceMean", &["x"], vec![ints_attribute("axes", &[1])]);
    assert_eq!(flat(&computed(&mean, &[], &x)), [5.0, -2.0]);
}

#[test]
fn places_may_be_fewer_than_elements_and_count_from_the_end() {
    let x = ramp(&[2, 3, 4]);
    let places = Tensor::new(&[[[0_i64, -1], [3, 1]], [[2, 2], [0, -4]]], &Device::Cpu).unwrap();
    let gather = of(&with("GatherElements", &["a", "b"], vec![int_attribute("axis", -1)]), &HashMap::new()).unwrap();
    let found = gather.compute(&[x.clone(), places].map(Some)).unwrap().remove(0);
    let all: Vec<f32> = flat(&x);
    let at = |batch: usize, row: usize, place: usize| all[12 * batch + 4 * row + place];
    let expected =
        [at(0, 0, 0), at(0, 0, 3), at(0, 1, 3), at(0, 1, 1), at(1, 0, 2), at(1, 0, 2), at(1, 1, 0), at(1, 1, 0)];
    assert_eq!((found.dims(), flat(&found)), (&[2, 2, 2][..], expected.to_vec()));
}

#[test]
fn axes_that_are_computed_are_those_of_the_output() {
    let axes = Tensor::new(&[0_i64, -1], &Device::Cpu).unwrap();
    assert_eq!(of_two("Unsqueeze", [ramp(&[2, 8]), axes]).unwrap().dims(), [1, 2, 8, 1]);
    let power = of(&node("Pow", &["a", "b"], &["y"]), &HashMap::from([("b".to_owned(), ramp(&[1, 1, 1]))]));
    let found = power.unwrap().compute(&[Some(ramp(&[2, 8])), Some((ramp(&[1, 1, 1]) * 0.0).unwrap())]).unwrap();
    assert_eq!(found[0].dims(), [1, 2, 8]);
}

#[test]
fn the_largest_and_the_smallest_number_over_no_axes_are_those_of_all() {
    let x = ramp(&[2, 3]);
    for (operator, expected) in [("ReduceMax", x.max_all()), ("ReduceMin", x.min_all())] {
        let of =
            |attribute: Vec<AttributeProto>| computed(&with(operator, &["x", "axes"], attribute), &[("axes", &[])], &x);
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

/// The expected numbers are ONNX Runtime's.
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
    let sums =
        [2.54706, 2.09508, 0.72229, 2.02386, 1.31929, 1.13634, 0.36936, 2.09596, 2.05916, 1.59674, 1.83330, 1.07118];
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
    for other in [with("Flatten", &["x"], vec![int_attribute("axis", 1)]), node("Clip", &["x"], &["y"])] {
        assert!(of(&other, &HashMap::new()).is_none());
        evaluate(&[other], &["y"], HashMap::from([("x".to_owned(), x.clone())]));
    }
    assert!(of(&node("ReduceSum", &["x", "computed"], &["y"]), &HashMap::new()).is_none());
}
