//! The table for a terminal.

use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};

use super::ranking::{Row, disturbed_lines, latency, missing_calls_line, rank, rate, short_message};
use crate::definition::Status;
use crate::record::Record;

const NUMBERS: std::ops::RangeInclusive<usize> = 4..=9;

/// An empty table with a line below its header, and no others.
pub fn ruled_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
    table.set_header(header.iter().copied());
    table
}

/// One table a model. The fastest of each batch size is marked; a case without a figure shows why.
pub fn render(records: &[Record], resolution: &str) -> String {
    let mut text = String::new();
    for group in rank(records) {
        let header = ["", "backend", "device", "dtype", "batch", "p50", "p99", group.rate_unit, "memory", "p50 ÷ best"];
        let mut table = ruled_table(&header);
        for row in &group.rows {
            table.add_row(cells(row));
        }
        for column in NUMBERS {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        text.push_str(&format!("\n{}\n{table}\n", group.title));
        for row in &group.rows {
            if row.record.status != Status::Ok {
                let case = row.record.case().benchmark_id();
                text.push_str(&format!(
                    "  {}/{}: {}: {}\n",
                    case.function,
                    case.value,
                    row.record.status,
                    short_message(row.record)
                ));
            }
        }
        for line in missing_calls_line(&group).into_iter().chain(disturbed_lines(&group)) {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text.push_str("\n● fastest of its batch size; p99 in parentheses: too few calls for a 99 % bound\n");
    text.push_str(&format!("{resolution}\n"));
    text
}

fn cells(row: &Row<'_>) -> Vec<Cell> {
    let record = row.record;
    let mark = if row.is_best { "●" } else { "" };
    let start = [mark, &record.backend, &record.device, record.dtype.name()].map(str::to_owned);
    let figures = match record.status {
        Status::Ok => [
            latency(record.latency_p50_ms),
            p99(record),
            rate(record),
            record.memory_mb.map(|mb| format!("{mb:.0} MB")).unwrap_or_default(),
            row.ratio_to_best.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
        ],
        status => [status.name().to_owned(), String::new(), String::new(), String::new(), String::new()],
    };
    start.into_iter().chain([record.batch_size.to_string()]).chain(figures).map(Cell::new).collect()
}

fn p99(record: &Record) -> String {
    let shown = latency(record.latency_p99_ms);
    if record.latency_p99_upper_ms.is_some() || shown.is_empty() { shown } else { format!("({shown})") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::record;

    #[test]
    fn the_best_is_marked_and_a_failure_says_why() {
        let mut absent = record("m", "tch", 1, None);
        absent.status = Status::Unavailable;
        absent.message = Some("not in this build".into());
        let text = render(&[record("m", "ort", 1, Some(2.0)), record("m", "candle", 1, Some(4.0)), absent], "");
        let line = |backend: &str| text.lines().find(|line| line.contains(&format!(" {backend} "))).unwrap();
        assert!(line("ort").contains('●') && line("ort").contains("2.00 ms"));
        assert!(line("candle").trim_end().ends_with("2.00"));
        assert!(text.contains("tch-cpu-f32/1: unavailable: not in this build"), "{text}");
    }

    #[test]
    fn disturbed_samples_and_what_can_be_shown_are_below_the_figures() {
        let with_share = |batch_size, disturbed_share| Record {
            disturbed_share: Some(disturbed_share),
            sample_count: Some(100),
            ..record("m", "ort", batch_size, Some(1.0))
        };
        let text =
            render(&[with_share(1, 0.0), with_share(2, 0.25), record("m", "tch", 1, Some(1.0))], "what can be shown");
        assert!(text.contains("\n  12 % of ort's samples were disturbed\n"), "{text}");
        assert!(!text.contains("tch's"), "{text}");
        assert!(text.ends_with("\nwhat can be shown\n"), "{text}");
        assert!(!render(&[with_share(1, 0.1)], "").contains("disturbed"));
    }
}
