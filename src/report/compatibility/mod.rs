//! The compatibility matrix: families of models down, backend and device across, and in each cell a level, with the
//! reason where it is not the highest.

mod level;

use std::collections::BTreeMap;

use serde::Serialize;

pub use level::{Level, RULE};

use super::ruled_table;
use crate::definition::Status;
use crate::harness::{Manifest, Outcomes};

/// What became of one case when it was verified.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifiedCase {
    pub id: String,
    /// Model, phase and sequence length: cases of it are rivals if their batch sizes are the same too.
    pub model: String,
    pub family: String,
    pub contestant: String,
    pub batch_size: usize,
    pub status: Status,
    pub message: Option<String>,
    /// Whether the outputs were compared with a reference, and right.
    pub verified: bool,
    /// The largest error, relative to the largest reference value.
    pub max_rel_error: Option<f64>,
    /// Part of the nodes, from 0 to 1, on the provider of the device.
    pub provider_share: Option<f64>,
    /// Of a few calls only.
    pub rough_call_ms: Option<f64>,
    /// The same over that of the fastest rival that is right.
    pub slowdown: Option<f64>,
}

/// All cases of a family on one contestant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    pub family: String,
    pub contestant: String,
    pub level: Level,
    /// Of all cases, where they have the same.
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

/// The matrix of one verification.
#[derive(Clone, Debug, Serialize)]
pub struct Matrix {
    pub rule: &'static str,
    pub families: Vec<Cell>,
    pub cases: Vec<VerifiedCase>,
}

impl Matrix {
    /// Out of what a verification was to do and what became of it.
    pub fn new(manifest: &Manifest, outcomes: &Outcomes) -> Self {
        Matrix::of(verified_cases(manifest, outcomes))
    }

    fn of(mut cases: Vec<VerifiedCase>) -> Self {
        let mut fastest: BTreeMap<(String, usize), f64> = BTreeMap::new();
        let timed = |case: &VerifiedCase| case.rough_call_ms.filter(|_| case.status == Status::Ok);
        for case in &cases {
            let Some(ms) = timed(case) else { continue };
            let best = fastest.entry((case.model.clone(), case.batch_size)).or_insert(ms);
            *best = best.min(ms);
        }
        for case in &mut cases {
            let best = fastest.get(&(case.model.clone(), case.batch_size)).copied().filter(|&best| best > 0.0);
            case.slowdown = timed(case).zip(best).map(|(ms, best)| ms / best);
        }
        let mut families: Vec<(String, String)> = Vec::new();
        for case in &cases {
            let key = (case.family.clone(), case.contestant.clone());
            if !families.contains(&key) {
                families.push(key);
            }
        }
        let own = |key: &(String, String)| -> Vec<&VerifiedCase> {
            cases.iter().filter(|case| case.family == key.0 && case.contestant == key.1).collect()
        };
        let families = families.iter().map(|key| level::judge(key, &own(key))).collect();
        Matrix { rule: RULE, families, cases }
    }

    /// For a terminal.
    pub fn table(&self) -> String {
        let (families, contestants) = self.axes();
        let mut header = vec!["family"];
        header.extend(contestants.iter().copied());
        let mut table = ruled_table(&header);
        for family in &families {
            table.add_row(std::iter::once((*family).to_owned()).chain(self.row(family, &contestants)));
        }
        let reasons: String = self.reasons().into_iter().map(|reason| format!("{reason}\n")).collect();
        format!("{table}\n\n{}\n{}{reasons}", self.rule, if reasons.is_empty() { "" } else { "\n" })
    }

    /// For a README or a pull request.
    pub fn markdown(&self) -> String {
        let (families, contestants) = self.axes();
        let mut text = format!("| family | {} |\n", contestants.join(" | "));
        text.push_str(&format!("| --- |{}\n", " --- |".repeat(contestants.len())));
        for family in &families {
            text.push_str(&format!("| {family} | {} |\n", self.row(family, &contestants).join(" | ")));
        }
        text.push_str(&format!("\n{}\n", self.rule));
        let reasons = self.reasons();
        if !reasons.is_empty() {
            text.push('\n');
            text.extend(reasons.iter().map(|reason| format!("- {}\n", reason.replace('|', "\\|"))));
        }
        text
    }

    /// Whether the contestant is not on this machine or in this build at all.
    fn is_absent(&self, contestant: &str) -> bool {
        let mut own = self.families.iter().filter(|cell| cell.contestant == contestant);
        own.all(|cell| cell.status == Some(Status::Unavailable))
    }

    fn axes(&self) -> (Vec<&str>, Vec<&str>) {
        let (mut families, mut contestants) = (Vec::new(), Vec::new());
        for Cell { family, contestant, .. } in &self.families {
            if !families.contains(&family.as_str()) {
                families.push(family.as_str());
            }
            if !contestants.contains(&contestant.as_str()) && !self.is_absent(contestant) {
                contestants.push(contestant.as_str());
            }
        }
        (families, contestants)
    }

