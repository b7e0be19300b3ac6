//! Several machines side by side: cases down, machines across; which machines are equal; and the trend of each.
//!
//! A few machines have a column each. If there are many, those of one kind share a column with the geometric mean of
//! their times. Machines that differ from their kind are excluded from the mean, and have a column of their own.
//!
//! [`Gatherer`] takes the runs one after the other and keeps a few numbers of each case and machine, so that a thousand
//! machines fit into memory. [`Fleet`] is its result, for tables, JSON and the page.

mod gathering;
mod text;

pub use gathering::Gatherer;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::compatibility::Level;
use super::schema_of;
use crate::compare::MachineDifference;
use crate::definition::{Dtype, Phase, Status};

/// With more machines than this, kinds are the columns.
pub const MOST_MACHINES: usize = 8;
/// If there are several machines, a page has all details of at most so many cases.
const MOST_CASES: usize = 8000;
/// Equal machines differ by no more than this, as a fraction.
const MOST_DIFFERENCE: f64 = 0.05;
/// A table has no more columns than this.
pub const MOST_COLUMNS: usize = 12;

/// Several machines side by side.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Fleet {
    /// The name of the currency of prices.
    pub currency: String,
    pub kinds: Vec<Kind>,
    pub machines: Vec<FleetMachine>,
    /// Machines that differ from others of their kind by more than the noise, once for each quantity.
    pub differences: Vec<MachineDifference>,
    /// A machine, or all equal machines of a kind.
    pub columns: Vec<FleetColumn>,
    /// Machines and kinds without a column, because there are too many.
    pub columns_left_out: usize,
    pub cases: Vec<FleetCase>,
    /// The compatibility of each model and configuration, over all machines.
    pub compatibility: Vec<Agreement>,
}

/// Machines that claim to be equal: of one processor, size and memory, with the same GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Kind {
    pub name: String,
    pub machines: usize,
    /// How many of them are named in the differences.
    pub differing: usize,
    /// The case that most of them have measured under equal conditions, or that every part of a suite has.
    pub anchor_case: Option<String>,
    /// The slowest machine's time of the anchor case over the fastest one's; absent if fewer than two have it.
    pub anchor_spread: Option<f64>,
}

/// A machine of the fleet.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FleetMachine {
    pub host_id: String,
    pub name: String,
    /// Absent if the processor is unknown.
    pub kind: Option<String>,
    pub runs: usize,
    /// Cases with a valid measurement.
    pub measured: usize,
    /// The mean over its calibrations, or else its peak.
    pub product_gflops_per_second: Option<f64>,
    pub copy_gb_per_second: Option<f64>,
    pub anchor_ms: Option<f64>,
    /// The largest fraction of the processors' time that other processes had during a calibration.
    pub disturbed_share: Option<f64>,
    /// How often its processors were slowed down during its runs.
    pub throttled: Option<u64>,
    /// Whether it is named in the differences.
    pub is_differing: bool,
    /// For each run, the oldest first, the time over that of the first run: the geometric mean over the run's cases. A case that came later
    /// begins where the trend was.
    pub trend: Vec<f64>,
}

/// A column of the matrix.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FleetColumn {
    pub name: String,
    /// One machine, or the one that stands for its kind.
    pub host_id: String,
    /// The number of machines in its mean.
    pub machines: usize,
    pub is_differing: bool,
}

/// A row of the matrix.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FleetCase {
    /// The case's id. If several cases have it, what differs follows: the shapes of a sample, or a part of the file's
    /// hash.
    pub case_id: String,
    pub model: String,
    pub variant: String,
    pub phase: Phase,
    pub backend: String,
    pub device: String,
    pub dtype: Dtype,
    pub batch_size: usize,
    /// One for each column.
    pub cells: Vec<FleetCell>,
}

