//! Answers are judged by what a model is for: metrics of boxes, embeddings, speech, text, masks, depths, rankings and
//! signals, with and without labels.

use inferbench::history::History;
use inferbench::run_data::Metric;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::Value;

use crate::support::{Run, Workplace, data_folder};

/// The metrics of the latest run.
fn metrics(workplace: &Workplace) -> Vec<Metric> {
    let history = History::open(&[workplace.path("target-reports")]).unwrap();
    history.latest().unwrap().metrics().unwrap()
}

#[track_caller]
fn metric<'a>(metrics: &'a [Metric], case: &str, name: &str) -> &'a Metric {
    let of_case = || metrics.iter().filter(|metric| metric.case_id == case);
    let known: Vec<&str> = of_case().map(|metric| metric.metric.as_str()).collect();
    of_case().find(|metric| metric.metric == name).unwrap_or_else(|| panic!("{case}: no {name} among {known:?}"))
}

/// A safetensors file of these tensors.
fn write(workplace: &Workplace, name: &str, tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) {
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap()));
    workplace.write(name, safetensors::serialize(views, None).unwrap());
}

fn integers(values: impl IntoIterator<Item = i64>) -> Vec<u8> {
    values.into_iter().flat_map(i64::to_le_bytes).collect()
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// Runs models in f32 and another dtype in which the backend computes them right.
fn run_in(workplace: &Workplace, backend: &str, dtypes: &str, models: &str) -> Vec<Metric> {
    let run = ["run", "--noplot", "--backend", backend, "--dtype", dtypes, "--model", models, "--iterations", "10"];
    let finished = workplace.inferbench(&run).finish().with_code(0);
    assert!(finished.stdout.lines().any(|line| line.starts_with("metrics ") && line.ends_with("metrics.csv")));
    metrics(workplace)
}

/// The metrics of a case beside the original's.
#[track_caller]
fn check_compared(metrics: &[Metric], case: &str, names: &[&str], samples: u64) {
    let (_, rest) = case.split_once("-cpu-").unwrap();
    let dtype = rest.split_once('/').unwrap().0;
    let original = case.replace(&format!("-cpu-{dtype}/"), "-cpu-f32/");
    for name in names {
        let found = metric(metrics, case, name);
        assert_eq!((found.samples, found.compared_with.as_deref()), (samples, Some(original.as_str())), "{found:?}");
        let (lower, upper) = (found.lower.unwrap(), found.upper.unwrap());
        assert!(lower <= found.value && found.value <= upper && lower < upper, "{found:?}");
    }
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn embeddings_and_boxes_are_judged_beside_the_original() {
    let workplace = Workplace::new(&["clip-small", "detr-small"], &["candle"], &[3]);
    let metrics = run_in(&workplace, "candle", "f32,f16", "clip-small,detr-small");
    let clip =
        ["retrieval_at_1_image_embeds", "cosine_image_embeds", "retrieval_at_1_text_embeds", "cosine_text_embeds"];
    check_compared(&metrics, "clip-small-seq32/candle-cpu-f16/3", &clip, 64);
    check_compared(&metrics, "detr-small/candle-cpu-f16/3", &["map", "map50"], 64);
    let value = |name: &str| metrics.iter().find(|metric| metric.metric == name).unwrap().value;
    assert!(value("cosine_image_embeds") > 0.999 && value("retrieval_at_1_text_embeds") > 0.9, "{metrics:?}");
    assert!((0.9..=1.0).contains(&value("map")) && value("map50") >= value("map"), "{metrics:?}");
    // The original has nothing to be compared with, and no labels.
    assert!(metrics.iter().all(|metric| metric.case_id.contains("-f16/")), "{metrics:?}");
    shown_everywhere(&workplace, &metrics);
}

#[test]
#[cfg(feature = "tch")]
fn texts_and_speech_are_judged_beside_the_original() {
    let workplace = Workplace::new(&["gpt2-tiny", "whisper-mini", "wav2vec2-small"], &["tch"], &[3]);
    let metrics = run_in(&workplace, "tch", "f32,f16", "gpt2-tiny,whisper-mini");
    check_compared(&metrics, "gpt2-tiny-seq32-decode/tch-cpu-f16/3", &["token_agreement", "perplexity_change"], 32);
    check_compared(&metrics, "whisper-mini-decode/tch-cpu-f16/3", &["token_error_rate"], 32);
    let case = "gpt2-tiny-seq32-decode/tch-cpu-f16/3";
    assert!(metric(&metrics, case, "token_agreement").value > 0.9, "{metrics:?}");
    assert!(metric(&metrics, case, "perplexity_change").value.abs() < 0.01, "{metrics:?}");
    assert!(metric(&metrics, "whisper-mini-decode/tch-cpu-f16/3", "token_error_rate").value < 0.5, "{metrics:?}");

    let metrics = run_in(&workplace, "tch", "f32,bf16", "wav2vec2-small");
    let case = "wav2vec2-small-seq4000/tch-cpu-bf16/3";
    check_compared(&metrics, case, &["token_error_rate"], 64);
    assert!(metric(&metrics, case, "token_error_rate").value < 0.5, "{metrics:?}");
}

#[test]
#[cfg(feature = "tch")]
fn masks_depths_and_rankings_are_judged_beside_the_original() {
    let models = ["segformer-small", "unet-small", "depth-anything-tiny", "dlrm-small"];
    let workplace = Workplace::new(&models, &["candle"], &[3]);
    let found = run_in(&workplace, "candle", "f32,f16", &models.join(","));
    for (model, name) in models.into_iter().zip(["mean_iou", "mean_iou", "abs_rel", "concordance"]) {
        let case = format!("{model}/candle-cpu-f16/3");
        check_compared(&found, &case, &[name], 64);
        let value = metric(&found, &case, name).value;
        assert!(if name == "abs_rel" { value < 0.05 } else { value > 0.9 }, "{model}: {name} is {value}");
    }
    let page = workplace.inferbench(&["report", "--format", "html", "--output", "-"]).finish().with_code(0).stdout;
    for title in ["mean iou", "abs rel", "concordance"] {
        assert!(page.contains(&format!("\"title\":\"{title}\"")), "no column {title:?}");
    }
}

// ONNX Runtime's products of i8 overflow on processors without VNNI.
#[cfg(feature = "tract")]
#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn a_quantised_form_is_judged_by_its_kind() {
    let workplace = Workplace::new(&["diffusion-tiny", "dlrm-small"], &["tract"], &[2]);
    let found = run_in(&workplace, "tract", "f32,i8", "diffusion-tiny,dlrm-small");
    check_compared(&found, "diffusion-tiny/tract-cpu-i8/2", &["psnr"], 64);
    let psnr = metric(&found, "diffusion-tiny/tract-cpu-i8/2", "psnr").value;
    assert!((10.0..60.0).contains(&psnr), "{psnr}");
    check_compared(&found, "dlrm-small/tract-cpu-i8/2", &["concordance"], 64);
    // One number per sample has no cosine.
    let record = workplace.record("dlrm-small/tract-cpu-i8/2");
    assert_eq!((record.output_cosine, record.agreement), (None, None));
}

/// The metrics of a model on labelled samples.
fn of_labels(workplace: &Workplace, model: &str, file: &str) -> Vec<Metric> {
    let source = format!("recorded:{file}");
    let run =
        ["run", "--noplot", "--backend", "candle", "--model", model, "--iterations", "10", "--data-source", &source];
    workplace.inferbench(&run).finish().with_code(0);
    let found = metrics(workplace);
    assert!(found.iter().all(|metric| metric.compared_with.is_none()), "{found:?}");
    found
}

#[test]
fn labels_judge_masks_depths_and_clicks_by_themselves() {
    let workplace = Workplace::new(&["unet-small", "depth-anything-tiny", "dlrm-small"], &["candle"], &[2]);
    let pixels = |side: usize| {
        let of =
            move |sample: usize| (0..3 * side * side).map(move |it| ((it * (sample + 3)) % 17) as f32 / 17.0 - 0.5);
        floats((0..4).flat_map(of))
    };
    // Masks of twice the model's size, of which some pixels do not count.
    let mask = |place: i64| if place % 5 == 0 { 255 } else { place / 64 % 2 };
    write(
        &workplace,
        "masks.safetensors",
        &[
            ("input.input", Dtype::F32, &[4, 3, 32, 32], pixels(32)),
            ("label", Dtype::I64, &[4, 64, 64], integers((0..4 * 64 * 64).map(mask))),
        ],
    );
    let found = of_labels(&workplace, "unet-small", "masks.safetensors");
    let iou = metric(&found, &workplace.records()[0].case_id, "mean_iou");
    assert!(iou.samples == 4 && iou.value > 0.0 && iou.value < 1.0, "{iou:?}");

    let depths = (0..4 * 56 * 56).map(|place| if place % 3 == 0 { 0.0 } else { 1.0 + (place % 7) as f32 });
    write(
        &workplace,
        "depths.safetensors",
        &[
            ("input.pixel_values", Dtype::F32, &[4, 3, 56, 56], pixels(56)),
            ("label", Dtype::F32, &[4, 56, 56], floats(depths)),
        ],
    );
    let found = of_labels(&workplace, "depth-anything-tiny", "depths.safetensors");
    let error = metric(&found, &workplace.records()[0].case_id, "abs_rel");
    assert!(error.samples == 4 && error.value > 0.0 && error.value < 10.0, "{error:?}");

    let clicks = |labels: [i64; 6]| {
        let numbers = floats((0..6 * 13).map(|place| ((place * 7) % 11) as f32 / 11.0));
        let rows = integers((0..6 * 26 * 2).map(|place| (place * 13) % 100));
        write(
            &workplace,
            "clicks.safetensors",
            &[
                ("input.numbers", Dtype::F32, &[6, 13], numbers),
                ("input.rows", Dtype::I64, &[6, 26, 2], rows),
                ("label", Dtype::I64, &[6], integers(labels)),
            ],
        );
    };
    clicks([0, 1, 0, 0, 1, 1]);
    let found = of_labels(&workplace, "dlrm-small", "clicks.safetensors");
    let auc = metric(&found, &workplace.records()[0].case_id, "auc");
    // Nine pairs, of which each is right, wrong or neither.
    assert!(auc.samples == 6 && ((auc.value * 18.0).round() / 18.0 - auc.value).abs() < 1e-9, "{auc:?}");
    clicks([0, 1, 0, 0, 2, 1]);
    let source = ["--data-source", "recorded:clicks.safetensors"];
    let refused = workplace.inferbench(&[&["run", "--noplot", "--model", "dlrm-small"][..], &source].concat()).finish();
    refused.with_code(2).saying(&["`label` of sample 4 is 2: it is 1 for what was chosen"]);
}

#[test]
fn masks_lie_in_a_folder_beside_the_pictures() {
    let workplace = Workplace::new(&["unet-small"], &["candle"], &[2]);
    let pictures = data_folder().join("pictures");
    std::fs::create_dir_all(workplace.path("street/images/night")).unwrap();
    std::fs::create_dir_all(workplace.path("street/labels/night")).unwrap();
    for (from, to) in [("bars/small.png", "a.png"), ("rings/grey.png", "b.png"), ("bars/landscape.jpg", "night/c.jpg")]
    {
        std::fs::copy(pictures.join(from), workplace.path("street/images").join(to)).unwrap();
    }
    let run = || {
        let run = ["run", "--noplot", "--backend", "candle", "--model", "unet-small", "--iterations", "10"];
        workplace.inferbench(&[&run[..], &["--data-source", "image-folder:street/images"]].concat()).finish()
    };
    // An array in the size of the model's input, and a PNG in that of the picture.
    let array = |numbers: Vec<u8>| {
        let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (32, 32), }";
        [&b"\x93NUMPY\x01\x00"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes(), &numbers].concat()
    };
    workplace
        .write("street/labels/a.npy", array((0..1024).map(|place| if place % 4 == 0 { 255 } else { 1 }).collect()));
    workplace.write("street/labels/night/c.npy", array(vec![1; 1024]));
    let read =
        |path: &str| png::Decoder::new(std::io::BufReader::new(std::fs::File::open(workplace.path(path)).unwrap()));
    let (width, height) = read("street/images/b.png").read_info().unwrap().info().size();
    let mask = |class: u8| {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.write_header().unwrap().write_image_data(&vec![class; (width * height) as usize]).unwrap();
        workplace.write("street/labels/b.png", bytes);
    };
    mask(0);
    run().with_code(0);
    let found = metrics(&workplace);
    let iou = metric(&found, "unet-small/candle-cpu-f32/2", "mean_iou");
    assert!(iou.samples == 3 && iou.compared_with.is_none() && iou.value < 1.0, "{iou:?}");
    // A picture without a mask is named and left out.
    std::fs::remove_file(workplace.path("street/labels/night/c.npy")).unwrap();
    run().with_code(0);
    let message = workplace.record("unet-small/candle-cpu-f32/2").message.unwrap_or_default();
    assert!(message.contains("there is no") && message.contains("c with .npy or .npz or .png at its end"), "{message}");
    // A class that the model does not have.
    mask(7);
    run();
    let message = workplace.record("unet-small/candle-cpu-f32/2").message.unwrap_or_default();
    assert!(message.contains("the mask of a sample has the class 7, and the model has 2"), "{message}");
}

