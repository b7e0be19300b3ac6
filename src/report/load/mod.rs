//! A load test for readers: a row per trial, and a sentence about the result of the searches.

mod comparison;
mod server;
mod windows;

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use serde::Serialize;

use crate::definition::Status;
use crate::load::{DEFINITIONS, ENDED_HERE, bounds_in_words, front};
use crate::report::numbers::{joules, latency, megabytes, percent, plural, rounded, three_digits, three_digits_of_any};
use crate::report::table::{BEST, Cell, Column, Table, wrapped};
use crate::report::{escape, json, separated};
use crate::run_data::{LoadResult, LoadRun, Verdict};

use server::sentences_of_server;
use windows::{changes, sentence_of_changes};

pub use comparison::{check_of_lost, check_of_rate, checks_of_rates, lower_rates, rates, render_comparison};

/// A form in which a load test is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// For a terminal
    Table,
    /// For a README or a pull request
    #[value(alias = "md")]
    Markdown,
    /// For scripts
    Json,
    /// All columns, for a spreadsheet
    Csv,
}

/// The load test in this form, ending with a line break. For searches, a table has the rates that were found, the knee,
/// and the trials on both sides of the limit, with the columns that matter for these. With `has_all`, it has every
/// trial and column.
pub fn render(runs: &[LoadRun], form: Form, has_all: bool) -> anyhow::Result<String> {
    Ok(match (form, runs) {
        (Form::Json, [run]) => json(run),
        (Form::Json, runs) => json(&runs),
        (Form::Csv, runs) => separated(runs.iter().flat_map(|run| &run.results))?,
        (Form::Table, runs) => runs.iter().map(|run| terminal(run, has_all)).collect(),
        (Form::Markdown, runs) => runs.iter().map(|run| markdown(run, has_all)).collect(),
    })
}

fn terminal(run: &LoadRun, has_all: bool) -> String {
    let sentences: String = sentences(run).iter().map(|line| wrapped(line, 0)).collect();
    let changes = changes(run).map(|table| table.terminal()).unwrap_or_default();
    format!("{}{changes}{sentences}", table(run, has_all).terminal())
}

fn markdown(run: &LoadRun, has_all: bool) -> String {
    let sentences: String = sentences(run).iter().map(|line| format!("\n{}\n", escape::markdown(line))).collect();
    let changes = changes(run).map(|table| format!("\n{}", table.markdown()));
    format!("{}{}{sentences}", table(run, has_all).markdown(), changes.unwrap_or_default())
}

