//! From the rounds to the verdicts.
//!
//! A round gives each contestant one figure a case, the smaller of its two processes' medians: others on the machine only
//! ever make a process slower (Chen & Revels 2016, "Robust benchmarking in noisy environments"). The round is
//! the unit of replication (Kalibera & Jones 2013, "Rigorous benchmarking in reasonable time"), interleaved as in duet
//! benchmarking (Bulej et al. 2020, "Duet benchmarking: improving measurement accuracy in the cloud"). The candidate's
//! differences from the base are judged; those of the null control from the same base, in the same rounds, say what the
//! machine does to a program that has not changed. The larger bound of its interval is the floor. Where the interval does
//! not hold 1, nothing is said.

use serde::{Deserialize, Serialize};

use super::{betting, signed_rank};
use crate::compare::{Limits, RatioEstimate, RatioInterval, Verdict, verdicts};
use crate::statistics::geometric_mean;

/// Expected part of false ones among the changes that are shown, over all cases.
pub const FALSE_DISCOVERIES: f64 = 0.01;
const CONFIDENCE: f64 = 1.0 - FALSE_DISCOVERIES;
/// A null control that moves by more than this, and surely, makes the duel void. Less than this is in the floor.
const NULL_MAY_MOVE: f64 = 0.01;

/// How rounds are judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Whether one looks after every round.
    pub is_sequential: bool,
    /// Changes up to this do not matter.
    pub tolerance: f64,
}

/// The figures of one case: natural logarithms of nanoseconds, one a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseRounds {
    pub base: Vec<f64>,
    pub null: Vec<f64>,
    pub candidate: Vec<f64>,
}

/// What the rounds say of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    pub verdict: Verdict,
    /// The candidate over the base; absent while there are too few rounds for an interval.
    pub change: Option<RatioInterval>,
    /// The null control over the base.
    pub null: Option<RatioInterval>,
    pub p_value: f64,
    pub null_p_value: f64,
    /// The null control shows a change: nothing can be said of the candidate.
    pub is_null_changed: bool,
    pub floor: Option<f64>,
    pub rounds: usize,
    /// Geometric means of the medians.
    pub base_ns: f64,
    pub candidate_ns: f64,
}

/// Judges all cases of a duel at once.
pub fn judge(cases: &[CaseRounds], rule: Rule) -> Vec<Judgement> {
    let changes: Vec<Evidence> = cases.iter().map(|case| Evidence::of(&case.candidate, &case.base, rule)).collect();
    let nulls: Vec<Evidence> = cases.iter().map(|case| Evidence::of(&case.null, &case.base, rule)).collect();
    let limits = |null: &Evidence| {
        let floor = null.interval.map_or(f64::INFINITY, |interval| interval.largest_change());
        Limits { floor, tolerance: rule.tolerance }
    };
    let decide = |evidence: &[Evidence], limits: Vec<Limits>| {
        let cases: Vec<_> = evidence.iter().map(Evidence::estimate).zip(limits).collect();
        verdicts(&cases, FALSE_DISCOVERIES)
    };
    let found = decide(&changes, nulls.iter().map(limits).collect());
    let null_found = decide(&nulls, vec![Limits { floor: NULL_MAY_MOVE, tolerance: 0.0 }; nulls.len()]);
    let judge_one = |index: usize| {
        let (change, null) = (&changes[index], &nulls[index]);
        let is_null_changed = null.interval.is_some() && null_found[index].verdict.is_change();
        let floor = null.interval.map(|interval| interval.largest_change());
        let verdict = match (change.interval, floor) {
            (Some(_), Some(_)) if !is_null_changed => found[index].verdict,
            _ => Verdict::CannotSay,
        };
        Judgement {
            verdict,
            change: change.interval,
            null: null.interval,
            p_value: change.p_value,
            null_p_value: null.p_value,
            is_null_changed,
            floor,
            rounds: cases[index].base.len(),
            base_ns: geometric_mean(&cases[index].base),
            candidate_ns: geometric_mean(&cases[index].candidate),
        }
    };
    (0..cases.len()).map(judge_one).collect()
}

struct Evidence {
    interval: Option<RatioInterval>,
    p_value: f64,
}

impl Evidence {
    fn of(contestant: &[f64], base: &[f64], rule: Rule) -> Self {
        let differences: Vec<f64> = contestant.iter().zip(base).map(|(own, other)| own - other).collect();
        let Some(middle) = signed_rank::estimate(&differences) else {
            return Evidence { interval: None, p_value: 1.0 };
        };
        let (ends, p_value) = if rule.is_sequential {
            (betting::interval(&differences, middle, CONFIDENCE), betting::p_value(&differences))
        } else {
            (signed_rank::interval(&differences, CONFIDENCE), signed_rank::p_value(&differences))
        };
        let interval = ends.map(|(lower, upper)| RatioInterval {
            ratio: middle.exp(),
            lower: lower.exp(),
            upper: upper.exp(),
            confidence: CONFIDENCE,
        });
        Evidence { interval, p_value }
    }

    /// Without an interval anything may be true.
    fn estimate(&self) -> RatioEstimate {
        let unknown = RatioInterval { ratio: 1.0, lower: 0.0, upper: f64::INFINITY, confidence: CONFIDENCE };
        RatioEstimate { interval: self.interval.unwrap_or(unknown), p_value: self.p_value }
    }
}