fn shown_everywhere(workplace: &Workplace, metrics: &[Metric]) {
    let json = workplace.inferbench(&["report", "--format", "json"]).finish().with_code(0).stdout;
    let records: Value = serde_json::from_str(&json).unwrap();
    let shown: usize = records.as_array().unwrap().iter().map(|row| row["metrics"].as_array().unwrap().len()).sum();
    assert_eq!(shown, metrics.len());
    let page = workplace.inferbench(&["report", "--format", "html", "--output", "-"]).finish().with_code(0).stdout;
    assert!(page.contains("\"title\":\"map50\"") && page.contains("\"title\":\"retrieval at 1 text embeds\""));
    if cfg!(feature = "duckdb") {
        let count = "SELECT count(*) AS n FROM metrics JOIN benchmark_results USING (run_id, case_id)";
        let query = |more: &[&str]| {
            let arguments = [&["store", "query", count, "--format", "csv"], more].concat();
            workplace.inferbench(&arguments).finish().with_code(0).stdout
        };
        let expected = format!("n\n{}\n", metrics.len());
        assert_eq!(query(&[]).replace('\r', ""), expected);
        // They go through a database, and come back.
        workplace.inferbench(&["store", "export", "all.duckdb"]).finish().with_code(0);
        workplace.inferbench(&["store", "import", "all.duckdb", "--history", "other"]).finish().with_code(0);
        let other = History::open(&[workplace.path("other")]).unwrap();
        assert_eq!(other.latest().unwrap().metrics().unwrap(), metrics);
    }
}

