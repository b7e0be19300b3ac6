//! Samples in the timed loop: pictures and texts with their own sizes, and the pipeline from their bytes to the best classes.
#![cfg(feature = "candle")]

use std::fs;

use inferbench::definition::{Boundary, Status, TimedOn};
use inferbench::run_data::Record;

use crate::support::{Finished, Run, Workplace, data_folder, has_onnxruntime};

/// The packaged model of pictures with a folder of some, among them two that are damaged.
fn with_pictures(backends: &[&str], batch_sizes: &[usize]) -> Workplace {
    let workplace = Workplace::new(&["vit-small"], backends, batch_sizes);
    for (place, class) in ["bars", "rings", "waves"].iter().enumerate() {
        let folder = workplace.path(&format!("pictures/{place}"));
        fs::create_dir_all(&folder).unwrap();
        for entry in fs::read_dir(data_folder().join("pictures").join(class)).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
            }
        }
    }
    workplace
}

fn run(workplace: &Workplace, arguments: &[&str]) -> Finished {
    workplace.inferbench(&[&["run", "--noplot"], arguments].concat()).finish()
}

fn parts(record: &Record) -> [Option<f64>; 5] {
    [record.preprocess_ms, record.h2d_ms, record.compute_ms, record.d2h_ms, record.postprocess_ms]
}

#[test]
fn pictures_are_timed_from_their_bytes_to_the_best_classes() {
    let backends: &[&str] = if has_onnxruntime() { &["ort", "candle"] } else { &["candle"] };
    let workplace = with_pictures(backends, &[1, 4]);
    let model = ["--model", "vit-small", "--data-source", "image-folder:pictures"];
    run(&workplace, &[&model[..], &["--boundary", "compute,pipeline", "--time-on", "samples"]].concat()).with_code(0);
    for batch_size in [1, 4] {
        let whole = workplace.record(&format!("vit-small-pipeline/candle-cpu-f32/{batch_size}"));
        assert_eq!((whole.status, whole.boundary, whole.timed_on), (Status::Ok, Boundary::Pipeline, TimedOn::Samples));
        let parts = parts(&whole).map(Option::unwrap);
        assert!(parts.iter().sum::<f64>() <= whole.latency_max_ms.unwrap(), "{parts:?}");
        assert!(parts.iter().all(|&ms| ms > 0.0), "{parts:?}");
        let compute = workplace.record(&format!("vit-small-samples/candle-cpu-f32/{batch_size}"));
        assert_eq!(
            (compute.boundary, compute.timed_on, self::parts(&compute)),
            (Boundary::Compute, TimedOn::Samples, [None; 5])
        );
        assert!(compute.timed_samples.as_deref().unwrap().starts_with("pictures "), "{:?}", compute.timed_samples);
        assert_eq!(compute.timed_samples, whole.timed_samples);
        if backends.len() > 1 {
            let verified = [&compute, &whole].map(|record| (record.verified, record.verified_by.as_deref()));
            assert_eq!(verified, [(Some(true), Some("ort")); 2]);
        }
    }
    let shown =
        workplace.inferbench(&["report", "--columns", "p50,preprocess,compute,postprocess"]).finish().with_code(0);
    assert!(shown.stdout.contains("vit-small-pipeline") && shown.stdout.contains("postprocess"), "{}", shown.stdout);

    // Seeded inputs of the same case are other work.
    run(&workplace, &["--model", "vit-small"]).with_code(0);
    assert_eq!(workplace.record("vit-small/candle-cpu-f32/1").timed_on, TimedOn::Seeded);
}

#[test]
fn models_without_pictures_or_texts_have_no_pipeline() {
    let workplace = Workplace::new(&["digits", "tenn_eeg"], &["candle"], &[1]);
    run(&workplace, &["--model", "tenn_eeg", "--boundary", "pipeline"]).with_code(2).saying(&[
        "tenn_eeg has no samples",
        "image-folder:FOLDER",
        "--text FILE",
    ]);
    run(&workplace, &["--model", "digits", "--boundary", "pipeline"])
        .with_code(2)
        .saying(&["digits has tensors as samples, and a pipeline begins with images or texts"]);
    // Recorded tensors can be timed; what has no samples is then left out.
    run(&workplace, &["--model", "digits,tenn_eeg", "--time-on", "samples"]).with_code(0);
    let recorded = workplace.record("digits-samples/candle-cpu-f32/1");
    assert!(recorded.status == Status::Ok && recorded.timed_samples.unwrap().starts_with("digits"), "digits");
    assert_eq!(workplace.record("tenn_eeg-samples/candle-cpu-f32/1").status, Status::Unsupported);
}

#[cfg(feature = "text")]
mod texts {
    use super::*;

    /// Of 6, 7, 12 and 15 tokens, with those at both ends.
    const TEXTS: &str = "The water was.\n\nSome of them look.\nWhat did you see when the day was over and\nHow many people \
                         have been to the part of the world, or\n";

    fn long() -> String {
        "we made it. ".repeat(40) + "\n"
    }

