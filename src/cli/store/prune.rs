//! `inferbench store prune`: removes what the history need not keep.

use anyhow::Result;
use clap::{ArgGroup, Args};
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::chosen;
use crate::exit_codes;
use crate::history::{History, LATENCIES, Run, remove, remove_calls};

/// Remove runs, or only their calls, which are most of the history
#[derive(Args)]
#[command(
    after_help = "A run is removed if all given conditions hold. Without a condition nothing is removed.\n\nExamples:\n  \
        inferbench store prune --keep 20 --only-calls\n  inferbench store prune --before 2026-01-01 --dry-run\n  \
        inferbench store prune --run 20260101T120000Z"
)]
#[command(group = ArgGroup::new("which").required(true).multiple(true))]
pub struct Arguments {
    /// Remove these runs
    #[arg(long = "run", value_name = "ID", value_delimiter = ',', group = "which")]
    runs: Vec<String>,
    /// Remove all runs but the latest COUNT
    #[arg(long, value_name = "COUNT", group = "which")]
    keep: Option<usize>,
    /// Remove the runs that began before this day (UTC)
    #[arg(long, value_name = "DATE", group = "which")]
    before: Option<Date>,
    /// Remove only the calls of these runs, and keep the results
    #[arg(long)]
    only_calls: bool,
    /// List what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn run(arguments: &Arguments, history: &History) -> Result<u8> {
    let before = arguments.before.map(|date| date.to_zoned(TimeZone::UTC)).transpose()?.map(|time| time.timestamp());
    let latest = &history.runs()[..arguments.keep.unwrap_or(0).min(history.runs().len())];
    let is_removed = |run: &&Run| {
        latest.iter().all(|kept| kept.folder() != run.folder())
            && before.is_none_or(|before| run.started().is_some_and(|started| started < before))
            && (!arguments.only_calls || run.folder().join(LATENCIES).is_file())
    };
    let runs: Vec<&Run> = chosen(history, &arguments.runs)?.into_iter().rev().filter(is_removed).collect();
    let what = if arguments.dry_run { "would remove" } else { "removed" };
    let calls = if arguments.only_calls { " (the calls)" } else { "" };
    for run in &runs {
        match (arguments.dry_run, arguments.only_calls) {
            (true, _) => {}
            (false, true) => remove_calls(run)?,
            (false, false) => remove(run)?,
        }
        println!("{what} {}{calls}", run.name());
    }
    if runs.is_empty() {
        eprintln!("nothing to remove");
    }
    Ok(exit_codes::OK)
}
