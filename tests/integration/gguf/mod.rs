//! Language models as GGUF files: llama.cpp and candle on them, and the forms that are made of packaged models.
#![cfg(feature = "llama-cpp")]

mod files;

use std::fs;
use std::path::{Path, PathBuf};

use inferbench::backend;
use inferbench::catalogue::read_catalogue;
use inferbench::definition::{Dtype, Phase, Sizes, Status};
use inferbench::fixture::Artifacts;
use inferbench::gguf::Header;
use inferbench::history::History;
use inferbench::run_data::Metric;
use serde_json::Value;

use crate::support::{Run, Workplace, checkout, has_llama_cpp, on_one_thread};

/// The variants of GGUF files, with llama.cpp's names and the types of their tensors.
const SCHEMES: [(&str, &str, &[&str]); 5] = [
    ("q8_0", "Q8_0", &["F32", "Q8_0"]),
    ("q6_k", "Q6_K", &["F32", "Q6_K"]),
    ("q5_k_m", "Q5_K - Medium", &["F32", "Q5_K", "Q6_K"]),
    ("q4_k_m", "Q4_K - Medium", &["F32", "Q4_K", "Q6_K"]),
    ("q4_0", "Q4_0", &["F32", "Q4_0", "Q6_K"]),
];

/// All variants as they are written on the command line.
fn all_variants() -> String {
    SCHEMES.iter().fold("original".to_owned(), |all, (variant, ..)| format!("{all},{variant}"))
}

/// The file of a form of `llama-256`.
fn form_of_256(workplace: &Workplace, form: &str) -> PathBuf {
    workplace.path(&format!(".prepared/llama-256/{form}/model.gguf"))
}

/// The q4_0 form of llama-small, as a user has it.
fn users_file(workplace: &Workplace) -> PathBuf {
    workplace.inferbench(&["prepare", "--variant", "q4_0"]).finish().with_code(0);
    let file = workplace.path("mine.gguf");
    fs::copy(workplace.path(".prepared/llama-small/q4_0/model.gguf"), &file).unwrap();
    file
}

#[test]
fn llama_cpp_in_f32_gives_the_tokens_of_pytorch() {
    if !has_llama_cpp() {
        return;
    }
    let models = ["llama-small", "qwen2-small", "qwen3-small", "gpt2-tiny"];
    let workplace = Workplace::new(&models, &["llama-cpp"], &[1, 3]);
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 16, "two phases and two batch sizes of four models");
    for record in records {
        let id = record.case().to_string();
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {:?}", record.message);
        assert_eq!(record.verified_by.as_deref(), Some("reference"), "{id}");
        // ggml looks GELU up in a table of f16.
        let has_table = record.model == "gpt2-tiny";
        let most = if has_table { 1e-3 } else { 1e-5 };
        assert!(record.max_rel_error.unwrap() < most, "{id}: {:?}", record.max_rel_error);
        assert_eq!((record.effective_dtype, record.threads), (Some(Dtype::F32), Some(1)), "{id}");
        let message = record.message.unwrap();
        assert!(message.contains("flash attention off, cache f32"), "{id}: {message}");
        assert_eq!(message.contains("GELU from a table of f16"), has_table, "{id}: {message}");
        assert!(record.library_version.unwrap().starts_with("0.5.0"), "{id}");
        assert_eq!(record.new_tokens, (record.phase == Phase::Decode).then_some(16), "{id}");
    }
}

