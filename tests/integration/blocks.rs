//! Weights in blocks of four and eight bits: made of packaged models and of users' files, on ONNX Runtime and OpenVINO.

use std::fs;

use inferbench::definition::{Dtype, Status};
use inferbench::run_data::{Metric, Record};

use crate::own_decoders::copy_to;
use crate::support::{Run, Workplace, has_onnxruntime, has_openvino};

fn assert_right(record: &Record, by: &str, dtype: Dtype) {
    let id = record.case().to_string();
    assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {:?}", record.message);
    assert_eq!((record.verified_by.as_deref(), record.effective_dtype), (Some(by), Some(dtype)), "{id}");
    // It would be that of the f32 weights.
    assert_eq!(record.arithmetic_intensity, None, "{id}");
}

fn assert_refused(record: &Record, why: &str) {
    let (id, message) = (record.case().to_string(), record.message.as_deref().unwrap_or_default());
    assert_eq!(record.status, Status::Unsupported, "{id}: {message}");
    assert!(message.contains(why), "{id}: {message}");
}

#[test]
fn weights_in_blocks_are_right_on_onnx_runtime_and_openvino() {
    if !has_onnxruntime() {
        return;
    }
    let mut backends = vec!["ort", "candle"];
    if cfg!(feature = "tract") {
        backends.push("tract");
    }
    if has_openvino() {
        backends.push("openvino");
    }
    let workplace = Workplace::new(&["llama-small"], &backends, &[2]);
    let asked = "original,int4,int4-asym,int8-block,int4-128";
    // In the dtype that each backend computes such weights in.
    workplace.inferbench(&["run", "--noplot", "--variant", asked]).finish().with_code(0);
    let mut records = workplace.records();
    // And in the other one.
    let mut run_in = |variants: &str, dtype: &str, backend: &str, code: u8| {
        let asked = ["run", "--noplot", "--variant", variants, "--dtype", dtype];
        workplace.inferbench(&[&asked[..], &["--backend", backend]].concat()).finish().with_code(code);
        records.extend(workplace.records());
    };
    run_in("original,int4,int4-asym,int8-block", "f32", "ort", 0);
    if has_openvino() {
        run_in("int4,int4-asym,int8-block", "i8", "openvino", 3);
    }
    let of = |variant: &str, backend: &str, dtype: &str| {
        let ids =
            ["prefill", "decode"].map(|phase| format!("llama-small{variant}-seq32-{phase}/{backend}-cpu-{dtype}/2"));
        ids.map(|id| records.iter().find(|record| record.case().to_string() == id).unwrap_or_else(|| panic!("{id}")))
    };
    for variant in ["-int4", "-int4-asym", "-int8-block"] {
        for record in of(variant, "ort", "i8") {
            assert_right(record, "the same weights in f32", Dtype::I8);
        }
        for record in of(variant, "ort", "f32") {
            assert_right(record, "the same weights in f32", Dtype::F32);
            // Only what is added in another order differs.
            assert!(record.max_rel_error.unwrap() < 1e-4, "{:?}", record.max_rel_error);
        }
        if has_openvino() {
            for record in of(variant, "openvino", "f32") {
                assert_right(record, "the same weights in f32 on ort", Dtype::F32);
                assert!(record.max_rel_error.unwrap() < 1e-4, "{:?}", record.max_rel_error);
            }
            for record in of(variant, "openvino", "i8") {
                assert_refused(record, "choose `--dtype f32`");
            }
        }
        if cfg!(feature = "tract") {
            for record in of(variant, "tract", "i8") {
                assert_refused(record, "wrong for some shapes");
            }
        }
        for record in of(variant, "candle", "i8") {
            assert_refused(record, "it has no MatMulNBits");
        }
    }
    assert!(of("", "ort", "f32").iter().all(|record| record.arithmetic_intensity.is_some()));
    let list = ["models", "--variant", "original,int4", "--format", "json"];
    let listed = workplace.inferbench(&list).finish().with_code(0);
    let models: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let of_model = |place: usize| (models[place]["variant"].as_str(), models[place]["costs"][0]["bytes"].is_u64());
    assert_eq!([of_model(0), of_model(1)], [(Some("original"), true), (Some("int4"), false)]);
    let [long, _] = of("-int4-128", "ort", "i8");
    let message = long.message.as_deref().unwrap_or_default();
    assert_eq!(long.status, Status::Unsupported, "{message}");
    assert!(
        message.contains("int4-128 needs products with constant matrices whose rows are multiples of 128"),
        "{message}"
    );
    let size = |variant: &str, dtype: &str| of(variant, "ort", dtype)[0].model_size_mb.unwrap();
    let sizes = [size("-int4", "i8"), size("-int4-asym", "i8"), size("-int8-block", "i8"), size("", "f32")];
    assert!(sizes.is_sorted() && sizes[0] < 0.6 * sizes[3], "{sizes:?}");
    // The loss is that of the form, and that of eight bits is smaller.
    let history = inferbench::history::History::open(&[workplace.path("target-reports")]).unwrap();
    let metrics: Vec<Metric> = history.runs().iter().flat_map(|run| run.metrics().unwrap()).collect();
    let divergence = |variant: &str| {
        let id = format!("llama-small{variant}-seq32-decode/ort-cpu-i8/2");
        let found = metrics.iter().find(|it| it.case_id == id && it.metric == "kl_divergence");
        found.unwrap_or_else(|| panic!("{id}: {metrics:?}")).value
    };
    assert!(divergence("-int8-block") < divergence("-int4") / 4.0, "{metrics:?}");
}

