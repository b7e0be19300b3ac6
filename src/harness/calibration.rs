//! This machine's peaks, measured once and kept in `<target>/inferbench/peaks.json`.
//!
//! They are measured again where those of the file are of another machine, processor, version or number of threads.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use crate::machine::{Machine, last_level_cache_bytes};
use crate::measurement::peaks;
use crate::paths::Paths;
use crate::run_data::Peaks;
use crate::run_data::files::{read_json, write_json};

/// Names the machine, the number of threads and the version that peaks belong to.
fn key(machine: &Machine, threads: usize) -> String {
    let (version, cpu) = (env!("CARGO_PKG_VERSION"), machine.cpu_model.as_deref().unwrap_or_default());
    format!("{} {cpu}, {threads} threads, inferbench {version}", machine.host_id)
}

/// Peaks by their [`key`]; none if the file is missing or cannot be read.
fn kept(path: &Path) -> BTreeMap<String, Peaks> {
    read_json(path).unwrap_or_default()
}

/// The peaks of the machine on so many threads: those that are kept, or new ones, which takes about two seconds.
pub fn peaks(paths: &Paths, machine: &Machine, threads: usize) -> Result<Peaks> {
    let kept = kept(&paths.peaks()).remove(&key(machine, threads));
    kept.map_or_else(|| calibrate(paths, machine, threads), Ok)
}

/// The same, always measured anew.
///
/// # Errors
/// They cannot be kept.
pub fn calibrate(paths: &Paths, machine: &Machine, threads: usize) -> Result<Peaks> {
    eprintln!("calibrating: the peaks of this machine on {threads} threads, once");
    let peaks = peaks::measure(threads, copied_bytes(last_level_cache_bytes(), machine.memory_bytes));
    keep(&paths.peaks(), machine, &peaks)?;
    Ok(peaks)
}

fn keep(path: &Path, machine: &Machine, peaks: &Peaks) -> Result<()> {
    let mut all = kept(path);
    all.insert(key(machine, peaks.threads), peaks.clone());
    write_json(path, &all)
}

/// Four times the last-level caches, by STREAM's rule, so that what is copied does not stay in them; but no more than an
/// eighth of the memory.
fn copied_bytes(cache: Option<u64>, memory: Option<u64>) -> usize {
    const ASSUMED_CACHE: u64 = 32 << 20;
    let wanted = cache.unwrap_or(ASSUMED_CACHE).saturating_mul(4).max(64 << 20);
    usize::try_from(wanted.min(memory.unwrap_or(u64::MAX) / 8)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peaks(threads: usize, product_gflops_per_second: f64) -> Peaks {
        Peaks { threads, product_gflops_per_second, copy_gb_per_second: 10.0, copied_bytes: 1 }
    }

    #[test]
    fn peaks_are_kept_by_machine_and_threads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("inferbench/peaks.json");
        let machine =
            |host: &str, cpu: &str| Machine { host_id: host.into(), cpu_model: Some(cpu.into()), ..Machine::default() };
        let gflops = |machine: &Machine, threads| {
            kept(&path).get(&key(machine, threads)).map(|peaks| peaks.product_gflops_per_second)
        };
        let one = machine("1a", "A CPU");
        assert_eq!(gflops(&one, 2), None);
        keep(&path, &one, &peaks(2, 100.0)).unwrap();
        keep(&path, &one, &peaks(1, 60.0)).unwrap();
        assert_eq!((gflops(&one, 2), gflops(&one, 1)), (Some(100.0), Some(60.0)));
        keep(&path, &one, &peaks(2, 90.0)).unwrap();
        assert_eq!((gflops(&one, 2), gflops(&one, 1)), (Some(90.0), Some(60.0)));
        assert_eq!(gflops(&machine("1a", "Another CPU"), 2), None);
        assert_eq!(gflops(&machine("2b", "A CPU"), 2), None);
    }

    #[test]
    fn a_file_that_is_broken_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peaks.json");
        std::fs::write(&path, "{").unwrap();
        keep(&path, &Machine::default(), &peaks(1, 8.0)).unwrap();
        assert_eq!(kept(&path)[&key(&Machine::default(), 1)], peaks(1, 8.0));
    }

    #[test]
    fn arrays_are_four_times_the_caches_if_there_is_memory_for_them() {
        assert_eq!(copied_bytes(Some(32 << 20), Some(16 << 30)), 128 << 20);
        assert_eq!(copied_bytes(Some(1 << 20), None), 64 << 20);
        assert_eq!(copied_bytes(None, Some(256 << 20)), 32 << 20);
    }
}
