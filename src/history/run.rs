//! One run of the history, and what can be read from it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use toml::Table as Row;

use super::calls::{LATENCIES, count_calls};
use super::csv::{read_facts, read_metrics, read_records, write_records};
use super::facts::{RunFacts, Table};
use super::parquet::texts_of;
use crate::machine::Machine;
use crate::run_data::{Distributions, MANIFEST, Manifest, Metric, Record, RunFolder};

/// The file of the records in a run's folder.
pub const RESULTS: &str = "results.csv";
/// The file of the metrics, if there are any.
pub const METRICS: &str = "metrics.csv";

/// A run of the history: a folder whose files are read when they are asked for.
#[derive(Clone, Debug)]
pub struct Run {
    name: String,
    folder: PathBuf,
    /// Where pages about the run are written.
    pages: PathBuf,
    /// The temporary folder that `folder` lies in, if the run comes from a file.
    _extracted: Option<Arc<TempDir>>,
}

impl Run {
    /// Whether the folder is a run's. Hidden folders are still being written.
    pub(super) fn is_run(folder: &Path) -> bool {
        let is_hidden = folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        !is_hidden && folder.join(RESULTS).is_file()
    }

    /// The run in a folder.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let name = absolute.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Run { name, folder: folder.to_owned(), pages: folder.to_owned(), _extracted: None }
    }

    /// The runs of a CSV file, each in a temporary folder of its own.
    pub(super) fn in_csv(path: &Path) -> Result<Vec<Self>> {
        let records = read_records(fs_err::File::open(path)?).with_context(|| path.display().to_string())?;
        Run::extract(records, path)
    }

    /// Splits records that were read from a file into runs, each in a temporary folder of its own.
    pub(super) fn extract(records: Vec<Record>, file: &Path) -> Result<Vec<Self>> {
        let mut runs: BTreeMap<(String, String), Vec<Record>> = BTreeMap::new();
        for record in records {
            // Runs of two machines may have the same id. The rows of a merged run are of several machines.
            let host_id = if is_merged(&record.run_id) { String::new() } else { record.host_id.clone() };
            runs.entry((record.run_id.clone(), host_id)).or_default().push(record);
        }
        let extracted = Arc::new(TempDir::new()?);
        let pages = file.parent().unwrap_or(Path::new(""));
        let extract = |(index, ((name, _), records)): (usize, ((String, String), Vec<Record>))| {
            let folder = extracted.path().join(index.to_string());
            fs_err::create_dir(&folder)?;
            write_records(&records, fs_err::File::create(folder.join(RESULTS))?)?;
            Ok(Run { name, folder, pages: pages.to_owned(), _extracted: Some(extracted.clone()) })
        };
        runs.into_iter().enumerate().map(extract).collect()
    }

    /// The name of the folder, usually the run's id. If two runs have the same id, the host is added. The name of a run
    /// from a file is its id.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder with the run's files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder for pages about this run: its own, or the folder of the file that holds it.
    pub(crate) fn pages(&self) -> &Path {
        &self.pages
    }

    /// When the run began, by its name, or by its facts if the name does not begin with a time. Returns `None` if
    /// neither can be read.
    pub fn started(&self) -> Option<Timestamp> {
        let by_name = || {
            let time = DateTime::strptime("%Y%m%dT%H%M%SZ", self.name.get(..16)?).ok()?;
            Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
        };
        by_name().or_else(|| Some(self.facts().ok()?.timestamp))
    }

    /// The time, machine and source revision of the run, and how much it holds.
    ///
    /// # Errors
    /// A file is cut short, of a newer version or of another run; the message names it.
    pub fn facts(&self) -> Result<RunFacts> {
        let named = || self.folder.display().to_string();
        let calls = count_calls(&self.folder.join(LATENCIES))?;
        let facts = match self.read_csv(RESULTS, read_facts)? {
            Some(facts) => RunFacts { calls, ..facts },
            None => RunFacts::of_columns(self.manifest()?.context("it has no row").with_context(named)?.run_columns()),
        };
        match self.read_manifest()? {
            Some(manifest) => facts.with_manifest(manifest).with_context(named),
            None => Ok(facts),
        }
    }

    /// The records: one per case.
    ///
    /// # Errors
    /// The file is cut short, of a newer version, or does not hold records; the message names it.
    pub fn records(&self) -> Result<Vec<Record>> {
        self.read_csv(RESULTS, |mut bytes| read_records(&mut bytes))
    }

    /// The bytes of `results.csv` with the columns of this version. The rows are not checked; a newer version may have
    /// written them.
    pub(super) fn results_of_this_version(&self) -> Result<Vec<u8>> {
        let bytes = fs_err::read(self.folder.join(RESULTS))?;
        let mut whole = Vec::new();
        write_records(&[], &mut whole)?;
        if bytes.starts_with(&whole) && bytes.ends_with(b"\n") {
            return Ok(bytes);
        }
        // Of an older version, with other columns, or cut short.
        whole.clear();
        write_records(&self.records()?, &mut whole)?;
        Ok(whole)
    }

    fn read_csv<T>(&self, file: &str, read: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        const CUT_SHORT: &str = "cut short: its last line has no end";
        let path = self.folder.join(file);
        let bytes = fs_err::read(&path)?;
        let found = match read(&bytes) {
            found if bytes.ends_with(b"\n") => found,
            Ok(_) => Err(anyhow!(CUT_SHORT)),
            Err(error) => Err(error.context(CUT_SHORT)),
        };
        found.with_context(|| path.display().to_string())
    }

    /// The metrics of the cases: figures that are not columns of their records. A run may have none.
    ///
    /// # Errors
    /// The file is cut short, or does not hold metrics; the message names it.
    pub fn metrics(&self) -> Result<Vec<Metric>> {
        if !self.folder.join(METRICS).is_file() {
            return Ok(Vec::new());
        }
        self.read_csv(METRICS, |mut bytes| read_metrics(&mut bytes))
    }

    /// What was asked for, where and by which build. Returns `None` if only the records were kept.
    ///
    /// # Errors
    /// The file is cut short or of a newer version; the message names it.
    pub fn manifest(&self) -> Result<Option<Manifest>> {
        self.read_manifest()
    }

    fn read_manifest<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let is_there = self.folder.join(MANIFEST).is_file();
        is_there.then(|| RunFolder::new(self.folder.clone()).read_manifest_as()).transpose()
    }

    /// The machine, as the run found it. Returns `None` if nothing but its id was kept.
    ///
    /// # Errors
    /// The manifest is cut short or of a newer version; the message names it.
    pub fn machine(&self) -> Result<Option<Machine>> {
        Ok(self.manifest()?.map(|manifest| manifest.machine))
    }

    /// The ids of the machines in its records, sorted. The records are read only if the run has no `hardware.parquet`.
    ///
    /// # Errors
    /// A file is cut short; the message names it.
    pub fn host_ids(&self) -> Result<BTreeSet<String>> {
        let hardware = self.folder.join(Table::Hardware.file());
        if hardware.is_file() {
            return texts_of(&hardware, "host_id");
        }
        Ok(self.records()?.into_iter().map(|record| record.host_id).collect())
    }

    /// Quantiles of the calls of each case. Returns `None` if they were not kept or cannot be read.
    pub fn distributions(&self) -> Option<Distributions> {
        Distributions::read(&self.folder)
    }

    /// The rows of the run in a table. Calls, profiles and load tests have none here, since they are only in Parquet
    /// files.
    ///
    /// # Errors
    /// A file cannot be read; the message names it.
    pub(super) fn rows(&self, table: Table) -> Result<Vec<Row>> {
        match table {
            Table::Runs => Ok(vec![Row::try_from(self.facts()?)?]),
            Table::Results => Ok(self.records()?.iter().map(Row::try_from).collect::<Result<_, _>>()?),
            Table::Hardware => {
                let RunFacts { run_id, host_id, .. } = self.facts()?;
                let nodes = self.manifest()?.map(|manifest| manifest.nodes()).unwrap_or_default();
                let mut rows =
                    nodes.into_iter().map(|node| Row::try_from(node.machine)).collect::<Result<Vec<_>, _>>()?;
                if rows.is_empty() {
                    rows.push(Row::from_iter([("host_id".into(), host_id.into())]));
                }
                rows.iter_mut().for_each(|row| drop(row.insert("run_id".into(), run_id.clone().into())));
                Ok(rows)
            }
            Table::Metrics => Ok(self.metrics()?.iter().map(Row::try_from).collect::<Result<_, _>>()?),
            Table::Calls | Table::Profiles | Table::Loads => Ok(Vec::new()),
        }
    }

    /// Whether a newer inferbench has written the run, so that it cannot be read.
    pub(super) fn is_newer(&self) -> bool {
        // The records and the manifest have separate versions, but the messages of both contain these words.
        self.facts().is_err_and(|why| format!("{why:#}").contains("is newer than this inferbench"))
    }

    /// What to do with a run that cannot be read.
    pub(crate) fn how_to_mend(&self) -> String {
        if self.is_newer() {
            return "update inferbench to read it".to_owned();
        }
        format!(
            "convert or import the run again with `--replace`, or remove it with `inferbench store prune --run {}`",
            self.name
        )
    }

    /// Adds to an error what to do with the run.
    pub(super) fn with_advice<T>(&self, read: Result<T>) -> Result<T> {
        read.map_err(|why| anyhow!("{why:#}; {}", self.how_to_mend()))
    }

    /// Whether the two are the same run, possibly in two places. One of the names may have the host added.
    pub(super) fn is_same_as(&self, other: &Run) -> bool {
        let are_alike = self.name.starts_with(&other.name) || other.name.starts_with(&self.name);
        let both = || self.facts().ok().zip(other.facts().ok());
        self.folder == other.folder || are_alike && both().is_some_and(|(own, its)| identity(&own) == identity(&its))
    }
}

