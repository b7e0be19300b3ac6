//! How well cases work on a backend, device and dtype, in one word, with the reason.

use indexmap::IndexMap;
use serde::Serialize;
use strum::Display;

use crate::definition::Status;
use crate::report::ranking::Entry;
use crate::statistics::median;

/// How well cases work.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Level {
    None,
    Low,
    Medium,
    High,
}

/// The largest multiple of the fastest's time with which a level is high.
const HIGH: f64 = 2.0;
/// The same for a medium level.
const MEDIUM: f64 = 10.0;

/// The rule, for readers.
pub const RULE: &str = "High: all cases are right and take at most 2 × the time of the fastest; medium: all are right and take \
                        at most 10 ×, or have no reference; low: some are right, or all are slower still; none: no case is \
                        right. A case is right if every node ran on the device and in the dtype that was asked for, and \
                        the outputs are within the tolerance.";

/// The level of some cases, and what it follows from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standing {
    pub level: Level,
    /// The status of all cases; `None` if they have different ones.
    pub status: Option<Status>,
    /// Why the level is not higher; empty for the highest.
    pub reason: String,
    pub cases: usize,
    pub right: usize,
    pub max_rel_error: Option<f64>,
    pub smallest_provider_share: Option<f64>,
    /// The median over the cases that are right.
    pub slowdown: Option<f64>,
}

impl Standing {
    /// The standing of these cases together.
    pub fn of(cases: &[Entry<'_>]) -> Self {
        let records = || cases.iter().map(|case| case.record);
        let right: Vec<&Entry<'_>> = cases.iter().filter(|case| case.record.status == Status::Ok).collect();
        let slowdown = median(&right.iter().filter_map(|case| case.ratio_to_best).collect::<Vec<f64>>());
        let (level, reason) = level(cases, &right, slowdown);
        let first = records().next().map(|first| first.status);
        Standing {
            level,
            status: first.filter(|status| records().all(|record| record.status == *status)),
            reason,
            cases: cases.len(),
            right: right.len(),
            max_rel_error: right.iter().filter_map(|case| case.record.max_rel_error).reduce(f64::max),
            smallest_provider_share: records().filter_map(|record| record.provider_share).reduce(f64::min),
            slowdown,
        }
    }

    /// `high, error 1e-6, 1.0 ×`, or `none, unavailable`.
    pub fn text(&self) -> String {
        let slowdown = self.slowdown.filter(|_| self.right > 0).map(|slowdown| format!(", {slowdown:.1} ×"));
        let share = self.smallest_provider_share.filter(|&share| share < 1.0);
        let share = share.map(|share| format!(", {:.1} % of nodes", share * 100.0));
        self.short_text() + &slowdown.unwrap_or_default() + &share.unwrap_or_default()
    }

    /// The same with the error only: `high, error 1e-6`.
    pub fn short_text(&self) -> String {
        let detail = match (self.right, self.status) {
            (0, Some(status)) => format!(", {status}"),
            (right, _) if (1..self.cases).contains(&right) => format!(", {right} of {}", self.cases),
            _ => String::new(),
        };
        let error = self.max_rel_error.filter(|_| self.right > 0).map(|error| format!(", error {error:.0e}"));
        format!("{}{detail}{}", self.level, error.unwrap_or_default())
    }
}

fn level(cases: &[Entry<'_>], right: &[&Entry<'_>], slowdown: Option<f64>) -> (Level, String) {
    if right.len() < cases.len() {
        let level = if right.is_empty() { Level::None } else { Level::Low };
        return (level, failures(cases));
    }
    let slower = |slowdown: f64| format!("{slowdown:.1} times the time of the fastest");
    match slowdown {
        Some(slowdown) if slowdown > MEDIUM => (Level::Low, slower(slowdown)),
        Some(slowdown) if slowdown > HIGH => (Level::Medium, slower(slowdown)),
        _ if right.iter().any(|case| case.record.verified != Some(true)) => {
            (Level::Medium, "there is no reference to compare with".into())
        }
        _ => (Level::High, String::new()),
    }
}

/// The different reasons, each with the first case that has it and how many others do.
fn failures(cases: &[Entry<'_>]) -> String {
    let mut reasons: IndexMap<String, Vec<String>> = IndexMap::new();
    let failed = || cases.iter().map(|case| case.record).filter(|record| record.status != Status::Ok);
    for record in failed() {
        let reason = match &record.message {
            Some(message) => format!("{}: {}", record.status, message.split_whitespace().collect::<Vec<_>>().join(" ")),
            None => record.status.to_string(),
        };
        reasons.entry(reason).or_default().push(record.case().to_string());
    }
    let is_one = reasons.len() == 1 && failed().count() == cases.len();
    let described = reasons.into_iter().map(|(reason, ids)| match ids.as_slice() {
        [id] if !is_one => format!("{id}: {reason}"),
        [id, others @ ..] if !is_one => format!("{id} and {} more: {reason}", others.len()),
        _ => reason,
    });
    described.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::verified;
    use super::*;
    use crate::run_data::Record;

    fn standing(cases: &[(Record, f64)]) -> Standing {
        let entries: Vec<Entry<'_>> =
            cases.iter().map(|(record, ratio)| Entry { record, ratio_to_best: Some(*ratio) }).collect();
        Standing::of(&entries)
    }

    #[test]
    fn the_level_follows_the_rule() {
        let right = || verified("c", 1, Status::Ok);
        assert_eq!(standing(&[(right(), 2.0)]).level, Level::High);
        assert_eq!(standing(&[(right(), 2.1)]).level, Level::Medium);
        assert_eq!(standing(&[(right(), 10.1)]).level, Level::Low);
        assert_eq!(standing(&[(Record { verified: None, ..right() }, 1.0)]).level, Level::Medium);
        assert_eq!(standing(&[(verified("c", 1, Status::Unsupported), 1.0)]).level, Level::None);
    }

    #[test]
    fn one_bad_batch_size_lowers_the_level_and_says_which() {
        let wrong = |batch_size| (verified("c", batch_size, Status::WrongOutput), 1.0);
        let found = standing(&[(verified("c", 1, Status::Ok), 1.0), wrong(8), wrong(16)]);
        assert_eq!((found.level, found.right, found.cases), (Level::Low, 1, 3));
        assert_eq!(found.reason, "m/c-cpu-f32/8 and 1 more: wrong-output: why | how");
        assert_eq!(found.short_text(), "low, 1 of 3, error 1e-6");
        assert_eq!(standing(&[wrong(8)]).short_text(), "none, wrong-output");
    }
}
