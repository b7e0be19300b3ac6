//! `target-reports/index.html`: all runs, the newest first, with links to the files of each.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Result;

use super::escape::html as escape;
use super::html::fill;
use crate::history::{History, RESULTS, Run, THROUGHPUT};

/// The file's name in the folder of reports.
pub const INDEX: &str = "index.html";
/// The name of a page about runs: in the folder of one run, or above those of several.
pub const REPORT: &str = "report.html";

const PAGE: &str = include_str!("html/index.html");

/// The page about the runs below `reports`; `criterion` is the root of Criterion's tree.
///
/// # Errors
/// The folder cannot be listed.
pub fn render(reports: &Path, criterion: &Path) -> Result<String> {
    let mut processors = HashMap::new();
    let rows: Vec<String> =
        History::open(&[reports.to_owned()])?.runs().iter().map(|run| row(run, &mut processors)).collect();
    let criterion_page = criterion.join("report/index.html");
    let criterion = match relative(reports, &criterion_page) {
        Some(link) if criterion_page.is_file() => {
            let link = escape(&link);
            format!("<a href=\"{link}\">Criterion's own pages</a> have every sample of the last measurement.")
        }
        _ => "Criterion has written no pages of its own; it does so unless it is told <code>--noplot</code>.".into(),
    };
    let count = match rows.len() {
        1 => "1 run".to_owned(),
        count => format!("{count} runs"),
    };
    Ok(fill(PAGE, &[("count", &count), ("criterion", &criterion), ("rows", &rows.concat())]))
}

/// The row of a run. The row of a run that cannot be read says why. The processor of a host is looked up once.
fn row(run: &Run, processors: &mut HashMap<String, Option<String>>) -> String {
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
    let has = |file: &str| run.pages().join(file).is_file();
    let title = if has(REPORT) { link(REPORT, name) } else { escape(name) };
    let files = [(RESULTS, "CSV"), (THROUGHPUT, "short CSV"), ("report.md", "Markdown"), ("manifest.json", "manifest")];
    let links: Vec<String> =
        files.into_iter().filter(|(file, _)| has(file)).map(|(file, text)| link(file, text)).collect();
    let commit = facts.git_commit.as_ref().map(|commit| {
        let commit: String = commit.chars().take(12).collect();
        if facts.git_dirty == Some(true) { format!("{commit} (changed)") } else { commit }
    });
    let processor = || run.machine().ok().flatten().and_then(|machine| machine.cpu_model);
    let machine = processors.entry(facts.host_id.clone()).or_insert_with(processor).clone().unwrap_or(facts.host_id);
    let started = facts.timestamp.strftime("%Y-%m-%d %H:%M UTC").to_string();
    let texts =
        [started, commit.unwrap_or_default(), facts.suite, machine].map(|text| format!("<td>{}</td>", escape(&text)));
    let measured = format!("<td class=\"number\">{} of {}</td>", facts.cases_ok, facts.cases);
    format!("<tr><td>{title}</td>{}{measured}<td>{}</td></tr>\n", texts.concat(), links.join(" · "))
}

/// The path from a folder to a file, with `..` where they part. Returns `None` if they share nothing.
fn relative(from: &Path, to: &Path) -> Option<String> {
    let absolute = |path: &Path| std::path::absolute(path).ok();
    let (from, to) = (absolute(from)?, absolute(to)?);
    let shared = from.components().zip(to.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(shared).map(|_| "..".to_owned());
    let down = to.components().skip(shared).map(|part| in_address(&part.as_os_str().to_string_lossy()));
    (shared > 0).then(|| up.chain(down).collect::<Vec<_>>().join("/"))
}

/// A file name as part of an address, percent-encoded.
fn in_address(name: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    name.bytes()
        .map(|byte| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
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
