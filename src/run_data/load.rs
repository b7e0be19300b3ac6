//! A load test: requests that arrive by a schedule, and what became of them.
//!
//! [`LoadTerms`] say how requests arrive and what serves them; each trial of a case is a [`LoadResult`], which is a row of the table
//! `load_results`.

use clap::ValueEnum;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::Display;

use crate::definition::{Case, CaseFailure, Dtype, Status};

/// How requests arrive: the scenarios of MLPerf LoadGen (Reddi et al. 2020, "MLPerf Inference Benchmark").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[derive(Serialize, Deserialize, JsonSchema, Display, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Scenario {
    /// One query after the other.
    Single,
    /// One query of 8 samples after the other.
    Multi,
    /// All at once.
    Offline,
    /// At random times, as those of many users: a Poisson process.
    #[default]
    Server,
}

impl Scenario {
    /// The percentile of the latency that counts, from 0 to 1.
    pub fn usual_percentile(self) -> f64 {
        if self == Scenario::Single { 0.9 } else { 0.99 }
    }
}

/// What a trial says about its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[derive(Serialize, Deserialize, JsonSchema, Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Verdict {
    /// There is no bound.
    Measured,
    /// The percentile is within the bound, with 99 % confidence.
    Passed,
    Failed,
    /// The percentile is within the bound, but the queries are too few to be certain.
    Undecided,
    /// The generator was late, so that the figures are not those of the load that was asked for.
    Invalid,
}

/// How long the null backend takes for a call, in seconds, so that theory can check a load test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceTime {
    Constant(f64),
    /// Exponentially distributed, with this mean.
    Exponential(f64),
    /// Every so many calls one stalls.
    Stalling {
        seconds: f64,
        stall: f64,
        every: u64,
    },
}

/// The terms of a load test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadTerms {
    pub scenario: Scenario,
    /// Requests per second of the server scenario.
    pub rate: Option<f64>,
    /// The percentile that the bound is for, from 0 to 1.
    pub percentile: f64,
    pub bound_ms: Option<f64>,
    pub seed: u64,
    /// Seconds that a trial takes at least.
    pub seconds: f64,
    /// Queries that a trial has at least.
    pub queries: usize,
    /// Sessions that serve requests at the same time.
    pub instances: usize,
    /// Requests that a session takes in one call, at most.
    pub most_batch: usize,
    /// How long a request waits for others to share its call.
    pub most_delay_ms: f64,
    pub service: Option<ServiceTime>,
    /// Whether the highest rate within the bound is searched for.
    pub is_search: bool,
}

impl Default for LoadTerms {
    fn default() -> Self {
        LoadTerms {
            scenario: Scenario::Server,
            rate: None,
            percentile: 0.99,
            bound_ms: None,
            seed: 1,
            seconds: 10.0,
            queries: 1,
            instances: 1,
            most_batch: 1,
            most_delay_ms: 0.0,
            service: None,
            is_search: false,
        }
    }
}

