//! Operations and bytes of the packaged models, counted from their graphs: against published counts, and against what a
//! model of the same shape has to cost.

use inferbench::catalogue::read_catalogue;
use inferbench::definition::{Cost, Model, Origin, Phase, Sizes};
use inferbench::onnx::cost;
use proptest::prelude::*;

use crate::own_decoders::{copy_to, model_of};
use crate::support::{checkout, data_folder};

/// Published multiply-adds, each two operations here, of one sample.
///
/// - `resnet50` and `vit_b_16` at 224 × 224: "GFLOPS" in torchvision's documentation of `ResNet50_Weights` and
///   `ViT_B_16_Weights`, which counts multiply-adds.
/// - `bert-base` at 128 tokens: "MACs" of `hfl/chinese-roberta-wwm-ext` in the README of calflops 0.2, which has the same
///   layers; its smaller vocabulary is looked up and costs nothing.
const PUBLISHED: [(&str, Option<usize>, f64); 3] =
    [("resnet50", None, 4.09e9), ("vit_b_16", None, 17.56e9), ("bert-base", Some(128), 11.17e9)];

fn models() -> Vec<Model> {
    let entries = read_catalogue(&checkout().join("models")).unwrap();
    let packaged = entries.into_iter().map(|entry| entry.model.unwrap());
    packaged.filter(|model| model.variant == "original").collect()
}

pub fn model(name: &str) -> Model {
    models().into_iter().find(|model| model.name == name).unwrap()
}

pub fn sizes(batch: usize, sequence: Option<usize>) -> Sizes {
    Sizes { batch, sequence }
}

#[test]
fn counts_are_within_two_percent_of_the_published_ones() {
    for (name, sequence, multiply_adds) in PUBLISHED {
        let one = cost(&model(name), Phase::Forward, sizes(1, sequence)).unwrap();
        let ratio = one.flops as f64 / (2.0 * multiply_adds);
        println!("{name}: {} operations, {ratio:.4} of the published count", one.flops);
        assert!((ratio - 1.0).abs() < 0.02, "{name}: {} operations, {ratio:.4} of the published count", one.flops);
        let eight = cost(&model(name), Phase::Forward, sizes(8, sequence)).unwrap();
        assert_eq!(eight.flops, 8 * one.flops);
        assert!(eight.intensity() > one.intensity());
    }
}

#[test]
fn integers_are_counted_as_the_numbers_that_they_stand_for() {
    let entries = read_catalogue(&checkout().join("models")).unwrap();
    let models: Vec<Model> = entries.into_iter().map(|entry| entry.model.unwrap()).collect();
    let counted = |model: &Model| cost(model, Phase::Forward, sizes(8, None));
    let flops = |model: &Model| counted(model).unwrap().flops;
    let of = |variant: &str| models.iter().find(|model| model.name == "digits" && model.variant == variant).unwrap();
    let original = flops(of("original"));
    assert_eq!([flops(of("int8-dynamic")), flops(of("int8-static"))], [original; 2]);
    assert_eq!(flops(of("pruned-unstructured")), original, "zeros are multiplied too");
    assert!(flops(of("pruned-structured")) < original / 3);
    // What is counted is the f32 graph, whose weights are not in blocks.
    let blocks = counted(of("int4")).unwrap();
    assert_eq!((blocks.flops, blocks.intensity()), (original, None));
    assert!(counted(of("int8-torch")).unwrap_err().to_string().contains("no ONNX graph"));
}

#[test]
fn every_phase_of_every_packaged_model_is_counted() {
    let all = models();
    assert!(all.len() >= 30);
    for model in all {
        let lengths: Vec<Option<usize>> = match model.has_sequence() {
            true => model.sequence_lengths.iter().copied().map(Some).collect(),
            false => vec![None],
        };
        for plan in &model.phases {
            for &length in &lengths {
                for batch in [1, 3] {
                    let counted = cost(&model, plan.phase, sizes(batch, length));
                    let Cost { flops, bytes, nodes, node_bytes, matrix_products, convolution_flops } =
                        counted.unwrap_or_else(|error| panic!("{} {} {length:?}: {error}", model.name, plan.phase));
                    assert_eq!(matrix_products > 0, flops > convolution_flops, "{} {}", model.name, plan.phase);
                    assert!(flops > 0 && bytes > 0 && nodes > 0 && node_bytes > 0, "{} {}", model.name, plan.phase);
                }
            }
        }
    }
}

