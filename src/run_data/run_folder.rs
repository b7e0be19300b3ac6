//! The folder of a run, `<target>/inferbench/runs/<run-id>/`, and the files in it.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::files::{append_line, folders_with, read_json, read_lines, write_json};
use super::manifest::{MANIFEST_FORMAT, Manifest};
use super::outcomes::{Event, Outcomes};

/// The file of the manifest, here and in the run's folder of a history.
pub const MANIFEST: &str = "manifest.json";
const OUTCOMES: &str = "outcomes.jsonl";

/// The folder of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    pub fn new(path: PathBuf) -> Self {
        RunFolder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The id of the run, which is the folder's name.
    pub fn id(&self) -> String {
        self.0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The folder of a run by its id, or of the latest run.
    ///
    /// # Errors
    /// There is no such run; the message says how to make one.
    pub fn find(runs: &Path, run_id: Option<&str>) -> Result<Self> {
        let found = RunFolder::all(runs).into_iter().rfind(|folder| run_id.is_none_or(|id| folder.id() == id));
        found.with_context(|| match run_id {
            Some(id) => format!("no run {id:?} in {}", runs.display()),
            None => format!("no run in {}; make one with `cargo bench` or `inferbench run`", runs.display()),
        })
    }

    /// All runs, the oldest first: ids begin with the time.
    pub fn all(runs: &Path) -> Vec<Self> {
        folders_with(runs, MANIFEST).into_iter().map(RunFolder).collect()
    }

    /// The latest run that a machine has begun, with its manifest.
    pub fn of_machine(runs: &Path, host_id: &str) -> Option<(Self, Manifest)> {
        let read = |folder: RunFolder| Some((folder.clone(), folder.read_manifest().ok()?));
        RunFolder::all(runs)
            .into_iter()
            .rev()
            .filter_map(read)
            .find(|(_, manifest)| manifest.machine.host_id == host_id)
    }

    /// When the outcomes changed last. Returns `None` if there are none.
    pub fn outcomes_changed(&self) -> Option<SystemTime> {
        self.0.join(OUTCOMES).metadata().and_then(|it| it.modified()).ok()
    }

    /// Writes the manifest, whole or not at all.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        write_json(&self.0.join(MANIFEST), manifest)
    }

    /// Reads the manifest.
    ///
    /// # Errors
    /// It is missing, cut short, or of a newer version.
    pub fn read_manifest(&self) -> Result<Manifest> {
        self.read_manifest_as()
    }

    /// Reads the fields of the manifest that `T` has, which takes a fraction of the time if they are few.
    ///
    /// # Errors
    /// It is missing, cut short, or of a newer version.
    pub fn read_manifest_as<T: DeserializeOwned>(&self) -> Result<T> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let path = self.0.join(MANIFEST);
        let Version { format } = read_json(&path)?;
        if format > MANIFEST_FORMAT {
            let path = path.display();
            bail!("{path}: format {format} is newer than this inferbench, which reads up to {MANIFEST_FORMAT}");
        }
        read_json(&path)
    }

    /// Adds an event to the outcomes.
    pub fn append(&self, event: &Event) -> Result<()> {
        append_line(&self.outcomes_path(), event)
    }

    pub fn outcomes_path(&self) -> PathBuf {
        self.0.join(OUTCOMES)
    }

    /// Reads the outcomes; damaged lines are left out. There are none if there is no file yet.
    ///
    /// # Errors
    /// The file is there, and cannot be read.
    pub fn read_outcomes(&self) -> Result<Outcomes> {
        let mut outcomes = Outcomes::default();
        read_lines(&self.outcomes_path())?.into_iter().for_each(|event| outcomes.add(event));
        Ok(outcomes)
    }
}

#[cfg(test)]
mod tests {
    use fs_err as fs;

    use super::*;
    use crate::definition::Status;
    use crate::run_data::{Outcome, Record};

    #[test]
    fn outcomes_after_a_damaged_line_are_kept() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(temporary.path().to_owned());
        let row = Record { case_id: "g/f/1".into(), ..Record::default() };
        folder.append(&Event::Finished(Box::new(Outcome::new(row)))).unwrap();
        let before = fs::read(folder.outcomes_path()).unwrap();
        fs::write(folder.outcomes_path(), [before.as_slice(), b"\n{\"finished\":{\"row\":\"\xff"].concat()).unwrap();
        folder.append(&Event::Started { id: "g/f/2".into() }).unwrap();
        let outcomes = folder.read_outcomes().unwrap();
        assert_eq!(outcomes.finished.keys().collect::<Vec<_>>(), ["g/f/1"]);
        assert_eq!(outcomes.unfinished, Some("g/f/2".into()));
    }

    #[test]
    fn only_what_has_failed_is_reopened() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(temporary.path().to_owned());
        let row = |id: &str, status| Record { case_id: id.into(), status, ..Record::default() };
        let finished = |id, status| Event::Finished(Box::new(Outcome::new(row(id, status))));
        let evaluated = |id: &str, failure: Option<&str>| Event::Evaluated {
            id: id.into(),
            failure: failure.map(str::to_owned),
            seconds: 1.0,
        };
        for event in [
            finished("killed", Status::Failed),
            finished("right", Status::Ok),
            evaluated("right", None),
            finished("unevaluated", Status::Ok),
            evaluated("unevaluated", Some("the process ended")),
            finished("wrong", Status::WrongOutput),
            Event::Lost { id: "right".into() },
        ] {
            folder.append(&event).unwrap();
        }
        let outcomes = folder.read_outcomes().unwrap();
        let failed = |processes| outcomes.failed(processes).into_iter().map(str::to_owned).collect::<Vec<String>>();
        assert_eq!(failed(1), ["killed", "unevaluated"], "a lost process was started once more");
        let failed = failed(2);
        assert_eq!(failed, ["killed", "right", "unevaluated"]);
        failed.into_iter().for_each(|id| folder.append(&Event::Reopened { id }).unwrap());
        let left = folder.read_outcomes().unwrap();
        assert_eq!(left.finished.keys().collect::<Vec<_>>(), ["right", "unevaluated", "wrong"]);
        assert_eq!(left.evaluated.keys().collect::<Vec<_>>(), ["right"]);
        assert!(left.lost.is_empty() && left.failed(2).is_empty());
    }

    #[test]
    fn a_newer_manifest_is_refused_by_its_number() {
        let temporary = tempfile::tempdir().unwrap();
        fs::write(temporary.path().join(MANIFEST), "{\"format\": 99, \"else\": 1}").unwrap();
        let error = RunFolder::new(temporary.path().to_owned()).read_manifest().unwrap_err();
        assert!(error.to_string().contains("format 99 is newer"), "{error}");
    }
}
