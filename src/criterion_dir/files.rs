//! Mirrors of Criterion's JSON files, and the latency log beside them: every call of a case.

use serde::{Deserialize, Deserializer, Serialize};

/// `benchmark.json`. A benchmark of this project's form has all of the triple.
#[derive(Deserialize)]
pub(super) struct BenchmarkJson {
    pub(super) group_id: String,
    pub(super) function_id: Option<String>,
    pub(super) value_str: Option<String>,
}

/// `sample.json`: calls and summed nanoseconds of each sample.
#[derive(Deserialize)]
pub(super) struct SampleJson {
    pub(super) sampling_mode: SamplingMode,
    pub(super) iters: Vec<f64>,
    pub(super) times: Vec<f64>,
}

/// How Criterion spread the calls over the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum SamplingMode {
    /// The same number in each.
    Flat,
    /// Growing numbers.
    Linear,
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
    /// The run that measured it; tells a stale entry from one of the run.
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
