//! Models that a user puts into `models/`: found, held against each other between backends, and measured.

use std::fs;

use inferbench::definition::Status;
use inferbench::onnx::read_summary;
use proptest::prelude::*;

use crate::support::{Run, Workplace, data_folder, has_onnxruntime};

/// No packaged model, but whatever a test adds.
fn only_found(backends: &[&str], batch_sizes: &[usize]) -> Workplace {
    Workplace::new(&[], backends, batch_sizes)
}

#[test]
fn an_onnx_file_is_found_and_its_inputs_are_its_own() {
    let workplace = only_found(&["candle"], &[1, 3]);
    workplace.add_model("two_inputs.onnx", "models/exported/two_inputs.onnx");
    let listed = workplace.inferbench(&["models", "--format", "json"]).finish().with_code(0);
    let models: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(models[0]["inputs"], serde_json::json!(["ids:i64[batch,4]<2", "features:f32[batch,3]"]));
    assert_eq!(models[0]["parameters"], 12);

    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    for (id, shape) in [("two_inputs/candle-cpu-f32/1", "1x4 1x3"), ("two_inputs/candle-cpu-f32/3", "3x4 3x3")] {
        let record = workplace.record(id);
        assert_eq!((record.status, record.input_shape.as_deref()), (Status::Ok, Some(shape)));
        assert_eq!((record.variant.as_str(), record.parameters), ("original", Some(12)));
        let verified = (record.verified, record.verified_by);
        assert_eq!(verified, (None, None), "one backend alone has nothing to be compared with");
        assert!(record.latency_p50_ms.is_some() && record.artifact_sha256.is_some());
    }
    let report = workplace.inferbench(&["report"]).finish().with_code(0);
    assert!(report.stdout.contains("unverified"), "{}", report.stdout);
}

#[test]
fn the_second_backend_is_verified_by_the_first() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = only_found(&["ort", "candle"], &[1, 3]);
    workplace.add_model("two_inputs.onnx", "models/exported/two_inputs.onnx");
    let run = workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    run.saying(&[", outputs not compared, ", ", outputs agree with those of ort (error "]);
    for batch_size in [1, 3] {
        let first = workplace.record(&format!("two_inputs/ort-cpu-f32/{batch_size}"));
        let second = workplace.record(&format!("two_inputs/candle-cpu-f32/{batch_size}"));
        assert_eq!(
            (first.status, first.verified, first.verified_by.as_deref()),
            (Status::Ok, Some(true), Some("candle"))
        );
        assert_eq!(
            (second.status, second.verified, second.verified_by.as_deref()),
            (Status::Ok, Some(true), Some("ort"))
        );
        assert!(second.max_rel_error.unwrap() < 1e-5);
    }
}

#[test]
#[cfg(feature = "tch")]
fn a_backend_that_disagrees_with_the_first_has_a_wrong_output() {
    let workplace = only_found(&["tch", "candle"], &[2]);
    // Files of two different networks under one stem.
    workplace.add_model("fixed_batch.onnx", "models/exported/net.onnx");
    workplace.add_model("scaled.pt", "models/exported/net.pt");
    workplace.write("models/exported/net.toml", SCALED_INPUTS.replace("\"batch\"", "2"));
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(1);
    assert_eq!(workplace.record("net/tch-cpu-f32/2").status, Status::Ok);
    let second = workplace.record("net/candle-cpu-f32/2");
    assert_eq!((second.status, second.verified), (Status::WrongOutput, Some(false)));
    assert!(second.message.unwrap().contains("the outputs differ from the outputs of tch"));
}

#[test]
fn a_fixed_batch_is_measured_at_its_size_and_is_no_failure() {
    let workplace = only_found(&["candle"], &[1, 3, 8]);
    workplace.add_model("fixed_batch.onnx", "models/exported/fixed.onnx");
    let run = workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    run.saying(&["fixed original: its inputs have no open dimension called batch: it runs at batch size 2"]);
    let records = workplace.records();
    assert_eq!(records.iter().map(|record| (record.batch_size, record.status)).collect::<Vec<_>>(), [(2, Status::Ok)]);
    let listed = workplace.inferbench(&["verify", "--format", "json"]).finish().with_code(0);
    let matrix: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!((&matrix["families"][0]["cases"], &matrix["families"][0]["right"]), (&1.into(), &1.into()));
}

