//! The cost of one call: floating-point operations and bytes.

use serde::{Deserialize, Serialize};

/// The cost of one call, for the whole batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Floating-point operations.
    pub flops: u64,
    /// Weights, inputs and outputs, each once.
    pub bytes: u64,
}

impl Cost {
    /// Operations for each byte that has to be moved: Williams, Waterman and Patterson, "Roofline: an insightful visual
    /// performance model for multicore architectures", CACM 52(4), 2009, call it operational intensity.
    pub fn intensity(self) -> Option<f64> {
        (self.bytes > 0).then(|| self.flops as f64 / self.bytes as f64)
    }
}
