//! Runs that nobody measured: figures of a plausible size for tests of reports, the same each time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use inferbench::definition::{Case, Dtype, Phase, Status, Suite};
use inferbench::history::write_records;
use inferbench::machine::Machine;
use inferbench::run_data::{Calibration, DISTRIBUTIONS, Distribution, Distributions, Probe, Record};
use serde_json::json;

/// Name, family, modality, milliseconds of a call, and megabytes.
const MODELS: [(&str, &str, &str, f64, f64); 10] = [
    ("resnet50", "resnet", "image", 42.0, 102.0),
    ("mobilenet", "mobilenet", "image", 6.0, 14.0),
    ("vit_b_16", "vit", "image", 190.0, 346.0),
    ("deit", "vit", "image", 60.0, 88.0),
    ("bert-base", "bert", "text", 120.0, 438.0),
    ("distilbert", "bert", "text", 61.0, 265.0),
    ("llama-small", "llama", "text", 0.17, 2.5),
    ("qwen2-0.5b", "qwen2", "text", 260.0, 1980.0),
    ("whisper-tiny", "whisper", "audio", 5.7, 151.0),
    ("wav2vec2", "wav2vec2", "audio", 310.0, 378.0),
];
const BACKENDS: [(&str, f64); 4] = [("ort", 1.0), ("tch", 1.4), ("candle", 2.3), ("tract", 3.1)];
const BATCH_SIZES: [usize; 5] = [1, 2, 4, 8, 16];

/// What is to be made up.
#[derive(Clone, Copy)]
pub struct Shape<'a> {
    pub runs: usize,
    /// At most those of all models, variants, backends, dtypes and batch sizes: 1,200.
    pub cases: usize,
    /// A machine of its own, some times as fast.
    pub host: (&'a str, f64),
}

/// Writes runs into a folder of reports, an hour apart. In the run after the middle, the first backend's figures are
/// 30 % higher, and stay so. A case in fifty could not run.
pub fn write_runs(reports: &Path, shape: Shape<'_>) -> Vec<String> {
    (0..shape.runs).map(|index| write_run(reports, shape, index)).collect()
}

fn write_run(reports: &Path, shape: Shape<'_>, index: usize) -> String {
    let (host_id, speed) = shape.host;
    let run = Record {
        run_id: format!("202601{:02}T{:02}0000Z-{host_id}", 1 + index / 24, index % 24),
        timestamp: format!("2026-01-{:02}T{:02}:00:00Z", 1 + index / 24, index % 24).parse().unwrap(),
        git_commit: Some(format!("{:040x}", 0x5e1f_7e57_u64 + index as u64 / 2)),
        git_dirty: Some(false),
        host_id: host_id.into(),
        suite: "synthetic".into(),
        rustc_version: "rustc 1.95.0".into(),
        ..Record::default()
    };
    let mut chance = Chance(1 + index as u64 * 7919 + host_id.len() as u64);
    let mut distributions = BTreeMap::new();
    let mut records = Vec::new();
    for (number, (case, entry)) in cases().take(shape.cases).enumerate() {
        let (_, family, modality, base, size) = entry;
        let mut record = run.clone().about(&case);
        (record.family, record.modality) = (family.into(), modality.into());
        record.library_version = Some("1.0".into());
        record.threads = Some(2);
        if number % 50 == 49 {
            record.status = [Status::Unsupported, Status::Failed, Status::WrongOutput][number / 50 % 3];
            record.message = Some("operator Gelu-20 is not known to this backend; export with opset 17".into());
            records.push(record);
            continue;
        }
        let backend = BACKENDS.iter().find(|(name, _)| *name == case.backend).unwrap().1;
        let dtype = if case.dtype == Dtype::F16 { 0.7 } else { 1.0 };
        let variant = if case.variant == "original" { 1.0 } else { 0.55 };
        let slower = if case.backend == "ort" && index > shape.runs / 2 { 1.3 } else { 1.0 };
        let noise = (0.008 * chance.normal()).exp();
        let p50 = base * backend * dtype * variant * slower * noise * (case.batch_size as f64).powf(0.85) / speed;
        let tail = |p: f64| p50 * (1.0 + 0.03 * -(1.0 - p).log10());
        record.latency_p50_ms = Some(p50);
        record.latency_p50_upper_ms = Some(p50 * 1.004);
        record.latency_p90_ms = Some(tail(0.9));
        record.latency_p90_upper_ms = Some(tail(0.92));
        record.latency_p95_ms = Some(tail(0.95));
        record.latency_p95_upper_ms = Some(tail(0.97));
        record.latency_p99_ms = Some(tail(0.99));
        record.latency_p99_upper_ms = (number % 3 > 0).then(|| tail(0.998));
        record.latency_mean_ms = Some(p50 * 1.01);
        record.latency_std_ms = Some(p50 * 0.05);
        record.iterations = Some(1000);
        let rate = case.batch_size as f64 * 1e3 / p50;
        record.throughput_ips = Some(rate);
        (record.throughput_lower_ips, record.throughput_upper_ips) = (Some(rate * 0.98), Some(rate * 1.02));
        record.tokens_per_second = (case.phase != Phase::Forward).then_some(rate);
        record.memory_mb = Some(90.0 + size * dtype * variant * 1.6 + 8.0 * case.batch_size as f64);
        record.model_size_mb = Some(size * dtype * variant);
        record.accuracy = (modality == "image").then(|| 0.82 - 0.4 / base.sqrt() - 0.01 * (1.0 - variant));
        record.verified = Some(true);
        record.max_rel_error = Some(1e-6 * (1.0 + chance.uniform()));
        let fractions = (1..100).map(|percent| f64::from(percent) / 100.0).chain([0.995, 0.998, 0.999]);
        let quantiles_ms = fractions.map(|p| (p, tail(p) * if p < 0.5 { 0.9 + 0.2 * p } else { 1.0 })).collect();
        distributions.insert(case.to_string(), Distribution { calls: 1000, quantiles_ms });
        records.push(record);
    }
    let folder = reports.join(&run.run_id);
    fs::create_dir_all(&folder).unwrap();
    write_records(&records, fs::File::create(folder.join("results.csv")).unwrap()).unwrap();
    fs::write(folder.join(DISTRIBUTIONS), serde_json::to_vec(&Distributions::new(distributions)).unwrap()).unwrap();
    run.run_id
}

