//! Language models as GGUF files: llama.cpp and candle on them, the forms that are made of packaged models, and hostile files.
#![cfg(feature = "llama-cpp")]

use std::fs;
use std::path::{Path, PathBuf};

use inferbench::definition::{Dtype, Phase, Status};
use inferbench::gguf::Header;

use crate::support::{Run, Workplace, has_llama_cpp};

#[test]
fn llama_cpp_in_f32_gives_the_tokens_of_pytorch() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-small", "qwen2-small", "gpt2-tiny"], &["llama-cpp"], &[1, 3]);
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 12, "two phases and two batch sizes of three models");
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
    let workplace = Workplace::new(&["llama-small", "qwen2-small"], &["llama-cpp", "candle"], &[1, 2]);
    workplace.inferbench(&["run", "--noplot", "--variant", "q8_0,q4_0"]).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 32);
    for record in &records {
        let id = record.case().to_string();
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {:?}", record.message);
        assert_eq!(record.verified_by.as_deref(), Some("the same weights in f32"), "{id}");
        assert_eq!(record.effective_dtype, Some(Dtype::I8), "{id}");
    }
    let size = |variant: &str| {
        let id = format!("llama-small-{variant}-seq32-prefill/llama-cpp-cpu-i8/1");
        workplace.record(&id).model_size_mb.unwrap()
    };
    assert!(size("q8_0") > 1.3 * size("q4_0"), "{} and {} MB", size("q8_0"), size("q4_0"));
    // A form whose blocks do not fit the rows is refused, and the others run.
    workplace
        .inferbench(&["run", "--noplot", "--model", "llama-small", "--variant", "q4_k_m,q8_0"])
        .finish()
        .with_code(0);
    let refused = workplace.record("llama-small-q4_k_m-seq32-decode/llama-cpp-cpu-i8/1");
    assert_eq!(refused.status, Status::Unsupported);
    let message = refused.message.unwrap();
    assert!(message.contains("q4_k_m needs rows that are multiples of 256"), "{message}");
    assert_eq!(workplace.record("llama-small-q8_0-seq32-decode/llama-cpp-cpu-i8/1").status, Status::Ok);
}

/// The bytes of a tensor of a file.
fn tensor(file: &Path, name: &str) -> (Vec<u8>, &'static str) {
    let header = Header::read(file).unwrap();
    let found = header.tensors.iter().find(|tensor| tensor.name == name).unwrap();
    let bytes = fs::read(file).unwrap();
    (bytes[found.begin as usize..(found.begin + found.bytes) as usize].to_vec(), found.kind.name())
}

#[test]
fn blocks_of_q8_0_are_those_of_its_definition() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-small"], &["llama-cpp"], &[1]);
    workplace.inferbench(&["prepare", "--variant", "q8_0,original"]).finish().with_code(0);
    let file = |form: &str| workplace.path(&format!(".prepared/llama-small/{form}/model.gguf"));
    for name in ["blk.0.attn_q.weight", "output.weight", "token_embd.weight"] {
        let (plain, kind) = tensor(&file("gguf-f32"), name);
        assert_eq!(kind, "F32");
        let (quantised, kind) = tensor(&file("q8_0"), name);
        assert_eq!(kind, "Q8_0");
        let numbers: Vec<f32> = plain.chunks_exact(4).map(|it| f32::from_le_bytes(it.try_into().unwrap())).collect();
        let mut expected = Vec::new();
        for block in numbers.chunks_exact(32) {
            let largest = block.iter().fold(0.0_f32, |largest, it| largest.max(it.abs()));
            let scale = largest / 127.0;
            expected.extend(half::f16::from_f32(scale).to_le_bytes());
            let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            expected.extend(block.iter().map(|it| (it * inverse).round() as i8 as u8));
        }
        assert!(quantised == expected, "{name}");
    }
}

/// The q4_0 form of llama-small, as a user has it.
fn users_file(workplace: &Workplace) -> PathBuf {
    workplace.inferbench(&["prepare", "--variant", "q4_0"]).finish().with_code(0);
    let file = workplace.path("mine.gguf");
    fs::copy(workplace.path(".prepared/llama-small/q4_0/model.gguf"), &file).unwrap();
    file
}

#[test]
fn a_users_file_is_a_model() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-small"], &["llama-cpp", "ort"], &[1]);
    users_file(&workplace);
    workplace.inferbench(&["run", "--noplot", "mine.gguf", "--pp", "64", "--tg", "8"]).finish().with_code(0);
    let records = workplace.records();
    let prefill = records.iter().find(|it| it.case_id == "mine-seq64-prefill/llama-cpp-cpu-i8/1").unwrap();
    assert_eq!((prefill.status, prefill.parameters), (Status::Ok, Some(619_136)), "{:?}", prefill.message);
    let decode = records.iter().find(|it| it.case_id == "mine-seq1-decode/llama-cpp-cpu-i8/1").unwrap();
    assert_eq!((decode.status, decode.new_tokens), (Status::Ok, Some(8)), "{:?}", decode.message);
    let elsewhere = records.iter().find(|it| it.backend == "ort").unwrap();
    assert_eq!(elsewhere.status, Status::Unsupported);
    assert!(elsewhere.message.as_ref().unwrap().contains("it reads no GGUF files"), "{:?}", elsewhere.message);
    let table = workplace.inferbench(&["report", "--format", "llama-bench"]).finish().with_code(0).stdout;
    assert!(table.contains("| pp64 |") && table.contains("|  tg8 |"), "{table}");
    // Texts need a tokenizer.
    workplace.write("texts", "one text\nand another\n");
    let asked = ["run", "--noplot", "mine.gguf", "--text", "texts", "--backend", "llama-cpp"];
    let said = workplace.inferbench(&asked).finish();
    assert!(said.stderr.contains("tokenizer.json"), "{}", said.stderr);
}

#[test]
fn hostile_files_have_an_answer_each() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-small"], &["llama-cpp"], &[1]);
    let file = users_file(&workplace);
    let whole = fs::read(&file).unwrap();
    let begin = Header::read(&file).unwrap().tensors.iter().map(|tensor| tensor.begin).min().unwrap() as usize;
    fs::create_dir(workplace.path("hostile")).unwrap();
    // A fixed sequence (Knuth's MMIX) of places in the header and values for them.
    let mut state = 7_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    const FILES: usize = 24;
    for number in 0..FILES {
        let mut changed = whole.clone();
        match number % 3 {
            0 => changed.truncate(next(whole.len())),
            1 => (0..4).for_each(|_| changed[next(begin)] = next(256) as u8),
            _ => {
                let place = next(begin - 8);
                changed[place..place + 8].copy_from_slice(&(1_u64 << next(64)).to_le_bytes());
            }
        }
        workplace.write(&format!("hostile/net{number}.gguf"), changed);
    }
    fs::copy(&file, workplace.path("hostile/right.gguf")).unwrap();
    let asked = ["run", "--noplot", "hostile", "--pp", "8", "--timeout", "30"];
    workplace.inferbench(&asked).finish();
    let records = workplace.records();
    assert_eq!(records.len(), FILES + 1, "a record for each file");
    for record in &records {
        let message = record.message.clone().unwrap_or_default();
        assert_ne!(record.status, Status::Timeout, "{}: {message}", record.case_id);
        assert!(!message.contains("panicked"), "{}: {message}", record.case_id);
    }
    let right = records.iter().find(|record| record.model == "right").unwrap();
    assert_eq!((right.status, right.verified), (Status::Ok, Some(true)), "{:?}", right.message);
}