#[test]
fn files_of_users_are_judged_by_what_they_are_and_by_what_is_said_of_them() {
    let workplace = Workplace::new(&[], &["candle"], &[2]);
    for variant in ["", ".same"] {
        workplace.add_model("decoder.onnx", &format!("models/exported/words{variant}.onnx"));
        workplace.add_model("two_inputs.onnx", &format!("models/exported/vectors{variant}.onnx"));
        workplace.write(&format!("models/exported/vectors{variant}.toml"), "judge = 'embedding'");
    }
    let run = ["run", "--noplot", "--model", "words,vectors", "--variant", "all", "--iterations", "10"];
    let finished = workplace.inferbench(&run).finish().with_code(0);
    let found = metrics(&workplace);
    let value = |case: &str, name: &str| metric(&found, case, name).value;
    let words = "words-same-seq30-decode/candle-cpu-f32/2";
    assert_eq!((value(words, "token_agreement"), value(words, "perplexity_change")), (1.0, 0.0));
    let vectors = "vectors-same/candle-cpu-f32/2";
    assert!(value(vectors, "cosine") > 0.999_999 && value(vectors, "retrieval_at_1") == 1.0, "{found:?}");
    // The table of variants has a column for each, and says that there were no labels.
    let table = |title: &str| finished.stdout.split(title).nth(1).unwrap().split("\n\n").next().unwrap().to_owned();
    let words = table("words · sequence length 30 · decode");
    assert!(words.contains("token agreement") && words.contains("100.0 %") && words.contains(" kept"), "{words}");
    assert!(words.contains("there were no labelled samples"), "{words}");
    assert!(table("vectors · batch 2").contains("retrieval at 1"));
    let page = ["report", "--variants", "words", "--format", "json"];
    let variants: Value = serde_json::from_str(&workplace.inferbench(&page).finish().with_code(0).stdout).unwrap();
    let tables = std::iter::once(&variants).chain(variants["others"].as_array().unwrap());
    assert!(
        tables.flat_map(|table| table["rows"].as_array().unwrap()).any(|row| row["metrics"][0]["better"].is_null())
    );

    // What is said is not supposed only.
    workplace.write("models/exported/vectors.toml", "judge = 'boxes'");
    let run = ["run", "--noplot", "--model", "vectors", "--variant", "all", "--iterations", "10"];
    workplace.inferbench(&run).finish().with_code(0);
    let message = workplace.record("vectors/candle-cpu-f32/2").message.unwrap_or_default();
    let misfit = "its answers were not evaluated: the outputs have no boxes with a score per class; there are [2, 2]";
    assert!(message.contains(misfit), "{message}");

    workplace.write("models/exported/vectors.toml", "judge = 'taste'");
    let refused = workplace.inferbench(&["models", "--model", "vectors"]).finish();
    let said = refused.stdout + &refused.stderr;
    assert!(said.contains("unknown variant `taste`"), "{said}");
}