#[test]
fn quantised_forms_are_right_on_llama_cpp_and_candle() {
    if !has_llama_cpp() {
        return;
    }
    let models = ["llama-small", "qwen2-small", "qwen3-small"];
    let workplace = Workplace::new(&models, &["llama-cpp", "candle"], &[2]);
    workplace.inferbench(&["run", "--noplot", "--variant", "q8_0,q4_0"]).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 24);
    for record in &records {
        let id = record.case().to_string();
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {:?}", record.message);
        // candle is compared with another engine.
        let by = ["the same weights in f32", "the same weights in f32 on llama-cpp"];
        assert_eq!(record.verified_by.as_deref(), Some(by[usize::from(record.backend == "candle")]), "{id}");
        assert_eq!(record.effective_dtype, Some(Dtype::I8), "{id}");
    }
    let size = |variant: &str| {
        let id = format!("llama-small-{variant}-seq32-prefill/llama-cpp-cpu-i8/2");
        workplace.record(&id).model_size_mb.unwrap()
    };
    assert!(size("q8_0") > 1.3 * size("q4_0"), "{} and {} MB", size("q8_0"), size("q4_0"));
    // A form whose blocks do not fit the rows is refused, and the others run.
    workplace
        .inferbench(&["run", "--noplot", "--model", "llama-small", "--variant", "q4_k_m,q8_0"])
        .finish()
        .with_code(0);
    let refused = workplace.record("llama-small-q4_k_m-seq32-decode/llama-cpp-cpu-i8/2");
    assert_eq!(refused.status, Status::Unsupported);
    let message = refused.message.unwrap();
    assert!(message.contains("q4_k_m needs rows that are multiples of 256"), "{message}");
    assert_eq!(workplace.record("llama-small-q8_0-seq32-decode/llama-cpp-cpu-i8/2").status, Status::Ok);
}

#[test]
fn every_scheme_is_right_on_llama_cpp_and_candle_and_one_command_chooses_among_them() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-256"], &["llama-cpp", "candle"], &[1]);
    let suite = fs::read_to_string(workplace.path("models/suites/quick.toml")).unwrap();
    workplace.write("models/suites/quick.toml", suite.replace("watch = false", "watch = true"));
    workplace.inferbench(&["run", "--noplot", "--variant", &all_variants()]).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 2 * 2 * (1 + SCHEMES.len()));
    for record in &records {
        let id = record.case().to_string();
        let message = record.message.as_deref().unwrap_or_default();
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {message}");
        assert!(record.memory_mb.unwrap() > record.model_size_mb.unwrap(), "{id}: {:?}", record.memory_mb);
        let why = record.energy_kind.as_deref().unwrap_or_default();
        assert!(record.energy_j_per_sample.is_some() || why.starts_with("none: "), "{id}: {why}");
        let Some((variant, scheme, _)) = SCHEMES.iter().find(|(variant, ..)| *variant == record.variant) else {
            continue;
        };
        assert_eq!((record.gguf_scheme.as_deref(), record.effective_dtype), (Some(*scheme), Some(Dtype::I8)), "{id}");
        // What the file has, and on llama.cpp its own name of that.
        let mut kinds = format!("({})", Header::read(&form_of_256(&workplace, variant)).unwrap().kinds_in_words());
        if record.backend == "llama-cpp" {
            kinds = format!("{scheme} {kinds}, flash attention auto");
        }
        assert!(message.contains(&kinds), "{id}: {message}");
    }
    let sizes = SCHEMES.map(|(variant, ..)| fs::metadata(form_of_256(&workplace, variant)).unwrap().len());
    assert!(sizes[..4].is_sorted_by(|one, next| one > next), "{sizes:?}");

    // The smallest form that loses no more than is allowed. The divergences are those of both engines.
    let history = History::open(&[workplace.path("target-reports")]).unwrap();
    let metrics: Vec<Metric> = history.runs().iter().flat_map(|run| run.metrics().unwrap()).collect();
    let most = |variant: &str, name: &str| {
        let own =
            metrics.iter().filter(|it| it.metric == name && it.case_id.starts_with(&format!("llama-256-{variant}-")));
        own.map(|it| it.upper.unwrap()).fold(f64::NEG_INFINITY, f64::max)
    };
    let divergences = SCHEMES.map(|(variant, ..)| most(variant, "kl_divergence"));
    assert!(divergences[..4].is_sorted() && divergences[0] > 0.0, "{divergences:?}");
    let recommended = |limits: &[&str]| {
        let asked = ["recommend", "llama-256", "--goal", "size", "--format", "json"];
        let said = workplace.inferbench(&[&asked, limits].concat()).finish().with_code(0).stdout;
        let all: Vec<Value> = serde_json::from_str(&said).unwrap();
        assert_eq!(all.len(), 2, "{said}");
        all
    };
    for ((variant, ..), divergence) in SCHEMES.iter().zip(divergences).take(3) {
        let limit = format!("{:.9}", 1.000_001 * divergence);
        for advice in recommended(&["--max-memory", "1GB", "--max-kl", &limit]) {
            let chosen = advice["case_id"].as_str().unwrap();
            assert!(chosen.starts_with(&format!("llama-256-{variant}-seq32-")), "{advice}");
            assert!(advice["excluded"].to_string().contains("the divergence of the next token"), "{advice}");
            assert!(advice["would_change"].to_string().contains("--max-kl "), "{advice}");
        }
    }
    let limit = 1.000_001 * (1.0 + most("q6_k", "perplexity_change"));
    for advice in recommended(&["--max-perplexity", &format!("{:.9}x", limit.max(1.0))]) {
        let decoding = advice["case_id"].as_str().unwrap().replace("prefill", "decode");
        let own = metrics.iter().find(|it| it.metric == "perplexity_change" && it.case_id == decoding);
        assert!(1.0 + own.map_or(0.0, |it| it.upper.unwrap()) <= limit.max(1.0), "{limit}: {advice}");
    }
}

