//! Records as text: a table per model for a terminal or as Markdown, and JSON with its schema.

use schemars::JsonSchema;
use serde::Serialize;

use super::columns::{P50, RecordColumn, chosen};
use super::numbers::commit;
use super::ranking::{Entry, notes_on_calls, rank, short_message};
use super::table::{BEST, Cell, Table, wrapped};
use super::{Format, escape, json, schema_of};
use crate::definition::Status;
use crate::run_data::{Metric, Record};

const LEGEND: &str = "● fastest of its batch size; a percentile in parentheses has too few calls for a 99 % bound";

/// The report's text with the columns of these names, ending with a line break. `resolution` is the line about the smallest
/// change that the machine of the run can show; JSON, which has nothing but the records with their metrics, is without it.
pub fn render(records: &[Record], metrics: &[Metric], columns: &[String], resolution: &str, format: Format) -> String {
    let groups = rank(records);
    let tables = groups.iter().map(|(title, rows)| match format {
        Format::Markdown => format!("### {}\n\n{}\n", escape::markdown(title), table(rows, columns).markdown()),
        _ => format!("\n{}\n{}", escape::terminal(title), table(rows, columns).terminal()),
    });
    match format {
        Format::Table => {
            format!("{}\n{}{}", tables.collect::<String>(), wrapped(LEGEND, 0), wrapped(resolution, 0))
        }
        Format::Markdown => {
            let source = records.first().map(source).unwrap_or_default();
            format!("{}{LEGEND}\n\n{source}\n{resolution}\n", tables.collect::<String>())
        }
        Format::Json => {
            let reported = |record| ReportedRecord { record, metrics: Metric::all_of(metrics, record) };
            json(&records.iter().map(reported).collect::<Vec<_>>())
        }
    }
}

/// A record with its metrics.
#[derive(Serialize, JsonSchema)]
struct ReportedRecord<'a> {
    #[serde(flatten)]
    record: &'a Record,
    /// Figures that are no columns.
    metrics: Vec<&'a Metric>,
}

/// The JSON Schema of [`Format::Json`]: an array of records.
pub fn schema() -> String {
    schema_of::<Vec<ReportedRecord<'_>>>("inferbench report: an object per case and run")
}

/// The fastest of each batch size is marked; a case without figures says why below the table.
fn table(rows: &[Entry<'_>], columns: &[String]) -> Table {
    let is_asked = !columns.is_empty();
    let columns = chosen(columns, rows);
    let mut table = Table::new(columns.iter().map(|column| column.head())).whole(is_asked);
    for entry in rows {
        let cell = |column: &&RecordColumn| {
            let cell = Cell::from(column.text(entry));
            if entry.is_best() && column.name == P50 { cell.strong() } else { cell }
        };
        let added = table.row(columns.iter().map(cell));
        if entry.is_best() {
            added.mark(BEST);
        }
    }
    for record in rows.iter().map(|row| row.record).filter(|record| record.status != Status::Ok) {
        let id = record.case().benchmark_id();
        table.footnote(format!("{}/{}: {}: {}", id.function, id.value, record.status, short_message(record)));
    }
    for line in notes_on_calls(rows) {
        table.footnote(line);
    }
    table
}

/// The run, host and commit of a record.
fn source(record: &Record) -> String {
    let commit = commit(record.git_commit.as_deref(), record.git_dirty);
    format!("Run {} on host {}, commit {commit}.\n", record.run_id, record.host_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::record;

    fn text(records: &[Record], resolution: &str, format: Format) -> String {
        render(records, &[], &[], resolution, format)
    }

    #[test]
    fn the_best_is_marked_and_a_failure_says_why() {
        let mut absent = record("m", "tch", 1, None);
        absent.status = Status::Unavailable;
        absent.message = Some("not in this build".into());
        let records = [record("m", "ort", 1, Some(2.0)), record("m", "candle", 1, Some(4.0)), absent];
        let text = text(&records, "", Format::Table);
        let line = |backend: &str| text.lines().find(|line| line.contains(&format!(" {backend} "))).unwrap();
        assert!(line("ort").contains('●') && line("ort").contains("2.00 ms"));
        assert!(line("candle").contains(" 2.00  ") && line("candle").contains("medium"), "{text}");
        assert!(line("tch").contains("unavailable") && line("tch").contains("none"), "{text}");
        assert!(text.contains("tch-cpu-f32/1: unavailable: not in this build"), "{text}");
    }

    #[test]
    fn a_message_cannot_break_the_markdown() {
        let mut failed = record("m", "ort", 1, None);
        failed.status = Status::Failed;
        failed.message = Some("a | <b\nc".into());
        let text = text(&[failed, record("m", "tch", 1, Some(1.0))], "", Format::Markdown);
        assert!(text.contains("- ort-cpu-f32/1: failed: a \\| &lt;b\n"), "{text}");
        assert!(text.contains("| ● | tch | cpu | f32 | 1 | **1.00 ms** |"), "{text}");
    }

    #[test]
    fn disturbed_samples_and_what_can_be_shown_are_below_the_figures() {
        let with_share = |batch_size, disturbed_share| Record {
            disturbed_share: Some(disturbed_share),
            ..record("m", "ort", batch_size, Some(1.0))
        };
        let records = [with_share(1, 0.0), with_share(2, 0.25), record("m", "tch", 1, Some(1.0))];
        let shown = text(&records, "what can be shown", Format::Table);
        assert!(shown.contains("\n  disturbed samples: ort-cpu-f32 batch 2 has 25 %\n"), "{shown}");
        assert!(shown.ends_with("\nwhat can be shown\n"), "{shown}");
        assert!(!text(&[with_share(1, 0.1)], "", Format::Table).contains("disturbed"));
    }
}