// ONNX Runtime's products of i8 overflow on processors without VNNI.
#[cfg(feature = "tract")]
#[test]
fn labels_of_an_embedding_are_groups_and_decide_what_is_recommended() {
    let workplace = Workplace::new(&["bert-small"], &["tract"], &[4]);
    // Three of each group have the same tokens, but for the last group, of which no two have.
    let tokens = |sample: i64| (0..32).map(move |place| if sample < 15 { sample / 3 * 7 } else { sample * 5 } + place);
    write(
        &workplace,
        "groups.safetensors",
        &[
            ("input.input_ids", Dtype::I64, &[18, 32], integers((0..18).flat_map(tokens))),
            ("input.attention_mask", Dtype::I64, &[18, 32], integers([1; 18 * 32])),
            ("label", Dtype::I64, &[18], integers((0..18).map(|sample| sample / 3))),
        ],
    );
    let source = ["--data-source", "recorded:groups.safetensors", "--variant", "original,int8-static"];
    let finished =
        workplace.inferbench(&[&["run", "--noplot", "--model", "bert-small"][..], &source].concat()).finish();
    let finished = finished.with_code(0);
    let metrics = metrics(&workplace);
    let [original, int8] = ["original", "int8-static"].map(|variant| {
        let record = workplace.records().into_iter().find(|record| record.variant == variant).unwrap();
        assert_eq!((record.accuracy, record.data_source.as_deref()), (None, Some("groups")));
        metric(&metrics, &record.case_id, "retrieval_at_1").clone()
    });
    assert!(original.value >= 15.0 / 18.0 && original.compared_with.is_none(), "{original:?}");
    assert_eq!((original.samples, int8.samples), (18, 18));
    let change = metric(&metrics, &int8.case_id, "retrieval_at_1_change");
    assert!((change.value - (int8.value - original.value)).abs() < 1e-12, "{change:?}");
    assert_eq!(change.compared_with.as_deref(), Some(original.case_id.as_str()));
    // Eighteen samples cannot show that a point was kept.
    for part in ["quality is the retrieval at 1 on groups", " open ", "retrieval at 1 change"] {
        assert!(finished.stdout.contains(part), "no {part:?} in {}", finished.stdout);
    }
    let half = ["report", "--variants", "bert-small", "--max-accuracy-loss", "30%"];
    let allowed = workplace.inferbench(&half).finish().with_code(0).stdout;
    assert!(allowed.contains(" kept "), "{allowed}");
}

