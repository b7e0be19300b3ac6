//! `inferbench predict`: cases that were not measured, by a history whose times follow a known law.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::sync::{Mutex, OnceLock};

use inferbench::catalogue::read_catalogue;
use inferbench::decision::prediction::{Example, Lessons};
use inferbench::definition::{Case, Cost, Model, Phase, Sizes};
use inferbench::fixture::work_of;
use inferbench::history::write_records;
use inferbench::machine::Machine;
use inferbench::onnx::{cost, count};
use inferbench::run_data::Record;
use serde_json::Value;

use crate::support::{Run, Workplace, checkout, has_onnxruntime};

/// The law: microseconds for each node, and milliseconds for 10^9 operations and bytes.
fn law(cost: &Cost) -> f64 {
    2e-3 * cost.nodes as f64 + 20e-9 * cost.flops as f64 + 50e-9 * cost.node_bytes as f64
}

fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| {
        let entries = read_catalogue(&checkout().join("models")).unwrap();
        let model = entries.into_iter().find(|entry| entry.name == "digits" && entry.variant == "original").unwrap();
        model.model.unwrap()
    })
}

/// The cost of digits, which every packaged model is a multiple of here.
fn digits(batch: usize) -> Cost {
    static COSTS: Mutex<BTreeMap<usize, Cost>> = Mutex::new(BTreeMap::new());
    let count = || cost(model(), Phase::Forward, Sizes { batch, sequence: None }).unwrap();
    *COSTS.lock().unwrap().entry(batch).or_insert_with(count)
}

fn row(model: usize, backend: &str, batch: usize) -> Record {
    let one = digits(batch);
    let times = |amount: u64, factor: f64| (amount as f64 * factor) as u64;
    let (place, spread) = (model as f64, [0.4, 2.0, 0.8, 3.0, 1.2, 0.6][model % 6]);
    let cost = Cost {
        flops: times(one.flops, 0.5 + 0.5 * place),
        convolution_flops: times(one.convolution_flops, if model.is_multiple_of(2) { 0.5 } else { 0.1 }),
        nodes: 5 + 3 * model as u64,
        matrix_products: 2,
        node_bytes: times(one.node_bytes, spread),
        bytes: 0,
    };
    // 4 % of noise, the same each time.
    let noise = 1.0 + 0.04 * ((model * 7 + batch * 3) as f64).sin();
    of_cost(&format!("net{model}"), &format!("family{model}"), backend, batch, cost, law(&cost) * noise)
}

/// Those of digits.
const PARAMETERS: u64 = 13_706;

fn of_cost(model: &str, family: &str, backend: &str, batch: usize, cost: Cost, ms: f64) -> Record {
    let run = Record {
        run_id: "20260101T000000Z".into(),
        timestamp: "2026-01-01T00:00:00Z".parse().unwrap(),
        host_id: "aaaa1111".into(),
        suite: "synthetic".into(),
        rustc_version: "rustc 1".into(),
        ..Record::default()
    };
    Record {
        family: family.into(),
        threads: Some(2),
        parameters: Some(PARAMETERS),
        latency_p50_ms: Some(ms),
        flops: Some(cost.flops),
        convolution_flops: Some(cost.convolution_flops),
        graph_nodes: Some(cost.nodes),
        node_bytes: Some(cost.node_bytes),
        matrix_products: Some(cost.matrix_products),
        memory_mb: Some(40.0 + cost.node_bytes as f64 * 1e-6),
        memory_kind: Some("own-process-peak-rss".into()),
        ..run.about(&Case::new(model, backend, batch))
    }
}

/// A row of digits itself: with its shape and the hash of its files.
fn of_digits(backend: &str, batch: usize, ms: f64) -> Record {
    let work = work_of(&Case::new("digits", backend, batch), model());
    let known = of_cost("digits", "digits", backend, batch, digits(batch), ms);
    Record { input_shape: work.input_shape, model_sha256: work.model_sha256, ..known }
}

fn history() -> Vec<Record> {
    (0..6).flat_map(|model| [1, 4, 16].map(|batch| row(model, "ort", batch))).collect()
}

fn with(records: &[Record]) -> Workplace {
    let workplace = Workplace::new(&["digits"], &["ort"], &[1]);
    let folder = workplace.path("target-reports/20260101T000000Z");
    fs::create_dir_all(&folder).unwrap();
    write_records(records, File::create(folder.join("results.csv")).unwrap()).unwrap();
    workplace
}

