//! The resident memory of this process, from `/proc`.

use std::fs;

/// Resets the high-water mark of the resident set to the present size. Works as an ordinary user.
///
/// # Errors
/// `/proc/self/clear_refs` is not there or not writable; the peak is then the process's, not the case's.
pub fn reset_peak() -> std::io::Result<()> {
    fs::write("/proc/self/clear_refs", "5")
}

/// The peak of the resident set since the last reset, in bytes.
pub fn peak_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// The resident set now, in bytes.
pub fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

fn status_bytes(field: &str) -> Option<u64> {
    parse_status(&fs::read_to_string("/proc/self/status").ok()?, field)
}

fn parse_status(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_read_in_bytes() {
        assert_eq!(parse_status("VmPeak:\t 9 kB\nVmHWM:\t    12 kB\n", "VmHWM:"), Some(12 * 1024));
        assert_eq!(parse_status("VmPeak:\t 9 kB\n", "VmHWM:"), None);
    }
}
