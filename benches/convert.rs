//! Converting a large run: 10,000 cases with 1,000 calls each, from a generated tree of Criterion's form.
//!
//! `cargo bench --bench convert` prints seconds and peak memory; the aim is under 5 s and under 500 MiB. The tree takes
//! about 200 MB in the target folder and is removed afterwards. `-- --quick` converts 100 cases.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Parser;
use inferbench::convert::convert;
use inferbench::criterion_dir::{LATENCY_LOG, LatencyLog};
use inferbench::definition::{Case, Suite};
use inferbench::history::{write_records, write_throughput};
use inferbench::measurement::memory;
use inferbench::run_data::{CriterionArguments, Event, Manifest, ManifestCase, Mode, Outcome, RunFolder};

const MODELS: usize = 500;
const QUICK_MODELS: usize = 5;
const BATCH_SIZES: usize = 20;
const SAMPLES: usize = 100;
const CALLS_PER_SAMPLE: u64 = 10;

fn main() {
    let arguments = CriterionArguments::parse_from(std::env::args().skip(1));
    if arguments.mode() != Mode::Measure {
        return;
    }
    let models = if arguments.quick { QUICK_MODELS } else { MODELS };
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("convert-bench");
    let _ = fs::remove_dir_all(&root);
    let run = generate(&root, models);

    let is_reset = memory::reset_peak().is_ok();
    let start = Instant::now();
    let conversion = convert(&run, &root.join("criterion"), "new", |_, _| Ok(())).expect("the generated tree is whole");
    let (mut results, mut throughput) = (Vec::new(), Vec::new());
    write_records(&conversion.records, &mut results).expect("memory can be written");
    write_throughput(&conversion.records, &mut throughput).expect("memory can be written");
    fs::write(root.join("results.csv"), &results).expect("the target folder can be written");
    let seconds = start.elapsed().as_secs_f64();
    let peak = memory::peak_bytes().filter(|_| is_reset);

    let figures = conversion.records.iter().filter(|record| record.latency_p99_ms.is_some()).count();
    assert_eq!((figures, conversion.refused.len()), (models * BATCH_SIZES, 0), "every case is converted");
    let peak = peak.map_or("unknown".into(), |bytes| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20)));
    println!(
        "converted {figures} cases of {} calls in {seconds:.2} s, peak {peak} (aim: under 5 s and 500 MiB)",
        SAMPLES as u64 * CALLS_PER_SAMPLE
    );
    let _ = fs::remove_dir_all(&root);
}

fn generate(root: &Path, models: usize) -> RunFolder {
    let run = RunFolder::new(root.join("run"));
    let mut cases = Vec::new();
    for model in 0..models {
        for batch in 1..=BATCH_SIZES {
            let case = Case::new(&format!("model-{model}"), "ort", batch);
            write_entry(&root.join("criterion"), &case, (model * BATCH_SIZES + batch) as u64);
            cases.push(case);
        }
    }
    let manifest = manifest(root, &cases);
    run.write_manifest(&manifest).expect("the target folder can be written");
    write_outcomes(&run, &manifest);
    run
}

fn write_entry(criterion: &Path, case: &Case, seed: u64) {
    let id = case.benchmark_id();
    let folder = criterion.join(&id.group).join(&id.function).join(&id.value).join("new");
    fs::create_dir_all(&folder).expect("the target folder can be written");
    let call = |index: u64| {
        1_000_000 + (seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(index * index) >> 7) % 50_000
    };
    let samples_ns: Vec<Vec<u64>> = (0..SAMPLES as u64)
        .map(|sample| (0..CALLS_PER_SAMPLE).map(|index| call(sample * CALLS_PER_SAMPLE + index)).collect())
        .collect();
    let times: Vec<f64> = samples_ns.iter().map(|calls| calls.iter().sum::<u64>() as f64).collect();
    let iters = vec![CALLS_PER_SAMPLE as f64; SAMPLES];
    let mean = times.iter().zip(&iters).map(|(time, iters)| time / iters).sum::<f64>() / SAMPLES as f64;
    let estimate = serde_json::json!({
        "confidence_interval": { "confidence_level": 0.95, "lower_bound": mean * 0.99, "upper_bound": mean * 1.01 },
        "point_estimate": mean, "standard_error": mean * 0.005,
    });
    let estimates = serde_json::json!({
        "mean": estimate, "median": estimate, "median_abs_dev": estimate, "slope": null, "std_dev": estimate,
    });
    let benchmark = serde_json::json!({
        "group_id": id.group, "function_id": id.function, "value_str": id.value,
        "throughput": { "Elements": case.batch_size }, "full_id": id.to_string(),
        "directory_name": id.to_string(), "title": id.to_string(),
    });
    let sample = serde_json::json!({ "sampling_mode": "Flat", "iters": iters, "times": times });
    for (name, value) in [("estimates.json", estimates), ("sample.json", sample), ("benchmark.json", benchmark)] {
        fs::write(folder.join(name), value.to_string()).expect("the target folder can be written");
    }
    let log = LatencyLog { run_id: RUN_ID.into(), warm_up_ns: Vec::new(), samples_ns, disturbed: None };
    let log = serde_json::to_vec(&log).expect("a log is JSON");
    fs::write(folder.join(LATENCY_LOG), log).expect("the target folder can be written");
}

const RUN_ID: &str = "20260101T000000Z";

fn manifest(root: &Path, cases: &[Case]) -> Manifest {
    let started = "2026-01-01T00:00:00Z".parse().expect("a valid time");
    let cases = cases.iter().map(|case| ManifestCase::new(case.clone(), "onnxruntime")).collect();
    let begun = Manifest::begun(RUN_ID.into(), started, Suite::new("generated", Vec::new()), cases);
    Manifest { criterion_root: root.join("criterion"), ..begun }
}

/// Writes all outcomes at once: `append` would sync each line to the disk, as a run must.
fn write_outcomes(run: &RunFolder, manifest: &Manifest) {
    let mut lines = String::new();
    for planned in &manifest.cases {
        let outcome = Outcome { seconds: 1.0, ..Outcome::new(manifest.row(planned)) };
        lines += &serde_json::to_string(&Event::Finished(Box::new(outcome))).expect("an outcome is JSON");
        lines.push('\n');
    }
    fs::write(run.outcomes_path(), lines).expect("the target folder can be written");
}
