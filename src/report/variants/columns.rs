//! The columns that the table, Markdown and HTML share.

use super::wording::{factor, percent, points};
use super::{Measure, Row, VariantTable};
use crate::definition::Phase;
use crate::report::ranking::{latency, three_digits};

/// What is recommended, and what is on the front.
pub const RECOMMENDED: &str = "●";
pub const ON_FRONT: &str = "◇";

/// A column's head.
pub struct Column {
    pub name: &'static str,
    pub is_number: bool,
}

/// As many as [`cells`] gives.
pub fn columns(table: &VariantTable) -> Vec<Column> {
    let text = |name| Column { name, is_number: false };
    let number = |name| Column { name, is_number: true };
    let mut columns = vec![text(""), text("variant"), text("backend"), text("device"), text("dtype")];
    columns.extend([number("batch"), number("p50"), number("size")]);
    match table.measure {
        Measure::Accuracy => {
            columns.extend([number("accuracy"), number("change, points")]);
            columns.extend(has_top5(table).then(|| number("top-5")));
        }
        Measure::Agreement => columns.extend([number("agreement"), number("cosine")]),
        Measure::Unknown => {}
    }
    let is_in_tokens = matches!(table.phase, Phase::Prefill | Phase::Decode);
    columns.extend([
        number(if is_in_tokens { "tokens/s" } else { "samples/s" }),
        number("memory"),
        number("parameters"),
    ]);
    columns
}

/// A measured row; what is not known is empty.
pub fn cells(table: &VariantTable, row: &Row) -> Vec<String> {
    let record = &row.record;
    let differences = row.differences.as_ref();
    let with_factor = |figure: Option<String>, of: Option<f64>| {
        let factor = of.map(|of| format!("  {}", factor(of))).unwrap_or_default();
        figure.map(|figure| figure + &factor).unwrap_or_default()
    };
    let p50 = record.latency_p50_ms.map(|ms| latency(Some(ms)));
    let mut cells = vec![
        marks(row),
        record.variant.clone(),
        record.backend.clone(),
        record.device.clone(),
        record.dtype.to_string(),
        record.batch_size.to_string(),
        with_factor(p50, differences.and_then(|found| found.latency_p50)),
        with_factor(record.model_size_mb.map(megabytes), differences.and_then(|found| found.model_size)),
    ];
    match table.measure {
        Measure::Accuracy => {
            cells.extend([accuracy(row), change(row)]);
            cells.extend(has_top5(table).then(|| record.accuracy_top5.map(percent).unwrap_or_default()));
        }
        Measure::Agreement => cells.extend([agreement(row), cosine(row)]),
        Measure::Unknown => {}
    }
    let memory = record.memory_mb.map(|mb| format!("{mb:.0} MB"));
    cells.extend([
        with_factor(row.rate().map(three_digits), differences.and_then(|found| found.throughput)),
        with_factor(memory, differences.and_then(|found| found.memory)),
        parameters(row),
    ]);
    cells
}

/// Whether top-5 accuracy, which a few classes do not have, is known of a row.
fn has_top5(table: &VariantTable) -> bool {
    table.rows.iter().any(|row| row.is_measured() && row.record.accuracy_top5.is_some())
}

fn marks(row: &Row) -> String {
    let recommended = if row.is_recommended { RECOMMENDED } else { "" };
    let on_front = if row.is_on_front { ON_FRONT } else { "" };
    format!("{recommended}{on_front}")
}

/// `60.7 kB`, `3.30 MB`, `102 MB`.
fn megabytes(size: f64) -> String {
    if size < 1.0 { format!("{} kB", three_digits(size * 1e3)) } else { format!("{} MB", three_digits(size)) }
}

/// `25.6 M`; `25.6 M, 41 % not 0` where some are 0 that others would not have.
fn parameters(row: &Row) -> String {
    let Some(count) = row.record.parameters else { return String::new() };
    let shown = match count as f64 {
        few if few < 1e3 => count.to_string(),
        some if some < 1e6 => format!("{} k", three_digits(some / 1e3)),
        many if many < 1e9 => format!("{} M", three_digits(many / 1e6)),
        most => format!("{} G", three_digits(most / 1e9)),
    };
    match row.record.nonzero_parameters {
        Some(nonzero) if count > 0 && (nonzero as f64) < 0.995 * count as f64 => {
            format!("{shown}, {:.0} % not 0", 100.0 * nonzero as f64 / count as f64)
        }
        _ => shown,
    }
}

/// `98.2 % (96.5 … 99.2) of 450`.
fn accuracy(row: &Row) -> String {
    let record = &row.record;
    part_of(record.accuracy, record.accuracy_lower.zip(record.accuracy_upper), record.accuracy_samples)
}

/// `98.4 % (91.6 … 100.0) of 64`.
fn agreement(row: &Row) -> String {
    part_of(row.record.agreement, row.agreement_lower.zip(row.agreement_upper), row.record.agreement_samples)
}

