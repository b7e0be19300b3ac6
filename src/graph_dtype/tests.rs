//! Conversions of small graphs, and of damaged ones.

mod blocks;
mod calibrated;

use std::path::{Path, PathBuf};

use half::f16;
use proptest::prelude::*;
use prost::Message;
use prost::bytes::Bytes;
use tempfile::TempDir;

use super::{Form, Result, convert, converted_bytes};
use crate::definition::{Blocks, Dtype};
use crate::onnx::Source;
use crate::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    ValueInfoProto, element,
};

fn value(name: &str, element: i32) -> ValueInfoProto {
    ValueInfoProto::tensor(name, element, None)
}

fn weight(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    TensorProto {
        name: name.into(),
        dims: dims.to_vec(),
        data_type: element::FLOAT,
        raw_data: Some(Bytes::from(values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())),
        ..TensorProto::default()
    }
}

fn model(nodes: Vec<NodeProto>, initializers: Vec<TensorProto>, inputs: &[(&str, i32)]) -> ModelProto {
    let graph = GraphProto {
        nodes,
        initializers,
        inputs: inputs.iter().map(|(name, element)| value(name, *element)).collect(),
        outputs: vec![value("y", element::FLOAT)],
        ..GraphProto::default()
    };
    let opset_imports = vec![OperatorSetIdProto { domain: String::new(), version: 16 }];
    ModelProto { ir_version: 8, graph: Some(graph), opset_imports, ..ModelProto::default() }
}

fn product() -> ModelProto {
    let nodes = vec![NodeProto::new("MatMul", &["x", "w"], "h"), NodeProto::new("Add", &["h", "b"], "y")];
    let initializers = vec![weight("w", &[2, 2], &[1.0, -2.0, 0.5, 1e6]), weight("b", &[2], &[0.1, 0.0])];
    model(nodes, initializers, &[("x", element::FLOAT)])
}

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn convert(&self, model: &ModelProto, dtype: Dtype) -> Result<GraphProto> {
        std::fs::write(self.path("from.onnx"), model.encode_to_vec()).unwrap();
        convert(&self.path("from.onnx"), &Form::Dtype(dtype), &self.path("to.onnx"))?;
        Ok(Source::read(&self.path("to.onnx")).unwrap().graph)
    }
}

fn converted(model: &ModelProto, dtype: Dtype) -> GraphProto {
    Place::new().convert(model, dtype).unwrap()
}

fn operators(graph: &GraphProto) -> Vec<&str> {
    graph.nodes.iter().map(|node| node.op_type.as_str()).collect()
}

fn initializer<'a>(graph: &'a GraphProto, name: &str) -> &'a TensorProto {
    graph.initializers.iter().find(|tensor| tensor.name == name).unwrap()
}

fn input_element(graph: &GraphProto, op_type: &str, place: usize) -> i32 {
    let node = graph.nodes.iter().find(|node| node.op_type == op_type).unwrap();
    let types = super::draft::element_types(graph);
    types[&node.inputs[place]]
}

#[test]
fn drawn_indices_are_of_the_type_that_their_node_says() {
    let long = AttributeProto::int("dtype", element::INT64.into());
    let nodes = vec![
        NodeProto::new("Multinomial", &["x"], "short"),
        NodeProto { attributes: vec![long], ..NodeProto::new("Multinomial", &["x"], "long") },
    ];
    let types = super::draft::element_types(&model(nodes, Vec::new(), &[("x", element::FLOAT)]).graph.unwrap());
    assert_eq!((types["short"], types["long"]), (element::INT32, element::INT64));
}

#[test]
fn weights_are_f16_between_an_input_and_an_output_of_f32() {
    let graph = converted(&product(), Dtype::F16);
    assert_eq!(operators(&graph), ["Cast", "MatMul", "Add", "Cast"]);
    assert_eq!(graph.inputs[0], value("x", element::FLOAT));
    assert_eq!((graph.outputs[0].name.as_str(), graph.nodes[3].outputs[0].as_str()), ("y", "y"));
    let weights = initializer(&graph, "w.f16");
    let wanted: Vec<u8> = [1.0, -2.0, 0.5, 65504.0].map(|value| f16::from_f32(value).to_le_bytes()).concat();
    assert_eq!((weights.data_type, weights.raw_data.as_deref()), (element::FLOAT16, Some(wanted.as_slice())));
}