/// A case on a machine, or on the equal machines of a kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FleetCell {
    /// Machines with a valid measurement.
    #[serde(skip_serializing_if = "is_none")]
    #[schemars(default)]
    pub machines: usize,
    /// Machines that were asked for the case and have no figure, if others have one.
    #[serde(skip_serializing_if = "is_none")]
    #[schemars(default)]
    pub failed: usize,
    /// Their geometric mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_p50_ms: Option<f64>,
    /// The slowest one's over the fastest one's, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Per million samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kwh_per_million: Option<f64>,
    /// Per million samples, or tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_million: Option<f64>,
    /// Why there is no figure; absent if there is one, or if the case was not asked for there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

/// How well a model works with a backend, device and dtype on all machines that were asked for it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Agreement {
    pub model: String,
    pub configuration: String,
    /// How many machines have each level.
    pub machines: BTreeMap<Level, usize>,
}

impl Fleet {
    /// The machines whose cases the other charts and the table of all cases show: the first ones with a column, as many as a page
    /// can hold.
    pub fn shown_hosts(&self) -> Vec<&str> {
        let measured: BTreeMap<&str, usize> =
            self.machines.iter().map(|machine| (machine.host_id.as_str(), machine.measured)).collect();
        let mut shown = 0;
        let is_shown = |host_id: &&str| {
            let is_first = shown == 0;
            shown += measured.get(host_id).copied().unwrap_or_default().max(1);
            is_first || shown <= MOST_CASES
        };
        self.columns.iter().take(MOST_MACHINES).map(|column| column.host_id.as_str()).take_while(is_shown).collect()
    }

    /// Whether a page shows all cases of a machine of each kind. Machines that differ have columns behind those of all kinds.
    pub fn shows_each_kind(&self) -> bool {
        self.columns.iter().skip(self.shown_hosts().len()).all(|column| column.is_differing)
    }

    /// Whether most cases were measured on several machines. Otherwise a suite was divided among them.
    pub fn has_same_cases(&self) -> bool {
        // A case that failed on a machine was asked for there, too.
        let asked = |cell: &FleetCell| match cell.machines {
            0 => usize::from(cell.status.is_some()),
            measured => measured + cell.failed,
        };
        let is_measured = |case: &&FleetCase| case.cells.iter().any(|cell| cell.machines > 0);
        let measured: Vec<&FleetCase> = self.cases.iter().filter(is_measured).collect();
        let is_shared = |case: &&&FleetCase| case.cells.iter().map(asked).sum::<usize>() > 1;
        let shared = measured.iter().filter(is_shared).count();
        2 * shared > measured.len() || measured.is_empty() || self.machines.len() == 1
    }

    /// The slowest machine's time over the fastest one's for the anchor case or the matrix multiplication, whichever is
    /// larger, if calibrations and anchor show that all machines are equal.
    ///
    /// # Errors
    /// The machines are not equal, or nothing shows it; the message says why.
    pub fn equality(&self) -> Result<f64, String> {
        let none = |is_meant: fn(&FleetMachine) -> bool, why: fn(String) -> String| {
            let names: Vec<&str> = self.machines.iter().filter(|it| is_meant(it)).map(|it| it.name.as_str()).collect();
            if names.is_empty() { Ok(()) } else { Err(why(names.join(", "))) }
        };
        none(|it| it.kind.is_none(), |names| format!("the processor of {names} is unknown"))?;
        if let [one, other, ..] = self.kinds.as_slice() {
            return Err(format!("they are of several kinds, such as {} and {}", one.name, other.name));
        }
        none(|it| it.is_differing, |names| format!("{names} differs from the others"))?;
        none(|it| it.product_gflops_per_second.is_none(), |names| format!("{names} was not calibrated"))?;
        none(|it| it.anchor_ms.is_none(), |names| format!("{names} has not measured the anchor case"))?;
        let figures: [fn(&FleetMachine) -> Option<f64>; 2] = [|it| it.product_gflops_per_second, |it| it.anchor_ms];
        let ratio = |figure: fn(&FleetMachine) -> Option<f64>| {
            let all = || self.machines.iter().filter_map(figure);
            all().fold(0.0, f64::max) / all().fold(f64::INFINITY, f64::min)
        };
        let most = figures.into_iter().map(ratio).fold(1.0, f64::max);
        match most <= 1.0 + MOST_DIFFERENCE {
            true => Ok(most),
            false => Err(format!(
                "the slowest one takes {most:.2} times as long as the fastest one for the anchor case or the matrix multiplication"
            )),
        }
    }

