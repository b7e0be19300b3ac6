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
#[cfg(feature = "duckdb")]
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

/// The rows of all load tests of a history.
#[cfg(feature = "duckdb")]
pub(super) fn rows_of_loads(root: &Path) -> Result<Vec<Row>> {
    let folders = folders_with(&root.join(LOADS), DATA);
    let read = |folder: PathBuf| rows(&read_json(&folder.join(DATA))?);
    Ok(folders.into_iter().map(read).collect::<Result<Vec<_>>>()?.concat())
}

fn rows(run: &LoadRun) -> Result<Vec<Row>> {
    Ok(run.results.iter().map(Row::try_from).collect::<Result<_, _>>()?)
}
