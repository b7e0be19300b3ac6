//! Which runs there are: the folders, CSV files and database exports of a history, in order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::beside::LOADS;
use super::run::{RESULTS, Run};

/// The runs below any number of roots. Opening it lists folders and reads no records.
#[derive(Debug)]
pub struct History {
    roots: Vec<PathBuf>,
    /// The newest first.
    runs: Vec<Run>,
}

impl History {
    /// Opens a history. A root is a folder of run folders, one run's folder, a CSV file of records, or a database that
    /// `inferbench store export` wrote.
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
        // Not `sort_by_key`, whose key cannot borrow: a stable sort keeps the order of the roots.
        let mut dated: Vec<_> = runs.into_iter().map(|run| (run.started(), run)).collect();
        dated.sort_by(|(one_time, one), (other_time, other)| (other_time, other.name()).cmp(&(one_time, one.name())));
        let mut runs: Vec<Run> = Vec::new();
        for (_, run) in dated {
            // Two runs may have one name, and lie between copies of either.
            let alike = runs.iter().rev().take_while(|kept| kept.name() == run.name());
            if !alike.into_iter().any(|kept| kept.is_same_as(&run)) {
                runs.push(run);
            }
        }
        Ok(History { roots: roots.to_vec(), runs })
    }

    /// All runs, the newest first.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The newest runs of each machine, at most so many of each, the newest first. A run that cannot be read and does not say its
    /// machine is among them, so that whoever reads it names it.
    pub fn newest_of_each_machine(&self, most: usize) -> Vec<Run> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let mut is_wanted = |run: &&Run| {
            let Ok(hosts) = run.host_ids() else { return true };
            let is_wanted = hosts.iter().any(|host_id| counts.get(host_id).is_none_or(|count| *count < most));
            hosts.into_iter().for_each(|host_id| *counts.entry(host_id).or_default() += 1);
            is_wanted
        };
        self.runs.iter().filter(|run| is_wanted(run)).cloned().collect()
    }

    /// The folders and files that it was opened with.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// The newest run.
    ///
    /// # Errors
    /// There is none; the message says how to make one.
    pub fn latest(&self) -> Result<&Run> {
        let none = || format!("no results in {}; make some with `inferbench convert`", self.places());
        self.runs.first().with_context(none)
    }

    /// The run of this name: the path of a run's folder or of a file with one run, or a run id of this history.
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
                (Some(_), false) => bail!("{name}: it holds several runs; read them with `--history {name}`"),
                (None, _) => bail!("{name}: it has no row"),
            };
        }
        // A folder may have another name than its run.
        let by_id = || self.runs.iter().find(|run| run.facts().is_ok_and(|facts| facts.run_id == name));
        Ok(self.runs.iter().find(|run| run.name() == name).or_else(by_id).cloned())
    }

    /// The run of this name, as [`History::find`] finds it.
    ///
    /// # Errors
    /// Those of [`History::find`], and there is no such run.
    pub fn get(&self, name: &str) -> Result<Run> {
        let is_name = !name.is_empty() && !name.contains(['/', '\\']) && !name.starts_with('.');
        let is_load = || is_name && self.roots.iter().any(|root| root.join(LOADS).join(name).is_dir());
        let none = || match () {
            () if is_load() => format!("{name} is a load test and no run: `inferbench load {name}` shows it"),
            () if Path::new(name).exists() => {
                format!(
                    "{name} is no run: `--history {name}` reads the runs in a folder, and a file of records ends with .csv or .parquet"
                )
            }
            () => format!("no run {name:?} in {}, and no file or folder of that name", self.places()),
        };
        self.find(name)?.with_context(none)
    }

    /// The roots, for messages.
    pub fn places(&self) -> String {
        self.roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

fn runs_of(root: &Path) -> Result<Vec<Run>> {
    if root.is_file() {
        return match root.extension().and_then(|extension| extension.to_str()) {
            _ if root.ends_with(RESULTS) => {
                let folder = root.parent().filter(|folder| !folder.as_os_str().is_empty());
                Ok(vec![Run::in_folder(folder.unwrap_or(Path::new(".")))])
            }
            Some("duckdb") => super::runs_of_database(root),
            _ => Run::in_csv(root),
        };
    }
    if Run::is_run(root) {
        return Ok(vec![Run::in_folder(root)]);
    }
    if !root.exists() {
        return Ok(Vec::new());
    }
    let mut runs = Vec::new();
    for entry in fs_err::read_dir(root)? {
        let path = entry?.path();
        if Run::is_run(&path) {
            runs.push(Run::in_folder(&path));
        }
    }
    Ok(runs)
}
