//! The profiles of a history: `profiles/<run>/` beside the folders of its runs.
//!
//! ```text
//! target-reports/profiles/<run>/
//!   profile.json         everything
//!   profiles.parquet     the operators                          table profiles
//!   profile.html         the page
//! ```

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fs_err as fs;
use toml::Table as Row;

use super::facts::Table;
use super::parquet::write_rows;
use super::writing::{hidden_folder, put};
use crate::run_data::files::read_json;
use crate::run_data::{Profile, write_whole};

/// The folder of profiles in a history's folder.
pub const PROFILES: &str = "profiles";
/// The page of a profile.
pub const PAGE: &str = "profile.html";
/// The data of a profile.
pub const DATA: &str = "profile.json";

/// Writes a profile with its page into the history in `root`, whole or not at all. Returns its folder.
///
/// # Errors
/// The history cannot be written, or has a profile of that name.
pub fn write_profile(root: &Path, profile: &Profile, page: &str) -> Result<PathBuf> {
    let root = root.join(PROFILES);
    let new = hidden_folder(&root)?;
    let rows = profile_rows(profile)?;
    put(new.path(), DATA, |bytes| Ok(serde_json::to_writer(bytes, profile)?))?;
    write_whole(&new.path().join(PAGE), page.as_bytes())?;
    put(new.path(), Table::Profiles.file(), |bytes| write_rows(Table::Profiles.columns(), &rows, bytes))?;
    let folder = root.join(&profile.run_id);
    fs::rename(new.path(), &folder)?;
    Ok(folder)
}

/// Reads a profile: the path of its folder or file, or a name in the history in `root`. Returns `None` if there is none.
///
/// # Errors
/// The file cannot be read or is of another version; the message names it.
pub fn find_profile(root: &Path, name: &str) -> Result<Option<Profile>> {
    let named = Path::new(name);
    let is_name = named.components().count() == 1;
    let of_history = is_name.then(|| root.join(PROFILES).join(name).join(DATA));
    let files = [named.join(DATA), named.to_owned()].into_iter().chain(of_history);
    let mut files =
        files.filter(|file| file.is_file() && file.extension().is_some_and(|extension| extension == "json"));
    files.next().map(|file| read_json(&file)).transpose()
}

/// The rows of all profiles of a history.
#[cfg(feature = "duckdb")]
pub(super) fn rows_of_profiles(root: &Path) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for folder in std::fs::read_dir(root.join(PROFILES)).into_iter().flatten().flatten() {
        let file = folder.path().join(DATA);
        if file.is_file() {
            rows.extend(profile_rows(&read_json(&file)?)?);
        }
    }
    Ok(rows)
}

fn profile_rows(profile: &Profile) -> Result<Vec<Row>> {
    let rows = profile.cases.iter().flat_map(|case| &case.rows);
    rows.map(Row::try_from).collect::<Result<_, _>>().context("a row of a profile")
}
