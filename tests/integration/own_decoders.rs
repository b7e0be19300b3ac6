//! Language models in files of users, as optimum exports them: recognised, right, and measured by phase.

use std::fs;
use std::path::Path;

use inferbench::backend::{self, Continuation};
use inferbench::catalogue::{add_models_of_suite, models_of_paths};
use inferbench::definition::{Dtype, Model, Phase, Sizes, Status, Suite};
use inferbench::fixture::{HostTensor, TensorData, batch, prepare_and_hold};
use inferbench::run_data::Record;

use crate::support::{Run, Workplace, backends_of_graphs, data_folder, has_onnxruntime, on_one_thread};

/// The files of an encoder and its decoder, in optimum's two ways.
const PAIR: [&str; 3] = ["encoder_model", "decoder_model", "decoder_with_past_model"];
const MERGED: [&str; 2] = ["encoder_model", "decoder_model_merged"];

/// A folder with some of the files of `tests/data/models`.
pub fn copy_to(folder: &Path, files: &[&str]) {
    fs::create_dir_all(folder).unwrap();
    for file in files.iter().map(|file| format!("{file}.onnx")) {
        fs::copy(data_folder().join("models").join(&file), folder.join(&file)).unwrap();
    }
}

/// The only model in some files or folders.
pub fn model_of(path: &Path) -> Result<Model, String> {
    let mut suite: Suite = toml::from_str("models = []\nbackends = ['ort']\nbatch_sizes = [1]").unwrap();
    suite.models = models_of_paths(&[path.to_str().unwrap().to_owned()]).unwrap();
    assert_eq!(suite.models.len(), 1, "{:?}", suite.models);
    let mut catalogue = Vec::new();
    add_models_of_suite(&mut catalogue, &mut suite).unwrap();
    catalogue.remove(0).model.map_err(|failure| failure.message)
}

const BATCH: usize = 3;
const PROMPT: usize = 5;

/// The inputs of a batch, and the tokens of prefill and steps that a backend makes of them: those of a sample side by side.
fn generated(model: &Model, backend: &str) -> Result<(Vec<HostTensor>, Vec<Vec<i64>>), String> {
    let held = prepare_and_hold(model, Path::new("unused"), Dtype::F32).unwrap();
    let sizes = Sizes { batch: BATCH, sequence: Some(PROMPT) };
    let inputs = batch(model, None, 0, sizes).unwrap();
    let mut rows = vec![Vec::new(); BATCH];
    for phase in [Phase::Prefill, Phase::Decode] {
        let artifacts = &held.artifacts;
        let request = on_one_thread(model, artifacts, phase, sizes);
        let mut session = backend::find(backend).unwrap().load(&request).map_err(|failure| failure.to_string())?;
        let binding = session.bind(&inputs).map_err(|failure| failure.to_string())?;
        let outputs = session.outputs(binding).map_err(|failure| failure.to_string())?;
        assert_eq!(session.calls_in_a_row(), if phase == Phase::Decode { steps(model) } else { 1 });
        let TensorData::I64(tokens) = &outputs[0].data else { panic!("{:?}", outputs[0]) };
        let each = tokens.len() / BATCH;
        rows.iter_mut().zip(tokens.chunks(each)).for_each(|(row, tokens)| row.extend(tokens));
        assert_eq!(outputs[1].shape, [BATCH, 11]);
    }
    Ok((inputs, rows))
}

/// New tokens of a batch, before the next one's turn.
fn steps(model: &Model) -> usize {
    let generation = model.generation.as_ref().unwrap();
    generation.new_tokens.unwrap().min(generation.positions.map_or(usize::MAX, |positions| positions - PROMPT))
}

/// A table of sines of 1, 2, …, as in the files.
fn row(of: i64) -> [f64; 4] {
    [1, 2, 3, 4].map(|place| f64::from(((4 * of + place) as f64).sin() as f32))
}

fn sum(rows: impl IntoIterator<Item = [f64; 4]>) -> [f64; 4] {
    rows.into_iter().fold([0.0; 4], |sum, row| [0, 1, 2, 3].map(|place| sum[place] + row[place]))
}

fn logits(state: [f64; 4]) -> Vec<f64> {
    let logit = |token: i64| {
        (0..4_i64).map(|k| state[k as usize] * f64::from(((11 * k + token + 1) as f64).sin() as f32)).sum()
    };
    (0..11).map(logit).collect()
}