/// A column: its header, whether its cells are numbers, and a cell's text.
type TableColumn = (&'static str, bool, fn(&LoadResult) -> String);

/// A column without a text in any row is left out.
const COLUMNS: [TableColumn; 36] = [
    ("scenario", false, |row| row.scenario.to_string()),
    ("sessions × threads", false, |row| match row.instances {
        0 => String::new(),
        instances => format!("{instances} × {}", row.threads),
    }),
    ("connections", true, |row| connections(row).unwrap_or_default()),
    ("callers", true, |row| row.callers.map(|callers| callers.to_string()).unwrap_or_default()),
    ("users", true, |row| row.users.map(|users| users.to_string()).unwrap_or_default()),
    ("asked", true, |row| row.rate.map(per_second).unwrap_or_default()),
    ("answered", true, |row| of_measured(row, |row| per_second(row.completed_per_s))),
    ("samples", true, |row| if row.samples == row.queries { String::new() } else { per_second(row.samples_per_s) }),
    ("tokens/s", true, |row| {
        let per_user = row.user_tokens_per_s.map(|rate| format!(", {} per user", three_digits(rate)));
        row.output_tokens_per_s.map(|rate| three_digits(rate) + &per_user.unwrap_or_default()).unwrap_or_default()
    }),
    ("queries", true, |row| of_measured(row, |row| row.queries.to_string())),
    ("p50", true, |row| of_measured(row, |row| latency(row.latency_p50_ms))),
    ("p90", true, |row| of_calls(row, |row| latency(row.latency_p90_ms))),
    ("p99", true, |row| of_measured(row, |row| latency(row.latency_p99_ms))),
    ("TTFT p50", true, |row| row.ttft_p50_ms.map(latency).unwrap_or_default()),
    ("TTFT p99", true, |row| row.ttft_p99_ms.map(latency).unwrap_or_default()),
    ("TPOT p50", true, |row| row.tpot_p50_ms.map(latency).unwrap_or_default()),
    ("TPOT p99", true, |row| row.tpot_p99_ms.map(latency).unwrap_or_default()),
    ("ITL p99", true, |row| row.itl_p99_ms.map(latency).unwrap_or_default()),
    ("goodput", true, |row| row.goodput_per_s.map(per_second).unwrap_or_default()),
    ("first byte p99", true, |row| row.first_byte_p99_ms.map(latency).unwrap_or_default()),
    ("HTTP", false, |row| row.statuses.clone().filter(|_| row.errors.is_some()).unwrap_or_default()),
    ("errors", false, |row| row.errors.clone().unwrap_or_default()),
    ("mean queue", true, |row| row.queue_mean_ms.map(latency).unwrap_or_default()),
    ("mean service", true, |row| of_calls(row, |row| latency(row.service_mean_ms))),
    ("per call", true, |row| if row.most_batch > 1 { three_digits(row.mean_batch) } else { String::new() }),
    ("busy", true, |row| of_measured(row, |row| percent(row.utilisation))),
    ("lag p99", true, |row| row.issue_lag_p99_us.map(|us| latency(us / 1e3)).unwrap_or_default()),
    ("generator", true, |row| row.generator_share.map(percent).unwrap_or_default()),
    ("client", true, |row| row.client_processors.map(percent).unwrap_or_default()),
    ("backlog", true, |row| row.backlog_most.map(|most| most.to_string()).unwrap_or_default()),
    ("memory", true, |row| row.memory_mb.map(megabytes).unwrap_or_default()),
    ("energy", true, |row| row.energy_j_per_request.map(joules).unwrap_or_default()),
    ("per million", true, |row| cost(row).unwrap_or_default()),
    ("LoadGen", false, |row| match row.loadgen_accepts {
        Some(true) => "accepts".to_owned(),
        Some(false) => "rejects".to_owned(),
        None => String::new(),
    }),
    ("verdict", false, verdict),
    ("why", false, |row| row.message.clone().unwrap_or_default()),
];

/// The columns of a search, unless all are asked for.
const OF_A_SEARCH: [&str; 12] = [
    "sessions × threads",
    "connections",
    "errors",
    "callers",
    "asked",
    "answered",
    "p99",
    "TTFT p99",
    "TPOT p99",
    "busy",
    "memory",
    "LoadGen",
];

/// Whether the row belongs to the answer of a search: the highest rate, the knee, and the lowest rates that are not accepted.
fn is_of_answer(row: &LoadResult, all: &[LoadResult]) -> bool {
    let is_same = |other: &&LoadResult| {
        let search = |row: &LoadResult| (row.instances, row.threads, row.search);
        other.case_id == row.case_id && search(other) == search(row)
    };
    let highest = || all.iter().filter(is_same).find(|other| other.is_highest);
    // There is no limit if no rate failed.
    let is_failure = |best: &LoadResult| {
        let limit = best.lowest_failing_rate;
        limit.is_some() && row.rate == limit && row.loadgen_accepts == Some(false)
    };
    // Without an answer, every trial is shown, to say why.
    !row.is_of_search || row.is_highest || row.is_knee || highest().is_none_or(is_failure)
}

/// `3 of 64`: the most that were in use at the same time.
fn connections(row: &LoadResult) -> Option<String> {
    let used = row.connections_used.map(|used| format!("{used} of ")).unwrap_or_default();
    Some(format!("{used}{}", row.connections?))
}

fn of_measured(row: &LoadResult, text: fn(&LoadResult) -> String) -> String {
    if row.queries == 0 { String::new() } else { text(row) }
}

/// `0.20 USD`
fn cost(row: &LoadResult) -> Option<String> {
    let currency = row.currency.as_ref().map(|currency| format!(" {currency}")).unwrap_or_default();
    Some(three_digits_of_any(row.cost_per_million?) + &currency)
}

/// Answers with tokens have other figures.
fn of_calls(row: &LoadResult, text: fn(&LoadResult) -> String) -> String {
    if row.output_tokens.is_some() { String::new() } else { of_measured(row, text) }
}

fn verdict(row: &LoadResult) -> String {
    let bound = bounds_in_words(row, latency).map(|bounds| format!(" {bounds}"));
    match row.verdict {
        None => row.status.to_string(),
        Some(Verdict::Measured) => String::new(),
        Some(verdict) => format!("{verdict}{}", bound.unwrap_or_default()),
    }
}

/// `2 × 1`, or `1 × 2, 4 callers`. The sessions of a server are not known.
fn split(instances: usize, threads: usize, callers: Option<usize>) -> String {
    if instances == 0 {
        return "the server".to_owned();
    }
    format!("{instances} × {threads}{}", callers.map(|callers| format!(", {callers} callers")).unwrap_or_default())
}

fn per_second(rate: f64) -> String {
    format!("{}/s", if rate < 1e4 { three_digits_of_any(rate) } else { rounded(rate as u64) })
}

fn table(run: &LoadRun, has_all: bool) -> Table {
    let rows: Vec<&LoadResult> = run.results.iter().filter(|row| has_all || is_of_answer(row, &run.results)).collect();
    let is_short = !has_all && rows.iter().all(|row| row.is_of_search && row.status == Status::Ok);
    let is_meant = |column: &&TableColumn| !is_short || OF_A_SEARCH.contains(&column.0);
    let is_known = |column: &&TableColumn| rows.iter().any(|row| !(column.2)(row).is_empty());
    let columns: Vec<&TableColumn> = COLUMNS.iter().filter(is_meant).filter(is_known).collect();
    let heads = columns.iter().map(|(header, is_number, _)| Column::of(*header, *is_number));
    let mut table = Table::new(std::iter::once(Column::code("case")).chain(heads))
        .essential(&["p99", "TTFT p99", "TPOT p99", "per million", "verdict"])
        .or_below(&["why"])
        .minor(&["connections", "samples", "TTFT p50", "TPOT p50", "ITL p99", "first byte p99", "HTTP"])
        .minor(&["mean queue", "mean service", "per call"])
        .minor(&["lag p99", "generator", "client", "backlog", "energy"]);
    for result in &rows {
        let cells = columns.iter().map(|(_, _, cell)| Cell::from(cell(result)));
        let row = table.row(std::iter::once(Cell::from(result.case_id.clone())).chain(cells));
        if result.is_highest {
            row.mark(BEST);
        } else if result.is_knee {
            row.mark(KNEE);
        }
    }
    let has = |is: fn(&LoadResult) -> bool| run.results.iter().any(is);
    if has(|row| row.is_highest) {
        table.footnote(format!(
            "{BEST} the highest rate that the early stopping of MLPerf LoadGen accepts, by most of three seeds"
        ));
    }
    if has(|row| row.is_knee) {
        table.footnote(format!("{KNEE} the knee: from here on latency rises steeply"));
    }
    if rows.len() < run.results.len() {
        table.footnote(format!("{} of {} trials are shown; `--all` shows the others", rows.len(), run.results.len()));
    }
    if has(|row| row.output_tokens.is_some()) {
        DEFINITIONS.into_iter().for_each(|(term, meaning)| table.definition(term, meaning));
    }
    table
}

const KNEE: &str = "◇";

/// A trial on a curve of rate and latency.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Requests that were answered per second.
    pub per_s: f64,
    /// The latency at the percentile that the bound was for.
    pub ms: f64,
    /// For a language model: p99 of the time to the first token, and below, the tokens of answers per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_s: Option<f64>,
    /// Which curve of the case it is on: `2 × 1`, sessions by threads, and their callers if there are several; or the name of a server.
    pub split: String,
    pub is_knee: bool,
    /// Whether a server has answered, not a backend of this program.
    pub is_server: bool,
}

