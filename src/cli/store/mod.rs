//! `inferbench store`: the history of runs, to fill, look at and thin out.

mod export;
pub mod import;
mod prune;
mod query;
mod runs;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::exit_codes;
use crate::paths::Paths;
use crate::store::Store;

/// Keep a history of runs as Parquet, and query it with SQL
#[derive(Args)]
#[command(
    after_help = "The store is a folder of Parquet files that pandas, Polars and DuckDB read as they are: a folder a table \
        (benchmark_runs, benchmark_results, hardware_info, raw_benchmark_data).\n\nExamples:\n  inferbench store import\n  \
        inferbench store runs\n  inferbench store query 'SELECT model, min(latency_p50_ms) FROM benchmark_results GROUP BY ALL'"
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// The store's folder [default: target-reports/store]
    #[arg(long, global = true, value_name = "FOLDER")]
    store: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Make an empty store
    Init,
    Import(import::Arguments),
    Export(export::Arguments),
    Query(query::Arguments),
    Runs(runs::Arguments),
    Prune(prune::Arguments),
}

pub fn run(arguments: &Arguments) -> Result<u8, String> {
    let store = arguments.store.clone().unwrap_or_else(|| Paths::find().store());
    match &arguments.command {
        Command::Init => {
            println!("{}", Store::write(&store)?.folder().display());
            Ok(exit_codes::OK)
        }
        Command::Import(arguments) => import::run(arguments, &store),
        Command::Export(arguments) => export::run(arguments, &store),
        Command::Query(arguments) => query::run(arguments, &store),
        Command::Runs(arguments) => runs::run(arguments, &store),
        Command::Prune(arguments) => prune::run(arguments, &store),
    }
}
