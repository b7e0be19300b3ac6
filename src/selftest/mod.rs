//! How precisely this machine can measure: the harness's cost, the smallest change between two runs that can be told
//! from the spread of a small model's times, and how often duels are wrong and what they find.
//!
//! It takes a backend and a small model. It gives the change that a comparison on this machine has to exceed. It
//! measures through `harness`, as a run does.
//!
//! The result is kept in `<target>/inferbench/selftest.json`, with the machine that it is about.

mod processes;
mod spread;

pub use spread::SmallestChange;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::compare::{Gate, Noise};
use crate::harness::keep_others_out;
use crate::machine::Machine;
use crate::measurement::overhead::{self, Overhead};
use crate::paths::Paths;
use crate::run_data::files::{read_json, write_json};
use crate::run_data::{Latencies, ProcessSpread};
use crate::selection::Selection;
use crate::statistics::mean;

/// With less time, no duels are made: a generation takes a second, and a few of them show nothing.
const SHORTEST_WITH_GATE: Duration = Duration::from_secs(90);

/// Changes when an older reader would misunderstand the file.
const FORMAT: u32 = 2;

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Selftest {
    pub format: u32,
    pub time: Timestamp,
    pub seconds: f64,
    pub machine: Machine,
    pub overhead: Overhead,
    /// The id of the case that every process has measured.
    pub case: String,
    pub processes: Vec<Latencies>,
    pub smallest_change: SmallestChange,
    /// How far the verdicts of duels can be trusted; absent if the time was too short.
    pub gate: Option<Gate>,
}

/// Measures how often duels of equal programs are wrong, in about so much time.
pub type MeasureGate = dyn Fn(&Paths, Selection, Duration) -> Result<Option<Gate>>;

/// Tests this machine for about `at_most`, and keeps the result. The inner error is one of
/// [`exit_codes`](crate::exit_codes); its reason has been printed.
///
/// # Errors
/// Another run is measuring, or the target folder cannot be written.
pub fn measure(paths: &Paths, at_most: Duration, measure_gate: &MeasureGate) -> Result<Result<Selftest, u8>> {
    let start = Instant::now();
    let _lock = keep_others_out(paths)?;
    let machine = Machine::read();
    eprintln!("the harness's own cost");
    let for_overhead = (at_most / 50).min(Duration::from_secs(3));
    let overhead = overhead::measure(for_overhead)?;
    let for_gate = (at_most >= SHORTEST_WITH_GATE).then_some(at_most / 2);
    let for_case = at_most - for_gate.unwrap_or_default();
    let measured = match processes::measure(paths, for_case.saturating_sub(start.elapsed()))? {
        Ok(measured) => measured,
        Err(exit_code) => return Ok(Err(exit_code)),
    };
    let medians: Vec<f64> = measured.processes.iter().map(Latencies::p50_ms).collect();
    let mut selftest = Selftest {
        format: FORMAT,
        time: Timestamp::now(),
        seconds: start.elapsed().as_secs_f64(),
        machine,
        overhead,
        case: measured.case,
        smallest_change: SmallestChange::of(&medians).context("fewer than two processes have measured something")?,
        processes: measured.processes,
        gate: None,
    };
    // An interruption of the rest leaves this.
    write_json(&paths.selftest(), &selftest)?;
    if let Some(for_gate) = for_gate {
        selftest.gate = measure_gate(paths, measured.selection, for_gate)?;
        selftest.seconds = start.elapsed().as_secs_f64();
        write_json(&paths.selftest(), &selftest)?;
    }
    Ok(Ok(selftest))
}

/// [`Selftest::line`] warns of other work on the machine from this fraction of disturbed samples on.
const DISTURBED_FROM: f64 = 0.1;

impl Selftest {
    /// `smallest detectable change: …`, for the self-test's own case. Its calls are short: longer ones are interrupted
    /// more often. Differences from day to day are not included.
    pub fn line(&self) -> String {
        let SmallestChange { processes, percent, single_percent, .. } = self.smallest_change;
        let warning = match self.disturbed_share() {
            Some(share) if share > DISTURBED_FROM => {
                format!("; {:.0} % of its samples were disturbed: repeat it when the machine is quiet", 100.0 * share)
            }
            _ => String::new(),
        };
        format!(
            "smallest detectable change: {percent:.1} % (selftest of {}, {processes} processes); \
             {single_percent:.1} % between two single processes{warning}",
            self.time.strftime("%Y-%m-%d")
        )
    }

