//! What a model's answers are worth: accuracy of variants on every backend, pictures of a folder, weights of one's own.

use std::fs;
use std::path::Path;

use inferbench::definition::Status;
use inferbench::run_data::Record;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use crate::support::{Run, Workplace, checkout, copy_folder, data_folder, has_onnxruntime};

/// The backends of this build that the tests know the answers of.
fn backends() -> Vec<&'static str> {
    let built = [
        ("ort", has_onnxruntime()),
        ("tch", cfg!(feature = "tch")),
        ("candle", true),
        ("tract", cfg!(feature = "tract")),
    ];
    built.into_iter().filter_map(|(name, is_there)| is_there.then_some(name)).collect()
}

/// How many of the held-out pictures PyTorch or the tool that made it had right, by what `model.toml` says of a variant.
fn right_by_the_exporter(variant: &str) -> Option<f64> {
    let text = fs::read_to_string(checkout().join("models/zoo/digits/model.toml")).unwrap();
    let definition: toml::Table = toml::from_str(&text).unwrap();
    let tables = definition["variants"].as_array().unwrap();
    let made = tables.iter().find(|table| table["name"].as_str() == Some(variant))?["made"].as_str()?;
    let words: Vec<&str> = made.split_whitespace().collect();
    let count = words.windows(3).find(|three| three[1..] == ["of", "450"]).map(|three| three[0]);
    count?.parse().ok()
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn every_variant_is_as_accurate_on_every_backend_as_where_it_was_made() {
    let workplace = Workplace::new(&["digits"], &backends(), &[1, 8]);
    workplace.inferbench(&["run", "--noplot", "--variant", "all"]).finish().with_code(0);
    let records = workplace.records();
    let measured: Vec<&Record> = records.iter().filter(|record| record.status == Status::Ok).collect();
    for record in &measured {
        let id = record.case().to_string();
        let samples = (record.data_source.as_deref(), record.accuracy_samples);
        assert_eq!(samples, (Some("digits-held-out"), Some(450)), "{id}");
        let right = record.accuracy.unwrap() * 450.0;
        if record.variant == "original" {
            assert!((right - 445.0).abs() < 1e-6, "{id} has {right} of 450 right");
            assert_eq!((record.agreement, record.accuracy_change), (None, None), "{id}");
            continue;
        }
        let expected = right_by_the_exporter(&record.variant).unwrap_or_else(|| panic!("{}: no count", record.variant));
        // Integers of other runtimes are rounded at other places: one picture may fall to the other side.
        let allowed = if record.variant.starts_with("int8") { 1.0 } else { 0.0 };
        assert!(
            (right - expected).abs() <= allowed + 1e-6,
            "{id}: {right} of 450 right, and {expected} where it was made"
        );
        let bounds = (record.accuracy_lower.unwrap(), record.accuracy_upper.unwrap());
        assert!(bounds.0 < record.accuracy.unwrap() && record.accuracy.unwrap() < bounds.1, "{id}");
        let top5 = record.accuracy_top5.unwrap();
        assert!(top5 >= record.accuracy.unwrap() && top5 <= 1.0, "{id}");
        let change = (record.accuracy_change_lower.unwrap(), record.accuracy_change.unwrap());
        assert!((change.1 * 450.0 - (right - 445.0)).abs() < 1e-6 && change.0 < change.1, "{id}");
        assert!(record.agreement.unwrap() > 0.95 && record.output_cosine.unwrap() > 0.9, "{id}");
    }
    let variants = |backend: &str| {
        let of_backend = measured.iter().filter(|record| record.backend == backend && record.batch_size == 8);
        of_backend.map(|record| record.variant.as_str()).collect::<Vec<_>>()
    };
    let trained = ["original", "distilled", "pruned-structured", "pruned-unstructured"];
    assert!(trained.iter().all(|variant| variants("candle").contains(variant)), "{:?}", variants("candle"));
    if has_onnxruntime() {
        assert_eq!(variants("ort").len(), 6, "{:?}", variants("ort"));
    }
    if cfg!(feature = "tch") {
        assert_eq!(variants("tch").len(), 5, "{:?}", variants("tch"));
    }
    sizes_are_those_of_the_files(&workplace, &measured);
}

fn sizes_are_those_of_the_files(workplace: &Workplace, measured: &[&Record]) {
    let bytes = |path: &Path| fs::metadata(path).unwrap().len() as f64;
    for record in measured {
        let extension = if record.backend == "tch" { "pt" } else { "onnx" };
        let expected = if record.variant.starts_with("int8") {
            bytes(&workplace.path(&format!("models/quantized/digits.{}.{extension}", record.variant)))
        } else {
            let name =
                if record.variant == "original" { "digits".to_owned() } else { format!("digits.{}", record.variant) };
            let prepared = workplace.path(".prepared").join(name);
            bytes(&prepared.join(format!("model.{extension}"))) + bytes(&prepared.join("weights.safetensors"))
        };
        let size = record.model_size_mb.unwrap() * 1e6;
        assert!((size - expected).abs() < 0.5, "{}: {size} bytes, and the files have {expected}", record.case());
    }
}

#[test]
fn the_table_of_variants_ends_a_run_and_names_what_to_ship() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let finished = workplace.inferbench(&["run", "--noplot", "--variant", "original,distilled"]).finish().with_code(0);
    assert!(finished.stdout.contains("digits · batch 1"), "{}", finished.stdout);
    assert!(finished.stdout.contains("98.9 %") && finished.stdout.contains("of 450"), "{}", finished.stdout);
    let unknown = workplace.inferbench(&["run", "--model", "digits", "--variant", "int3"]).finish().with_code(2);
    assert!(unknown.stderr.contains("digits has no variant \"int3\"; there are original, "), "{}", unknown.stderr);
}