    fn row(&self, family: &str, contestants: &[&str]) -> Vec<String> {
        let cell = |contestant: &&str| {
            let found = self.families.iter().find(|cell| cell.family == family && cell.contestant == **contestant);
            found.map(Cell::text).unwrap_or_default()
        };
        contestants.iter().map(cell).collect()
    }

    /// Why a cell has no higher level, and why a contestant has no column.
    fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for cell in self.families.iter().filter(|cell| !cell.reason.is_empty()) {
            let reason = if self.is_absent(&cell.contestant) {
                format!("{}: {}", cell.contestant, cell.reason)
            } else {
                format!("{} on {}: {}: {}", cell.family, cell.contestant, cell.level, cell.reason)
            };
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        reasons
    }
}

impl Cell {
    fn text(&self) -> String {
        let share = self.smallest_provider_share.filter(|&share| share < 1.0);
        let share = share.map(|share| format!("{:.1} % of nodes", share * 100.0));
        if self.right == 0 {
            let status = self.status.map(|status| status.to_string());
            return std::iter::once(self.level.to_string()).chain(status).chain(share).collect::<Vec<_>>().join(", ");
        }
        let error = self.max_rel_error.map(|error| format!("error {error:.0e}"));
        let slowdown = self.slowdown.map(|slowdown| format!("{slowdown:.1} ×"));
        let count = (self.right < self.cases).then(|| format!("{} of {}", self.right, self.cases));
        std::iter::once(self.level.to_string())
            .chain([count, error, slowdown, share].into_iter().flatten())
            .collect::<Vec<_>>()
            .join(", ")
    }
}

fn verified_cases(manifest: &Manifest, outcomes: &Outcomes) -> Vec<VerifiedCase> {
    let verified = |planned: &crate::harness::ManifestCase| {
        let id = planned.case.benchmark_id();
        let mut case = VerifiedCase {
            id: planned.case.to_string(),
            model: id.group,
            family: if planned.family.is_empty() { planned.case.model.clone() } else { planned.family.clone() },
            contestant: id.function,
            batch_size: planned.case.batch_size,
            status: Status::Failed,
            message: Some("not reached".into()),
            verified: false,
            max_rel_error: None,
            provider_share: None,
            rough_call_ms: None,
            slowdown: None,
        };
        if let Some(outcome) = outcomes.finished.get(&case.id) {
            let observed = &outcome.observed;
            case.status = outcome.status;
            case.message = outcome.message.clone();
            case.verified = observed.verified == Some(true);
            case.max_rel_error = observed.max_rel_error;
            case.provider_share = observed.provider_share;
            case.rough_call_ms = observed.rough_call_ms;
        } else if let Some(failure) = &planned.failure {
            case.status = failure.status;
            case.message = Some(failure.message.clone());
        }
        case
    };
    manifest.cases.iter().map(verified).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn case(contestant: &str, status: Status, rough_call_ms: f64) -> VerifiedCase {
        VerifiedCase {
            id: format!("m/{contestant}/1"),
            model: "m".into(),
            family: "f".into(),
            contestant: contestant.into(),
            batch_size: 1,
            status,
            message: (status != Status::Ok).then(|| "why | how".to_owned()),
            verified: status == Status::Ok,
            max_rel_error: Some(1e-6),
            provider_share: None,
            rough_call_ms: Some(rough_call_ms),
            slowdown: None,
        }
    }

    #[test]
    fn rivals_are_compared_with_the_fastest_that_is_right() {
        let cases = vec![
            case("wrong", Status::WrongOutput, 0.1),
            case("fast", Status::Ok, 1.0),
            case("slow", Status::Ok, 30.0),
        ];
        let matrix = Matrix::of(cases);
        let of = |contestant: &str| matrix.families.iter().find(|cell| cell.contestant == contestant).unwrap();
        assert_eq!((of("wrong").level, of("wrong").slowdown), (Level::None, None));
        assert_eq!((of("fast").level, of("fast").slowdown), (Level::High, Some(1.0)));
        assert_eq!((of("slow").level, of("slow").slowdown), (Level::Low, Some(30.0)));
        let table = matrix.table();
        assert!(table.contains("high, error 1e-6, 1.0 ×") && table.contains(RULE), "{table}");
        assert!(table.contains("f on wrong: none: wrong-output: why | how"), "{table}");
        assert!(matrix.markdown().contains("- f on wrong: none: wrong-output: why \\| how\n"));
    }

    #[test]
    fn a_contestant_that_is_not_here_is_one_line_and_no_column() {
        let absent = |model: &str| VerifiedCase {
            family: model.into(),
            message: Some("no driver".into()),
            ..case("gpu", Status::Unavailable, 1.0)
        };
        let text = Matrix::of(vec![case("cpu", Status::Ok, 1.0), absent("f"), absent("g")]).markdown();
        assert!(text.starts_with("| family | cpu |\n") && text.contains("\n- gpu: unavailable: no driver\n"), "{text}");
        assert_eq!(text.matches("gpu").count(), 1, "{text}");
    }
}
