//! The latency log: every call of a case, in a file beside Criterion's own.

use std::path::Path;

use serde::{Deserialize, Serialize};

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
    /// Nanoseconds of each call, one list a sample. Their sums are the `times` of `sample.json`.
    pub samples_ns: Vec<Vec<u64>>,
    /// Whether each sample was disturbed by a hypervisor or other processes; absent where that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<Vec<bool>>,
}

/// Writes the log into `folder`, whole or not at all.
///
/// # Errors
/// The folder is not there (Criterion wrote nothing), or the disk is full.
pub fn write_latency_log(folder: &Path, log: &LatencyLog) -> std::io::Result<()> {
    let partial = folder.join(format!("{LATENCY_LOG}.partial"));
    std::fs::write(&partial, serde_json::to_vec(log)?)?;
    std::fs::rename(&partial, folder.join(LATENCY_LOG))
}
