//! Facts about the machine and the source that a run was made on, and all that differs between operating systems: no
//! other room reads `/proc` or `/sys`. What a system does not tell is absent.
//!
//! It takes nothing from a user. It gives a [`Machine`], and figures that are watched on it. What a backend's library
//! says about a device is in `backend`.

mod addresses;
mod container;
#[cfg(any(test, not(target_os = "linux")))]
mod elsewhere;
pub mod files;
mod kernel_files;
pub mod memory;
mod package_energy;
pub mod processes;
mod processor_time;
mod processors;
mod throttling;
mod variables;
mod waiting;

pub use addresses::{MOST_DISPLACEMENT, can_fix_addresses, displace_mappings, displacing_mapping, spawn_displaced};
pub use container::ContainerLimits;
pub use package_energy::PackageEnergy;
pub use processor_time::{ProcessorTime, TICKS_PER_SECOND, own_ticks, running_processes};
pub use processors::{
    are_of_several_kinds, confine_process, confine_thread, equal_groups, pin_busiest, processor_order, share_a_core,
    thread_affinities, thread_times,
};
pub use throttling::throttled;
pub use waiting::{Waiter, rest, sharpen_timers, thread_time, wait_until, wake_promptly};

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use self::kernel_files::{kernel_number, named, value};

/// The variable that identifies the machine where each start gets a new one, such as a container or a hosted runner.
const HOST_ID: &str = "INFERBENCH_HOST_ID";

/// The machine. Unknown facts are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    // Added later: older manifests lack the fields from here on.
    pub hypervisor_name: Option<String>,
    pub physical_cores: Option<usize>,
    /// Of the first processor: `L1d 32 KiB, L1i 32 KiB, L2 1 MiB, L3 32 MiB`.
    pub caches: Option<String>,
    /// Whether two threads per core are in use.
    pub smt: Option<bool>,
    /// Whether the processor may go above its nominal frequency.
    pub turbo: Option<bool>,
    pub frequency_driver: Option<String>,
    /// Part of the processors' time since the system started that the hypervisor took, from 0 to 1.
    pub stolen_share: Option<f64>,
    /// The control group's limit, in processors.
    pub container_processors: Option<f64>,
    pub container_memory_bytes: Option<u64>,
    /// Mean number of threads that ran or wanted to, over the last minute.
    pub load_average: Option<f64>,
    pub gpus: Option<Vec<String>>,
    pub gpu_driver: Option<String>,
    /// Variables of the environment that change what libraries compute with, `NAME=VALUE`. Absent in older manifests.
    pub variables: Option<Vec<String>>,
}

