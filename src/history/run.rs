//! One run of the history, and what can be read of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use tempfile::TempDir;

use crate::machine::Machine;
use crate::run_data::{Distributions, Manifest, Record, RunFolder};
use crate::store::{RESULTS, read_records, write_records};

pub use crate::store::RunRow as RunFacts;

/// A run of the history: a folder whose files are read when they are asked for.
#[derive(Clone, Debug)]
pub struct Run {
    name: String,
    folder: PathBuf,
    /// Where pages about the run are written.
    pages: PathBuf,
    /// The folder, where it is a temporary one with the rows of a file.
    _extracted: Option<Arc<TempDir>>,
}

/// The single calls of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Nanoseconds of each call, one list per sample.
    pub samples_ns: Vec<Vec<u64>>,
    /// Whether each sample was disturbed; empty where that is unknown.
    pub disturbed: Vec<bool>,
}

impl Run {
    /// Whether the folder is that of a run. Hidden folders are those that are being written.
    pub(super) fn is_run(folder: &Path) -> bool {
        let is_hidden = folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        !is_hidden && folder.join(RESULTS).is_file()
    }

    pub(super) fn in_folder(folder: &Path) -> Self {
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let name = absolute.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Run { name, folder: folder.to_owned(), pages: folder.to_owned(), _extracted: None }
    }

    /// The runs of a CSV file, in temporary folders of their own.
    pub(super) fn in_csv(path: &Path) -> Result<Vec<Self>> {
        let mut records: BTreeMap<(String, String), Vec<Record>> = BTreeMap::new();
        for record in read_csv(path)? {
            records.entry((record.run_id.clone(), record.host_id.clone())).or_default().push(record);
        }
        let extracted = Arc::new(TempDir::new()?);
        let pages = path.parent().unwrap_or(Path::new("")).to_owned();
        let mut runs = Vec::new();
        for (index, ((run_id, _), records)) in records.into_iter().enumerate() {
            let folder = extracted.path().join(index.to_string());
            fs_err::create_dir(&folder)?;
            write_records(&records, fs_err::File::create(folder.join(RESULTS))?).map_err(anyhow::Error::msg)?;
            runs.push(Run { name: run_id, folder, pages: pages.clone(), _extracted: Some(extracted.clone()) });
        }
        Ok(runs)
    }

    /// The folder's name, which is the run's id wherever inferbench has written it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where pages about this run are written: its folder, or that of the file which holds it.
    pub fn pages(&self) -> &Path {
        &self.pages
    }

    /// When the run began: by its name, or by its records where the name does not begin with a time.
    /// Returns `None` if neither says it.
    pub fn started(&self) -> Option<Timestamp> {
        let by_name = || {
            let time = DateTime::strptime("%Y%m%dT%H%M%SZ", self.name.get(..16)?).ok()?;
            Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
        };
        by_name().or_else(|| Some(self.facts().ok()?.timestamp))
    }

    /// The run's row of `benchmark_runs`: when, where, of which source, and how much there is of it.
    ///
    /// # Errors
    /// The records cannot be read; the message names the file.
    pub fn facts(&self) -> Result<RunFacts> {
        let run = crate::store::read_run(&self.folder).map_err(anyhow::Error::msg)?;
        Ok(run.run)
    }

    /// The records: one per case.
    ///
    /// # Errors
    /// The file is cut short, of a newer version, or something else; the message names it.
    pub fn records(&self) -> Result<Vec<Record>> {
        read_csv(&self.folder.join(RESULTS))
    }

    /// What was asked for, where and by which build. Returns `None` if only the records were kept.
    ///
    /// # Errors
    /// The file is cut short or of a newer version; the message names it.
    pub fn manifest(&self) -> Result<Option<Manifest>> {
        if !self.folder.join("manifest.json").is_file() {
            return Ok(None);
        }
        RunFolder::new(self.folder.clone()).read_manifest().map(Some).map_err(anyhow::Error::msg)
    }

    /// The machine, as the run found it. Returns `None` if nothing but its id was kept.
    ///
    /// # Errors
    /// Those of [`Run::manifest`].
    pub fn machine(&self) -> Result<Option<Machine>> {
        Ok(self.manifest()?.map(|manifest| manifest.machine))
    }

    /// Quantiles of the calls of each case. Returns `None` if they were not kept or cannot be read.
    pub fn distributions(&self) -> Option<Distributions> {
        Distributions::read(&self.folder)
    }

    /// The single calls, by case id. Returns an empty map if they were not kept.
    ///
    /// # Errors
    /// The file is cut short; the message names it.
    pub fn calls(&self) -> Result<BTreeMap<String, Calls>> {
        crate::store::read_calls(&self.folder.join(crate::store::LATENCIES))
    }

    /// Whether the two are one run that lies in two places.
    pub(super) fn is_same_as(&self, other: &Run) -> bool {
        let identity = |run: &Run| run.facts().ok().map(|facts| (facts.run_id, facts.host_id));
        self.folder == other.folder
            || self.name == other.name && identity(self).is_some_and(|own| identity(other) == Some(own))
    }
}

fn read_csv(path: &Path) -> Result<Vec<Record>> {
    let file = fs_err::File::open(path)?;
    read_records(file).map_err(anyhow::Error::msg).with_context(|| path.display().to_string())
}