/// The curve of each case's newest load test with several rates, by machine and id of the case. The oldest of `runs` is
/// first.
pub fn curves(runs: impl Iterator<Item = LoadRun>) -> BTreeMap<(String, String), Vec<CurvePoint>> {
    let is_shown = |row: &LoadResult| {
        let is_of_many = row.rate.is_some() || row.users.is_some();
        let is_complete = row.unanswered == 0 && !row.ended_early;
        is_of_many && row.status == Status::Ok && row.verdict != Some(Verdict::Invalid) && is_complete
    };
    let mut curves = BTreeMap::new();
    for run in runs {
        let mut of_run: BTreeMap<(String, String), Vec<CurvePoint>> = BTreeMap::new();
        for row in run.results.into_iter().filter(is_shown) {
            let split = match &row.url {
                Some(_) => row.server.clone().unwrap_or_else(|| "server".to_owned()),
                None => split(row.instances, row.threads, row.callers),
            };
            let point = CurvePoint {
                per_s: row.completed_per_s,
                ms: row.latency_ms,
                ttft_ms: row.ttft_p99_ms,
                tokens_per_s: row.output_tokens_per_s,
                split,
                is_knee: row.is_knee,
                is_server: row.url.is_some(),
            };
            of_run.entry((row.host_id, row.case_id)).or_default().push(point);
        }
        let has_tokens = |points: &[CurvePoint]| points.iter().any(|point| point.tokens_per_s.is_some());
        curves.extend(of_run.into_iter().filter(|(_, points)| points.len() > 1 || has_tokens(points)));
    }
    curves
}

