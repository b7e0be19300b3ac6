//! Makes the matrix of machines and cases from runs that are added one after the other, the oldest first.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use indexmap::{IndexMap, IndexSet};

use super::{Agreement, Fleet, FleetCase, FleetCell, FleetColumn, FleetMachine, Kind, MOST_COLUMNS, MOST_MACHINES};
use crate::compare::{
    ASSUMED_DEVIATION, Condition, Figures, MachineDifference, Noise, Quantity, Tested, Within, differing_machines,
    spread,
};
use crate::definition::{Case, Status};
use crate::machine::Machine;
use crate::report::compatibility::{Level, Standing};
use crate::report::ranking::{Entry, best_on};
use crate::report::selection::{ReportedRun, name_among_several, telling_letters};
use crate::run_data::{Node, Record, Work, Works};
use crate::statistics::geometric_mean;

/// From so many calibrated runs of a machine on, its figures show how they scatter from run to run.
const ENOUGH_RUNS: usize = 3;

/// Gathers runs, the oldest first.
pub struct Gatherer<'a> {
    /// The price of a million samples or tokens of such a case.
    price: &'a dyn Fn(&Record) -> Option<f64>,
    /// How much measurements of the same program differ on a host.
    noise: &'a dyn Fn(&str) -> Noise,
    works: Works,
    /// The different conditions of measurements; only measurements under equal ones are compared.
    conditions: IndexSet<Vec<Option<String>>>,
    hosts: IndexMap<String, Host>,
    /// The level of each model and configuration on each machine, by the place of the host.
    levels: IndexMap<(String, String), BTreeMap<usize, Level>>,
}

/// What is known about a machine.
#[derive(Default)]
struct Host {
    machine: Option<Machine>,
    /// The newest measurements, by the number of the work.
    measured: HashMap<usize, Measured>,
    /// The product and the copy of each calibration.
    figures: BTreeMap<Quantity, Figures>,
    calibrated_runs: usize,
    disturbed_share: Option<f64>,
    throttled: Option<u64>,
    selftest: Option<Noise>,
    trend: Vec<f64>,
}

/// The newest measurement of a case on a machine.
#[derive(Clone, Copy)]
struct Measured {
    status: Status,
    log_ms: Option<f64>,
    /// Its time in the machine's first run; of a case that came later, by the trend up to then.
    first_log_ms: Option<f64>,
    within: Option<Within>,
    /// Between its processes, if there were several.
    noise: Option<Noise>,
    kwh_per_million: Option<f64>,
    price_per_million: Option<f64>,
    /// The place of its conditions in `Gatherer::conditions`.
    conditions: usize,
}

impl<'a> Gatherer<'a> {
    /// A gatherer without runs. `price` is the price of a million samples or tokens of a record, `noise` the noise of a
    /// host.
    pub fn new(price: &'a dyn Fn(&Record) -> Option<f64>, noise: &'a dyn Fn(&str) -> Noise) -> Self {
        Gatherer {
            price,
            noise,
            works: Works::default(),
            conditions: IndexSet::new(),
            hosts: IndexMap::new(),
            levels: IndexMap::new(),
        }
    }

    /// Adds a run, which began after all that were added before.
    pub fn add(&mut self, run: &ReportedRun) {
        let mut changes: IndexMap<&str, Vec<f64>> = IndexMap::new();
        let mut configurations: IndexMap<(usize, String, String), Vec<Entry<'_>>> = IndexMap::new();
        let machine = |record: &'_ Record| run.equal_machines.is_none().then(|| record.host_id.clone());
        for (record, ratio_to_best) in run.records.iter().zip(best_on(run.records.iter(), machine)) {
            let case = record.case();
            let id = case.benchmark_id();
            let place = self.works.number(Work::of(record));
            let measured = self.measured(record);
            let entry = self.hosts.entry(record.host_id.clone());
            let host_place = entry.index();
            let host = entry.or_default();
            for replaced in self.works.replaced_by(place) {
                host.measured.remove(&replaced);
            }
            // Other threads or another library are not a change of the machine.
            let before = host.measured.get(&place).filter(|it| it.conditions == measured.conditions);
            let first_log_ms = before.and_then(|before| before.first_log_ms);
            host.measured.insert(place, Measured { first_log_ms, ..measured });
            let change = measured.log_ms.zip(first_log_ms).map(|(now, first)| now - first);
            changes.entry(&record.host_id).or_default().extend(change);
            let of_configuration = configurations.entry((host_place, id.group, id.function)).or_default();
            of_configuration.push(Entry { record, ratio_to_best });
        }
        for (host_id, changes) in changes {
            let Some(host) = self.hosts.get_mut(host_id) else { continue };
            let before = host.trend.last().copied().unwrap_or(1.0);
            let trend = if changes.is_empty() { before } else { geometric_mean(&changes) };
            host.trend.push(trend);
            for it in host.measured.values_mut() {
                it.first_log_ms = it.first_log_ms.or(it.log_ms.map(|log_ms| log_ms - trend.ln()));
            }
            if let Some(node) = run.node(host_id) {
                host.learn(node);
            }
        }
        for ((host, model, configuration), entries) in configurations {
            self.levels.entry((model, configuration)).or_default().insert(host, Standing::of(&entries).level);
        }
    }