impl Machine {
    pub fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = named(&cpuinfo, "flags");
        // Linux does not name ARM processors.
        let arm = || Some(format!("ARM {} {}", named(&cpuinfo, "CPU implementer")?, named(&cpuinfo, "CPU part")?));
        let cpu_model = named(&cpuinfo, "model name").or_else(arm);
        let hypervisor = flags.as_deref().map(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
        let limits = ContainerLimits::read().unwrap_or_default();
        let machine = Machine {
            host_id: String::new(),
            os: std::env::consts::OS.into(),
            kernel: value("/proc/sys/kernel/osrelease"),
            architecture: std::env::consts::ARCH.into(),
            cpu_features: flags.as_deref().map(vector_features),
            hypervisor,
            cpu_model,
            logical_processors: std::thread::available_parallelism().map_or(1, |count| count.get()),
            memory_bytes: kernel_number("/proc/meminfo", "MemTotal"),
            governor: value("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            hypervisor_name: hypervisor.filter(|is_there| *is_there).and_then(|_| hypervisor_name()),
            physical_cores: physical_cores(&cpuinfo),
            caches: describe_caches(Path::new("/sys/devices/system/cpu/cpu0/cache")),
            smt: value("/sys/devices/system/cpu/smt/active").map(|active| active == "1"),
            turbo: turbo(),
            frequency_driver: value("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"),
            stolen_share: ProcessorTime::now().map(|time| time.stolen_share_since(ProcessorTime::default())),
            container_processors: limits.processors,
            container_memory_bytes: limits.memory_bytes,
            load_average: value("/proc/loadavg").and_then(|line| line.split(' ').next()?.parse().ok()),
            gpus: nvidia_gpus(),
            gpu_driver: value("/proc/driver/nvidia/version").as_deref().and_then(nvidia_driver),
            variables: Some(variables::of_libraries()),
        };
        #[cfg(not(target_os = "linux"))]
        let machine = elsewhere::completed(machine);
        let told = std::env::var(HOST_ID).ok().filter(|id| !id.is_empty());
        Machine { host_id: host_id(told.or_else(identity), machine.cpu_model.as_deref()), ..machine }
    }

    /// The memory that this process may use: the machine's or, if less, its container's. Returns `None` if neither is
    /// known.
    pub fn usable_memory_bytes(&self) -> Option<u64> {
        self.container_memory_bytes.into_iter().chain(self.memory_bytes).min()
    }

    /// The variables that have to be the same when a measurement is resumed. A scheduler may give each start other
    /// devices.
    pub fn lasting_variables(&self) -> Option<Vec<&String>> {
        let is_lasting = |it: &&String| !it.starts_with("CUDA_VISIBLE_DEVICES=");
        Some(self.variables.as_ref()?.iter().filter(is_lasting).collect())
    }

    /// The kind of the machine, which machines that were bought as equal share: `AMD EPYC 7B13 ×8, 32 GiB, NVIDIA L4`.
    /// Returns `None` if the processor is unknown.
    pub fn kind(&self) -> Option<String> {
        let processors = format!("{} ×{}", self.cpu_model.as_deref()?, self.logical_processors);
        let memory = self.usable_memory_bytes().map(|bytes| format!("{} GiB", nominal_gibibytes(bytes)));
        let gpus = self.gpus.iter().flatten().cloned();
        Some([processors].into_iter().chain(memory).chain(gpus).collect::<Vec<_>>().join(", "))
    }
}

/// The memory that was bought. The kernel keeps some per cent for itself, which differs between machines, so the size
/// is rounded up to an eighth of a power of two.
fn nominal_gibibytes(bytes: u64) -> f64 {
    let gibibytes = bytes as f64 / f64::from(1 << 30);
    let step = 2.0_f64.powf(gibibytes.log2().floor()) / 8.0;
    (gibibytes / step).ceil() * step
}

/// The processor's vector extensions, which decide what code a runtime chooses.
fn vector_features(flags: &str) -> String {
    let is_vector = |flag: &&str| ["sse4", "avx", "fma", "f16c", "amx"].iter().any(|prefix| flag.starts_with(prefix));
    flags.split(' ').filter(is_vector).collect::<Vec<_>>().join(" ")
}

/// The number of different pairs of package and core.
fn physical_cores(cpuinfo: &str) -> Option<usize> {
    let processors = cpuinfo.split("\n\n");
    let core = |processor: &str| named(processor, "core id").map(|core| (named(processor, "physical id"), core));
    let cores: BTreeSet<_> = processors.filter_map(core).collect();
    (!cores.is_empty()).then_some(cores.len())
}

/// A cache of a processor, and the processors that share it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Cache {
    level: u32,
    shared_by: String,
    /// `d`, `i`, or nothing for both.
    letter: &'static str,
    kibibytes: u64,
}

