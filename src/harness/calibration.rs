//! This machine's peaks, measured once and kept in `<target>/inferbench/peaks.json`.
//!
//! They are measured again where those of the file are of another machine, processor, version or number of threads.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::machine::{Machine, last_level_cache_bytes};
use crate::measurement::peaks;
use crate::paths::Paths;
use crate::run_data::{Peaks, write_whole};

/// Peaks, and what they are the peaks of. The file has a list of them, one for each number of threads.
#[derive(PartialEq, Serialize, Deserialize)]
struct Kept {
    version: String,
    host_id: String,
    cpu_model: Option<String>,
    peaks: Peaks,
}

impl Kept {
    fn new(machine: &Machine, peaks: Peaks) -> Self {
        let (host_id, cpu_model) = (machine.host_id.clone(), machine.cpu_model.clone());
        Kept { version: env!("CARGO_PKG_VERSION").into(), host_id, cpu_model, peaks }
    }
}

/// What is kept of the machine; nothing where the file is missing or cannot be read.
fn kept(path: &Path, machine: &Machine) -> Vec<Peaks> {
    let all: Vec<Kept> =
        std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    let own = all.into_iter().filter(|kept| *kept == Kept::new(machine, kept.peaks.clone()));
    own.map(|kept| kept.peaks).collect()
}

/// The peaks of the machine on so many threads: those that are kept, or new ones, which takes about two seconds.
///
/// # Errors
/// They cannot be kept.
pub fn peaks(paths: &Paths, machine: &Machine, threads: usize) -> Result<Peaks> {
    let mut kept = kept(&paths.peaks(), machine).into_iter();
    kept.find(|peaks| peaks.threads == threads).map_or_else(|| calibrate(paths, machine, threads), Ok)
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
    let others = kept(path, machine).into_iter().filter(|other| other.threads != peaks.threads);
    let kept: Vec<Kept> = others.chain([peaks.clone()]).map(|peaks| Kept::new(machine, peaks)).collect();
    fs_err::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    write_whole(path, &serde_json::to_vec_pretty(&kept)?)
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
    use crate::run_data::ProductRate;

    fn peaks(threads: usize, gflops_per_second: f64) -> Peaks {
        let products = vec![ProductRate { size: 512, gflops_per_second }];
        Peaks { threads, products, copy_gb_per_second: 10.0, copied_bytes: 1 }
    }

    fn gflops(kept: Vec<Peaks>) -> Vec<(usize, f64)> {
        kept.iter().map(|peaks| (peaks.threads, peaks.product_gflops_per_second())).collect()
    }

    #[test]
    fn peaks_are_kept_by_machine_and_threads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("inferbench/peaks.json");
        let machine =
            |host: &str, cpu: &str| Machine { host_id: host.into(), cpu_model: Some(cpu.into()), ..Machine::default() };
        let one = machine("1a", "A CPU");
        assert_eq!(kept(&path, &one), []);
        keep(&path, &one, &peaks(2, 100.0)).unwrap();
        keep(&path, &one, &peaks(1, 60.0)).unwrap();
        assert_eq!(gflops(kept(&path, &one)), [(2, 100.0), (1, 60.0)]);
        keep(&path, &one, &peaks(2, 90.0)).unwrap();
        assert_eq!(gflops(kept(&path, &one)), [(1, 60.0), (2, 90.0)]);
        assert_eq!(kept(&path, &machine("1a", "Another CPU")), []);
        // Another machine's take the place of all.
        keep(&path, &machine("2b", "A CPU"), &peaks(2, 50.0)).unwrap();
        assert_eq!(kept(&path, &one), []);
    }

    #[test]
    fn a_file_that_is_broken_or_of_another_version_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peaks.json");
        let machine = Machine::default();
        let older = Kept { version: "0.0.1".into(), ..Kept::new(&machine, peaks(1, 9.0)) };
        for content in [b"{".to_vec(), serde_json::to_vec(&[older]).unwrap()] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(kept(&path, &machine), []);
            keep(&path, &machine, &peaks(1, 8.0)).unwrap();
            assert_eq!(kept(&path, &machine), [peaks(1, 8.0)]);
        }
    }

    #[test]
    fn arrays_are_four_times_the_caches_if_there_is_memory_for_them() {
        assert_eq!(copied_bytes(Some(32 << 20), Some(16 << 30)), 128 << 20);
        assert_eq!(copied_bytes(Some(1 << 20), None), 64 << 20);
        assert_eq!(copied_bytes(None, Some(256 << 20)), 32 << 20);
    }
}
