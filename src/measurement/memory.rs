//! The resident memory of this process, from `/proc`.

use crate::machine::kernel_number;

const STATUS: &str = "/proc/self/status";

/// Resets the high-water mark of the resident set to the present size. Works as an ordinary user.
///
/// # Errors
/// `/proc/self/clear_refs` is not there or not writable; the peak is then the process's, not the case's.
pub fn reset_peak() -> std::io::Result<()> {
    std::fs::write("/proc/self/clear_refs", "5")
}

/// The peak of the resident set since the last reset, in bytes.
pub fn peak_bytes() -> Option<u64> {
    kernel_number(STATUS, "VmHWM")
}

/// As records count: 10^6 bytes.
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// The resident set now, in bytes.
pub fn resident_bytes() -> Option<u64> {
    kernel_number(STATUS, "VmRSS")
}