/// A trial of a case: a row of `load_results` in the history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LoadResult {
    pub run_id: String,
    pub timestamp: Timestamp,
    pub host_id: String,
    pub case_id: String,
    pub model: String,
    pub variant: String,
    pub backend: String,
    pub device: String,
    pub dtype: Dtype,
    /// Samples of a request.
    pub batch_size: usize,
    /// `ok`, or why there are no figures.
    pub status: Status,
    pub verdict: Option<Verdict>,
    /// The reason of the status or of the verdict.
    pub message: Option<String>,
    pub scenario: Scenario,
    /// Sessions that serve requests at the same time.
    pub instances: usize,
    /// Threads of each.
    pub threads: usize,
    /// Requests that a session takes in one call, at most.
    pub most_batch: usize,
    /// How long a request waits for others to share its call.
    pub most_delay_ms: f64,
    /// Requests per second that were asked for.
    pub rate: Option<f64>,
    /// The percentile that the bound is for, from 0 to 1.
    pub percentile: f64,
    pub bound_ms: Option<f64>,
    pub seed: u64,
    pub queries: usize,
    /// Samples of all queries together.
    pub samples: usize,
    /// From the first arrival to the last answer.
    pub seconds: f64,
    /// Queries per second by the schedule: `(n - 1) / last arrival`.
    pub scheduled_per_s: Option<f64>,
    /// Queries per second: `(n - 1) / last answer` for a server, as MLPerf LoadGen counts, and `n / last answer` otherwise.
    pub completed_per_s: f64,
    /// The same in samples.
    pub samples_per_s: f64,
    /// Latencies are from the scheduled time to the answer.
    pub latency_mean_ms: f64,
    pub latency_p50_ms: f64,
    pub latency_p90_ms: f64,
    pub latency_p95_ms: f64,
    pub latency_p99_ms: f64,
    pub latency_p999_ms: f64,
    pub latency_max_ms: f64,
    /// At the percentile that the bound is for.
    pub latency_ms: f64,
    /// Its upper bound with 99 % confidence. Absent if there are too few queries.
    pub latency_upper_ms: Option<f64>,
    /// From the scheduled time to the beginning of the call.
    pub queue_mean_ms: Option<f64>,
    pub queue_p99_ms: Option<f64>,
    /// The call that a query is answered by.
    pub service_mean_ms: f64,
    pub service_p50_ms: f64,
    pub service_p99_ms: f64,
    /// Queries that took longer than the bound.
    pub over_bound: Option<usize>,
    /// Queries that had no answer when the trial ended.
    pub unanswered: usize,
    /// How late the generator issued queries.
    pub issue_lag_p50_us: Option<f64>,
    pub issue_lag_p99_us: Option<f64>,
    /// Part of one processor's time that the generator took, from 0 to 1.
    pub generator_share: Option<f64>,
    /// Whether the generator ran in the real-time class.
    pub generator_real_time: Option<bool>,
    /// Queries that waited at the same time, at most.
    pub backlog_most: Option<usize>,
    /// Queries that waited when the last one arrived.
    pub backlog_end: Option<usize>,
    /// Part of the time in which a session was at work, from 0 to 1.
    pub utilisation: f64,
    /// Requests per call.
    pub mean_batch: f64,
    /// The largest resident set of the process, in 10^6 bytes.
    pub memory_mb: Option<f64>,
    /// Whether the trial was ended because it could not pass any more.
    pub ended_early: bool,
    /// In a search: whether this is the trial of the highest rate that passes.
    pub is_highest: bool,
    /// In a search, of the highest rate that passes: the lowest rate that fails.
    pub lowest_failing_rate: Option<f64>,
    /// In a search: whether latency begins to rise steeply from here on.
    pub is_knee: bool,
}

impl LoadResult {
    /// A row about the case without a figure.
    pub fn about(case: &Case, terms: &LoadTerms, threads: usize) -> Self {
        LoadResult {
            case_id: case.to_string(),
            model: case.model.clone(),
            variant: case.variant.clone(),
            backend: case.backend.clone(),
            device: case.device.clone(),
            dtype: case.dtype,
            batch_size: case.batch_size,
            status: Status::Ok,
            scenario: terms.scenario,
            instances: terms.instances,
            threads,
            most_batch: terms.most_batch,
            most_delay_ms: terms.most_delay_ms,
            rate: terms.rate,
            percentile: terms.percentile,
            bound_ms: terms.bound_ms,
            seed: terms.seed,
            ..LoadResult::default()
        }
    }

    /// The same with the reason why there is no figure.
    pub fn failed(self, CaseFailure { status, message }: CaseFailure) -> Self {
        LoadResult { status, message: Some(message), ..self }
    }
}

/// Everything that one `inferbench load` leaves: `load.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadRun {
    pub run_id: String,
    pub host_id: String,
    pub results: Vec<LoadResult>,
}
