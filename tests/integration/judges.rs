//! Answers are judged by what a model is for: metrics of boxes, embeddings, speech, text, masks, depths, rankings and
//! signals, with and without labels.

mod labels;

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
fn texts_and_transcripts_are_judged_beside_the_original() {
    let workplace = Workplace::new(&["gpt2-tiny", "whisper-mini"], &["tch"], &[3]);
    let metrics = run_in(&workplace, "tch", "f32,f16", "gpt2-tiny,whisper-mini");
    check_compared(&metrics, "gpt2-tiny-seq32-decode/tch-cpu-f16/3", &["token_agreement", "perplexity_change"], 32);
    check_compared(&metrics, "whisper-mini-decode/tch-cpu-f16/3", &["token_error_rate"], 32);
    let case = "gpt2-tiny-seq32-decode/tch-cpu-f16/3";
    assert!(metric(&metrics, case, "token_agreement").value > 0.9, "{metrics:?}");
    assert!(metric(&metrics, case, "perplexity_change").value.abs() < 0.01, "{metrics:?}");
    assert!(metric(&metrics, "whisper-mini-decode/tch-cpu-f16/3", "token_error_rate").value < 0.5, "{metrics:?}");
}

#[test]
#[cfg(feature = "tch")]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn speech_is_judged_beside_the_original() {
    let workplace = Workplace::new(&["wav2vec2-small"], &["tch"], &[3]);
    let metrics = run_in(&workplace, "tch", "f32,bf16", "wav2vec2-small");
    let case = "wav2vec2-small-seq4000/tch-cpu-bf16/3";
    check_compared(&metrics, case, &["token_error_rate"], 64);
    assert!(metric(&metrics, case, "token_error_rate").value < 0.5, "{metrics:?}");
}

/// Judges models in f16 beside their originals, each by one metric.
#[cfg(feature = "tch")]
fn check_in_f16(of_models: &[(&str, &str)]) {
    let models: Vec<&str> = of_models.iter().map(|(model, _)| *model).collect();
    let workplace = Workplace::new(&models, &["candle"], &[3]);
    let found = run_in(&workplace, "candle", "f32,f16", &models.join(","));
    let page = workplace.inferbench(&["report", "--format", "html", "--output", "-"]).finish().with_code(0).stdout;
    for (model, name) in of_models {
        let case = format!("{model}/candle-cpu-f16/3");
        check_compared(&found, &case, &[name], 64);
        let value = metric(&found, &case, name).value;
        assert!(if *name == "abs_rel" { value < 0.05 } else { value > 0.9 }, "{model}: {name} is {value}");
        let title = name.replace('_', " ");
        assert!(page.contains(&format!("\"title\":\"{title}\"")), "no column {title:?}");
    }
}

#[test]
#[cfg(feature = "tch")]
fn masks_and_rankings_are_judged_beside_the_original() {
    check_in_f16(&[("segformer-small", "mean_iou"), ("dlrm-small", "concordance")]);
}

#[test]
#[cfg(feature = "tch")]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn depths_are_judged_beside_the_original() {
    check_in_f16(&[("unet-small", "mean_iou"), ("depth-anything-tiny", "abs_rel")]);
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
