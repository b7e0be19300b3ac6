//! GGUF files that users have: with and without a tokenizer, of unknown architectures and schemes, several of one model, and hostile ones.

use std::fs;

use inferbench::definition::{Dtype, Status};
use inferbench::gguf::Header;
use inferbench::history::History;
use inferbench::run_data::Metric;
use serde_json::Value;

use super::users_file;
use crate::support::{Run, Workplace, data_folder, has_llama_cpp};

fn text_of(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn list_of(kind: u32, elements: &[Vec<u8>]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &(elements.len() as u64).to_le_bytes(), &elements.concat()].concat()
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
    let tests = ["pp64 |", "tg8 |", "pp64+tg8 (computed) |"];
    assert!(tests.iter().all(|test| table.contains(test)) && table.contains("| mine Q4_0 |"), "{table}");
    // Texts need a tokenizer.
    workplace.write("texts", "one text\nand another\n");
    let asked = ["run", "--noplot", "mine.gguf", "--text", "texts", "--backend", "llama-cpp"];
    let said = workplace.inferbench(&asked).finish();
    assert!(said.stderr.contains("mine has no tokenizer: there is no "), "{}", said.stderr);
}

/// The file with two more keys, which are 64 bytes together, so that its data stay where they are to one another.
fn with_rope_factor(file: &[u8], factor: f32) -> Vec<u8> {
    let keys = u64::from_le_bytes(file[16..24].try_into().unwrap()) + 2;
    let mut changed = [&file[..16], &keys.to_le_bytes()].concat();
    changed.extend(
        [text_of("llama.rope.scaling.factor"), 6_u32.to_le_bytes().to_vec(), factor.to_le_bytes().to_vec()].concat(),
    );
    changed.extend([text_of("zz"), 8_u32.to_le_bytes().to_vec(), text_of("z")].concat());
    assert_eq!(changed.len(), 24 + 64);
    changed.extend(&file[24..]);
    changed
}

#[test]
fn candle_refuses_scaled_rotations_and_llama_cpp_computes_them() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-small"], &["llama-cpp", "candle"], &[1]);
    let whole = fs::read(users_file(&workplace)).unwrap();
    workplace.write("scaled.gguf", with_rope_factor(&whole, 4.0));
    workplace.write("same.gguf", with_rope_factor(&whole, 1.0));
    workplace.inferbench(&["run", "--noplot", "scaled.gguf", "same.gguf", "--pp", "16"]).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 4);
    for record in records {
        let id = record.case().to_string();
        let message = record.message.unwrap_or_default();
        if record.model == "scaled" && record.backend == "candle" {
            assert_eq!(record.status, Status::Unsupported, "{id}: {message}");
            assert!(message.contains("does not support the file's llama.rope.scaling.factor"), "{id}: {message}");
        } else {
            assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {message}");
        }
    }
}

