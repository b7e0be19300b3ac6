//! Files that are named on the command line: measured where they lie, with sizes that are found or said.

use std::fs;

use inferbench::definition::{Dtype, Status};
use inferbench::run_data::Record;
use safetensors::tensor::TensorView;

use crate::support::{Finished, Run, Workplace, backends_of_graphs, data_folder, has_onnxruntime};

fn workplace(backends: &[&str]) -> Workplace {
    Workplace::new(&["digits"], backends, &[1])
}

fn run(workplace: &Workplace, arguments: &[&str]) -> Finished {
    workplace.inferbench(&[&["run", "--noplot"], arguments].concat()).finish()
}

#[test]
fn a_file_runs_where_it_lies_with_usual_sizes_and_with_those_of_flags() {
    let workplace = workplace(&["candle"]);
    workplace.add_model("open_length.onnx", "net.onnx");
    let shape = |arguments: &[&str]| {
        let said = run(&workplace, &[&["net.onnx"], arguments].concat()).with_code(0);
        let records = workplace.records();
        assert_eq!(records.len(), 1, "the file stands in place of the suite's models");
        (records[0].input_shape.clone().unwrap(), said)
    };
    let (usual, said) = shape(&[]);
    assert_eq!(usual, "1x128x3");
    said.saying(&["net: the file leaves sizes open", "candle accepts: --dim length=128"]);
    assert_eq!(shape(&["--dim", "length=7"]).0, "1x7x3");
    assert_eq!(shape(&["--dim", "x.1=9"]).0, "1x9x3");
    let (said_whole, quiet) = shape(&["--input", "x:f32[batch,5,3]", "--batch-sizes", "2"]);
    assert_eq!(said_whole, "2x5x3");
    assert!(!quiet.stderr.contains("leaves sizes open"), "{}", quiet.stderr);
    assert_eq!(shape(&["--dim", "batch=4"]).0, "4x128x3");

    let unknown = run(&workplace, &["net.onnx", "--dim", "width=3"]).with_code(2);
    unknown.saying(&["no model leaves the size \"width\" open", "x:f32[batch,length,3]"]);
    run(&workplace, &["net.onnx", "--input", "y:f32[1]"]).with_code(2).saying(&["no file has an input \"y\""]);
    run(&workplace, &["net.onnx", "--input", "x:f32"]).with_code(2).saying(&["write NAME:TYPE[SIZES]"]);
    run(&workplace, &["--input", "x:f32[3]"]).with_code(2).saying(&["are for files of models: name such files"]);
    run(&workplace, &["--dim", "length=3"]).with_code(2).saying(&["no model leaves the size \"length\" open"]);
}

#[test]
fn a_file_may_have_an_equals_sign_in_its_name() {
    let workplace = workplace(&["candle"]);
    workplace.add_model("open_length.onnx", "epoch=9.onnx");
    for (word, name) in [("epoch=9.onnx", "epoch-9"), ("mine=epoch=9.onnx", "mine")] {
        run(&workplace, &[word]).with_code(0);
        assert_eq!(workplace.records()[0].model, name);
    }
}