fn asked(workplace: &Workplace, arguments: &[&str], code: u8) -> Value {
    let all = [&["predict", "digits", "--format", "json"], arguments].concat();
    let found: Value = serde_json::from_str(&workplace.inferbench(&all).finish().with_code(code).stdout).unwrap();
    found[0].clone()
}

fn estimate(asked: &Value) -> [f64; 3] {
    let latency = &asked["prediction"]["latency_ms"];
    ["lower", "value", "upper"].map(|bound| latency[bound].as_f64().unwrap_or_else(|| panic!("{asked}")))
}

#[test]
fn a_model_that_was_not_measured_is_predicted_with_its_error() {
    let workplace = with(&history());
    let found = asked(&workplace, &["--batch", "4"], 0);
    let ([lower, value, upper], truth) = (estimate(&found), law(&digits(4)));
    assert!((value / truth - 1.0).abs() < 0.15, "{value} instead of {truth}");
    assert!(lower < truth && truth < upper, "{truth} is not in {lower} to {upper}");
    assert_eq!((&found["prediction"]["basis"], &found["prediction"]["rows"]), (&"other-models".into(), &18.into()));
    let text = workplace.inferbench(&["predict", "digits", "--batch", "1,4,16"]).finish().with_code(0).stdout;
    for part in [
        "digits/ort-cpu-f32/4",
        "other models, 18 rows of 6 families",
        "the interval that should hold 80 % of such cases",
        "median error of this history if a family is left out: ",
        "what would help most: inferbench run --model digits --backend ort --device cpu --dtype f32 --batch-sizes 1",
        "digits/ort-cpu-f32: batch 16 has the best time per sample",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn measured_batches_of_the_model_count_more_than_other_models() {
    // A runtime that takes twice as long for this one model.
    let own = |batch| of_digits("ort", batch, 2.0 * law(&digits(batch)));
    let workplace = with(&[history(), vec![own(1), own(16)]].concat());
    let found = asked(&workplace, &["--batch", "4"], 0);
    let [_, value, _] = estimate(&found);
    assert_eq!(found["prediction"]["basis"], "other-batches");
    assert!((value / law(&digits(4)) / 2.0 - 1.0).abs() < 0.1, "{value}");
    let measured = asked(&workplace, &["--batch", "16"], 0);
    let exact = 2.0 * law(&digits(16));
    assert_eq!(measured["prediction"]["basis"], "measured");
    assert!(estimate(&measured).into_iter().all(|it| (it / exact - 1.0).abs() < 1e-9), "{measured}");
}

#[test]
fn an_interval_widens_with_the_distance_beyond_the_measured_rows() {
    // A runtime that is the more efficient the larger the nodes are, which no sum of costs says.
    let time = |cost: &Cost| 1e-5 * (cost.flops as f64).powf(0.7);
    let row = |place: usize, batch: usize| {
        let one = digits(batch);
        let times = |amount: u64, factor: f64| (amount as f64 * factor) as u64;
        let size = 0.001 * 2_f64.powi(place as i32);
        let cost = Cost {
            flops: times(one.flops, size),
            convolution_flops: times(one.convolution_flops, size),
            nodes: 9,
            matrix_products: 2,
            node_bytes: times(one.node_bytes, size),
            bytes: 0,
        };
        let noise = 1.0 + 0.04 * ((place * 7 + batch * 3) as f64).sin();
        of_cost(&format!("net{place}"), &format!("family{place}"), "ort", batch, cost, time(&cost) * noise)
    };
    let workplace = with(&(0..8).flat_map(|place| [1, 4, 16].map(|batch| row(place, batch))).collect::<Vec<_>>());
    let width = |batch: &str| {
        let [_, value, upper] = estimate(&asked(&workplace, &["--batch", batch], 0));
        upper / value
    };
    let (near, far) = (width("1"), width("4"));
    assert!(far > 1.1 * near, "{near} and {far}");
}

#[test]
fn what_the_history_has_not_shown_is_refused_with_what_would_help() {
    let refused = |records: &[Record], arguments: &[&str]| {
        let found = asked(&with(records), arguments, 3);
        assert!(found["prediction"].is_null(), "{found}");
        (found["refusal"]["reason"].as_str().unwrap().to_owned(), found["refusal"]["would_help"].to_string())
    };
    let (reason, help) = refused(&history(), &["--backend", "candle"]);
    assert_eq!(reason, "this history has no row of candle on cpu in f32");
    assert!(help.contains("inferbench run --model digits --backend candle"), "{help}");
    let (reason, _) = refused(&history(), &["--dtype", "bf16"]);
    assert_eq!(reason, "this history has no row of ort on cpu in bf16");
    let (reason, help) = refused(&history()[..9], &[]);
    assert!(reason.starts_with("9 rows of 3 families are measured on ort on cpu in f32 here"), "{reason}");
    assert!(help.contains("inferbench run --suite small --backend ort"), "{help}");
    let (reason, _) = refused(&history(), &["--batch", "4000"]);
    assert!(reason.contains("operations are outside the measured range, "), "{reason}");
    let operators = |record: Record| Record { operators: Some("Relu".into()), ..record };
    let (reason, _) = refused(&history().into_iter().map(operators).collect::<Vec<_>>(), &[]);
    assert!(reason.starts_with("no model with ") && reason.contains("Conv") && !reason.contains("Relu"), "{reason}");
    // What takes the time of its bytes is known by others of its kind.
    let operators =
        |record: Record| Record { operators: Some("AveragePool Conv Gemm Sigmoid Reshape".into()), ..record };
    let others = history().into_iter().map(operators).collect::<Vec<_>>();
    assert!(asked(&with(&others), &[], 0)["prediction"].is_object());
    let disturbed = |record: Record| Record { disturbed_share: Some(0.9), ..record };
    let mut records = history();
    records.extend([4, 16].map(|batch| disturbed(row(9, "ort", batch))));
    let text = with(&records).inferbench(&["predict", "digits"]).finish().with_code(0).stdout;
    assert!(text.contains("2 rows were left out: other load affected more than 50.0 %"), "{text}");
}

#[test]
fn a_file_that_leaves_sizes_open_is_predicted_for_usual_ones() {
    let workplace = with(&history());
    workplace.add_model("open_length.onnx", "net.onnx");
    let run =
        |more: &[&str]| workplace.inferbench(&[&["predict", "net.onnx", "--backend", "ort"], more].concat()).finish();
    run(&[]).saying(&[
        "the file leaves sizes open; predicted for --dim length=128 (to choose other sizes, pass these flags)",
    ]);
    assert!(!run(&["--dim", "length=64"]).stderr.contains("leaves sizes open"));
    // What cannot be counted leaves the others' predictions as they are.
    workplace.add_model("falls_back.onnx", "other.onnx");
    let both = workplace.inferbench(&["predict", "other.onnx", "digits", "--backend", "ort"]).finish().with_code(0);
    // The command that would help names the file, since nothing else knows the model.
    let by_file = "inferbench run --path other=other.onnx --backend ort";
    for part in ["its cost cannot be counted: ", "digits/ort", by_file] {
        assert!(both.stdout.contains(part), "{part}: {}", both.stdout);
    }
}

#[test]
fn a_machine_that_is_only_described_needs_the_peaks_of_others() {
    let workplace = with(&history());
    workplace.write("server.toml", "gflops_per_second = 900\ngb_per_second = 200\ncores = 16\n");
    let found = asked(&workplace, &["--machine", "server.toml"], 3);
    assert!(found["refusal"]["reason"].as_str().unwrap().starts_with("0 rows of 0 families"), "{found}");
    workplace.write("server.toml", "gflops = 900\n");
    workplace
        .inferbench(&["predict", "digits", "--machine", "server.toml"])
        .finish()
        .with_code(2)
        .saying(&["server.toml"]);
}

#[test]
fn a_history_says_how_far_its_predictions_are_off() {
    // Rows are of one work at several batch sizes if their files and shapes are known.
    let known = |row: Record| {
        let shape = format!("{}x1x8x8", row.batch_size);
        Record { input_shape: Some(shape), model_sha256: Some(row.model.clone()), ..row }
    };
    let workplace = with(&history().into_iter().map(known).collect::<Vec<_>>());
    let text = workplace.inferbench(&["predict", "--evaluate", "--format", "json"]).finish().with_code(0).stdout;
    let found: Value = serde_json::from_str(&text).unwrap();
    let left_out: Vec<&str> =
        found["errors"].as_array().unwrap().iter().map(|errors| errors["left_out"].as_str().unwrap()).collect();
    assert_eq!(left_out, ["family", "batch"]);
    for errors in found["errors"].as_array().unwrap() {
        assert!(
            errors["median_error"].as_f64().unwrap() < 0.1 && errors["coverage"].as_f64().unwrap() > 0.5,
            "{errors}"
        );
    }
    let table = workplace.inferbench(&["predict", "--evaluate"]).finish().with_code(0).stdout;
    assert!(table.contains("in the 80 % interval"), "{table}");
    // Variables that people export for `cargo bench` choose nothing here.
    let mut exported = workplace.inferbench(&["predict", "--evaluate"]);
    exported.env("INFERBENCH_BACKEND", "ort").env("INFERBENCH_MODEL", "digits").env("INFERBENCH_BATCH_SIZES", "1,8");
    let table = exported.finish().with_code(0).stdout;
    assert!(table.contains("in the 80 % interval"), "{table}");
}

#[test]
fn a_recommendation_names_what_is_predicted_to_be_better_and_how_to_measure_it() {
    // tch takes half the time of ort for all other models, and was not measured for digits.
    let of_tch = |record: Record| Record {
        latency_p50_ms: record.latency_p50_ms.map(|ms| ms / 2.0),
        ..row(record.model[3..].parse().unwrap(), "tch", record.batch_size)
    };
    let own = |backend, batch, factor: f64| Record {
        verified: Some(true),
        throughput_ips: Some(batch as f64 * 1e3 / law(&digits(batch)) / factor),
        ..of_digits(backend, batch, factor * law(&digits(batch)))
    };
    let others: Vec<Record> = history().into_iter().chain(history().into_iter().map(of_tch)).collect();
    let advice = |own: Vec<Record>| {
        let workplace = with(&[others.clone(), own].concat());
        let text = workplace.inferbench(&["recommend", "digits", "--format", "json"]).finish().with_code(0).stdout;
        (serde_json::from_str::<Value>(&text).unwrap()[0].clone(), workplace)
    };
    let (found, workplace) = advice(vec![own("ort", 1, 1.0), own("ort", 4, 1.0)]);
    assert_eq!(found["case_id"], "digits/ort-cpu-f32/1", "what was measured is recommended");
    let first = &found["predicted"][0];
    assert_eq!((&first["case_id"], &first["is_beyond"]), (&"digits/tch-cpu-f32/1".into(), &true.into()), "{found}");
    let text = workplace.inferbench(&["recommend", "digits"]).finish().with_code(0).stdout;
    let command = "inferbench run --model digits --backend tch --device cpu --dtype f32 --batch-sizes 1";
    assert!(
        text.contains("predicted     digits/tch-cpu-f32/1, not measured: p50 ") && text.contains(command),
        "{text}"
    );
    assert!(text.contains("But digits/tch-cpu-f32/1, which was not measured, is predicted to be better"), "{text}");
    // What was measured is not predicted, and what is predicted to be worse is not named.
    let (found, _) = advice(vec![own("ort", 1, 1.0), own("tch", 1, 3.0), own("tch", 4, 3.0)]);
    assert_eq!((&found["case_id"], &found["predicted"]), (&"digits/ort-cpu-f32/1".into(), &serde_json::json!([])));
}

#[test]
fn the_largest_batch_that_fits_is_named() {
    let workplace = with(&history());
    let other = ["run", "--noplot", "--iterations", "20", "--output-dir", "other"];
    workplace.inferbench(&other).finish().with_code(0);
    let folder =
        fs::read_dir(workplace.path("other")).unwrap().map(|it| it.unwrap().path()).find(|it| it.is_dir()).unwrap();
    let mut known: Value = serde_json::from_str(&fs::read_to_string(folder.join("manifest.json")).unwrap()).unwrap();
    known["machine"]["host_id"] = "aaaa1111".into();
    known["machine"]["container_memory_bytes"] = Value::Null;
    known["run_id"] = "20260101T000000Z".into();
    let mut of_memory = |megabytes: u64| {
        known["machine"]["memory_bytes"] = (megabytes * 1_000_000).into();
        workplace.write("target-reports/20260101T000000Z/manifest.json", known.to_string());
        asked(&workplace, &[], 0)["largest_batch"].as_u64().unwrap() as usize
    };
    assert_eq!(of_memory(20), 0);
    let text = workplace.inferbench(&["predict", "digits"]).finish().with_code(0).stdout;
    assert!(text.contains("not even batch 1 is predicted to fit into the memory"), "{text}");
    let [fewer, batch] = [70, 100].map(|megabytes| {
        let batch = of_memory(megabytes);
        // The law of memory: 40 MB, and the bytes of the nodes. The upper end of the interval has to fit.
        let law = 40.0 + digits(batch).node_bytes as f64 * 1e-6;
        assert!(batch > 16 && law <= megabytes as f64, "{batch} for {megabytes} MB, where the law says {law}");
        batch
    });
    assert!(fewer < batch, "{fewer}, {batch}");
    let text = workplace.inferbench(&["predict", "digits"]).finish().with_code(0).stdout;
    assert!(text.contains(&format!("batch {batch} is the largest that is predicted to fit into the memory")), "{text}");
}

#[test]
fn a_suite_is_predicted_for_the_boundary_of_the_rows() {
    let workplace = with(&history());
    let boundaries = "boundaries = [\"compute\", \"end-to-end\"]\n";
    let suite = "models = [{ name = \"digits\" }]\nbackends = [\"ort\"]\nbatch_sizes = [1]\n";
    workplace.write("both.toml", format!("{suite}{boundaries}"));
    let arguments = ["predict", "--suite", "both.toml", "--format", "json"];
    let text = workplace.inferbench(&arguments).finish().with_code(0).stdout;
    let all: Vec<Value> = serde_json::from_str(&text).unwrap();
    let cases: Vec<&str> = all.iter().map(|it| it["case_id"].as_str().unwrap()).collect();
    assert_eq!(cases, ["digits/ort-cpu-f32/1"]);
}

#[test]
fn a_matrix_is_what_its_schema_says() {
    let workplace = with(&history());
    workplace.inferbench(&["predict", "digits", "--matrix", "out.json", "--backend", "ort,tch"]).finish().with_code(0);
    let found: Value = serde_json::from_str(&fs::read_to_string(workplace.path("out.json")).unwrap()).unwrap();
    assert_eq!(found.as_array().unwrap().len(), 12);
    let on_stdout = ["predict", "digits", "--matrix", "-", "--backend", "ort,tch"];
    let printed = workplace.inferbench(&on_stdout).finish().with_code(0).stdout;
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), found);
    let schema = workplace.inferbench(&["predict", "--format", "json-schema"]).finish().with_code(0).stdout;
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler.add_resource("predict.json", serde_json::from_str(&schema).unwrap()).unwrap();
    let compiled = compiler.compile("predict.json", &mut schemas).unwrap();
    if let Err(error) = schemas.validate(&found, compiled) {
        panic!("{error:#}");
    }
}

