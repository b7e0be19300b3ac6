//! Reports for readers: tables, Markdown, JSON, one HTML page, and charts as files.
//!
//! It takes records, comparisons, profiles and load tests. It gives text, pages and pictures. It decides nothing:
//! verdicts come from `compare`, and advice from `decision`.

pub mod checks;
pub mod columns;
pub mod comparison;
pub mod compatibility;
#[cfg(feature = "charts")]
pub mod drawing;
pub mod duel;
pub mod escape;
pub mod fleet;
pub mod html;
pub mod index;
pub mod llama_bench;
pub mod load;
mod machine_facts;
pub mod metrics;
pub mod numbers;
mod payload;
pub mod profile;
pub mod ranking;
pub mod records;
mod selection;
pub mod table;
mod trend;

use schemars::JsonSchema;
use serde::Serialize;

pub use machine_facts::{Fact, facts};
pub use payload::{Known, Payload};
pub use selection::{ReportedRun, Shown};

/// A form of report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For a terminal
    Table,
    /// For a README or a pull request
    #[value(alias = "md")]
    Markdown,
    /// For scripts
    Json,
}

/// The value as indented JSON that ends with a line break.
pub fn json(value: &impl Serialize) -> String {
    // JSON could only fail at a map with keys that are not strings, and no report has one.
    serde_json::to_string_pretty(value).map(|text| text + "\n").unwrap_or_default()
}

/// The rows as CSV, with the names of their fields as the header.
fn separated<T: Serialize>(rows: impl Iterator<Item = T>) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    let plain = writer.into_inner()?;
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(plain.as_slice());
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in reader.records() {
        writer.write_record(row?.iter().map(escape::spreadsheet))?;
    }
    Ok(String::from_utf8_lossy(&writer.into_inner()?).into_owned())
}

/// The JSON Schema of a type under a title.
pub(crate) fn schema_of<T: JsonSchema>(title: &str) -> String {
    let mut schema = schemars::schema_for!(T);
    schema.insert("title".into(), title.into());
    json(&schema)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::ReportedRun;
    use crate::definition::Case;
    use crate::run_data::Record;

    /// A run with these records and nothing else, `day` days after the first one.
    pub fn run_of(day: usize, mut records: Vec<Record>) -> ReportedRun {
        for record in &mut records {
            record.run_id = format!("run{day}");
            record.timestamp = format!("2026-01-{:02}T00:00:00Z", day + 1).parse().unwrap();
        }
        ReportedRun { records, ..ReportedRun::default() }
    }

    /// A measured record with nothing in it but a median.
    pub fn record(model: &str, backend: &str, batch_size: usize, latency_p50_ms: Option<f64>) -> Record {
        let run = Record {
            run_id: "20260101T000000Z".into(),
            timestamp: "2026-01-01T00:00:00Z".parse().unwrap(),
            host_id: "h".into(),
            suite: "quick".into(),
            rustc_version: "rustc 1".into(),
            ..Record::default()
        };
        let case = Case::new(model, backend, batch_size);
        Record { latency_p50_ms, ..run.about(&case) }
    }
}