    fn measured(&mut self, record: &Record) -> Measured {
        let is_right = record.status == Status::Ok;
        let ms = record.latency_p50_ms.filter(|ms| is_right && *ms > 0.0 && ms.is_finite());
        let of = [Condition::Library, Condition::Boundary, Condition::Inputs, Condition::Threads, Condition::Device];
        let (conditions, _) = self.conditions.insert_full(of.iter().map(|condition| condition.of(record)).collect());
        Measured {
            status: record.status,
            log_ms: ms.map(f64::ln),
            first_log_ms: None,
            within: Within::of_record(record),
            noise: Noise::of_processes([record]),
            // A million samples of one joule are 1 / 3.6 kWh.
            kwh_per_million: record.energy_j_per_sample.filter(|_| is_right).map(|joules| joules / 3.6),
            price_per_million: (self.price)(record).filter(|_| is_right),
            conditions,
        }
    }

    /// The machines side by side. Prices are in this currency.
    pub fn finish(self, currency: &str) -> Fleet {
        let members = self.members();
        let anchors: BTreeMap<&str, Anchor> =
            members.iter().filter_map(|(kind, hosts)| Some((kind.as_str(), self.anchor(hosts)?))).collect();
        let differences = differing_machines(&self.tested(&members, &anchors));
        let differing: BTreeSet<&str> = differences.iter().map(|difference| difference.host_id.as_str()).collect();
        let letters = telling_letters(self.hosts.keys().map(String::as_str));
        let machine = |place: usize| FleetMachine {
            is_differing: differing.contains(self.host_id(place)),
            ..self.machine(place, letters, &anchors)
        };
        let machines: Vec<FleetMachine> = (0..self.hosts.len()).map(machine).collect();
        let kind = |(name, hosts): (&String, &Vec<usize>)| Kind {
            name: name.clone(),
            machines: hosts.len(),
            differing: hosts.iter().filter(|host| machines[**host].is_differing).count(),
            anchor_case: anchors.get(name.as_str()).map(|anchor| self.works.all()[anchor.case].case.to_string()),
            anchor_spread: anchors.get(name.as_str()).and_then(|anchor| spread(anchor.figures.values())),
        };
        let (columns, columns_left_out) = columns(&machines, &members, &differences);
        let case = |(place, case_id): (usize, String)| {
            let case = &self.works.all()[place].case;
            FleetCase {
                case_id,
                model: case.model.clone(),
                variant: case.variant.clone(),
                phase: case.phase,
                backend: case.backend.clone(),
                device: case.device.clone(),
                dtype: case.dtype,
                batch_size: case.batch_size,
                cells: columns.iter().map(|(_, hosts)| self.cell(place, hosts)).collect(),
            }
        };
        Fleet {
            currency: currency.to_owned(),
            kinds: members.iter().map(kind).collect(),
            cases: self.ids().into_iter().map(case).collect(),
            columns: columns.iter().map(|(column, _)| column.clone()).collect(),
            columns_left_out,
            compatibility: self.levels.iter().map(agreement).collect(),
            machines,
            differences,
        }
    }

    /// The works that some machine has measured, with the ids of their cases. If a case has several works, what differs
    /// follows its id.
    fn ids(&self) -> BTreeMap<usize, String> {
        let is_there = |place: &usize| self.hosts.values().any(|host| host.measured.contains_key(place));
        let works: Vec<(usize, &Work)> =
            self.works.all().iter().enumerate().filter(|(place, _)| is_there(place)).collect();
        let mut of_case: HashMap<&Case, Vec<&Work>> = HashMap::new();
        works.iter().for_each(|(_, work)| of_case.entry(&work.case).or_default().push(work));
        let id = |work: &Work| {
            let same = &of_case[&work.case];
            let has_shapes = same.iter().any(|other| !other.has_same_inputs(work));
            let has_files = same.iter().any(|other| !other.has_same_network(work));
            let shape = work.sample_shape().filter(|_| has_shapes).map(|shape| format!(" · inputs {shape}"));
            let file = work.model_sha256.as_ref().or(work.artifact_sha256.as_ref()).filter(|_| has_files);
            let file = file.map(|hash| format!(" · file {}", hash.chars().take(8).collect::<String>()));
            format!("{}{}{}", work.case, shape.unwrap_or_default(), file.unwrap_or_default())
        };
        works.into_iter().map(|(place, work)| (place, id(work))).collect()
    }

