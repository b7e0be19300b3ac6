//! References that come with a user's model: with one, it alone decides what is right.

use std::fs::{self, File};
use std::io::Write;

use inferbench::definition::Status;
use inferbench::run_data::Record;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::Value;

use crate::support::{Run, Workplace, data_folder, has_onnxruntime};

/// The input `[2, 3]` that ONNX's tests give where they keep outputs only.
const RAMP: [f32; 6] = [0.0, 1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0, 4.0 / 6.0, 5.0 / 6.0];

/// What `fixed_batch.onnx` computes: `tanh(x · w)` with sines of 1, 2, … in `w`.
fn outputs_of(x: &[f32; 6]) -> Vec<f32> {
    let w: Vec<f64> = (1..=6).map(|index| f64::from(index).sin()).collect();
    let sum = |row: usize, column: usize| (0..3).map(|k| f64::from(x[3 * row + k]) * w[2 * k + column]).sum::<f64>();
    [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(row, column)| sum(row, column).tanh() as f32).to_vec()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A `TensorProto` of f32: dims, data_type and raw_data.
fn message(shape: [u8; 2], values: &[f32]) -> Vec<u8> {
    let data = bytes(values);
    [&[0x08, shape[0], 0x08, shape[1], 0x10, 1, 0x4a, data.len() as u8][..], &data].concat()
}

/// An array as `numpy.savez` writes it.
fn array(shape: [usize; 2], values: &[f32]) -> Vec<u8> {
    let [rows, columns] = shape;
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    let header = format!("{header:<117}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &bytes(values)].concat()
}

fn workplace() -> Workplace {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1, 8]);
    fs::create_dir_all(workplace.path("own")).unwrap();
    workplace.add_model("fixed_batch.onnx", "own/net.onnx");
    workplace
}

fn record(workplace: &Workplace, arguments: &[&str], code: u8) -> Record {
    workplace.inferbench(&[&["run", "--noplot", "own/net.onnx"], arguments].concat()).finish().with_code(code);
    workplace.records().remove(0)
}

#[track_caller]
fn is_right(workplace: &Workplace, arguments: &[&str]) {
    let right = record(workplace, arguments, 0);
    assert_eq!((right.status, right.verified, right.batch_size), (Status::Ok, Some(true), 2), "{:?}", right.message);
    assert_eq!(right.verified_by.as_deref(), Some("reference"));
}

#[test]
fn the_folders_of_onnx_decide_right_and_wrong() {
    let workplace = workplace();
    let x = [1.0, -2.0, 0.5, 3.0, 0.0, -1.0];
    fs::create_dir_all(workplace.path("own/test_data_set_0")).unwrap();
    workplace.write("own/test_data_set_0/input_0.pb", message([2, 3], &x));
    workplace.write("own/test_data_set_0/output_0.pb", message([2, 2], &outputs_of(&x)));
    is_right(&workplace, &[]);
    workplace.write("own/test_data_set_0/output_0.pb", message([2, 2], &outputs_of(&RAMP)));
    let wrong = record(&workplace, &[], 1);
    assert_eq!((wrong.status, wrong.verified), (Status::WrongOutput, Some(false)));
    assert!(wrong.message.unwrap().contains("the outputs differ from the reference"));
    workplace.write("own/test_data_set_0/input_0.pb", message([3, 2], &x));
    let refused = |why: &str| {
        workplace.inferbench(&["run", "--noplot", "own/net.onnx"]).finish().with_code(2).saying(&[why]);
    };
    refused("its input x has shape [3, 2], and the model's is x:f32[2,3]");
    workplace.write("own/test_data_set_0/input_0.pb", &message([2, 3], &x)[..20]);
    refused("input_0.pb: not a whole TensorProto");
}

