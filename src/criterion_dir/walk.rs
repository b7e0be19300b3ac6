//! Finds the benchmarks in Criterion's tree and reads them, checking that their files belong together.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

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
#[derive(Debug, PartialEq)]
pub enum Refusal {
    /// Not measured by this harness: no latency log, or no id of its form.
    Foreign,
    /// Files of different measurements, or a half-written one.
    Mixed(String),
    /// Measured with `--quick`, which makes up a second sample.
    Quick,
    /// A file is missing or not what it should be.
    Unreadable(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Foreign => f.write_str("foreign: it was not measured by inferbench"),
            Refusal::Mixed(why) => write!(f, "mixed: {why}"),
            Refusal::Quick => f.write_str("quick: `--quick` makes up a sample; measure without it"),
            Refusal::Unreadable(why) => write!(f, "unreadable: {why}"),
        }
    }
}

/// The folders `<root>/<group>/<function>/<value>/<baseline>` that hold a benchmark, in the order of their names.
///
/// # Errors
/// The root is not there or a folder cannot be listed.
pub fn find_entries(root: &Path, baseline: &str) -> std::io::Result<Vec<PathBuf>> {
    let mut entries = Vec::new();
    for group in folders(root)? {
        for function in folders(&group)? {
            for value in folders(&function)? {
                let entry = value.join(baseline);
                if entry.join("benchmark.json").is_file() || entry.join("sample.json").is_file() {
                    entries.push(entry);
                }
            }
        }
    }
    Ok(entries)
}

/// The names under which the tree keeps measurements: `new`, Criterion's `base`, and saved baselines.
pub fn find_baselines(root: &Path) -> Vec<String> {
    let below = |parents: Vec<PathBuf>| parents.iter().flat_map(|parent| folders(parent).unwrap_or_default()).collect();
    let values: Vec<PathBuf> = (0..3).fold(vec![root.to_owned()], |parents, _| below(parents));
    let kept = below(values).into_iter().filter(|entry: &PathBuf| entry.join("benchmark.json").is_file());
    let names: BTreeSet<String> =
        kept.filter_map(|entry| Some(entry.file_name()?.to_string_lossy().into_owned())).collect();
    names.into_iter().collect()
}

fn folders(parent: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut children = Vec::new();
    for child in fs::read_dir(parent)? {
        let child = child?;
        if child.file_type()?.is_dir() {
            children.push(child.path());
        }
    }
    children.sort();
    Ok(children)
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
    if is_quick(&sample) {
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
    let bytes = fs::read(folder.join(name)).map_err(|error| Refusal::Unreadable(format!("{name}: {error}")))?;
    serde_json::from_slice(&bytes).map_err(|error| Refusal::Unreadable(format!("{name}: {error}")))
}

/// Criterion takes at least 10 samples; only `--quick` leaves fewer.
fn is_quick(sample: &SampleJson) -> bool {
    sample.times.len() < 10
}

fn check_sums(sample: &SampleJson, log: &LatencyLog) -> Result<(), Refusal> {
    let same_shape = sample.times.len() == log.samples_ns.len() && sample.iters.len() == log.samples_ns.len();
    let same_sums = || {
        log.samples_ns
            .iter()
            .zip(&sample.times)
            .zip(&sample.iters)
            .all(|((calls, &time), &iters)| calls.iter().sum::<u64>() as f64 == time && calls.len() as f64 == iters)
    };
    if same_shape && same_sums() {
        return Ok(());
    }
    Err(Refusal::Mixed("the latency log and sample.json are of different measurements".into()))
}

/// Criterion's mean is that of the samples' times a call; only rounding may differ.
fn check_mean(sample: &SampleJson, estimates: &Estimates) -> Result<(), Refusal> {
    let mean = sample.times.iter().zip(&sample.iters).map(|(time, iters)| time / iters).sum::<f64>()
        / sample.times.len() as f64;
    if (mean - estimates.mean.point).abs() <= 1e-9 * mean.abs() {
        return Ok(());
    }
    Err(Refusal::Mixed("estimates.json and sample.json are of different measurements".into()))
}
