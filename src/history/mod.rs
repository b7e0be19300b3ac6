//! The history of runs: the folders of `target-reports/`, one per run.
//!
//! It takes the records and files of a run. It gives them back: whole runs, or answers to a question. What they mean is
//! for `compare`, `report` and `decision`.
//!
//! ```text
//! target-reports/<run>/
//!   results.csv          the records                                table benchmark_results
//!   metrics.csv          figures that are not columns of records    table metrics
//!   manifest.json        time, machine, source revision             tables benchmark_runs and hardware_info
//!   latencies.parquet    every call                                 table raw_benchmark_data
//!   distributions.json, throughput.csv, report.html, …
//!   results.parquet, run.parquet, hardware.parquet, metrics.parquet   the same tables, for other programs
//! target-reports/profiles/<run>/   what `inferbench profile` leaves     table profiles
//! target-reports/loads/<run>/      what `inferbench load` leaves        table load_results
//! ```
//!
//! The folders are the database: there is no index and no second copy. Readers use these names:
//!
//! - [`History::open`] opens any number of roots; [`History::runs`] lists the runs, the newest first;
//!   [`History::latest`], [`History::find`] and [`History::get`] choose one.
//! - [`Run::facts`], [`Run::records`], [`Run::metrics`], [`Run::manifest`], [`Run::machine`] and [`Run::distributions`] read one run.
//!   Nothing is read before it is asked for.
//!
//! [`Question`] asks the records of all runs for rows and groups.
//!
//! Writers use [`NewRun`], [`import`], [`remove`] and [`remove_calls`]; the feature `duckdb` adds [`Database`].

mod beside;
mod calls;
mod columns;
mod csv;
#[cfg(feature = "duckdb")]
mod database;
mod facts;
mod parquet;
mod query;
mod run;
mod runs;
mod writing;

pub use beside::{
    DATA, PAGE, PROFILES, copy_beside, find_load, find_profile, folder_of_load, read_loads, write_load, write_profile,
};
pub use calls::{CallsWriter, LATENCIES};
pub use csv::{read_records, write_metrics, write_records, write_throughput};
#[cfg(feature = "duckdb")]
pub use database::{Database, write_database};
pub(crate) use facts::names;
pub use facts::{RunFacts, Table};
pub use query::{Answer, Question, SHORT_NAMES};
pub use run::{METRICS, RESULTS, Run};
pub use runs::History;
pub use writing::{Imported, NewRun, THROUGHPUT, import, records_as_parquet, remove, remove_calls};

pub use crate::run_data::write_whole;

/// How to get DuckDB, for messages.
#[cfg(not(feature = "duckdb"))]
pub const WITHOUT_DUCKDB: &str = "this inferbench is built without DuckDB, which SQL and .duckdb files need; run `scripts/setup duckdb` and build with `--features duckdb`";

#[cfg(feature = "duckdb")]
use database::runs_of_database;

#[cfg(not(feature = "duckdb"))]
fn runs_of_database(path: &std::path::Path) -> anyhow::Result<Vec<Run>> {
    anyhow::bail!("{}: {WITHOUT_DUCKDB}", path.display())
}

/// Says how to get DuckDB.
///
/// # Errors
/// Always.
#[cfg(not(feature = "duckdb"))]
pub fn write_database(_runs: &[Run], path: &std::path::Path) -> anyhow::Result<()> {
    anyhow::bail!("{}: {WITHOUT_DUCKDB}", path.display())
}
