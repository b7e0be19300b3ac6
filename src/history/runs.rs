//! Which runs there are: the folders, CSV files and database exports of a history, in order.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::run::Run;
use crate::store::RESULTS;

/// The runs below any number of roots. Opening it lists folders and reads no records.
#[derive(Debug)]
pub struct History {
    roots: Vec<PathBuf>,
    /// The newest first.
    runs: Vec<Run>,
}

impl History {
    /// Opens a history. A root is a folder of run folders, one run's folder, or a CSV file of records.
    ///
    /// A run that several roots hold is listed once, as the first root has it. A folder that does not exist holds no runs.
    ///
    /// # Errors
    /// A root cannot be listed or is no history.
    pub fn open(roots: &[PathBuf]) -> Result<Self> {
        let mut runs = Vec::new();
        for root in roots {
            runs.extend(runs_of(root)?);
        }
        runs.sort_by(|one, other| (other.started(), other.name()).cmp(&(one.started(), one.name())));
        runs.dedup_by(|later, kept| kept.is_same_as(later));
        Ok(History { roots: roots.to_vec(), runs })
    }

    /// All runs, the newest first.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The newest run.
    ///
    /// # Errors
    /// There is none; the message says how to make one.
    pub fn latest(&self) -> Result<&Run> {
        let places = self.places();
        self.runs.first().with_context(|| format!("no results in {places}; make some with `inferbench convert`"))
    }

    /// The run of this name: the path of a run's folder or of a CSV file of one run, or a run id of this history.
    /// Returns `None` if there is no such run.
    ///
    /// # Errors
    /// The path is a file that cannot be read, or holds several runs.
    pub fn find(&self, name: &str) -> Result<Option<Run>> {
        let path = Path::new(name);
        if path.is_file() || Run::is_run(path) {
            let mut runs = runs_of(path)?;
            return match (runs.pop(), runs.is_empty()) {
                (Some(run), true) => Ok(Some(run)),
                (Some(_), false) => bail!("{name}: it holds several runs; open it with `--history {name}`"),
                (None, _) => bail!("{name}: it has no row"),
            };
        }
        Ok(self.runs.iter().find(|run| run.name() == name).cloned())
    }

    /// The run of this name, as [`History::find`] finds it.
    ///
    /// # Errors
    /// Those of [`History::find`], and there is no such run.
    pub fn get(&self, name: &str) -> Result<Run> {
        let places = self.places();
        self.find(name)?.with_context(|| format!("no run {name:?} in {places}, and no file or folder of that name"))
    }

    /// The roots, for messages.
    pub fn places(&self) -> String {
        self.roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

fn runs_of(root: &Path) -> Result<Vec<Run>> {
    if root.is_file() {
        return match root.parent() {
            Some(folder) if root.ends_with(RESULTS) => Ok(vec![Run::in_folder(folder)]),
            _ => Run::in_csv(root),
        };
    }
    if Run::is_run(root) {
        return Ok(vec![Run::in_folder(root)]);
    }
    if !root.exists() {
        return Ok(Vec::new());
    }
    let entries = fs_err::read_dir(root)?.collect::<std::io::Result<Vec<_>>>()?;
    Ok(entries
        .iter()
        .map(|entry| entry.path())
        .filter(|path| Run::is_run(path))
        .map(|path| Run::in_folder(&path))
        .collect())
}