#[test]
fn a_file_of_another_dtype_than_was_asked_for_is_refused() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-small"], &["llama-cpp", "candle"], &[1]);
    workplace.inferbench(&["prepare", "--variant", "original,q8_0"]).finish().with_code(0);
    let form = |name: &str| workplace.path(&format!(".prepared/llama-small/{name}/model.gguf"));
    let other = fs::read(form("gguf-f32")).unwrap();
    fs::remove_file(form("q8_0")).unwrap();
    fs::write(form("q8_0"), other).unwrap();
    workplace.inferbench(&["run", "--noplot", "--variant", "q8_0", "--phase", "decode"]).finish();
    let records = workplace.records();
    assert_eq!(records.len(), 2);
    for record in records {
        let (id, message) = (record.case().to_string(), record.message.unwrap_or_default());
        assert_eq!(record.status, Status::Unsupported, "{id}: {message}");
        assert_eq!(message, "asked for i8, and it computes in f32", "{id}");
    }
}

#[test]
fn settings_reach_the_record_and_outputs_stay_right() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-256"], &["llama-cpp"], &[2]);
    let settings = "cache=q8_0,flash-attention=on,repack=off,mmap=off,ubatch=16";
    let asked = ["run", "--noplot", "--variant", "q4_k_m"];
    workplace.inferbench(&asked).env("INFERBENCH_LLAMA_SETTINGS", settings).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 2);
    for record in records {
        let (id, message) = (record.case().to_string(), record.message.unwrap_or_default());
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {message}");
        let said = "flash attention on, cache q8_0, mmap off, repacking off, micro-batch 16, batch ";
        assert!(message.contains(said), "{id}: {message}");
    }
    let wrong = workplace.inferbench(&asked).env("INFERBENCH_LLAMA_SETTINGS", "ngl=99").finish().with_code(2);
    wrong.saying(&["INFERBENCH_LLAMA_SETTINGS: \"ngl=99\" is not a setting"]);
}

#[test]
#[cfg(feature = "ort")]
fn without_libraries_a_form_that_llama_cpp_makes_is_unavailable_and_unsupported_where_it_is_not_read() {
    let workplace = Workplace::new(&["llama-small"], &["candle", "ort"], &[1]);
    fs::remove_file(workplace.path(".native")).unwrap();
    let mut run = workplace.inferbench(&["run", "--noplot", "--variant", "q8_0", "--pp", "8"]);
    run.env("INFERBENCH_LLAMA_LIBRARY", "nowhere").env_remove("ORT_DYLIB_PATH").finish().with_code(3);
    let records = workplace.records();
    let outcomes: Vec<_> = records.iter().map(|record| (record.backend.as_str(), record.status)).collect();
    assert_eq!(outcomes, [("candle", Status::Unavailable), ("ort", Status::Unsupported)], "{records:?}");
}

