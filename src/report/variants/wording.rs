//! How figures are written in every output: units, factors, per cents and points.

use super::{OtherBatchSize, Row, VariantTable};
use crate::definition::{Boundary, Dtype, ORIGINAL, Phase};
use crate::record::Record;
use crate::report::ranking::short_message;

/// `digits-seq128 · batch 1`, with the machine where tables of several are shown.
pub fn title(table: &VariantTable, tables: &[VariantTable]) -> String {
    let mut title = table.model.clone();
    let work = [
        table.sequence_length.map(|length| format!("sequence length {length}")),
        (table.phase != Phase::Forward).then(|| table.phase.to_string()),
        (table.boundary != Boundary::Compute).then(|| table.boundary.to_string()),
        Some(format!("batch {}", table.batch_size)),
        tables.iter().any(|other| other.host_id != table.host_id).then(|| format!("host {}", table.host_id)),
    ];
    for part in work.into_iter().flatten() {
        title.push_str(&format!(" · {part}"));
    }
    title
}

/// `int8-static on ort`, `the original in f16 on tch (cuda)`: a dtype where it tells rows apart.
pub fn name(row: &Row, rows: &[Row]) -> String {
    let record = &row.record;
    let mut name = if record.variant == ORIGINAL { "the original".to_owned() } else { record.variant.clone() };
    let is_twin = |other: &Record| {
        (&other.variant, &other.backend, &other.device) == (&record.variant, &record.backend, &record.device)
            && other.dtype != record.dtype
    };
    let is_ambiguous = record.variant == ORIGINAL || rows.iter().any(|row| is_twin(&row.record));
    if record.dtype != Dtype::F32 && is_ambiguous {
        name.push_str(&format!(" in {}", record.dtype));
    }
    name.push_str(&format!(" on {}", record.backend));
    if record.device != "cpu" {
        name.push_str(&format!(" ({})", record.device));
    }
    name
}

/// `distilled on tch: failed: no operator Gelu`, for what was not measured.
pub fn failures(table: &VariantTable) -> Vec<String> {
    let missing = table.rows.iter().filter(|row| !row.is_measured());
    missing
        .map(|row| {
            let message = short_message(&row.record);
            let message = if message.is_empty() { message } else { format!(": {message}") };
            format!("{}: {}{message}", name(row, &table.rows), row.record.status)
        })
        .collect()
}

/// `at batch 2 and 4: the same choice` and `at batch 8: Ship …`, for the batch sizes that have no table.
pub fn others(table: &VariantTable) -> Vec<String> {
    let is_same = |other: &&OtherBatchSize| other.is_same_choice && other.recommendation.case_id.is_some();
    let same: Vec<String> =
        table.other_batch_sizes.iter().filter(is_same).map(|other| other.batch_size.to_string()).collect();
    let mut lines = Vec::new();
    if !same.is_empty() {
        lines.push(format!("at batch {}: the same choice", listed(&same)));
    }
    let different = table.other_batch_sizes.iter().filter(|other| !is_same(other));
    lines.extend(different.map(|other| format!("at batch {}: {}", other.batch_size, other.recommendation.sentence)));
    lines
}

/// What the marks mean, and what the factors are of, where there are any.
pub fn legend(table: &VariantTable) -> Vec<String> {
    let has_front = table.rows.iter().any(|row| row.is_on_front);
    let has_factors = table.rows.iter().any(|row| row.differences.is_some());
    let baseline = table.rows.iter().find(|row| row.is_baseline).filter(|_| has_factors);
    let marks = [
        table.recommendation.case_id.as_ref().map(|_| "● recommended".to_owned()),
        has_front.then(|| "◇ on the Pareto front of latency, quality and size".to_owned()),
        baseline.map(|row| format!("× is to the original in {} on the same backend and device", row.record.dtype)),
    ];
    let marks: Vec<String> = marks.into_iter().flatten().collect();
    let marks = (!marks.is_empty()).then(|| marks.join("; "));
    marks.into_iter().chain(table.notes.iter().cloned()).collect()
}

/// `0.26 ×`: at least two digits.
pub fn factor(factor: f64) -> String {
    let decimals = match factor {
        large if large >= 99.95 => 0,
        large if large >= 9.995 => 1,
        small if small < 0.0995 => 3,
        _ => 2,
    };
    format!("{factor:.decimals$} ×")
}