/// The state of `decoder.onnx` after tokens.
fn state_after(tokens: &[i64]) -> [f64; 4] {
    let x: Vec<[f64; 4]> = (0..).zip(tokens).map(|(place, &token)| sum([row(token), row(place)])).collect();
    let of_cache = sum(x.iter().flat_map(|&x| [x, x.map(f64::tanh)])).map(|all| all / tokens.len() as f64);
    sum([x[x.len() - 1], of_cache])
}

/// The likeliest token after a state.
fn likeliest(state: [f64; 4]) -> i64 {
    let logits = logits(state);
    (0..11).max_by(|&a, &b| logits[a as usize].total_cmp(&logits[b as usize])).unwrap()
}

/// Continues tokens by those after them, so often.
fn continued(tokens: &[i64], more: usize, next: impl Fn(&[i64]) -> i64) -> Vec<i64> {
    let mut all = tokens.to_vec();
    for _ in 0..more {
        all.push(next(&all));
    }
    all.split_off(tokens.len())
}

fn whole_numbers(tensor: &HostTensor) -> &[i64] {
    let TensorData::I64(numbers) = &tensor.data else { panic!("{tensor:?}") };
    numbers
}

#[test]
fn a_decoder_makes_the_tokens_that_its_arithmetic_gives() {
    let model = model_of(&data_folder().join("models/decoder.onnx")).unwrap();
    let texts: Vec<String> = model.inputs.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["input_ids:i64[batch,sequence]<11"]);
    assert_eq!((model.sequence_lengths.as_slice(), steps(&model)), (&[30][..], 55));
    let next = |tokens: &[i64]| likeliest(state_after(tokens));
    for backend in backends_of_graphs() {
        let (inputs, rows) = generated(&model, backend).unwrap_or_else(|why| panic!("{backend}: {why}"));
        for (prompt, tokens) in whole_numbers(&inputs[0]).chunks(PROMPT).zip(&rows) {
            assert_eq!(*tokens, continued(prompt, 17, next), "{backend}");
            assert!(tokens.iter().any(|token| *token != tokens[0]), "{backend}: the same token again and again");
        }
    }
}

#[test]
fn a_text_that_is_given_is_as_likely_as_the_arithmetic_says() {
    let model = model_of(&data_folder().join("models/decoder.onnx")).unwrap();
    let held = prepare_and_hold(&model, Path::new("unused"), Dtype::F32).unwrap();
    let sizes = Sizes { batch: BATCH, sequence: Some(PROMPT) };
    let inputs = batch(&model, None, 0, sizes).unwrap();
    let texts: Vec<Vec<i64>> =
        (0..BATCH as i64).map(|row| (0..6).map(|place| (row * 5 + place * 3) % 11).collect()).collect();
    let text = HostTensor { shape: vec![BATCH, 6], data: TensorData::I64(texts.concat()) };
    for backend in backends_of_graphs() {
        let (model, artifacts, phase) = (&model, &held.artifacts, Phase::Decode);
        let request = on_one_thread(model, artifacts, phase, sizes);
        let mut session = backend::find(backend).unwrap().load(&request).unwrap();
        let binding = session.bind(&inputs).unwrap();
        let first = session.first_tokens(binding).unwrap();
        let read = session.follow(&inputs, Continuation::Given { text: &text, log_probabilities: true }).unwrap();
        let own = session.follow(&inputs, Continuation::Likeliest { most: 6, ends: &[] }).unwrap();
        assert!(first.is_none_or(|first| first == own[0].likeliest), "{backend}");
        // Whatever token it is, each row begins with an end.
        let ends: Vec<i64> = (0..11).collect();
        let ended = session.follow(&inputs, Continuation::Likeliest { most: 6, ends: &ends }).unwrap();
        assert_eq!(ended, own[..1], "{backend}");
        for (row, prompt) in whole_numbers(&inputs[0]).chunks(PROMPT).enumerate() {
            for place in 0..6 {
                let before = [prompt, &texts[row][..place]].concat();
                let logits = logits(state_after(&before));
                let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
                let loss = sum.ln() - logits[texts[row][place] as usize];
                assert!((read[place].losses[row] - loss).abs() < 1e-4, "{backend}: {} {loss}", read[place].losses[row]);
                assert_eq!(read[place].likeliest[row], likeliest(state_after(&before)), "{backend}");
            }
            let said: Vec<i64> = own.iter().map(|next| next.likeliest[row]).collect();
            assert_eq!(said, continued(prompt, 6, |tokens| likeliest(state_after(tokens))), "{backend}");
        }
    }
}