#[test]
fn decoding_takes_batches_as_large_as_llama_cpp_has_sequences_for() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-small"], &["llama-cpp"], &[52, 64, 65]);
    let asked = ["verify", "--variant", "original,q8_0", "--phase", "decode"];
    let said = workplace.inferbench(&asked).finish();
    let outcomes = workplace.unkept_outcomes().finished;
    assert_eq!(outcomes.len(), 6, "{}", said.stderr);
    for (id, outcome) in outcomes {
        let message = outcome.row.message.unwrap_or_default();
        if id.ends_with("/65") {
            assert_eq!(outcome.row.status, Status::Unsupported, "{id}: {message}");
            assert!(message.contains("decoding keeps 4 batches, 260 sequences in all"), "{id}: {message}");
            assert!(message.ends_with("llama.cpp keeps 256 at most: the largest batch is 64"), "{id}: {message}");
        } else {
            assert_eq!((outcome.row.status, outcome.row.verified), (Status::Ok, Some(true)), "{id}: {message}");
        }
    }
}

#[test]
fn fewer_tokens_than_the_reference_has_are_right_and_more_than_the_model_has_are_refused() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-small"], &["llama-cpp", "candle", "ort"], &[1]);
    workplace.inferbench(&["run", "--noplot", "--pp", "32", "--tg", "4", "--depth", "32"]).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 6);
    for record in records {
        let id = record.case().to_string();
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {:?}", record.message);
        assert_eq!(record.verified_by.as_deref(), Some("reference"), "{id}");
        assert_eq!(record.new_tokens, (record.phase == Phase::Decode).then_some(4), "{id}");
    }
    // The header of a file says how many positions there are.
    users_file(&workplace);
    let asked = ["run", "--noplot", "mine.gguf", "--backend", "llama-cpp", "--tg", "4", "--depth", "8,100000"];
    workplace.inferbench(&asked).finish().with_code(0);
    let far = workplace.record("mine-seq100000-decode/llama-cpp-cpu-i8/1");
    let message = far.message.unwrap_or_default();
    assert_eq!(far.status, Status::Unsupported, "{message}");
    assert!(message.contains("4 tokens after 100000 need 100004 positions, and the model has"), "{message}");
    assert_eq!(workplace.record("mine-seq8-decode/llama-cpp-cpu-i8/1").status, Status::Ok);
}

#[test]
fn a_form_is_not_made_of_an_f32_file_of_other_weights() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-small"], &["llama-cpp"], &[1]);
    let form = |name: &str| workplace.path(&format!(".prepared/llama-small/{name}/model.gguf"));
    workplace.inferbench(&["prepare", "--variant", "original,q8_0"]).finish().with_code(0);
    let right = fs::read(form("q8_0")).unwrap();
    // As other weights would have left it: the stamp is another one, and so are the weights.
    let mut changed = fs::read(form("gguf-f32")).unwrap();
    let end = changed.len() - 400_000;
    changed[end..].fill(0x3e);
    workplace.write(".prepared/llama-small/gguf-f32/model.gguf", changed);
    workplace.write(".prepared/llama-small/gguf-f32/stamp", "of other weights\n");
    fs::remove_dir_all(workplace.path(".prepared/llama-small/q8_0")).unwrap();
    workplace.inferbench(&["prepare", "--variant", "q8_0"]).finish().with_code(0);
    assert!(fs::read(form("q8_0")).unwrap() == right);
    assert!(!workplace.path(".prepared/llama-small/q8_0/f32.gguf").exists());
}

/// The bytes of a tensor of a file.
fn tensor(file: &Path, name: &str) -> (Vec<u8>, &'static str) {
    let header = Header::read(file).unwrap();
    let found = header.tensors.iter().find(|tensor| tensor.name == name).unwrap();
    let bytes = fs::read(file).unwrap();
    (bytes[found.begin as usize..(found.begin + found.bytes) as usize].to_vec(), found.kind.name())
}

fn as_f32(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|it| f32::from_le_bytes(it.try_into().unwrap())).collect()
}