#[test]
fn two_files_are_compared_in_one_command() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = Workplace::new(&[], &["ort"], &[8]);
    workplace.inferbench(&["prepare", "--model", "digits"]).finish().with_code(0);
    let files = "net=.prepared/digits/model.onnx,int8=models/quantized/digits.int8-static.onnx";
    let samples = "recorded:models/trained/digits-held-out.safetensors";
    let finished =
        workplace.inferbench(&["run", "--noplot", "--path", files, "--data-source", samples]).finish().with_code(0);
    let original = workplace.record("net/ort-cpu-f32/8");
    assert_eq!((original.accuracy, original.dtype.name()), (Some(445.0 / 450.0), "f32"));
    // What a file computes in it says itself.
    let int8 = workplace.record("net-int8/ort-cpu-i8/8");
    assert!(int8.agreement.unwrap() > 0.99 && int8.accuracy_change.is_some(), "{int8:?}");
    assert_eq!((original.parameters, int8.parameters), (Some(13_706), Some(13_706)));
    assert!(int8.nonzero_parameters.is_some_and(|nonzero| nonzero < 13_706), "{:?}", int8.nonzero_parameters);
    assert!(finished.stdout.contains("net · batch 8"), "{}", finished.stdout);

    let dtype = workplace.inferbench(&["run", "--noplot", "--path", files, "--dtype", "f32"]).finish().with_code(0);
    assert!(dtype.stderr.contains("its weights are of i8"), "{}", dtype.stderr);
    let taken = workplace.inferbench(&["run", "--path", "digits=.prepared/digits/model.onnx"]).finish().with_code(2);
    assert!(taken.stderr.contains("has the name of another model"), "{}", taken.stderr);
}

