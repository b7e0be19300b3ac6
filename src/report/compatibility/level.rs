//! How well a family of models works on a contestant, in one word.

use std::fmt;

use serde::Serialize;

use super::{Cell, VerifiedCase};
use crate::definition::Status;

/// How well a family works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    None,
    Low,
    Medium,
    High,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::None => "none",
            Level::Low => "low",
            Level::Medium => "medium",
            Level::High => "high",
        })
    }
}

/// Times the fastest's time, up to which a level is high.
const HIGH: f64 = 2.0;
/// The same for a medium one.
const MEDIUM: f64 = 10.0;

/// The rule, for readers.
pub const RULE: &str = "high: all cases are right, and take at most 2 × the time of the fastest; medium: all are right, and take \
                        at most 10 ×, or have no reference; low: some are right, or slower still; none: no case is right. \
                        Right means that every node ran on the device that was asked for, in the dtype that was asked for, \
                        with outputs within the tolerance. × is of a few calls: `inferbench run` measures.";

/// The cell of a family on a contestant: `key`.
pub(super) fn judge(key: &(String, String), cases: &[&VerifiedCase]) -> Cell {
    let right: Vec<&&VerifiedCase> = cases.iter().filter(|case| case.status == Status::Ok).collect();
    let largest = |values: Vec<f64>| values.into_iter().reduce(f64::max);
    let mut slowdowns: Vec<f64> = right.iter().filter_map(|case| case.slowdown).collect();
    slowdowns.sort_by(f64::total_cmp);
    let slowdown = slowdowns.get(slowdowns.len() / 2).copied();
    let (level, reason) = level(cases, &right, slowdown);
    Cell {
        family: key.0.clone(),
        contestant: key.1.clone(),
        level,
        status: cases
            .first()
            .map(|first| first.status)
            .filter(|status| cases.iter().all(|case| case.status == *status)),
        reason,
        cases: cases.len(),
        right: right.len(),
        max_rel_error: largest(right.iter().filter_map(|case| case.max_rel_error).collect()),
        smallest_provider_share: cases.iter().filter_map(|case| case.provider_share).reduce(f64::min),
        slowdown,
    }
}

fn level(cases: &[&VerifiedCase], right: &[&&VerifiedCase], slowdown: Option<f64>) -> (Level, String) {
    if right.len() < cases.len() {
        let level = if right.is_empty() { Level::None } else { Level::Low };
        return (level, failures(cases));
    }
    let slower = |slowdown: f64| format!("{slowdown:.1} times the time of the fastest");
    match slowdown {
        Some(slowdown) if slowdown > MEDIUM => (Level::Low, slower(slowdown)),
        Some(slowdown) if slowdown > HIGH => (Level::Medium, slower(slowdown)),
        _ if right.iter().any(|case| !case.verified) => (Level::Medium, "there is no reference to compare with".into()),
        _ => (Level::High, String::new()),
    }
}

/// The different reasons, each with the first case that has it and how many others do.
fn failures(cases: &[&VerifiedCase]) -> String {
    let mut reasons: Vec<(String, &str, usize)> = Vec::new();
    for case in cases.iter().filter(|case| case.status != Status::Ok) {
        let reason = match &case.message {
            Some(message) => format!("{}: {}", case.status, message.split_whitespace().collect::<Vec<_>>().join(" ")),
            None => case.status.to_string(),
        };
        match reasons.iter_mut().find(|(known, ..)| *known == reason) {
            Some((_, _, others)) => *others += 1,
            None => reasons.push((reason, &case.id, 0)),
        }
    }
    let is_one = reasons.len() == 1 && cases.iter().all(|case| case.status != Status::Ok);
    let described = reasons.into_iter().map(|(reason, id, others)| match (is_one, others) {
        (true, _) => reason,
        (false, 0) => format!("{id}: {reason}"),
        (false, others) => format!("{id} and {others} more: {reason}"),
    });
    described.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::case;
    use super::*;

    fn judged(cases: &[VerifiedCase]) -> Cell {
        judge(&("f".into(), "c".into()), &cases.iter().collect::<Vec<_>>())
    }

    fn with_slowdown(slowdown: f64) -> VerifiedCase {
        VerifiedCase { slowdown: Some(slowdown), ..case("c", Status::Ok, 1.0) }
    }

    #[test]
    fn the_level_follows_the_rule() {
        assert_eq!(judged(&[with_slowdown(2.0)]).level, Level::High);
        assert_eq!(judged(&[with_slowdown(2.1)]).level, Level::Medium);
        assert_eq!(judged(&[with_slowdown(10.1)]).level, Level::Low);
        let unverified = VerifiedCase { verified: false, ..with_slowdown(1.0) };
        assert_eq!(judged(&[unverified]).level, Level::Medium);
        assert_eq!(judged(&[case("c", Status::Unsupported, 1.0)]).level, Level::None);
    }

    #[test]
    fn one_bad_batch_size_spoils_the_cell_and_says_which() {
        let wrong = VerifiedCase { id: "m/c/8".into(), ..case("c", Status::WrongOutput, 1.0) };
        let cell = judged(&[with_slowdown(1.0), wrong.clone(), VerifiedCase { id: "m/c/16".into(), ..wrong }]);
        assert_eq!((cell.level, cell.right, cell.cases), (Level::Low, 1, 3));
        assert_eq!(cell.reason, "m/c/8 and 1 more: wrong-output: why | how");
    }
}
