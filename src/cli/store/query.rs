//! `inferbench store query`: runs SQL over the history.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::history::History;

/// Query the history with SQL; needs a build with `--features duckdb`
#[derive(Args)]
#[command(
    after_help = "Tables: benchmark_runs, benchmark_results, hardware_info, raw_benchmark_data (run_id, \"case\", sample, call, \
        nanoseconds, disturbed).\n\nExamples:\n  inferbench store query 'FROM benchmark_runs'\n  \
        inferbench store query 'DESCRIBE benchmark_results'\n  \
        inferbench store query --format csv 'SELECT * FROM benchmark_results' > all.csv"
)]
#[cfg_attr(not(feature = "duckdb"), allow(dead_code, reason = "only DuckDB reads the arguments"))]
pub struct Arguments {
    /// DuckDB's SQL
    #[arg(allow_hyphen_values = true)]
    sql: String,
    #[arg(long, value_enum, default_value = "table")]
    format: QueryFormat,
    /// Query this database file instead of the history
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum QueryFormat {
    Table,
    Json,
    Csv,
    Tsv,
}

#[cfg(not(feature = "duckdb"))]
pub fn run(_arguments: &Arguments, _open: impl FnOnce() -> Result<History>) -> Result<u8> {
    anyhow::bail!(
        "{} (pandas, Polars and DuckDB itself read the Parquet files of the runs as they are)",
        crate::history::WITHOUT_DUCKDB
    )
}

#[cfg(feature = "duckdb")]
pub fn run(arguments: &Arguments, open: impl FnOnce() -> Result<History>) -> Result<u8> {
    use crate::history::Database;
    use crate::report::json;
    use crate::report::table::{Column, Table};

    let database = match &arguments.database {
        Some(path) => Database::open(path)?,
        None => Database::over(open()?.runs())?,
    };
    let answer = database.query(&arguments.sql)?;
    let mut table = Table::new(answer.columns.iter().map(Column::text));
    for row in answer.texts() {
        table.row(row);
    }
    let text = match arguments.format {
        QueryFormat::Table => table.terminal(),
        QueryFormat::Json => json(&answer.objects()),
        QueryFormat::Csv => table.separated(b','),
        QueryFormat::Tsv => table.separated(b'\t'),
    };
    print!("{text}");
    Ok(crate::exit_codes::OK)
}
