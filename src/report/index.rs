//! The list of runs: a table, and the page `target-reports/index.html` with links to the files of each run.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::escape::html as escape;
use super::numbers::{commit, plural};
use super::profile::{ProfileLink, profile_links};
use super::table::{Cell, Column, Table};
use crate::history::{History, RESULTS, Run, RunFacts};

/// The file's name in the folder of reports.
pub const INDEX: &str = "index.html";
/// The name of a page about runs: in the folder of one run, or above those of several.
pub const REPORT: &str = "report.html";

/// Runs with a row each, as far as they can be read.
pub struct RunList {
    pub table: Table,
    pub facts: Vec<RunFacts>,
    /// A line for each run that cannot be read: why, and what to do about it.
    pub unread: Vec<String>,
}

impl RunList {
    /// The list of these runs. Its links, of the run to its page and of the cases to their CSV file, are relative to the folder
    /// of reports.
    pub fn new<'a>(runs: impl Iterator<Item = &'a Run>) -> Self {
        let texts = ["run", "started", "host", "suite", "commit"].map(Column::text);
        let columns = texts.into_iter().chain(["cases", "ok", "calls"].map(Column::number));
        let mut list = RunList { table: Table::new(columns), facts: Vec::new(), unread: Vec::new() };
        for run in runs {
            match run.facts() {
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

fn cells(run: &Run, facts: &RunFacts) -> [Cell; 8] {
    let linked = |text: &str, file: &str| match run.pages().join(file).is_file() {
        true => Cell::from(text).link(format!("{}/{file}", run.name())),
        false => Cell::from(text),
    };
    [
        linked(&facts.run_id, REPORT),
        facts.timestamp.strftime("%Y-%m-%d %H:%M UTC").to_string().into(),
        facts.host_id.as_str().into(),
        facts.suite.as_str().into(),
        commit(facts.git_commit.as_deref(), facts.git_dirty).into(),
        linked(&facts.cases.to_string(), RESULTS),
        facts.cases_ok.to_string().into(),
        facts.calls.to_string().into(),
    ]
}

/// The page about the runs below `reports`, the newest first; `criterion` is the root of Criterion's tree.
///
/// # Errors
/// The folder cannot be listed.
pub fn render(reports: &Path, criterion: &Path) -> Result<String> {
    let mut list = RunList::new(History::open(&[reports.to_owned()])?.runs().iter());
    for line in &list.unread {
        list.table.footnote(line);
    }
    let link = |page: PathBuf| {
        let path = escape(&page.display().to_string());
        format!("Criterion's own pages, with every sample of the last measurement, are <a href=\"{path}\">{path}</a>.")
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
    for ProfileLink { page, case_ids } in links {
        let name = page.split('/').nth(1).unwrap_or_default().to_owned();
        table.row([Cell::from(name).link(page), Cell::from(case_ids.join(", "))]);
    }
    format!("<h2>Profiles: where the time goes</h2>\n{}", table.html())
}
