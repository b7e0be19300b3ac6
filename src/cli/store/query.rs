//! `inferbench store query`: SQL over the store.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

/// Ask the store in SQL; needs a build with `--features duckdb`
#[derive(Args)]
#[command(
    after_help = "Tables: benchmark_runs, benchmark_results, hardware_info, raw_benchmark_data (run_id, \"case\", sample, call, \
        nanoseconds, disturbed).\n\nExamples:\n  inferbench store query 'FROM benchmark_runs'\n  \
        inferbench store query 'DESCRIBE benchmark_results'\n  \
        inferbench store query --format csv 'SELECT * FROM benchmark_results' > all.csv"
)]
pub struct Arguments {
    /// DuckDB's SQL
    #[arg(allow_hyphen_values = true)]
    #[cfg_attr(not(feature = "duckdb"), allow(dead_code, reason = "only DuckDB reads it"))]
    sql: String,
    #[arg(long, value_enum, default_value = "table")]
    #[cfg_attr(not(feature = "duckdb"), allow(dead_code, reason = "only DuckDB's answers are printed"))]
    format: QueryFormat,
    /// Ask this database file instead of the store
    #[arg(long, value_name = "FILE")]
    #[cfg_attr(not(feature = "duckdb"), allow(dead_code, reason = "only DuckDB reads it"))]
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
pub fn run(_arguments: &Arguments, folder: &Path) -> Result<u8, String> {
    Err(format!(
        "this inferbench is built without DuckDB; run `scripts/setup duckdb` and build with `--features duckdb` (pandas, Polars and \
         DuckDB itself read the Parquet files in {} as they are)",
        folder.display()
    ))
}

#[cfg(feature = "duckdb")]
pub fn run(arguments: &Arguments, folder: &Path) -> Result<u8, String> {
    use crate::cli::{ListFormat, Listing, print};
    use crate::report::table::{Column, Table};
    use crate::store::{Database, Store};

    let database = match &arguments.database {
        Some(path) => Database::open(path)?,
        None => Database::over(Store::read(folder)?)?,
    };
    let answer = database.query(&arguments.sql)?;
    let table = Table::new(answer.columns.iter().map(Column::text)).with_rows(answer.texts());
    match arguments.format {
        QueryFormat::Table => Listing { table, objects: serde_json::Value::Null }.print(ListFormat::Table)?,
        QueryFormat::Json => Listing { table, objects: answer.objects() }.print(ListFormat::Json)?,
        QueryFormat::Csv => print(&table.separated(b','))?,
        QueryFormat::Tsv => print(&table.separated(b'\t'))?,
    }
    Ok(crate::exit_codes::OK)
}