fn part_of(part: Option<f64>, interval: Option<(f64, f64)>, count: Option<u64>) -> String {
    let Some(part) = part else { return String::new() };
    let interval = interval.map(|(lower, upper)| format!(" ({:.1} … {:.1})", 100.0 * lower, 100.0 * upper));
    format!("{}{}{}", percent(part), interval.unwrap_or_default(), samples(count))
}

/// `0.99871`, with its samples where they are others than those of the agreement.
fn cosine(row: &Row) -> String {
    let record = &row.record;
    let Some(cosine) = record.output_cosine else { return String::new() };
    let is_of_others = record.agreement.is_none() || record.output_cosine_samples != record.agreement_samples;
    format!("{cosine:.5}{}", samples(record.output_cosine_samples.filter(|_| is_of_others)))
}

fn samples(count: Option<u64>) -> String {
    count.map(|count| format!(" of {count}")).unwrap_or_default()
}

/// `−0.2 (−1.4 … +1.0)`, in percentage points.
fn change(row: &Row) -> String {
    let record = &row.record;
    let Some(change) = record.accuracy_change else { return String::new() };
    let bounds = record.accuracy_change_lower.zip(record.accuracy_change_upper);
    let interval = bounds.map(|(lower, upper)| format!(" ({} … {})", points(lower), points(upper)));
    format!("{}{}", points(change), interval.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{example, table_of, unlabelled};
    use super::*;
    use crate::record::Record;

    fn shown(records: Vec<Record>, case_id: &str) -> Vec<(&'static str, String)> {
        let table = table_of(records);
        let row = table.rows.iter().find(|row| row.record.case_id == case_id).unwrap();
        let (columns, cells) = (columns(&table), cells(&table, row));
        assert_eq!(columns.len(), cells.len());
        columns.into_iter().map(|column| column.name).zip(cells).collect()
    }

    #[test]
    fn every_figure_is_there_with_its_difference() {
        let cells = shown(example(), "m-int8-static/ort-cpu-f32/1");
        let expected = [
            ("", "●◇"),
            ("variant", "int8-static"),
            ("backend", "ort"),
            ("device", "cpu"),
            ("dtype", "f32"),
            ("batch", "1"),
            ("p50", "1.25 ms  0.62 ×"),
            ("size", "3.00 MB  0.29 ×"),
            ("accuracy", "98.2 % (96.5 … 99.2) of 450"),
            ("change, points", "0.0 (−0.6 … +0.6)"),
            ("samples/s", "800  1.60 ×"),
            ("memory", "103 MB  0.93 ×"),
            ("parameters", "1.00 M"),
        ];
        let found: Vec<(&str, &str)> = cells.iter().map(|(name, cell)| (*name, cell.as_str())).collect();
        assert_eq!(found, expected);
        let pruned = shown(example(), "m-pruned/ort-cpu-f32/1");
        assert!(pruned.contains(&("parameters", "1.00 M, 41 % not 0".into())), "{pruned:?}");
    }

    #[test]
    fn without_accuracy_agreement_is_shown_and_called_that() {
        let records = vec![
            unlabelled("original", "ort", 10.0, 2.0, (1.0, 1.0)),
            unlabelled("int8", "ort", 2.5, 1.0, (0.984, 0.99871)),
        ];
        let cells = shown(records.clone(), "m-int8/ort-cpu-f32/1");
        assert!(cells.contains(&("agreement", "98.4 % (91.6 … 100.0) of 64".into())), "{cells:?}");
        assert!(cells.contains(&("cosine", "0.99871".into())) && !cells.iter().any(|(name, _)| *name == "accuracy"));
        let unknown = |record: Record| Record { agreement: None, output_cosine: None, model_size_mb: None, ..record };
        let fewer = |record| Record { output_cosine_samples: Some(60), ..record };
        let of_fewer = shown(records.clone().into_iter().map(fewer).collect(), "m-int8/ort-cpu-f32/1");
        assert!(of_fewer.contains(&("cosine", "0.99871 of 60".into())), "{of_fewer:?}");
        let cells = shown(records.into_iter().map(unknown).collect(), "m-int8/ort-cpu-f32/1");
        assert!(cells.contains(&("size", String::new())) && !cells.iter().any(|(name, _)| *name == "cosine"));
    }

    #[test]
    fn top_5_is_shown_where_it_was_measured() {
        let mut records = example();
        records[2].accuracy_top5 = Some(0.996);
        let int8 = shown(records.clone(), "m-int8-static/ort-cpu-f32/1");
        assert!(int8.contains(&("top-5", "99.6 %".into())), "{int8:?}");
        assert!(shown(records, "m-pruned/ort-cpu-f32/1").contains(&("top-5", String::new())));
    }
}
