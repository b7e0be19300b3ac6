//! The resident memory of this process, in the units of records.

pub use crate::machine::memory::{peak_bytes, reset_peak, resident_bytes};

/// Megabytes of 10^6 bytes, as in records.
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
