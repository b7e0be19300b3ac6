//! The four verdicts, and what each takes.
//!
//! A change is shown when two things are true: the interval of the ratio excludes 1, after control of the false-discovery
//! rate over all cases, and the change is larger than the floor, which is what the same program does to itself here.
//! That nothing has changed is shown, too, or not: the interval must lie within what would matter.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What can be said of the candidate, beside the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Faster,
    /// No change that would matter.
    Same,
    Slower,
    /// The interval holds both no change and one that would matter.
    CannotSay,
}

/// The candidate's time over the base's, with the interval in which it lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatioInterval {
    pub ratio: f64,
    pub lower: f64,
    pub upper: f64,
    /// From 0 to 1.
    pub confidence: f64,
}

/// How large a change must be, as parts of the base's time: 0.02 is 2 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Yardstick {
    /// Changes up to this are the machine's noise, whatever the interval says.
    pub floor: f64,
    /// Changes up to this do not matter.
    pub tolerance: f64,
}

impl Verdict {
    /// `is_discovery` is whether the change has passed the control over all cases ([`discoveries`]).
    pub fn of(interval: &RatioInterval, is_discovery: bool, yardstick: Yardstick) -> Self {
        let beyond = |change: f64, limit: f64| change > 1.0 + limit || change < 1.0 / (1.0 + limit);
        let excludes_1 = interval.lower > 1.0 || interval.upper < 1.0;
        if excludes_1 && is_discovery && beyond(interval.ratio, yardstick.floor) {
            return if interval.ratio > 1.0 { Verdict::Slower } else { Verdict::Faster };
        }
        // What is no number lies nowhere.
        let within = 1.0 / (1.0 + yardstick.tolerance)..=1.0 + yardstick.tolerance;
        let is_same = [interval.lower, interval.upper].iter().all(|change| within.contains(change));
        if is_same { Verdict::Same } else { Verdict::CannotSay }
    }

    pub fn name(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Same => "same",
            Verdict::Slower => "slower",
            Verdict::CannotSay => "cannot-say",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which of the p values are discoveries, so that of those at most the part `rate` is expected to be false.
///
/// Benjamini & Hochberg 1995, "Controlling the false discovery rate": the k smallest p values, for the largest k with
/// `p(k) ≤ rate · k / n`.
pub fn discoveries(p_values: &[f64], rate: f64) -> Vec<bool> {
    let mut sorted = p_values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let passes = |&(index, p): &(usize, &f64)| *p <= rate * (index + 1) as f64 / n;
    let limit = sorted.iter().enumerate().filter(passes).map(|(_, p)| *p).next_back();
    p_values.iter().map(|p| limit.is_some_and(|limit| *p <= limit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(lower: f64, ratio: f64, upper: f64, is_discovery: bool) -> Verdict {
        let interval = RatioInterval { ratio, lower, upper, confidence: 0.99 };
        Verdict::of(&interval, is_discovery, Yardstick { floor: 0.01, tolerance: 0.03 })
    }

    #[test]
    fn a_change_needs_interval_discovery_and_size() {
        assert_eq!(verdict(1.02, 1.05, 1.08, true), Verdict::Slower);
        assert_eq!(verdict(0.93, 0.95, 0.97, true), Verdict::Faster);
        assert_eq!(verdict(1.02, 1.05, 1.08, false), Verdict::CannotSay);
        assert_eq!(verdict(1.001, 1.005, 1.009, true), Verdict::Same);
        assert_eq!(verdict(0.99, 1.05, 1.10, true), Verdict::CannotSay);
    }

    #[test]
    fn an_interval_that_is_no_number_says_nothing() {
        assert_eq!(verdict(f64::NAN, f64::NAN, f64::NAN, true), Verdict::CannotSay);
        assert_eq!(verdict(0.0, 1.0, f64::INFINITY, true), Verdict::CannotSay);
    }

    #[test]
    fn no_change_is_shown_only_by_a_narrow_interval() {
        assert_eq!(verdict(0.985, 1.0, 1.015, false), Verdict::Same);
        assert_eq!(verdict(0.9, 1.0, 1.1, false), Verdict::CannotSay);
    }

    #[test]
    fn what_would_matter_is_not_called_the_same_where_noise_hides_it() {
        let interval = RatioInterval { ratio: 1.1, lower: 1.05, upper: 1.15, confidence: 0.99 };
        assert_eq!(Verdict::of(&interval, true, Yardstick { floor: 0.2, tolerance: 0.03 }), Verdict::CannotSay);
    }

    #[test]
    fn discoveries_are_those_of_the_published_procedure() {
        // The example of Benjamini & Hochberg 1995, section 3.2: four of fifteen at 0.05.
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
            0.7590, 1.0,
        ];
        assert_eq!(discoveries(&p, 0.05).iter().filter(|found| **found).count(), 4);
        assert_eq!(discoveries(&[0.04, 0.001, 0.9], 0.05), [false, true, false]);
        assert!(discoveries(&[], 0.05).is_empty());
    }
}
