//! `inferbench store`: looks at the history of runs, copies it and thins it out.

mod export;
mod import;
mod prune;
mod query;
mod runs;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};

use super::history_arguments::open;
use crate::exit_codes;
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
    /// The history: a folder of runs, a CSV file of records, or a .duckdb export; may be repeated where runs are only read
    /// [default: target-reports]
    #[arg(long, global = true, value_name = "PATH", alias = "store")]
    history: Vec<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Make an empty history
    Init,
    Import(import::Arguments),
    Export(export::Arguments),
    Query(query::Arguments),
    Runs(runs::Arguments),
    Prune(prune::Arguments),
}

/// Runs the command, and returns its exit code.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let roots = match arguments.history.as_slice() {
        [] => vec![Paths::find().reports()],
        roots => roots.to_vec(),
    };
    match &arguments.command {
        Command::Init => {
            let root = only(&roots)?;
            fs_err::create_dir_all(root)?;
            println!("{}", root.display());
            Ok(exit_codes::OK)
        }
        Command::Import(arguments) => import::run(arguments, only(&roots)?),
        Command::Export(arguments) => export::run(arguments, &open(&roots)?),
        Command::Query(arguments) => query::run(arguments, &roots),
        Command::Runs(arguments) => runs::run(arguments, &open(&roots)?),
        Command::Prune(arguments) => prune::run(arguments, &open(&[only(&roots)?.clone()])?),
    }
}

/// The history that is changed.
fn only(roots: &[PathBuf]) -> Result<&PathBuf> {
    ensure!(roots.len() == 1, "several histories; name the one that is to be changed with one `--history`");
    ensure!(!roots[0].is_file(), "{}: it is a file; only a folder of runs can be changed", roots[0].display());
    Ok(&roots[0])
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
