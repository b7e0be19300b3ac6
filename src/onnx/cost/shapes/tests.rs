use prost::bytes::Bytes;

use super::*;
use crate::onnx::proto::AttributeProto;

fn result(operator: &str, attributes: &[(&str, i64)], inputs: &[SymTensor]) -> Result<SymTensor> {
    let mut node = NodeProto::new(operator, &[], "y");
    node.attributes = attributes.iter().map(|(name, value)| AttributeProto::int(name, *value)).collect();
    outputs(&node, &inputs.iter().cloned().map(Some).collect(), None).map(|mut values| values.remove(0))
}

fn shape(sizes: &[usize]) -> SymTensor {
    of_sizes(sizes).unwrap()
}

#[test]
fn a_shape_goes_through_the_operators_that_exporters_compute_it_with() {
    let of = result("Shape", &[], &[shape(&[2, 3, 5])]).unwrap();
    assert_eq!(of, vector(&[2, 3, 5]));
    let batch = result("Gather", &[], &[of.clone(), scalar(0)]).unwrap();
    let batch = result("Unsqueeze", &[], &[batch, vector(&[0])]).unwrap();
    let rest = result("Slice", &[], &[of, vector(&[-2]), vector(&[i64::MAX])]).unwrap();
    let all = result("Concat", &[("axis", 0)], &[batch, rest]).unwrap();
    assert_eq!(all, vector(&[2, 3, 5]));
    assert_eq!(result("Reshape", &[], &[shape(&[30]), all]).unwrap(), shape(&[2, 3, 5]));
}

#[test]
fn reshape_fills_what_is_left_open_and_refuses_what_does_not_fit() {
    let reshape = |target: &[i64]| result("Reshape", &[], &[shape(&[2, 6, 5]), vector(target)]);
    assert_eq!(reshape(&[0, -1]).unwrap(), shape(&[2, 30]));
    assert_eq!(reshape(&[3, 4, -1]).unwrap(), shape(&[3, 4, 5]));
    assert!(reshape(&[7, -1]).unwrap_err().to_string().starts_with("[2, 6, 5] cannot become"));
    let unknown = result("Reshape", &[], &[shape(&[2]), shape(&[1])]).unwrap_err().to_string();
    assert!(unknown.contains("depends on the values of the inputs"), "{unknown}");
    // A hostile file may ask for more sizes than the memory holds.
    let many = shape(&[i32::MAX as usize]);
    assert!(result("Reshape", &[], &[shape(&[2]), many.clone()]).is_err());
    assert!(result("Expand", &[], &[shape(&[2]), many.clone()]).is_err());
    assert!(result("ConstantOfShape", &[], &[many]).is_err());
}

#[test]
fn a_vector_is_a_row_or_a_column_of_a_product() {
    let of = |left: &[usize], right: &[usize]| result("MatMul", &[], &[shape(left), shape(right)]).unwrap();
    assert_eq!(of(&[4], &[4, 3]), shape(&[3]));
    assert_eq!(of(&[2, 3, 4], &[4]), shape(&[2, 3]));
    assert_eq!(of(&[4], &[2, 4, 3]), shape(&[2, 3]));
    assert_eq!(of(&[4], &[4]), shape(&[]));
}

#[test]
fn slices_count_from_both_ends_and_backwards() {
    let sliced = |begin, end, step| {
        let inputs = [shape(&[10]), vector(&[begin]), vector(&[end]), vector(&[0]), vector(&[step])];
        result("Slice", &[], &inputs).and_then(|value| sizes(&value)).ok()
    };
    assert_eq!(sliced(2, -1, 3), Some(vec![3]));
    assert_eq!(sliced(0, i64::MAX, 1), Some(vec![10]));
    assert_eq!(sliced(-1, i64::MIN, -1), Some(vec![10]));
    assert_eq!(sliced(8, 2, 1), Some(vec![0]));
}

#[test]
fn what_was_an_attribute_is_an_input() {
    let mut node = NodeProto::new("Squeeze", &["x"], "y");
    node.attributes = vec![AttributeProto::ints("axes", &[1])];
    assert_eq!(outputs(&node, &vec![Some(shape(&[2, 1, 1]))], None).unwrap(), [shape(&[2, 1])]);
    let split = NodeProto { outputs: vec!["a".into(), "b".into()], ..NodeProto::new("Split", &["x"], "") };
    assert_eq!(outputs(&split, &vec![Some(shape(&[5, 3]))], None).unwrap(), [shape(&[3, 3]), shape(&[2, 3])]);
}

