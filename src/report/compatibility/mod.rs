//! The compatibility matrix: families of models down, configurations (backend, device and dtype) across, and in each cell a
//! level, with the reason if it is not the highest.

mod level;

use indexmap::{IndexMap, IndexSet};
use serde::Serialize;

pub use level::{Level, RULE, Standing};

use super::ranking::{Entry, ratios_to_best};
use super::table::{Column, Table};
use super::{Format, json};
use crate::definition::Status;
use crate::run_data::{Outcomes, Record};

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
        let slowdowns = ratios_to_best(&times);
        let mut families: IndexMap<(&str, String), Vec<Entry<'_>>> = IndexMap::new();
        for ((_, record), ratio_to_best) in cases.iter().zip(&slowdowns) {
            let family = if record.family.is_empty() { &record.model } else { &record.family };
            let place = (family.as_str(), record.case().benchmark_id().function);
            families.entry(place).or_default().push(Entry { record, ratio_to_best: *ratio_to_best });
        }
        let cell = |((family, configuration), cases): ((&str, String), Vec<Entry<'_>>)| Cell {
            family: family.to_owned(),
            configuration,
            standing: Standing::of(&cases),
        };
        let families = families.into_iter().map(cell).collect();
        let cases = cases.into_iter().zip(slowdowns);
        let cases = cases.map(|((rough_call_ms, record), slowdown)| VerifiedCase { record, rough_call_ms, slowdown });
        Matrix { rule: RULE, families, cases: cases.collect() }
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::definition::Case;
    use crate::report::tests::record;

    /// A record of a model of the family `f`, with a message unless it is right.
    pub fn verified(backend: &str, batch_size: usize, status: Status) -> Record {
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
        assert!(table.contains("high, error 1e-6, 1.0 ×") && table.contains(RULE), "{table}");
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
}
