//! A sum of physical costs that is fitted to measured rows, and its errors for rows that were left out.

use std::collections::BTreeMap;

use super::example::{Example, Site, Subject};
use super::least_squares::{Observation, TERMS, fit_logarithms, sum};
use crate::definition::Phase;
use crate::run_data::Peaks;
use crate::statistics::mean;

/// What is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// The median latency, in milliseconds.
    Time,
    /// The peak of the process, in megabytes.
    Memory,
}

/// The peaks of the machines, by which the terms are divided.
pub type PeaksOf = BTreeMap<Site, Peaks>;

impl Quantity {
    fn terms(self, subject: &Subject, site: &Site, peaks: &PeaksOf) -> [f64; TERMS] {
        match self {
            Quantity::Time => subject.terms_of_time(peaks.get(site)),
            Quantity::Memory => subject.terms_of_memory(),
        }
    }

    pub fn value(self, example: &Example) -> Option<f64> {
        match self {
            Quantity::Time => Some(example.ms),
            Quantity::Memory => example.memory_mb,
        }
    }

    /// The smallest coefficients that are allowed. No operation is faster than at the machine's peak. Bytes have no
    /// such bound: bytes that stay in a cache, or that a runtime never writes, take no memory time.
    fn least(self, subject: &Subject, site: &Site, peaks: &PeaksOf) -> [f64; TERMS] {
        match self {
            Quantity::Time if subject.runtime.has_peaks() && peaks.contains_key(site) => {
                [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
            }
            _ => [0.0; TERMS],
        }
    }
}

/// Beyond the measured batch sizes, this part of the nearest one's factor is kept, since the rest concerns only that
/// batch size. On 304 rows of the suite `small` on four backends, 0.8 had the smallest errors.
const KEPT_BEYOND: f64 = 0.8;

/// The weight of an artificial row for each kind of operation, which says that it runs at the peak. If rows leave open
/// whether operations or bytes take the time, as small models do, the fit chooses the bytes, since runtimes compute
/// large products nearly at the peak.
const WEIGHT_OF_PEAKS: f64 = 1.0;

/// The coefficients for a case of a runtime.
pub struct Fitted<'a> {
    quantity: Quantity,
    coefficients: [f64; TERMS],
    peaks: &'a PeaksOf,
}

impl<'a> Fitted<'a> {
    /// Fits the quantity to the examples; those that are most like the case count most (locally weighted regression;
    /// Cleveland and Devlin, JASA 83, 1988). Returns `None` if no example has the quantity.
    pub fn near(subject: &Subject, examples: &[&Example], quantity: Quantity, peaks: &'a PeaksOf) -> Option<Self> {
        // All examples are of one runtime, on machines whose peaks are all known or all unknown.
        let least = examples.first().map_or([0.0; TERMS], |it| quantity.least(&it.subject, &it.site, peaks));
        let observation = |example: &&Example| {
            let terms = quantity.terms(&example.subject, &example.site, peaks);
            let weight = example.weight * subject.likeness(&example.subject);
            Some(Observation { terms, value: quantity.value(example)?, weight })
        };
        let mut observations: Vec<Observation> = examples.iter().filter_map(observation).collect();
        let mean_weight = mean(&observations.iter().map(|it| it.weight).collect::<Vec<_>>());
        if observations.is_empty() || mean_weight <= 0.0 {
            return None;
        }
        observations.iter_mut().for_each(|it| it.weight /= mean_weight);
        for place in (0..TERMS).filter(|&place| least[place] > 0.0) {
            let terms = std::array::from_fn(|other| if other == place { 1.0 } else { 0.0 });
            observations.push(Observation { terms, value: least[place], weight: WEIGHT_OF_PEAKS });
        }
        Some(Fitted { quantity, coefficients: fit_logarithms(&observations, least), peaks })
    }

    /// The fitted sum for a case.
    pub fn plain(&self, subject: &Subject, site: &Site) -> f64 {
        sum(&self.coefficients, &self.quantity.terms(subject, site, self.peaks)).max(f64::MIN_POSITIVE)
    }