#[test]
fn the_packaged_families_stay_apart_and_a_copy_of_one_joins_it() {
    let mut rows = Vec::new();
    for entry in read_catalogue(&checkout().join("models")).unwrap() {
        let Ok(model) = entry.model else { continue };
        let phase = model.phases[0].phase;
        let sizes = Sizes { batch: 1, sequence: model.sequence_lengths.first().copied() };
        let Ok((cost, operators)) = count(&model, phase, sizes) else { continue };
        let operators = Some(operators.into_iter().collect::<Vec<_>>().join(" "));
        rows.push(Record { operators, ..of_cost(&model.name, &model.family, "ort", 1, cost, 1.0) });
    }
    let families = |rows: &[Record]| {
        let lessons = Lessons::of(rows, &[], |_| true);
        lessons.examples.into_iter().map(|example| example.subject.family).collect::<BTreeSet<String>>()
    };
    let own: BTreeSet<String> = rows.iter().map(|row| row.family.clone()).collect();
    assert_eq!(families(&rows), own);
    assert!(own.len() > 10, "{own:?}");
    let original = rows.iter().find(|row| row.model == "resnet50").unwrap().clone();
    let copy = Record { model: "mine".into(), case_id: "mine/ort-cpu-f32/1".into(), family: "mine".into(), ..original };
    assert_eq!(families(&[rows, vec![copy]].concat()).len(), own.len());
}