#[test]
fn pictures_of_a_folder_judge_a_model_and_those_that_cannot_be_read_are_named() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = Workplace::new(&["vit-small"], &["ort"], &[4]);
    copy_folder(&data_folder().join("pictures"), &workplace.path("pictures"));
    let run = |source: &str| {
        workplace
            .inferbench(&["run", "--noplot", "--model", "vit-small", "--iterations", "10", "--data-source", source])
            .finish()
    };
    // Three folders are no hundred classes.
    let refused = run("image-folder:pictures").with_code(2);
    assert!(refused.stderr.contains("classes"), "{}", refused.stderr);
    let of_no_model = workplace
        .inferbench(&["run", "--model", "digits", "--backend", "ort", "--data-source", "image-folder:pictures"])
        .finish()
        .with_code(2);
    assert!(of_no_model.stderr.contains("none of the models can take image-folder"), "{}", of_no_model.stderr);
    let nowhere = run("image-folder:nowhere").with_code(2);
    assert!(nowhere.stderr.contains("nowhere"), "{}", nowhere.stderr);

    let classes: Vec<String> = (0..100).map(|place| format!("class{place}")).collect();
    let classes =
        classes.join("\n").replace("class7\n", "rings\n").replace("class8\n", "bars\n").replace("class9\n", "waves\n");
    workplace.write("pictures/classes.txt", classes);
    run("image-folder:pictures").with_code(0);
    let record = workplace.record("vit-small/ort-cpu-f32/4");
    assert_eq!(record.data_source.as_deref(), Some("image-folder pictures"));
    let (samples, message) = (record.accuracy_samples.unwrap(), record.message.clone().unwrap_or_default());
    assert!(record.status == Status::Ok && record.accuracy.is_some() && record.accuracy_top5.is_some());
    let pictures = walk(&workplace.path("pictures"));
    assert_eq!(samples as usize, pictures - 2, "all but the truncated and the empty one");
    assert!(message.contains("2 samples could not be read") && message.contains("empty.jpg"), "{message}");
}

/// Files that are named as pictures.
fn walk(folder: &Path) -> usize {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(
            |path| {
                if path.is_dir() { walk(&path) } else { usize::from(path.extension().is_some_and(|it| it != "txt")) }
            },
        )
        .sum()
}

