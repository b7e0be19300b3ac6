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

/// An estimate with its bootstrap confidence interval.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "EstimateJson")]
pub struct Estimate {
    pub point: f64,
    pub lower: f64,
    pub upper: f64,
    pub confidence_level: f64,
}

#[derive(Deserialize)]
struct EstimateJson {
    confidence_interval: IntervalJson,
    point_estimate: f64,
}

#[derive(Deserialize)]
struct IntervalJson {
    confidence_level: f64,
    // serde_json writes a number that is not finite as null.
    #[serde(deserialize_with = "number_or_nan")]
    lower_bound: f64,
    #[serde(deserialize_with = "number_or_nan")]
    upper_bound: f64,
}

fn number_or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

impl From<EstimateJson> for Estimate {
    fn from(json: EstimateJson) -> Self {
        Estimate {
            point: json.point_estimate,
            lower: json.confidence_interval.lower_bound,
            upper: json.confidence_interval.upper_bound,
            confidence_level: json.confidence_interval.confidence_level,
        }
    }
}
