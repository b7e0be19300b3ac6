//! Energy from the counters of the processor (Intel and AMD RAPL) or of the NVIDIA GPU that computes.
//!
//! A counter covers a whole package or board, and so includes other work on the machine. For the energy of calls, the
//! power of a window without calls is measured first and subtracted. A device without such a counter has no figure:
//! nothing is estimated.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::call_times::nanoseconds;
use super::nvml::Gpu;
use super::timed_calls::TimedSession;
use crate::definition::{CaseFailure, device_type};
use crate::machine::{PackageEnergy, rest};
use crate::run_data::Record;

const WINDOW: Duration = Duration::from_secs(1);
/// Calls are made in series of about this length.
const TOGETHER_NS: u64 = 50_000_000;

/// One counter of microjoules.
struct Counter {
    read: Box<dyn Fn() -> anyhow::Result<u64>>,
    /// The counter wraps to 0 after this many.
    range: u64,
}

/// The energy counters of a device.
pub struct EnergyMeter {
    counters: Vec<Counter>,
    /// `rapl-package` or `nvml-gpu`.
    pub kind: &'static str,
}

impl EnergyMeter {
    /// The meter of a device; `device_type` is the type that computes, as the runtime says.
    ///
    /// # Errors
    /// The device has no counter that can be read, or this user may not read it.
    pub fn of(device: &str, device_type: Option<&str>) -> anyhow::Result<Self> {
        match (Gpu::open(device), device_type) {
            (Some(gpu), _) => {
                let gpu = gpu?;
                let counter = Counter { read: Box::new(move || gpu.microjoules()), range: 0 };
                Ok(EnergyMeter { counters: vec![counter], kind: "nvml-gpu" })
            }
            (None, Some("cpu")) => Ok(Self::of_packages(PackageEnergy::all()?)),
            (None, device_type) => {
                bail!("{device} computes on a {}, whose energy is not read", device_type.unwrap_or("device"))
            }
        }
    }

    fn of_packages(packages: Vec<PackageEnergy>) -> Self {
        let counter =
            |package: PackageEnergy| Counter { range: package.range, read: Box::new(move || package.microjoules()) };
        EnergyMeter { counters: packages.into_iter().map(counter).collect(), kind: "rapl-package" }
    }

    /// What the counters show now, in microjoules.
    pub fn read(&self) -> anyhow::Result<Vec<u64>> {
        self.counters.iter().map(|counter| (counter.read)()).collect()
    }

    /// Joules since the counters showed `begin`. If a counter has wrapped more than once since, the result is too
    /// small.
    pub fn joules_since(&self, begin: &[u64]) -> anyhow::Result<f64> {
        let used = |((counter, begin), end): ((&Counter, &u64), u64)| match end.checked_sub(*begin) {
            Some(used) => used,
            None => (end + counter.range).saturating_sub(*begin),
        };
        let used: u64 = self.counters.iter().zip(begin).zip(self.read()?).map(used).sum();
        Ok(used as f64 / 1e6)
    }
}

/// Measures an idle window and a window of calls, and puts the energy of the calls, or why it is not known, into the row.
pub(super) fn measure(session: &mut TimedSession, row: &mut Record) -> Result<(), CaseFailure> {
    // A GPU's interface may have a software driver: the runtime then says that it is a CPU.
    let found = session.session().placement().device_type;
    let measured = match EnergyMeter::of(&row.device, found.as_deref().or(device_type(&row.device))) {
        Ok(meter) => {
            rest();
            let idle = watts_over(&meter, || {
                thread::sleep(WINDOW);
                Ok(Vec::new())
            })?;
            let together = calls_of_series(session)?;
            let busy = watts_over(&meter, || session.call(together))?;
            idle.and_then(|idle| Ok((meter.kind, idle.watts(), busy?)))
        }
        Err(reason) => Err(reason),
    };
    put(measured, row);
    Ok(())
}

/// How many calls a series has.
fn calls_of_series(session: &mut TimedSession) -> Result<u64, CaseFailure> {
    let start = Instant::now();
    let told: u64 = session.call(1)?.iter().sum();
    // A worker's own clock may be too coarse for a single call, which is then noted as 1 ns.
    let call_ns = if told > 1 { told } else { nanoseconds(start.elapsed()) };
    Ok((TOGETHER_NS / call_ns).max(1))
}

/// Puts the power of a window of calls minus that of an idle window, and the energy that follows from it, into the row.
fn put(measured: anyhow::Result<(&str, f64, Window)>, row: &mut Record) {
    let reason = match measured {
        Ok((kind, idle_watts, busy)) if busy.watts() > idle_watts => {
            let watts = busy.watts() - idle_watts;
            row.power_w = Some(watts);
            // External workers also make untimed calls, which take a part of the window.
            row.energy_j_per_sample = Some(watts * busy.call_seconds / (busy.calls * row.batch_size) as f64);
            row.energy_kind = Some(kind.into());
            return;
        }
        // The energy of calls cannot be negative.
        Ok((_, idle_watts, busy)) => {
            format!("{:.1} W with calls and {idle_watts:.1} W without: other programs were running", busy.watts())
        }
        Err(reason) => format!("{reason:#}"),
    };
    row.energy_kind = Some(format!("none: {reason}"));
}