#[test]
fn a_file_of_f16_is_computed_and_the_record_says_in_what() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-small"], &["llama-cpp"], &[1]);
    workplace.inferbench(&["prepare", "--variant", "original", "--dtype", "f16"]).finish().with_code(0);
    fs::copy(workplace.path(".prepared/llama-small/gguf-f16/model.gguf"), workplace.path("half.gguf")).unwrap();
    // All of a run's files are below the workplace, so that what is left is found.
    fs::create_dir(workplace.path("temporary")).unwrap();
    let asked = ["run", "--noplot", "half.gguf", "--backend", "llama-cpp,candle", "--pp", "16", "--tg", "8"];
    workplace.inferbench(&asked).env("TMPDIR", workplace.path("temporary")).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 4);
    for record in records {
        let id = record.case().to_string();
        let message = record.message.unwrap_or_default();
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {message}");
        let is_candle = record.backend == "candle";
        assert_eq!(record.effective_dtype, Some(if is_candle { Dtype::F32 } else { Dtype::F16 }), "{id}");
        assert_eq!(
            message.contains("computed in f32, to which its f16 weights were converted"),
            is_candle,
            "{message}"
        );
    }
    let files = walkdir::WalkDir::new(workplace.path("")).into_iter().flatten();
    let left: Vec<_> = files.filter(|file| file.file_name() == "f32.gguf").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_architecture_and_a_scheme_that_a_runtime_lacks_are_unsupported() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-small"], &["llama-cpp", "candle"], &[1]);
    let file = users_file(&workplace);
    let whole = fs::read(&file).unwrap();
    let after = |text: &[u8]| whole.windows(text.len()).position(|found| found == text).unwrap() + text.len();
    let mut unknown = whole.clone();
    // After the key are the type of its value and the length of this text.
    unknown[after(b"general.architecture") + 12..][..5].copy_from_slice(b"lhama");
    workplace.write("unknown.gguf", unknown);
    // Blocks of both schemes have a scale and sixteen bytes.
    let mut other = whole.clone();
    for tensor in Header::read(&file).unwrap().tensors.iter().filter(|tensor| tensor.kind.name() == "Q4_0") {
        let name = [&(tensor.name.len() as u64).to_le_bytes(), tensor.name.as_bytes()].concat();
        other[after(&name) + 4 + 8 * tensor.sizes.len()..][..4].copy_from_slice(&20_u32.to_le_bytes());
    }
    workplace.write("other.gguf", other);
    workplace.inferbench(&["run", "--noplot", "unknown.gguf", "other.gguf", "--pp", "8"]).finish().with_code(0);
    let of = |model: &str, backend: &str| {
        let record = workplace.record(&format!("{model}-seq8-prefill/{backend}-cpu-i8/1"));
        (record.status, record.message.unwrap_or_default())
    };
    for (model, backend, expected) in [
        ("unknown", "llama-cpp", "llama.cpp: unknown model architecture: 'lhama'"),
        ("unknown", "candle", "and this file's is lhama"),
        ("other", "candle", "is of type IQ4_NL, which is not supported by candle"),
    ] {
        let (status, message) = of(model, backend);
        assert_eq!(status, Status::Unsupported, "{model} {backend}: {message}");
        assert!(message.contains(expected) && !message.contains('\n'), "{model} {backend}: {message}");
    }
    let (status, message) = of("other", "llama-cpp");
    assert!(status == Status::Ok && message.contains("(IQ4_NL "), "{status}: {message}");
}

/// Changed copies of a file that the tests of every day run, and those of the night.
const HOSTILE_FILES: usize = 24;
const MANY_HOSTILE_FILES: usize = 200;