#[test]
fn the_flags_are_keys_of_a_suite_too() {
    let workplace = workplace(&["candle"]);
    workplace.add_model("open_length.onnx", "net.onnx");
    let suite = |keys: &str, id: &str| {
        let models = format!("models = [{{ name = 'mine', path = 'net.onnx', {keys} }}]");
        workplace.write(
            "own.toml",
            format!("{models}\nbackends = ['candle']\nbatch_sizes = [1]\n[effort]\niterations = 20"),
        );
        run(&workplace, &["--suite", "own.toml"]).with_code(0);
        let records = workplace.records();
        assert_eq!(records.len(), id.split(' ').count());
        let of_id = id.split(' ').map(|id| workplace.record(&format!("{id}/candle-cpu-f32/1")).input_shape.unwrap());
        of_id.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(suite("dims = { length = 6 }", "mine-length6"), "1x6x3");
    assert_eq!(suite("dims = { length = [6, 7] }", "mine-length6 mine-length7"), "1x6x3 1x7x3");
    assert_eq!(suite("inputs = ['x:f32[batch,4,3]']", "mine"), "1x4x3");
}

#[test]
fn a_list_of_sizes_is_a_case_for_each() {
    let workplace = workplace(&["candle"]);
    workplace.add_model("open_length.onnx", "net.onnx");
    run(&workplace, &["net.onnx", "--dim", "length=6,7"]).with_code(0);
    let told =
        |record: &Record| (record.case_id.clone(), record.dims.clone().unwrap(), record.input_shape.clone().unwrap());
    let ids: Vec<_> = workplace.records().iter().map(told).collect();
    let expected = [("net-length6", "length=6", "1x6x3"), ("net-length7", "length=7", "1x7x3")];
    let expected =
        expected.map(|(id, dims, shape)| (format!("{id}/candle-cpu-f32/1"), dims.to_owned(), shape.to_owned()));
    assert_eq!(ids, expected);
    let batches = run(&workplace, &["net.onnx", "--dim", "length=6,batch=4,8"]).with_code(2);
    batches.saying(&["differ only in the batch: `--batch-sizes` measures several"]);
    let both = ["predict", "net.onnx", "--backend", "candle", "--dim", "length=7,9", "--format", "json"];
    let found: serde_json::Value = serde_json::from_str(&workplace.inferbench(&both).finish().stdout).unwrap();
    assert_eq!((&found[0]["prediction"]["basis"], &found[0]["dims"]), (&"measured".into(), &"length=7".into()));
    assert!(found[1]["prediction"].is_null() && found[1]["dims"] == "length=9", "{found}");
    let shown = workplace.inferbench(&["report", "--charts", "figures"]).finish().with_code(0);
    assert!(workplace.path("figures/latency-by-size.svg").is_file(), "{}", shown.stdout);
}

#[test]
fn a_reference_is_for_its_own_size_of_a_list() {
    let workplace = workplace(&["candle"]);
    workplace.add_model("open_length.onnx", "net.onnx");
    let (x, y) = ([0_u8; 4 * 2 * 3], [0_u8; 4 * 3]);
    let view = |shape: &[usize], bytes| TensorView::new(safetensors::Dtype::F32, shape.to_vec(), bytes).unwrap();
    let tensors = [("input.x", view(&[1, 2, 3], &x)), ("output.y", view(&[1, 3], &y))];
    workplace.write("net.safetensors", safetensors::serialize(tensors, None).unwrap());
    run(&workplace, &["net.onnx", "--dim", "length=2,5"]).with_code(0);
    let verified = workplace.records().iter().map(|record| record.verified).collect::<Vec<_>>();
    assert_eq!(verified, [Some(true), None]);
    let refused = run(&workplace, &["net.onnx", "--dim", "length=5"]).with_code(2);
    refused.saying(&["its input x has shape [1, 2, 3], and the model's is x:f32[batch,5,3]"]);
}

#[test]
fn files_and_folders_are_models_of_their_own_and_other_words_filter() {
    let workplace = workplace(&["candle"]);
    fs::create_dir_all(workplace.path("nets/small")).unwrap();
    for file in ["nets/small/model.onnx", "nets/two.onnx", "nets/two.int8.onnx", "digits.onnx"] {
        workplace.add_model("two_inputs.onnx", file);
    }
    run(&workplace, &["nets", "mine=nets/two.onnx", "digits.onnx", "candle"]).with_code(0);
    let ids: Vec<String> = workplace.records().iter().map(|record| record.case_id.clone()).collect();
    let names = ["small", "two-int8", "two", "my-digits"].map(|name| format!("{name}/candle-cpu-f32/1"));
    assert_eq!(ids, names);
    let listed = workplace.inferbench(&["models", "nets", "--format", "json"]).finish().with_code(0);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&listed.stdout).unwrap().as_array().unwrap().len(), 3);
    workplace.inferbench(&["verify", "nets/two.onnx"]).finish().with_code(0);
    fs::create_dir_all(workplace.path("empty")).unwrap();
    run(&workplace, &["empty"]).with_code(2).saying(&["empty has no model"]);
    run(&workplace, &["nowhere.onnx"]).with_code(2).saying(&["there is no file nowhere.onnx"]);
    let of_files = ["but there is a file digits.onnx", "with the named files and the given flags has"];
    run(&workplace, &["nets/two.onnx", "digits"]).with_code(3).saying(&of_files);
    run(&workplace, &["nets", "one", "other"]).with_code(2).saying(&["only one filter of cases is allowed"]);
}

