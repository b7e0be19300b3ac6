//! Finds the runs of a history in folders, CSV files and database exports.

use std::cmp::Reverse;
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
    /// A root cannot be listed or is not a history.
    pub fn open(roots: &[PathBuf]) -> Result<Self> {
        let mut found = Vec::new();
        for (place, root) in roots.iter().enumerate() {
            found.extend(runs_of(root)?.into_iter().map(|run| (place, run)));
        }
        // The sort is stable, so of the copies with one name, the first root's comes first.
        found.sort_by_cached_key(|(_, run)| Reverse((run.started(), run.name().to_owned())));
        let mut runs: Vec<(usize, Run)> = Vec::new();
        for (place, run) in found {
            // A copy may have a longer name, and different runs may share a name or have one in between.
            let mut alike = runs.iter_mut().rev().take_while(|(_, kept)| kept.name().starts_with(run.name()));
            // Within a root, a copy of a folder is a run of its own.
            match alike.find(|(root, kept)| *root != place && kept.is_same_as(&run)) {
                None => runs.push((place, run)),
                Some(kept) if place < kept.0 => *kept = (place, run),
                Some(_) => {}
            }
        }
        Ok(History { roots: roots.to_vec(), runs: runs.into_iter().map(|(_, run)| run).collect() })
    }

    /// All runs, the newest first.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The newest `most` runs of each machine, the newest first. A run whose machines cannot be read is kept, so that
    /// the caller reports it.
    pub(crate) fn newest_of_each_machine(&self, most: usize) -> Vec<Run> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let mut is_wanted = |run: &&Run| {
            let Ok(hosts) = run.host_ids() else { return true };
            let is_wanted = hosts.iter().any(|host_id| counts.get(host_id).is_none_or(|count| *count < most));
            hosts.into_iter().for_each(|host_id| *counts.entry(host_id).or_default() += 1);
            is_wanted
        };
        self.runs.iter().filter(|run| is_wanted(run)).cloned().collect()
    }

    /// The folders and files with which the history was opened.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// The newest run.
    ///
    /// # Errors
    /// There is no run; the message says how to make one.
    pub fn latest(&self) -> Result<&Run> {
        let none = || format!("no results in {}; make some with `inferbench run`", self.places());
        self.runs.first().with_context(none)
    }

    /// The run of this name: the path of a run's folder or of a file with one run, or a run id of this history. A file
    /// without an extension is read only if its path has a separator. Returns `None` if there is no such run.
    ///
    /// # Errors
    /// The path is a file that cannot be read, has no row, or holds several runs.
    pub fn find(&self, name: &str) -> Result<Option<Run>> {
        let path = Path::new(name);
        // A file such as the program `main` may have the name of a baseline by chance.
        let is_meant = path.extension().is_some() || name.contains(['/', '\\']);
        if (is_meant && path.is_file()) || Run::is_run(path) {
            let mut runs = runs_of(path)?;
            return match (runs.pop(), runs.is_empty()) {
                (Some(run), true) => Ok(Some(run)),
                (Some(_), false) => bail!("{name}: it holds several runs; read them with `--history {name}`"),
                (None, _) => bail!("{name}: it has no row"),
            };
        }
        // The name of a folder may differ from its run's id.
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
        let none = || {
            if is_load() {
                format!("{name} is a load test, not a run: `inferbench load {name}` shows it")
            } else if Path::new(name).exists() {
                format!(
                    "{name} is not a run: `--history {name}` reads the runs in a folder, and a file of records ends with .csv"
                )
            } else {
                format!("no run {name:?} in {}, and no file or folder of that name", self.places())
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Case;
    use crate::history::write_records;
    use crate::run_data::Record;

    const ID: &str = "20260101T000000Z";

    /// Writes a run of a machine, which began at this time, into a folder of this name.
    fn write_run(root: &Path, name: &str, host_id: &str, time: &str) {
        let run = Record {
            run_id: ID.into(),
            timestamp: time.parse().unwrap(),
            host_id: host_id.into(),
            ..Record::default()
        };
        let folder = root.join(name);
        fs_err::create_dir(&folder).unwrap();
        let record = run.about(&Case::new("m", "ort", 1));
        write_records(&[record], fs_err::File::create(folder.join(RESULTS)).unwrap()).unwrap();
    }

    /// The folders of the runs that a history of these roots lists.
    fn listed(roots: &[&Path]) -> Vec<PathBuf> {
        let roots: Vec<PathBuf> = roots.iter().map(|root| root.to_path_buf()).collect();
        let history = History::open(&roots).unwrap();
        history.runs().iter().map(|run| run.folder().to_owned()).collect()
    }

    #[test]
    fn a_run_that_one_root_has_by_its_id_and_host_is_listed_once_as_the_first_root_has_it() {
        let (server, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (server, own) = (server.path(), own.path());
        let time = "2026-01-01T00:00:00Z";
        let second = format!("{ID}-b");
        write_run(server, ID, "a", time);
        write_run(server, &second, "b", time);
        write_run(own, ID, "b", time);
        assert_eq!(listed(&[server, own]), [server.join(&second), server.join(ID)]);
        assert_eq!(listed(&[own, server]), [own.join(ID), server.join(ID)]);
    }

    #[test]
    fn two_runs_of_one_machine_and_second_are_both_listed() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write_run(one.path(), ID, "a", "2026-01-01T00:00:00Z");
        write_run(other.path(), ID, "a", "2026-01-01T00:00:00.5Z");
        assert_eq!(listed(&[one.path(), other.path()]), [one.path().join(ID), other.path().join(ID)]);
    }

    #[test]
    fn a_copy_of_a_run_in_the_same_root_is_a_run() {
        let root = tempfile::tempdir().unwrap();
        let copy = format!("{ID}-before");
        for name in [ID, &copy] {
            write_run(root.path(), name, "a", "2026-01-01T00:00:00Z");
        }
        assert_eq!(listed(&[root.path()]), [root.path().join(copy), root.path().join(ID)]);
    }

    #[test]
    fn a_file_with_the_name_of_a_baseline_is_not_read() {
        let history = History::open(&[]).unwrap();
        // It lies in the folder of the package, which is the current one.
        assert!(Path::new("LICENSE-MIT").is_file());
        assert!(history.find("LICENSE-MIT").unwrap().is_none());
        assert!(history.find("./LICENSE-MIT").unwrap_err().to_string().contains("LICENSE-MIT"));
    }
}