    /// The places of the machines of each known kind.
    fn members(&self) -> BTreeMap<String, Vec<usize>> {
        let mut members: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (place, host) in self.hosts.values().enumerate() {
            if let Some(kind) = host.kind() {
                members.entry(kind).or_default().push(place);
            }
        }
        members
    }

    fn host_id(&self, place: usize) -> &str {
        self.hosts.get_index(place).map_or("", |(host_id, _)| host_id)
    }

    /// The case that most of these machines have measured under equal conditions, the first of several.
    fn anchor(&self, hosts: &[usize]) -> Option<Anchor> {
        let mut counts: IndexMap<(usize, usize), usize> = IndexMap::new();
        for host in hosts {
            let mut right: Vec<(usize, usize)> =
                self.hosts[*host].right().map(|(case, it)| (case, it.conditions)).collect();
            right.sort_unstable();
            right.into_iter().for_each(|key| *counts.entry(key).or_default() += 1);
        }
        let most = counts.values().copied().max().filter(|most| *most > 1)?;
        let (case, conditions) = counts.into_iter().filter(|(_, count)| *count == most).map(|(key, _)| key).min()?;
        let figures = |host: &usize| {
            let measured = self.hosts[*host].measured.get(&case).filter(|it| it.conditions == conditions)?;
            let mut figures = Figures::default();
            figures.add(measured.log_ms?, measured.within);
            (figures.noise, figures.has_own_noise) = (measured.noise, measured.noise.is_some());
            Some((*host, figures))
        };
        Some(Anchor { case, figures: hosts.iter().filter_map(figures).collect() })
    }

    fn tested(&self, members: &BTreeMap<String, Vec<usize>>, anchors: &BTreeMap<&str, Anchor>) -> Vec<Tested> {
        let of_host = |kind: &str, place: usize| {
            let host = &self.hosts[place];
            let mut figures = host.figures.clone();
            let anchor = anchors.get(kind).and_then(|anchor| anchor.figures.get(&place));
            figures.extend(anchor.map(|anchor| (Quantity::Anchor, anchor.clone())));
            let known = host.selftest.unwrap_or_else(|| (self.noise)(self.host_id(place)));
            // The self-test measures another model, and its processes follow each other at once, so its noise may be
            // too small.
            let known = if known.deviation > ASSUMED_DEVIATION { known } else { Noise::assumed() };
            Tested { host_id: self.host_id(place).to_owned(), kind: kind.to_owned(), figures, known }
        };
        members.iter().flat_map(|(kind, hosts)| hosts.iter().map(|host| of_host(kind, *host))).collect()
    }

    fn cell(&self, case: usize, hosts: &[usize]) -> FleetCell {
        let known: Vec<&Measured> = hosts.iter().filter_map(|host| self.hosts[*host].measured.get(&case)).collect();
        let logs: Vec<f64> = known.iter().filter_map(|it| it.log_ms).collect();
        let (least, most) = logs.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), it| (a.min(*it), b.max(*it)));
        let mean = |of: fn(&Measured) -> Option<f64>| {
            let figures: Vec<f64> = known.iter().filter_map(|it| of(it)).collect();
            let logs: Vec<f64> = figures.iter().filter(|it| **it > 0.0).map(|it| it.ln()).collect();
            // A machine may cost nothing.
            if logs.is_empty() { figures.first().copied().filter(|it| *it == 0.0) } else { Some(geometric_mean(&logs)) }
        };
        FleetCell {
            machines: logs.len(),
            failed: if logs.is_empty() { 0 } else { known.len() - logs.len() },
            latency_p50_ms: (!logs.is_empty()).then(|| geometric_mean(&logs)),
            spread: (logs.len() > 1).then(|| (most - least).exp()),
            kwh_per_million: mean(|it| it.kwh_per_million.filter(|energy| *energy > 0.0)),
            price_per_million: mean(|it| it.price_per_million),
            status: known.first().map(|it| it.status).filter(|_| logs.is_empty()),
        }
    }

    /// A machine as if it did not differ from others.
    fn machine(&self, place: usize, letters: usize, anchors: &BTreeMap<&str, Anchor>) -> FleetMachine {
        let host = &self.hosts[place];
        let kind = host.kind();
        let anchor = kind.as_deref().and_then(|kind| anchors.get(kind)?.figures.get(&place));
        let time =
            |figures: Option<&Figures>| Some(geometric_mean(&figures?.log_times)).filter(|time| time.is_finite());
        FleetMachine {
            host_id: self.host_id(place).to_owned(),
            name: name_among_several(self.host_id(place), host.machine.as_ref(), letters),
            runs: host.trend.len(),
            measured: host.right().count(),
            product_gflops_per_second: time(host.figures.get(&Quantity::Product)).map(f64::recip),
            copy_gb_per_second: time(host.figures.get(&Quantity::Copy)).map(f64::recip),
            anchor_ms: time(anchor),
            disturbed_share: host.disturbed_share,
            throttled: host.throttled,
            is_differing: false,
            trend: host.trend.clone(),
            kind,
        }
    }
}

