//! `inferbench store`: looks at the history of runs, copies it and thins it out.

mod export;
mod import;
mod prune;
mod query;
mod runs;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};

use super::history_arguments::HistoryArguments;
use crate::history::{History, Run};
use crate::paths::Paths;

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
    Runs(runs::Arguments),
    Prune(prune::Arguments),
}

/// Runs the command, and returns its exit code.
pub fn run(Arguments { command, history }: &Arguments) -> Result<u8> {
    let reports = Paths::find().reports();
    match command {
        Command::Import(arguments) => import::run(arguments, history.only(&reports)?),
        Command::Export(arguments) => export::run(arguments, &history.open(reports)?),
        Command::Query(arguments) => query::run(arguments, || history.open(reports)),
        Command::Runs(arguments) => runs::run(arguments, &history.open(reports)?),
        Command::Prune(arguments) => prune::run(arguments, &History::open(&[history.only(&reports)?.to_owned()])?),
    }
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