/// What the watched trials and the searches have found, a sentence per case: `2 × 1 threads serve 482/s (471 … 493) at p99 ≤ 20 ms with 310 MB;
/// 1 × 2 serve 428/s`.
fn sentences(run: &LoadRun) -> Vec<String> {
    let mut cases: IndexMap<&str, Vec<&LoadResult>> = IndexMap::new();
    for row in run.results.iter().filter(|row| row.is_highest) {
        let of_case = cases.entry(&row.case_id).or_default();
        // All searches of a split have one answer.
        if !of_case.iter().any(|known| (known.instances, known.threads) == (row.instances, row.threads)) {
            of_case.push(row);
        }
    }
    let is_watched = |row: &LoadResult| run.windows.iter().any(|window| window.case_id == row.case_id);
    let changes = run.results.iter().filter_map(|row| sentence_of_changes(row, is_watched(row)));
    let shown = run.results.iter().filter(|row| !row.is_of_search || row.is_highest);
    let servers = shown.flat_map(|row| sentences_of_server(row, &run.results));
    let none = without_rate(run);
    changes.chain(servers).chain(cases.into_iter().map(|(case, found)| sentence(case, found))).chain(none).collect()
}

/// Returns a sentence for each case whose search has found no rate.
fn without_rate(run: &LoadRun) -> Vec<String> {
    let has_rate = |case: &str| run.results.iter().any(|row| row.is_highest && row.case_id == case);
    let mut cases: IndexMap<&str, Vec<&LoadResult>> = IndexMap::new();
    for row in run.results.iter().filter(|row| row.is_of_search && !has_rate(&row.case_id)) {
        cases.entry(&row.case_id).or_default().push(row);
    }
    let line = |(case, rows): (&str, Vec<&LoadResult>)| {
        let is_judged = |row: &LoadResult| row.loadgen_accepts.is_some() && row.verdict != Some(Verdict::Invalid);
        // A limit may have ended the search, or trials that show nothing. Which trial was the last is not known, because
        // they are sorted by their rates.
        let end = rows.iter().rev().find_map(|row| {
            let message = row.message.as_deref()?;
            let shows_nothing = !rows.iter().any(|&other| other.rate == row.rate && is_judged(other));
            message.rsplit_once(ENDED_HERE).map(|(_, why)| why).or(Some(message).filter(|_| shows_nothing))
        });
        let failed = rows.iter().filter(|row| row.verdict == Some(Verdict::Failed));
        let lowest = failed.filter_map(|row| Some((row.rate?, *row))).min_by(|one, other| one.0.total_cmp(&other.0));
        // Most seeds decide. A seed may have judged a rate twice.
        let seeds = |rate: Option<f64>, answer: bool| {
            let of_rate = rows.iter().filter(|&&it| it.rate == rate && is_judged(it));
            let those = of_rate.filter(|it| it.loadgen_accepts == Some(answer)).map(|it| it.seed);
            those.collect::<BTreeSet<u64>>().len()
        };
        let kept = rows.iter().filter(|row| seeds(row.rate, true) > seeds(row.rate, false));
        let kept = kept.filter_map(|row| Some((row.rate?, *row))).max_by(|one, other| one.0.total_cmp(&other.0));
        if let Some((rate, row)) = kept {
            let (rate, bounds) = (per_second(rate), bounds_in_words(row, latency).unwrap_or_default());
            let end = end.map(|why| format!(": {why}")).unwrap_or_default();
            return Some(format!("{case}: {rate} keeps {bounds}, but the highest rate that does was not found{end}"));
        }
        if let Some((rate, row)) = lowest {
            let bounds = bounds_in_words(row, latency).unwrap_or_default();
            let end = end.map(|why| format!("; the search ended there: {why}")).unwrap_or_default();
            return Some(format!("{case}: no rate down to {} keeps {bounds}{end}", per_second(rate)));
        }
        // Other trials do not show that no rate keeps the bound.
        Some(format!("{case}: no rate was found: {}", end.or(rows.last()?.message.as_deref())?))
    };
    cases.into_iter().filter_map(line).collect()
}

