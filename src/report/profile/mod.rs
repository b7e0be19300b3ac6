//! Profiles for readers: tables, one page, and the files that flame graphs and trace viewers open.

mod groups;
mod links;
mod page;
mod stacks;
mod table;
mod timeline;
mod words;

use anyhow::{Result, ensure};

pub use groups::grouped;
pub use links::{ProfileLink, newest_pages, profile_links};
pub(super) use links::{address, encoded};
pub use page::page;
pub use stacks::{folded, folded_stacks};
pub use table::{Options, difference_table, position_table, table};
pub use timeline::{Span, spans, trace};
pub use words::{heading, summary};

use super::escape::{markdown as escape, terminal};
use super::table::{Table, wrapped};
use crate::profile::difference;
use crate::run_data::{CaseProfile, Profile};

/// A form in which a profile is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// For a terminal
    Table,
    /// For a README or a pull request
    #[value(alias = "md")]
    Markdown,
    /// For scripts
    Json,
    /// All rows, for a spreadsheet
    Csv,
    /// A stack per line with its nanoseconds, for programs that draw flame graphs
    Folded,
    /// A stack of functions per line with its samples, from `--cpu`
    Stacks,
    /// Trace events, for Perfetto, speedscope and the Firefox Profiler
    Trace,
}

/// The profile in this form, ending with a line break. With two cases to compare, tables, JSON and CSV are about their difference.
///
/// # Errors
/// Stacks are asked for and there are none, or a value cannot be written, which the types of a profile exclude.
pub fn render(profile: &Profile, compared: Option<[&CaseProfile; 2]>, form: Form, options: &Options) -> Result<String> {
    let difference = compared.map(|[a, b]| difference(a, b));
    let print: fn(&Table) -> String = if form == Form::Markdown { Table::markdown } else { Table::terminal };
    Ok(match (form, &difference) {
        (Form::Table, None) => per_case(profile, terminal, |case| {
            let lines =
                [&case.case_id, &summary(case), &heading(case)].map(|line| wrapped(&terminal(line), 0)).concat();
            format!("{lines}\n{}", tables(case, options, print))
        }),
        (Form::Markdown, None) => per_case(profile, escape, |case| {
            let [id, summary, heading] = [&case.case_id, &summary(case), &heading(case)].map(|line| escape(line));
            format!("### {id}\n\n{summary}\n\n{heading}\n\n{}", tables(case, options, print))
        }),
        (Form::Table | Form::Markdown, Some(difference)) => {
            let words = words::of_difference(difference);
            let line = |line: &str| match form {
                Form::Markdown => escape(line) + "  \n",
                _ => terminal(line) + "\n",
            };
            let lines: String = words.lines().map(line).collect();
            format!("{lines}\n{}", print(&difference_table(difference, options)))
        }
        (Form::Json, None) => super::json(profile),
        (Form::Json, Some(difference)) => super::json(difference),
        (Form::Csv, None) => super::separated(profile.cases.iter().flat_map(|case| &case.rows))?,
        (Form::Csv, Some(difference)) => super::separated(difference.rows.iter())?,
        (Form::Folded, _) => profile.cases.iter().map(|case| folded(case, is_twice(profile, case))).collect(),
        (Form::Stacks, _) => {
            let has_stacks = profile.cases.iter().any(|case| case.stacks.is_some());
            ensure!(has_stacks, "the profile has no stacks of threads; `--cpu` samples them");
            stacks::of_cases(profile)
        }
        (Form::Trace, _) => trace(&profile.cases),
    })
}

/// Returns true if several runs in the profile have this case.
fn is_twice(profile: &Profile, case: &CaseProfile) -> bool {
    profile.cases.iter().filter(|other| other.case_id == case.case_id).count() > 1
}

/// The JSON Schema of a profile.
pub fn schema() -> String {
    super::schema_of::<Profile>("inferbench profile")
}

fn per_case(profile: &Profile, escape: fn(&str) -> String, text: impl Fn(&CaseProfile) -> String) -> String {
    let failures = profile.failures.iter().map(|failure| format!("{}: {}", failure.case_id, failure.message));
    profile.cases.iter().map(text).chain(failures.map(|line| escape(&line) + "\n")).collect()
}

/// The table of operators, and the table of positions if there are any.
fn tables(case: &CaseProfile, options: &Options, print: fn(&Table) -> String) -> String {
    let positions = (!case.positions.is_empty()).then(|| position_table(case));
    std::iter::once(table(case, options)).chain(positions).map(|table| print(&table) + "\n").collect()
}

#[cfg(test)]
mod tests;
