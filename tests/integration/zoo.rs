//! The packaged models: every family is right on every backend, and the phases of generation are what they say.

use std::collections::BTreeMap;
use std::fs;

use inferbench::definition::Status;

use crate::support::{Run, Workplace, checkout, real_backends};

/// The small form of every family, as the suite `small` lists them.
fn small_models() -> Vec<String> {
    let text = fs::read_to_string(checkout().join("models/suites/small.toml")).unwrap();
    let suite: toml::Value = toml::from_str(&text).unwrap();
    let models = suite["models"].as_array().unwrap();
    models.iter().map(|model| model["name"].as_str().unwrap().to_owned()).collect()
}

/// The cells of the table of families in `models/README.md`: `right`, or an operator that the backend lacks, by family and backend.
fn table_of_families() -> BTreeMap<(String, String), String> {
    let text = fs::read_to_string(checkout().join("models/README.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| family |")).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().replace('`', "")).collect() };
    let mut rows = rows.map(cells);
    let head = rows.next().unwrap();
    let row = |row: Vec<String>| {
        head.clone()
            .into_iter()
            .zip(row.clone())
            .skip(3)
            .map(move |(backend, cell)| ((row[1].clone(), backend), cell))
            .collect::<Vec<_>>()
    };
    rows.skip(1).flat_map(row).collect()
}

/// Verifies every family on some backends, and compares what comes of it with the table.
fn check_families(is_chosen: impl Fn(&str) -> bool) {
    let models = small_models();
    let names: Vec<&str> = models.iter().map(String::as_str).collect();
    let mut built = real_backends();
    built.retain(|(name, _)| is_chosen(name));
    let backends: Vec<&str> = built.iter().map(|(name, _)| *name).collect();
    let workplace = Workplace::new(&names, &backends, &[2]);
    let verified = workplace.inferbench(&["verify", "--format", "json"]).finish().with_code(0);
    let matrix: serde_json::Value = serde_json::from_str(&verified.stdout).unwrap();
    let cells = matrix["cases"].as_array().unwrap();
    assert!(cells.len() >= built.len() * models.len());
    let table = table_of_families();
    for cell in cells {
        let [backend, family] = ["backend", "family"].map(|key| cell[key].as_str().unwrap());
        let has_phases = backend == "torch-aot" && cell["phase"] != "forward";
        let usual = if has_phases { "no phases" } else { "right" };
        let has_row = table.keys().any(|(row, _)| row == family);
        assert!(has_row, "models/README.md has no row for the family {family}");
        let said = table.get(&(family.to_owned(), backend.to_owned())).map_or(usual, String::as_str);
        if !built.contains(&(backend, true)) {
            assert_eq!(cell["status"], "unavailable", "{cell}");
        } else if let Some(operator) = said.strip_prefix("no ") {
            let names_it = cell["message"].as_str().is_some_and(|message| message.contains(operator));
            assert!(cell["status"] == "unsupported" && names_it, "{cell}");
        } else {
            assert_eq!((said, &cell["status"], &cell["verified"]), ("right", &"ok".into(), &true.into()), "{cell}");
            // llama.cpp takes the GELU of gpt2 from a table of f16.
            let limit = if (backend, family) == ("llama-cpp", "gpt2") { 1e-3 } else { 1e-4 };
            assert!(cell["max_rel_error"].as_f64().unwrap() < limit, "{cell}");
        }
    }
}

const IN_RUST: [&str; 2] = ["candle", "tract"];
/// External workers, which take minutes.
const IN_PYTHON: [&str; 4] = ["jax", "torch", "torch-compile", "torch-aot"];

// One test for each, so that both threads of the tests have work to the end.
#[test]
fn every_family_is_right_on_candle_or_lacks_the_operator_that_the_table_names() {
    check_families(|name| name == "candle");
}

#[test]
fn every_family_is_right_on_tract_or_lacks_the_operator_that_the_table_names() {
    check_families(|name| name == "tract");
}

#[test]
fn every_family_is_right_on_the_other_backends_or_lacks_the_operator_that_the_table_names() {
    check_families(|name| !IN_PYTHON.contains(&name) && !IN_RUST.contains(&name));
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn every_family_is_right_on_jax_or_lacks_the_operator_that_the_table_names() {
    check_families(|name| name == "jax");
}

/// As above on a backend of PyTorch, if its environment is here.
#[cfg(feature = "torch")]
fn check_families_on_pytorch(backend: &str) {
    if crate::workers::has_environment("torch") {
        check_families(|name| name == backend);
    }
}

#[test]
#[cfg(feature = "torch")]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn every_family_is_right_on_pytorch() {
    check_families_on_pytorch("torch");
}