#[test]
fn a_resnet_moves_its_weights_its_picture_and_its_classes() {
    let model = model("resnet50");
    let counted = cost(&model, Phase::Forward, sizes(2, None)).unwrap();
    // Running means and variances of batch normalisation are no parameters, but they are read.
    let statistics = 2 * 26_560;
    let floats = model.parameters.unwrap() + statistics + 2 * (3 * 224 * 224 + 1000);
    let rest = counted.bytes - 4 * floats;
    assert!(rest < 1000, "{rest} bytes more");
}

#[test]
fn a_step_of_a_llama_costs_a_token_of_its_prefill_and_looks_back_on_the_prompt() {
    let model = model("llama-small");
    let count = |phase, length| cost(&model, phase, sizes(1, Some(length))).unwrap();
    let decode = |length| count(Phase::Decode, length);
    // Two products with keys and values, in 2 layers of width 128, for each position more.
    let attention = 2 * 2 * 2 * 128;
    assert_eq!(decode(33).flops - decode(32).flops, attention);
    // Its own position is one of those that it looks at.
    let products = decode(32).flops - 33 * attention;
    let (prefill, vocabulary) = (count(Phase::Prefill, 32), 2 * 128 * 1000);
    assert_eq!(prefill.flops, 32 * (products - vocabulary) + vocabulary + 32 * 32 * attention);
    assert!(decode(32).intensity() < prefill.intensity());
}

#[test]
fn the_bodies_of_loops_and_scans_are_counted_as_often_as_they_run() {
    let model = |name: &str| model_of(&data_folder().join("models").join(name).with_extension("onnx")).unwrap();
    for batch in [1, 3] {
        let counted = cost(&model("control_flow"), Phase::Forward, sizes(batch, None)).unwrap();
        let rows = batch as u64;
        // Five products in the loop, a vector's product for each row of the scan, and that of the branch which runs.
        assert_eq!(counted.flops, 5 * 2 * rows * 4 * 4 + rows * 2 * 4 * 3 + 2 * rows * 4 * 3);
        assert_eq!(counted.matrix_products, 5 + rows + 1);
        // The constants once, also those that only the bodies read; the input, and the outputs.
        let constants = 4 * (4 * 4 + 4 * 3 + 4) + 8 + 8 + 1;
        assert_eq!(counted.bytes, constants + 4 * rows * (4 + 3 + 5 + 3));
        // A product, a sum, and an addition; an identity is no work.
        assert_eq!(counted.nodes, 5 * 2 + rows * 2 + 1);
    }
    let why = format!("{:#}", cost(&model("until"), Phase::Forward, sizes(1, None)).unwrap_err());
    assert!(why.ends_with("Loop \"search\": how often its body runs depends on the values of the inputs"), "{why}");
}

#[test]
fn a_merged_decoder_costs_in_each_phase_what_the_graph_of_that_phase_costs() {
    let folder = tempfile::tempdir().unwrap();
    let counted = |name: &str, files: &[&str]| {
        copy_to(&folder.path().join(name), files);
        let model = model_of(&folder.path().join(name)).unwrap();
        [Phase::Prefill, Phase::Decode].map(|phase| {
            let counted = cost(&model, phase, sizes(2, Some(5))).unwrap();
            (counted.flops, counted.matrix_products)
        })
    };
    let split = counted("split", &["encoder_model", "decoder_model", "decoder_with_past_model"]);
    let merged = counted("merged", &["encoder_model", "decoder_model_merged"]);
    assert!(split == merged && split[0].0 > 0, "{split:?} {merged:?}");
}

#[test]
fn no_damage_to_a_graph_stops_the_count() {
    let place = tempfile::tempdir().unwrap();
    for name in ["vit-small", "tenn_eeg"] {
        let whole = std::fs::read(checkout().join("models/zoo").join(name).join("model.onnx")).unwrap();
        let mut model = model(name);
        model.origin = Origin::Packaged {
            folder: place.path().to_owned(),
            weights: None,
            has_reference: false,
            quantization: None,
        };
        let counted = |bytes: &[u8]| {
            std::fs::write(place.path().join("model.onnx"), bytes).unwrap();
            // Counted, or an error, but never a panic.
            cost(&model, Phase::Forward, sizes(2, None))
        };
        assert!(counted(&whole).is_ok());
        assert!(counted(&whole[..whole.len() / 2]).is_err());
        let damage = prop::collection::vec((0..whole.len(), any::<u8>()), 1..4);
        proptest!(ProptestConfig::with_cases(500), |(damage in damage)| {
            let mut bytes = whole.clone();
            for (position, byte) in damage {
                bytes[position] = byte;
            }
            let _ = counted(&bytes);
        });
    }
}
