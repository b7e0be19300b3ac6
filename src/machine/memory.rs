//! The memory of the machine, and the resident memory of this process with its external workers.

#[cfg(not(target_os = "linux"))]
pub use super::elsewhere::{available_bytes, resident_bytes};
use super::kernel_files::kernel_number;
use super::processes::{own_folders, own_sum};

fn own_memory(name: &str) -> Option<u64> {
    own_sum(|folder| kernel_number(folder.join("status"), name))
}

/// The memory that processes can get without swapping, within the limits of their container.
#[cfg(target_os = "linux")]
pub fn available_bytes() -> Option<u64> {
    let of_machine = kernel_number("/proc/meminfo", "MemAvailable");
    of_machine.into_iter().chain(super::container::available_bytes()).min()
}

/// The resident set now, in bytes.
#[cfg(target_os = "linux")]
pub fn resident_bytes() -> Option<u64> {
    own_memory("VmRSS")
}

/// The peak of the resident set since the last reset, in bytes. Only Linux tells it. With external workers, it is the
/// sum of all peaks, which is an upper bound.
pub fn peak_bytes() -> Option<u64> {
    own_memory("VmHWM")
}

/// Resets the peak of the resident set to the present size. It needs no privileges.
///
/// # Errors
/// `/proc/self/clear_refs` is missing or not writable; the peak is then the process's, not the case's.
pub fn reset_peak() -> std::io::Result<()> {
    for folder in own_folders().iter().skip(1) {
        // A process that has ended meanwhile needs no reset.
        let _ = std::fs::write(folder.join("clear_refs"), "5");
    }
    std::fs::write("/proc/self/clear_refs", "5")
}

/// How many processes the kernel has killed for lack of memory since it booted; 0 if it does not tell.
pub fn kills() -> u64 {
    kernel_number("/proc/vmstat", "oom_kill").unwrap_or(0)
}

/// Pages that went to or came from the swap area since the machine started.
pub fn swapped_pages() -> Option<u64> {
    let count = |name| kernel_number("/proc/vmstat", name);
    Some(count("pswpin")? + count("pswpout")?)
}