#[test]
fn an_encoder_and_its_decoder_are_one_model_in_any_of_their_files() {
    let folder = tempfile::tempdir().unwrap();
    for (name, files) in [("pair", &PAIR[..]), ("merged", &MERGED), ("all", &[PAIR[0], PAIR[1], PAIR[2], MERGED[1]])] {
        copy_to(&folder.path().join(name), files);
        let model = model_of(&folder.path().join(name)).unwrap();
        assert_eq!(model.name, name, "named by its folder");
        let parts: Vec<&str> = model.parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(parts, if name == "merged" { &MERGED[..] } else { &PAIR });
        let texts: Vec<String> = model.inputs.iter().map(ToString::to_string).collect();
        let own = [
            "input_ids:i64[batch,sequence]<11",
            "attention_mask:i64[batch,sequence]=1",
            "decoder_input_ids:i64[batch,1]=0",
        ];
        assert_eq!(texts, own);
        assert_eq!(model.phases.iter().map(|plan| plan.phase).collect::<Vec<_>>(), [Phase::Prefill, Phase::Decode]);
        for backend in backends_of_graphs() {
            let made = generated(&model, backend);
            if name == "merged" && backend != "ort" && made.is_err() {
                // A library that cannot branch.
                continue;
            }
            let (inputs, rows) = made.unwrap_or_else(|why| panic!("{name} {backend}: {why}"));
            for (text, tokens) in whole_numbers(&inputs[0]).chunks(PROMPT).zip(&rows) {
                let mean = sum(text.iter().map(|&token| row(token))).map(|all| all / PROMPT as f64);
                let next = |tokens: &[i64]| likeliest(sum(tokens.iter().map(|&token| row(token)).chain([mean])));
                assert_eq!(*tokens, continued(&[0], 17, next), "{name} {backend}");
            }
        }
    }
    // Some families list one first token per language.
    for (file, text) in [
        ("config.json", "{'decoder_start_token_id': 3}"),
        ("generation_config.json", "{'decoder_start_token_id': [5, 3]}"),
    ] {
        fs::write(folder.path().join("pair").join(file), text.replace('\'', "\"")).unwrap();
        let model = model_of(&folder.path().join("pair")).unwrap();
        let first = if file == "config.json" { 3 } else { 5 };
        assert_eq!(model.inputs[2].to_string(), format!("decoder_input_ids:i64[batch,1]={first}"));
    }
    let named = model_of(&folder.path().join("all/decoder_model_merged.onnx")).unwrap();
    assert_eq!((named.name.as_str(), named.parts.len()), ("all", 2), "the file that is named is taken");
}

#[test]
fn prefill_and_decode_of_a_file_are_measured() {
    let backend = if has_onnxruntime() { "ort" } else { "candle" };
    let workplace = Workplace::new(&["digits"], &[backend], &[2]);
    copy_to(&workplace.path("own"), &["decoder"]);
    fs::rename(workplace.path("own/decoder.onnx"), workplace.path("own/model.onnx")).unwrap();
    workplace.inferbench(&["run", "--noplot", "own", "--seq-lens", "7"]).finish().with_code(0);
    let [prefill, decode] = &workplace.records()[..] else { panic!("{:?}", workplace.measured()) };
    assert_eq!(prefill.case().to_string(), format!("own-seq7-prefill/{backend}-cpu-f32/2"));
    assert_eq!(decode.case().to_string(), format!("own-seq7-decode/{backend}-cpu-f32/2"));
    assert!([prefill, decode].iter().all(|record| record.status == Status::Ok && record.tokens_per_second.is_some()));
    assert!(prefill.first_token_ms.is_some() && decode.latency_p95_ms.is_some());
    assert_eq!(prefill.input_shape.as_deref(), Some("2x7"));
    let beyond = workplace.inferbench(&["run", "--noplot", "own", "--seq-lens", "60,61"]).finish();
    beyond.with_code(0);
    let row = |length: usize, phase: &str| workplace.record(&format!("own-seq{length}-{phase}/{backend}-cpu-f32/2"));
    // The token after the last position can be computed, and none after that.
    assert_eq!(row(60, "prefill").status, Status::Ok);
    for (length, phase, needs) in [
        (60, "decode", "1 token after 60 needs 61"),
        (61, "prefill", "a prompt of 61 tokens needs 61"),
        (61, "decode", "1 token after 61 needs 62"),
    ] {
        let Record { status, message, .. } = row(length, phase);
        assert_eq!(status, Status::Unsupported);
        assert_eq!(message, Some(format!("{needs} positions, and the model has 60")));
    }
}