    /// The packaged model of texts, with a tokenizer.
    fn with_tokenizer(backends: &[&str], batch_sizes: &[usize]) -> Workplace {
        let workplace = Workplace::new(&["bert-small"], backends, batch_sizes);
        fs::copy(data_folder().join("tokenizer.json"), workplace.path("models/zoo/bert-small/tokenizer.json")).unwrap();
        workplace.write("texts.txt", TEXTS.to_owned() + &long());
        workplace
    }

    const MODEL: [&str; 4] = ["--model", "bert-small", "--text", "texts.txt"];

    #[test]
    fn texts_are_timed_in_their_own_lengths() {
        let backends = if cfg!(feature = "tract") { vec!["candle", "tract"] } else { vec!["candle"] };
        let workplace = with_tokenizer(&backends, &[1, 2]);
        let config = r#"{"model_max_length": 64}"#;
        workplace.write("models/zoo/bert-small/tokenizer_config.json", config);
        run(&workplace, &[&MODEL[..], &["--time-on", "samples"]].concat()).with_code(0);
        let shape = |id: &str| {
            let record = workplace.record(id);
            assert!(record.status == Status::Ok && record.flops.is_none(), "{record:?}");
            record.input_shape.unwrap()
        };
        assert_eq!(shape("bert-small-seq8-samples/candle-cpu-f32/1"), "1x6..7 1x6..7");
        assert_eq!(shape("bert-small-seq8-samples/candle-cpu-f32/2"), "2x7 2x7");
        assert_eq!(shape("bert-small-seq16-samples/candle-cpu-f32/1"), "1x12..15 1x12..15");
        // Cut to what the model takes.
        assert_eq!(shape("bert-small-seq64-samples/candle-cpu-f32/1"), "1x64 1x64");
        assert_eq!(workplace.records().len(), 3 * 2 * backends.len());
        if cfg!(feature = "tract") {
            // It would compile a graph for each length.
            assert_eq!(shape("bert-small-seq16-samples/tract-cpu-f32/1"), "1x15 1x15");
            let other = workplace.record("bert-small-seq16-samples/tract-cpu-f32/1");
            assert_eq!((other.verified, other.verified_by.as_deref()), (Some(true), Some("candle")));
        }
        run(
            &workplace,
            &[&MODEL[..], &["--time-on", "samples", "--seq-lens", "10,32", "--backend", "candle"]].concat(),
        )
        .with_code(0);
        assert_eq!(shape("bert-small-seq10-samples/candle-cpu-f32/1"), "1x6..7 1x6..7");
        assert_eq!(shape("bert-small-seq32-samples/candle-cpu-f32/1"), "1x12..32 1x12..32");
    }

    #[test]
    fn a_pipeline_of_texts_begins_with_the_tokenizer() {
        let workplace = with_tokenizer(&["candle"], &[1]);
        let arguments = [&MODEL[..], &["--boundary", "compute,pipeline", "--seq-lens", "16"]].concat();
        run(&workplace, &arguments).with_code(0);
        let whole = workplace.record("bert-small-seq16-pipeline/candle-cpu-f32/1");
        assert!(parts(&whole)[..4].iter().all(|ms| ms.unwrap() > 0.0), "{:?}", parts(&whole));
        assert_eq!(whole.input_shape.as_deref(), Some("1x6..16 1x6..16"));
        let seeded = workplace.record("bert-small-seq16/candle-cpu-f32/1");
        assert_eq!((seeded.timed_on, seeded.input_shape.as_deref()), (TimedOn::Seeded, Some("1x16 1x16")));
    }

    #[test]
    fn what_is_wrong_with_texts_and_tokenizers_is_said() {
        let workplace = with_tokenizer(&["candle"], &[1]);
        let refused = |parts: &[&str]| {
            drop(run(&workplace, &[&MODEL[..], &["--time-on", "samples"]].concat()).with_code(2).saying(parts))
        };
        workplace.write("texts.txt", "\n \n");
        refused(&["texts.txt has no text: write one text per line"]);
        fs::remove_file(workplace.path("texts.txt")).unwrap();
        refused(&["texts.txt"]);
        workplace.write("texts.txt", TEXTS);
        let path = workplace.path("models/zoo/bert-small/tokenizer.json");
        let tokenizer = fs::read_to_string(&path).unwrap();
        fs::write(&path, tokenizer.replace("\"water\":107", "\"water\":5000")).unwrap();
        refused(&["text 1 of texts.txt: a token has the id 5000, and the model knows 1000 tokens", "of another model"]);
        fs::write(&path, &tokenizer[..tokenizer.len() / 2]).unwrap();
        refused(&["tokenizer.json is not a tokenizer"]);
        fs::remove_file(&path).unwrap();
        refused(&["bert-small has no tokenizer: there is no", "bert-small/tokenizer.json", "`inferbench import`"]);
        // It is for models of texts only.
        run(&workplace, &["--model", "digits", "--text", "texts.txt"])
            .with_code(2)
            .saying(&["none of the models can take text"]);
    }
}