/// `1.6 ×` of something above 1, in a sentence.
pub fn times(factor: f64) -> String {
    let decimals = match factor {
        large if large >= 9.95 => 0,
        small if small < 1.095 => 2,
        _ => 1,
    };
    format!("{factor:.decimals$} ×")
}

/// `98.2 %` of a part of 0.982.
pub fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

/// `−0.6`, `0.0`, `+1.2`: a difference of parts in percentage points.
pub fn points(difference: f64) -> String {
    let text = format!("{:.1}", 100.0 * difference.abs());
    match difference {
        _ if text == "0.0" => text,
        below if below < 0.0 => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

/// `26 %`, `5 %`, `2.5 %`, `0.04 %`: at most two digits that are not 0.
pub fn short_percent(part: f64) -> String {
    let percent = 100.0 * part;
    let decimals = match percent {
        large if large >= 9.95 => 0,
        small if small < 0.095 => 2,
        _ => 1,
    };
    format!("{} %", without_zeros(&format!("{percent:.decimals$}")))
}

/// `1 point`, `0.5 points`.
pub fn count_of_points(part: f64) -> String {
    let number = format!("{:.2}", 100.0 * part);
    match without_zeros(&number) {
        "1" => "1 point".into(),
        several => format!("{several} points"),
    }
}

/// `0.5` of `0.50`, `10` of `10`.
fn without_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// `a`, `a and b`, `a, b and c`.
pub fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [start @ .., last] => format!("{} and {last}", start.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SAME, at, example, measured, table_of};
    use super::*;

    #[test]
    fn figures_are_short_and_have_a_sign_where_they_have_one() {
        assert_eq!([0.264, 1.0, 12.34, 250.0, 0.0512].map(factor), ["0.26 ×", "1.00 ×", "12.3 ×", "250 ×", "0.051 ×"]);
        assert_eq!([1.06, 1.61, 9.96, 31.4].map(times), ["1.06 ×", "1.6 ×", "10 ×", "31 ×"]);
        assert_eq!([-0.006, 0.0, -0.0004, 0.012].map(points), ["−0.6", "0.0", "0.0", "+1.2"]);
        assert_eq!([0.01, 0.005, 0.1].map(count_of_points), ["1 point", "0.5 points", "10 points"]);
        assert_eq!([0.05, 0.2559, 0.3, 1.0].map(short_percent), ["5 %", "26 %", "30 %", "100 %"]);
        assert_eq!([0.025, 0.004, 0.0004].map(short_percent), ["2.5 %", "0.4 %", "0.04 %"]);
        assert_eq!(listed(&["a".into(), "b".into(), "c".into()]), "a, b and c");
    }

    #[test]
    fn other_batch_sizes_are_told_of_in_a_line() {
        let both = |batch: usize, ms| {
            vec![
                at(batch, measured("original", "ort", 4.0, 2.0, SAME)),
                at(batch, measured("int8", "ort", 4.0, ms, SAME)),
            ]
        };
        let table = table_of([both(1, 1.0), both(2, 1.0), both(4, 1.0), both(8, 3.0)].concat());
        let lines = others(&table);
        assert_eq!(lines[0], "at batch 2 and 4: the same choice");
        assert!(lines.len() == 2 && lines[1].starts_with("at batch 8: Keep the original on ort: "), "{lines:?}");
    }

    #[test]
    fn a_row_is_named_by_what_tells_it_apart() {
        let mut records = example();
        for (backend, device, dtype) in [("ort", "cpu", Dtype::F16), ("ort", "cuda", Dtype::F32)] {
            let plain = measured("original", backend, 5.0, 1.7, SAME);
            records.push(Record { device: device.into(), dtype, ..plain });
        }
        records.push(Record { dtype: Dtype::I8, ..measured("int8-dynamic", "ort", 5.0, 1.7, SAME) });
        let table = table_of(records);
        let mut names: Vec<String> = table.rows.iter().map(|row| name(row, &table.rows)).collect();
        names.sort();
        let expected = [
            "distilled on tch",
            "int8-dynamic on ort",
            "int8-static on ort",
            "pruned on ort",
            "the original in f16 on ort",
            "the original on ort",
            "the original on ort (cuda)",
            "the original on tch",
        ];
        assert_eq!(names, expected);
    }
}