#[test]
fn a_picture_grows_by_its_scales_or_to_its_sizes() {
    let resize = |given: &[Option<SymTensor>], scales: Option<&[f32]>| {
        outputs(&NodeProto::new("Resize", &[], "y"), &given.to_vec(), scales).map(|made| sizes(&made[0]).unwrap())
    };
    let picture = || Some(shape(&[1, 3, 5, 7]));
    assert_eq!(resize(&[picture(), None, Some(shape(&[4]))], Some(&[1.0, 1.0, 2.0, 1.5])).unwrap(), [1, 3, 10, 10]);
    let shorter = resize(&[Some(shape(&[1, 3, 10, 10])), None, Some(shape(&[4]))], Some(&[1.0, 1.0, 0.7, 0.7]));
    assert_eq!(shorter.unwrap(), [1, 3, 7, 7]);
    assert_eq!(resize(&[picture(), None, None, Some(vector(&[1, 3, 9, 9]))], None).unwrap(), [1, 3, 9, 9]);
    assert!(resize(&[picture(), None, Some(shape(&[4]))], Some(&[2.0, 2.0])).is_err());
    let policy = |policy: &'static str| AttributeProto {
        name: "keep_aspect_ratio_policy".into(),
        s: Some(policy.into()),
        ..AttributeProto::default()
    };
    let axes = AttributeProto::ints("axes", &[0, 1, 2, 3]);
    for (attribute, is_known) in [(policy("stretch"), true), (policy("not_larger"), false), (axes, false)] {
        let node = NodeProto { attributes: vec![attribute], ..NodeProto::new("Resize", &[], "y") };
        let given = vec![picture(), None, None, Some(vector(&[1, 3, 9, 9]))];
        assert_eq!(outputs(&node, &given, None).is_ok(), is_known, "{:?}", node.attributes);
    }
}

#[test]
fn a_transposed_convolution_undoes_the_shape_of_one() {
    let mut node = NodeProto::new("ConvTranspose", &[], "y");
    node.attributes = [("strides", vec![2, 2]), ("pads", vec![1, 1, 1, 1]), ("output_padding", vec![1, 1])]
        .map(|(name, ints)| AttributeProto::ints(name, &ints))
        .to_vec();
    let made = outputs(&node, &vec![Some(shape(&[1, 8, 14, 14])), Some(shape(&[8, 4, 3, 3]))], None).unwrap();
    assert_eq!(made, [shape(&[1, 4, 28, 28])]);
}

#[test]
fn numbers_that_no_exporter_writes_are_errors() {
    assert!(result("Unsqueeze", &[], &[shape(&[2, 3]), vector(&[3, 3])]).is_err());
    assert!(result("Range", &[], &[vector(&[]), scalar(3), scalar(1)]).is_err());
    assert_eq!(result("Shape", &[], &[]).unwrap_err().to_string(), "shapes [] do not fit");
}

#[test]
fn constants_are_known_where_they_are_whole_and_in_the_file() {
    let raw = Bytes::copy_from_slice(&[2_i64, -1].map(i64::to_le_bytes).concat());
    let tensor =
        TensorProto { dims: vec![2], data_type: 7, raw_data: Some(raw), name: "s".into(), ..Default::default() };
    assert_eq!(constant(&tensor).unwrap(), vector(&[2, -1]));
    let typed = TensorProto { int64_data: vec![2, -1], raw_data: None, ..tensor.clone() };
    assert_eq!(constant(&typed).unwrap(), vector(&[2, -1]));
    let elsewhere = TensorProto { data_location: 1, raw_data: None, ..tensor.clone() };
    assert_eq!(constant(&elsewhere).unwrap(), shape(&[2]));
    let cut_short = TensorProto { dims: vec![3], ..tensor.clone() };
    assert_eq!(constant(&cut_short).unwrap(), shape(&[3]));
    assert!(constant(&TensorProto { dims: vec![-1], ..tensor }).is_err());
}

#[test]
fn what_is_joined_again_and_again_is_counted_and_not_kept() {
    let mut joined = vector(&[2, 3]);
    for _ in 0..29 {
        joined = result("Concat", &[("axis", 0)], &[joined.clone(), joined]).unwrap();
        assert!(joined.values().is_none_or(|values| values.len() as u64 <= MOST_KNOWN));
    }
    assert_eq!(sizes(&joined).unwrap(), [2 << 29]);
}

#[test]
fn more_elements_than_a_number_holds_are_none() {
    assert_eq!(elements(&[3, 0, 5]), Some(0));
    assert_eq!(elements(&[usize::MAX, 3]), None);
}
