//! `inferbench store`: looks at the history of runs, copies it and thins it out.

mod export;
mod import;
mod prune;
mod query;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};
use serde_json::json;

use super::Listing;
use super::history_arguments::HistoryArguments;
use crate::exit_codes;
use crate::history::{History, Run};
use crate::paths::Paths;
use crate::report::Format;
use crate::report::index::RunList;

/// Keep a history of runs as folders with Parquet files, and query it with SQL
#[derive(Args)]
#[command(
    after_help = "The history is the folder of reports. Each run's folder has Parquet files that pandas, Polars and DuckDB read: \
        run.parquet, results.parquet, hardware.parquet and latencies.parquet.\n\nExamples:\n  inferbench store runs\n  \
        inferbench store import /mnt/laptop/target-reports\n  \
        inferbench store query 'SELECT model, min(latency_p50_ms) FROM benchmark_results GROUP BY ALL'"
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    history: HistoryArguments,
}

#[derive(Subcommand)]
enum Command {
    Import(import::Arguments),
    Export(export::Arguments),
    Query(query::Arguments),
    /// List the runs of the history
    #[command(
        after_help = "Examples:\n  inferbench store runs\n  inferbench store runs --format json | jq '.[].run_id'"
    )]
    Runs {
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    Prune(prune::Arguments),
}

pub fn run(Arguments { command, history }: &Arguments) -> Result<u8> {
    let reports = Paths::find().reports();
    match command {
        Command::Import(arguments) => import::run(arguments, history.only(&reports)?),
        Command::Export(arguments) => export::run(arguments, &history.open(reports)?),
        Command::Query(arguments) => query::run(arguments, || history.open(reports)),
        Command::Runs { format } => Ok(list(&history.open(reports)?, *format)),
        Command::Prune(arguments) => prune::run(arguments, &History::open(&[history.only(&reports)?.to_owned()])?),
    }
}

/// Lists the oldest run first: the newest stand where a terminal's reader looks.
fn list(history: &History, format: Format) -> u8 {
    let RunList { table, facts, unread } = RunList::new(history.runs().iter().rev());
    Listing { table, objects: json!(facts) }.print(format);
    unread.iter().for_each(|line| eprintln!("{line}"));
    if unread.is_empty() { exit_codes::OK } else { exit_codes::USAGE }
}

/// The runs with these ids, the newest first; all runs if there are no ids.
fn chosen<'a>(history: &'a History, ids: &[String]) -> Result<Vec<&'a Run>> {
    for id in ids {
        let is_there = history.runs().iter().any(|run| run.name() == id);
        ensure!(is_there, "no run {id:?} in {}; `inferbench store runs` lists them", history.places());
    }
    let is_chosen = |run: &&Run| ids.is_empty() || ids.iter().any(|id| run.name() == id);
    Ok(history.runs().iter().filter(is_chosen).collect())
}
