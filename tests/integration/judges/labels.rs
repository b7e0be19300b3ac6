//! Answers beside labels that are recorded with samples, or lie in a folder beside pictures.

use std::cmp::Ordering;

use inferbench::backend;
use inferbench::catalogue::read_catalogue;
use inferbench::definition::{self, Phase, Sizes};
use inferbench::fixture::{HostTensor, TensorData, prepare_and_hold};

use super::*;
use crate::support::on_one_thread;

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

/// What a model answers to inputs: the numbers of its first output.
fn answers(workplace: &Workplace, name: &str, inputs: &[HostTensor]) -> Vec<f32> {
    let catalogue = read_catalogue(&workplace.path("models")).unwrap();
    let model = catalogue.into_iter().find(|entry| entry.name == name).unwrap().model.unwrap();
    let held = prepare_and_hold(&model, &workplace.path("target/prepared"), definition::Dtype::F32).unwrap();
    let sizes = Sizes { batch: inputs[0].shape[0], sequence: None };
    let mut session =
        backend::find("candle").unwrap().load(&on_one_thread(&model, &held.artifacts, Phase::Forward, sizes)).unwrap();
    let binding = session.bind(inputs).unwrap();
    session.run(binding).unwrap();
    session.sync().unwrap();
    let TensorData::F32(numbers) = session.outputs(binding).unwrap().remove(0).data else { panic!("{name}") };
    numbers
}

/// A square map in twice its size, with the pixels between its own in proportion to what is near.
fn doubled(map: &[f32], side: usize) -> Vec<f32> {
    let near = |place: usize| {
        let at = (place as f32 / 2.0 - 0.25).max(0.0);
        (at as usize, (at as usize + 1).min(side - 1), at.fract())
    };
    let pixel = |place: usize| {
        let ((top, bottom, down), (left, right, along)) = (near(place / (2 * side)), near(place % (2 * side)));
        let of_row = |row: usize| map[row * side + left] * (1.0 - along) + map[row * side + right] * along;
        of_row(top) * (1.0 - down) + of_row(bottom) * down
    };
    (0..4 * side * side).map(pixel).collect()
}

/// The mean over two classes of the pixels that both masks have over those that either has; 255 does not count.
fn mean_iou(pairs: impl Iterator<Item = (i64, i64)> + Clone) -> f64 {
    let of_class = |class: i64| {
        let counted = || pairs.clone().filter(|(_, right)| *right != 255);
        let shared = counted().filter(|(found, right)| *found == class && *right == class).count();
        let united = counted().filter(|(found, right)| *found == class || *right == class).count();
        shared as f64 / united as f64
    };
    (of_class(0) + of_class(1)) / 2.0
}

