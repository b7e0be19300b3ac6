//! The windows of watched trials, and what changed over them.

use crate::report::numbers::{latency, megabytes, signed_percent};
use crate::report::table::{Column, Table};
use crate::run_data::{LoadResult, LoadRun};

/// A row for each window. Returns `None` if no trial was watched.
pub fn changes(run: &LoadRun) -> Option<Table> {
    run.windows.first()?;
    let numbers = ["queries", "p50", "p99", "memory", "throttled"].map(Column::number);
    let mut table = Table::new([Column::code("case"), Column::text("time")].into_iter().chain(numbers));
    for window in &run.windows {
        table.row([
            window.case_id.clone(),
            format!("{:.1} … {:.1} s", window.from_s, window.to_s),
            window.queries.to_string(),
            window.latency_p50_ms.map(latency).unwrap_or_default(),
            window.latency_p99_ms.map(latency).unwrap_or_default(),
            window.memory_mb.map(megabytes).unwrap_or_default(),
            window.throttled.map(|events| events.to_string()).unwrap_or_default(),
        ]);
    }
    Some(table)
}

/// `case: memory grows by 1.2 MB/h (at least 0.0 MB/h); p50 changes by +12.0 % from 600 s on; …`. Returns `None` if the trial was not watched.
/// `has_windows` says whether the trial of a server was watched.
pub fn sentence_of_changes(row: &LoadResult, has_windows: bool) -> Option<String> {
    let growth = row.growth_mb_per_h.zip(row.least_growth_mb_per_h);
    let is_watched = growth.is_some() || row.throttled.is_some() || row.drift_p50.is_some() || row.drift_p99.is_some();
    let growth = growth.map_or_else(
        || "too few samples of memory to show its growth".to_owned(),
        |(growth, least)| format!("memory grows by {growth:.1} MB/h (at least {least:.1} MB/h)"),
    );
    let drift = |name: &str, ratio: Option<f64>, from: Option<f64>| match ratio.zip(from) {
        Some((ratio, from)) => format!("{name} changes by {} from {from:.0} s on", signed_percent(ratio)),
        None => format!("{name} does not change"),
    };
    let throttled = match row.throttled {
        Some(0) => "never throttled".to_owned(),
        Some(1) => "throttled once".to_owned(),
        Some(times) => format!("throttled {times} times"),
        None => "the system does not report throttling".to_owned(),
    };
    let p50 = drift("p50", row.drift_p50, row.drift_p50_from_s);
    let p99 = drift("p99", row.drift_p99, row.drift_p99_from_s);
    if row.url.is_some() {
        return has_windows.then(|| format!("{}: {p50}; {p99}; the memory of a server is not watched", row.case_id));
    }
    is_watched.then(|| format!("{}: {growth}; {p50}; {p99}; {throttled}", row.case_id))
}