#[test]
fn weights_of_ones_own_are_those_of_every_backend() {
    let workplace = Workplace::new(&["digits"], &backends(), &[2]);
    workplace.write("own.safetensors", with_moved_classes(&workplace.path("models/trained/digits.safetensors")));
    let held_out = with_moved_labels(&workplace.path("models/trained/digits-held-out.safetensors"));
    workplace.write("moved.safetensors", held_out);
    let suite = fs::read_to_string(workplace.path("models/suites/quick.toml")).unwrap();
    let own = |keys: &str| suite.replace("{ name = \"digits\" }", &format!("{{ name = \"digits\", {keys} }}"));
    let (weights, moved) = ("weights = 'own.safetensors'", "data_source = 'recorded:moved.safetensors'");
    workplace.write("own.toml", own(&format!("{weights}, {moved}")));
    let run = ["run", "--noplot", "--suite", "own.toml"];
    workplace.inferbench(&run).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), backends().len());
    for record in &records {
        // There is no reference for such weights: one backend is checked against another.
        assert!(record.status == Status::Ok && record.verified != Some(false), "{record:?}");
        assert_eq!(record.accuracy, Some(445.0 / 450.0), "{}", record.case());
    }
    assert!(workplace.path(".prepared/digits@own/weights.safetensors").is_file());

    // Nobody names samples: they are the model's own, and what was right is wrong.
    workplace.write("own.toml", own(weights));
    workplace.inferbench(&[&run[..], &["--backend", "candle"]].concat()).finish().with_code(0);
    let record = workplace.record("digits/candle-cpu-f32/2");
    assert_eq!(record.data_source.as_deref(), Some("digits-held-out"));
    assert!(record.accuracy.is_some_and(|accuracy| accuracy <= 5.0 / 450.0), "{:?}", record.accuracy);

    let bytes = fs::read(workplace.path("own.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let kept = tensors.iter().filter(|(name, _)| *name != "fc2.bias");
    workplace.write("own.safetensors", safetensors::serialize(kept, None).unwrap());
    let refused = workplace.inferbench(&[&run[..], &["--batch-sizes", "1,2"]].concat()).finish().with_code(3);
    assert_eq!(refused.stderr.matches("fc2.bias is missing (shape [10])").count(), 1, "{}", refused.stderr);
    let cases = format!("left out: digits original ({} cases): ", 2 * backends().len());
    assert!(refused.stderr.contains(&cases), "{}", refused.stderr);
    let suite = fs::read_to_string(workplace.path("own.toml")).unwrap();
    workplace.write("own.toml", suite.replace("own.safetensors", "nowhere.safetensors"));
    let nowhere = workplace.inferbench(&["run", "--suite", "own.toml"]).finish().with_code(2);
    assert!(
        nowhere.stderr.contains("there is no file") && nowhere.stderr.contains("nowhere.safetensors"),
        "{}",
        nowhere.stderr
    );
}

/// The weights with each row of the last layer, which is a class, one further: what was class 9 is class 0.
fn with_moved_classes(path: &Path) -> Vec<u8> {
    rewritten(path, |name, view| {
        let mut bytes = view.data().to_vec();
        if name.starts_with("fc2") {
            bytes.rotate_right(view.data().len() / view.shape()[0]);
        }
        bytes
    })
}

/// The samples with each label one further.
fn with_moved_labels(path: &Path) -> Vec<u8> {
    rewritten(path, |name, view| {
        let labels = view.data().as_chunks::<8>().0.iter().map(|label| i64::from_le_bytes(*label));
        if name == "label" {
            labels.flat_map(|label| ((label + 1) % 10).to_le_bytes()).collect()
        } else {
            view.data().to_vec()
        }
    })
}

/// The file with other bytes of its tensors.
fn rewritten(path: &Path, bytes_of: impl Fn(&str, &TensorView) -> Vec<u8>) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let changed: Vec<_> = tensors.iter().map(|(name, view)| (name, bytes_of(name, &view), view)).collect();
    let views = changed
        .iter()
        .map(|(name, bytes, view)| (*name, TensorView::new(view.dtype(), view.shape().to_vec(), bytes).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

#[test]
fn recorded_samples_judge_the_models_whose_inputs_they_have() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    workplace.add_model("two_inputs.onnx", "models/exported/two_inputs.onnx");
    let source = ["--data-source", "recorded:models/trained/digits-held-out.safetensors"];
    workplace.inferbench(&[&["run", "--noplot"][..], &source].concat()).finish().with_code(0);
    let samples = |id: &str| workplace.record(id).data_source;
    assert_eq!(samples("digits/candle-cpu-f32/1").as_deref(), Some("digits-held-out"));
    assert_ne!(samples("two_inputs/candle-cpu-f32/1").as_deref(), Some("digits-held-out"));

    let other = workplace.inferbench(&[&["run", "--model", "two_inputs"][..], &source].concat()).finish().with_code(2);
    other.saying(&[
        "none of the models can take digits-held-out",
        "as a tensor `input.<name>`",
        "two_inputs needs `input.",
    ]);
    let held_out = workplace.path("models/trained/digits-held-out.safetensors");
    workplace.write("unlabelled.safetensors", renamed(&held_out, "input.input", "labels"));
    let run = ["run", "--noplot", "--model", "digits", "--data-source", "recorded:unlabelled.safetensors"];
    let ran = workplace.inferbench(&run).finish().with_code(0);
    ran.saying(&["unlabelled.safetensors: there is no accuracy: labels are called `label`, and `labels` is not read"]);
    workplace.write("models/exported/narrow.toml", "[dimensions]\nlength = 8\n");
    workplace.add_model("open_length.onnx", "models/exported/narrow.onnx");
    workplace.write("renamed.safetensors", renamed(&held_out, "input.x", "label"));
    let run = ["run", "--model", "narrow", "--data-source", "recorded:renamed.safetensors"];
    workplace.inferbench(&run).finish().with_code(2).saying(&[
        "renamed.safetensors: `input.x` is f32 [450, 1, 8, 8], and the input of the model is x:f32[batch,8,3]",
    ]);
}

fn renamed(path: &Path, input: &str, label: &str) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let renamed = tensors.iter().map(|(name, view)| (if name == "label" { label } else { input }, view));
    safetensors::serialize(renamed, None).unwrap()
}
