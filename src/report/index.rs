//! The list of runs: a table, and the page `target-reports/index.html` with links to the files of each run.

use std::path::{Path, PathBuf};

use anyhow::Result;
use indexmap::IndexMap;

use super::escape::html as escape;
use super::numbers::{commit, latency, plural};
use super::profile::{ProfileLink, address, encoded, profile_links};
use super::table::{Cell, Column, Table};
use crate::history::{History, RESULTS, Run, RunFacts, names};

/// The file's name in the folder of reports.
pub const INDEX: &str = "index.html";
/// The name of a page about runs: in the folder of one run, or above the folders of several.
pub const REPORT: &str = "report.html";

/// Runs with a row each, as far as they can be read.
pub struct RunList {
    pub table: Table,
    pub facts: Vec<RunFacts>,
    /// A line for each run that cannot be read: why, and what to do about it.
    pub unread: Vec<String>,
}

impl RunList {
    /// The list of the wanted runs. Its links, from the run to its page and from the cases to their CSV file, are
    /// relative to the folder of reports.
    pub fn new<'a>(runs: impl Iterator<Item = &'a Run>, is_wanted: impl Fn(&RunFacts) -> bool) -> Self {
        let measured = [Column::text("models").essential(), Column::text("backends"), Column::text("fastest")];
        let counts = [Column::number("cases"), Column::number("ok"), Column::number("calls").minor()];
        let others = ["started", "host", "suite", "commit"].map(|header| Column::text(header).minor());
        let columns = [Column::text("run")].into_iter().chain(measured).chain(counts).chain(others);
        let mut list = RunList { table: Table::new(columns), facts: Vec::new(), unread: Vec::new() };
        for run in runs {
            match run.facts() {
                Ok(facts) if !is_wanted(&facts) => {}
                Ok(facts) => {
                    list.table.row(cells(run, &facts));
                    list.facts.push(facts);
                }
                Err(error) => list.unread.push(format!("unreadable: {error:#}; {}", run.how_to_mend())),
            }
        }
        list
    }
}

fn cells(run: &Run, facts: &RunFacts) -> [Cell; 11] {
    let linked = |text: &str, file: &str| match run.pages().join(file).is_file() {
        true => Cell::from(text).link(format!("{}/{file}", encoded(run.name()))),
        false => Cell::from(text),
    };
    // A whole manifest is long, so that it is read only if the run may lack cases.
    let is_stopped = facts.finished.is_none() || facts.is_interrupted == Some(true);
    let planned = is_stopped.then(|| run.manifest().ok().flatten()).flatten().map(|manifest| manifest.cases.len());
    let more = planned.filter(|planned| *planned > facts.cases).map(|planned| format!(" of {planned}"));
    [
        linked(run.name(), REPORT),
        some_of(&facts.models).into(),
        facts.backends.as_str().into(),
        fastest(facts).into(),
        linked(&format!("{}{}", facts.cases, more.unwrap_or_default()), RESULTS),
        facts.cases_ok.to_string().into(),
        facts.calls.to_string().into(),
        facts.timestamp.strftime("%Y-%m-%d %H:%M UTC").to_string().into(),
        facts.host_id.as_str().into(),
        facts.suite.as_str().into(),
        commit(facts.git_commit.as_deref(), facts.git_dirty).into(),
    ]
}

/// `digits, resnet50 and 7 more`.
fn some_of(models: &str) -> String {
    const MOST: usize = 3;
    let all: Vec<&str> = names(models).collect();
    match all.len() {
        0..=MOST => all.join(", "),
        count => format!("{} and {} more", all[..MOST - 1].join(", "), count + 1 - MOST),
    }
}

/// For one model, `ort-cpu-f32/1 42.5 ms`; for several, how many models each backend is the fastest on:
/// `ort 5, candle 4`.
fn fastest(facts: &RunFacts) -> String {
    let ids = || names(&facts.fastest_cases).filter_map(|id| id.split_once('/')?.1.rsplit_once('/'));
    if let (Some((function, batch)), Some(ms)) = (ids().next(), facts.fastest_p50_ms) {
        return format!("{function}/{batch} {}", latency(ms));
    }
    let mut counts: IndexMap<&str, usize> = IndexMap::new();
    for (function, _) in ids() {
        let is_of = |backend: &&str| function.strip_prefix(backend).is_some_and(|rest| rest.starts_with('-'));
        // `ort-web-wasm-f32` is not of `ort`.
        let backend = names(&facts.backends).filter(is_of).max_by_key(|backend| backend.len());
        *counts.entry(backend.unwrap_or(function)).or_default() += 1;
    }
    counts.sort_by(|_, one, _, other| other.cmp(one));
    counts.iter().map(|(backend, count)| format!("{backend} {count}")).collect::<Vec<_>>().join(", ")
}

/// The page about the runs below `reports`, the newest first; `criterion` is the root of Criterion's tree.
pub fn render(reports: &Path, criterion: &Path) -> Result<String> {
    let mut list = RunList::new(History::open(&[reports.to_owned()])?.runs().iter(), |_| true);
    list.unread.iter().for_each(|line| list.table.footnote(line));
    let link = |page: PathBuf| {
        let (address, path) = (address(&page), escape(&page.display().to_string()));
        format!(
            "Criterion's own pages, with every sample of the last measurement, are <a href=\"{address}\">{path}</a>."
        )
    };
    let page = Some(criterion.join("report/index.html")).filter(|page| page.is_file());
    let criterion = page.map(link).unwrap_or_default();
    Ok(format!(
        include_str!("html/index.html"),
        style = include_str!("html/index.css"),
        count = plural(list.facts.len(), "run", "runs"),
        criterion = criterion,
        table = list.table.html(),
        profiles = profiles(reports),
    ))
}

/// The profiles with their cases, the newest first; nothing if there is none.
fn profiles(reports: &Path) -> String {
    let links = profile_links(reports);
    if links.is_empty() {
        return String::new();
    }
    let mut table = Table::new([Column::text("profile"), Column::text("cases")]);
    for ProfileLink { page, case_ids, .. } in links {
        let name = page.split('/').nth(1).unwrap_or_default().to_owned();
        table.row([Cell::from(name).link(page), Cell::from(case_ids.join(", "))]);
    }
    format!("<h2>Profiles: where the time goes</h2>\n{}", table.html())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_says_what_was_measured_and_what_was_fastest() {
        let facts = |models: &str, fastest_cases: &str, fastest_p50_ms| RunFacts {
            models: models.into(),
            backends: "ort, ort-web, candle".into(),
            fastest_cases: fastest_cases.into(),
            fastest_p50_ms,
            ..RunFacts::default()
        };
        let one = facts("net", "net/ort-cpu-f32/8", Some(42.5));
        assert_eq!((some_of(&one.models), fastest(&one)), ("net".into(), "ort-cpu-f32/8 42.5 ms".into()));
        let ids = "a/candle-cpu-f32/1, b/ort-web-wasm-f32/1, c/ort-web-wasm-f32/1, d/ort-cpu-f32/1";
        let several = facts("a, b, c, d", ids, None);
        assert_eq!(some_of(&several.models), "a, b and 2 more");
        assert_eq!(fastest(&several), "ort-web 2, candle 1, ort 1");
        assert_eq!((some_of(""), fastest(&facts("net", "", None))), (String::new(), String::new()));
        let has = |models: &[&str], backends: &[&str]| {
            let names = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
            several.has(&names(models), &names(backends))
        };
        assert!(has(&["x", "b"], &["ort-web"]) && has(&[], &[]) && !has(&["b"], &["web"]) && !has(&["x"], &[]));
    }
}