#[test]
fn labels_judge_masks_depths_and_clicks_by_themselves() {
    let workplace = Workplace::new(&["unet-small", "depth-anything-tiny", "dlrm-small"], &["candle"], &[2]);
    let pixels = |side: usize| -> Vec<f32> {
        let of =
            move |sample: usize| (0..3 * side * side).map(move |it| ((it * (sample + 3)) % 17) as f32 / 17.0 - 0.5);
        (0..4).flat_map(of).collect()
    };
    let of_pixels = |side: usize| HostTensor { shape: vec![4, 3, side, side], data: TensorData::F32(pixels(side)) };
    // Masks of twice the model's size, of which some pixels do not count.
    let mask = |place: usize| if place.is_multiple_of(5) { 255 } else { place as i64 / 64 % 2 };
    write(
        &workplace,
        "masks.safetensors",
        &[
            ("input.input", Dtype::F32, &[4, 3, 32, 32], floats(pixels(32))),
            ("label", Dtype::I64, &[4, 64, 64], integers((0..4 * 64 * 64).map(mask))),
        ],
    );
    let found = of_labels(&workplace, "unet-small", "masks.safetensors");
    let iou = metric(&found, &workplace.records()[0].case_id, "mean_iou");
    let classes: Vec<i64> = answers(&workplace, "unet-small", &[of_pixels(32)])
        .chunks(2 * 32 * 32)
        .flat_map(|scores| {
            let [zero, one] = [0, 1].map(|class| doubled(&scores[class * 32 * 32..][..32 * 32], 32));
            zero.into_iter().zip(one).map(|(zero, one)| i64::from(one > zero)).collect::<Vec<_>>()
        })
        .collect();
    let right = mean_iou(classes.iter().enumerate().map(|(place, class)| (*class, mask(place))));
    assert!(iou.samples == 4 && (iou.value - right).abs() < 1e-3, "{right}: {iou:?}");

    let depth = |place: usize| if place.is_multiple_of(3) { 0.0 } else { 1.0 + (place % 7) as f32 };
    write(
        &workplace,
        "depths.safetensors",
        &[
            ("input.pixel_values", Dtype::F32, &[4, 3, 56, 56], floats(pixels(56))),
            ("label", Dtype::F32, &[4, 56, 56], floats((0..4 * 56 * 56).map(depth))),
        ],
    );
    let found = of_labels(&workplace, "depth-anything-tiny", "depths.safetensors");
    let error = metric(&found, &workplace.records()[0].case_id, "abs_rel");
    let depths = answers(&workplace, "depth-anything-tiny", &[of_pixels(56)]);
    let of_sample = |sample: usize| {
        let places = || (sample * 56 * 56..(sample + 1) * 56 * 56).filter(|place| depth(*place) > 0.0);
        let errors = places().map(|place| f64::from((depths[place] - depth(place)).abs() / depth(place)));
        errors.sum::<f64>() / places().count() as f64
    };
    let right = (0..4).map(of_sample).sum::<f64>() / 4.0;
    assert!(error.samples == 4 && right > 0.0 && (error.value / right - 1.0).abs() < 1e-3, "{right}: {error:?}");

    let numbers: Vec<f32> = (0..6 * 13).map(|place| ((place * 7) % 11) as f32 / 11.0).collect();
    let rows: Vec<i64> = (0..6 * 26 * 2).map(|place| (place * 13) % 100).collect();
    let clicks = |labels: [i64; 6]| {
        write(
            &workplace,
            "clicks.safetensors",
            &[
                ("input.numbers", Dtype::F32, &[6, 13], floats(numbers.iter().copied())),
                ("input.rows", Dtype::I64, &[6, 26, 2], integers(rows.iter().copied())),
                ("label", Dtype::I64, &[6], integers(labels)),
            ],
        );
    };
    clicks([0, 1, 0, 0, 1, 1]);
    let found = of_labels(&workplace, "dlrm-small", "clicks.safetensors");
    let auc = metric(&found, &workplace.records()[0].case_id, "auc");
    let inputs = [
        HostTensor { shape: vec![6, 13], data: TensorData::F32(numbers.clone()) },
        HostTensor { shape: vec![6, 26, 2], data: TensorData::I64(rows.clone()) },
    ];
    let scores = answers(&workplace, "dlrm-small", &inputs);
    // Nine pairs, of which each is right, wrong or neither.
    let of_pair = |chosen: usize, other: usize| match scores[chosen].total_cmp(&scores[other]) {
        Ordering::Greater => 1.0,
        Ordering::Equal => 0.5,
        Ordering::Less => 0.0,
    };
    let pairs = [1, 4, 5].into_iter().flat_map(|chosen| [0, 2, 3].map(|other| of_pair(chosen, other)));
    let right = pairs.sum::<f64>() / 9.0;
    assert!(auc.samples == 6 && (auc.value - right).abs() < 1e-9, "{right}: {auc:?}");
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
    let case = &workplace.records()[0].case_id;
    let [map, map50] = ["map", "map50"].map(|name| metric(&found, case, name));
    for metric in [map, map50] {
        assert!(metric.compared_with.is_none() && (0.0..=1.0).contains(&metric.value), "{metric:?}");
        assert_eq!(metric.samples, 4);
    }
    assert!(map50.value >= map.value, "{found:?}");

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