/// A case that ties the machines of a kind together.
struct Anchor {
    case: usize,
    /// By the place of the host.
    figures: BTreeMap<usize, Figures>,
}

impl Host {
    fn kind(&self) -> Option<String> {
        self.machine.as_ref()?.kind()
    }

    fn right(&self) -> impl Iterator<Item = (usize, &Measured)> {
        self.measured.iter().filter(|(_, it)| it.log_ms.is_some()).map(|(case, it)| (*case, it))
    }

    /// Adds what a run knows about the machine. All calibrations count; until there is one, the peaks of the newest run
    /// count.
    fn learn(&mut self, node: &Node) {
        self.machine = Some(node.machine.clone());
        let probes: Vec<_> = node.calibrations.iter().flat_map(|calibration| calibration.probes()).collect();
        let mut speeds: Vec<(f64, f64)> = probes.iter().filter_map(|probe| probe.best()).collect();
        let had_looks = self.calibrated_runs > 0;
        if !speeds.is_empty() {
            self.calibrated_runs += 1;
        } else if !had_looks {
            speeds.extend(node.peaks.iter().map(|peaks| (peaks.product_gflops_per_second, peaks.copy_gb_per_second)));
        }
        if !had_looks && !speeds.is_empty() {
            // The peaks of an earlier run no longer count.
            self.figures.clear();
        }
        for (product, copy) in speeds {
            self.figures.entry(Quantity::Product).or_default().add(-product.ln(), None);
            self.figures.entry(Quantity::Copy).or_default().add(-copy.ln(), None);
        }
        for figures in self.figures.values_mut() {
            figures.has_own_noise = self.calibrated_runs >= ENOUGH_RUNS;
        }
        let shares = probes.iter().filter_map(|probe| probe.disturbed_share);
        self.disturbed_share = shares.chain(self.disturbed_share).reduce(f64::max);
        let counts: Vec<u64> = node.calibrations.iter().filter_map(|calibration| calibration.throttled).collect();
        if !counts.is_empty() {
            self.throttled = Some(self.throttled.unwrap_or(0) + counts.iter().sum::<u64>());
        }
        let spread = node.calibrations.iter().rev().find_map(|calibration| calibration.selftest);
        self.selftest = spread.map(|it| Noise::of_selftest(it.deviation, it.processes)).or(self.selftest);
    }
}

/// The columns with their machines, and the number of columns that are left out. A few machines have a column each. Of
/// many, first each kind has a column, then each machine that differs (the farthest off first), and then each machine
/// of an unknown kind.
fn columns(
    machines: &[FleetMachine],
    members: &BTreeMap<String, Vec<usize>>,
    differences: &[MachineDifference],
) -> (Vec<(FleetColumn, Vec<usize>)>, usize) {
    let alone = |place: usize| {
        let FleetMachine { name, host_id, is_differing, .. } = &machines[place];
        let (name, host_id) = (name.clone(), host_id.clone());
        (FleetColumn { name, host_id, machines: 1, is_differing: *is_differing }, vec![place])
    };
    if machines.len() <= MOST_MACHINES {
        return ((0..machines.len()).map(alone).collect(), 0);
    }
    let mut columns = Vec::new();
    for (kind, hosts) in members {
        let equal: Vec<usize> = hosts.iter().copied().filter(|place| !machines[*place].is_differing).collect();
        // If machines differ, the machine in the middle is known to be like its kind.
        let middle =
            differences.iter().find_map(|it| equal.iter().find(|place| machines[**place].host_id == it.reference));
        let Some(host) = middle.or(equal.last()) else { continue };
        let (column, _) = alone(*host);
        let name = if equal.len() == 1 { column.name } else { format!("{kind}: {} machines", equal.len()) };
        columns.push((FleetColumn { name, machines: equal.len(), ..column }, equal));
    }
    columns.sort_by_key(|(column, _)| std::cmp::Reverse(column.machines));
    let distance = |place: usize| {
        let own = differences.iter().filter(|it| it.host_id == machines[place].host_id);
        own.map(|it| it.interval.ratio.ln().abs()).fold(0.0, f64::max)
    };
    let mut apart: Vec<usize> = (0..machines.len()).filter(|place| machines[*place].is_differing).collect();
    apart.sort_by(|one, other| distance(*other).total_cmp(&distance(*one)));
    let unknown = (0..machines.len()).filter(|place| machines[*place].kind.is_none());
    columns.extend(apart.into_iter().chain(unknown).map(alone));
    let left_out = columns.len().saturating_sub(MOST_COLUMNS);
    columns.truncate(MOST_COLUMNS);
    (columns, left_out)
}

