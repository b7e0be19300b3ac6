//! What a history holds besides runs: profiles and load tests.
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
use super::writing::{exchange, hidden_folder, put};
use crate::run_data::files::{folders_with, read_json};
use crate::run_data::{LoadRun, Profile, write_whole};

/// The folder of profiles in a history's folder.
pub const PROFILES: &str = "profiles";
/// The page of a profile.
pub const PAGE: &str = "profile.html";
/// The data of a profile.
pub const DATA: &str = "profile.json";
/// The folder of load tests, and the data of one.
pub(super) const LOADS: &str = "loads";
const LOAD: &str = "load.json";

/// Writes a profile with its page into the history in `root`, whole or not at all. It replaces an earlier, incomplete
/// state of the same profile. Returns its folder.
///
/// # Errors
/// The history cannot be written.
pub fn write_profile(root: &Path, profile: &Profile, page: &str) -> Result<PathBuf> {
    let rows = (Table::Profiles, profile_rows(profile)?);
    let name = (profile.run_id.as_str(), profile.host_id.as_str());
    let is_same = |folder: &Path| {
        let kept: Result<Profile> = read_json(&folder.join(DATA));
        let begins =
            |kept: &Profile| kept.cases.iter().zip(&profile.cases).all(|(one, other)| one.case_id == other.case_id);
        kept.is_ok_and(|kept| {
            kept.host_id == profile.host_id && kept.cases.len() <= profile.cases.len() && begins(&kept)
        })
    };
    write(&root.join(PROFILES), name, (DATA, profile), rows, Some(page), is_same)
}

/// Writes a load test into the history in `root`, whole or not at all. It replaces an earlier, incomplete state of the
/// same load test. Returns its folder.
///
/// # Errors
/// The history cannot be written.
pub fn write_load(root: &Path, run: &LoadRun) -> Result<PathBuf> {
    let is_same = |folder: &Path| {
        let kept: Result<LoadRun> = read_json(&folder.join(LOAD));
        kept.is_ok_and(|kept| (kept.timestamp, &kept.host_id) == (run.timestamp, &run.host_id))
    };
    let rows = (Table::Loads, load_rows(run)?);
    write(&root.join(LOADS), (&run.run_id, &run.host_id), (LOAD, run), rows, None, is_same)
}

/// Writes a folder named by its id. If another machine began in the same second, the host is added, and then a number.
/// A folder that `is_same` accepts is replaced.
fn write(
    root: &Path,
    (run_id, host_id): (&str, &str),
    (data, value): (&str, &impl Serialize),
    (table, rows): (Table, Vec<Row>),
    page: Option<&str>,
    is_same: impl Fn(&Path) -> bool,
) -> Result<PathBuf> {
    let new = hidden_folder(root)?;
    put(new.path(), data, |bytes| Ok(serde_json::to_writer(bytes, value)?))?;
    put(new.path(), table.file(), |bytes| write_rows(table.columns(), &rows, bytes))?;
    if let Some(page) = page {
        write_whole(&new.path().join(PAGE), page.as_bytes())?;
    }
    let names = [run_id.to_owned(), format!("{run_id}-{host_id}")].into_iter();
    let mut names = names.chain((2..).map(|number| format!("{run_id}-{host_id}-{number}")));
    let is_free = |name: &String| !root.join(name).exists() || is_same(&root.join(name));
    let folder = root.join(names.find(is_free).as_deref().unwrap_or(run_id));
    if is_same(&folder) {
        exchange(new.path(), &folder)?;
    } else {
        fs::rename(new.path(), &folder)?;
    }
    Ok(folder)
}

/// Reads the load tests of the history in `root`, the oldest first. A load test that cannot be read is an error that
/// names its file.
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

/// Copies the profiles and load tests of the history in `from`, except those of which `to` has as much already. What
/// cannot be read is named on the error stream and left out. Returns how many were copied.
///
/// # Errors
/// `to` cannot be written.
pub fn copy_beside(from: &Path, to: &Path) -> Result<usize> {
    let (mut count, known) = (0, read_loads(to));
    for load in read_loads(from).into_iter().filter_map(readable) {
        let has_it = |kept: &LoadRun| {
            let is_same = (kept.timestamp, &kept.host_id) == (load.timestamp, &load.host_id);
            is_same && kept.results.len() >= load.results.len()
        };
        if !known.iter().flatten().any(has_it) {
            write_load(to, &load)?;
            count += 1;
        }
    }
    for folder in folders_with(&from.join(PROFILES), DATA) {
        let read = || Ok((read_json(&folder.join(DATA))?, fs::read_to_string(folder.join(PAGE))?));
        let kept = folder.file_name().map(|name| to.join(PROFILES).join(name).join(DATA));
        let kept = kept.and_then(|file| read_json::<Profile>(&file).ok());
        let has_it = |profile: &Profile| {
            let is_same = |kept: &Profile| (&kept.run_id, &kept.host_id) == (&profile.run_id, &profile.host_id);
            kept.as_ref().is_some_and(|kept| is_same(kept) && kept.cases.len() >= profile.cases.len())
        };
        if let Some((profile, page)) = readable(read()).filter(|(profile, _)| !has_it(profile)) {
            write_profile(to, &profile, &page)?;
            count += 1;
        }
    }
    Ok(count)
}

/// What could be read. Anything else is named on the error stream.
fn readable<T>(one: Result<T>) -> Option<T> {
    one.map_err(|why| eprintln!("left out: {why:#}")).ok()
}

/// The folder of a load test of the history in `root`, if there is one of this name.
pub fn folder_of_load(root: &Path, name: &str) -> Option<PathBuf> {
    Some(root.join(LOADS).join(name)).filter(|folder| folder.join(LOAD).is_file())
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

/// The rows of everything that can be read. The rest is named on the error stream.
#[cfg(feature = "duckdb")]
fn rows_of_readable<T>(all: impl Iterator<Item = Result<T>>, rows: fn(&T) -> Result<Vec<Row>>) -> Result<Vec<Row>> {
    Ok(all.filter_map(readable).map(|one| rows(&one)).collect::<Result<Vec<_>>>()?.concat())
}

fn profile_rows(profile: &Profile) -> Result<Vec<Row>> {
    let rows = profile.cases.iter().flat_map(|case| &case.rows);
    rows.map(Row::try_from).collect::<Result<_, _>>().context("a row of a profile")
}

fn load_rows(run: &LoadRun) -> Result<Vec<Row>> {
    Ok(run.results.iter().map(Row::try_from).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_data::LoadResult;

    #[test]
    fn a_load_test_replaces_what_was_kept_of_it_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        let run = |host_id: &str, cases: usize| LoadRun {
            run_id: "20260101T000000Z".into(),
            host_id: host_id.into(),
            results: vec![LoadResult::default(); cases],
            ..LoadRun::default()
        };
        write_load(root.path(), &run("a", 1)).unwrap();
        write_load(root.path(), &run("a", 2)).unwrap();
        // Another machine has begun in the same second.
        write_load(root.path(), &run("b", 3)).unwrap();
        write_load(root.path(), &run("b", 4)).unwrap();
        // The same machine, twice more.
        for second in [1, 2] {
            let timestamp = jiff::Timestamp::from_second(second).unwrap();
            write_load(root.path(), &LoadRun { timestamp, ..run("a", 5) }).unwrap();
        }
        let kept: Vec<LoadRun> = read_loads(root.path()).into_iter().collect::<Result<_>>().unwrap();
        assert_eq!(kept.iter().map(|run| run.results.len()).collect::<Vec<_>>(), [2, 4, 5, 5]);
    }
}
