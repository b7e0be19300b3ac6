//! `target-reports/index.html`: all runs, the newest first, with links to what there is of each.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::escape::html as escape;
use super::html::fill;
use crate::history::{History, RESULTS, Run, THROUGHPUT};

/// The file's name in the folder of reports.
pub const INDEX: &str = "index.html";
/// A run's own page, in its folder.
pub const REPORT: &str = "report.html";

const PAGE: &str = include_str!("html/index.html");

/// The page for the runs below `reports`; `criterion` is the root of Criterion's tree.
pub fn render(reports: &Path, criterion: &Path) -> String {
    let history = History::open(&[reports.to_owned()]);
    let mut machines = HashMap::new();
    let runs = history.as_ref().map(History::runs).unwrap_or_default();
    let rows: Vec<String> = runs.iter().map(|run| row(run, &mut machines)).collect();
    let criterion_page = criterion.join("report/index.html");
    let criterion = match relative(reports, &criterion_page) {
        Some(link) if criterion_page.is_file() => format!(
            "Of what was measured last, <a href=\"{}\">Criterion's own pages</a> have every sample.",
            escape(&link)
        ),
        _ => "Criterion's own pages are not there: it writes them unless it is told <code>--noplot</code>.".into(),
    };
    let count = match rows.len() {
        1 => "1 run".to_owned(),
        count => format!("{count} runs"),
    };
    fill(PAGE, &[("count", &count), ("criterion", &criterion), ("rows", &rows.concat())])
}

/// The row of a run. One that cannot be read has a row that says so. `machines` are the processors of the hosts so far.
fn row(run: &Run, machines: &mut HashMap<String, Option<String>>) -> String {
    let name = run.name();
    let facts = match run.facts() {
        Ok(facts) => facts,
        Err(error) => {
            return format!(
                "<tr><td>{}</td><td colspan=\"6\">{}</td></tr>\n",
                escape(name),
                escape(&format!("{error:#}"))
            );
        }
    };
    let link =
        |file: &str, text: &str| format!("<a href=\"{}/{file}\">{}</a>", escape(&in_address(name)), escape(text));
    let has = |file: &str| run.folder().join(file).is_file();
    let title = if has(REPORT) { link(REPORT, name) } else { escape(name) };
    let files: Vec<String> =
        [(RESULTS, "CSV"), (THROUGHPUT, "short CSV"), ("report.md", "Markdown"), ("manifest.json", "manifest")]
            .into_iter()
            .filter(|(file, _)| has(file))
            .map(|(file, text)| link(file, text))
            .collect();
    let commit: String = facts.git_commit.iter().flat_map(|commit| commit.chars().take(12)).collect();
    let changed = if facts.git_dirty == Some(true) { " (changed)" } else { "" };
    let processor = || run.machine().ok().flatten().and_then(|machine| machine.cpu_model);
    let machine = machines.entry(facts.host_id.clone()).or_insert_with(processor).as_ref().unwrap_or(&facts.host_id);
    format!(
        "<tr><td>{title}</td><td>{}</td><td>{}{changed}</td><td>{}</td><td>{}</td><td class=\"number\">{} of {}</td><td>{}</td></tr>\n",
        facts.timestamp.strftime("%Y-%m-%d %H:%M UTC"),
        escape(&commit),
        escape(&facts.suite),
        escape(machine),
        facts.cases_ok,
        facts.cases,
        files.join(" · "),
    )
}

/// From a folder to a file, with `..` where they part; none where they share nothing.
fn relative(from: &Path, to: &Path) -> Option<String> {
    let absolute = |path: &Path| std::path::absolute(path).ok();
    let (from, to) = (absolute(from)?, absolute(to)?);
    let shared = from.components().zip(to.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(shared).map(|_| "..".to_owned());
    let down = to.components().skip(shared).map(|part| in_address(&part.as_os_str().to_string_lossy()));
    (shared > 0).then(|| up.chain(down).collect::<Vec<_>>().join("/"))
}

/// A file's name as part of an address.
fn in_address(name: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    name.bytes()
        .map(|byte| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Where the page of several runs is written.
pub fn page_of_several(reports: &Path) -> PathBuf {
    reports.join(REPORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_relative_and_whole() {
        let of = |from: &str, to: &str| relative(Path::new(from), Path::new(to));
        assert_eq!(
            of("/p/target-reports", "/p/target/criterion/report/index.html").unwrap(),
            "../target/criterion/report/index.html"
        );
        assert_eq!(of("/p/r", "/q r/x.html").unwrap(), "../../q%20r/x.html");
        assert_eq!(in_address("a\"b#ü"), "a%22b%23%C3%BC");
    }
}
