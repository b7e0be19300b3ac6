//! The compatibility matrix: families of models down, configurations (backend, device and dtype) across, and in each cell a
//! level, with the reason if it is not the highest.

use indexmap::{IndexMap, IndexSet};
use schemars::JsonSchema;
use serde::Serialize;
use strum::Display;

use super::ranking::{Entry, ratios_to_best};
use super::table::{Column, Table};
use super::{Format, json};
use crate::definition::Status;
use crate::run_data::{Outcomes, Record};
use crate::statistics::median;

/// How well cases work.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
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
pub const RULE: &str = "High: all cases are right and take, in the median over the cases, at most 2 × the time of the \
                        fastest; medium: all are right and take at most 10 ×, or have no reference; low: some are right, \
                        or all are right and slower still; none: no case is right. A case is right if every node ran on \
                        the device and in the dtype that was asked for, and the outputs are within the tolerance.";

/// A note on the times that a verification shows.
const ROUGH: &str = "The times are medians of at most 25 calls: they are rough, and `inferbench run` measures them";

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
        let share = share.map(|share| format!(", {:.1} % of nodes", (share * 1000.0).floor() / 10.0));
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
    // Rounded up, so that no slow-down looks as if it were within a limit.
    let slower = |slowdown: f64| format!("{:.1} times the time of the fastest", (slowdown * 10.0).ceil() / 10.0);
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

/// What became of one case when it was verified: a record without latencies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifiedCase {
    #[serde(flatten)]
    pub record: Record,
    /// The time of a call, from a few calls only.
    pub rough_call_ms: Option<f64>,
    /// The time over that of the fastest case that does the same work and is right.
    pub slowdown: Option<f64>,
}

/// All cases of a family on one configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    pub family: String,
    pub configuration: String,
    #[serde(flatten)]
    pub standing: Standing,
}

/// The matrix of one verification.
#[derive(Clone, Debug, Serialize)]
pub struct Matrix {
    pub rule: &'static str,
    pub families: Vec<Cell>,
    pub cases: Vec<VerifiedCase>,
}

impl Matrix {
    /// The matrix of a verification: a record for each case, and the outcomes that the records are made of.
    pub fn new(records: Vec<Record>, outcomes: &Outcomes) -> Self {
        let rough = |record: &Record| outcomes.finished.get(&record.case_id)?.rough_call_ms;
        Matrix::of(records.into_iter().map(|record| (rough(&record), record)).collect())
    }

    fn of(cases: Vec<(Option<f64>, Record)>) -> Self {
        let time = |rough: &Option<f64>, record: &Record| rough.filter(|_| record.status == Status::Ok);
        let work = |record: &Record| (record.case().benchmark_id().group, record.batch_size);
        let times: Vec<_> = cases.iter().map(|(rough, record)| (work(record), time(rough, record))).collect();
        let cases = cases.into_iter().zip(ratios_to_best(&times));
        let case = |((rough_call_ms, record), slowdown)| VerifiedCase { record, rough_call_ms, slowdown };
        let cases: Vec<VerifiedCase> = cases.map(case).collect();
        let mut families: IndexMap<(&String, String), Vec<Entry<'_>>> = IndexMap::new();
        for VerifiedCase { record, slowdown, .. } in &cases {
            let family = if record.family.is_empty() { &record.model } else { &record.family };
            let entry = Entry { record, ratio_to_best: *slowdown };
            families.entry((family, record.case().benchmark_id().function)).or_default().push(entry);
        }
        let cell = |((family, configuration), cases): ((&String, _), Vec<_>)| Cell {
            family: family.clone(),
            configuration,
            standing: Standing::of(&cases),
        };
        Matrix { rule: RULE, families: families.into_iter().map(cell).collect(), cases }
    }

