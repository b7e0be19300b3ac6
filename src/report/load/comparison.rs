//! The highest rates of two searches, side by side.

use serde::Serialize;

use super::{Form, per_second};
use crate::load::percentile_name;
use crate::report::numbers::latency;
use crate::report::table::{Cell, Column, Table};
use crate::report::{json, separated};
use crate::run_data::{LoadResult, LoadRun};

/// A search that two load tests have in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RateChange {
    pub case_id: String,
    pub instances: usize,
    pub threads: usize,
    pub bound_ms: Option<f64>,
    pub percentile: f64,
    pub base_rate: f64,
    /// Absent if no rate passes any more.
    pub new_rate: Option<f64>,
    /// The new rate in the base's.
    pub ratio: f64,
    /// Whether the lowest rate that fails is below the base's highest rate that passes, by more than the tolerance.
    pub is_lower: bool,
}

/// The searches of `base` whose case, sessions and bound are also those of a search of `new`.
pub fn compare(base: &LoadRun, new: &LoadRun, tolerance: f64) -> Vec<RateChange> {
    let change = |before: &LoadResult| {
        let same: Vec<&LoadResult> = new.results.iter().filter(|row| is_same_search(row, before)).collect();
        // Whether or not it has found a rate.
        same.first()?;
        let now = same.iter().find(|row| row.is_highest);
        let (base_rate, new_rate) = (before.rate?, now.and_then(|row| row.rate));
        let failing = now.map_or(Some(0.0), |row| row.lowest_failing_rate);
        Some(RateChange {
            case_id: before.case_id.clone(),
            instances: before.instances,
            threads: before.threads,
            bound_ms: before.bound_ms,
            percentile: before.percentile,
            base_rate,
            new_rate,
            ratio: new_rate.unwrap_or(0.0) / base_rate,
            is_lower: failing.is_some_and(|failing| failing < base_rate * (1.0 - tolerance)),
        })
    };
    base.results.iter().filter(|row| row.is_highest).filter_map(change).collect()
}

fn is_same_search(one: &LoadResult, other: &LoadResult) -> bool {
    let terms = |row: &LoadResult| {
        let batching = (row.most_batch, row.most_delay_ms, row.bound_ms, row.percentile);
        (row.case_id.clone(), row.instances, row.threads, batching)
    };
    terms(one) == terms(other)
}

/// The comparison in this form, ending with a line break.
///
/// # Errors
/// A value cannot be written, which the types of a row exclude.
pub fn render_comparison(changes: &[RateChange], form: Form) -> anyhow::Result<String> {
    Ok(match form {
        Form::Json => json(&changes),
        Form::Csv => separated(changes.iter())?,
        Form::Table => table(changes).terminal(),
        Form::Markdown => table(changes).markdown(),
    })
}

fn table(changes: &[RateChange]) -> Table {
    let numbers = ["base", "new", "new / base"].map(Column::number);
    let texts = [Column::code("case"), Column::text("sessions × threads"), Column::text("bound")];
    let mut table = Table::new(texts.into_iter().chain(numbers).chain([Column::text("verdict")]));
    for row in changes {
        let bound = row.bound_ms.map(|bound| format!("{} ≤ {}", percentile_name(row.percentile), latency(bound)));
        let new = row.new_rate.map_or_else(|| "none".to_owned(), per_second);
        let verdict = if row.is_lower { "lower" } else { "" };
        let cells = [
            row.case_id.clone(),
            format!("{} × {}", row.instances, row.threads),
            bound.unwrap_or_default(),
            per_second(row.base_rate),
            new,
            format!("{:.2}", row.ratio),
            verdict.to_owned(),
        ];
        table.row(cells.map(Cell::from));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(highest: Option<f64>) -> LoadRun {
        let row = |rate: f64, is_highest: bool| LoadResult {
            case_id: "m/ort-cpu-f32/1".into(),
            rate: Some(rate),
            bound_ms: Some(20.0),
            is_highest,
            lowest_failing_rate: is_highest.then_some(1.02 * rate),
            ..LoadResult::default()
        };
        LoadRun { results: vec![row(highest.unwrap_or(9.0), highest.is_some())], ..LoadRun::default() }
    }

    #[test]
    fn a_rate_is_lower_if_it_is_so_beyond_the_tolerance() {
        let of = |base, new| compare(&search(base), &search(new), 0.05);
        let is_lower = |new| of(Some(100.0), new)[0].is_lower;
        assert_eq!([Some(105.0), Some(94.0), Some(92.0), None].map(is_lower), [false, false, true, true]);
        assert_eq!(of(None, Some(1.0)), []);
        let mut other = search(Some(50.0));
        other.results[0].bound_ms = Some(10.0);
        assert_eq!(compare(&search(Some(100.0)), &other, 0.05), []);
        let text = render_comparison(&of(Some(100.0), None), Form::Table).unwrap();
        assert!(text.contains("none") && text.contains("lower"), "{text}");
    }
}
