//! `--history`: the flag with which a command is told where runs are read.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use crate::history::History;
use crate::paths::Paths;

/// The flags that say where runs are read from.
#[derive(Args, Clone, Debug, Default)]
pub struct HistoryArguments {
    /// Read runs here: a folder of runs, one run's folder, a CSV file of records, or a .duckdb export; may be repeated
    /// [default: target-reports]
    #[arg(long = "history", value_name = "PATH")]
    roots: Vec<PathBuf>,
}

impl HistoryArguments {
    /// Opens the roots that were given, or the folder of reports.
    ///
    /// # Errors
    /// A root does not exist or is no history.
    pub fn open(&self, paths: &Paths) -> Result<History> {
        if self.roots.is_empty() {
            return History::open(&[paths.reports()]);
        }
        open(&self.roots)
    }
}

/// Opens these roots as one history.
///
/// # Errors
/// A root does not exist or is no history.
pub fn open(roots: &[PathBuf]) -> Result<History> {
    for root in roots {
        let advice = "make one with `inferbench convert` or `inferbench store import`";
        ensure!(root.exists(), "no history in {}: there is no such file or folder; {advice}", root.display());
    }
    History::open(roots)
}