#[test]
fn weights_in_blocks_of_128_are_right_where_rows_are_their_multiples() {
    if !has_onnxruntime() {
        return;
    }
    let backends: &[&str] = if has_openvino() { &["ort", "openvino"] } else { &["ort"] };
    let workplace = Workplace::new(&["llama-256"], backends, &[2]);
    workplace.inferbench(&["run", "--noplot", "--variant", "int4,int4-128,int4-128-asym"]).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 3 * 2 * backends.len());
    for record in &records {
        match record.backend.as_str() {
            "ort" => assert_right(record, "the same weights in f32", Dtype::I8),
            _ => assert_right(record, "the same weights in f32 on ort", Dtype::F32),
        }
    }
    // A scale for each block, and half a byte for its zero point.
    let size = |variant: &str| {
        let own = records.iter().find(|record| record.backend == "ort" && record.variant == variant);
        own.unwrap().model_size_mb.unwrap()
    };
    let sizes = ["int4-128", "int4-128-asym", "int4"].map(size);
    assert!(sizes.is_sorted_by(|one, next| one < next), "{sizes:?}");
}

#[test]
fn each_backend_gets_the_dtype_that_it_computes_such_weights_in() {
    if !has_onnxruntime() || !has_openvino() {
        return;
    }
    let workplace = Workplace::new(&["bert-small"], &["ort", "openvino"], &[1]);
    let said = workplace.inferbench(&["run", "--noplot", "--variant", "int4", "--dry-run"]).finish().with_code(0);
    let ids = ["bert-small-int4-seq32/ort-cpu-i8/1", "bert-small-int4-seq32/openvino-cpu-f32/1"];
    assert!(
        ids.iter().all(|id| said.stdout.contains(id) || said.stderr.contains(id)),
        "{}{}",
        said.stdout,
        said.stderr
    );
    // `all` has them for language models only.
    let said = workplace.inferbench(&["run", "--noplot", "--variant", "all", "--dry-run"]).finish().with_code(0);
    assert!(!said.stdout.contains("int4"), "{}", said.stdout);
}

#[test]
fn a_users_decoder_has_variants_in_blocks() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = Workplace::new(&[], &["ort"], &[1]);
    copy_to(&workplace.path("own"), &["decoder"]);
    fs::rename(workplace.path("own/decoder.onnx"), workplace.path("own/model.onnx")).unwrap();
    workplace.inferbench(&["variants", "own", "--iterations", "20"]).finish();
    let records = workplace.records();
    let of = |variant: &str| records.iter().filter(|it| it.variant == variant).collect::<Vec<_>>();
    assert!(of("original").iter().all(|record| record.status == Status::Ok), "{records:?}");
    for variant in ["int4", "int4-asym", "int4-128", "int4-128-asym", "int8-block"] {
        assert_eq!(of(variant).len(), 2, "{records:?}");
        // It is a very small one.
        for record in of(variant) {
            assert_refused(record, "needs products with constant matrices whose rows are multiples of");
        }
    }
}

#[test]
fn a_users_decoder_of_whole_blocks_is_right_in_all_of_them() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = Workplace::new(&[], &["ort"], &[1]);
    copy_to(&workplace.path("own"), &["wide_decoder"]);
    fs::rename(workplace.path("own/wide_decoder.onnx"), workplace.path("own/model.onnx")).unwrap();
    let said = workplace.inferbench(&["variants", "own", "--iterations", "20"]).finish().stdout;
    let records = workplace.records();
    for variant in ["int4", "int4-asym", "int4-128", "int4-128-asym", "int8-block"] {
        let own: Vec<&Record> = records.iter().filter(|record| record.variant == variant).collect();
        assert_eq!(own.len(), 2, "{variant}: {records:?}");
        own.iter().for_each(|record| assert_right(record, "the same weights in f32", Dtype::I8));
        assert!(said.contains(variant), "{said}");
    }
}

#[test]
fn a_network_without_large_products_is_refused() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = Workplace::new(&["mobilenet-small"], &["ort"], &[1]);
    workplace.inferbench(&["run", "--noplot", "--variant", "original,int4"]).finish();
    let record = workplace.record("mobilenet-small-int4/ort-cpu-i8/1");
    assert_refused(&record, "int4 needs products with constant matrices whose rows are multiples of 32");
}
