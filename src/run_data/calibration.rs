//! The speed of a machine before and after it measured its part of a suite, by which machines of one kind are compared.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::manifest::{Manifest, Peaks};
use crate::machine::Machine;

/// The speed of a machine before and after its cases, and what disturbed it meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The machine's id. A part that is resumed elsewhere has a calibration per machine.
    pub host_id: String,
    pub before: Probe,
    /// Absent if the run did not end on this machine.
    pub after: Option<Probe>,
    /// How often processors were slowed down meanwhile, because of heat or the limit of a control group. Absent if the
    /// system does not tell.
    pub throttled: Option<u64>,
    /// Part of the processors' time, from 0 to 1, that the hypervisor took meanwhile. Absent if the system does not
    /// tell.
    pub stolen_share: Option<f64>,
    /// What the self-test of the machine has found. Absent if there was none.
    pub selftest: Option<ProcessSpread>,
}

/// How much processes of one program differ on a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessSpread {
    /// The standard deviation of the logarithm of their medians.
    pub deviation: f64,
    pub processes: usize,
}

/// A short benchmark of a machine. Each figure is the best of a round's repetitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    pub threads: usize,
    /// Products of two square f32 matrices, per round: operations, in 10^9 per second.
    pub product_gflops_per_second: Vec<f64>,
    /// Copies of one array to another, per round: bytes read and bytes written, in 10^9 per second.
    pub copy_gb_per_second: Vec<f64>,
    /// Part of the processors' time, from 0 to 1, that the hypervisor took meanwhile. Absent if the system does not
    /// tell.
    pub stolen_share: Option<f64>,
    /// The same, together with what other processes used.
    pub disturbed_share: Option<f64>,
}

impl Calibration {
    /// The probes, in the order in which they were made.
    pub fn probes(&self) -> impl Iterator<Item = &Probe> {
        [Some(&self.before), self.after.as_ref()].into_iter().flatten()
    }
}

impl Probe {
    /// The best product and the best copy of all rounds, since a disturbance makes nothing faster. Returns `None` if
    /// there is no round.
    pub fn best(&self) -> Option<(f64, f64)> {
        let best = |figures: &[f64]| figures.iter().copied().reduce(f64::max);
        best(&self.product_gflops_per_second).zip(best(&self.copy_gb_per_second))
    }
}

/// A machine of a run, with what is known of its speed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub machine: Machine,
    pub peaks: Option<Peaks>,
    pub calibrations: Vec<Calibration>,
}

/// A part of a run that was measured on several machines: one of the runs that were merged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunPart {
    /// The number of the part, from 1.
    pub index: usize,
    /// The id that the part had before it was merged.
    pub run_id: String,
    pub started: Timestamp,
    /// Absent if the part was killed.
    pub finished: Option<Timestamp>,
    pub machine: Machine,
    pub peaks: Option<Peaks>,
    pub calibrations: Vec<Calibration>,
}

impl Manifest {
    /// The machines that took part in the run.
    pub fn nodes(&self) -> Vec<Node> {
        let node = |machine: &Machine, peaks: &Option<Peaks>, calibrations: &[Calibration]| Node {
            machine: machine.clone(),
            peaks: peaks.clone(),
            calibrations: calibrations.to_vec(),
        };
        let mut nodes: Vec<Node> = Vec::new();
        for RunPart { machine, peaks, calibrations, .. } in &self.parts {
            match nodes.iter_mut().find(|node| node.machine.host_id == machine.host_id) {
                Some(known) => known.calibrations.extend_from_slice(calibrations),
                None => nodes.push(node(machine, peaks, calibrations)),
            }
        }
        if nodes.is_empty() { vec![node(&self.machine, &self.peaks, &self.calibrations)] } else { nodes }
    }
}