#[test]
fn a_second_part_of_the_stem_is_the_variant() {
    let workplace = only_found(&["candle"], &[1]);
    workplace.add_model("two_inputs.onnx", "models/exported/net.onnx");
    workplace.add_model("two_inputs.onnx", "models/quantized/net.int8-static.onnx");
    workplace.add_model("two_inputs.onnx", "models/exported/My Net (v2).onnx");
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    let names: Vec<(String, String, String)> = workplace
        .records()
        .into_iter()
        .map(|record| (record.case().to_string(), record.model, record.variant))
        .collect();
    let expected = [
        ("my-net--v2/candle-cpu-f32/1", "my-net--v2", "original"),
        ("net/candle-cpu-f32/1", "net", "original"),
        ("net-int8-static/candle-cpu-f32/1", "net", "int8-static"),
    ];
    assert_eq!(names, expected.map(|(id, model, variant)| (id.to_owned(), model.to_owned(), variant.to_owned())));

    workplace.inferbench(&["run", "--noplot", "--variant", "int8-static"]).finish().with_code(0);
    assert_eq!(workplace.records().len(), 1);
    workplace.inferbench(&["run", "--noplot", "--model", "net"]).finish().with_code(0);
    assert_eq!(workplace.records().len(), 2);
}

#[test]
fn a_model_that_ignores_its_input_is_suspicious_and_measured() {
    let workplace = only_found(&["candle"], &[1, 2]);
    workplace.add_model("ignores_input.onnx", "models/exported/stuck.onnx");
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    for batch_size in [1, 2] {
        let record = workplace.record(&format!("stuck/candle-cpu-f32/{batch_size}"));
        assert_eq!((record.status, record.verified), (Status::Suspicious, None));
        assert!(record.latency_p50_ms.is_some());
        let message = record.message.unwrap();
        assert!(message.contains("the outputs of different inputs are the same"), "{message}");
    }
}

#[test]
fn an_answer_that_does_not_grow_with_the_batch_is_a_wrong_output() {
    let workplace = only_found(&["candle"], &[1]);
    workplace.add_model("first_of_batch.onnx", "models/exported/stuck.onnx");
    let listed = workplace.inferbench(&["verify", "--format", "json"]).finish().with_code(1);
    let matrix: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let case = &matrix["cases"][0];
    assert_eq!(case["status"], "wrong-output", "{matrix}");
    assert_eq!(case["message"], "at batch size 2: an output has shape [1, 2]");
    assert_eq!(matrix["families"][0]["level"], "none");
}

#[test]
fn a_custom_set_runs_a_file_from_anywhere_beside_a_packaged_model() {
    let workplace = only_found(&["candle"], &[1]);
    fs::create_dir_all(workplace.path("elsewhere")).unwrap();
    workplace.add_model("two_inputs.onnx", "elsewhere/net.onnx");
    workplace.write(
        "set.json",
        r#"{"mine": {"path": "elsewhere/net.onnx", "family": "embedding", "size": "tiny", "modality": "text"},
            "numbers": {"name": "digits"}}"#,
    );
    let set = workplace.path("set.json");
    let run = ["run", "--noplot", "--suite", set.to_str().unwrap(), "--batch-sizes", "1", "--backend", "candle"];
    workplace.inferbench(&[&run[..], &["--iterations", "20"]].concat()).finish().with_code(0);
    let record = workplace.record("mine/candle-cpu-f32/1");
    assert_eq!((record.status, record.family.as_str(), record.modality.as_str()), (Status::Ok, "embedding", "text"));
    assert_eq!(workplace.record("digits/candle-cpu-f32/1").verified, Some(true));
    workplace.write("set.json", r#"{"mine": {"path": "nowhere.onnx"}}"#);
    workplace.inferbench(&run).finish().with_code(2).saying(&["model \"mine\": there is no file", "nowhere.onnx"]);
}