#[test]
fn a_name_that_criterion_cannot_keep_is_changed_and_the_other_files_run() {
    let workplace = workplace(&["candle"]);
    fs::create_dir_all(workplace.path("nets")).unwrap();
    let long = "long-name-".repeat(8);
    for file in [&format!("nets/{long}a.onnx"), &format!("nets/{long}b.onnx"), "nets/base.onnx", "nets/two.onnx"] {
        workplace.add_model("two_inputs.onnx", file);
    }
    let said = run(&workplace, &["nets"]).with_code(0);
    let models: Vec<String> = workplace.records().into_iter().map(|record| record.model).collect();
    let [base, a, b, two] = &models[..] else { panic!("{models:?}") };
    assert_eq!((base.as_str(), two.as_str()), ("nets-base", "two"));
    assert!(a != b && [a, b].iter().all(|name| name.len() == 64 && long.starts_with(&name[..50])), "{models:?}");
    said.saying(&[&format!("{long}a.onnx: Criterion keeps 64 characters of a name, so the results call it {a}")]);
}

#[test]
fn a_model_that_is_asked_for_by_name_runs_beside_a_file_and_chooses_among_files() {
    let workplace = workplace(&["candle"]);
    fs::create_dir_all(workplace.path("nets")).unwrap();
    for file in ["nets/one.onnx", "nets/two.onnx"] {
        workplace.add_model("two_inputs.onnx", file);
    }
    let names = |arguments: &[&str]| {
        run(&workplace, arguments).with_code(0);
        workplace.records().into_iter().map(|record| record.model).collect::<Vec<_>>()
    };
    assert_eq!(names(&["nets/one.onnx", "--model", "digits"]), ["one", "digits"]);
    assert_eq!(names(&["nets", "--model", "two"]), ["two"]);
    assert_eq!(names(&["nets/one.onnx", "--model", "nets/two.onnx"]), ["one", "two"]);
}

#[test]
fn an_input_of_f16_is_given_in_f16() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = workplace(&["ort", "candle"]);
    workplace.add_model("half_inputs.onnx", "net.onnx");
    for arguments in [&["net.onnx"][..], &["net.onnx", "--input", "x:f16[2,3]"]] {
        run(&workplace, arguments).with_code(0);
        let [ort, candle] = &workplace.records()[..] else { panic!("{:?}", workplace.measured()) };
        for record in [ort, candle] {
            assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{record:?}");
            assert_eq!(record.case().dtype, Dtype::F16);
        }
        let shape = if arguments.len() == 1 { "1x3" } else { "2x3" };
        assert_eq!(ort.input_shape.as_deref(), Some(shape));
        // Few processors compute in f16: the record says what was computed in.
        let message = ort.message.clone().unwrap_or_default();
        let is_emulated = ort.effective_dtype == Some(Dtype::F32);
        assert_eq!(is_emulated, message.contains("computed in f32 between casts from and to the f16 of the file"));
    }
}

#[test]
fn a_form_of_an_operator_is_right_or_unsupported_with_its_name() {
    let workplace = workplace(&backends_of_graphs());
    workplace.add_model("rare_forms.onnx", "net.onnx");
    run(&workplace, &["net.onnx"]);
    for record in workplace.records() {
        let message = record.message.clone().unwrap_or_default();
        match (record.backend.as_str(), record.status) {
            ("ort" | "candle", status) => assert_eq!(status, Status::Ok, "{message}"),
            (backend, Status::Ok) => assert_eq!(record.verified, Some(true), "{backend}"),
            (backend, status) => {
                assert_eq!(status, Status::Unsupported, "{backend}: {message}");
                assert!(message.contains("CumSum") && message.lines().count() == 1, "{backend}: {message}");
            }
        }
    }
}

