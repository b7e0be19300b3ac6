//! From the rounds to the verdicts.
//!
//! A round gives each contestant one figure a case, the smaller of its two processes' medians: others on the machine only
//! ever make a process slower (Chen & Revels 2016, "Robust benchmarking in noisy environments"). The round is
//! the unit of replication (Kalibera & Jones 2013, "Rigorous benchmarking in reasonable time"), interleaved as in duet
//! benchmarking (Bulej et al. 2020, "Duet benchmarking: improving measurement accuracy in the cloud"). The candidate's
//! differences from the base are judged; those of the null control from the same base, in the same rounds, say what the
//! machine does to a program that has not changed. That its ratio is 1 is known, so only the width of its interval tells
//! something: half of it is the floor. Where it does not hold 1 all the same, nothing is said.

use serde::{Deserialize, Serialize};

use super::{betting, signed_rank};
use crate::compare::{RatioInterval, Verdict, Yardstick, discoveries};

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
    let found = discoveries(&p_values(&changes), FALSE_DISCOVERIES);
    let null_found = discoveries(&p_values(&nulls), FALSE_DISCOVERIES);
    let judge_one = |index: usize| {
        let (change, null) = (&changes[index], &nulls[index]);
        let moved = Yardstick { floor: NULL_MAY_MOVE, tolerance: rule.tolerance };
        let is_change = |verdict| matches!(verdict, Verdict::Faster | Verdict::Slower);
        let is_null_changed =
            null.interval.is_some_and(|interval| is_change(Verdict::of(&interval, null_found[index], moved)));
        let floor = null.interval.map(|interval| (interval.upper / interval.lower).sqrt() - 1.0);
        let verdict = match (change.interval, floor) {
            (Some(interval), Some(floor)) if !is_null_changed => {
                Verdict::of(&interval, found[index], Yardstick { floor, tolerance: rule.tolerance })
            }
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
}

fn p_values(evidence: &[Evidence]) -> Vec<f64> {
    evidence.iter().map(|evidence| evidence.p_value).collect()
}

fn geometric_mean(logarithms: &[f64]) -> f64 {
    (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp()
}
