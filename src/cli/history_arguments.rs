//! `--history`: the flag that tells a command where runs are read from.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::Args;

use crate::history::{History, read_loads};
use crate::paths::{OUTPUT_DIR, variable};
use crate::run_data::LoadRun;

/// The flags that say where runs are read from.
#[derive(Args, Clone, Debug, Default)]
pub struct HistoryArguments {
    /// Read runs here: a folder of runs, one run's folder, a CSV file of records, or a .duckdb export; may be repeated where
    /// runs are only read. `store import` and `store prune` change this folder [default: target-reports]
    #[arg(long = "history", global = true, value_name = "PATH", alias = "store")]
    roots: Vec<PathBuf>,
}

impl HistoryArguments {
    /// Opens the roots that were given as one history, or else the folder of reports.
    ///
    /// # Errors
    /// A root does not exist or is not a history.
    pub fn open(&self, reports: PathBuf) -> Result<History> {
        self.roots.iter().try_for_each(|root| check(root))?;
        if self.roots.is_empty() { History::open(&[reports]) } else { History::open(&self.roots) }
    }

    /// Opens the same for a command about the history alone: a folder that `--output-dir` names has to exist, too.
    ///
    /// # Errors
    /// Those of [`HistoryArguments::open`]; the folder does not exist.
    pub fn existing(&self, reports: PathBuf) -> Result<History> {
        if self.roots.is_empty() && variable(OUTPUT_DIR).is_some() {
            check(&reports)?;
        }
        self.open(reports)
    }

    /// The load tests of a history, the oldest first. One that cannot be read is reported and left out.
    pub fn loads(history: &History) -> Vec<LoadRun> {
        let found = history.roots().iter().filter(|root| root.is_dir()).flat_map(|root| read_loads(root));
        let named = |load: Result<LoadRun>| load.map_err(|why| eprintln!("left out: {why:#}")).ok();
        let mut loads: Vec<LoadRun> = found.filter_map(named).collect();
        loads.sort_by_key(|load| load.timestamp);
        loads
    }

    /// The only history, for a command that changes it.
    ///
    /// # Errors
    /// There are several histories, or the history is a file.
    pub fn only<'a>(&'a self, reports: &'a Path) -> Result<&'a Path> {
        ensure!(self.roots.len() <= 1, "several histories; name the one that is to be changed with one `--history`");
        let root = self.roots.first().map_or(reports, PathBuf::as_path);
        ensure!(!root.is_file(), "{}: it is a file; only a folder of runs can be changed", root.display());
        Ok(root)
    }
}

/// Checks that the file or folder of a history exists.
fn check(root: &Path) -> Result<()> {
    let advice = "make one with `inferbench run` or `inferbench store import`";
    ensure!(root.exists(), "no history in {}: there is no such file or folder; {advice}", root.display());
    Ok(())
}