#[test]
fn what_is_computed_from_positions_stays_f32() {
    let nodes = vec![
        NodeProto::cast("positions", "p", element::FLOAT),
        NodeProto::new("Expand", &["frequency", "shape"], "f"),
        NodeProto::new("Mul", &["p", "f"], "angle"),
        NodeProto::new("Sin", &["angle"], "sine"),
        NodeProto::new("Sub", &["x", "sine"], "y"),
    ];
    let inputs = [("x", element::FLOAT), ("positions", element::INT64), ("shape", element::INT64)];
    let graph = converted(&model(nodes, vec![weight("frequency", &[1], &[0.1])], &inputs), Dtype::F16);
    assert_eq!(input_element(&graph, "Sin", 0), element::FLOAT);
    assert_eq!(input_element(&graph, "Expand", 0), element::FLOAT);
    assert_eq!([0, 1].map(|place| input_element(&graph, "Sub", place)), [element::FLOAT16; 2]);
}

#[test]
fn a_bias_of_the_least_f32_is_clipped_before_its_cast_and_keys_are_not() {
    let nodes = vec![
        NodeProto::new("Concat", &["bias", "bias"], "biases"),
        NodeProto::new("Concat", &["past", "keys"], "all"),
        NodeProto::new("MatMul", &["x", "all"], "scores"),
        NodeProto::new("Add", &["scores", "biases"], "y"),
    ];
    let inputs = ["x", "bias", "past", "keys"].map(|name| (name, element::FLOAT));
    let graph = converted(&model(nodes, Vec::new(), &inputs), Dtype::F16);
    let clipped: Vec<&str> =
        graph.nodes.iter().filter(|node| node.op_type == "Clip").map(|node| node.inputs[0].as_str()).collect();
    assert_eq!(clipped, ["bias"]);
    assert_eq!(initializer(&graph, "least.f16").data_type, element::FLOAT);
}

#[test]
fn an_operator_without_the_type_stays_f32() {
    let conv = vec![NodeProto::new("Conv", &["x", "w"], "h"), NodeProto::new("Relu", &["h"], "y")];
    let mut model = model(conv, vec![weight("w", &[1, 1, 1], &[3.0])], &[("x", element::FLOAT)]);
    let graph = converted(&model, Dtype::Bf16);
    assert_eq!((input_element(&graph, "Conv", 1), input_element(&graph, "Relu", 0)), (1, element::BFLOAT16));
    model.opset_imports[0].version = 22;
    let graph = converted(&model, Dtype::Bf16);
    assert_eq!(input_element(&graph, "Conv", 1), element::BFLOAT16);
}

#[test]
fn a_window_of_whole_numbers_is_cast_and_a_function_with_constants_of_f32_stays() {
    let nodes = vec![
        NodeProto::new("HannWindow", &["size"], "window"),
        NodeProto::new("Mul", &["x", "window"], "h"),
        NodeProto::new("MeanVarianceNormalization", &["h"], "y"),
    ];
    let inputs = [("x", element::FLOAT), ("size", element::INT64)];
    for (dtype, narrow) in [(Dtype::F16, element::FLOAT16), (Dtype::Bf16, element::BFLOAT16)] {
        let graph = converted(&model(nodes.clone(), Vec::new(), &inputs), dtype);
        assert_eq!([0, 1].map(|place| input_element(&graph, "Mul", place)), [narrow; 2]);
        assert_eq!(input_element(&graph, "MeanVarianceNormalization", 0), element::FLOAT);
    }
}