    /// The matrix to read: families down, configurations across, then the rule and the reasons.
    pub fn render(&self, format: Format) -> String {
        let families: IndexSet<&str> = self.families.iter().map(|cell| cell.family.as_str()).collect();
        let configurations = self.families.iter().map(|cell| cell.configuration.as_str());
        let configurations: IndexSet<&str> = configurations.filter(|it| !self.is_absent(it)).collect();
        let columns = ["family"].into_iter().chain(configurations.iter().copied()).map(Column::text);
        let mut table = Table::new(columns);
        for family in families {
            let cell = |configuration: &&str| {
                let mut own = self.families.iter().filter(|cell| cell.family == family);
                let found = own.find(|cell| cell.configuration == *configuration);
                found.map(|cell| cell.standing.text()).unwrap_or_default()
            };
            table.row([family.to_owned()].into_iter().chain(configurations.iter().map(cell)));
        }
        table.footnote(self.rule);
        if self.families.iter().any(|cell| cell.standing.slowdown.is_some()) {
            table.footnote(ROUGH);
        }
        self.reasons().into_iter().for_each(|reason| table.footnote(reason));
        match format {
            Format::Table => table.terminal(),
            Format::Markdown => table.markdown(),
            Format::Json => json(self),
        }
    }

    /// Whether the configuration is not available on this machine or in this build at all.
    fn is_absent(&self, configuration: &str) -> bool {
        let mut own = self.families.iter().filter(|cell| cell.configuration == configuration);
        own.all(|cell| cell.standing.status == Some(Status::Unavailable))
    }

    /// Why a cell has no higher level, and why a configuration has no column; each reason once.
    fn reasons(&self) -> IndexSet<String> {
        let cells = self.families.iter().filter(|cell| !cell.standing.reason.is_empty());
        let reason = |Cell { family, configuration, standing }: &Cell| match self.is_absent(configuration) {
            true => format!("{configuration}: {}", standing.reason),
            false => format!("{family} on {configuration}: {}: {}", standing.level, standing.reason),
        };
        cells.map(reason).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Case;
    use crate::report::tests::record;

    /// A record of a model of the family `f`, with a message unless it is right.
    fn verified(backend: &str, batch_size: usize, status: Status) -> Record {
        Record {
            case_id: Case::new("m", backend, batch_size).to_string(),
            family: "f".into(),
            status,
            message: (status != Status::Ok).then(|| "why | how".to_owned()),
            verified: Some(status == Status::Ok),
            max_rel_error: Some(1e-6),
            ..record("m", backend, batch_size, None)
        }
    }

    #[test]
    fn slowdowns_are_over_the_fastest_that_is_right() {
        let matrix = Matrix::of(vec![
            (Some(0.1), verified("wrong", 1, Status::WrongOutput)),
            (Some(1.0), verified("fast", 1, Status::Ok)),
            (Some(30.0), verified("slow", 1, Status::Ok)),
        ]);
        let of = |backend: &str| {
            &matrix.families.iter().find(|cell| cell.configuration.starts_with(backend)).unwrap().standing
        };
        assert_eq!((of("wrong").level, of("wrong").slowdown), (Level::None, None));
        assert_eq!((of("fast").level, of("fast").slowdown), (Level::High, Some(1.0)));
        assert_eq!((of("slow").level, of("slow").slowdown), (Level::Low, Some(30.0)));
        let table = matrix.render(Format::Table);
        assert!(table.contains("high, error 1e-6, 1.0 ×") && table.contains(RULE) && table.contains(ROUGH), "{table}");
        assert!(table.contains("f on wrong-cpu-f32: none: wrong-output: why | how"), "{table}");
        assert!(matrix.render(Format::Markdown).contains("- f on wrong-cpu-f32: none: wrong-output: why \\| how\n"));
    }

    #[test]
    fn a_configuration_that_is_unavailable_is_one_line_and_no_column() {
        let absent = |family: &str| {
            let record = verified("gpu", 1, Status::Unavailable);
            (None, Record { family: family.into(), message: Some("no driver".into()), ..record })
        };
        let cases = vec![(Some(1.0), verified("ort", 1, Status::Ok)), absent("f"), absent("g")];
        let text = Matrix::of(cases).render(Format::Markdown);
        let line = "\n- gpu-cpu-f32: unavailable: no driver\n";
        assert!(text.starts_with("| family | ort-cpu-f32 |\n") && text.contains(line), "{text}");
        assert_eq!(text.matches("gpu").count(), 1, "{text}");
    }

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
        // One slow case among many does not lower the level, and the rule says so.
        assert_eq!(standing(&[(right(), 1.0), (right(), 1.5), (right(), 50.0)]).level, Level::High);
        assert!(RULE.starts_with("High: all cases are right and take, in the median over the cases, at most 2 ×"));
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
