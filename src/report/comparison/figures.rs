//! The figures other than the time that the verdicts are about: a table of `base → candidate`, and numbers for scripts.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::compare::{ComparedCase, Comparison};
use crate::report::columns::{self, COLUMNS, RecordColumn};
use crate::report::ranking::{Entry, best_of};
use crate::report::table::{Cell, Column, Table};

/// The columns that are shown if none are chosen, unless they have no values.
const USUAL: [&str; 8] = ["p95", "first-token", "device-memory", "energy", "load", "first-call", "roofline", "level"];

/// A figure of both sides, each from the run in the middle, in the unit of the records.
#[derive(Debug, PartialEq, Serialize)]
pub struct Figure {
    base: Option<f64>,
    candidate: Option<f64>,
}

/// A row for each case that both sides have measured, with a cell `base → candidate` for each of these columns.
pub fn table(comparison: &Comparison, names: &[String]) -> Table {
    let cases = measured(comparison);
    let all: Vec<Entry<'_>> = cases.iter().flat_map(|(_, sides)| sides.iter().flatten()).copied().collect();
    let columns: Vec<&RecordColumn> = match names {
        [] => USUAL.into_iter().filter_map(RecordColumn::find).filter(|column| column.is_known(&all)).collect(),
        names => columns::chosen(names, &all),
    };
    let headers = columns.iter().map(|column| column.head());
    let mut table = Table::new([Column::code("case")].into_iter().chain(headers)).whole(!names.is_empty());
    for (id, sides) in cases.iter().filter(|_| !columns.is_empty()) {
        let cell = |column: &&RecordColumn| {
            let text = |side: &Vec<Entry<'_>>| middle(column, side).map(|run| column.text(run)).unwrap_or_default();
            let [base, candidate] = sides.each_ref().map(text);
            Cell::from(change(&base, &candidate))
        };
        table.row([Cell::from(*id)].into_iter().chain(columns.iter().map(cell)));
    }
    table
}

/// The known numbers of all columns, by case and column.
pub fn figures(comparison: &Comparison) -> BTreeMap<&str, BTreeMap<&'static str, Figure>> {
    let of_case = |(id, sides): (_, [Vec<Entry<'_>>; 2])| {
        let figure = |column: &'static RecordColumn| {
            let [base, candidate] = sides.each_ref().map(|side| column.value(middle(column, side)?));
            (base.is_some() || candidate.is_some()).then_some((column.name, Figure { base, candidate }))
        };
        (id, COLUMNS.iter().filter_map(figure).collect())
    };
    measured(comparison).into_iter().map(of_case).collect()
}

/// The cases that both sides have measured, each with the records of the base and of the candidate.
fn measured<'a>(comparison: &'a Comparison) -> Vec<(&'a str, [Vec<Entry<'a>>; 2])> {
    let cases = || comparison.cases.iter().filter(|case| case.records.iter().all(|side| !side.is_empty()));
    let mut ratios = [0, 1].map(|side| best_of(cases().flat_map(move |case| &case.records[side])).into_iter());
    let with_ratio = |(record, ratio_to_best)| Entry { record, ratio_to_best };
    let mut entries = |case: &'a ComparedCase, side: usize| {
        case.records[side].iter().zip(&mut ratios[side]).map(with_ratio).collect()
    };
    cases().map(|case| (case.id.as_str(), [0, 1].map(|side| entries(case, side)))).collect()
}

/// The run in the middle of those with a value in the column; of an even number, the lower one.
fn middle<'a>(column: &RecordColumn, runs: &'a [Entry<'a>]) -> Option<&'a Entry<'a>> {
    let mut runs: Vec<&Entry<'_>> = runs.iter().filter(|run| !column.text(run).is_empty()).collect();
    let value = |run: &Entry<'_>| column.value(run).unwrap_or_default();
    runs.sort_by(|one, other| value(one).total_cmp(&value(other)));
    runs.get(runs.len().saturating_sub(1) / 2).copied()
}

/// `3.00 → 3.60 ms`, with one unit if it is the same; one text if both sides have the same.
fn change(base: &str, candidate: &str) -> String {
    if base == candidate {
        return base.to_owned();
    }
    let shown = |text: &str| if text.is_empty() { "–".to_owned() } else { text.to_owned() };
    match (base.split_once(' '), candidate.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other && !unit.ends_with(')') => {
            format!("{number} → {candidate}")
        }
        _ => format!("{} → {}", shown(base), shown(candidate)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::comparison::tests::comparison;
    use crate::run_data::Record;

    #[test]
    fn both_sides_of_every_known_figure_are_shown() {
        let text = table(&comparison(), &[]).terminal();
        let row = text.lines().find(|line| line.contains("m/ort-cpu-f32/1 ")).unwrap_or_else(|| panic!("{text}"));
        assert!(row.contains("3.00 → 3.60 ms") && row.contains("10.0 → 12.0 ms"), "{text}");
        assert!(text.contains("level") && !text.contains("energy") && !text.contains("m/ort-cpu-f32/16"), "{text}");
        let chosen = table(&comparison(), &["energy".into(), "load".into()]).terminal();
        assert!(chosen.contains("energy per sample") && !chosen.contains("p95"), "{chosen}");
    }

    #[test]
    fn several_runs_are_told_by_the_one_in_the_middle() {
        let mut found = comparison();
        let runs = &mut found.cases[0].records[0];
        let load = |ms| Record { load_time_ms: Some(ms), ..runs[0].clone() };
        let (fast, slow) = (load(8.0), load(90.0));
        runs.extend([fast, slow]);
        assert!(table(&found, &["load".into()]).terminal().contains("10.0 → 12.0 ms"));
        let figure = &figures(&found)["m/ort-cpu-f32/1"]["load"];
        assert_eq!(*figure, Figure { base: Some(10.0), candidate: Some(12.0) });
    }

    #[test]
    fn a_change_has_one_unit_where_it_can() {
        assert_eq!(change("1.00 ms", "2.00 ms"), "1.00 → 2.00 ms");
        assert_eq!(change("900 µs", "2.00 ms"), "900 µs → 2.00 ms");
        assert_eq!(change("(1.00 ms)", "(2.00 ms)"), "(1.00 ms) → (2.00 ms)");
        assert_eq!(change("", "2.00 ms"), "– → 2.00 ms");
        assert_eq!(change("high", "high"), "high");
    }
}
