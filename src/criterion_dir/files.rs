//! Mirrors of Criterion's JSON files.

use serde::{Deserialize, Deserializer, Serialize};

use crate::definition::BenchmarkId;

/// `benchmark.json`.
#[derive(Deserialize)]
pub(super) struct BenchmarkJson {
    group_id: String,
    function_id: Option<String>,
    value_str: Option<String>,
}

impl BenchmarkJson {
    /// The triple; none for a benchmark that is not of this project's form.
    pub(super) fn id(self) -> Option<BenchmarkId> {
        Some(BenchmarkId { group: self.group_id, function: self.function_id?, value: self.value_str? })
    }
}

/// `sample.json`: calls and summed nanoseconds of each sample.
#[derive(Deserialize)]
pub(super) struct SampleJson {
    pub(super) sampling_mode: SamplingMode,
    pub(super) iters: Vec<f64>,
    pub(super) times: Vec<f64>,
}

/// How Criterion spread the calls over the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SamplingMode {
    /// The same number in each.
    Flat,
    /// Growing numbers.
    Linear,
}

/// `estimates.json`, in nanoseconds a call.
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