#[test]
fn hostile_files_have_an_answer_each() {
    check_hostile_files(HOSTILE_FILES);
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn many_hostile_files_have_an_answer_each() {
    check_hostile_files(MANY_HOSTILE_FILES);
}

fn check_hostile_files(files: usize) {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-small"], &["llama-cpp", "candle"], &[1]);
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
    for number in 0..files {
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
    // What a header may say of sizes: counts of tensors and keys, the length of a text, sizes and the place of a tensor, and numbers of keys
    // that something is made as large as.
    let after = |name: &str| {
        whole.windows(name.len()).position(|found| found == name.as_bytes()).unwrap_or_else(|| panic!("{name}"))
            + name.len()
    };
    let tensor = after("blk.0.attn_q.weight");
    const HUGE: u64 = 1 << 60;
    let sizes: [(&str, usize, &[u8]); 10] = [
        ("tensors", 8, &HUGE.to_le_bytes()),
        ("keys", 16, &HUGE.to_le_bytes()),
        ("text", 24, &u64::MAX.to_le_bytes()),
        ("size", tensor + 4, &HUGE.to_le_bytes()),
        ("product", tensor + 4, &[(1_u64 << 33).to_le_bytes(), (1_u64 << 33).to_le_bytes()].concat()),
        ("place", tensor + 24, &HUGE.to_le_bytes()),
        ("vocabulary", after("llama.vocab_size") + 4, &u32::MAX.to_le_bytes()),
        ("head", after("llama.attention.key_length") + 4, &(1_u32 << 30).to_le_bytes()),
        ("heads", after("llama.attention.head_count") + 4, &(1_u32 << 30).to_le_bytes()),
        ("layers", after("llama.block_count") + 4, &u32::MAX.to_le_bytes()),
    ];
    for (name, place, bytes) in &sizes {
        let mut changed = whole.clone();
        changed[*place..place + bytes.len()].copy_from_slice(bytes);
        workplace.write(&format!("hostile/{name}.gguf"), changed);
    }
    fs::copy(&file, workplace.path("hostile/right.gguf")).unwrap();
    let asked = ["run", "--noplot", "hostile", "--pp", "8", "--timeout", "30"];
    workplace.inferbench(&asked).finish();
    let records = workplace.records();
    assert_eq!(records.len(), 2 * (files + sizes.len() + 1), "a record for each file on each backend");
    for record in &records {
        let message = record.message.clone().unwrap_or_default();
        assert_ne!(record.status, Status::Timeout, "{}: {message}", record.case_id);
        assert!(!message.contains("panicked"), "{}: {message}", record.case_id);
        if sizes.iter().any(|(name, ..)| record.model == *name) {
            assert!(
                [Status::Failed, Status::Unsupported].contains(&record.status)
                    && !(record.backend == "candle" && message.contains("signal")),
                "{}: {}: {message}",
                record.case_id,
                record.status
            );
        }
    }
    for right in records.iter().filter(|record| record.model == "right") {
        assert_eq!((right.status, right.verified), (Status::Ok, Some(true)), "{:?}", right.message);
    }
}

#[test]
fn a_profile_names_the_operators_of_ggml_by_block() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-small"], &["llama-cpp"], &[1]);
    let asked = ["profile", "--variant", "q4_0", "--phase", "decode"];
    let said = workplace.inferbench(&asked).finish().with_code(0).stdout;
    let row = |operator: &str| said.lines().any(|line| line.contains("blk.1") && line.contains(operator));
    assert!(row("MUL_MAT") && row("FLASH_ATTN_EXT"), "{said}");
}

/// The file of a model of 1000 tokens with a tokenizer inside: that of `tokenizer_of_bytes.json`, filled up with tokens of no use.
fn with_tokenizer(file: &[u8], pre: &str) -> Vec<u8> {
    const TEXT: u32 = 8;
    const LIST: u32 = 9;
    let json: Value =
        serde_json::from_slice(&fs::read(data_folder().join("tokenizer_of_bytes.json")).unwrap()).unwrap();
    let mut tokens: Vec<String> = (0..1000).map(|id| format!("[unused {id}]")).collect();
    for (token, id) in json["model"]["vocab"].as_object().unwrap() {
        tokens[id.as_u64().unwrap() as usize].clone_from(token);
    }
    let kind = |id: usize| if id < 2 { 3_i32 } else { 1 + 4 * i32::from(tokens[id].starts_with("[unused")) };
    let merges = json["model"]["merges"].as_array().unwrap().iter();
    let merge = |merge: &Value| text_of(&format!("{} {}", merge[0].as_str().unwrap(), merge[1].as_str().unwrap()));
    let tokens_of = |tokens: &[String]| tokens.iter().map(|token| text_of(token)).collect::<Vec<_>>();
    let mut keys = vec![
        ("tokenizer.ggml.pre", TEXT, text_of(pre)),
        ("tokenizer.ggml.tokens", LIST, list_of(TEXT, &tokens_of(&tokens))),
        (
            "tokenizer.ggml.token_type",
            LIST,
            list_of(5, &(0..1000).map(|id| kind(id).to_le_bytes().into()).collect::<Vec<_>>()),
        ),
        ("tokenizer.ggml.merges", LIST, list_of(TEXT, &merges.map(merge).collect::<Vec<_>>())),
        ("tokenizer.ggml.bos_token_id", 4, 0_u32.to_le_bytes().into()),
        ("tokenizer.ggml.eos_token_id", 4, 1_u32.to_le_bytes().into()),
    ];
    let bytes = |keys: &[(&str, u32, Vec<u8>)]| -> Vec<u8> {
        keys.iter()
            .flat_map(|(key, kind, value)| [text_of(key), kind.to_le_bytes().into(), value.clone()].concat())
            .collect()
    };
    // The data stay where they are to one another.
    let length = bytes(&keys).len() + bytes(&[("zz", TEXT, text_of(""))]).len();
    keys.push(("zz", TEXT, text_of(&"z".repeat(length.next_multiple_of(32) - length))));
    let count = u64::from_le_bytes(file[16..24].try_into().unwrap()) + keys.len() as u64;
    let mut changed = [&file[..16], &count.to_le_bytes(), &bytes(&keys), &file[24..]].concat();
    let model = [text_of("tokenizer.ggml.model"), TEXT.to_le_bytes().into(), text_of("none")].concat();
    let at = changed.windows(model.len()).position(|found| found == model).unwrap() + model.len();
    changed[at - 4..at].copy_from_slice(b"gpt2");
    changed
}

/// The metrics of the latest run.
fn metrics(workplace: &Workplace) -> Vec<Metric> {
    let history = History::open(&[workplace.path("target-reports")]).unwrap();
    history.latest().unwrap().metrics().unwrap()
}

#[test]
#[cfg(feature = "text")]
fn texts_are_read_by_the_tokenizer_in_the_file() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-small"], &["llama-cpp", "candle"], &[1]);
    let plain = fs::read(users_file(&workplace)).unwrap();
    let lines =
        ["We measure a language model, and don't guess: 1234 tokens. ", "Früher  war  alles   besser!\t(Or not.) "];
    workplace.write("texts.txt", lines.map(|line| line.repeat(4)).join("\n"));
    let perplexities = |file: &str| {
        let asked = ["run", "--noplot", file, "--text", "texts.txt", "--phase", "decode", "--seq-lens", "8"];
        workplace.inferbench(&asked).finish().with_code(0);
        for record in workplace.records() {
            assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{:?}", record.message);
        }
        let found = metrics(&workplace).into_iter().filter(|it| it.metric == "perplexity" && it.samples == 2);
        let found: Vec<(String, f64)> =
            found.map(|it| (it.case_id.split('/').nth(1).unwrap().into(), it.value)).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        found
    };
    workplace.write("inside.gguf", with_tokenizer(&plain, "llama-bpe"));
    let inside = perplexities("inside.gguf");
    fs::create_dir(workplace.path("beside")).unwrap();
    fs::copy(data_folder().join("tokenizer_of_bytes.json"), workplace.path("beside/tokenizer.json")).unwrap();
    workplace.write("beside/net.gguf", &plain);
    assert_eq!(inside, perplexities("beside/net.gguf"));
    // A way to split that is not known, alone and with a tokenizer beside it.
    workplace.write("other.gguf", with_tokenizer(&plain, "other-bpe"));
    let said = workplace.inferbench(&["run", "--noplot", "other.gguf", "--text", "texts.txt"]).finish();
    let why =
        "splits texts into words as \"other-bpe\" does, which is not known here; put the model's tokenizer.json beside";
    assert!(said.stderr.contains(why) && !said.stderr.contains("panicked"), "{}", said.stderr);
}

