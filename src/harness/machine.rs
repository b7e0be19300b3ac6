//! Facts about the machine and the source that a run was made on.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The machine. Unknown facts are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Tells machines apart without naming them.
    pub host_id: String,
    pub os: String,
    pub kernel: Option<String>,
    pub architecture: String,
    pub cpu_model: Option<String>,
    pub cpu_features: Option<String>,
    pub logical_processors: usize,
    pub memory_bytes: Option<u64>,
    pub governor: Option<String>,
    pub hypervisor: Option<bool>,
}

impl Machine {
    pub fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = cpuinfo_field(&cpuinfo, "flags");
        let cpu_model = cpuinfo_field(&cpuinfo, "model name");
        Machine {
            host_id: host_id(cpu_model.as_deref()),
            os: std::env::consts::OS.into(),
            kernel: read_line("/proc/sys/kernel/osrelease"),
            architecture: std::env::consts::ARCH.into(),
            cpu_features: flags.as_deref().map(vector_features),
            hypervisor: flags.as_deref().map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            cpu_model,
            logical_processors: std::thread::available_parallelism().map_or(1, |count| count.get()),
            memory_bytes: memory_bytes(),
            governor: read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        }
    }
}

fn read_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn cpuinfo_field(cpuinfo: &str, field: &str) -> Option<String> {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == field)
        .map(|(_, value)| value.trim().to_owned())
}

/// The processor's vector extensions, which decide what code a runtime chooses.
fn vector_features(flags: &str) -> String {
    let is_vector = |flag: &&str| ["sse4", "avx", "fma", "f16c", "amx"].iter().any(|prefix| flag.starts_with(prefix));
    flags.split(' ').filter(is_vector).collect::<Vec<_>>().join(" ")
}

fn memory_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

fn host_id(cpu_model: Option<&str>) -> String {
    let machine = read_line("/etc/machine-id").or_else(|| read_line("/proc/sys/kernel/hostname")).unwrap_or_default();
    let hash = Sha256::digest(format!("inferbench {machine} {}", cpu_model.unwrap_or_default()));
    hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// The revision of the source, where git knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Revision {
    pub commit: Option<String>,
    pub is_dirty: Option<bool>,
}

impl Revision {
    pub fn read(root: &Path) -> Self {
        let git = |arguments: &[&str]| {
            let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        Revision {
            commit: git(&["rev-parse", "HEAD"]),
            is_dirty: git(&["status", "--porcelain", "--untracked-files=no"]).map(|changes| !changes.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_facts_are_read_from_proc() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu avx2 fma hypervisor\n";
        assert_eq!(cpuinfo_field(cpuinfo, "model name").as_deref(), Some("A CPU"));
        assert_eq!(vector_features(&cpuinfo_field(cpuinfo, "flags").unwrap()), "avx2 fma");
    }
}