#[test]
fn blocks_of_q8_0_are_those_of_its_definition_and_those_of_every_scheme_the_same_to_both_engines() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-256"], &["llama-cpp"], &[1]);
    workplace.inferbench(&["prepare", "--variant", &all_variants()]).finish().with_code(0);
    check_blocks_of_q8_0(&workplace);
    #[cfg(feature = "candle")]
    check_dequantised(&workplace);
}

fn check_blocks_of_q8_0(workplace: &Workplace) {
    let (plain, quantised) = (form_of_256(workplace, "gguf-f32"), form_of_256(workplace, "q8_0"));
    let tensors = Header::read(&quantised).unwrap().tensors;
    // Seven in each of two layers, the embeddings and the head.
    let names: Vec<&str> = tensors.iter().filter(|it| it.kind.name() == "Q8_0").map(|it| it.name.as_str()).collect();
    assert_eq!(names.len(), 16);
    for name in names {
        let mut expected = Vec::new();
        for block in as_f32(&tensor(&plain, name).0).chunks_exact(32) {
            let largest = block.iter().fold(0.0_f32, |largest, it| largest.max(it.abs()));
            let scale = largest / 127.0;
            expected.extend(half::f16::from_f32(scale).to_le_bytes());
            let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            expected.extend(block.iter().map(|it| (it * inverse).round() as i8 as u8));
        }
        assert!(tensor(&quantised, name).0 == expected, "{name}");
    }
}

/// llama.cpp and candle make the same bits of every tensor of every scheme.
#[cfg(feature = "candle")]
fn check_dequantised(workplace: &Workplace) {
    use candle_core::Device;
    use candle_core::quantized::gguf_file::Content;

    let original = read_catalogue(&checkout().join("models"))
        .unwrap()
        .into_iter()
        .find(|it| it.name == "llama-256" && it.variant == "original");
    let model = original.unwrap().model.unwrap();
    let plain = form_of_256(workplace, "gguf-f32");
    let mut far = Vec::new();
    for (variant, _, kinds) in SCHEMES {
        let file = form_of_256(workplace, variant);
        let header = Header::read(&file).unwrap();
        let mut found: Vec<&str> = header.kinds().iter().map(|(kind, _)| kind.name()).collect();
        found.sort_unstable();
        assert_eq!(found, kinds, "{variant}");
        // What quantised outputs are compared with.
        let artifacts = Artifacts { gguf: Some(file.clone()), ..Artifacts::default() };
        let request = on_one_thread(&model, &artifacts, Phase::Prefill, Sizes { batch: 1, sequence: Some(8) });
        let folder = tempfile::tempdir().unwrap();
        backend::find("llama-cpp").unwrap().load_exact(&request, folder.path()).unwrap().unwrap();
        let in_f32 = folder.path().join("f32.gguf");
        let mut reader = fs::File::open(&file).unwrap();
        let content = Content::read(&mut reader).unwrap();
        assert_eq!(content.tensor_infos.len(), header.tensors.len());
        let (mut off, mut all) = (0.0, 0.0);
        for name in content.tensor_infos.keys() {
            let by_candle = content.tensor(&mut reader, name, &Device::Cpu).unwrap().dequantize(&Device::Cpu).unwrap();
            let by_candle: Vec<f32> = by_candle.flatten_all().unwrap().to_vec1().unwrap();
            let (by_llama, kind) = tensor(&in_f32, name);
            assert_eq!(kind, "F32");
            let by_llama = as_f32(&by_llama);
            let differ =
                by_candle.iter().zip(&by_llama).filter(|(one, other)| one.to_bits() != other.to_bits()).count();
            assert_eq!((differ, by_candle.len()), (0, by_llama.len()), "{variant} {name}");
            let squares = |it: f32| f64::from(it) * f64::from(it);
            for (quantised, exact) in by_llama.iter().zip(as_f32(&tensor(&plain, name).0)) {
                off += squares(quantised - exact);
                all += squares(exact);
            }
        }
        far.push((off / all).sqrt());
    }
    // Relative to the weights: 8.5, 6.6, 5.7 and 4.9 bits each, and 4.5 without scales of scales.
    assert!(far.is_sorted() && far[0] < 0.01 && far[4] < 0.15, "{far:?}");
}