#[test]
fn files_of_one_model_say_what_they_lose() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["llama-small"], &["llama-cpp"], &[1]);
    workplace.inferbench(&["prepare", "--variant", "original,q8_0,q4_0"]).finish().with_code(0);
    for (form, name) in [("gguf-f32", "net.gguf"), ("q8_0", "net-q8_0.gguf"), ("q4_0", "net-q4_0.gguf")] {
        fs::copy(workplace.path(&format!(".prepared/llama-small/{form}/model.gguf")), workplace.path(name)).unwrap();
    }
    let files = "net.gguf,net-q8_0.gguf,net-q4_0.gguf";
    workplace.inferbench(&["run", "--noplot", "--path", files, "--pp", "16", "--tg", "8"]).finish().with_code(0);
    let found = metrics(&workplace);
    let divergence = |variant: &str, metric: &str| {
        let mut own =
            found.iter().filter(|it| it.metric == metric && it.case_id.starts_with(&format!("net-{variant}-")));
        own.next().unwrap_or_else(|| panic!("{variant} {metric}: {found:?}")).value
    };
    let (q8, q4) = (divergence("q8_0", "kl_divergence"), divergence("q4_0", "kl_divergence"));
    assert!(0.0 < q8 && q8 < 0.1 * q4, "{q8} and {q4}");
    assert!(divergence("q8_0", "token_agreement") > divergence("q4_0", "token_agreement"));
}

#[test]
fn candle_says_how_long_the_products_of_a_file_take() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&["qwen3-small"], &["candle"], &[1]);
    let asked = ["profile", "--variant", "q4_0", "--phase", "decode"];
    let said = workplace.inferbench(&asked).finish().with_code(0).stdout;
    let row = |operator: &str| said.lines().any(|line| line.contains("blk.1") && line.contains(operator));
    assert!(row("QMatMul Q4_0") && row("attention"), "{said}");
}

