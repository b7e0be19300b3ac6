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
    use crate::store::{Database, Store};

    let database = match &arguments.database {
        Some(path) => Database::open(path)?,
        None => Database::over(Store::read(folder)?)?,
    };
    let answer = database.query(&arguments.sql)?;
    let header: Vec<&str> = answer.columns.iter().map(String::as_str).collect();
    let listing = |format| {
        let rows = answer.texts().collect();
        Listing { header: &header, rows, objects: answer.objects() }.print(format)
    };
    let separated = |delimiter: u8| {
        let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(Vec::new());
        let write =
            writer.write_record(&header).and_then(|()| answer.texts().try_for_each(|row| writer.write_record(row)));
        write.map_err(|error| error.to_string())?;
        let bytes = writer.into_inner().map_err(|error| error.to_string())?;
        print(&String::from_utf8_lossy(&bytes))
    };
    match arguments.format {
        QueryFormat::Table => listing(ListFormat::Table)?,
        QueryFormat::Json => listing(ListFormat::Json)?,
        QueryFormat::Csv => separated(b',')?,
        QueryFormat::Tsv => separated(b'\t')?,
    }
    Ok(crate::exit_codes::OK)
}
