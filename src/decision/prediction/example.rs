//! What predictions are learned from: the rows of a history whose cost was counted, and the peaks of its machines.

use std::collections::{BTreeMap, BTreeSet};

use super::super::drift::{Drift, drifts, retain_usual};
use super::super::own_memory;
use super::super::repeated::logarithms;
use super::families::join_near_copies;
use super::least_squares::TERMS;
use crate::catalogue::OPERATORS;
use crate::compare::is_like;
use crate::definition::{Boundary, Case, Cost, Dtype, Phase, Status, TimedOn};
use crate::run_data::{Peaks, Record, Work, Works};
use crate::statistics::geometric_mean;

/// Above this share of disturbed samples, a row says more about other processes than about its case.
pub const MOST_DISTURBED: f64 = 0.5;

/// The weight of a row from a run in which the machine was slower than usual, if no other run has the case.
const WEIGHT_OF_DRIFTED: f64 = 0.25;

/// The kernel widths of the likeness of two cases: for the logarithms of operations per node, bytes per node and batch
/// size. These and the next two were tuned on 380 rows of the suites small and quick, in each of two histories.
const WIDTHS_OF_LIKENESS: [f64; 3] = [2.0, 2.0, 1.0];
const LEAST_LIKENESS: f64 = 0.02;
const LIKENESS_OF_PHASES: f64 = 0.2;

/// The weight of a chain of single operators for a network, relative to that of an equally similar network.
const WEIGHT_OF_OPERATORS: f64 = 0.1;

/// The backend, device, dtype and phase of a case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Runtime {
    pub backend: String,
    pub device: String,
    pub dtype: Dtype,
    /// An encoder counts as `forward`. `prefill` and `decode` differ from it: they make and read caches around the
    /// graphs.
    pub phase: Phase,
}

/// A machine, and the number of threads on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub host_id: String,
    pub threads: Option<usize>,
}

/// A case with its counted cost: one that was measured, or one that is asked about.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    pub runtime: Runtime,
    pub work: Work,
    /// A group of similar models: by their family's name, or as near-copies. Predictions of such models err together.
    pub family: String,
    pub batch_size: usize,
    pub cost: Cost,
    pub operators: BTreeSet<String>,
    pub parameters: Option<u64>,
    /// Whether it ships with inferbench. Packaged models are more like each other than like third-party models.
    pub is_packaged: bool,
}

/// A measured row.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    pub subject: Subject,
    pub site: Site,
    pub ms: f64,
    /// The ratio of the mean of its calls to their median: rates come from means.
    pub mean_to_median: f64,
    pub memory_mb: Option<f64>,
    /// From 0 to 1: the share of samples that nothing disturbed, times a factor if the machine was slower than usual.
    pub weight: f64,
}

/// Everything that predictions learn from a history.
#[derive(Clone, Debug, Default)]
pub struct Lessons {
    pub examples: Vec<Example>,
    pub peaks: BTreeMap<Site, Peaks>,
    /// Runs in which a machine was slower than usual.
    pub drifted: Vec<Drift>,
    /// Rows that were left out because other processes disturbed them.
    pub disturbed: usize,
    /// Rows without a counted cost: of older versions, of models without an ONNX graph, or with operators whose cost is not known.
    pub uncounted: usize,
    /// Sites where rows exceeded the measured peak: the site, the measured peak and the raised peak, in GFLOP/s.
    pub raised: Vec<(Site, f64, f64)>,
}

