//! What a case was measured to do under load, which counts for limits in place of calls one after the other.

use schemars::JsonSchema;
use serde::Serialize;

use crate::report::numbers::{latency, plural, three_digits};
use crate::run_data::{LoadResult, Record, Scenario, Verdict};

/// The trial of a load test that a case is judged by.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UnderLoad {
    /// The load test.
    pub run_id: String,
    pub samples_per_s: f64,
    /// The upper bound with 99 % confidence if that was for this percentile.
    pub p99_ms: f64,
    /// Of the process with all instances.
    pub memory_mb: Option<f64>,
    pub instances: usize,
    /// Threads of each instance.
    pub threads: usize,
    pub most_batch: usize,
}

impl UnderLoad {
    /// The trial with the highest rate of those within the limit of p99, over all numbers of instances; or else the one with the lowest
    /// p99. Returns `None` if no requests at random times were served by the case.
    pub fn of(loads: &[LoadResult], record: &Record, max_p99_ms: Option<f64>) -> Option<Self> {
        let is_meant = |it: &&LoadResult| {
            it.case_id == record.case_id
                && it.host_id == record.host_id
                && it.scenario == Scenario::Server
                && it.status.is_measured()
                && it.verdict != Some(Verdict::Invalid)
        };
        let trials: Vec<UnderLoad> = loads.iter().filter(is_meant).map(UnderLoad::from).collect();
        let is_within = |it: &&UnderLoad| max_p99_ms.is_none_or(|most| it.p99_ms <= most);
        let best =
            trials.iter().filter(is_within).max_by(|one, other| one.samples_per_s.total_cmp(&other.samples_per_s));
        let quickest = || trials.iter().min_by(|one, other| one.p99_ms.total_cmp(&other.p99_ms));
        best.or_else(quickest).cloned()
    }

    /// `under load 431 samples/s with 2 instances of 1 thread, p99 19.1 ms (load test 20260101T000000Z)`.
    pub fn text(&self) -> String {
        let UnderLoad { instances, threads, most_batch, .. } = *self;
        let batch = if most_batch > 1 { format!(", up to {most_batch} requests per call") } else { String::new() };
        format!(
            "under load {} samples/s with {} of {}{batch}, p99 {} (load test {})",
            three_digits(self.samples_per_s),
            plural(instances, "instance", "instances"),
            plural(threads, "thread", "threads"),
            latency(self.p99_ms),
            self.run_id
        )
    }
}

impl From<&LoadResult> for UnderLoad {
    fn from(trial: &LoadResult) -> Self {
        let upper = trial.latency_upper_ms.filter(|_| trial.percentile >= 0.99);
        UnderLoad {
            run_id: trial.run_id.clone(),
            samples_per_s: trial.samples_per_s,
            p99_ms: upper.unwrap_or(trial.latency_p99_ms),
            memory_mb: trial.memory_mb,
            instances: trial.instances,
            threads: trial.threads,
            most_batch: trial.most_batch,
        }
    }
}
