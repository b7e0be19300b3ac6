//! What a model's answers are worth: accuracy of variants on every backend, pictures of a folder, weights of one's own.

use std::fs;
use std::path::Path;

use inferbench::definition::Status;
use inferbench::record::Record;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

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
    let unknown = workplace.inferbench(&["run", "--model", "digits", "--variant", "int4"]).finish().with_code(2);
    assert!(unknown.stderr.contains("digits has no variant \"int4\"; there are original, "), "{}", unknown.stderr);
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
    assert!(finished.stdout.contains("net · batch 8"), "{}", finished.stdout);

    let dtype = workplace.inferbench(&["run", "--noplot", "--path", files, "--dtype", "f32"]).finish().with_code(0);
    assert!(dtype.stderr.contains("its file computes in i8"), "{}", dtype.stderr);
    let nowhere = workplace.inferbench(&["run", "--path", "nowhere.onnx"]).finish().with_code(2);
    assert!(nowhere.stderr.contains("there is no file nowhere.onnx"), "{}", nowhere.stderr);
    let taken = workplace.inferbench(&["run", "--path", "digits=.prepared/digits/model.onnx"]).finish().with_code(2);
    assert!(taken.stderr.contains("has the name of another model"), "{}", taken.stderr);
}

#[test]
fn pictures_of_a_folder_judge_a_model_and_those_that_cannot_be_read_are_named() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = Workplace::new(&["resnet50"], &["ort"], &[4]);
    copy_folder(&data_folder().join("pictures"), &workplace.path("pictures"));
    let run = |source: &str| {
        workplace
            .inferbench(&["run", "--noplot", "--model", "resnet50", "--iterations", "10", "--data-source", source])
            .finish()
    };
    // Three folders are no thousand classes.
    let refused = run("image-folder:pictures").with_code(2);
    assert!(refused.stderr.contains("classes"), "{}", refused.stderr);
    let of_no_model = workplace
        .inferbench(&["run", "--model", "digits", "--backend", "ort", "--data-source", "image-folder:pictures"])
        .finish()
        .with_code(2);
    assert!(of_no_model.stderr.contains("none of the models can be judged by image-folder"), "{}", of_no_model.stderr);
    let nowhere = run("image-folder:nowhere").with_code(2);
    assert!(nowhere.stderr.contains("nowhere"), "{}", nowhere.stderr);

    let classes: Vec<String> = (0..1000).map(|place| format!("class{place}")).collect();
    let classes =
        classes.join("\n").replace("class7\n", "rings\n").replace("class8\n", "bars\n").replace("class9\n", "waves\n");
    workplace.write("pictures/classes.txt", classes);
    run("image-folder:pictures").with_code(0);
    let record = workplace.record("resnet50/ort-cpu-f32/4");
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
    let own = doubled(&workplace.path("models/trained/digits.safetensors"));
    workplace.write("own.safetensors", own);
    let suite = fs::read_to_string(workplace.path("models/suites/quick.toml")).unwrap();
    let held_out = "weights = 'own.safetensors', data_source = 'recorded:models/trained/digits-held-out.safetensors'";
    workplace
        .write("own.toml", suite.replace("{ name = \"digits\" }", &format!("{{ name = \"digits\", {held_out} }}")));
    workplace.inferbench(&["run", "--noplot", "--suite", "own.toml"]).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), backends().len());
    for record in &records {
        // There is no reference for such weights: one backend is checked against another.
        assert!(record.status == Status::Ok && record.verified != Some(false), "{record:?}");
        // Twice the last layer's weights and biases is twice every logit, and the same order.
        assert_eq!(record.accuracy, Some(445.0 / 450.0), "{}", record.case());
    }
    assert!(workplace.path(".prepared/digits@own/weights.safetensors").is_file());

    let bytes = fs::read(workplace.path("own.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let kept = tensors.iter().filter(|(name, _)| *name != "fc2.bias");
    workplace.write("own.safetensors", safetensors::serialize(kept, None).unwrap());
    let refused = workplace.inferbench(&["run", "--noplot", "--suite", "own.toml"]).finish().with_code(3);
    assert!(refused.stderr.contains("fc2.bias is missing (shape [10])"), "{}", refused.stderr);
    let suite = fs::read_to_string(workplace.path("own.toml")).unwrap();
    workplace.write("own.toml", suite.replace("own.safetensors", "nowhere.safetensors"));
    let nowhere = workplace.inferbench(&["run", "--suite", "own.toml"]).finish().with_code(2);
    assert!(
        nowhere.stderr.contains("there is no file") && nowhere.stderr.contains("nowhere.safetensors"),
        "{}",
        nowhere.stderr
    );
}

/// The weights with those of the last layer twice as large.
fn doubled(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let changed: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, view)| {
            let factor = if name.starts_with("fc2") { 2.0 } else { 1.0 };
            let numbers = view.data().as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk) * factor);
            (name.to_owned(), view.shape().to_vec(), numbers.flat_map(f32::to_le_bytes).collect())
        })
        .collect();
    let views = changed
        .iter()
        .map(|(name, shape, bytes)| (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    safetensors::serialize(views, None).unwrap()
}
