//! What a history has beside the folders of its runs: profiles and load tests.
//!
//! ```text
//! target-reports/profiles/<run>/
//!   profile.json            everything
//!   profiles.parquet        the operators                        table profiles
//!   profile.html            the page
//! target-reports/loads/<run>/
//!   load.json               everything
//!   load_results.parquet    the trials                           table load_results
//! ```

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fs_err as fs;
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Table as Row;

use super::facts::Table;
use super::parquet::write_rows;
use super::writing::{hidden_folder, put};
use crate::run_data::files::{folders_with, read_json};
use crate::run_data::{LoadRun, Profile, write_whole};

/// The folder of profiles in a history's folder.
pub const PROFILES: &str = "profiles";
/// The page of a profile.
pub const PAGE: &str = "profile.html";
/// The data of a profile.
pub const DATA: &str = "profile.json";
/// The folder of load tests, and the data of one.
const LOADS: &str = "loads";
const LOAD: &str = "load.json";

/// Writes a profile with its page into the history in `root`, whole or not at all. Returns its folder.
///
/// # Errors
/// The history cannot be written, or has a profile of that name.
pub fn write_profile(root: &Path, profile: &Profile, page: &str) -> Result<PathBuf> {
    let rows = (Table::Profiles, profile_rows(profile)?);
    write(&root.join(PROFILES), &profile.run_id, (DATA, profile), rows, Some(page))
}

/// Writes a load test into the history in `root`, whole or not at all. Returns its folder.
///
/// # Errors
/// The history cannot be written, or has a load test of that name.
pub fn write_load(root: &Path, run: &LoadRun) -> Result<PathBuf> {
    write(&root.join(LOADS), &run.run_id, (LOAD, run), (Table::Loads, load_rows(run)?), None)
}

fn write(
    root: &Path,
    run_id: &str,
    (data, value): (&str, &impl Serialize),
    (table, rows): (Table, Vec<Row>),
    page: Option<&str>,
) -> Result<PathBuf> {
    let new = hidden_folder(root)?;
    put(new.path(), data, |bytes| Ok(serde_json::to_writer(bytes, value)?))?;
    put(new.path(), table.file(), |bytes| write_rows(table.columns(), &rows, bytes))?;
    if let Some(page) = page {
        write_whole(&new.path().join(PAGE), page.as_bytes())?;
    }
    let folder = root.join(run_id);
    fs::rename(new.path(), &folder)?;
    Ok(folder)
}

/// Reads the load tests of the history in `root`, the oldest first. One that cannot be read is an error that names it, and hides no other.
pub fn read_loads(root: &Path) -> Vec<Result<LoadRun>> {
    let folders = folders_with(&root.join(LOADS), LOAD);
    let mut loads: Vec<Result<LoadRun>> = folders.into_iter().map(|folder| read_json(&folder.join(LOAD))).collect();
    loads.sort_by_key(|load: &Result<LoadRun>| load.as_ref().ok().map(|load| load.timestamp));
    loads
}

/// Reads a profile: the path of its folder or file, or a name in the history in `root`. Returns `None` if there is none.
///
/// # Errors
/// The file cannot be read or is of another version; the message names it.
pub fn find_profile(root: &Path, name: &str) -> Result<Option<Profile>> {
    let file = Path::new(name);
    if file.is_file() && file.extension().is_some_and(|extension| extension == "json") {
        return read_json(file).map(Some);
    }
    find(&root.join(PROFILES), name, DATA)
}

/// Reads a load test: the path of its folder, or a name in the history in `root`. Returns `None` if there is none.
///
/// # Errors
/// The file cannot be read or is of another version; the message names it.
pub fn find_load(root: &Path, name: &str) -> Result<Option<LoadRun>> {
    find(&root.join(LOADS), name, LOAD)
}

fn find<T: DeserializeOwned>(root: &Path, name: &str, data: &str) -> Result<Option<T>> {
    let named = Path::new(name);
    let of_history = (named.components().count() == 1).then(|| root.join(name));
    let mut files = [named.to_owned()].into_iter().chain(of_history).map(|folder| folder.join(data));
    files.find(|file| file.is_file()).map(|file| read_json(&file)).transpose()
}

/// The rows of all profiles of a history.
#[cfg(feature = "duckdb")]
pub(super) fn rows_of_profiles(root: &Path) -> Result<Vec<Row>> {
    let folders = folders_with(&root.join(PROFILES), DATA);
    rows_of_readable(folders.iter().map(|folder| read_json(&folder.join(DATA))), profile_rows)
}

/// The rows of all load tests of a history.
#[cfg(feature = "duckdb")]
pub(super) fn rows_of_loads(root: &Path) -> Result<Vec<Row>> {
    rows_of_readable(read_loads(root).into_iter(), load_rows)
}

/// The rows of what can be read. What cannot be read is named on the error stream, and hides nothing else.
#[cfg(feature = "duckdb")]
fn rows_of_readable<T>(all: impl Iterator<Item = Result<T>>, rows: fn(&T) -> Result<Vec<Row>>) -> Result<Vec<Row>> {
    let readable = all.filter_map(|one| one.map_err(|why| eprintln!("left out: {why:#}")).ok());
    Ok(readable.map(|one| rows(&one)).collect::<Result<Vec<_>>>()?.concat())
}

fn profile_rows(profile: &Profile) -> Result<Vec<Row>> {
    let rows = profile.cases.iter().flat_map(|case| &case.rows);
    rows.map(Row::try_from).collect::<Result<_, _>>().context("a row of a profile")
}

fn load_rows(run: &LoadRun) -> Result<Vec<Row>> {
    Ok(run.results.iter().map(Row::try_from).collect::<Result<_, _>>()?)
}
