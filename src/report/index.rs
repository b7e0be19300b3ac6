//! `target-reports/index.html`: all runs, the newest first, with links to the files of each.

use std::path::{Path, PathBuf};

use super::escape::html as escape;
use super::html::fill;
use super::selection::ReportedRun;
use crate::definition::Status;
use crate::store::{RESULTS, THROUGHPUT, all_results};

/// The file's name in the folder of reports.
pub const INDEX: &str = "index.html";
/// A run's own page, in its folder.
pub const REPORT: &str = "report.html";

const PAGE: &str = include_str!("html/index.html");

/// The page for the runs below `reports`; `criterion` is the root of Criterion's tree.
pub fn render(reports: &Path, criterion: &Path) -> String {
    let rows: Vec<String> = all_results(reports).iter().rev().filter_map(|results| row(results)).collect();
    let criterion_page = criterion.join("report/index.html");
    let criterion = match relative(reports, &criterion_page) {
        Some(link) if criterion_page.is_file() => format!(
            "<a href=\"{}\">Criterion's own pages</a> have every sample of the last measurement.",
            escape(&link)
        ),
        _ => "Criterion has written no pages of its own; it does so unless it is told <code>--noplot</code>.".into(),
    };
    let count = match rows.len() {
        1 => "1 run".to_owned(),
        count => format!("{count} runs"),
    };
    fill(PAGE, &[("count", &count), ("criterion", &criterion), ("rows", &rows.concat())])
}

/// The row of a run. The row of a run that cannot be read says why.
fn row(results: &Path) -> Option<String> {
    let folder = results.parent()?;
    let name = folder.file_name()?.to_string_lossy().into_owned();
    let run = match ReportedRun::read(results) {
        Ok(run) => run,
        Err(error) => {
            return Some(format!("<tr><td>{}</td><td colspan=\"6\">{}</td></tr>\n", escape(&name), escape(&error)));
        }
    };
    let link =
        |file: &str, text: &str| format!("<a href=\"{}/{file}\">{}</a>", escape(&in_address(&name)), escape(text));
    let has = |file: &str| folder.join(file).is_file();
    let title = if has(REPORT) { link(REPORT, &name) } else { escape(&name) };
    let files: Vec<String> =
        [(RESULTS, "CSV"), (THROUGHPUT, "short CSV"), ("report.md", "Markdown"), ("manifest.json", "manifest")]
            .into_iter()
            .filter(|(file, _)| has(file))
            .map(|(file, text)| link(file, text))
            .collect();
    let first = run.records.first();
    let text = |value: Option<String>| escape(&value.unwrap_or_default());
    let commit = first.and_then(|record| {
        let commit: String = record.git_commit.as_ref()?.chars().take(12).collect();
        Some(if record.git_dirty == Some(true) { format!("{commit} (changed)") } else { commit })
    });
    let machine = match &run.manifest {
        Some(manifest) => manifest.machine.cpu_model.clone(),
        None => first.map(|record| record.host_id.clone()),
    };
    let measured = run.records.iter().filter(|record| record.status == Status::Ok).count();
    Some(format!(
        "<tr><td>{title}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"number\">{measured} of {}</td><td>{}</td></tr>\n",
        text(first.map(|record| record.timestamp.strftime("%Y-%m-%d %H:%M UTC").to_string())),
        text(commit),
        text(first.map(|record| record.suite.clone())),
        text(machine),
        run.records.len(),
        files.join(" · "),
    ))
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

/// The path of the page about several runs.
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