/// The energy that was used in a window of time, and the timed calls in it.
struct Window {
    joules: f64,
    seconds: f64,
    /// The time of all timed calls together.
    call_seconds: f64,
    calls: usize,
}

impl Window {
    fn watts(&self) -> f64 {
        self.joules / self.seconds
    }
}

/// Calls again and again until the window is over; `call` returns the nanoseconds of the calls that it has made.
fn watts_over(
    meter: &EnergyMeter,
    mut call: impl FnMut() -> Result<Vec<u64>, CaseFailure>,
) -> Result<anyhow::Result<Window>, CaseFailure> {
    let begin = meter.read();
    let start = Instant::now();
    let (mut calls, mut call_ns) = (0, 0);
    while start.elapsed() < WINDOW {
        let times = call()?;
        calls += times.len();
        call_ns += times.iter().sum::<u64>();
    }
    let seconds = start.elapsed().as_secs_f64();
    let used = begin.and_then(|begin| meter.joules_since(&begin));
    Ok(used.map(|joules| Window { joules, seconds, call_seconds: call_ns as f64 / 1e9, calls }))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::backend::{Session, Turn};
    use crate::fixture::HostTensor;

    /// Calls of 5 ms, by a clock with steps that are longer.
    struct Coarse;

    impl Session for Coarse {
        fn bind(&mut self, _: &[HostTensor]) -> Result<usize, CaseFailure> {
            Ok(0)
        }
        fn run(&mut self, _: usize) -> Result<(), CaseFailure> {
            Ok(())
        }
        fn run_timed(&mut self, turns: &mut dyn Iterator<Item = Turn>) -> Option<Result<Vec<u64>, CaseFailure>> {
            thread::sleep(Duration::from_millis(5));
            Some(Ok(turns.map(|_| 1).collect()))
        }
        fn outputs(&mut self, _: usize) -> Result<Vec<HostTensor>, CaseFailure> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn a_series_is_not_endless_where_a_clock_is_too_coarse_for_a_call() {
        let calls = calls_of_series(&mut TimedSession::new(Box::new(Coarse), 1)).unwrap();
        assert!((1..=10).contains(&calls), "{calls}");
    }

    fn powercap(energy: u64) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (zone, name) in [("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:1", "psys")] {
            let zone = folder.path().join(zone);
            fs::create_dir_all(&zone).unwrap();
            fs::write(zone.join("name"), format!("{name}\n")).unwrap();
            fs::write(zone.join("energy_uj"), format!("{energy}\n")).unwrap();
            fs::write(zone.join("max_energy_range_uj"), "1000000\n").unwrap();
        }
        folder
    }

    #[test]
    fn packages_are_counted_once_and_over_their_range() {
        let folder = powercap(900_000);
        let meter = EnergyMeter::of_packages(PackageEnergy::below(folder.path()).unwrap());
        assert_eq!(meter.counters.len(), 1);
        let mut made = 0;
        let window = watts_over(&meter, || {
            fs::write(folder.path().join("intel-rapl:0/energy_uj"), "150000\n").unwrap();
            thread::sleep(WINDOW / 2 + Duration::from_millis(1));
            made += 1;
            Ok(vec![1_000_000_000])
        });
        let Window { joules, call_seconds, calls, .. } = window.unwrap().unwrap();
        assert!((joules - 0.25).abs() < 1e-9, "{joules} J");
        assert_eq!(call_seconds, calls as f64);
        // A sleep of a busy machine may last for the whole window.
        assert!(calls == made && (1..=2).contains(&calls), "{calls} of {made}");
    }

    #[test]
    fn calls_that_take_less_than_nothing_have_no_energy() {
        let of = |idle_watts, busy_watts| {
            let mut row = Record { batch_size: 2, ..Record::default() };
            // Of two seconds, one was in calls that count.
            let busy = Window { joules: 2.0 * busy_watts, seconds: 2.0, call_seconds: 1.0, calls: 5 };
            put(Ok(("rapl-package", idle_watts, busy)), &mut row);
            (row.power_w, row.energy_j_per_sample, row.energy_kind.unwrap())
        };
        assert_eq!(of(10.0, 30.0), (Some(20.0), Some(2.0), "rapl-package".into()));
        let why = "none: 30.0 W with calls and 40.0 W without: other programs were running";
        assert_eq!(of(40.0, 30.0), (None, None, why.into()));
    }

    #[test]
    fn a_machine_without_counters_says_so() {
        let reason = |folder: &Path| PackageEnergy::below(folder).err().unwrap().to_string();
        assert!(reason(Path::new("/nowhere")).contains("`/nowhere`"));
        assert!(reason(tempfile::tempdir().unwrap().path()).contains("no RAPL counter"));
    }

    #[test]
    fn the_energy_of_the_processor_is_never_that_of_another_device() {
        for (device, device_type) in
            [("rocm", "gpu"), ("webgpu", "gpu"), ("gpu", "gpu"), ("mps", "gpu"), ("npu", "npu")]
        {
            let reason = EnergyMeter::of(device, Some(device_type)).map(|_| ()).unwrap_err().to_string();
            assert_eq!(reason, format!("{device} computes on a {device_type}, whose energy is not read"));
        }
        let on_nvidia = EnergyMeter::of("tensorrt", Some("gpu")).map(|meter| meter.kind);
        assert!(on_nvidia.is_err() || on_nvidia.is_ok_and(|kind| kind == "nvml-gpu"));
    }
}