#[test]
#[cfg(feature = "torch-compile")]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn every_family_is_right_on_compiled_pytorch() {
    check_families_on_pytorch("torch-compile");
}

#[test]
#[cfg(feature = "torch-aot")]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn every_family_is_right_on_pytorch_ahead_of_time_or_has_phases() {
    check_families_on_pytorch("torch-aot");
}

/// From the tables of torchvision 0.26 (`num_params` of the weights), and the cards of the other checkpoints, which round.
#[test]
fn networks_of_published_sizes_have_the_published_numbers_of_parameters() {
    let exactly = [
        ("mobilenet_v3_large", 5_483_032),
        ("convnext_tiny", 28_589_128),
        ("swin_t", 28_288_354),
        ("resnet50", 25_557_032),
    ];
    let nearly = [
        ("segformer-b0", 3.7e6),
        ("modernbert-base", 149e6),
        ("depth-anything-small", 24.8e6),
        ("unet", 31.0e6),
        ("qwen3-0.6b", 0.6e9),
        ("stable-diffusion-v1-5", 860e6),
    ];
    let parameters = |name: &str| {
        let text = fs::read_to_string(checkout().join(format!("models/zoo/{name}/model.toml"))).unwrap();
        text.parse::<toml::Table>().unwrap()["parameters"].as_integer().unwrap()
    };
    for (name, published) in exactly {
        assert_eq!(parameters(name), published, "{name}");
    }
    for (name, published) in nearly {
        assert!((parameters(name) as f64 / published - 1.0).abs() < 0.01, "{name}");
    }
}

#[test]
fn prefill_is_the_time_to_the_first_token_and_decode_the_time_a_token() {
    let workplace = Workplace::new(&["llama-small"], &["candle"], &[3]);
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    let records = workplace.records();
    let ids: Vec<String> = records.iter().map(|record| record.case().to_string()).collect();
    assert_eq!(ids, ["llama-small-seq32-prefill/candle-cpu-f32/3", "llama-small-seq32-decode/candle-cpu-f32/3"]);
    assert!(records.iter().all(|record| record.status == Status::Ok && record.verified == Some(true)));
    let [prefill, decode] = records.as_slice() else { panic!() };
    let tokens_per_second = |tokens: f64, mean: Option<f64>| tokens / mean.unwrap() * 1e3;
    let near = |value: Option<f64>, wanted: f64| (value.unwrap() / wanted - 1.0).abs() < 1e-9;
    assert!(near(prefill.tokens_per_second, tokens_per_second(96.0, prefill.criterion_mean_ms)));
    assert!(near(decode.tokens_per_second, tokens_per_second(3.0, decode.criterion_mean_ms)));
    assert_eq!((prefill.first_token_ms, decode.first_token_ms), (prefill.latency_p50_ms, None));
    assert!(prefill.throughput_ips.is_some() && decode.throughput_ips.is_none());
    // 32 tokens at once are more work than one, by the calls that other tests disturbed least.
    assert!(prefill.latency_min_ms > decode.latency_min_ms);
}

#[test]
fn a_phase_or_a_length_can_be_asked_for() {
    let workplace = Workplace::new(&["t5-tiny", "llama-small"], &["candle"], &[1]);
    let list = |arguments: &[&str]| {
        let command = [&["verify", "--format", "json"], arguments].concat();
        let matrix: serde_json::Value =
            serde_json::from_str(&workplace.inferbench(&command).finish().with_code(0).stdout).unwrap();
        let cells = matrix["cases"].as_array().unwrap().clone();
        cells
            .iter()
            .map(|cell| (cell["case_id"].as_str().unwrap().to_owned(), cell["verified"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(list(&["--phase", "encoder"]), [("t5-tiny-seq32-encoder/candle-cpu-f32/1".to_owned(), true.into())]);
    // There is no reference for this length, and one backend alone has nobody to agree with.
    let of_length = list(&["--phase", "decode", "--seq-lens", "7", "--model", "llama-small"]);
    assert_eq!(of_length, [("llama-small-seq7-decode/candle-cpu-f32/1".to_owned(), serde_json::Value::Null)]);
    workplace
        .inferbench(&["verify", "--phase", "decoding"])
        .finish()
        .with_code(2)
        .saying(&["forward, encoder, prefill, decode"]);
}
