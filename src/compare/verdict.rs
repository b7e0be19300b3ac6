//! The verdicts of "is the candidate faster than the base?", and what each of them takes.
//!
//! Every comparison of times in this project ends here, whatever its estimator is: an estimator makes a [`RatioEstimate`],
//! says how large a change must be ([`Limits`]), and [`verdicts`] decides for all cases at once. A change is shown if three
//! things are true: the interval of the ratio excludes 1, the change is a discovery among those of all cases (Benjamini &
//! Hochberg 1995), and it is larger than the limits. That nothing has changed has to be shown, too: the interval must lie
//! within the tolerance. (It is the equivalence test of Schuirmann 1987, "A comparison of the two one-sided tests procedure
//! and the power approach".) A gate asks less: that the candidate is not slower by more than the tolerance, for which the
//! interval's upper bound decides alone (a test of non-inferiority; Wellek 2010, "Testing Statistical Hypotheses of
//! Equivalence and Noninferiority", chapter 2).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statistics::discoveries;

/// What can be said about the candidate, compared with the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(Serialize, Deserialize, JsonSchema, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Verdict {
    /// The candidate is faster, for sure and by more than the limits.
    Faster,
    /// No change that would matter.
    Same,
    /// Not slower by more than the tolerance; it may be the same or faster.
    NotSlower,
    /// The candidate is slower, for sure and by more than the limits.
    Slower,
    /// The interval holds a slow-down that would matter, and smaller changes too.
    CannotSay,
}

/// The candidate's time over the base's, with the interval in which it lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RatioInterval {
    pub ratio: f64,
    pub lower: f64,
    pub upper: f64,
    /// The confidence of the interval, from 0 to 1.
    pub confidence: f64,
}

/// The result of an estimator for a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatioEstimate {
    pub interval: RatioInterval,
    /// The probability of a ratio that is this far from 1, or farther, if nothing has changed.
    pub p_value: f64,
}

/// How large a change must be, as fractions of the base's time: 0.02 is 2 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Changes up to the floor are what identical code shows on this machine, whatever the interval says.
    pub floor: f64,
    /// Builds of identical code may differ by so much: the whole interval has to be beyond it.
    pub layout: f64,
    /// Changes up to the tolerance do not matter to the user.
    pub tolerance: f64,
}

/// The finding about one case of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub verdict: Verdict,
    /// The change is sure and above the floor, and within the tolerance: it is worth a notice, and is not a regression.
    pub is_small_change: bool,
    /// The change is sure and beyond floor and tolerance, and has no verdict because builds of equal code may differ by as much.
    pub is_within_layout: bool,
}

/// What two builds of identical code can differ by: where the linker puts functions changes alignment and caches. A null
/// control runs one executable twice and cannot see it, nor can repeated runs of one build.
///
/// Mytkowicz et al. 2009, "Producing wrong data without doing anything obviously wrong!", find several per cent for compiled
/// benchmarks; a call of a model spends nearly all its time in libraries that both builds share, so this is less.
pub const LAYOUT_FLOOR: f64 = 0.01;

/// If identical code differs by more than this, nothing is said about a case: it has to be measured again.
pub const MOST_FLOOR: f64 = 0.5;

impl Verdict {
    /// Whether it is `faster` or `slower`.
    pub fn is_change(self) -> bool {
        matches!(self, Verdict::Faster | Verdict::Slower)
    }

    /// Whether a slow-down that would matter is excluded.
    pub fn excludes_regression(self) -> bool {
        matches!(self, Verdict::Faster | Verdict::Same | Verdict::NotSlower)
    }
}

impl RatioInterval {
    /// From the logarithms of the ratio and of its bounds.
    pub fn of_logarithms([ratio, lower, upper]: [f64; 3], confidence: f64) -> Self {
        RatioInterval { ratio: ratio.exp(), lower: lower.exp(), upper: upper.exp(), confidence }
    }

    /// Returns true if the interval lies on one side of 1, so that a change is shown.
    pub fn excludes_one(&self) -> bool {
        self.lower > 1.0 || self.upper < 1.0
    }

    /// The largest change in either direction that the interval allows, as a fraction: 0.03 for `[0.98, 1.03]`.
    pub fn largest_change(&self) -> f64 {
        self.upper.max(1.0 / self.lower) - 1.0
    }
}