#[test]
fn a_custom_set_with_hub_ids_measures_the_packaged_models_and_says_what_is_unavailable() {
    let workplace = only_found(&["candle"], &[1]);
    workplace.write(
        "set.json",
        r#"{"unknown": {"name": "EleutherAI/pythia-70m", "family": "llm"}, "digits": {"family": "cnn"},
            "exported": {"path": "elsewhere.onnx"}}"#,
    );
    workplace.add_model("two_inputs.onnx", "elsewhere.onnx");
    let run =
        ["run", "--noplot", "--suite", "set.json", "--batch-sizes", "1", "--backend", "candle", "--iterations", "20"];
    workplace.inferbench(&run).finish().with_code(0);
    assert_eq!(workplace.record("digits/candle-cpu-f32/1").status, Status::Ok);
    assert_eq!(workplace.record("exported/candle-cpu-f32/1").status, Status::Ok);
    let record = workplace.record("eleutherai-pythia-70m/candle-cpu-f32/1");
    let message = record.message.clone().unwrap_or_default();
    assert_eq!(record.status, Status::Unavailable);
    assert!(message.contains("\"EleutherAI/pythia-70m\" is not among the packaged models"), "{message}");
    // A suite that names a model that does not exist is a mistake.
    workplace.write("own.toml", "models = [{ name = 'pythia' }]\nbackends = ['candle']\nbatch_sizes = [1]");
    workplace.inferbench(&["run", "--suite", "own.toml"]).finish().with_code(2).saying(&["no model \"pythia\""]);
}

#[test]
fn models_are_named_by_hub_id_or_file_in_upper_or_lower_case() {
    let workplace = only_found(&["candle"], &[1]);
    workplace.add_model("two_inputs.onnx", "models/exported/two_inputs.onnx");
    workplace.add_model("two_inputs.onnx", "Elsewhere.onnx");
    let named = |models: &str| {
        let list = ["models", "--model", models, "--format", "json"];
        let listed = workplace.inferbench(&list).finish().with_code(0);
        let models: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
        let name = |model: &serde_json::Value| model["model"].as_str().unwrap().to_owned();
        models.as_array().unwrap().iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(named("DIGITS"), ["digits"]);
    assert_eq!(named("two_inputs.onnx"), ["two_inputs"]);
    assert_eq!(named("models/exported/two_inputs.onnx,Digits"), ["two_inputs", "digits"]);
    assert_eq!(named("Elsewhere.onnx"), ["elsewhere"]);
    let unknown = workplace.inferbench(&["models", "--model", "resnet-18"]).finish();
    unknown.with_code(2).saying(&["no model \"resnet-18\"", "digits"]);
    let elsewhere = workplace.inferbench(&["models", "--model", "nowhere/digits.onnx"]).finish();
    elsewhere.with_code(2).saying(&["there is no file nowhere/digits.onnx"]);
}

#[test]
fn names_of_other_libraries_and_empty_variables_are_accepted() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let dry_run = ["run", "--dry-run", "--model", "digits", "--backend", "libtorch,onnxruntime", "--dtype", "float32"];
    let mut command = workplace.inferbench(&dry_run);
    let variables = ["BUDGET", "THREADS", "BATCH_SIZES", "DTYPE", "MODELS_DIR", "REPORTS"];
    for variable in variables.map(|name| format!("INFERBENCH_{name}")) {
        command.env(variable, "");
    }
    let planned = command.finish().with_code(0);
    for id in ["digits/tch-cpu-f32/1", "digits/ort-cpu-f32/1"] {
        assert!(planned.stdout.contains(id), "{}", planned.stdout);
    }
}

#[test]
fn numbers_that_no_machine_can_do_are_refused() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let run = |arguments: &[&str]| workplace.inferbench(&[&["run", "--dry-run"], arguments].concat()).finish();
    run(&["--budget", "1e300"]).with_code(2).saying(&["budget_s is a number from 0.001 to"]);
    let more = std::thread::available_parallelism().unwrap().get() + 1;
    run(&["--threads", &more.to_string()]).with_code(0).saying(&["are more than the"]);
}

#[test]
fn a_file_of_an_unknown_kind_is_refused_and_no_other_is_taken_for_it() {
    let workplace = only_found(&["candle"], &[1]);
    workplace.add_model("two_inputs.onnx", "net.onnx");
    let known = ["is not read as a model", "`.onnx`", "`.pt`", "`.safetensors`"];
    for file in ["net.pth", "net.tflite", "net.ONNX", "net"] {
        workplace.add_model("two_inputs.onnx", file);
        workplace.inferbench(&["run", "--path", file]).finish().with_code(2).saying(&known).saying(&[file]);
        let suite = fs::read_to_string(workplace.path("models/suites/quick.toml")).unwrap();
        let models = format!("models = [{{ name = 'mine', path = {file:?} }}]");
        workplace.write("own.toml", suite.replace("models = []", &models));
        let of_suite = workplace.inferbench(&["run", "--suite", "own.toml"]).finish().with_code(2);
        of_suite.saying(&known).saying(&["model \"mine\"", file]);
    }
}

