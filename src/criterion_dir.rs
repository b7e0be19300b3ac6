//! Criterion's files, and the latency log that the harness puts beside them: found, read, and checked to belong
//! together.
//!
//! Criterion 0.8 keeps a benchmark in `<root>/<group>/<function>/<value>/<baseline>/` as `benchmark.json`,
//! `sample.json`, `estimates.json` and `tukey.json`; `<baseline>` is `new` for the last run. The format is not public:
//! the crate's version is pinned, and a test over a recorded tree guards it. `benchmark.json` is written last.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use walkdir::WalkDir;

/// `benchmark.json`. A benchmark of this project's form has both.
#[derive(Deserialize)]
struct BenchmarkJson {
    function_id: Option<String>,
    value_str: Option<String>,
}

/// `sample.json`: calls and summed nanoseconds of each sample.
#[derive(Deserialize)]
struct SampleJson {
    sampling_mode: String,
    iters: Vec<f64>,
    times: Vec<f64>,
}

/// `estimates.json`, in nanoseconds per call.
#[derive(Clone, Debug, Deserialize)]
pub struct Estimates {
    pub mean: Estimate,
    pub median: Estimate,
    pub std_dev: Estimate,
    /// Linear sampling only.
    pub slope: Option<Estimate>,
}

/// An estimate.
#[derive(Clone, Debug, Deserialize)]
pub struct Estimate {
    #[serde(rename = "point_estimate")]
    pub point: f64,
    #[serde(rename = "confidence_interval")]
    pub interval: Interval,
}

/// A bootstrap confidence interval.
#[derive(Clone, Debug, Deserialize)]
pub struct Interval {
    #[serde(rename = "lower_bound", deserialize_with = "number_or_nan")]
    pub lower: f64,
    #[serde(rename = "upper_bound", deserialize_with = "number_or_nan")]
    pub upper: f64,
    pub confidence_level: f64,
}

/// serde_json writes a number that is not finite as null.
fn number_or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// The log's file name, in Criterion's folder of a benchmark and baseline.
pub const LATENCY_LOG: &str = "latencies.json";

/// Every measured call, by sample.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyLog {
    /// The run that measured it, which tells whether the entry is stale.
    pub run_id: String,
    /// Nanoseconds of each call of the warm-up, in order. Not part of any figure.
    #[serde(default)]
    pub warm_up_ns: Vec<u64>,
    /// Nanoseconds of each call, one list per sample. Their sums are the `times` of `sample.json`.
    pub samples_ns: Vec<Vec<u64>>,
    /// Whether each sample was disturbed by a hypervisor or other processes; absent where that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<Vec<bool>>,
}

/// One benchmark as it was measured.
#[derive(Debug)]
pub struct MeasuredEntry {
    pub run_id: String,
    pub estimates: Estimates,
    /// `Flat` if each sample has the same number of calls.
    pub sampling_mode: String,
    /// Nanoseconds of each call, one list per sample.
    pub samples_ns: Vec<Vec<u64>>,
    /// Whether each sample was disturbed, where that is known.
    pub disturbed: Option<Vec<bool>>,
}

/// Why the files of `--quick` are refused.
pub const QUICK: &str = "quick: `--quick` makes up a sample; measure without it";
const FOREIGN: &str = "foreign: it was not measured by inferbench";

/// The names under which the tree keeps measurements: `new`, Criterion's `base`, and saved baselines.
pub fn find_baselines(root: &Path) -> Vec<String> {
    let entries = WalkDir::new(root).min_depth(4).max_depth(4).into_iter().flatten();
    let kept = entries.filter(|entry| entry.path().join("benchmark.json").is_file());
    let names: BTreeSet<String> = kept.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.into_iter().collect()
}

/// Reads one entry.
///
/// # Errors
/// The entry is another program's or was made by `--quick`, its files belong to different measurements, or one of them
/// cannot be read.
pub fn read_entry(folder: &Path) -> Result<MeasuredEntry> {
    let benchmark: BenchmarkJson = read_json(folder, "benchmark.json")?;
    let is_own = benchmark.function_id.is_some() && benchmark.value_str.is_some();
    ensure!(is_own && folder.join(LATENCY_LOG).is_file(), FOREIGN);
    let sample: SampleJson = read_json(folder, "sample.json")?;
    // Criterion takes at least 10 samples; only `--quick` leaves fewer.
    ensure!(sample.times.len() >= 10, QUICK);
    let log: LatencyLog = read_json(folder, LATENCY_LOG)?;
    ensure!(has_same_sums(&sample, &log), "mixed: the latency log and sample.json are of different measurements");
    let estimates: Estimates = read_json(folder, "estimates.json")?;
    ensure!(has_same_mean(&sample, &estimates), "mixed: estimates.json and sample.json are of different measurements");
    Ok(MeasuredEntry {
        run_id: log.run_id,
        estimates,
        sampling_mode: sample.sampling_mode,
        disturbed: log.disturbed.filter(|marks| marks.len() == log.samples_ns.len()),
        samples_ns: log.samples_ns,
    })
}

/// Reads only the estimates of an entry, which may be of another program.
pub fn read_estimates(folder: &Path) -> Result<Estimates> {
    read_json(folder, "estimates.json")
}

fn read_json<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T> {
    let parsed = fs::read(folder.join(name)).and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from));
    parsed.map_err(|error| anyhow!("unreadable: {name}: {error}"))
}

fn has_same_sums(sample: &SampleJson, log: &LatencyLog) -> bool {
    let counts = log.samples_ns.iter().map(|calls| calls.len() as f64);
    let sums = log.samples_ns.iter().map(|calls| calls.iter().sum::<u64>() as f64);
    counts.eq(sample.iters.iter().copied()) && sums.eq(sample.times.iter().copied())
}

/// Criterion's mean is the mean of the samples' times per call; only rounding may differ.
fn has_same_mean(sample: &SampleJson, estimates: &Estimates) -> bool {
    let mean = sample.times.iter().zip(&sample.iters).map(|(time, iters)| time / iters).sum::<f64>()
        / sample.times.len() as f64;
    (mean - estimates.mean.point).abs() <= 1e-9 * mean.abs()
}
