//! The compatibility matrix: families of models down, configurations (backend, device and dtype) across, and in each cell a
//! level, with the reason if it is not the highest.

mod level;

use std::collections::BTreeMap;

use serde::Serialize;

pub use level::{Level, RULE, Standing};

use super::Format;
use super::table::{Column, Table};
use crate::definition::{Case, Status};
use crate::run_data::{Manifest, ManifestCase, Outcomes, Record};

/// What became of one case when it was verified.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifiedCase {
    pub id: String,
    /// Model, phase and sequence length: cases with the same model and batch size do the same work.
    pub model: String,
    pub family: String,
    pub configuration: String,
    pub batch_size: usize,
    pub status: Status,
    pub message: Option<String>,
    /// Whether the outputs were compared with a reference, and right.
    pub verified: bool,
    /// The largest error, relative to the largest reference value.
    pub max_rel_error: Option<f64>,
    /// The fraction of the nodes, from 0 to 1, on the provider of the device.
    pub provider_share: Option<f64>,
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
    /// The matrix of a verification: its planned cases, and what became of them.
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
            let key = (case.family.clone(), case.configuration.clone());
            if !families.contains(&key) {
                families.push(key);
            }
        }
        let own = |key: &(String, String)| -> Vec<&VerifiedCase> {
            cases.iter().filter(|case| case.family == key.0 && case.configuration == key.1).collect()
        };
        let families = families
            .iter()
            .map(|key| Cell { family: key.0.clone(), configuration: key.1.clone(), standing: Standing::of(&own(key)) })
            .collect();
        Matrix { rule: RULE, families, cases }
    }

    /// The matrix to read: families down, configurations across, then the rule and the reasons.
    ///
    /// # Errors
    /// The matrix holds what JSON cannot write, which its types exclude.
    pub fn render(&self, format: Format) -> anyhow::Result<String> {
        let (families, configurations) = self.axes();
        let header = configurations.iter().map(|configuration| Column::text(*configuration));
        let mut table = Table::new(std::iter::once(Column::text("family")).chain(header));
        for family in &families {
            table.row(std::iter::once((*family).to_owned()).chain(self.row(family, &configurations)));
        }
        table.footnote(self.rule);
        for reason in self.reasons() {
            table.footnote(reason);
        }
        Ok(match format {
            Format::Table => table.terminal(),
            Format::Markdown => table.markdown(),
            Format::Json => serde_json::to_string_pretty(self)? + "\n",
        })
    }

    /// Whether the configuration is not on this machine or in this build at all.
    fn is_absent(&self, configuration: &str) -> bool {
        let mut own = self.families.iter().filter(|cell| cell.configuration == configuration);
        own.all(|cell| cell.standing.status == Some(Status::Unavailable))
    }

    fn axes(&self) -> (Vec<&str>, Vec<&str>) {
        let (mut families, mut configurations) = (Vec::new(), Vec::new());
        for Cell { family, configuration, .. } in &self.families {
            if !families.contains(&family.as_str()) {
                families.push(family.as_str());
            }
            if !configurations.contains(&configuration.as_str()) && !self.is_absent(configuration) {
                configurations.push(configuration.as_str());
            }
        }
        (families, configurations)
    }

    fn row(&self, family: &str, configurations: &[&str]) -> Vec<String> {
        let cell = |configuration: &&str| {
            let found =
                self.families.iter().find(|cell| cell.family == family && cell.configuration == **configuration);
            found.map(|cell| cell.standing.text()).unwrap_or_default()
        };
        configurations.iter().map(cell).collect()
    }

    /// Why a cell has no higher level, and why a configuration has no column.
    fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for cell in self.families.iter().filter(|cell| !cell.standing.reason.is_empty()) {
            let reason = if self.is_absent(&cell.configuration) {
                format!("{}: {}", cell.configuration, cell.standing.reason)
            } else {
                format!("{} on {}: {}: {}", cell.family, cell.configuration, cell.standing.level, cell.standing.reason)
            };
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        reasons
    }
}

impl VerifiedCase {
    /// The case of a record. `slowdown` is its time over that of the fastest at the same work.
    pub fn of_record(record: &Record, slowdown: Option<f64>) -> Self {
        let case = record.case();
        VerifiedCase {
            status: record.status,
            message: record.message.clone(),
            verified: record.verified == Some(true),
            max_rel_error: record.max_rel_error,
            provider_share: record.provider_share,
            slowdown,
            ..VerifiedCase::unmeasured(&case, &record.family)
        }
    }

    /// A case of which nothing is known yet.
    fn unmeasured(case: &Case, family: &str) -> Self {
        let id = case.benchmark_id();
        VerifiedCase {
            id: case.to_string(),
            model: id.group,
            family: if family.is_empty() { case.model.clone() } else { family.to_owned() },
            configuration: id.function,
            batch_size: case.batch_size,
            status: Status::Failed,
            message: Some("not reached".into()),
            verified: false,
            max_rel_error: None,
            provider_share: None,
            rough_call_ms: None,
            slowdown: None,
        }
    }
}

fn verified_cases(manifest: &Manifest, outcomes: &Outcomes) -> Vec<VerifiedCase> {
    let verified = |planned: &ManifestCase| {
        let mut case = VerifiedCase::unmeasured(&planned.case, &planned.family);
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

    pub fn case(configuration: &str, status: Status, rough_call_ms: f64) -> VerifiedCase {
        VerifiedCase {
            id: format!("m/{configuration}/1"),
            model: "m".into(),
            family: "f".into(),
            configuration: configuration.into(),
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
    fn slowdowns_are_over_the_fastest_that_is_right() {
        let cases = vec![
            case("wrong", Status::WrongOutput, 0.1),
            case("fast", Status::Ok, 1.0),
            case("slow", Status::Ok, 30.0),
        ];
        let matrix = Matrix::of(cases);
        let of = |configuration: &str| {
            &matrix.families.iter().find(|cell| cell.configuration == configuration).unwrap().standing
        };
        assert_eq!((of("wrong").level, of("wrong").slowdown), (Level::None, None));
        assert_eq!((of("fast").level, of("fast").slowdown), (Level::High, Some(1.0)));
        assert_eq!((of("slow").level, of("slow").slowdown), (Level::Low, Some(30.0)));
        let table = matrix.render(Format::Table).unwrap();
        assert!(table.contains("high, error 1e-6, 1.0 ×") && table.contains(RULE), "{table}");
        assert!(table.contains("f on wrong: none: wrong-output: why | how"), "{table}");
        assert!(matrix.render(Format::Markdown).unwrap().contains("- f on wrong: none: wrong-output: why \\| how\n"));
    }

    #[test]
    fn a_configuration_that_is_unavailable_is_one_line_and_no_column() {
        let absent = |model: &str| VerifiedCase {
            family: model.into(),
            message: Some("no driver".into()),
            ..case("gpu", Status::Unavailable, 1.0)
        };
        let text =
            Matrix::of(vec![case("cpu", Status::Ok, 1.0), absent("f"), absent("g")]).render(Format::Markdown).unwrap();
        assert!(text.starts_with("| family | cpu |\n") && text.contains("\n- gpu: unavailable: no driver\n"), "{text}");
        assert_eq!(text.matches("gpu").count(), 1, "{text}");
    }
}