#[test]
fn numbers_of_files_are_places_whatever_the_model_calls_its_tensors() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    fs::create_dir_all(workplace.path("own/test_data_set_0")).unwrap();
    workplace.add_model("numbered.onnx", "own/net.onnx");
    let inputs = [[1.0, -2.0, 0.5, 3.0, 0.0, -1.0], RAMP];
    let outputs = [inputs[0].map(f32::tanh), inputs[1].map(|value| -value)];
    for (place, (input, output)) in inputs.iter().zip(&outputs).enumerate() {
        workplace.write(&format!("own/test_data_set_0/input_{place}.pb"), message([2, 3], input));
        workplace.write(&format!("own/test_data_set_0/output_{place}.pb"), message([2, 3], output));
    }
    is_right(&workplace, &[]);
}

#[test]
fn outputs_beside_the_file_are_those_of_a_ramp() {
    let workplace = workplace();
    workplace.write("own/net_output_0.pb", message([2, 2], &outputs_of(&RAMP)));
    is_right(&workplace, &[]);
}

#[test]
fn arrays_are_taken_by_name_from_beside_the_file_or_by_a_flag() {
    let workplace = workplace();
    let x = [0.1, 0.2, -0.3, 0.4, -0.5, 0.6];
    let mut archive = zip::ZipWriter::new(File::create(workplace.path("own/net.npz")).unwrap());
    for (name, content) in [("x.npy", array([2, 3], &x)), ("y.npy", array([2, 2], &outputs_of(&x)))] {
        archive.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(&content).unwrap();
    }
    archive.finish().unwrap();
    is_right(&workplace, &[]);

    let (input, output) = (bytes(&x), bytes(&outputs_of(&RAMP)));
    let view = |shape: &[usize], bytes| TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap();
    let tensors = [("input.x", view(&[2, 3], &input)), ("output.y", view(&[2, 2], &output))];
    workplace.write("other.safetensors", safetensors::serialize(tensors, None).unwrap());
    let wrong = record(&workplace, &["--reference", "other.safetensors"], 1);
    assert_eq!(wrong.status, Status::WrongOutput, "the flag is before what lies beside the file");
    let missing = workplace.inferbench(&["run", "own/net.onnx", "--reference", "nowhere.npz"]).finish();
    missing.with_code(2).saying(&["there is no reference nowhere.npz"]);
}

#[test]
fn rows_of_a_reference_are_samples_of_batches_of_any_size() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1, 4]);
    workplace.add_model("two_inputs.onnx", "net.onnx");
    let (ids, features) = ([0_i64, 1, 1, 0, 1, 1, 1, 1], [0.5_f32, 1.0, -1.0, 2.0, 0.0, 0.25]);
    // The table's rows and the weights are sines of 1, 2, ….
    let sine = |index: usize| (index as f64 + 1.0).sin();
    let mut y = Vec::new();
    for row in 0..2 {
        let mean = |k: usize| ids[4 * row..][..4].iter().map(|&id| sine(3 * id as usize + k)).sum::<f64>() / 4.0;
        let x: Vec<f64> = (0..3).map(|k| mean(k) + f64::from(features[3 * row + k])).collect();
        y.extend((0..2).map(|column| (0..3).map(|k| x[k] * sine(2 * k + column)).sum::<f64>().tanh() as f32));
    }
    let ids: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let (features, y) = (bytes(&features), bytes(&y));
    let view = |dtype, shape: &[usize], bytes| TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
    let tensors = [
        ("input.ids", view(Dtype::I64, &[2, 4], &ids)),
        ("input.features", view(Dtype::F32, &[2, 3], &features)),
        ("output.y", view(Dtype::F32, &[2, 2], &y)),
    ];
    workplace.write("net.safetensors", safetensors::serialize(tensors, None).unwrap());
    workplace.inferbench(&["run", "--noplot", "net.onnx"]).finish().with_code(0);
    for batch_size in [1, 4] {
        let record = workplace.record(&format!("net/candle-cpu-f32/{batch_size}"));
        assert_eq!((record.status, record.verified_by.as_deref()), (Status::Ok, Some("reference")));
    }
}