/// What no other run has: different machines, or different target folders of one machine, may begin a run in the same
/// second. The time of a merged run does not count, because its rows have several times.
pub(super) fn identity(of: &RunFacts) -> (&str, &str, Option<Timestamp>) {
    (&of.run_id, &of.host_id, (!is_merged(&of.run_id)).then_some(of.timestamp))
}

/// Whether this is the id of a run that was merged from parts, such as `20260101T000000Z-small-1a2b3c4d-of-4`.
fn is_merged(run_id: &str) -> bool {
    let words: Vec<&str> = run_id.rsplit('-').collect();
    matches!(words.as_slice(), [count, "of", hash, _, _, ..] if count.parse::<usize>().is_ok() && hash.len() == 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Case;
    use crate::history::write_metrics;
    use crate::run_data::SCHEMA_VERSION;

    #[test]
    fn the_rows_of_a_merged_run_are_one_run_though_they_are_of_several_machines() {
        let row = |run_id: &str, host_id: &str| {
            let run = Record {
                run_id: run_id.into(),
                host_id: host_id.into(),
                suite: "small".into(),
                rustc_version: "rustc 1".into(),
                ..Record::default()
            };
            run.about(&Case::new("m", "ort", 1))
        };
        let (merged, other) = ("20260101T000000Z-small-1a2b3c4d-of-2", "20260101T000000Z");
        let records = vec![row(merged, "b"), row(other, "a"), row(merged, "a"), row(other, "b")];
        let runs = Run::extract(records, Path::new("all.csv")).unwrap();
        let names: Vec<(&str, usize)> = runs.iter().map(|run| (run.name(), run.records().unwrap().len())).collect();
        assert_eq!(names, [(other, 1), (other, 1), (merged, 2)]);
        assert_eq!(runs[2].facts().unwrap().host_id, "b", "it is known by the machine of its first row");
    }

    #[test]
    fn metrics_that_are_cut_within_a_value_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = Vec::new();
        let known =
            Metric { run_id: "r".into(), metric: "m".into(), host_id: Some("host".into()), ..Metric::default() };
        write_metrics(&[known], &mut bytes).unwrap();
        let run = Run::in_folder(folder.path());
        fs_err::write(folder.path().join(METRICS), &bytes).unwrap();
        assert_eq!(run.metrics().unwrap().len(), 1);
        fs_err::write(folder.path().join(METRICS), &bytes[..bytes.len() - 2]).unwrap();
        assert!(format!("{:#}", run.metrics().unwrap_err()).contains("metrics.csv: cut short"));
    }

    #[test]
    fn a_run_of_a_newer_version_is_to_be_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record { host_id: "h".into(), ..Record::default() }.about(&Case::new("m", "ort", 1));
        let mut advice = |version: u32| {
            record.schema_version = version;
            let file = fs_err::File::create(folder.path().join(RESULTS)).unwrap();
            write_records(std::slice::from_ref(&record), file).unwrap();
            let run = Run::in_folder(folder.path());
            (run.records().is_ok(), run.how_to_mend())
        };
        assert_eq!(advice(99), (false, "update inferbench to read it".to_owned()));
        let (is_read, advice) = advice(SCHEMA_VERSION);
        assert!(is_read && advice.contains("store prune"), "{advice}");
    }
}
