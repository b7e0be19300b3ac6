//! A case's rows, and the difference of two cases, as tables.

use super::groups::grouped;
use crate::profile::Difference;
use crate::report::numbers::{megabytes, microseconds, percent, plural, rounded, three_digits, three_digits_of_any};
use crate::report::table::{Column, Table};
use crate::run_data::{CaseProfile, OUTSIDE, ProfileRow};

/// What a table shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Rows are grouped by operator and by so many parts of the module's name; 0 leaves only operators. Without it,
    /// each operator has a row.
    pub depth: Option<usize>,
    /// The most rows, besides the last one about the rest of the call.
    pub most_rows: Option<usize>,
}

/// A column: its header, whether its cells are numbers, and a cell's text.
type TableColumn = (&'static str, bool, fn(&CaseProfile, &ProfileRow) -> String);

/// A column without a text in any row is left out.
const COLUMNS: [TableColumn; 14] = [
    ("module", false, |_, row| row.module.clone().unwrap_or_default()),
    ("operator", false, |_, row| row.operator.clone()),
    ("kernel", false, |_, row| row.kernel.clone().unwrap_or_default()),
    ("calls", true, |_, row| if row.operator == OUTSIDE { String::new() } else { count(row.executions) }),
    ("raw µs", true, |_, row| if row.operator == OUTSIDE { String::new() } else { microseconds(row.raw_us) }),
    ("µs", true, |_, row| if is_hidden(row) { "unknown".into() } else { microseconds(row.corrected_us) }),
    ("from … to", true, |_, row| bounds(row)),
    ("share", true, share),
    ("FLOPs", true, |_, row| row.flops.map(rounded).unwrap_or_default()),
    ("GFLOP/s", true, |_, row| row.gflops_per_second.map(three_digits).unwrap_or_default()),
    ("of the roofline", true, |_, row| row.roofline_fraction.map(percent).unwrap_or_default()),
    ("bound by", false, |_, row| row.bound.map(|bound| bound.to_string()).unwrap_or_default()),
    ("memory", true, |_, row| row.memory_bytes.map(|bytes| megabytes(bytes as f64 / 1e6)).unwrap_or_default()),
    ("threads busy", true, |_, row| row.busy_fraction.map(percent).unwrap_or_default()),
];

/// Where the time of a call of the case goes. The last row is the rest of the call.
pub fn table(case: &CaseProfile, options: &Options) -> Table {
    let rows = grouped(case, options.depth);
    let (outside, operators): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.operator == OUTSIDE);
    let (shown, rest) = operators.split_at(options.most_rows.unwrap_or(usize::MAX).min(operators.len()));
    let shown: Vec<&ProfileRow> = shown.iter().copied().chain(outside).collect();
    let is_known = |column: &&TableColumn| shown.iter().any(|row| !(column.2)(case, row).is_empty());
    let columns: Vec<&TableColumn> = COLUMNS.iter().filter(is_known).collect();
    let mut table = Table::new(columns.iter().map(|(header, is_number, _)| Column::of(*header, *is_number)))
        .essential(&["operator", "µs", "share"])
        .minor(&["kernel", "raw µs", "bound by", "memory", "threads busy"]);
    for row in &shown {
        table.row(columns.iter().map(|(_, _, cell)| cell(case, row)));
    }
    if !rest.is_empty() {
        let us = rest.iter().map(|row| row.corrected_us).sum::<f64>();
        let more = plural(rest.len(), "more row takes", "more rows take");
        table.footnote(format!("{more} {} µs together", microseconds(us)));
    }
    if shown.iter().any(|row| row.share.is_none()) {
        table.footnote("<: an upper bound; the profiler's own cost hides the rest");
    }
    table
}

/// At most this many positions of a cache are shown in a terminal.
const MOST_POSITIONS: usize = 8;

/// The calls of a language model by the number of tokens in its cache; a few of them, from the first to the last.
pub fn position_table(case: &CaseProfile) -> Table {
    let names = ["tokens in the cache", "plain µs", "attention µs", "matmul µs", "rest µs"];
    let mut table = Table::new(names.map(Column::number));
    let last = case.positions.len().saturating_sub(1);
    let shown = last.min(MOST_POSITIONS - 1);
    for number in 0..=shown {
        let row = &case.positions[number * last / shown.max(1)];
        let times = [row.plain_us, row.attention_us, row.matmul_us, row.rest_us].map(microseconds);
        table.row(std::iter::once(row.cached_tokens.to_string()).chain(times));
    }
    table
}

/// Whether the profiler's cost hides what is outside of operators.
fn is_hidden(row: &ProfileRow) -> bool {
    row.operator == OUTSIDE && row.share.is_none()
}

/// `1.60 … 5.50`
fn bounds(row: &ProfileRow) -> String {
    let bounds = row.corrected_lower_us.zip(row.corrected_upper_us);
    bounds.map(|(lower, upper)| format!("{} … {}", microseconds(lower), microseconds(upper))).unwrap_or_default()
}

/// The share, or an upper bound of it.
fn share(case: &CaseProfile, row: &ProfileRow) -> String {
    let bound_us = row.corrected_upper_us.unwrap_or(2.0 * case.cost_per_operator_us * row.executions);
    let bound = bound_us / case.plain_us;
    match row.share {
        Some(share) => percent(share),
        // Rounded up to a tenth of a percent, except for the rounding error of the product.
        None if bound.is_finite() && bound > 0.0 => format!("< {}", percent((1e3 * bound - 1e-9).ceil() / 1e3)),
        None => String::new(),
    }
}

/// `12`, or `2.5` for operators that only some calls execute.
fn count(executions: f64) -> String {
    if executions.fract() == 0.0 { format!("{executions}") } else { three_digits_of_any(executions) }
}

/// The difference of two cases by module and kind of operator, the largest first.
pub fn difference_table(difference: &Difference, options: &Options) -> Table {
    let times = ["A µs", "B µs", "difference µs"].map(Column::number);
    let operators = ["operators of A", "operators of B"].map(Column::text);
    let mut table = Table::new(["module", "kind"].map(Column::text).into_iter().chain(times).chain(operators))
        .essential(&["kind", "difference µs"])
        .minor(&["operators of A", "operators of B"]);
    let (shown, rest) = difference.rows.split_at(options.most_rows.unwrap_or(usize::MAX).min(difference.rows.len()));
    // The outermost names of PyTorch's operators repeat their namespace.
    let short = |names: &str| names.replace("aten::", "");
    for row in shown {
        table.row([
            row.module.clone().unwrap_or_default(),
            row.kind.to_string(),
            row.a_us.map(microseconds).unwrap_or_default(),
            row.b_us.map(microseconds).unwrap_or_default(),
            signed(row.difference_us),
            short(&row.a_operators),
            short(&row.b_operators),
        ]);
    }
    if !rest.is_empty() {
        let us = rest.iter().map(|row| row.difference_us).sum::<f64>();
        let more = plural(rest.len(), "more row differs", "more rows differ");
        table.footnote(format!("{more} by {} µs together", signed(us)));
    }
    table
}

fn signed(us: f64) -> String {
    format!("{}{}", if us > 0.0 { "+" } else { "" }, microseconds(us))
}