    /// The fitted sum, multiplied by the ratio of measured to fitted values of the same work at other batch sizes. The
    /// ratio is interpolated over the logarithm of the batch size. Beyond the measured sizes, most of the nearest ratio
    /// is kept.
    pub fn anchored(&self, subject: &Subject, site: &Site, anchors: &[&Example]) -> f64 {
        let mut known: Vec<(f64, f64)> = anchors
            .iter()
            .filter_map(|anchor| {
                let said = self.plain(&anchor.subject, &anchor.site);
                Some(((anchor.subject.batch_size as f64).ln(), (self.quantity.value(anchor)? / said).ln()))
            })
            .collect();
        known.sort_by(|one, other| one.0.total_cmp(&other.0));
        let at = (subject.batch_size as f64).ln();
        let below = known.iter().rev().find(|(batch, _)| *batch <= at);
        let above = known.iter().find(|(batch, _)| *batch >= at);
        let factor = match (below, above) {
            (Some((low, of_low)), Some((high, of_high))) if high > low => {
                of_low + (of_high - of_low) * (at - low) / (high - low)
            }
            (Some((_, factor)), Some(_)) => *factor,
            (Some((_, factor)), None) | (None, Some((_, factor))) => KEPT_BEYOND * factor,
            (None, None) => 0.0,
        };
        self.plain(subject, site) * factor.exp()
    }
}

/// How far a prediction is off: the logarithm of the measured value over the predicted one.
#[derive(Clone, Debug, PartialEq)]
pub struct Miss {
    pub family: String,
    /// The family, or the machine if machines are left out. The rows of a unit miss together.
    pub unit: String,
    pub host_id: String,
    pub phase: Phase,
    pub is_packaged: bool,
    pub logarithm: f64,
    /// How far the row is [`beyond`] those that it was predicted from.
    pub beyond: f64,
}

/// How much larger the nodes of a case are than those of all rows, as a logarithm: by operations or by bytes per node, whichever is
/// more. Returns 0 for a case whose nodes are not larger.
pub fn beyond(subject: &Subject, rows: &[&Example]) -> f64 {
    let sizes = |it: &Subject| {
        let nodes = it.cost.nodes.max(1) as f64;
        [it.cost.flops, it.cost.node_bytes].map(|amount| (amount.max(1) as f64 / nodes).ln())
    };
    let own = sizes(subject);
    let most = |place: usize| rows.iter().map(|row| sizes(&row.subject)[place]).fold(f64::NEG_INFINITY, f64::max);
    let above = |place: usize| own[place] - most(place);
    (0..own.len()).map(above).filter(|above| above.is_finite()).fold(0.0, f64::max)
}

/// Rows to learn from.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    /// The rows of networks in the case's phase if they are enough, or else in all phases. Errors are those of these
    /// rows.
    pub own: Vec<&'a Example>,
    /// The rows of all phases, and of chains of single operators.
    pub all: Vec<&'a Example>,
}

/// The rows that a fit is made without, so that its predictions of them show how large its errors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum LeftOut {
    /// The family of each row.
    Family,
    /// Its family, and all rows but those that do at most a quarter of its operations per node.
    Sizes,
    /// The row itself, which is predicted by other batch sizes of the same work. A row without other batch sizes has no
    /// miss.
    Batch,
    /// Its machine, with all numbers of threads. Only the machine's peaks remain known.
    Machine,
    /// Its machine and its family.
    MachineAndFamily,
}

impl LeftOut {
    /// The misses of the rows.
    pub fn misses(self, rows: &Rows<'_>, quantity: Quantity, peaks: &PeaksOf) -> Vec<Miss> {
        rows.own.iter().filter_map(|own| self.miss(own, rows, quantity, peaks)).collect()
    }

    fn is_seen(self, left_out: &Example, other: &Example) -> bool {
        let per_node = |it: &Example| it.subject.cost.flops as f64 / it.subject.cost.nodes.max(1) as f64;
        let is_of_another_family = other.subject.family != left_out.subject.family;
        match self {
            LeftOut::Family => is_of_another_family,
            LeftOut::Sizes => is_of_another_family && 4.0 * per_node(other) <= per_node(left_out),
            LeftOut::Batch => other != left_out,
            LeftOut::Machine => other.site.host_id != left_out.site.host_id,
            LeftOut::MachineAndFamily => is_of_another_family && other.site.host_id != left_out.site.host_id,
        }
    }

    fn miss(self, own: &Example, rows: &Rows<'_>, quantity: Quantity, peaks: &PeaksOf) -> Option<Miss> {
        let is_anchor = |it: &&Example| self == LeftOut::Batch && is_anchor(&own.subject, &own.site, it);
        let anchors: Vec<&Example> = rows.own.iter().copied().filter(is_anchor).collect();
        let is_seen = |it: &&Example| self.is_seen(own, it);
        let seen: Vec<&Example> = rows.all.iter().copied().filter(is_seen).collect();
        // Fewer rows than terms determine nothing.
        if seen.len() < TERMS || (self == LeftOut::Batch && anchors.is_empty()) {
            return None;
        }
        let said = Fitted::near(&own.subject, &seen, quantity, peaks)?.anchored(&own.subject, &own.site, &anchors);
        let like: Vec<&Example> = rows.own.iter().copied().filter(is_seen).collect();
        let is_of_machine = matches!(self, LeftOut::Machine | LeftOut::MachineAndFamily);
        let unit = if is_of_machine { &own.site.host_id } else { &own.subject.family };
        Some(Miss {
            family: own.subject.family.clone(),
            unit: unit.clone(),
            host_id: own.site.host_id.clone(),
            phase: own.subject.runtime.phase,
            is_packaged: own.subject.is_packaged,
            logarithm: (quantity.value(own)? / said).ln(),
            beyond: beyond(&own.subject, &like),
        })
    }
}

