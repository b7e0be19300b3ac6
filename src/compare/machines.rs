//! Finds the machines that differ from others of their kind, by their calibrations and by a case that each has
//! measured.
//!
//! Each machine is compared with the one in the middle of its kind (of two, with the faster one) as two sides of stored runs are:
//! Welch's interval of the ratio of times, the noise pooled over the figures of each machine of the kind, and one control of the
//! false discoveries over all machines and quantities. See [`super::runs`], [`super::noise`] and [`super::verdict`].
//!
//! Two calibrations within one run do not show how a machine changes from one quarter of an hour to the next. On
//! virtual machines, copies of memory and calls of one process have levels that last for a while: an undisturbed
//! machine with two processors copied 40 or 63 GB per second, and answered a call in 7.2 or 12.3 µs. So such a figure
//! names a machine only together with another figure in the same direction, unless it has [its own
//! noise](Figures::has_own_noise). Otherwise, the noise is at least what is assumed for shared machines, and more if
//! the self-test has found more.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::noise::Noise;
use super::runs::{CaseRuns, Within, estimate, floor};
use super::verdict::{Limits, RatioInterval, Verdict, verdicts};
use crate::statistics::{geometric_mean, mean};

/// Differences up to this do not matter, as a fraction.
const TOLERANCE: f64 = 0.05;
const CONFIDENCE: f64 = 0.99;

/// What is compared, as the time of a fixed piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Quantity {
    /// A product of two matrices.
    Product,
    /// A copy of an array.
    Copy,
    /// A call of the anchor case.
    Anchor,
}

/// The figures of a quantity on a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Logarithms of times: of each calibration, or of each run's median.
    pub log_times: Vec<f64>,
    /// The uncertainty of each figure by itself, if it is known.
    pub within: Vec<Option<Within>>,
    /// The noise between processes or runs, if these figures themselves show it.
    pub noise: Option<Noise>,
    /// Whether the noise includes the scatter from run to run.
    pub has_own_noise: bool,
}

impl Figures {
    /// Adds a figure.
    pub fn add(&mut self, log_time: f64, within: Option<Within>) {
        if log_time.is_finite() {
            self.log_times.push(log_time);
            self.within.push(within);
        }
    }
}

/// A machine that is compared with others of its kind.
#[derive(Clone, Debug)]
pub struct Tested {
    pub host_id: String,
    /// Only machines with the same text here are compared.
    pub kind: String,
    pub figures: BTreeMap<Quantity, Figures>,
    /// The noise of the machine as far as it is known without these figures.
    pub known: Noise,
}

/// A machine that is not equal to the one in the middle of its kind.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MachineDifference {
    pub host_id: String,
    /// The machine in the middle.
    pub reference: String,
    pub quantity: Quantity,
    /// The time on this machine over that on the reference.
    pub interval: RatioInterval,
    /// Equal machines differ by up to this, as a fraction.
    pub floor: f64,
    /// `slower` or `faster` than the reference.
    pub verdict: Verdict,
}

/// The machines that differ from those of their kind by more than the noise, once for each quantity.
pub fn differing_machines(machines: &[Tested]) -> Vec<MachineDifference> {
    let mut groups: BTreeMap<(&str, Quantity), Vec<(&Tested, &Figures)>> = BTreeMap::new();
    for machine in machines {
        for (quantity, figures) in machine.figures.iter().filter(|(_, figures)| !figures.log_times.is_empty()) {
            groups.entry((&machine.kind, *quantity)).or_default().push((machine, figures));
        }
    }
    let (mut found, mut estimates, mut is_enough) = (Vec::new(), Vec::new(), Vec::new());
    for ((_, quantity), mut members) in groups {
        members.sort_by(|(_, one), (_, other)| mean(&one.log_times).total_cmp(&mean(&other.log_times)));
        let noisier = |one: Noise, other: Noise| if other.deviation > one.deviation { other } else { one };
        let noises = members.iter().map(|(machine, figures)| figures.noise.unwrap_or(machine.known));
        let Some(known) = noises.reduce(noisier) else { continue };
        let all: Vec<Vec<f64>> = members.iter().map(|(_, figures)| figures.log_times.clone()).collect();
        let has_own_noise = members.iter().all(|(_, figures)| figures.has_own_noise);
        let pooled = Noise::of_groups(&all, known);
        let noise = if has_own_noise { pooled } else { noisier(known, pooled) };
        let runs = |figures: &Figures| CaseRuns {
            log_medians: figures.log_times.clone(),
            within: figures.within.clone(),
            noise,
        };
        let middle = (members.len() - 1) / 2;
        let (reference, base) = (&members[middle].0.host_id, runs(members[middle].1));
        for (_, (machine, figures)) in members.iter().enumerate().filter(|(place, _)| *place != middle) {
            let candidate = runs(figures);
            let estimate = estimate(&base, &candidate, CONFIDENCE);
            let floor = floor(&base, &candidate, CONFIDENCE);
            is_enough.push(quantity == Quantity::Product || has_own_noise);
            estimates.push((estimate, Limits { floor, layout: 0.0, tolerance: TOLERANCE }));
            found.push(MachineDifference {
                host_id: machine.host_id.clone(),
                reference: reference.clone(),
                quantity,
                interval: estimate.interval,
                floor,
                verdict: Verdict::CannotSay,
            });
        }
    }
    let findings = verdicts(&estimates, 1.0 - CONFIDENCE);
    found.iter_mut().zip(findings).for_each(|(difference, finding)| difference.verdict = finding.verdict);
    let is_named = |(place, it): (usize, &MachineDifference)| {
        let alike = found.iter().filter(|other| other.host_id == it.host_id && other.verdict == it.verdict);
        it.verdict.is_change() && (is_enough[place] || alike.count() > 1)
    };
    let places = found.iter().enumerate().filter(|(place, it)| is_named((*place, it)));
    let named: BTreeSet<String> = places.map(|(_, it)| it.host_id.clone()).collect();
    found.retain(|it| it.verdict.is_change() && named.contains(&it.host_id));
    found
}