    /// The mean fraction of disturbed samples, over the processes that know theirs.
    pub fn disturbed_share(&self) -> Option<f64> {
        let shares: Vec<f64> = self.processes.iter().filter_map(|process| process.disturbed_share).collect();
        (!shares.is_empty()).then(|| mean(&shares))
    }
}

/// The line of a report about the smallest detectable change on the machine of its run.
pub fn line_about(path: &Path, host_id: &str) -> String {
    let advice = "smallest detectable change: unknown (run `inferbench selftest`)";
    match read(path, host_id) {
        Ok(selftest) => selftest.line(),
        Err(_) if !path.exists() => advice.into(),
        Err(why) => format!("{advice} ({why:#})"),
    }
}

/// The noise of a machine without runs of the case: from the self-test in `path` if it is of this machine, or else
/// assumed.
pub fn known_noise(path: &Path, host_id: &str) -> Noise {
    let of_selftest = |it: SmallestChange| Noise::of_selftest(it.deviation_percent / 100.0, it.processes);
    read(path, host_id).map_or_else(|_| Noise::assumed(), |selftest| of_selftest(selftest.smallest_change))
}

/// The spread between processes on this machine, from the kept self-test.
pub fn known_spread(paths: &Paths) -> Option<ProcessSpread> {
    let found = read(&paths.selftest(), &Machine::read().host_id).ok()?.smallest_change;
    Some(ProcessSpread { deviation: found.deviation_percent / 100.0, processes: found.processes })
}

fn read(path: &Path, host_id: &str) -> Result<Selftest> {
    let selftest: Selftest = read_json(path)?;
    ensure!(selftest.format <= FORMAT, "{} is of a newer inferbench", path.display());
    ensure!(selftest.machine.host_id == host_id, "the selftest here is of another machine than this run");
    Ok(selftest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processes() -> Vec<Latencies> {
        let calls: [[[u64; 2]; 2]; 3] = [[[100, 102], [98, 101]], [[103, 104], [102, 105]], [[99, 99]; 2]];
        let process = |samples: &[[u64; 2]; 2]| Latencies::of_samples(&samples.map(Vec::from), None).unwrap();
        calls.iter().map(process).collect()
    }

    fn selftest() -> Selftest {
        Selftest {
            format: FORMAT,
            time: "2026-01-02T03:04:05Z".parse().unwrap(),
            seconds: 1.0,
            machine: Machine { host_id: "1a".into(), ..Machine::default() },
            overhead: Overhead { clock_reads_ns: 50.0, null_call_ns: 51.0, null_call_ratio: 1.02 },
            case: "m/ort-cpu-f32/1".into(),
            processes: Vec::new(),
            smallest_change: SmallestChange::of(&[100.0, 103.0, 99.0]).unwrap(),
            gate: None,
        }
    }

    #[test]
    fn reports_quote_the_selftest_of_their_own_machine_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("selftest.json");
        assert!(line_about(&path, "1a").contains("unknown (run `inferbench selftest`)"));
        std::fs::write(&path, serde_json::to_vec(&selftest()).unwrap()).unwrap();
        assert_eq!(line_about(&path, "1a"), selftest().line());
        assert_eq!(read(&path, "1a").unwrap(), selftest());
        assert_eq!(known_noise(&path, "1a").runs, 3);
        assert_eq!(known_noise(&path, "2b"), Noise::assumed());
        assert!(selftest().line().contains("(selftest of 2026-01-02, 3 processes)"));
        assert!(!selftest().line().contains("disturbed"));
        assert!(line_about(&path, "2b").contains("of another"));
        std::fs::write(&path, "{}").unwrap();
        assert!(line_about(&path, "1a").contains("selftest.json"));
    }

    #[test]
    fn a_disturbed_selftest_says_so_wherever_it_is_quoted() {
        let process = |disturbed_share| Latencies { disturbed_share, ..processes().remove(0) };
        let of = |shares: &[Option<f64>]| Selftest {
            processes: shares.iter().copied().map(process).collect(),
            ..selftest()
        };
        assert!(of(&[Some(0.8), None, Some(0.2)]).line().contains("; 50 % of its samples were disturbed: repeat it"));
        assert!(!of(&[Some(0.1), Some(0.0)]).line().contains("disturbed"));
    }
}