#[test]
fn constants_are_converted_but_for_scales_of_a_picture() {
    let constant = |name: &str, values: &[f32]| {
        let value = weight("", &[values.len() as i64], values);
        let attribute = AttributeProto { name: "value".into(), t: Some(value), r#type: 4, ..AttributeProto::default() };
        NodeProto { attributes: vec![attribute], ..NodeProto::new("Constant", &[], name) }
    };
    let nodes = vec![
        constant("scales", &[1.0, 1.0, 2.0, 2.0]),
        constant("shift", &[0.5]),
        NodeProto::new("Resize", &["x", "", "scales"], "h"),
        NodeProto::new("Add", &["h", "shift"], "y"),
    ];
    let graph = converted(&model(nodes, Vec::new(), &[("x", element::FLOAT)]), Dtype::F16);
    assert_eq!(operators(&graph), ["Cast", "Resize", "Add", "Cast"]);
    assert_eq!([0, 2].map(|place| input_element(&graph, "Resize", place)), [element::FLOAT16, element::FLOAT]);
    assert_eq!(input_element(&graph, "Add", 1), element::FLOAT16);
}

#[test]
fn transposed_weights_are_quantised_in_their_new_order_and_one_activation_once() {
    let nodes = vec![
        NodeProto::new("Transpose", &["w"], "t"),
        NodeProto::new("MatMul", &["x", "t"], "a"),
        NodeProto {
            attributes: vec![AttributeProto::int("transB", 1)],
            ..NodeProto::new("Gemm", &["x", "w", "b"], "g")
        },
        NodeProto::new("Add", &["a", "g"], "y"),
    ];
    let weights = [1.0, -2.0, 127.0, 0.0, 0.25, 0.5];
    let initializers = vec![weight("w", &[2, 3], &weights), weight("b", &[2], &[0.0, 1.0])];
    let graph = converted(&model(nodes, initializers, &[("x", element::FLOAT)]), Dtype::I8);
    let count = |op_type: &str| operators(&graph).iter().filter(|found| **found == op_type).count();
    assert_eq!(["DynamicQuantizeLinear", "MatMulInteger", "Transpose", "Gemm"].map(count), [1, 2, 0, 0]);
    let integers = initializer(&graph, "w.i8");
    let wanted = [1, 0, -2, 64, 127, 127].map(|value: i8| value.cast_unsigned());
    assert_eq!((integers.dims.as_slice(), integers.raw_data.as_deref()), (&[3, 2][..], Some(&wanted[..])));
    let scales = [1.0_f32, 0.5 / 127.0].map(f32::to_le_bytes).concat();
    assert_eq!(initializer(&graph, "w.i8.scale").raw_data.as_deref(), Some(scales.as_slice()));
    assert!(!graph.initializers.iter().any(|tensor| tensor.name == "w"));
}

#[test]
fn a_convolution_has_a_scale_a_channel_and_one_of_groups_stays() {
    let grouped =
        NodeProto { attributes: vec![AttributeProto::int("group", 2)], ..NodeProto::new("Conv", &["h", "w"], "y") };
    let nodes = vec![NodeProto::new("Conv", &["x", "w", "b"], "h"), grouped];
    let initializers = vec![weight("w", &[2, 1, 1, 2], &[1.0, -127.0, 0.0, 0.0]), weight("b", &[2], &[1.0, 2.0])];
    let graph = converted(&model(nodes, initializers, &[("x", element::FLOAT)]), Dtype::I8);
    let is_there = |op_type: &str| operators(&graph).contains(&op_type);
    assert!(is_there("ConvInteger") && is_there("Conv"));
    assert_eq!(initializer(&graph, "w.i8.scale").dims, [2, 1, 1]);
    assert_eq!(initializer(&graph, "b.channels").dims, [2, 1, 1]);
    let scales = [1.0_f32, 1.0].map(f32::to_le_bytes).concat();
    assert_eq!(initializer(&graph, "w.i8.scale").raw_data.as_deref(), Some(scales.as_slice()));
}

/// A product whose weights of 4 KiB are in `weights.bin`, at an offset.
fn external(place: &Place) -> (ModelProto, Vec<f32>) {
    let values: Vec<f32> = (0..1024_u16).map(|number| f32::from(number) / 8.0).collect();
    let mut bytes = vec![0xFF; 12];
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    std::fs::write(place.path("weights.bin"), bytes).unwrap();
    let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
    let external_data = vec![entry("location", "weights.bin"), entry("offset", "12"), entry("length", "4096")];
    let mut model = product();
    let graph = model.graph.as_mut().unwrap();
    graph.initializers[0] = TensorProto {
        dims: vec![32, 32],
        raw_data: None,
        external_data,
        data_location: 1,
        ..graph.initializers[0].clone()
    };
    (model, values)
}

#[test]
fn large_weights_go_from_one_data_file_to_another() {
    let place = Place::new();
    let (model, values) = external(&place);
    let graph = place.convert(&model, Dtype::F16).unwrap();
    let source = Source::read(&place.path("to.onnx")).unwrap();
    let tensor = initializer(&graph, "w.f16");
    let bytes = source.bytes(tensor).unwrap();
    let wanted: Vec<u8> = values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect();
    assert_eq!(bytes, wanted);
    assert_eq!(source.data_file_names(), ["to.data"]);
    assert_eq!(converted_bytes(&place.path("from.onnx"), &Form::Dtype(Dtype::F16)).unwrap(), 2048 + 4);
    assert_eq!(graph.dtype(), Dtype::F16);
    let mut files: Vec<_> =
        std::fs::read_dir(place.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["from.onnx", "to.data", "to.onnx", "weights.bin"]);
}

#[test]
fn a_data_file_that_is_missing_or_short_is_named() {
    let place = Place::new();
    let (model, _) = external(&place);
    let refused = |model: &ModelProto| format!("{:#}", place.convert(model, Dtype::I8).unwrap_err());
    std::fs::write(place.path("weights.bin"), [0; 100]).unwrap();
    let short = refused(&model);
    assert!(short.contains("\"w\"") && short.contains("beyond the end of weights.bin (100 bytes)"), "{short}");
    std::fs::remove_file(place.path("weights.bin")).unwrap();
    assert!(refused(&model).contains("weights.bin"));
    let mut outside = model;
    outside.graph.as_mut().unwrap().initializers[0].external_data[0].value = "../weights.bin".into();
    assert!(refused(&outside).contains("not in the folder of the graph"));
    assert!(!place.path("to.onnx").exists());
}

#[test]
fn what_is_inside_of_a_node_is_not_taken_for_what_lies_beside_the_new_graph() {
    let place = Place::new();
    let weights = TensorProto {
        name: "v".into(),
        dims: vec![4],
        data_type: element::FLOAT,
        data_location: 1,
        external_data: vec![StringStringEntryProto { key: "location".into(), value: "to.data".into() }],
        ..TensorProto::default()
    };
    let inner = GraphProto { initializers: vec![weights], ..GraphProto::default() };
    let g = Some(inner.encode_to_vec().into());
    let branch = AttributeProto { name: "then_branch".into(), g, ..AttributeProto::default() };
    let mut model = product();
    let nodes = &mut model.graph.as_mut().unwrap().nodes;
    nodes.push(NodeProto { attributes: vec![branch], ..NodeProto::new("If", &["c"], "z") });
    let refused = format!("{:#}", place.convert(&model, Dtype::I8).unwrap_err());
    assert!(refused.contains("\"v\" is inside a node"), "{refused}");
}

#[test]
fn what_has_no_form_is_refused_by_its_name() {
    let place = Place::new();
    let refused = |change: &dyn Fn(&mut ModelProto), dtype| {
        let mut model = product();
        change(&mut model);
        format!("{:#}", place.convert(&model, dtype).unwrap_err())
    };
    let graph = |model: &mut ModelProto| model.graph.take().unwrap();
    let with_loop = refused(
        &|model| {
            let mut changed = graph(model);
            let body = AttributeProto { name: "body".into(), g: Some(Bytes::new()), ..AttributeProto::default() };
            changed.nodes[0] = NodeProto { attributes: vec![body], ..NodeProto::new("Loop", &["x"], "h") };
            model.graph = Some(changed);
        },
        Dtype::F16,
    );
    assert!(with_loop.contains("operator Loop (node \"Loop_h\")"), "{with_loop}");
    let without_weights = refused(&|model| model.graph.as_mut().unwrap().initializers.clear(), Dtype::I8);
    assert!(without_weights.contains("nothing to quantise"), "{without_weights}");
    assert!(refused(&|model| model.opset_imports[0].version = 9, Dtype::F16).contains("operator set 9"));
    assert!(refused(&|_| {}, Dtype::F32).contains("f32 already"));
}

fn convert_to_all(source: &Path, destination: &Path) {
    let blocks = Form::Blocks(Blocks::Int4, Dtype::I8);
    for form in [Dtype::F16, Dtype::Bf16, Dtype::I8].map(Form::Dtype).into_iter().chain([blocks]) {
        // Converted or refused, but never a panic.
        if convert(source, &form, destination).is_ok() {
            assert!(Source::read(destination).is_ok());
        }
    }
}

#[test]
fn no_damage_to_a_file_stops_the_conversion() {
    let place = Place::new();
    let [from, to] = ["from.onnx", "to.onnx"].map(|name| place.path(name));
    let whole = external(&place).0.encode_to_vec();
    for length in 0..whole.len() {
        std::fs::write(&from, &whole[..length]).unwrap();
        convert_to_all(&from, &to);
    }
    let damage = prop::collection::vec((0..whole.len(), any::<u8>()), 1..4);
    proptest!(ProptestConfig::with_cases(200), |(damage in damage)| {
        let mut bytes = whole.clone();
        for (position, byte) in damage {
            bytes[position] = byte;
        }
        std::fs::write(&from, bytes).unwrap();
        convert_to_all(&from, &to);
    });
}

#[test]
fn every_packaged_graph_has_a_smaller_form_in_each_type() {
    let zoo = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/zoo");
    let files = std::fs::read_dir(zoo).unwrap().flat_map(|model| std::fs::read_dir(model.unwrap().path()).unwrap());
    let graphs: Vec<PathBuf> = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "onnx"))
        .collect();
    assert!(graphs.len() >= 30);
    for graph in graphs {
        let full: u64 = Source::read(&graph)
            .unwrap()
            .graph
            .initializers
            .iter()
            .filter(|tensor| tensor.data_type == element::FLOAT)
            .map(|tensor| 4 * tensor.elements().unwrap())
            .sum();
        let bytes = |dtype| converted_bytes(&graph, &Form::Dtype(dtype)).unwrap();
        assert!(bytes(Dtype::F16) < full * 6 / 10, "{}", graph.display());
        assert!(bytes(Dtype::Bf16) <= full && bytes(Dtype::I8) < full, "{}", graph.display());
    }
}
