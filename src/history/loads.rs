//! The load tests of a history: `loads/<run>/` beside the folders of its runs.
//!
//! ```text
//! target-reports/loads/<run>/
//!   load.json               everything
//!   load_results.parquet    the trials                           table load_results
//! ```

use std::path::{Path, PathBuf};

use anyhow::Result;
use fs_err as fs;
use toml::Table as Row;

use super::facts::Table;
use super::parquet::write_rows;
use super::writing::{hidden_folder, put};
use crate::run_data::LoadRun;
use crate::run_data::files::{folders_with, read_json};

/// The folder of load tests in a history's folder.
pub const LOADS: &str = "loads";
const DATA: &str = "load.json";

/// Writes a load test into the history in `root`, whole or not at all. Returns its folder.
///
/// # Errors
/// The history cannot be written, or has a load test of that name.
pub fn write_load(root: &Path, run: &LoadRun) -> Result<PathBuf> {
    let root = root.join(LOADS);
    let new = hidden_folder(&root)?;
    let rows = rows(run)?;
    put(new.path(), DATA, |bytes| Ok(serde_json::to_writer(bytes, run)?))?;
    put(new.path(), Table::Loads.file(), |bytes| write_rows(Table::Loads.columns(), &rows, bytes))?;
    let folder = root.join(&run.run_id);
    fs::rename(new.path(), &folder)?;
    Ok(folder)
}

/// Reads the load tests of the history in `root`, the oldest first. One that cannot be read is an error that names it, and hides no other.
pub fn read_loads(root: &Path) -> Vec<Result<LoadRun>> {
    let folders = folders_with(&root.join(LOADS), DATA);
    let mut loads: Vec<Result<LoadRun>> = folders.into_iter().map(|folder| read_json(&folder.join(DATA))).collect();
    loads.sort_by_key(|load: &Result<LoadRun>| load.as_ref().ok().map(|load| load.timestamp));
    loads
}

/// Reads a load test: the path of its folder, or a name in the history in `root`. Returns `None` if there is none.
///
/// # Errors
/// The file cannot be read or is of another version; the message names it.
pub fn find_load(root: &Path, name: &str) -> Result<Option<LoadRun>> {
    let named = Path::new(name);
    let of_history = (named.components().count() == 1).then(|| root.join(LOADS).join(name).join(DATA));
    let mut files = [named.join(DATA)].into_iter().chain(of_history).filter(|file| file.is_file());
    files.next().map(|file| read_json(&file)).transpose()
}

/// The rows of all load tests of a history.
#[cfg(feature = "duckdb")]
pub(super) fn rows_of_loads(root: &Path) -> Result<Vec<Row>> {
    let named = |load: Result<LoadRun>| load.map_err(|why| eprintln!("left out: {why:#}")).ok();
    Ok(read_loads(root).into_iter().filter_map(named).map(|load| rows(&load)).collect::<Result<Vec<_>>>()?.concat())
}

fn rows(run: &LoadRun) -> Result<Vec<Row>> {
    Ok(run.results.iter().map(Row::try_from).collect::<Result<_, _>>()?)
}
