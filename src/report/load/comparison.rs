//! The highest rates of two searches, side by side.

use super::{per_second, split};
use crate::compare::RateChange;
use crate::load::bounds_in_words;
use crate::report::checks::{Check, CheckSuite, Checks, Outcome};
use crate::report::numbers::{latency, plural};
use crate::report::table::{Column, Table};
use crate::report::{Format, json};
use crate::run_data::LoadResult;

/// The comparison in this form, ending with a line break.
pub fn render_comparison(changes: &[RateChange], format: Format) -> String {
    match format {
        Format::Json => json(&changes),
        Format::Table => rates(changes).terminal(),
        Format::Markdown => rates(changes).markdown(),
    }
}

/// A rate for continuous integration: a lower one is a regression.
pub fn check_of_rate(change: &RateChange) -> Check {
    let outcome = if change.is_lower { Outcome::Regression } else { Outcome::Passed };
    let RateChange { ratio_lower, ratio_upper, .. } = change;
    let message = format!(
        "highest rate of {} with {}: {} → {} (new / base from {ratio_lower:.2} to {ratio_upper:.2})",
        split(change.instances, change.threads, change.callers),
        bounds_of(change),
        per_second(change.base_rate),
        new_rate(change),
    );
    Check { case_id: change.case_id.clone(), latency_ms: None, outcome, message }
}

/// A search that found a rate only in the base, for continuous integration.
pub fn check_of_lost(row: &LoadResult) -> Check {
    let sessions = split(row.instances, row.threads, row.callers);
    let message = format!("highest rate of {sessions}: only the base's search found one");
    Check { case_id: row.case_id.clone(), latency_ms: None, outcome: Outcome::Undecided, message }
}

/// The rates of two load tests for continuous integration. `lost` are searches that found a rate only in the base.
pub fn checks_of_rates(title: &str, changes: &[RateChange], lost: &[&LoadResult]) -> Checks {
    let verdict = match lower_rates(changes) {
        Some(lower) => format!("regression: {lower}"),
        None if lost.is_empty() => "no regression".to_owned(),
        None => format!("undecided: {}", plural(lost.len(), "lost search", "lost searches")),
    };
    let checks = changes.iter().map(check_of_rate).chain(lost.iter().copied().map(check_of_lost)).collect();
    let suite = CheckSuite { name: title.to_owned(), checks };
    Checks { title: title.to_owned(), verdict, suites: vec![suite], details: rates(changes).markdown() }
}

/// `2 lower rates under load`, if there are some.
pub fn lower_rates(changes: &[RateChange]) -> Option<String> {
    let lower = changes.iter().filter(|change| change.is_lower).count();
    (lower > 0).then(|| plural(lower, "lower rate under load", "lower rates under load"))
}

/// A row for each search that both sides have.
pub fn rates(changes: &[RateChange]) -> Table {
    let numbers = ["base", "new", "new / base", "at least", "at most", "load tests"].map(Column::number);
    let texts = [Column::code("case"), Column::text("sessions × threads"), Column::text("bound")];
    let mut table = Table::new(texts.into_iter().chain(numbers).chain([Column::text("verdict")]))
        .essential(&["new / base", "verdict"])
        .minor(&["bound", "load tests"]);
    for row in changes {
        table.row([
            row.case_id.clone(),
            split(row.instances, row.threads, row.callers),
            bounds_of(row),
            per_second(row.base_rate),
            new_rate(row),
            format!("{:.2}", row.ratio),
            format!("{:.2}", row.ratio_lower),
            format!("{:.2}", row.ratio_upper),
            format!("{}, {}", row.base_tests, row.new_tests),
            if row.is_lower { "lower".to_owned() } else { String::new() },
        ]);
    }
    table.footnote("at least, at most: limits of new / base, each with 99 % confidence");
    if changes.iter().any(|row| !row.is_lower && row.ratio < 1.0 && row.base_tests.min(row.new_tests) < 3) {
        table.footnote("several load tests per side, separated by commas, bring the limits nearer together");
    }
    table
}

fn new_rate(change: &RateChange) -> String {
    change.new_rate.map_or_else(|| "none".to_owned(), per_second)
}

fn bounds_of(change: &RateChange) -> String {
    let &RateChange { percentile, bound_ms, ttft_bound_ms, tpot_bound_ms, .. } = change;
    let row = LoadResult { percentile, bound_ms, ttft_bound_ms, tpot_bound_ms, ..LoadResult::default() };
    bounds_in_words(&row, latency).unwrap_or_default()
}