#[test]
fn each_table_of_a_suite_is_for_its_own_file() {
    let workplace = only_found(&["candle"], &[1]);
    workplace.add_model("two_inputs.onnx", "net.onnx");
    workplace.add_model("fixed_batch.onnx", "other.onnx");
    let suite = fs::read_to_string(workplace.path("models/suites/quick.toml")).unwrap();
    let tables = "models = [{ name = 'mine', path = 'net.onnx' }, \
                  { name = 'mine', variant = 'small', path = 'other.onnx', batch_sizes = [2] }]";
    workplace.write("own.toml", suite.replace("models = []", tables));
    workplace.inferbench(&["run", "--noplot", "--suite", "own.toml"]).finish().with_code(0);
    let cases: Vec<String> = workplace.records().iter().map(|record| record.case().to_string()).collect();
    assert_eq!(cases, ["mine/candle-cpu-f32/1", "mine-small/candle-cpu-f32/2"]);
}

#[test]
fn a_variant_that_is_to_be_made_is_listed_with_its_own_size() {
    let workplace = Workplace::new(&["resnet50"], &["candle"], &[1]);
    let list = ["models", "--model", "resnet50", "--variant", "all", "--format", "json"];
    let listed = workplace.inferbench(&list).finish().with_code(0);
    let models: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let sizes: Vec<f64> = models.as_array().unwrap().iter().map(|model| model["size_mb"].as_f64().unwrap()).collect();
    assert!(sizes.len() > 1 && sizes[0] > 100.0 && sizes[1..].iter().all(|size| *size < 30.0), "{sizes:?}");
    let costs = models.as_array().unwrap().iter().map(|model| &model["costs"][0]);
    assert_eq!(costs.filter(|cost| cost["arithmetic_intensity"].is_number()).count(), 1, "of f32 only: {models}");
}

#[test]
fn weights_run_in_the_architecture_that_they_name() {
    let workplace = only_found(&["candle", "tch", "ort"], &[1, 8]);
    fs::copy(
        workplace.path("models/trained/digits.safetensors"),
        workplace.path("models/trained/digits.again.safetensors"),
    )
    .unwrap();
    workplace.write("models/trained/digits.again.toml", "architecture = \"digits\"\n");
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    let records = workplace.records();
    let of = |backend: &'static str| records.iter().filter(move |record| record.backend == backend);
    let is_compared = cfg!(feature = "tch") || has_onnxruntime();
    let expected = [
        ("candle", Status::Ok, is_compared.then_some(true)),
        ("tch", if cfg!(feature = "tch") { Status::Ok } else { Status::Unavailable }, Some(true)),
        ("ort", if has_onnxruntime() { Status::Ok } else { Status::Unavailable }, Some(true)),
    ];
    assert_eq!(records.len(), 6);
    for (backend, status, verified) in expected {
        for record in of(backend) {
            assert_eq!((record.model.as_str(), record.variant.as_str()), ("digits", "again"));
            assert_eq!((record.status, record.family.as_str()), (status, "cnn"), "{record:?}");
            assert!(status != Status::Ok || record.verified == verified, "{record:?}");
        }
    }
}

const SCALED_INPUTS: &str = r#"
family = "mlp"
[[inputs]]
name = "x"
dtype = "f32"
shape = ["batch", 3]
[[inputs]]
name = "scale"
dtype = "f32"
shape = [1, 1]
"#;

#[test]
fn a_torchscript_file_runs_with_the_inputs_of_its_toml() {
    let workplace = only_found(&["tch", "candle"], &[1, 4]);
    workplace.add_model("scaled.pt", "models/exported/scaled.pt");
    workplace.write("models/exported/scaled.toml", SCALED_INPUTS);
    let run = workplace.inferbench(&["run", "--noplot"]).finish();
    let other = workplace.record("scaled/candle-cpu-f32/4");
    assert_eq!(other.status, Status::Unsupported);
    assert!(other.message.unwrap().starts_with("needs a .onnx file of the same name: "));
    let record = workplace.record("scaled/tch-cpu-f32/4");
    if !cfg!(feature = "tch") {
        assert_eq!((run.code, record.status), (Some(3), Status::Unavailable));
        return;
    }
    assert_eq!((run.code, record.status), (Some(0), Status::Ok), "{}", run.stderr);
    assert_eq!((record.input_shape.as_deref(), record.family.as_str()), (Some("4x3 1x1"), "mlp"));
    assert!(record.latency_p50_ms.is_some());
}