/// The states of a crafted network's cases, or of those of a wrong one, by the reference of the right one.
fn crafted(network: &str, wrong: Option<&str>, dtypes: &str) -> Vec<(String, Status)> {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let folder = data_folder().join("crafted");
    let file = wrong.map_or(format!("{network}.onnx"), |what| format!("{network}-{what}.onnx"));
    fs::copy(folder.join(file), workplace.path("net.onnx")).unwrap();
    let reference = folder.join(format!("{network}.npz"));
    let backends = if has_onnxruntime() { "candle,ort" } else { "candle" };
    let reference = reference.display().to_string();
    let arguments = ["--reference", &reference, "--backend", backends, "--dtype", dtypes, "--format", "json"];
    let done = workplace.inferbench(&[&["verify", "net.onnx"][..], &arguments].concat()).finish();
    let shown: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{}", done.stderr));
    let state = |case: &Value| serde_json::from_value(case["status"].clone()).unwrap();
    let name = |case: &Value| format!("{} {}", case["case_id"], case["message"]);
    shown["cases"].as_array().unwrap().iter().map(|case| (name(case), state(case))).collect()
}

#[test]
fn a_large_number_does_not_hide_what_is_wrong_beside_it() {
    let wrong: [(&str, &[&str], &str); 4] = [
        ("lowest_mask", &["of_other_weights"], "f32,f16"),
        ("large_mask", &["of_other_weights"], "f32,f16"),
        ("detections", &["without_scores", "of_permuted_classes"], "f32,f16"),
        ("log_probabilities", &["of_other_weights"], "f32,f16,i8"),
    ];
    for (network, others, dtypes) in wrong {
        let right = crafted(network, None, dtypes);
        assert!(right.iter().any(|(_, status)| *status == Status::Ok), "{network}: {right:?}");
        assert!(right.iter().all(|(_, status)| *status != Status::WrongOutput), "{network}: {right:?}");
        for other in others {
            let found = crafted(network, Some(other), dtypes);
            let count = |cases: &[(String, Status)], status| cases.iter().filter(|case| case.1 == status).count();
            assert_eq!(count(&found, Status::WrongOutput), count(&right, Status::Ok), "{network} {other}: {found:?}");
        }
    }
}

#[test]
fn almost_zero_is_right_where_zero_is_expected_and_nan_for_nan_is_no_proof() {
    let almost = crafted("almost_zero", None, "f32");
    assert!(almost.iter().all(|(_, status)| *status == Status::Ok), "{almost:?}");
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    for file in ["no_number.onnx", "no_number.npz"] {
        fs::copy(data_folder().join("crafted").join(file), workplace.path(file)).unwrap();
    }
    let refused = workplace.inferbench(&["verify", "no_number.onnx"]).finish();
    assert_ne!(refused.code, Some(0), "{}{}", refused.stdout, refused.stderr);
    assert!((refused.stdout + &refused.stderr).contains("has no finite value"));
}

