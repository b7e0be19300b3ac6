//! What sysinfo tells on systems without `/proc`. Unknown facts are absent. The tests of this file also run on Linux,
//! where they compare the same functions with `/proc`.

use std::sync::{Mutex, OnceLock, PoisonError};

use sysinfo::{CpuRefreshKind, Pid, ProcessRefreshKind, ProcessesToUpdate, Product, System};

use super::Machine;
use super::processes::own_processes;

/// A UUID with fewer different digits is a maker's placeholder, such as only zeros.
const LEAST_DIGITS: usize = 10;

/// The machine, completed by what `/proc` does not tell.
pub(super) fn completed(machine: Machine) -> Machine {
    let Ok(mut system) = System::new() else { return machine };
    system.refresh_memory();
    system.refresh_cpu_list(CpuRefreshKind::nothing());
    let brand = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
    Machine {
        cpu_model: brand.filter(|brand| !brand.is_empty()),
        kernel: System::kernel_version().ok(),
        memory_bytes: known(system.total_memory()),
        physical_cores: System::physical_core_count().ok(),
        // Windows has no load average; sysinfo's begins with the first call.
        load_average: System::load_average().ok().map(|load| load.one).filter(|_| cfg!(unix)),
        ..machine
    }
}

/// Tells machines apart that are made alike: the firmware's UUID, or else the host's name.
pub(super) fn identity() -> Option<String> {
    Product::uuid().ok().filter(|id| is_own(id)).or_else(|| System::host_name().ok()).filter(|id| !id.is_empty())
}

fn is_own(uuid: &str) -> bool {
    let digits: std::collections::BTreeSet<char> = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    digits.len() >= LEAST_DIGITS
}

/// The memory that processes can get without swapping.
pub fn available_bytes() -> Option<u64> {
    let mut system = System::new().ok()?;
    system.refresh_memory();
    known(system.available_memory())
}

/// The resident sets of this process and its external workers now, in bytes.
pub fn resident_bytes() -> Option<u64> {
    static SYSTEM: OnceLock<Option<Mutex<System>>> = OnceLock::new();
    let system = SYSTEM.get_or_init(|| System::new().ok().map(Mutex::new)).as_ref()?;
    let mut system = system.lock().unwrap_or_else(PoisonError::into_inner);
    let own: Vec<Pid> = own_processes().into_iter().map(Pid::from_u32).collect();
    let memory = ProcessRefreshKind::nothing().with_memory();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&own), true, memory);
    known(own.iter().filter_map(|id| system.process(*id)).map(sysinfo::Process::memory).sum())
}

/// sysinfo gives 0 for an unknown figure.
fn known(bytes: u64) -> Option<u64> {
    (bytes > 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_of_the_firmware_is_no_identity() {
        assert!(is_own("8f3b7c1e-52d0-4a96-b0cd-1e7a49f26d58"));
        for placeholder in ["00000000-0000-0000-0000-000000000000", "03000200-0400-0500-0006-000700080009", ""] {
            assert!(!is_own(placeholder), "{placeholder:?}");
        }
        assert!(identity().is_some());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn it_tells_what_proc_tells() {
        let (kernel, other) = (Machine::read(), completed(Machine::default()));
        assert_eq!((&other.kernel, other.memory_bytes), (&kernel.kernel, kernel.memory_bytes));
        // A virtual machine may hide them from `/proc`.
        assert!(kernel.cpu_model.is_none() || other.cpu_model == kernel.cpu_model, "{other:?}");
        assert!(kernel.physical_cores.is_none() || other.physical_cores == kernel.physical_cores, "{other:?}");
        assert!(other.load_average.is_some());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_that_of_proc() {
        use crate::machine::{kernel_files::kernel_number, memory};
        let near = |one: u64, other: u64| (one as f64 / other as f64 - 1.0).abs() < 0.2;
        assert!(near(available_bytes().unwrap(), kernel_number("/proc/meminfo", "MemAvailable").unwrap()));
        let before = resident_bytes().unwrap();
        let block = std::hint::black_box(vec![1_u8; 256 << 20]);
        let (seen, told) = (resident_bytes().unwrap(), memory::resident_bytes().unwrap());
        drop(block);
        assert!(near(seen, told), "{seen} {told}");
        assert!(seen > before + (200 << 20), "{before} {seen}");
    }
}