impl Lessons {
    /// Learns from these records and the peaks of their runs. The time of a work is the geometric mean over its
    /// undisturbed runs with the newest version of the library. A peak that two rows exceed is raised to the second
    /// fastest.
    pub fn of(records: &[Record], peaks: &[(Site, Peaks)], is_packaged: impl Fn(&str) -> bool) -> Self {
        let mut lessons = Lessons { drifted: drifts(records), ..Lessons::default() };
        for (site, found) in peaks {
            let known = lessons.peaks.entry(site.clone()).or_insert_with(|| found.clone());
            known.product_gflops_per_second = known.product_gflops_per_second.max(found.product_gflops_per_second);
            known.copy_gb_per_second = known.copy_gb_per_second.max(found.copy_gb_per_second);
        }
        let is_disturbed = |record: &&Record| record.disturbed_share.is_some_and(|share| share > MOST_DISTURBED);
        let plain = records.iter().filter(|record| is_plain(record));
        let (disturbed, mut quiet): (Vec<&Record>, Vec<&Record>) = plain.partition(is_disturbed);
        lessons.disturbed = disturbed.len();
        quiet.sort_by_key(|record| record.timestamp);
        lessons.raise_peaks(&quiet);
        let (mut works, mut rows) = (Works::default(), BTreeMap::new());
        for record in quiet {
            // Another number of threads is another site.
            let key = (&record.host_id, works.number(Work::of(record)), record.threads);
            rows.entry(key).or_insert_with(Vec::new).push(record);
        }
        for mut runs in rows.into_values() {
            let Some(&newest) = runs.last() else { continue };
            runs.retain(|record| is_like(record, newest) && record.artifact_sha256 == newest.artifact_sha256);
            retain_usual(&mut runs, &lessons.drifted);
            let is_drifted = lessons.drifted.iter().any(|drift| runs.iter().any(|record| drift.is_of(record)));
            let times = logarithms(&runs, |record| record.latency_p50_ms);
            let latency_p50_ms = (!times.is_empty()).then(|| geometric_mean(&times));
            match Example::of(&Record { latency_p50_ms, ..newest.clone() }) {
                Some(mut example) => {
                    example.weight *= if is_drifted { WEIGHT_OF_DRIFTED } else { 1.0 };
                    example.subject.is_packaged = is_packaged(&newest.model);
                    example.mean_to_median = mean_to_median(newest);
                    lessons.examples.push(example);
                }
                None => lessons.uncounted += 1,
            }
        }
        join_near_copies(&mut lessons.examples);
        lessons
    }

    /// Raises the peaks that rows exceed to the second fastest of these rows. A single row may be wrong in its time or
    /// cost.
    fn raise_peaks(&mut self, rows: &[&Record]) {
        let mut faster: BTreeMap<Site, Vec<f64>> = BTreeMap::new();
        for record in rows.iter().filter(|record| Runtime::of(&record.case()).has_peaks()) {
            let reached = record.flops.zip(record.latency_p50_ms).map(|(flops, ms)| flops as f64 / ms / 1e6);
            let known = self.peaks.get(&Site::of(record));
            if let Some((peaks, reached)) = known.zip(reached.filter(|reached| reached.is_finite()))
                && reached > peaks.product_gflops_per_second
            {
                faster.entry(Site::of(record)).or_default().push(reached);
            }
        }
        for (site, mut reached) in faster {
            reached.sort_by(|one, other| other.total_cmp(one));
            if let (Some(&shown), Some(known)) = (reached.get(1), self.peaks.get_mut(&site)) {
                self.raised.push((site, known.product_gflops_per_second, shown));
                known.product_gflops_per_second = shown;
            }
        }
    }
}

impl Site {
    fn of(record: &Record) -> Self {
        Site { host_id: record.host_id.clone(), threads: record.threads }
    }
}

/// Whether the record is a correct measurement with seeded inputs and the boundary `compute`, as the graph's cost
/// assumes.
fn is_plain(record: &Record) -> bool {
    record.status == Status::Ok
        && record.verified != Some(false)
        && record.boundary == Boundary::Compute
        && record.timed_on == TimedOn::Seeded
}

fn mean_to_median(record: &Record) -> f64 {
    let ratio = record.latency_mean_ms.zip(record.latency_p50_ms).map(|(mean, median)| mean / median);
    ratio.filter(|ratio| *ratio > 0.0 && ratio.is_finite()).unwrap_or(1.0)
}

impl Example {
    fn of(record: &Record) -> Option<Self> {
        let cost = Cost {
            flops: record.flops?,
            convolution_flops: record.convolution_flops?,
            nodes: record.graph_nodes?,
            node_bytes: record.node_bytes?,
            matrix_products: record.matrix_products?,
            ..Cost::default()
        };
        Some(Example {
            subject: Subject {
                runtime: Runtime::of(&record.case()),
                work: Work::of(record),
                family: record.family.clone(),
                batch_size: record.batch_size,
                cost,
                operators: record.operators.iter().flat_map(|names| names.split(' ')).map(str::to_owned).collect(),
                parameters: record.parameters,
                is_packaged: false,
            },
            site: Site::of(record),
            ms: record.latency_p50_ms.filter(|ms| *ms > 0.0 && ms.is_finite())?,
            mean_to_median: mean_to_median(record),
            memory_mb: own_memory(record).filter(|memory| *memory > 0.0),
            weight: 1.0 - record.disturbed_share.unwrap_or(0.0),
        })
    }
}