#[test]
fn no_damage_to_an_onnx_file_stops_the_reader() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.onnx");
    let whole = fs::read(data_folder().join("models/two_inputs.onnx")).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let _ = read_summary(&path);
    }
    let damage = prop::collection::vec((0..whole.len(), any::<u8>()), 1..6);
    proptest!(ProptestConfig::with_cases(1000), |(damage in damage)| {
        let mut bytes = whole.clone();
        for (position, byte) in damage {
            bytes[position] = byte;
        }
        fs::write(&path, bytes).unwrap();
        // Read or refused, but never a panic.
        if let Ok(summary) = read_summary(&path) {
            prop_assert!(summary.inputs.iter().all(|input| input.shape.len() < 1000));
        }
    });
}

#[test]
fn forms_are_made_of_a_file_and_calibrated_by_its_users_samples() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = only_found(&["ort"], &[1]);
    workplace.inferbench(&["prepare", "--model", "digits"]).finish().with_code(0);
    let variants = |samples: &[&str]| {
        let arguments = ["variants", ".prepared/digits/model.onnx", "--iterations", "20"];
        workplace.inferbench(&[&arguments, samples].concat()).finish().with_code(0)
    };
    let held_out = ["--samples", "models/trained/digits-held-out.safetensors"];
    const CALIBRATES: &str = "my-digits int8-static: measuring the ranges of its activations on ";
    variants(&held_out).saying(&[CALIBRATES, "on the samples of digits-held-out"]);
    let accuracy = |variant: &str, dtype: &str| {
        let record = workplace.record(&format!("my-digits{variant}/ort-cpu-{dtype}/1"));
        assert_eq!((record.status, record.accuracy_samples), (Status::Ok, Some(450)), "{record:?}");
        (record.accuracy.unwrap(), record.model_size_mb.unwrap())
    };
    let (original, size) = accuracy("", "f32");
    for variant in ["-int8-dynamic", "-int8-static"] {
        let (own, own_size) = accuracy(variant, "i8");
        assert!((own - original).abs() < 0.02 && size / own_size > 2.0, "{variant}: {own} {own_size}");
    }
    // Few processors compute in f16.
    let half = workplace.record("my-digits-f16/ort-cpu-f16/1").status;
    assert!([Status::Ok, Status::Unsupported].contains(&half), "{half:?}");
    let again = variants(&held_out);
    assert!(!again.stderr.contains(CALIBRATES) && again.stdout.contains("int8-static"), "{}", again.stderr);
    variants(&[]).saying(&[CALIBRATES, "on seeded samples"]);

    let refused = workplace.inferbench(&["variants", ".prepared/digits/model.onnx", "--variant", "int3"]).finish();
    refused.with_code(2).saying(&[
        "my-digits has no variant \"int3\"; there are original, f16, int8-dynamic, int8-static, int8-block, int4",
    ]);
}

#[test]
fn variants_are_of_files_that_are_there() {
    let workplace = only_found(&["candle"], &[1]);
    workplace.inferbench(&["variants", "nets"]).finish().with_code(2).saying(&["there is no file nets"]);
}

#[test]
fn one_calibration_of_a_file_holds_for_all_sizes_that_are_asked_for() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = only_found(&["ort"], &[1]);
    workplace.add_model("sums.onnx", "sums.onnx");
    let arguments = ["run", "sums.onnx", "--variant", "original,int8-static", "--dim", "length=2,512"];
    workplace
        .inferbench(&[&arguments[..], &["--iterations", "20", "--noplot"]].concat())
        .finish()
        .with_code(0)
        .saying(&["measuring the ranges of its activations on seeded samples at 2 sizes of its inputs"]);
    // Sums of 512 numbers are sixteen times as large as those of 2, and would be cut off by the ranges of those.
    let long = workplace.record("sums-int8-static-length512/ort-cpu-i8/1");
    assert!(long.output_cosine.is_some_and(|cosine| cosine > 0.99), "{long:?}");
}
