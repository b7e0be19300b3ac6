//! OpenVINO: the precision that it computes in, and its messages about broken files and libraries.
#![cfg(feature = "openvino")]

use std::fs;

use inferbench::definition::{Dtype, Status};

use crate::support::{Run, Workplace, checkout, has_openvino};

#[test]
fn a_case_is_right_and_says_what_ran_it() {
    if !has_openvino() {
        return;
    }
    let workplace = Workplace::new(&["digits", "llama-small"], &["openvino"], &[1, 3]);
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 6, "two batch sizes of digits, of prefill and of decode");
    for record in records {
        let id = record.case().to_string();
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {:?}", record.message);
        assert!(record.max_rel_error.unwrap() < 1e-4, "{id}");
        assert_eq!((record.effective_dtype, record.threads), (Some(Dtype::F32), Some(1)), "{id}");
        assert_eq!(
            (record.effective_device.as_deref(), record.providers.as_deref()),
            (Some("cpu"), Some("CPU")),
            "{id}"
        );
        assert!(record.library_version.unwrap().starts_with("20"), "{id}");
    }
}

#[test]
fn a_reduced_precision_is_really_computed_in_or_refused() {
    if !has_openvino() {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["openvino"], &[1]);
    workplace.inferbench(&["run", "--noplot", "--dtype", "f32,bf16,f16,i8"]).finish().with_code(0);
    let error_of_f32 = workplace.record("digits/openvino-cpu-f32/1").max_rel_error.unwrap();
    for dtype in [Dtype::Bf16, Dtype::F16] {
        let record = workplace.record(&format!("digits/openvino-cpu-{dtype}/1"));
        if record.status == Status::Ok {
            assert_eq!(record.effective_dtype, Some(dtype));
            let error = record.max_rel_error.unwrap();
            assert!(error > 10.0 * error_of_f32, "{dtype}: {error}, and f32 {error_of_f32}");
        } else {
            // Not every processor has it.
            assert_eq!(record.status, Status::Unsupported);
            let message = record.message.unwrap();
            assert!(message.starts_with(&format!("asked for {dtype}, and it computes in ")), "{message}");
        }
    }
    // The ranges of a dynamic quantisation are found in each call, and its products are computed in f32.
    let dynamic = workplace.record("digits/openvino-cpu-i8/1");
    assert_eq!((dynamic.status, dynamic.effective_dtype), (Status::Unsupported, Some(Dtype::F32)));
    workplace.inferbench(&["run", "--noplot", "--variant", "int8-static"]).finish().with_code(0);
    let in_integers = workplace.record("digits-int8-static/openvino-cpu-i8/1");
    assert_eq!((in_integers.status, in_integers.effective_dtype), (Status::Ok, Some(Dtype::I8)));
}

#[test]
fn a_truncated_file_fails_and_says_which() {
    if !has_openvino() {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["openvino"], &[1]);
    workplace.inferbench(&["prepare"]).finish().with_code(0);
    let file = workplace.path(".prepared/digits/model.onnx");
    let bytes = fs::read(&file).unwrap();
    for kept in [bytes.len() - 1, 0] {
        fs::write(&file, &bytes[..kept]).unwrap();
        workplace.inferbench(&["run", "--noplot"]).finish().with_code(3);
        let record = workplace.record("digits/openvino-cpu-f32/1");
        let message = record.message.unwrap();
        assert_eq!((record.status, record.latency_p50_ms), (Status::Failed, None), "{message}");
        assert!(message.contains("model.onnx: ") && !message.contains("panic"), "{kept} bytes: {message}");
    }
}

#[test]
fn a_bias_of_positions_is_not_lost_beside_a_mask() {
    if !has_openvino() {
        return;
    }
    let workplace = Workplace::new(&[], &["candle", "openvino"], &[2]);
    workplace.add_model("masked_bias.onnx", "models/exported/net.onnx");
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    let record = workplace.record("net/openvino-cpu-f32/2");
    assert_eq!((record.status, record.verified_by.as_deref()), (Status::Ok, Some("candle")), "{:?}", record.message);
}

#[test]
fn an_operator_that_openvino_does_not_have_is_unsupported_and_named() {
    if !has_openvino() {
        return;
    }
    let workplace = Workplace::new(&[], &["openvino"], &[1]);
    workplace.add_model("two_inputs.onnx", "models/exported/strange.onnx");
    let file = workplace.path("models/exported/strange.onnx");
    let bytes = fs::read(&file).unwrap();
    let operator = bytes.windows(4).position(|bytes| bytes == b"Tanh").unwrap();
    fs::write(&file, [&bytes[..operator], b"Tonh", &bytes[operator + 4..]].concat()).unwrap();
    workplace.inferbench(&["run", "--noplot"]).finish();
    let record = workplace.record("strange/openvino-cpu-f32/1");
    assert_eq!(record.status, Status::Unsupported);
    let message = record.message.unwrap();
    assert!(message.contains("Tonh"), "{message}");
}

#[test]
fn without_a_library_of_openvinos_the_backend_is_unavailable() {
    let workplace = Workplace::new(&["digits"], &["openvino"], &[1]);
    workplace.write("no-library.so", "text");
    let run = |library: &str| {
        workplace
            .inferbench(&["run", "--noplot"])
            .env("INFERBENCH_OPENVINO_LIBRARY", workplace.path(library))
            .finish()
            .with_code(3);
        let record = workplace.record("digits/openvino-cpu-f32/1");
        assert_eq!(record.status, Status::Unavailable);
        record.message.unwrap()
    };
    assert!(run("nowhere.so").contains("scripts/setup openvino"));
    assert!(run("no-library.so").contains("no-library.so"));
    // A library, but another one.
    let other = checkout().join(".native/openvino/libtbbmalloc.so.2");
    if other.is_file() {
        assert!(run(other.to_str().unwrap()).contains("ov_get_openvino_version"));
    }
}