impl Runtime {
    /// The runtime of the case.
    pub fn of(case: &Case) -> Self {
        Runtime {
            backend: case.backend.clone(),
            device: case.device.clone(),
            dtype: case.dtype,
            phase: if case.phase == Phase::Encoder { Phase::Forward } else { case.phase },
        }
    }

    /// Whether both are of one backend, device and dtype.
    pub fn is_like(&self, other: &Self) -> bool {
        (&self.backend, &self.device, self.dtype) == (&other.backend, &other.device, other.dtype)
    }

    /// Whether the measured peaks, which are those of f32 on the CPU, bound its speed.
    pub fn has_peaks(&self) -> bool {
        self.device == "cpu" && self.dtype == Dtype::F32
    }
}

impl Subject {
    /// Whether it is a chain of single operators and not a network. Chains show what operators cost. They are not
    /// predicted themselves, and do not count for the errors of predictions.
    pub fn is_of_operators(&self) -> bool {
        self.family == OPERATORS
    }

    /// The terms of its time: the number of nodes; the times at the peaks of convolutions, of other operations, of all
    /// bytes except the weights, of the bytes of convolutions (by their share of the operations), and of the weights;
    /// the number of matrix products; and the bytes of convolutions again, for batches of more than one sample. Times
    /// are in milliseconds or, without peaks, in 10^9 operations or bytes.
    ///
    /// Convolutions with few channels do few operations per byte, so their bytes take the time. With a term for these
    /// bytes, small convolutions do not make large ones seem slow. Attention multiplies two small matrices for each
    /// head of each sample, and runtimes call a product for each. Weights are only read, and in order. Some runtimes
    /// compile batch size 1 differently: only then does tract merge a normalisation with the convolution before it.
    pub fn terms_of_time(&self, peaks: Option<&Peaks>) -> [f64; TERMS] {
        let Cost { flops, convolution_flops, nodes, node_bytes, matrix_products, .. } = self.cost;
        let (product, copy) =
            peaks.map_or((1e3, 1e3), |peaks| (peaks.product_gflops_per_second, peaks.copy_gb_per_second));
        let at = |amount: u64, giga_per_second: f64| amount as f64 / 1e6 / giga_per_second.max(1e-3);
        let products = flops.saturating_sub(convolution_flops);
        let weights = node_bytes.min(4 * self.parameters.unwrap_or(0));
        let share = convolution_flops as f64 / flops.max(1) as f64;
        let (moved, moved_by_convolutions) = (at(node_bytes - weights, copy), share * at(node_bytes, copy));
        let is_of_many = if self.batch_size > 1 { 1.0 } else { 0.0 };
        [
            nodes as f64,
            at(convolution_flops, product),
            at(products, product),
            moved,
            moved_by_convolutions,
            at(weights, copy),
            matrix_products as f64,
            is_of_many * moved_by_convolutions,
        ]
    }

    /// The weight of the row `other` for this case, from 0 to about 1. It is larger the more similar operations per
    /// node, bytes per node and batch size are. Rows of another phase count a fifth. For chains of single operators,
    /// whose nodes are like no network's, only the batch size is compared.
    pub fn likeness(&self, other: &Self) -> f64 {
        let logarithms = |it: &Self| {
            let per_node = |amount: u64| (amount.max(1) as f64 / it.cost.nodes.max(1) as f64).ln();
            [per_node(it.cost.flops), per_node(it.cost.node_bytes), (it.batch_size.max(1) as f64).ln()]
        };
        let (own, others) = (logarithms(self), logarithms(other));
        let (first, weight) = if other.is_of_operators() { (2, WEIGHT_OF_OPERATORS) } else { (0, 1.0) };
        let squares =
            (first..own.len()).map(|place| ((own[place] - others[place]) / WIDTHS_OF_LIKENESS[place]).powi(2));
        let of_phase = if self.runtime.phase == other.runtime.phase { 1.0 } else { LIKENESS_OF_PHASES };
        weight * of_phase * ((-squares.sum::<f64>() / 2.0).exp() + LEAST_LIKENESS)
    }

    /// The terms of its memory in megabytes: the process itself, weights, and what the nodes read and write.
    pub fn terms_of_memory(&self) -> [f64; TERMS] {
        let (weights, bytes) = (self.parameters.unwrap_or(0) as f64 * 4e-6, self.cost.node_bytes as f64 * 1e-6);
        [1.0, weights, bytes, 0.0, 0.0, 0.0, 0.0, 0.0]
    }
}