impl Limits {
    /// What builds of identical code may differ by, because their machine code lies elsewhere.
    pub fn layout(is_same_build: bool) -> f64 {
        if is_same_build { 0.0 } else { LAYOUT_FLOOR }
    }

    /// Limits with the floor that a null control shows, which is the larger bound of its interval.
    pub fn of_null(null: &RatioInterval, is_same_build: bool, tolerance: f64) -> Self {
        Limits { floor: null.largest_change(), layout: Limits::layout(is_same_build), tolerance }
    }
}

/// The findings for all cases of a comparison, in their order. At most the fraction `false_discovery_rate` of the changes that
/// pass are expected to be false.
pub fn verdicts(cases: &[(RatioEstimate, Limits)], false_discovery_rate: f64) -> Vec<Finding> {
    let p_values: Vec<f64> = cases.iter().map(|(estimate, _)| estimate.p_value).collect();
    let is_discovery = discoveries(&p_values, false_discovery_rate);
    cases
        .iter()
        .zip(is_discovery)
        .map(|((estimate, limits), found)| finding(&estimate.interval, found, *limits))
        .collect()
}

fn finding(interval: &RatioInterval, is_discovery: bool, limits: Limits) -> Finding {
    let is_beyond = |limit: f64| interval.ratio > 1.0 + limit || interval.ratio < 1.0 / (1.0 + limit);
    let excludes = |limit: f64| interval.lower > 1.0 + limit || interval.upper < 1.0 / (1.0 + limit);
    let is_above_noise = is_discovery && is_beyond(limits.floor);
    let is_sure = excludes(limits.layout) && is_above_noise;
    if limits.floor > MOST_FLOOR {
        return Finding { verdict: Verdict::CannotSay, is_small_change: false, is_within_layout: false };
    }
    let tolerated = 1.0 / (1.0 + limits.tolerance)..=1.0 + limits.tolerance;
    let verdict = if is_sure && is_beyond(limits.tolerance) {
        if interval.ratio > 1.0 { Verdict::Slower } else { Verdict::Faster }
    } else if tolerated.contains(&interval.lower) && tolerated.contains(&interval.upper) {
        Verdict::Same
    } else if interval.lower > 0.0 && interval.upper <= *tolerated.end() {
        Verdict::NotSlower
    } else {
        // An interval that is not a number ends here, too.
        Verdict::CannotSay
    };
    Finding {
        verdict,
        is_small_change: is_sure && !verdict.is_change(),
        is_within_layout: is_above_noise && excludes(0.0) && is_beyond(limits.tolerance) && !is_beyond(limits.layout),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { floor: 0.01, layout: 0.0, tolerance: 0.03 };

    fn found(lower: f64, ratio: f64, upper: f64, is_discovery: bool) -> (Verdict, bool) {
        let Finding { verdict, is_small_change, .. } =
            finding(&RatioInterval { ratio, lower, upper, confidence: 0.99 }, is_discovery, LIMITS);
        (verdict, is_small_change)
    }

    #[test]
    fn a_change_needs_interval_discovery_and_size() {
        assert_eq!(found(1.02, 1.05, 1.08, true), (Verdict::Slower, false));
        assert_eq!(found(0.93, 0.95, 0.97, true), (Verdict::Faster, false));
        assert_eq!(found(1.02, 1.05, 1.08, false), (Verdict::CannotSay, false));
        assert_eq!(found(0.99, 1.05, 1.10, true), (Verdict::CannotSay, false));
    }

    #[test]
    fn a_sure_change_within_the_tolerance_is_a_notice_and_no_regression() {
        assert_eq!(found(1.016, 1.02, 1.024, true), (Verdict::Same, true));
        assert_eq!(found(0.976, 0.98, 0.984, true), (Verdict::Same, true));
        assert_eq!(found(1.015, 1.025, 1.035, true), (Verdict::CannotSay, true));
        // Below the floor, the change is the machine's.
        assert_eq!(found(1.001, 1.005, 1.009, true), (Verdict::Same, false));
    }

    #[test]
    fn an_interval_that_is_not_a_number_says_nothing() {
        assert_eq!(found(f64::NAN, f64::NAN, f64::NAN, true), (Verdict::CannotSay, false));
        assert_eq!(found(0.0, 1.0, f64::INFINITY, true), (Verdict::CannotSay, false));
    }

    #[test]
    fn no_change_is_shown_only_by_a_narrow_interval() {
        assert_eq!(found(0.985, 1.0, 1.015, false), (Verdict::Same, false));
        assert_eq!(found(0.9, 1.0, 1.1, false), (Verdict::CannotSay, false));
    }

    #[test]
    fn a_slow_down_that_is_excluded_needs_only_the_upper_bound() {
        // Not the same within 3 %, and not slower by 3 % either.
        assert_eq!(found(0.96, 0.99, 1.02, false), (Verdict::NotSlower, false));
        // Faster for sure, and perhaps by less than would matter.
        assert_eq!(found(0.96, 0.975, 0.99, true), (Verdict::NotSlower, true));
        assert_eq!(found(0.96, 0.99, 1.031, false), (Verdict::CannotSay, false));
        let excluding = [Verdict::Faster, Verdict::Same, Verdict::NotSlower, Verdict::Slower, Verdict::CannotSay];
        assert_eq!(excluding.map(Verdict::excludes_regression), [true, true, true, false, false]);
    }

    #[test]
    fn a_change_that_would_matter_is_not_the_same_where_noise_hides_it() {
        let interval = RatioInterval { ratio: 1.1, lower: 1.05, upper: 1.15, confidence: 0.99 };
        let found = finding(&interval, true, Limits { floor: 0.2, layout: 0.0, tolerance: 0.03 });
        assert_eq!((found.verdict, found.is_small_change), (Verdict::CannotSay, false));
    }

    #[test]
    fn a_floor_above_half_of_the_time_leaves_no_verdict() {
        let interval = RatioInterval { ratio: 9.0, lower: 8.0, upper: 10.0, confidence: 0.99 };
        let verdict = |floor| finding(&interval, true, Limits { floor, layout: 0.0, tolerance: 0.03 }).verdict;
        assert_eq!([verdict(0.5), verdict(0.51)], [Verdict::Slower, Verdict::CannotSay]);
    }

    #[test]
    fn the_floor_of_a_null_control_is_its_larger_bound() {
        let null = RatioInterval { ratio: 1.01, lower: 0.999, upper: 1.03, confidence: 0.99 };
        assert!((Limits::of_null(&null, true, 0.0).floor - 0.03).abs() < 1e-12);
        let faster = RatioInterval { ratio: 0.99, lower: 0.95, upper: 1.001, confidence: 0.99 };
        assert!((Limits::of_null(&faster, true, 0.0).floor - (1.0 / 0.95 - 1.0)).abs() < 1e-12);
    }

    #[test]
    fn a_change_of_another_build_is_beyond_what_its_layout_may_do() {
        let found = |lower, layout| {
            let interval = RatioInterval { ratio: 1.03, lower, upper: 1.05, confidence: 0.99 };
            let found = finding(&interval, true, Limits { floor: 0.0, layout, tolerance: 0.015 });
            (found.verdict, found.is_within_layout)
        };
        assert_eq!(
            [found(1.005, Limits::layout(true)), found(1.005, Limits::layout(false))],
            [(Verdict::Slower, false), (Verdict::CannotSay, false)]
        );
        assert_eq!(found(1.011, Limits::layout(false)), (Verdict::Slower, false));
        assert_eq!(found(0.995, Limits::layout(false)), (Verdict::CannotSay, false), "not sure");
    }

    #[test]
    fn many_cases_are_decided_together() {
        let estimate = |p_value| RatioEstimate {
            interval: RatioInterval { ratio: 1.1, lower: 1.05, upper: 1.15, confidence: 0.99 },
            p_value,
        };
        let cases = [(estimate(0.001), LIMITS), (estimate(0.009), LIMITS), (estimate(0.9), LIMITS)];
        let found: Vec<Verdict> = verdicts(&cases, 0.01).iter().map(|finding| finding.verdict).collect();
        assert_eq!(found, [Verdict::Slower, Verdict::CannotSay, Verdict::CannotSay]);
        assert_eq!(verdicts(&cases[1..2], 0.01)[0].verdict, Verdict::Slower);
    }

    #[test]
    fn verdicts_are_named_as_in_files() {
        assert_eq!(format!("{:>11}|", Verdict::CannotSay), " cannot-say|");
        assert_eq!(serde_json::to_string(&Verdict::CannotSay).unwrap(), "\"cannot-say\"");
        assert_eq!(serde_json::to_string(&Verdict::NotSlower).unwrap(), format!("\"{}\"", Verdict::NotSlower));
    }
}