fn agreement(((model, configuration), levels): (&(String, String), &BTreeMap<usize, Level>)) -> Agreement {
    let mut machines: BTreeMap<Level, usize> = BTreeMap::new();
    levels.values().for_each(|level| *machines.entry(*level).or_default() += 1);
    Agreement { model: model.clone(), configuration: configuration.clone(), machines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{record, run_of};
    use crate::run_data::{Calibration, Peaks, Probe};

    #[test]
    fn the_peaks_of_the_newest_run_count_until_there_is_a_look() {
        let products = |host: &Host| -> Vec<f64> {
            host.figures[&Quantity::Product].log_times.iter().map(|log_time| log_time.exp().recip().round()).collect()
        };
        let mut host = Host::default();
        for peak in [100.0, 200.0] {
            let peaks = Peaks { product_gflops_per_second: peak, copy_gb_per_second: 10.0, ..Peaks::default() };
            host.learn(&Node { peaks: Some(peaks), ..Node::default() });
            assert_eq!(products(&host), [peak]);
        }
        for _ in 0..2 {
            let (product_gflops_per_second, copy_gb_per_second) = (vec![300.0], vec![10.0]);
            let before = Probe { product_gflops_per_second, copy_gb_per_second, ..Probe::default() };
            let calibrations = vec![Calibration { before, ..Calibration::default() }];
            host.learn(&Node { calibrations, ..Node::default() });
        }
        assert_eq!(products(&host), [300.0, 300.0]);
    }

    #[test]
    fn the_trend_of_a_machine_is_that_of_equal_conditions_and_a_cell_says_how_many_failed() {
        let (price, noise) = (|_: &Record| Some(0.0), |_: &str| Noise::assumed());
        let mut gatherer = Gatherer::new(&price, &noise);
        let of = |host: &str, threads, ms: Option<f64>| Record {
            host_id: host.into(),
            threads: Some(threads),
            status: if ms.is_some() { Status::Ok } else { Status::OutOfMemory },
            ..record("m", "ort", 1, ms)
        };
        for (day, threads, ms) in [(0, 8, 30.0), (1, 1, 190.0), (2, 1, 380.0)] {
            gatherer.add(&run_of(day, vec![of("a", threads, Some(ms))]));
        }
        gatherer.add(&run_of(3, vec![of("b", 1, None)]));
        let cell = gatherer.cell(0, &[0, 1]);
        assert_eq!((cell.machines, cell.failed, cell.price_per_million), (1, 1, Some(0.0)));
        assert_eq!(gatherer.hosts[0].trend.len(), 3);
        assert!((gatherer.hosts[0].trend[2] - 2.0).abs() < 1e-12, "{:?}", gatherer.hosts[0].trend);
    }

    #[test]
    fn a_change_that_shows_in_one_case_per_run_counts_once_in_the_trend() {
        let (price, noise) = (|_: &Record| Some(0.0), |_: &str| Noise::assumed());
        let mut gatherer = Gatherer::new(&price, &noise);
        let models = ["a", "b", "c"];
        gatherer.add(&run_of(0, models.map(|model| record(model, "ort", 1, Some(10.0))).into()));
        for (day, model) in models.into_iter().enumerate() {
            // A case that comes later begins where the trend is.
            let records = vec![record(model, "ort", 1, Some(11.0)), record("new", "ort", 1, Some(5.0))];
            gatherer.add(&run_of(day + 1, records));
        }
        let trend = &gatherer.hosts[0].trend;
        let expected = [1.0, 1.1, 1.1, 1.1];
        assert!(trend.iter().zip(expected).all(|(it, expected)| (it - expected).abs() < 1e-12), "{trend:?}");
        assert_eq!(trend.len(), expected.len());
    }
}
