//! The compatibility matrix: families of models down, configurations (backend, device and dtype) across, and in each cell a
//! level, with the reason if it is not the highest.

mod level;

use indexmap::{IndexMap, IndexSet};
use serde::Serialize;

pub use level::{Level, RULE, Standing};

use super::ranking::ratios_to_best;
use super::table::{Column, Table};
use super::{Format, json};
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
        let time = |case: &VerifiedCase| case.rough_call_ms.filter(|_| case.status == Status::Ok);
        let work = |case: &VerifiedCase| (case.model.clone(), case.batch_size);
        let times: Vec<_> = cases.iter().map(|case| (work(case), time(case))).collect();
        for (case, slowdown) in cases.iter_mut().zip(ratios_to_best(&times)) {
            case.slowdown = slowdown;
        }
        let mut families: IndexMap<(&str, &str), Vec<&VerifiedCase>> = IndexMap::new();
        for case in &cases {
            families.entry((&case.family, &case.configuration)).or_default().push(case);
        }
        let cell = |((family, configuration), cases): ((&str, &str), Vec<&VerifiedCase>)| Cell {
            family: family.to_owned(),
            configuration: configuration.to_owned(),
            standing: Standing::of(&cases),
        };
        let families = families.into_iter().map(cell).collect();
        Matrix { rule: RULE, families, cases }
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
        for reason in self.reasons() {
            table.footnote(reason);
        }
        match format {
            Format::Table => table.terminal(),
            Format::Markdown => table.markdown(),
            Format::Json => json(self),
        }
    }

    /// Whether the configuration is not on this machine or in this build at all.
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
        let table = matrix.render(Format::Table);
        assert!(table.contains("high, error 1e-6, 1.0 ×") && table.contains(RULE), "{table}");
        assert!(table.contains("f on wrong: none: wrong-output: why | how"), "{table}");
        assert!(matrix.render(Format::Markdown).contains("- f on wrong: none: wrong-output: why \\| how\n"));
    }

    #[test]
    fn a_configuration_that_is_unavailable_is_one_line_and_no_column() {
        let absent = |model: &str| VerifiedCase {
            family: model.into(),
            message: Some("no driver".into()),
            ..case("gpu", Status::Unavailable, 1.0)
        };
        let text = Matrix::of(vec![case("cpu", Status::Ok, 1.0), absent("f"), absent("g")]).render(Format::Markdown);
        assert!(text.starts_with("| family | cpu |\n") && text.contains("\n- gpu: unavailable: no driver\n"), "{text}");
        assert_eq!(text.matches("gpu").count(), 1, "{text}");
    }
}