/// How far the machines are apart: the slowest one's mean time over the fastest one's. Returns `None` for fewer than two.
pub fn spread<'a>(figures: impl Iterator<Item = &'a Figures>) -> Option<f64> {
    let times =
        figures.filter(|figures| !figures.log_times.is_empty()).map(|figures| geometric_mean(&figures.log_times));
    let times: Vec<f64> = times.collect();
    let fastest = times.iter().copied().reduce(f64::min).filter(|_| times.len() > 1)?;
    Some(times.iter().copied().fold(fastest, f64::max) / fastest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::simulation::normal;

    /// A machine that was calibrated twice, with these times of the product in milliseconds.
    fn machine(host_id: &str, kind: &str, product: [f64; 2], known: Noise) -> Tested {
        let mut figures = Figures::default();
        product.iter().for_each(|ms| figures.add(ms.ln(), None));
        let figures = BTreeMap::from([(Quantity::Product, figures)]);
        Tested { host_id: host_id.into(), kind: kind.into(), figures, known }
    }

    fn named(machines: &[Tested]) -> Vec<String> {
        differing_machines(machines).into_iter().map(|it| format!("{} {}", it.host_id, it.verdict)).collect()
    }

    #[test]
    fn of_two_machines_the_slower_one_is_named() {
        let of = |host: &str, ms: f64| machine(host, "k", [ms, ms * 1.01], Noise::assumed());
        assert_eq!(named(&[of("a", 2.0), of("b", 1.0)]), ["a slower"]);
        // 5 % between runs is assumed, so that 10 % say nothing; more runs may know better.
        assert!(named(&[of("a", 1.1), of("b", 1.0)]).is_empty());
        let of_runs = |host: &str, ms: f64| {
            let mut it = of(host, ms);
            let figures = it.figures.get_mut(&Quantity::Product).unwrap();
            [0.995, 1.005, 1.0].iter().for_each(|jitter| figures.add((ms * jitter).ln(), None));
            figures.has_own_noise = true;
            it
        };
        assert_eq!(named(&[of_runs("a", 1.1), of_runs("b", 1.0)]), ["a slower"]);
    }

    #[test]
    fn a_copy_alone_names_no_machine_but_together_with_the_anchor_it_does() {
        let of = |host: &str, copy: f64, anchor: f64| {
            let mut it = machine(host, "k", [1.0; 2], Noise::assumed());
            for (quantity, ms) in [(Quantity::Copy, copy), (Quantity::Anchor, anchor)] {
                let mut figures = Figures::default();
                figures.add(ms.ln(), None);
                it.figures.insert(quantity, figures);
            }
            it
        };
        assert!(named(&[of("a", 1.0, 1.0), of("b", 1.7, 1.0)]).is_empty());
        // Figures that contradict each other name no machine.
        assert!(named(&[of("a", 1.0, 1.7), of("b", 1.7, 1.0)]).is_empty());
        assert_eq!(named(&[of("a", 1.0, 1.0), of("b", 1.7, 1.7)]), ["b slower", "b slower"]);
    }

    #[test]
    fn machines_of_other_kinds_may_differ() {
        let of = |host: &str, kind: &str, ms: f64| machine(host, kind, [ms; 2], Noise::assumed());
        assert!(named(&[of("a", "k", 1.0), of("b", "l", 3.0)]).is_empty());
    }

    #[test]
    fn of_many_machines_those_off_the_middle_are_named() {
        let of = |number: usize, ms: f64| {
            let jitter = 1.0 + 0.004 * (number % 3) as f64;
            machine(&number.to_string(), "k", [ms * jitter, ms / jitter], Noise::assumed())
        };
        let mut machines: Vec<Tested> = (0..8).map(|number| of(number, 1.0)).collect();
        machines[3] = of(3, 1.3);
        machines[6] = of(6, 0.8);
        assert_eq!(named(&machines), ["6 faster", "3 slower"]);
    }

    /// Machines that differ only by the noise of their calibrations are hardly ever named.
    #[test]
    fn equal_machines_are_not_named() {
        let named_fleets = (0..200).filter(|&seed| {
            let z = normal(seed, "looks", 16);
            let of = |number: usize| {
                let look = |place: usize| (0.02 * z[2 * number + place]).exp();
                machine(&number.to_string(), "k", [look(0), look(1)], Noise::assumed())
            };
            !named(&(0..8).map(of).collect::<Vec<_>>()).is_empty()
        });
        assert!(named_fleets.count() <= 4);
    }

    #[test]
    fn the_spread_is_that_of_the_slowest_over_the_fastest() {
        let of = |ms: f64| Figures { log_times: vec![ms.ln()], within: vec![None], ..Figures::default() };
        let all = [of(2.0), of(3.0), of(2.5), Figures::default()];
        assert!((spread(all.iter()).unwrap() - 1.5).abs() < 1e-12);
        assert_eq!(spread(all[..1].iter()), None);
    }

    #[test]
    fn one_machine_among_many_has_to_differ_more_surely_than_one_of_two() {
        let of = |number: usize, ms: f64| machine(&number.to_string(), "k", [ms; 2], Noise::assumed());
        assert_eq!(named(&[of(0, 1.0), of(1, 1.15)]), ["1 slower"]);
        let many: Vec<Tested> = (0..11).map(|number| of(number, if number == 0 { 1.15 } else { 1.0 })).collect();
        assert!(named(&many).is_empty());
    }
}
