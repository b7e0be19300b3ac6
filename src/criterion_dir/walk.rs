//! Finds the benchmarks in Criterion's tree and reads them, checking that their files belong together.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use walkdir::{DirEntry, WalkDir};

use super::files::{BenchmarkJson, Estimates, SampleJson, SamplingMode};
use super::latency_log::{LATENCY_LOG, LatencyLog};
use crate::definition::BenchmarkId;

/// One benchmark as it was measured.
#[derive(Debug)]
pub struct MeasuredEntry {
    pub id: BenchmarkId,
    pub run_id: String,
    pub estimates: Estimates,
    pub sampling_mode: SamplingMode,
    /// Nanoseconds of each call, one list a sample.
    pub samples_ns: Vec<Vec<u64>>,
    /// Whether each sample was disturbed, where that is known.
    pub disturbed: Option<Vec<bool>>,
}

/// Why an entry is not read.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// There is no latency log, or no id of its form.
    #[error("foreign: it was not measured by inferbench")]
    Foreign,
    /// Files of different measurements, or a half-written one.
    #[error("mixed: {0} are of different measurements")]
    Mixed(&'static str),
    #[error("quick: `--quick` makes up a sample; measure without it")]
    Quick,
    /// A file is missing or not what it should be.
    #[error("unreadable: {0}")]
    Unreadable(String),
}

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
/// Why it is refused.
pub fn read_entry(folder: &Path) -> Result<MeasuredEntry, Refusal> {
    let id = read_json::<BenchmarkJson>(folder, "benchmark.json")?.id().ok_or(Refusal::Foreign)?;
    if !folder.join(LATENCY_LOG).is_file() {
        return Err(Refusal::Foreign);
    }
    let sample: SampleJson = read_json(folder, "sample.json")?;
    // Criterion takes at least 10 samples; only `--quick` leaves fewer.
    if sample.times.len() < 10 {
        return Err(Refusal::Quick);
    }
    let log: LatencyLog = read_json(folder, LATENCY_LOG)?;
    check_sums(&sample, &log)?;
    let estimates: Estimates = read_json(folder, "estimates.json")?;
    check_mean(&sample, &estimates)?;
    Ok(MeasuredEntry {
        id,
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
pub fn read_estimates(folder: &Path) -> Result<Estimates, Refusal> {
    read_json(folder, "estimates.json")
}

fn read_json<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T, Refusal> {
    let parsed = fs::read(folder.join(name)).map(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from));
    parsed.flatten().map_err(|error| Refusal::Unreadable(format!("{name}: {error}")))
}

fn check_sums(sample: &SampleJson, log: &LatencyLog) -> Result<(), Refusal> {
    let is_same_shape = sample.times.len() == log.samples_ns.len() && sample.iters.len() == log.samples_ns.len();
    let has_same_sums = || {
        log.samples_ns
            .iter()
            .zip(&sample.times)
            .zip(&sample.iters)
            .all(|((calls, &time), &iters)| calls.iter().sum::<u64>() as f64 == time && calls.len() as f64 == iters)
    };
    if is_same_shape && has_same_sums() { Ok(()) } else { Err(Refusal::Mixed("the latency log and sample.json")) }
}

/// Criterion's mean is that of the samples' times a call; only rounding may differ.
fn check_mean(sample: &SampleJson, estimates: &Estimates) -> Result<(), Refusal> {
    let mean = sample.times.iter().zip(&sample.iters).map(|(time, iters)| time / iters).sum::<f64>()
        / sample.times.len() as f64;
    let is_same = (mean - estimates.mean.point).abs() <= 1e-9 * mean.abs();
    if is_same { Ok(()) } else { Err(Refusal::Mixed("estimates.json and sample.json")) }
}