#[test]
fn a_recorded_text_has_the_same_perplexity_on_every_backend() {
    let mut backends = vec!["candle"];
    backends.extend(cfg!(feature = "tch").then_some("tch"));
    backends.extend(cfg!(feature = "tract").then_some("tract"));
    let workplace = Workplace::new(&["llama-small"], &backends, &[2]);
    // Any tokens, in texts of two lengths.
    let token =
        |sample: i64, place: i64| if place > 9 && sample % 4 == 1 { -1 } else { (sample * 131 + place * 17) % 1000 };
    let text = (0..8).flat_map(|sample| (0..14).map(move |place| token(sample, place)));
    let prompt = |sample: i64| (0..32).map(move |place| (sample * 37 + place * place) % 1000);
    write(
        &workplace,
        "text.safetensors",
        &[
            ("input.input_ids", Dtype::I64, &[8, 32], integers((0..8).flat_map(prompt))),
            ("label", Dtype::I64, &[8, 14], integers(text)),
        ],
    );
    let run = ["run", "--noplot", "--model", "llama-small", "--iterations", "10", "--phase", "decode"];
    let source = ["--data-source", "recorded:text.safetensors"];
    workplace.inferbench(&[&run[..], &source].concat()).finish().with_code(0);
    let found = metrics(&workplace);
    let perplexities: Vec<f64> = found.iter().filter(|it| it.metric == "perplexity").map(|it| it.value).collect();
    assert_eq!(perplexities.len(), backends.len(), "{found:?}");
    for perplexity in &perplexities {
        // Any tokens are about as likely as any others.
        assert!((200.0..5000.0).contains(perplexity), "{perplexities:?}");
        assert!((perplexity / perplexities[0] - 1.0).abs() < 1e-3, "{perplexities:?}");
    }
    let other_length = [&run[..], &source, &["--seq-lens", "20", "--backend", "candle"]].concat();
    workplace.inferbench(&other_length).finish().with_code(0);
    let message = workplace.records()[0].message.clone().unwrap();
    assert!(message.contains("`--seq-lens 32` measures the length of the samples"), "{message}");
}