#[test]
fn a_folder_that_optimum_wrote_is_one_model_among_the_exported_ones() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    copy_to(&workplace.path("models/exported/translator"), &PAIR);
    copy_to(&workplace.path("models/exported/notes/empty"), &[]);
    let listed = workplace.inferbench(&["models", "--format", "json"]).finish().with_code(0);
    let models: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let names: Vec<&str> = models.as_array().unwrap().iter().map(|model| model["model"].as_str().unwrap()).collect();
    assert_eq!(names, ["digits", "translator"]);
    workplace.inferbench(&["run", "--noplot", "--model", "translator", "--seq-lens", "6"]).finish().with_code(0);
    let ids: Vec<String> = workplace.records().iter().map(|record| record.case().to_string()).collect();
    assert_eq!(ids, ["prefill", "decode"].map(|phase| format!("translator-seq6-{phase}/candle-cpu-f32/1")));
}

#[test]
fn a_table_says_what_files_of_other_names_are() {
    let folder = tempfile::tempdir().unwrap();
    copy_to(folder.path(), &PAIR);
    for (from, to) in PAIR.iter().zip(["text", "first", "next"]) {
        fs::rename(folder.path().join(format!("{from}.onnx")), folder.path().join(format!("{to}.onnx"))).unwrap();
    }
    let toml = "[generation]\ntokens = 'tokens'\nnew_tokens = 20\n[generation.takes]\n\
        'first.input_ids' = 'tokens'\n'first.encoder_attention_mask' = 'attention_mask'\n\
        'first.encoder_hidden_states' = 'last_hidden_state'\n\
        'next.input_ids' = 'tokens'\n'next.encoder_attention_mask' = 'attention_mask'\n\
        [[phases]]\nname = 'prefill'\nparts = ['text', 'first']\n[[phases]]\nname = 'decode'\nparts = ['next']\n";
    fs::write(folder.path().join("text.toml"), toml).unwrap();
    let model = model_of(&folder.path().join("text.onnx")).unwrap();
    assert_eq!(model.inputs[2].to_string(), "tokens:i64[batch,1]=0");
    let (inputs, rows) = generated(&model, "candle").unwrap();
    copy_to(&folder.path().join("named"), &PAIR);
    let named = model_of(&folder.path().join("named")).unwrap();
    assert_eq!(generated(&named, "candle").unwrap(), (inputs, rows));
    fs::write(folder.path().join("text.toml"), toml.replace("'next'", "'nowhere'")).unwrap();
    assert!(model_of(&folder.path().join("text.onnx")).unwrap_err().contains("nowhere.onnx"));
    let silent = toml.replace("'next.input_ids' = 'tokens'\n", "'next.input_ids' = 'nothing'\n");
    fs::write(folder.path().join("text.toml"), silent).unwrap();
    let why = model_of(&folder.path().join("text.onnx")).unwrap_err();
    assert!(why.contains("next.onnx: nothing gives its input input_ids:i64[batch,"), "{why}");
}

#[test]
fn a_file_whose_parts_do_not_fit_ends_in_one_line() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let bytes = fs::read(data_folder().join("models/decoder.onnx")).unwrap();
    let place_of = |name: &[u8]| bytes.windows(name.len()).rposition(|window| window == name).unwrap();
    let output = place_of(b"present.0.value");
    let mut renamed = bytes.clone();
    for place in 0..bytes.len() - 15 {
        if &bytes[place..place + 15] == b"present.0.value" {
            renamed[place + 8] = b'7';
        }
    }
    let mut other_width = bytes.clone();
    let width = bytes[output..].windows(4).position(|window| window == [0x0a, 2, 0x08, 4]).unwrap();
    other_width[output + width + 3] = 5;
    for (bytes, why) in [
        (renamed, "model.onnx: nothing gives its input past_key_values.0.value:f32[batch,1,past_sequence_length,4]"),
        (
            other_width,
            "model.onnx: its input past_key_values.0.value:f32[batch,1,past,4] takes present.0.value:f32[batch,1,",
        ),
        (bytes[..bytes.len() - 9].to_vec(), "not a whole ONNX model"),
    ] {
        fs::create_dir_all(workplace.path("own")).unwrap();
        workplace.write("own/model.onnx", bytes);
        let refused = workplace.inferbench(&["run", "--noplot", "own"]).finish().with_code(2).saying(&[why]);
        let lines = refused.stderr.lines().filter(|line| line.contains("model.onnx"));
        assert_eq!(lines.count(), 1, "{}", refused.stderr);
    }
}
