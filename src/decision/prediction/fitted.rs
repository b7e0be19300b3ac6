//! A sum of physical costs that was fitted to measured rows, and how far it is off for what it has not seen.

use std::collections::BTreeMap;

use super::example::{Example, Site, Subject};
use super::least_squares::{Observation, TERMS, fit, sum};
use crate::definition::Phase;
use crate::run_data::Peaks;

/// What is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// The median latency, in milliseconds.
    Time,
    /// The peak of the process, in megabytes.
    Memory,
}

/// The peaks of the machines, which terms are multiples of.
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

    /// No operation is faster than at the peak of the machine, of which the fastest row is a proof. Bytes have no such bound, as
    /// those that stay in a cache, or that a runtime never writes, take no memory's time.
    fn least(self, subject: &Subject, site: &Site, peaks: &PeaksOf) -> [f64; TERMS] {
        match self {
            Quantity::Time if subject.runtime.has_peaks() && peaks.contains_key(site) => [0.0, 1.0, 1.0, 0.0],
            _ => [0.0; TERMS],
        }
    }
}

/// What is left of the factor of the nearest batch size beyond the measured ones: a part of it is of that batch size alone. On
/// 304 rows of the suite `small` on four backends, 0.8 missed least.
const KEPT_BEYOND: f64 = 0.8;

/// The coefficients for rows of one runtime.
pub struct Fitted<'a> {
    quantity: Quantity,
    coefficients: [f64; TERMS],
    peaks: &'a PeaksOf,
}

impl<'a> Fitted<'a> {
    /// Fits the quantity to the examples. Returns `None` if none of them has it.
    pub fn to<'e>(examples: impl Iterator<Item = &'e Example>, quantity: Quantity, peaks: &'a PeaksOf) -> Option<Self> {
        let mut least = [0.0; TERMS];
        let observation = |example: &Example| {
            let terms = quantity.terms(&example.subject, &example.site, peaks);
            least = quantity.least(&example.subject, &example.site, peaks);
            Some(Observation { terms, value: quantity.value(example)?, weight: example.weight })
        };
        let observations: Vec<Observation> = examples.filter_map(observation).collect();
        (!observations.is_empty()).then(|| Fitted { quantity, coefficients: fit(&observations, least), peaks })
    }

    /// What it says of a case, without regard to what was measured of the same model.
    pub fn plain(&self, subject: &Subject, site: &Site) -> f64 {
        sum(&self.coefficients, &self.quantity.terms(subject, site, self.peaks)).max(f64::MIN_POSITIVE)
    }

    /// The same, multiplied by what the same work was measured to take at other batch sizes, over what is said of these:
    /// interpolated over the logarithm of the batch size, and most of that of the nearest beyond the measured ones.
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
            (Some((measured, factor)), None) | (None, Some((measured, factor))) if *measured != at => {
                KEPT_BEYOND * factor
            }
            (Some((_, factor)), _) | (None, Some((_, factor))) => *factor,
            (None, None) => 0.0,
        };
        self.plain(subject, site) * factor.exp()
    }
}

/// How far a prediction is off: the logarithm of the measured value over the predicted one, of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct Miss {
    pub family: String,
    pub phase: Phase,
    pub logarithm: f64,
}

/// The misses if the family of each row is left out of the fit.
pub fn misses_of_families(examples: &[&Example], quantity: Quantity, peaks: &PeaksOf) -> Vec<Miss> {
    let of_others = |left_out: &Example, other: &Example| other.subject.family != left_out.subject.family;
    misses(examples, quantity, peaks, of_others, |_, _| false)
}

/// The misses if each row is predicted by the other batch sizes of the same work; rows without such are left out.
pub fn misses_of_batches(examples: &[&Example], quantity: Quantity, peaks: &PeaksOf) -> Vec<Miss> {
    let is_other = |left_out: &Example, other: &Example| left_out != other;
    let is_anchor = |left_out: &Example, other: &Example| is_anchor(&left_out.subject, &left_out.site, other);
    misses(examples, quantity, peaks, is_other, is_anchor)
}

/// The misses if the machine of each row is left out, and its peaks are all that is known of it.
pub fn misses_of_machines(examples: &[&Example], quantity: Quantity, peaks: &PeaksOf) -> Vec<Miss> {
    let is_elsewhere = |left_out: &Example, other: &Example| left_out.site != other.site;
    misses(examples, quantity, peaks, is_elsewhere, |_, _| false)
}

/// Whether the example is of the same work at another batch size in the same place.
pub fn is_anchor(subject: &Subject, site: &Site, other: &Example) -> bool {
    other.subject.work == subject.work
        && other.subject.runtime == subject.runtime
        && other.site == *site
        && other.subject.batch_size != subject.batch_size
}

fn misses(
    examples: &[&Example],
    quantity: Quantity,
    peaks: &PeaksOf,
    is_seen: impl Fn(&Example, &Example) -> bool,
    is_anchor: impl Fn(&Example, &Example) -> bool,
) -> Vec<Miss> {
    let is_of_batches = examples.iter().any(|one| examples.iter().any(|other| is_anchor(one, other)));
    let miss = |own: &&Example| {
        let fitted = Fitted::to(examples.iter().copied().filter(|other| is_seen(own, other)), quantity, peaks)?;
        let anchors: Vec<&Example> = examples.iter().copied().filter(|other| is_anchor(own, other)).collect();
        if is_of_batches && anchors.is_empty() {
            return None;
        }
        let said = fitted.anchored(&own.subject, &own.site, &anchors);
        let (family, phase) = (own.subject.family.clone(), own.subject.runtime.phase);
        Some(Miss { family, phase, logarithm: (quantity.value(own)? / said).ln() })
    };
    examples.iter().filter_map(miss).collect()
}

/// The share of the cases that an interval is to hold.
pub const COVERAGE: f64 = 0.8;

/// The half width of the interval, as a logarithm, that holds 80 % of the cases of a family that was not seen: the quantile of
/// the absolute misses in which all families count the same (conformal prediction with groups; Dunn, Wasserman and Ramdas,
/// "Distribution-free prediction sets for two-layer hierarchical models", JASA 118, 2023). Returns `None` without a miss.
pub fn half_width(misses: &[Miss]) -> Option<f64> {
    let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
    misses.iter().for_each(|miss| *counts.entry(&miss.family).or_default() += 1.0);
    let mut sizes: Vec<(f64, f64)> =
        misses.iter().map(|miss| (miss.logarithm.abs(), 1.0 / counts[miss.family.as_str()])).collect();
    sizes.sort_by(|one, other| one.0.total_cmp(&other.0));
    // A row more than there are stands for the one that is asked about.
    let wanted = COVERAGE * (counts.len() as f64) * (1.0 + 1.0 / misses.len() as f64);
    let mut held = 0.0;
    let found = sizes.iter().find(|(_, weight)| {
        held += weight;
        held >= wanted - 1e-9
    });
    found.or(sizes.last()).map(|(size, _)| *size)
}
