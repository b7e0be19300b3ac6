//! Finds the benchmarks in Criterion's tree and reads them, checking that their files belong together.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use serde::de::DeserializeOwned;
use walkdir::{DirEntry, WalkDir};

use super::files::{BenchmarkJson, Estimates, LATENCY_LOG, LatencyLog, SampleJson, SamplingMode};
use crate::definition::BenchmarkId;

/// One benchmark as it was measured.
#[derive(Debug)]
pub struct MeasuredEntry {
    pub id: BenchmarkId,
    pub run_id: String,
    pub estimates: Estimates,
    pub sampling_mode: SamplingMode,
    /// Nanoseconds of each call, one list per sample.
    pub samples_ns: Vec<Vec<u64>>,
    /// Whether each sample was disturbed, where that is known.
    pub disturbed: Option<Vec<bool>>,
}

/// Why what `--quick` leaves is not read.
pub const QUICK: &str = "quick: `--quick` makes up a sample; measure without it";
const FOREIGN: &str = "foreign: it was not measured by inferbench";

/// The folders `<root>/<group>/<function>/<value>/<baseline>`, in the order of their names; none if there is no root.
fn baselines(root: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = WalkDir::new(root).min_depth(4).max_depth(4).sort_by_file_name().into_iter().flatten();
    entries.filter(|entry| entry.file_type().is_dir()).map(DirEntry::into_path)
}

/// The folders of a baseline that hold a benchmark, in the order of their names.
pub fn find_entries(root: &Path, baseline: &str) -> Vec<PathBuf> {
    let is_measured = |entry: &PathBuf| ["benchmark.json", "sample.json"].iter().any(|name| entry.join(name).is_file());
    baselines(root).filter(|entry| entry.ends_with(baseline) && is_measured(entry)).collect()
}

/// The names under which the tree keeps measurements: `new`, Criterion's `base`, and saved baselines.
pub fn find_baselines(root: &Path) -> Vec<String> {
    let kept = baselines(root).filter(|entry| entry.join("benchmark.json").is_file());
    let names: BTreeSet<String> =
        kept.filter_map(|entry| Some(entry.file_name()?.to_string_lossy().into_owned())).collect();
    names.into_iter().collect()
}

/// Reads one entry.
///
/// # Errors
/// It is of another program or of `--quick`, its files are of different measurements, or one of them cannot be read.
pub fn read_entry(folder: &Path) -> Result<MeasuredEntry> {
    let BenchmarkJson { group_id: group, function_id, value_str } = read_json(folder, "benchmark.json")?;
    let (function, value) = function_id.zip(value_str).context(FOREIGN)?;
    ensure!(folder.join(LATENCY_LOG).is_file(), FOREIGN);
    let sample: SampleJson = read_json(folder, "sample.json")?;
    // Criterion takes at least 10 samples; only `--quick` leaves fewer.
    ensure!(sample.times.len() >= 10, QUICK);
    let log: LatencyLog = read_json(folder, LATENCY_LOG)?;
    ensure!(has_same_sums(&sample, &log), "mixed: the latency log and sample.json are of different measurements");
    let estimates: Estimates = read_json(folder, "estimates.json")?;
    ensure!(has_same_mean(&sample, &estimates), "mixed: estimates.json and sample.json are of different measurements");
    Ok(MeasuredEntry {
        id: BenchmarkId { group, function, value },
        run_id: log.run_id,
        estimates,
        sampling_mode: sample.sampling_mode,
        disturbed: log.disturbed.filter(|marks| marks.len() == log.samples_ns.len()),
        samples_ns: log.samples_ns,
    })
}

/// Reads only the estimates of an entry, which need not be of this harness.
///
/// # Errors
/// The file is missing or not what it should be.
pub fn read_estimates(folder: &Path) -> Result<Estimates> {
    read_json(folder, "estimates.json")
}

fn read_json<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T> {
    let parsed = fs::read(folder.join(name)).map(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from));
    parsed.flatten().map_err(|error| anyhow!("unreadable: {name}: {error}"))
}

fn has_same_sums(sample: &SampleJson, log: &LatencyLog) -> bool {
    let counts = log.samples_ns.iter().map(|calls| calls.len() as f64);
    let sums = log.samples_ns.iter().map(|calls| calls.iter().sum::<u64>() as f64);
    counts.eq(sample.iters.iter().copied()) && sums.eq(sample.times.iter().copied())
}

/// Criterion's mean is that of the samples' times per call; only rounding may differ.
fn has_same_mean(sample: &SampleJson, estimates: &Estimates) -> bool {
    let mean = sample.times.iter().zip(&sample.iters).map(|(time, iters)| time / iters).sum::<f64>()
        / sample.times.len() as f64;
    (mean - estimates.mean.point).abs() <= 1e-9 * mean.abs()
}