/// The caches in a processor's folder, in the order of their numbers.
fn caches(folder: &Path) -> Vec<Cache> {
    let mut indices: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    indices.sort();
    let cache = |index: PathBuf| {
        let letter = match value(index.join("type")).as_deref() {
            Some("Data") => "d",
            Some("Instruction") => "i",
            _ => "",
        };
        let kibibytes = value(index.join("size"))?.strip_suffix('K')?.parse().ok()?;
        let (level, shared_by) = (value(index.join("level"))?.parse().ok()?, value(index.join("shared_cpu_list"))?);
        Some(Cache { level, shared_by, letter, kibibytes })
    };
    indices.into_iter().filter_map(cache).collect()
}

fn describe_caches(folder: &Path) -> Option<String> {
    let describe = |Cache { level, letter, kibibytes, .. }: Cache| match kibibytes {
        _ if kibibytes.is_multiple_of(1024) => format!("L{level}{letter} {} MiB", kibibytes / 1024),
        _ => format!("L{level}{letter} {kibibytes} KiB"),
    };
    let caches: Vec<String> = caches(folder).into_iter().map(describe).collect();
    (!caches.is_empty()).then(|| caches.join(", "))
}

/// Bytes of all last-level caches together, each counted once.
pub fn last_level_cache_bytes() -> Option<u64> {
    let processors = fs::read_dir("/sys/devices/system/cpu").ok()?.flatten().map(|entry| entry.path().join("cache"));
    last_level_bytes(processors)
}

/// The same by the processors' folders. Caches with the same list of processors are one cache.
fn last_level_bytes(processors: impl Iterator<Item = PathBuf>) -> Option<u64> {
    let caches: BTreeSet<Cache> = processors.flat_map(|folder| caches(&folder)).collect();
    let last = caches.last()?.level;
    Some(caches.iter().filter(|cache| cache.level == last).map(|cache| 1024 * cache.kibibytes).sum())
}

fn turbo() -> Option<bool> {
    let boost = value("/sys/devices/system/cpu/cpufreq/boost").map(|on| on == "1");
    boost.or_else(|| value("/sys/devices/system/cpu/intel_pstate/no_turbo").map(|off| off == "0"))
}

/// The hypervisor by its own name, by the clock that it offers, or by the maker of the virtual hardware.
fn hypervisor_name() -> Option<String> {
    const CLOCKS: [(&str, &str); 4] =
        [("kvm-clock", "KVM"), ("hyperv", "Hyper-V"), ("xen", "Xen"), ("vmware", "VMware")];
    let clocks = value("/sys/devices/system/clocksource/clocksource0/available_clocksource").unwrap_or_default();
    let of_clock = CLOCKS.iter().find(|(clock, _)| clocks.contains(clock)).map(|(_, name)| (*name).to_owned());
    value("/sys/hypervisor/type").or(of_clock).or_else(|| value("/sys/class/dmi/id/sys_vendor"))
}

fn nvidia_gpus() -> Option<Vec<String>> {
    let mut folders: Vec<_> = fs::read_dir("/proc/driver/nvidia/gpus").ok()?.flatten().map(|gpu| gpu.path()).collect();
    folders.sort();
    let model = |folder: PathBuf| named(&value(folder.join("information"))?, "Model");
    Some(folders.into_iter().filter_map(model).collect())
}

