//! Energy from the counters of the processor (Linux `powercap`, Intel and AMD RAPL) or, for a case on a GPU, of that GPU,
//! less what the idle machine takes.
//!
//! A counter is of the whole package or board: other work on the machine is in it. So a window without calls is measured first,
//! of the same length, and subtracted. Where the counters cannot be read there is no figure: nothing is estimated.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::nvml::Gpu;
use super::timed_calls::TimedSession;
use crate::definition::CaseFailure;
use crate::run_data::EnergyUsage;

const POWERCAP: &str = "/sys/class/powercap";
const WINDOW: Duration = Duration::from_secs(1);

/// One counter of microjoules.
enum Counter {
    /// A package's, which begins again from 0 after `range`.
    Package {
        path: PathBuf,
        range: u64,
    },
    Gpu(Box<Gpu>),
}

/// Measures an idle window and a window of calls; the inner error says why there is no figure.
///
/// # Errors
/// A call fails.
pub(super) fn measure(
    session: &mut TimedSession,
    device: &str,
    batch_size: usize,
) -> Result<Result<EnergyUsage, String>, CaseFailure> {
    let (counters, kind) = match Gpu::open(device) {
        Some(gpu) => (gpu.map(|gpu| vec![Counter::Gpu(Box::new(gpu))]), "nvml-gpu"),
        None => (packages(Path::new(POWERCAP)), "rapl-package"),
    };
    let counters = match counters {
        Ok(counters) => counters,
        Err(reason) => return Ok(Err(reason)),
    };
    let idle = watts_over(&counters, || {
        thread::sleep(WINDOW);
        Ok(0)
    })?;
    let busy = watts_over(&counters, || {
        let start = Instant::now();
        let mut calls = 0;
        while start.elapsed() < WINDOW {
            session.call(1)?;
            calls += 1;
        }
        Ok(calls)
    })?;
    Ok(idle.and_then(|(idle_watts, _, _)| {
        let (busy_watts, seconds, calls) = busy?;
        let watts = busy_watts - idle_watts;
        let samples = (calls * batch_size) as f64;
        let joules_per_sample = watts * seconds / samples;
        Ok(EnergyUsage { joules_per_sample, watts, idle_watts, kind: kind.into() })
    }))
}

/// Mean power, seconds and calls of a window.
type Window = Result<(f64, f64, usize), String>;

fn watts_over(counters: &[Counter], work: impl FnOnce() -> Result<usize, CaseFailure>) -> Result<Window, CaseFailure> {
    let begin: Vec<_> = counters.iter().map(Counter::microjoules).collect();
    let start = Instant::now();
    let calls = work()?;
    let seconds = start.elapsed().as_secs_f64();
    let used = |(counter, begin): (&Counter, Result<u64, String>)| {
        let (begin, end) = (begin?, counter.microjoules()?);
        let range = if let Counter::Package { range, .. } = counter { *range } else { 0 };
        Ok(if end >= begin { end - begin } else { (end + range).saturating_sub(begin) })
    };
    let used: Result<Vec<u64>, String> = counters.iter().zip(begin).map(used).collect();
    Ok(used.map(|used| (used.iter().sum::<u64>() as f64 / 1e6 / seconds, seconds, calls)))
}

/// The counters of the packages, and not of their parts, which are in them.
fn packages(powercap: &Path) -> Result<Vec<Counter>, String> {
    let entries = fs::read_dir(powercap).map_err(|error| format!("{}: {error}", powercap.display()))?;
    let mut counters = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // `intel-rapl:0` is a package (AMD has the same name), `intel-rapl:0:1` a part of one.
        if !name.starts_with("intel-rapl:") || name.matches(':').count() != 1 {
            continue;
        }
        let number = |file: &str| {
            let path = entry.path().join(file);
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            text.trim().parse::<u64>().map_err(|error| format!("{}: {error}", path.display()))
        };
        let counter = Counter::Package { path: entry.path().join("energy_uj"), range: number("max_energy_range_uj")? };
        counter.microjoules()?;
        counters.push(counter);
    }
    if counters.is_empty() {
        return Err(format!("no RAPL counter in {}", powercap.display()));
    }
    Ok(counters)
}

impl Counter {
    fn microjoules(&self) -> Result<u64, String> {
        let path = match self {
            Counter::Package { path, .. } => path,
            Counter::Gpu(gpu) => return gpu.microjoules(),
        };
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        text.trim().parse().map_err(|error| format!("{}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn powercap(name: &str, energy: u64) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("inferbench-powercap-{name}-{}", std::process::id()));
        for zone in ["intel-rapl:0", "intel-rapl:0:0"] {
            fs::create_dir_all(folder.join(zone)).unwrap();
            fs::write(folder.join(zone).join("energy_uj"), format!("{energy}\n")).unwrap();
            fs::write(folder.join(zone).join("max_energy_range_uj"), "1000000\n").unwrap();
        }
        folder
    }

    #[test]
    fn packages_are_counted_once_and_over_their_range() {
        let folder = powercap("range", 900_000);
        let counters = packages(&folder).unwrap();
        assert_eq!(counters.len(), 1);
        let window = watts_over(&counters, || {
            fs::write(folder.join("intel-rapl:0/energy_uj"), "150000\n").unwrap();
            Ok(3)
        });
        let (watts, seconds, calls) = window.unwrap().unwrap();
        assert!((watts * seconds - 0.25).abs() < 1e-9, "{watts} W over {seconds} s");
        assert_eq!(calls, 3);
    }

    #[test]
    fn a_machine_without_counters_says_so() {
        assert!(packages(Path::new("/nowhere")).is_err_and(|reason| reason.starts_with("/nowhere: ")));
        let empty = std::env::temp_dir().join(format!("inferbench-powercap-empty-{}", std::process::id()));
        fs::create_dir_all(&empty).unwrap();
        assert!(packages(&empty).is_err_and(|reason| reason.contains("no RAPL counter")));
    }
}