/// A file of f32 of Gemma 3's architecture with seeded weights: 7 layers, of which the sixth sees all tokens and the others the last 6.
fn gemma() -> Vec<u8> {
    let number = |number: u32| (4, number.to_le_bytes().to_vec());
    let float = |float: f32| (6, float.to_le_bytes().to_vec());
    let text = |text: &str| (8, text_of(text));
    let keys: [(&str, (u32, Vec<u8>)); 14] = [
        ("general.architecture", text("gemma3")),
        ("tokenizer.ggml.model", text("none")),
        ("gemma3.vocab_size", number(200)),
        ("gemma3.context_length", number(128)),
        ("gemma3.embedding_length", number(64)),
        ("gemma3.block_count", number(7)),
        ("gemma3.feed_forward_length", number(96)),
        ("gemma3.attention.head_count", number(2)),
        ("gemma3.attention.head_count_kv", number(1)),
        ("gemma3.attention.key_length", number(32)),
        ("gemma3.attention.value_length", number(32)),
        ("gemma3.attention.layer_norm_rms_epsilon", float(1e-6)),
        ("gemma3.attention.sliding_window", number(6)),
        ("gemma3.rope.freq_base", float(1e6)),
    ];
    let mut tensors: Vec<(String, Vec<u64>)> =
        vec![("token_embd".into(), vec![64, 200]), ("output_norm".into(), vec![64])];
    for layer in 0..7 {
        let norms = [("attn_norm", 64), ("attn_q_norm", 32), ("attn_k_norm", 32), ("post_attention_norm", 64)];
        let norms = norms.into_iter().chain([("ffn_norm", 64), ("post_ffw_norm", 64)]);
        tensors.extend(norms.map(|(name, size)| (format!("blk.{layer}.{name}"), vec![size])));
        let products = [("attn_q", [64, 64]), ("attn_k", [64, 32]), ("attn_v", [64, 32]), ("attn_output", [64, 64])];
        let fed = [("ffn_gate", [64, 96]), ("ffn_up", [64, 96]), ("ffn_down", [96, 64])];
        let products = products.into_iter().chain(fed);
        tensors.extend(products.map(|(name, sizes)| (format!("blk.{layer}.{name}"), sizes.to_vec())));
    }
    let mut file = [b"GGUF".as_slice(), &3_u32.to_le_bytes(), &(tensors.len() as u64).to_le_bytes()].concat();
    file.extend((keys.len() as u64).to_le_bytes());
    for (key, (kind, value)) in keys {
        file.extend([text_of(key), kind.to_le_bytes().into(), value].concat());
    }
    let (mut data, mut state) = (Vec::new(), 5_u32);
    for (name, sizes) in tensors {
        file.extend([text_of(&format!("{name}.weight")), (sizes.len() as u32).to_le_bytes().into()].concat());
        sizes.iter().for_each(|size| file.extend(size.to_le_bytes()));
        file.extend([&0_u32.to_le_bytes()[..], &(data.len() as u64).to_le_bytes()].concat());
        // All sizes are multiples of the alignment.
        for _ in 0..sizes.iter().product::<u64>() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let seeded = (state >> 8) as f32 / (1 << 24) as f32 - 0.5;
            let value: f32 = if sizes.len() == 1 { 1.0 + seeded } else { 0.4 * seeded };
            data.extend(value.to_le_bytes());
        }
    }
    file.resize(file.len().next_multiple_of(32), 0);
    [file, data].concat()
}

#[test]
fn candle_and_llama_cpp_agree_on_gemma_3() {
    if !has_llama_cpp() {
        return;
    }
    let workplace = Workplace::new(&[], &["llama-cpp", "candle"], &[1, 2]);
    workplace.write("gemma.gguf", gemma());
    // ggml looks GELU up in a table of f16, and candle computes it.
    workplace.write("gemma.toml", "[tolerance]\nf32 = 2e-2\n");
    workplace.inferbench(&["run", "--noplot", "gemma.gguf", "--pp", "16", "--tg", "8"]).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 8);
    for record in records {
        let id = record.case().to_string();
        assert_eq!(
            (record.status, record.verified),
            (Status::Ok, record.verified_by.is_some().then_some(true)),
            "{id}: {:?}",
            record.message
        );
        assert!(record.verified_by.is_some() || record.backend == "llama-cpp", "{id}");
        assert!(record.max_rel_error.is_none_or(|error| error < 1e-2), "{id}: {:?}", record.max_rel_error);
    }
}