#[test]
fn anchors_are_measured_again_and_say_how_much_slower_the_machine_is() {
    if !has_onnxruntime() {
        return;
    }
    // A history of this machine in which digits took a thousandth of what it takes.
    let of_digits = of_digits("ort", 1, 1e-5);
    let candle = (0..6).flat_map(|model| [1, 4, 16].map(|batch| row(model, "candle", batch)));
    let rows: Vec<Record> = history().into_iter().chain([of_digits]).chain(candle).collect();
    let of_host = |host_id: &str| {
        let row = |row: &Record| Record { host_id: host_id.to_owned(), threads: Some(1), ..row.clone() };
        with(&rows.iter().map(row).collect::<Vec<_>>())
    };
    let workplace = of_host(&Machine::read().host_id);
    let plain = asked(&workplace, &["--backend", "ort", "--batch", "4"], 0);
    let found = asked(&workplace, &["--backend", "ort", "--batch", "4", "--anchor"], 0);
    assert_eq!((&plain["anchor"], &found["anchor"]["cases"]), (&Value::Null, &vec!["digits/ort-cpu-f32/1"].into()));
    let factor = found["anchor"]["factor"].as_f64().unwrap();
    assert!(factor > 1.0, "{factor}");
    for (found, plain) in estimate(&found).into_iter().zip(estimate(&plain)) {
        assert!((found / plain / factor - 1.0).abs() < 1e-9, "{found} is not {factor} times {plain}");
    }
    let rate = |asked: &Value| asked["prediction"]["throughput_ips"]["value"].as_f64().unwrap();
    assert!((rate(&plain) / rate(&found) / factor - 1.0).abs() < 1e-9);
    let arguments = ["predict", "digits", "--batch", "1,4", "--anchor"];
    let text = workplace.inferbench(&arguments).finish().with_code(0).stdout;
    let drift = "ort on cpu in f32 takes";
    assert!(text.contains(drift) && text.contains("times as long now as in the history, by 1 case (digits/"), "{text}");
    // The files of the other rows are nowhere: a backend that has no others is refused, and the next one is predicted.
    let both = ["predict", "digits", "--backend", "candle,ort", "--batch", "4", "--anchor", "--format", "json"];
    let all: Vec<Value> = serde_json::from_str(&workplace.inferbench(&both).finish().with_code(0).stdout).unwrap();
    let of = |backend: &str| all.iter().find(|it| it["backend"] == backend).unwrap();
    assert!(of("ort")["anchor"]["factor"].is_f64() && of("candle")["prediction"].is_null(), "{all:?}");
    let refusal = &of("candle")["refusal"];
    let why = "the history has no case of candle on cpu in f32 of this machine";
    assert!(refusal["reason"].as_str().unwrap().contains(why), "{refusal}");
    assert_eq!(refusal["would_help"], "inferbench run --suite operators --backend candle --device cpu --dtype f32");
    of_host("aaaa1111")
        .inferbench(&arguments)
        .finish()
        .with_code(2)
        .saying(&["`--anchor` measures this machine", "aaaa1111"]);
}

