//! Where records are kept: `target-reports/<run-id>/`.

mod csv;

pub use csv::{read_records, write_records, write_throughput};

use std::fs;
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
    let partial = path.with_extension("partial");
    let write = || -> std::io::Result<()> {
        fs::write(&partial, bytes)?;
        fs::File::open(&partial)?.sync_all()?;
        fs::rename(&partial, path)
    };
    write().map_err(|error| {
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