/// Whether the example is of the same work at another batch size on the same site.
pub fn is_anchor(subject: &Subject, site: &Site, other: &Example) -> bool {
    let of_any_batch = |it: &Subject| it.work.clone().of_any_batch();
    other.subject.batch_size != subject.batch_size
        && other.site == *site
        && of_any_batch(&other.subject).is_surely_same(&of_any_batch(subject))
}

/// The share of the cases that an interval should hold.
pub const COVERAGE: f64 = 0.8;

/// A history of small models shows little of how the efficiency changes with size: intervals grow at least by its
/// fourth root.
const LEAST_GROWTH: f64 = 0.25;

/// Half the width of intervals, as a logarithm: for a case whose nodes are not larger than the measured ones, and its
/// growth with [`beyond`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Widths {
    inside: f64,
    growth: f64,
}

impl Widths {
    /// From the misses of rows that were left out, and from those of larger rows that were predicted from smaller ones.
    /// Returns `None` without a miss.
    pub fn of(misses: &[Miss], of_sizes: &[Miss]) -> Option<Self> {
        let inside = quantile_of_units(misses.iter().map(|miss| (miss, miss.logarithm.abs())))?;
        let growth = |miss: &Miss| (miss.logarithm.abs() - inside).max(0.0) / miss.beyond;
        let larger = of_sizes.iter().filter(|miss| miss.beyond > 0.0);
        // Without a larger row, assume that a case may be as far off as it is beyond the rows.
        let growth = quantile_of_units(larger.map(|miss| (miss, growth(miss)))).unwrap_or(1.0).max(LEAST_GROWTH);
        // The interval of a row with larger nodes has grown already: only the rest of its miss makes all intervals
        // wider.
        let less_growth = misses.iter().map(|miss| (miss, miss.logarithm.abs() - growth * miss.beyond));
        Some(Widths { inside: quantile_of_units(less_growth)?.max(0.0), growth })
    }

    /// Half the width for a case that is this far [`beyond`] the rows.
    pub fn half(&self, beyond: f64) -> f64 {
        self.inside + self.growth * beyond
    }
}

/// With fewer units, no finite interval is known to hold [`COVERAGE`] of the cases of a new unit.
pub(super) const LEAST_UNITS: usize = 4;
/// With fewer units, the interval is this multiple of the largest miss, in logarithms.
const OF_FEW_UNITS: f64 = 2.0;

fn quantile_of_units<'a>(figures: impl Iterator<Item = (&'a Miss, f64)>) -> Option<f64> {
    hierarchical_quantile(figures.map(|(miss, figure)| (miss.unit.as_str(), figure)))
}

/// The quantile of figures that holds [`COVERAGE`] of the rows of an unseen unit. Units are exchangeable, but their
/// rows are not, since these miss together. Therefore all units have the same weight, however many rows they have, and
/// the unseen unit counts as one more, with the worst figures (hierarchical conformal prediction; Lee, Barber and
/// Willett, "Distribution-free inference with hierarchical data", arXiv:2306.06342, 2023; Dunn, Wasserman and Ramdas,
/// JASA 118, 2023). Returns `None` without a figure.
pub(super) fn hierarchical_quantile<'a>(figures: impl Iterator<Item = (&'a str, f64)>) -> Option<f64> {
    let mut figures: Vec<(&str, f64)> = figures.collect();
    figures.sort_by(|one, other| one.1.total_cmp(&other.1));
    let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
    figures.iter().for_each(|(unit, _)| *counts.entry(unit).or_default() += 1.0);
    let largest = figures.last()?.1;
    if counts.len() < LEAST_UNITS {
        return Some(if largest > 0.0 { OF_FEW_UNITS * largest } else { largest });
    }
    let wanted = COVERAGE * (counts.len() + 1) as f64;
    let mut held = 0.0;
    let found = figures.iter().find(|(unit, _)| {
        held += 1.0 / counts[unit];
        held >= wanted - 1e-9
    });
    Some(found.map_or(largest, |(_, figure)| *figure))
}