/// One sentence about a case's splits. A split that another beats in rate, latency, memory, energy and cost, as far as
/// they are known, is marked.
fn sentence(case: &str, mut found: Vec<&LoadResult>) -> String {
    let rate = |row: &LoadResult| row.found_rate.or(row.rate).unwrap_or(0.0);
    found.sort_by(|one, other| rate(other).total_cmp(&rate(one)));
    let of_row = |row: &&LoadResult| {
        let or_equal = |figure: Option<f64>| figure.unwrap_or(0.0);
        let [memory, energy, cost] = [row.memory_mb, row.energy_j_per_request, row.cost_per_million].map(or_equal);
        [-rate(row), row.latency_ms, memory, energy, cost]
    };
    let figures: Vec<[f64; 5]> = found.iter().map(of_row).collect();
    let is_on_front = front(&figures);
    let part = |(place, row): (usize, &&LoadResult)| {
        let threads = if place == 0 { " threads" } else { "" };
        let bound = bounds_in_words(row, latency).filter(|_| place == 0);
        let bound = bound.map(|bounds| format!(" at {bounds}")).unwrap_or_default();
        let memory = row.memory_mb.map(|memory| format!(" with {}", megabytes(memory))).unwrap_or_default();
        let energy = row.energy_j_per_request.map(|it| format!(" and {} a request", joules(it))).unwrap_or_default();
        let cost = cost(row).map(|cost| format!(" for {cost} per million")).unwrap_or_default();
        let beaten = if is_on_front[place] { "" } else { ", beaten in all" };
        let rate = per_second(rate(row)) + &interval(row);
        let (instances, threads_each) = (row.instances, row.threads);
        let callers = row.callers.map(|callers| format!(" with {callers} callers")).unwrap_or_default();
        if let Some(server) = row.server.as_ref().or(row.url.as_ref()) {
            return format!("{server} serves {rate}{bound}{cost}");
        }
        format!("{instances} × {threads_each}{threads}{callers} serve {rate}{bound}{memory}{energy}{cost}{beaten}")
    };
    format!("{case}: {}", found.iter().enumerate().map(part).collect::<Vec<_>>().join("; "))
}

/// ` (471 … 493, 95 % interval of 3 searches)`
fn interval(row: &LoadResult) -> String {
    let counts = row.searches.zip(row.searches_with_rate);
    let searches = match counts {
        Some((made, with_rate)) if with_rate < made => format!("{with_rate} of {}", plural(made, "search", "searches")),
        Some((made, _)) => plural(made, "search", "searches"),
        None => return String::new(),
    };
    match row.found_rate_lower.zip(row.found_rate_upper) {
        Some((lower, upper)) => {
            let [lower, upper] = [lower, upper].map(|rate| per_second(rate).trim_end_matches("/s").to_owned());
            format!(" ({lower} … {upper}, 95 % interval of {searches})")
        }
        None if counts == Some((1, 1)) => String::new(),
        None => format!(" (found by {searches})"),
    }
}

#[cfg(test)]
mod tests;