    /// Whether the machines have no columns of their own.
    pub fn is_large(&self) -> bool {
        self.machines.len() > MOST_MACHINES
    }
}

/// The JSON Schema of [`Fleet`].
pub fn schema() -> String {
    schema_of::<Fleet>("inferbench report --machines: machines side by side")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these figures of calibration and anchor.
    fn machine(host_id: &str, gflops: Option<f64>, anchor_ms: Option<f64>) -> FleetMachine {
        FleetMachine {
            host_id: host_id.into(),
            name: host_id.into(),
            kind: Some("Small CPU".into()),
            runs: 1,
            measured: 2,
            product_gflops_per_second: gflops,
            copy_gb_per_second: None,
            anchor_ms,
            disturbed_share: None,
            throttled: None,
            is_differing: false,
            trend: Vec::new(),
        }
    }

    fn fleet(machines: Vec<FleetMachine>) -> Fleet {
        let names: std::collections::BTreeSet<String> = machines.iter().filter_map(|it| it.kind.clone()).collect();
        let kind = |name| Kind { name, machines: 1, differing: 0, anchor_case: None, anchor_spread: None };
        Fleet {
            currency: String::new(),
            kinds: names.into_iter().map(kind).collect(),
            machines,
            differences: Vec::new(),
            columns: Vec::new(),
            columns_left_out: 0,
            cases: Vec::new(),
            compatibility: Vec::new(),
        }
    }

    #[test]
    fn a_small_price_and_little_energy_are_not_shown_as_nothing() {
        let cell = FleetCell {
            machines: 1,
            latency_p50_ms: Some(0.012),
            price_per_million: Some(0.000_33),
            kwh_per_million: Some(0.000_033),
            ..FleetCell::default()
        };
        let case = FleetCase {
            case_id: "m/ort-cpu-f32/1".into(),
            model: "m".into(),
            variant: "original".into(),
            phase: Phase::Forward,
            backend: "ort".into(),
            device: "cpu".into(),
            dtype: Dtype::F32,
            batch_size: 1,
            cells: vec![cell],
        };
        let column = FleetColumn { name: "a".into(), host_id: "a".into(), machines: 1, is_differing: false };
        let machines = vec![machine("a", None, None)];
        let found = Fleet { currency: "USD".into(), columns: vec![column], cases: vec![case], ..fleet(machines) };
        let text = found.render(crate::report::Format::Markdown);
        assert!(text.contains("12.0 µs 0.000330 USD/M 0.0000330 kWh/M"), "{text}");
    }

    #[test]
    fn machines_are_equal_if_calibration_and_anchor_of_all_of_them_say_so() {
        let first = || machine("a", Some(400.0), Some(2.0));
        let with = |other: FleetMachine| fleet(vec![first(), other]).equality();
        let equality = with(machine("b", Some(396.0), Some(2.04))).unwrap();
        assert!((equality - 1.02).abs() < 1e-9, "{equality}");
        let refused = |other: FleetMachine| with(other).unwrap_err();
        assert!(refused(machine("b", Some(400.0), Some(2.2))).contains("1.10 times as long"));
        assert!(refused(machine("b", Some(360.0), Some(2.0))).contains("1.11 times as long"));
        assert_eq!(refused(machine("b", None, Some(2.0))), "b was not calibrated");
        assert_eq!(refused(machine("b", Some(400.0), None)), "b has not measured the anchor case");
        let other = || machine("b", Some(400.0), Some(2.0));
        assert!(refused(FleetMachine { is_differing: true, ..other() }).contains("b differs"));
        assert!(refused(FleetMachine { kind: None, ..other() }).contains("the processor of b is unknown"));
        assert!(refused(FleetMachine { kind: Some("Large CPU".into()), ..other() }).contains("several kinds"));
    }
}
