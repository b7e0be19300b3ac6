//! What can be imported: run folders, CSV files, other stores.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::calls::{LATENCIES, count_calls};
use super::folder::{STORE_FILE, Store};
use super::tables::StoredRun;
use super::{RESULTS, all_results, read_records};
use crate::harness::RunFolder;
use crate::record::Record;

/// The runs of a source, and what could not be read of it: a run's folder, a folder of such folders, a CSV file of
/// results, a store, or the id of a run below `reports`.
///
/// # Errors
/// There is nothing of these.
pub fn find_runs(reports: &Path, source: &str) -> Result<Vec<Result<StoredRun, String>>, String> {
    let given = Path::new(source);
    let below = reports.join(source);
    let path = [given, &below]
        .into_iter()
        .find(|path| path.exists())
        .ok_or_else(|| format!("no run {source:?} in {}, and no file or folder of that name", reports.display()))?;
    if path.is_file() {
        return read_csv(path);
    }
    if path.join(STORE_FILE).is_file() {
        let store = Store::read(path)?;
        return Ok(store.places()?.iter().map(|place| store.stored_run(place)).collect());
    }
    if path.join(RESULTS).is_file() {
        return Ok(vec![read_run(path)]);
    }
    let runs = all_runs(path);
    if runs.is_empty() {
        return Err(format!("{}: no {RESULTS}, no folder with one, and no {STORE_FILE}", path.display()));
    }
    Ok(runs)
}

/// The runs in the folders below `reports`.
pub fn all_runs(reports: &Path) -> Vec<Result<StoredRun, String>> {
    all_results(reports).iter().filter_map(|results| results.parent()).map(read_run).collect()
}

/// A run out of its folder: its results, and its manifest and calls where they are there.
///
/// # Errors
/// A file is cut short, of a newer version, or of another run; the message names it.
pub fn read_run(folder: &Path) -> Result<StoredRun, String> {
    let results = folder.join(RESULTS);
    let records = records(&results)?;
    let run_id = records.first().map(|record| record.run_id.clone()).unwrap_or_default();
    let manifest = folder
        .join("manifest.json")
        .is_file()
        .then(|| RunFolder::new(folder.to_owned()).read_manifest().map_err(|error| format!("{error:#}")));
    let latencies: PathBuf = folder.join(LATENCIES);
    let calls = latencies.is_file().then(|| count_calls(&latencies, &run_id).map(|count| (latencies, count)));
    StoredRun::new(records, manifest.transpose()?.as_ref(), calls.transpose()?)
        .map_err(|error| format!("{}: {error}", results.display()))
}

/// The runs of a CSV file by itself, which may be of several.
fn read_csv(path: &Path) -> Result<Vec<Result<StoredRun, String>>, String> {
    if path.file_name().is_some_and(|name| name == RESULTS) {
        return Ok(vec![read_run(path.parent().unwrap_or(Path::new(".")))]);
    }
    let mut runs: BTreeMap<(String, String), Vec<Record>> = BTreeMap::new();
    for record in records(path)? {
        runs.entry((record.host_id.clone(), record.run_id.clone())).or_default().push(record);
    }
    Ok(runs.into_values().map(|records| StoredRun::new(records, None, None)).collect())
}

fn records(path: &Path) -> Result<Vec<Record>, String> {
    let named = |error: String| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| named(error.to_string()))?;
    read_records(file).map_err(named)
}