/// A workplace with the suite of operators, so many of which ONNX Runtime has computed as they are.
fn with_operators(arguments: &[&str], count: usize) -> Workplace {
    let workplace = with(&history());
    let suite = fs::read_to_string(checkout().join("models/suites/operators.toml")).unwrap();
    workplace.write("models/suites/operators.toml", suite.replace("warmup = 3", "warmup = 3\nthreads = 1"));
    let verify = ["verify", "--suite", "operators", "--backend", "ort", "--batch-sizes", "2", "--format", "json"];
    let verified = workplace.inferbench(&[&verify[..], arguments].concat()).finish().with_code(0).stdout;
    let verified: Value = serde_json::from_str(&verified).unwrap();
    let cases = verified["cases"].as_array().unwrap();
    assert!(cases.len() == count && cases.iter().all(|case| case["status"] == "ok"), "{cases:?}");
    workplace
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn all_operators_of_the_suite_are_right() {
    if has_onnxruntime() {
        with_operators(&[], 40);
    }
}

#[test]
fn the_suite_of_operators_runs_and_predictions_learn_from_it() {
    if !has_onnxruntime() {
        return;
    }
    let of_each_kind = "op-gate,op-lstm-128,op-dense-128,op-attention-32,op-gather,op-softmax";
    let workplace = with_operators(&["--model", of_each_kind], 6);
    let some =
        ["run", "--suite", "operators", "--backend", "ort", "--model", "op-gate,op-lstm-128", "--batch-sizes", "1"];
    workplace.inferbench(&[&some[..], &["--iterations", "10", "--noplot"]].concat()).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 2);
    for record in &records {
        assert_eq!(record.family, "one-operator", "{}", record.case_id);
        assert!(record.graph_nodes.is_some_and(|nodes| nodes >= 6), "{}", record.case_id);
    }
    // Other tests run beside this one.
    let records: Vec<Record> = records.into_iter().map(|it| Record { disturbed_share: None, ..it }).collect();
    let lessons = Lessons::of(&records, &[], |_| true);
    // The memory is that of a process which has measured several of them.
    let is_chain = |example: &Example| example.subject.is_of_operators() && example.memory_mb.is_none();
    assert!(lessons.examples.len() == 2 && lessons.examples.iter().all(is_chain), "{lessons:?}");
}
