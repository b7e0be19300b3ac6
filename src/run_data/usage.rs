//! What a loaded case uses besides time: memory and energy.

use serde::{Deserialize, Serialize};

/// What was seen of one case in a process of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Absent where the system does not tell.
    pub memory: Option<MemoryUsage>,
    /// The most that the process had allocated on a GPU; absent where there is none or the driver does not tell.
    #[serde(default)]
    pub device_peak_bytes: Option<u64>,
    /// The energy, or why it is not known.
    pub energy: Result<EnergyUsage, String>,
}

/// The resident set of the process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryUsage {
    /// With the model loaded and its inputs bound, after the first call.
    pub loaded_bytes: u64,
    /// The mean over the calls.
    pub average_bytes: u64,
    /// The highest since before the model was loaded.
    pub peak_bytes: u64,
    /// The highest over the calls. Absent if the mark cannot be reset, and in older manifests.
    #[serde(default)]
    pub calls_peak_bytes: Option<u64>,
}

/// The energy of the calls, above that of the idle machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnergyUsage {
    pub joules_per_sample: f64,
    /// Mean power of the calls, above idle.
    pub watts: f64,
    pub idle_watts: f64,
    /// Which counter: `rapl-package`, `nvml-gpu`.
    pub kind: String,
}