#[test]
#[cfg(feature = "text")]
fn a_decoder_reads_the_texts_of_a_file() {
    let workplace = Workplace::new(&["llama-small"], &["candle"], &[2]);
    let folder = workplace.path("models/zoo/llama-small");
    std::fs::copy(data_folder().join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
    let long = ["we made it. ", "some of them look. ", "the water was. "].map(|words| words.repeat(12));
    workplace.write("texts.txt", long.join("\n") + "\nSome of them look.\n");
    let run = ["run", "--noplot", "--model", "llama-small", "--iterations", "10", "--phase", "decode"];
    let finished = workplace.inferbench(&[&run[..], &["--text", "texts.txt"]].concat()).finish().with_code(0);
    let found = metrics(&workplace);
    let perplexity = metric(&found, "llama-small-seq32-decode/candle-cpu-f32/2", "perplexity");
    assert!(perplexity.samples == 3 && perplexity.compared_with.is_none(), "{perplexity:?}");
    assert!(perplexity.better.is_some() && (50.0..20_000.0).contains(&perplexity.value), "{perplexity:?}");
    finished.saying(&["left out: text 4 has", "32 of them are the prompt, and nothing follows"]);
    let timed = [&run[..], &["--text", "texts.txt", "--time-on", "samples"]].concat();
    workplace.inferbench(&timed).finish().with_code(2).saying(&["llama-small makes tokens"]);
}

#[test]
fn labels_judge_boxes_and_speech_by_themselves() {
    let workplace = Workplace::new(&["detr-small", "wav2vec2-small"], &["candle"], &[2]);
    let pixels = |sample: usize| (0..3 * 192 * 256).map(move |place| ((place * (sample + 3)) % 17) as f32 / 17.0 - 0.5);
    write(
        &workplace,
        "boxes.safetensors",
        &[
            ("input.pixel_values", Dtype::F32, &[4, 3, 192, 256], floats((0..4).flat_map(pixels))),
            ("label.boxes", Dtype::F32, &[4, 2, 4], floats((0..32).map(|place| 0.3 + (place % 4) as f32 / 10.0))),
            ("label.classes", Dtype::I64, &[4, 2], integers([3, -1, 4, 5, 19, -1, -1, -1])),
        ],
    );
    let run = |model: &str, file: &str| {
        let source = format!("recorded:{file}");
        let run = ["run", "--noplot", "--model", model, "--iterations", "10", "--data-source", &source];
        workplace.inferbench(&run).finish()
    };
    run("detr-small", "boxes.safetensors").with_code(0);
    let found = metrics(&workplace);
    for name in ["map", "map50"] {
        let found = metric(&found, &workplace.records()[0].case_id, name);
        assert!(found.compared_with.is_none() && (0.0..=1.0).contains(&found.value), "{found:?}");
        assert_eq!(found.samples, 4);
    }

    let vocabulary = (0..32).map(|token| match token {
        0 => "\"<pad>\": 0".to_owned(),
        4 => "\"|\": 4".to_owned(),
        token => format!("\"{token}\": {token}"),
    });
    let vocabulary = vocabulary.collect::<Vec<_>>().join(", ");
    workplace.write("models/zoo/wav2vec2-small/vocab.json", format!("{{{vocabulary}}}"));
    let sound = |sample: usize| (0..4000).map(move |place| ((place * (sample + 1)) as f32 / 40.0).sin());
    write(
        &workplace,
        "sounds.safetensors",
        &[
            ("input.input_values", Dtype::F32, &[3, 4000], floats((0..3).flat_map(sound))),
            ("label", Dtype::I64, &[3, 5], integers([5, 6, 4, 7, -1, 8, 4, 9, 4, 10, 11, -1, -1, -1, -1])),
        ],
    );
    run("wav2vec2-small", "sounds.safetensors").with_code(0);
    let found = metrics(&workplace);
    let rate = metric(&found, &workplace.records()[0].case_id, "word_error_rate");
    assert!(rate.compared_with.is_none() && rate.samples == 3 && rate.value > 0.0, "{rate:?}");
    // Six words were said.
    assert!((rate.value * 6.0 - (rate.value * 6.0).round()).abs() < 1e-9, "{rate:?}");

    write(
        &workplace,
        "wrong.safetensors",
        &[
            ("input.input_values", Dtype::F32, &[3, 4000], floats((0..3).flat_map(sound))),
            ("label", Dtype::I64, &[3], integers([5, 6, 4])),
        ],
    );
    run("wav2vec2-small", "wrong.safetensors")
        .with_code(2)
        .saying(&["`label` has shape [3] instead of one row of tokens per sample"]);
}
