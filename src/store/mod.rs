//! Where records are kept: a run's folder `target-reports/<run-id>/`, and the history of all runs, the [`Store`].

mod calls;
mod columns;
mod csv;
#[cfg(feature = "duckdb")]
mod database;
mod folder;
mod import;
mod layout;
mod migration;
mod parquet;
mod tables;
mod transaction;

pub use calls::{CallsWriter, LATENCIES, read_calls};
pub use columns::{Column, ColumnType};
pub use csv::{read_records, write_records, write_throughput};
#[cfg(feature = "duckdb")]
pub use database::{Answer, Database, write_database};
pub use folder::{Imported, STORE_FILE, STORE_FORMAT, Store};
pub use import::{all_runs, find_runs, read_run};
pub use layout::RunPlace;
pub use tables::{RunRow, StoredRun, Table};

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The records' file in a run's folder.
pub const RESULTS: &str = "results.csv";
/// The short form.
pub const THROUGHPUT: &str = "throughput.csv";

/// Writes a file whole or not at all: a full disk or a kill leaves the old one.
///
/// # Errors
/// The folder is missing or the disk is full.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), String> {
    write_file_whole(path, |file| file.write_all(bytes).map_err(|error| error.to_string()))
}

/// The same for content that is written bit by bit.
///
/// # Errors
/// The folder is missing, the disk is full, or `write` fails.
pub fn write_file_whole<T>(path: &Path, write: impl FnOnce(&mut File) -> Result<T, String>) -> Result<T, String> {
    let partial = path.with_extension("partial");
    let all = || -> Result<T, String> {
        let mut file = File::create(&partial).map_err(|error| error.to_string())?;
        let written = write(&mut file)?;
        let close = file.sync_all().and_then(|()| fs::rename(&partial, path));
        close.map(|()| written).map_err(|error| error.to_string())
    };
    all().map_err(|error| {
        let _ = fs::remove_file(&partial);
        format!("{}: {error}", path.display())
    })
}

/// The results of a run: by its id below `reports`, by a path, or the latest.
///
/// # Errors
/// There are none; the message says how to make them.
pub fn find_results(reports: &Path, run: Option<&str>) -> Result<PathBuf, String> {
    if let Some(run) = run {
        let given = Path::new(run);
        let candidates = [given.to_owned(), given.join(RESULTS), reports.join(run).join(RESULTS)];
        return candidates
            .into_iter()
            .find(|path| path.is_file())
            .ok_or_else(|| format!("no run {run:?} in {}, and no file or folder of that name", reports.display()));
    }
    let no_results = || format!("no results in {}; make some with `inferbench convert`", reports.display());
    all_results(reports).pop().ok_or_else(no_results)
}

/// The results of every run below `reports`, the oldest first: ids begin with the time.
pub fn all_results(reports: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(reports)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join(RESULTS))
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found
}