#[test]
fn numbers_of_any_type_are_given_and_compared() {
    if !has_onnxruntime() {
        return;
    }
    // Its neighbours are the same in f64.
    const LARGE: u64 = (1 << 60) + 1;
    let (i8s, i16s) = ([-128_i8, 127, -1, 5, 0, 77], [i16::MIN, i16::MAX, -1, 5, 0, 77]);
    let (u16s, u32s, u64s) = ([u16::MAX, 0, 1, 5, 9, 77], [70_000_u32, 0, 1, 5, 9, 77], [7_u64, 0, 1, 5, 9, LARGE]);
    let halves = [1.5_f32, -2.0, 0.25, 3.0, -0.5, 8.0];
    let sum = |place: usize| {
        let whole = f32::from(i8s[place]) + f32::from(i16s[place]) + f32::from(u16s[place]) + u32s[place] as f32;
        (whole + u64s[place] as f32 + halves[place]) * 0.001
    };
    let y = bytes(&std::array::from_fn::<f32, 6, _>(sum));
    let tensors = [
        ("i8", Dtype::I8, i8s.map(i8::to_le_bytes).concat()),
        ("i16", Dtype::I16, i16s.map(i16::to_le_bytes).concat()),
        ("u16", Dtype::U16, u16s.map(u16::to_le_bytes).concat()),
        ("u32", Dtype::U32, u32s.map(u32::to_le_bytes).concat()),
        ("u64", Dtype::U64, u64s.map(u64::to_le_bytes).concat()),
        // The upper half of an f32.
        ("bf16", Dtype::BF16, halves.map(|value| [value.to_le_bytes()[2], value.to_le_bytes()[3]]).concat()),
    ];
    let mut other = tensors.clone();
    other[4].2[40] ^= 1;
    let workplace = Workplace::new(&["digits"], &["ort", "candle", "tract"], &[1]);
    workplace.add_model("rare_types.onnx", "net.onnx");
    let write = |outputs: &[(&str, Dtype, Vec<u8>)]| {
        let view = |(_, dtype, bytes): &'_ (&str, Dtype, Vec<u8>)| (*dtype, vec![2, 3], bytes.clone());
        let inputs = tensors.iter().map(|it| (format!("input.{}", it.0), view(it)));
        let outputs = outputs.iter().map(|it| (format!("output.{}_out", it.0), view(it)));
        let sum = [("output.y".to_owned(), (Dtype::F32, vec![2, 3], y.clone()))];
        let all: Vec<_> = inputs.chain(outputs).chain(sum).collect();
        let views = all.iter().map(|(name, (dtype, shape, bytes))| {
            (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        workplace.write("net.safetensors", safetensors::serialize(views, None).unwrap());
    };
    write(&tensors);
    workplace.inferbench(&["run", "--noplot", "net.onnx"]).finish().with_code(0);
    let right = workplace.record("net/ort-cpu-f32/1");
    assert_eq!((right.status, right.verified), (Status::Ok, Some(true)), "{:?}", right.message);
    let refused = workplace.record("net/candle-cpu-f32/1");
    assert_eq!(refused.status, Status::Unsupported);
    assert_eq!(refused.message.as_deref(), Some("an input has the element type i8, which candle lacks"));
    if cfg!(feature = "tract") {
        let refused = workplace.record("net/tract-cpu-f32/1");
        assert_eq!(refused.message.as_deref(), Some("\"bf16\" has the element type bf16, which tract lacks"));
    }
    write(&other);
    let wrong = workplace.inferbench(&["run", "net.onnx", "--backend", "ort", "--wide"]).finish().with_code(1);
    assert!(wrong.stdout.contains("output u64_out is"), "{}", wrong.stdout);
}

#[test]
fn a_recurrence_begins_anew_in_each_call() {
    let workplace = Workplace::new(&["digits"], &["candle", "tract", "openvino"], &[1]);
    workplace.add_model("recurrent.onnx", "net.onnx");
    let (x, w) = ([0.75_f32, -0.5], 1.0_f64.sin());
    let first = (w * f64::from(x[0])).tanh();
    let y = [(w * (f64::from(x[1]) + first)).tanh() as f32];
    let (x, y) = (bytes(&x), bytes(&y));
    let view = |shape: &[usize], bytes| TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap();
    let tensors = [("input.x", view(&[2, 1, 1], &x)), ("output.y", view(&[1, 1, 1], &y))];
    workplace.write("net.safetensors", safetensors::serialize(tensors, None).unwrap());
    workplace.inferbench(&["run", "--noplot", "net.onnx"]).finish();
    for record in workplace.records().iter().filter(|record| record.backend != "candle" || record.verified.is_some()) {
        let is_there = !matches!(record.status, Status::Unavailable | Status::Unsupported);
        assert!(!is_there || record.verified == Some(true), "{}: {:?}", record.case(), record.message);
    }
    if cfg!(feature = "tract") {
        assert_eq!(workplace.record("net/tract-cpu-f32/2").status, Status::Ok);
    }
}

#[test]
fn backends_agree_on_integers_of_rare_types() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["ort", "candle", "tract", "openvino"], &[3]);
    workplace.add_model("wide_integers.onnx", "net.onnx");
    workplace.inferbench(&["run", "--noplot", "net.onnx"]).finish().with_code(0);
    for record in workplace.records() {
        let is_there = record.status != Status::Unavailable;
        assert!(!is_there || record.verified == Some(true), "{}: {:?}", record.case(), record.message);
    }
    assert_eq!(workplace.record("net/candle-cpu-f32/3").status, Status::Ok);
}
