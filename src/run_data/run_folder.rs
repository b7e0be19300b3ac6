//! The folder of a run, `<target>/inferbench/runs/<run-id>/`, and the files in it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fs_err as fs;
use serde::Deserialize;

use super::json_lines;
use super::manifest::{MANIFEST_FORMAT, Manifest};
use super::outcomes::{Event, Outcomes};
use super::whole_file::write_whole;

const MANIFEST: &str = "manifest.json";
const OUTCOMES: &str = "outcomes.jsonl";

/// The folder of a run.
#[derive(Clone, Debug)]
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
        let all = RunFolder::all(runs);
        let found = match run_id {
            Some(id) => all.into_iter().find(|folder| folder.0.file_name().is_some_and(|name| name == id)),
            None => all.into_iter().next_back(),
        };
        found.with_context(|| match run_id {
            Some(id) => format!("no run {id:?} in {}", runs.display()),
            None => format!("no run in {}; make one with `cargo bench` or `inferbench run`", runs.display()),
        })
    }

    /// All runs, the oldest first: ids begin with the time.
    pub fn all(runs: &Path) -> Vec<Self> {
        let entries = fs::read_dir(runs).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|path| path.join(MANIFEST).is_file()).collect();
        folders.sort();
        folders.into_iter().map(RunFolder).collect()
    }

    /// Writes the manifest, whole or not at all.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        fs::create_dir_all(&self.0)?;
        write_whole(&self.0.join(MANIFEST), &serde_json::to_vec_pretty(manifest)?)
    }

    /// Reads the manifest.
    ///
    /// # Errors
    /// It is missing, cut short, or of a newer version.
    pub fn read_manifest(&self) -> Result<Manifest> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let path = self.0.join(MANIFEST);
        let bytes = fs::read(&path)?;
        let Format { format } = serde_json::from_slice(&bytes).with_context(|| path.display().to_string())?;
        if format > MANIFEST_FORMAT {
            bail!(
                "{}: format {format} is newer than this inferbench, which reads up to {MANIFEST_FORMAT}",
                path.display()
            );
        }
        serde_json::from_slice(&bytes).with_context(|| path.display().to_string())
    }

    /// Adds an event to the outcomes.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&self, event: &Event) -> Result<()> {
        json_lines::append(&self.outcomes_path(), event)
    }

    pub fn outcomes_path(&self) -> PathBuf {
        self.0.join(OUTCOMES)
    }

    /// Reads the outcomes; damaged lines are left out.
    pub fn read_outcomes(&self) -> Outcomes {
        let mut outcomes = Outcomes::default();
        json_lines::read(&self.outcomes_path()).into_iter().for_each(|event| outcomes.add(event));
        outcomes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{BenchmarkId, Status};
    use crate::run_data::{Observed, Outcome};

    fn id(value: &str) -> BenchmarkId {
        BenchmarkId { group: "g".into(), function: "f".into(), value: value.into() }
    }

    fn outcome(value: &str) -> Event {
        Event::Finished(Box::new(Outcome {
            id: id(value),
            status: Status::Ok,
            message: None,
            observed: Observed::default(),
            seconds: 1.0,
        }))
    }

    #[test]
    fn outcomes_after_a_damaged_line_are_kept() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(temporary.path().to_owned());
        folder.append(&outcome("1")).unwrap();
        let before = fs::read(folder.outcomes_path()).unwrap();
        fs::write(folder.outcomes_path(), [before.as_slice(), b"\n{\"finished\":{\"id\":\"\xff"].concat()).unwrap();
        folder.append(&Event::Started { id: id("2") }).unwrap();
        let outcomes = folder.read_outcomes();
        assert_eq!(outcomes.finished.keys().collect::<Vec<_>>(), ["g/f/1"]);
        assert_eq!(outcomes.unfinished, Some(id("2")));
    }

    #[test]
    fn events_of_earlier_versions_are_read() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(temporary.path().to_owned());
        let earlier =
            r#"{"judged":{"id":{"group":"g","function":"f","value":"1"},"judgement":{"failure":null,"seconds":2.0}}}"#;
        fs::write(folder.outcomes_path(), earlier).unwrap();
        assert_eq!(folder.read_outcomes().evaluated["g/f/1"].seconds, 2.0);
    }

    #[test]
    fn a_newer_manifest_is_refused_by_its_number() {
        let temporary = tempfile::tempdir().unwrap();
        fs::write(temporary.path().join(MANIFEST), "{\"format\": 99, \"else\": 1}").unwrap();
        let error = RunFolder::new(temporary.path().to_owned()).read_manifest().unwrap_err();
        assert!(error.to_string().contains("format 99 is newer"), "{error}");
    }
}