/// `NVRM version: NVIDIA UNIX … Kernel Module  570.86.15  …` → `570.86.15`.
fn nvidia_driver(version: &str) -> Option<String> {
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    version.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

/// Tells machines apart that are made alike. In a container, the host's name is usually the container's.
#[cfg(target_os = "linux")]
fn identity() -> Option<String> {
    value("/etc/machine-id").or_else(|| value("/proc/sys/kernel/hostname"))
}

#[cfg(not(target_os = "linux"))]
use self::elsewhere::identity;

fn host_id(identity: Option<String>, cpu_model: Option<&str>) -> String {
    let (identity, cpu_model) = (identity.unwrap_or_default(), cpu_model.unwrap_or_default());
    let hash = Sha256::digest(format!("inferbench {identity} {cpu_model}"));
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
    fn machines_that_are_made_alike_have_ids_of_their_own() {
        let of = |identity: &str| host_id(Some(identity.into()), Some("A CPU"));
        assert!(of("one") != of("other") && of("one") == of("one"));
        assert_eq!(of("one").len(), 12);
    }

    #[test]
    fn machines_of_one_kind_differ_in_what_the_kernel_keeps() {
        let of = |gibibytes: f64| {
            let memory_bytes = Some((gibibytes * f64::from(1 << 30)) as u64);
            Machine { cpu_model: Some("A CPU".into()), logical_processors: 8, memory_bytes, ..Machine::default() }
                .kind()
        };
        assert_eq!((of(15.6), of(15.4)), (Some("A CPU ×8, 16 GiB".into()), of(15.99)));
        assert_eq!((of(251.3), of(23.47)), (Some("A CPU ×8, 256 GiB".into()), Some("A CPU ×8, 24 GiB".into())));
        assert_eq!(Machine::default().kind(), None);
        // A container's limit may exceed the machine's memory.
        let limited = |gibibytes: u64| Machine {
            cpu_model: Some("A CPU".into()),
            memory_bytes: Some(16 << 30),
            container_memory_bytes: Some(gibibytes << 30),
            ..Machine::default()
        };
        assert_eq!(
            (limited(64).kind(), limited(4).kind()),
            (Some("A CPU ×0, 16 GiB".into()), Some("A CPU ×0, 4 GiB".into()))
        );
    }

    #[test]
    fn cpu_facts_are_read_from_proc() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu avx2 fma hypervisor\n";
        assert_eq!(vector_features(&named(cpuinfo, "flags").unwrap()), "avx2 fma");
        assert_eq!(physical_cores(cpuinfo), None);
    }

    #[test]
    fn threads_of_a_core_are_one_core() {
        let processor = |package, core| format!("processor\t: 0\nphysical id\t: {package}\ncore id\t\t: {core}\n");
        let cpuinfo = [(0, 0), (0, 1), (1, 0), (0, 0), (0, 1), (1, 0)].map(|(package, core)| processor(package, core));
        assert_eq!(physical_cores(&cpuinfo.join("\n")), Some(3));
    }

    #[test]
    fn a_last_level_cache_that_processors_share_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        let put = |processor: &str, index: &str, level: &str, size: &str, shared: &str| {
            let path = folder.path().join(processor).join(index);
            fs::create_dir_all(&path).unwrap();
            for (name, text) in [("level", level), ("size", size), ("shared_cpu_list", shared)] {
                fs::write(path.join(name), format!("{text}\n")).unwrap();
            }
        };
        for (processor, shared) in [("0", "0-1"), ("1", "0-1"), ("2", "2-3"), ("3", "2-3")] {
            put(processor, "index2", "2", "512K", processor);
            put(processor, "index3", "3", "1024K", shared);
        }
        let processors = || ["0", "1", "2", "3"].map(|processor| folder.path().join(processor)).into_iter();
        assert_eq!(last_level_bytes(processors()), Some(2 << 20));
        assert_eq!(last_level_bytes(std::iter::empty()), None);
    }

    #[test]
    fn the_driver_is_found_in_its_sentence() {
        let open =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\nGCC version: 12.2.0";
        assert_eq!(nvidia_driver(open).as_deref(), Some("570.86.15"));
        assert_eq!(nvidia_driver("NVRM version: none"), None);
    }

    #[test]
    fn a_machine_of_an_older_manifest_is_read() {
        let older = r#"{"host_id": "1a", "os": "linux", "kernel": null, "architecture": "x86_64", "cpu_model": "A CPU",
            "cpu_features": "avx2", "logical_processors": 2, "memory_bytes": 1, "governor": null, "hypervisor": true}"#;
        let machine: Machine = serde_json::from_str(older).unwrap();
        assert_eq!((machine.logical_processors, machine.caches, machine.load_average), (2, None, None));
    }
}