#[test]
fn an_answer_to_a_batch_of_one_may_have_no_dimension() {
    let workplace = workplace(&backends_of_graphs());
    workplace.add_model("squeezes_batch.onnx", "net.onnx");
    workplace.inferbench(&["verify", "net.onnx", "--batch-sizes", "1,4"]).finish().with_code(0);
    let outcomes = workplace.unkept_outcomes();
    for (id, outcome) in &outcomes.finished {
        let (status, message) = (outcome.row.status, &outcome.row.message);
        assert!([Status::Ok, Status::Unsupported].contains(&status), "{id}: {message:?}");
        assert!(status == Status::Ok || !id.contains("ort") && !id.contains("openvino"), "{id}: {message:?}");
    }
}

#[test]
fn files_that_cannot_be_read_end_in_a_line_each() {
    let workplace = workplace(&["candle"]);
    let whole = fs::read(data_folder().join("models/two_inputs.onnx")).unwrap();
    workplace.write("cut.onnx", &whole[..whole.len() / 2]);
    workplace.write("empty.onnx", "");
    workplace
        .write("noise.onnx", (0..9999_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<u8>>());
    // Messages within messages, deeper than any reader follows.
    let nested = (0..5000).fold(Vec::new(), |inside: Vec<u8>, _| {
        let mut field = vec![0x3a];
        let mut length = inside.len();
        while length > 127 {
            field.push(length as u8 | 0x80);
            length >>= 7;
        }
        field.push(length as u8);
        [field, inside].concat()
    });
    workplace.write("nested.onnx", nested);
    let sparse = fs::File::create(workplace.path("zeros.onnx")).unwrap();
    sparse.set_len(3 << 30).unwrap();
    for name in ["cut", "empty", "noise", "nested", "zeros"] {
        let file = format!("{name}.onnx");
        let refused = run(&workplace, &[&file]).with_code(2);
        let refused = refused.saying(&[&file]);
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    }
    let both = run(&workplace, &["cut.onnx", "empty.onnx"]).with_code(2);
    assert_eq!(both.stderr.lines().count(), 2, "{}", both.stderr);
    // Beside a file that can be read, the other is a case that failed.
    workplace.add_model("two_inputs.onnx", "net.onnx");
    run(&workplace, &["cut.onnx", "net.onnx"]).with_code(5);
    run(&workplace, &["cut.onnx", "net.onnx", "--allow-failed"]).with_code(0);
    let statuses: Vec<Status> = workplace.records().iter().map(|record| record.status).collect();
    assert_eq!(statuses, [Status::Failed, Status::Ok]);
}

#[test]
#[cfg(feature = "tch")]
fn what_no_usual_size_fits_is_asked_for_with_the_command_line_to_copy() {
    let workplace = workplace(&["tch"]);
    workplace.add_model("scaled.pt", "scaled.pt");
    run(&workplace, &["scaled.pt"]).with_code(3);
    let message = workplace.record("scaled/tch-cpu-f32/1").message.unwrap();
    let (_, command) = message.split_once("as in `inferbench run scaled.pt ").unwrap_or_else(|| panic!("{message}"));
    let (flags, _) = command.split_once('`').unwrap();
    assert_eq!(flags, "--input 'x:f32[batch,3,224,224]' --input 'scale:f32[batch,3,224,224]'");
    run(&workplace, &["scaled.pt", "--input", "x:f32[batch,3];scale:f32[1,1]"]).with_code(0);
    let record = workplace.record("scaled/tch-cpu-f32/1");
    assert_eq!((record.status, record.input_shape.as_deref()), (Status::Ok, Some("1x3 1x1")));
}