/// Gives a run the manifest of this machine, which was looked at before and after: products and copies in 10^9 per second.
pub fn give_machine(reports: &Path, run_id: &str, machine: &Machine, looks: [(f64, f64); 2]) {
    let probe = |(product, copy): (f64, f64)| Probe {
        threads: machine.logical_processors,
        product_gflops_per_second: [0.99, 1.0, 1.01, 1.0, 0.98].map(|it| it * product).into(),
        copy_gb_per_second: [1.0, 1.02, 0.99, 1.0, 0.97].map(|it| it * copy).into(),
        ..Probe::default()
    };
    let (before, after) = (probe(looks[0]), Some(probe(looks[1])));
    let calibration = Calibration { host_id: machine.host_id.clone(), before, after, ..Calibration::default() };
    let manifest = json!({
        "format": 1, "run_id": run_id, "started": "2026-01-01T00:00:00Z", "finished": null, "is_interrupted": false, "arguments": [],
        "suite_name": "synthetic", "suite": Suite::new("synthetic", vec!["ort".into()]), "threads": machine.logical_processors,
        "inferbench_version": "0.1.0", "rustc_version": "rustc 1.95.0", "revision": { "commit": null, "is_dirty": null },
        "machine": machine, "calibrations": [calibration], "criterion_root": "", "saved_baseline": null, "compared_baseline": null,
        "is_quick": false, "cases": [],
    });
    fs::write(reports.join(run_id).join("manifest.json"), manifest.to_string()).unwrap();
}

type Entry = (&'static str, &'static str, &'static str, f64, f64);

/// Models change slowest, so that a few cases are of one model.
fn cases() -> impl Iterator<Item = (Case, Entry)> {
    let phases = |entry: &Entry| if entry.1 == "llama" { vec![Phase::Prefill] } else { vec![Phase::Forward] };
    MODELS.into_iter().flat_map(move |entry| {
        let variants = ["original", "int8-static", "pruned"];
        let of_variant = move |variant: &'static str| {
            phases(&entry).into_iter().flat_map(move |phase| {
                [Dtype::F32, Dtype::F16].into_iter().flat_map(move |dtype| {
                    BATCH_SIZES.into_iter().flat_map(move |batch_size| {
                        BACKENDS.into_iter().map(move |(backend, _)| {
                            let plain = Case::new(entry.0, backend, batch_size);
                            (Case { variant: variant.into(), dtype, phase, ..plain }, entry)
                        })
                    })
                })
            })
        };
        variants.into_iter().flat_map(of_variant)
    })
}

/// Numbers by chance, the same for the same seed (a linear congruence).
struct Chance(u64);

impl Chance {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About normal, by the sum of twelve.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}
