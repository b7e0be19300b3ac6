//! One run of the history, and what can be read of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use tempfile::TempDir;
use toml::{Table as Row, Value};

use super::calls::{Calls, LATENCIES, count_calls, read_calls};
use super::columns::Column;
use super::csv::{read_records, write_records};
use super::facts::{RunFacts, Table};
use super::parquet::{Cells, read_columns, read_rows, table_of};
use crate::machine::Machine;
use crate::run_data::{Distributions, Manifest, Record, RunFolder, SCHEMA_VERSION};

/// The file of the records in a run's folder, for people.
pub const RESULTS: &str = "results.csv";

/// A run of the history: a folder whose files are read when they are asked for.
#[derive(Clone, Debug)]
pub struct Run {
    name: String,
    folder: PathBuf,
    /// Where pages about the run are written.
    pages: PathBuf,
    /// The folder above, where it is a temporary one with the rows of a file.
    _extracted: Option<Arc<TempDir>>,
}

impl Run {
    /// Whether the folder is that of a run. Hidden folders are those that are being written.
    pub(super) fn is_run(folder: &Path) -> bool {
        let is_hidden = folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        !is_hidden && (folder.join(RESULTS).is_file() || folder.join(Table::Results.file()).is_file())
    }

    /// The run in a folder.
    pub(super) fn in_folder(folder: &Path) -> Self {
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let name = absolute.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Run { name, folder: folder.to_owned(), pages: folder.to_owned(), _extracted: None }
    }

    /// The runs of a CSV file, each in a temporary folder of its own.
    pub(super) fn in_csv(path: &Path) -> Result<Vec<Self>> {
        let mut runs: BTreeMap<(String, String), Vec<Record>> = BTreeMap::new();
        for record in read_csv(path)? {
            runs.entry((record.run_id.clone(), record.host_id.clone())).or_default().push(record);
        }
        let extracted = Arc::new(TempDir::new()?);
        let extract = |(index, ((name, _), records)): (usize, ((String, String), Vec<Record>))| {
            let folder = extracted.path().join(index.to_string());
            fs_err::create_dir(&folder)?;
            write_records(&records, fs_err::File::create(folder.join(RESULTS))?)?;
            Ok(Run::extracted(name, folder, path, &extracted))
        };
        runs.into_iter().enumerate().map(extract).collect()
    }

    /// The run in a temporary folder that was extracted from a file.
    pub(super) fn extracted(name: String, folder: PathBuf, file: &Path, extracted: &Arc<TempDir>) -> Self {
        let pages = file.parent().unwrap_or(Path::new("")).to_owned();
        Run { name, folder, pages, _extracted: Some(extracted.clone()) }
    }

    /// The name of the folder, which is the run's id wherever inferbench has written it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder with the run's files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder into which pages about this run are written: its own, or that of the file that holds it.
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

    /// When, where and of which source the run is, and how much there is of it.
    ///
    /// # Errors
    /// A file is cut short, or files are of several runs; the message names it.
    pub fn facts(&self) -> Result<RunFacts> {
        let path = self.folder.join(Table::Runs.file());
        if path.is_file() {
            return one_row(&path, Table::Runs)?.try_into().with_context(|| path.display().to_string());
        }
        let records = self.records()?;
        let latencies = self.folder.join(LATENCIES);
        let run_id = records.first().map_or("", |record| &record.run_id);
        let calls = if latencies.is_file() { count_calls(&latencies, run_id)? } else { 0 };
        RunFacts::new(&records, self.manifest()?.as_ref(), calls).with_context(|| self.folder.display().to_string())
    }

    /// The records: one per case.
    ///
    /// # Errors
    /// The file is cut short, of a newer version, or something else; the message names it.
    pub fn records(&self) -> Result<Vec<Record>> {
        let path = self.folder.join(Table::Results.file());
        if !path.is_file() {
            return read_csv(&self.folder.join(RESULTS));
        }
        let record = |row: Row| {
            let version = row.get("schema_version").and_then(Value::as_integer);
            if let Some(version) = version.filter(|version| *version > i64::from(SCHEMA_VERSION)) {
                bail!("schema version {version} is newer than this inferbench, which reads up to {SCHEMA_VERSION}");
            }
            row.try_into().map_err(|error: toml::de::Error| anyhow!("{}", error.message()))
        };
        let rows = read_rows(&path, Table::Results.columns())?;
        rows.into_iter().map(record).collect::<Result<_>>().with_context(|| path.display().to_string())
    }

    /// What was asked for, where and by which build. Returns `None` if only the records were kept.
    ///
    /// # Errors
    /// The file is cut short or of a newer version; the message names it.
    pub fn manifest(&self) -> Result<Option<Manifest>> {
        let is_there = self.folder.join("manifest.json").is_file();
        is_there.then(|| RunFolder::new(self.folder.clone()).read_manifest()).transpose()
    }

    /// The machine, as the run found it. Returns `None` if nothing but its id was kept.
    ///
    /// # Errors
    /// The file is cut short; the message names it.
    pub fn machine(&self) -> Result<Option<Machine>> {
        let path = self.folder.join(Table::Hardware.file());
        if !path.is_file() {
            return Ok(self.manifest()?.map(|manifest| manifest.machine));
        }
        let mut row = one_row(&path, Table::Hardware)?;
        if let Some(Value::String(gpus)) = row.get("gpus") {
            let gpus = gpus.split(", ").map(Value::from).collect();
            row.insert("gpus".into(), Value::Array(gpus));
        }
        // Runs without a manifest have a row with nothing but the ids.
        Ok(row.try_into().ok())
    }

    /// Quantiles of the calls of each case. Returns `None` if they were not kept or cannot be read.
    pub fn distributions(&self) -> Option<Distributions> {
        Distributions::read(&self.folder)
    }

    /// The single calls, by case id. Returns an empty map if they were not kept.
    ///
    /// # Errors
    /// The file is cut short or holds something else; the message names it.
    pub fn calls(&self) -> Result<BTreeMap<String, Calls>> {
        read_calls(&self.folder.join(LATENCIES))
    }

    /// How many rows the run has in a table, and these columns of them: from its Parquet file or, in a folder of an older
    /// inferbench, from CSV and JSON.
    ///
    /// # Errors
    /// A file cannot be read; the message names it.
    #[cfg_attr(not(feature = "duckdb"), allow(dead_code, reason = "only the tables of DuckDB read single columns"))]
    pub(super) fn columns(&self, table: Table, columns: &[Column]) -> Result<(usize, Vec<Cells>)> {
        let path = self.folder.join(table.file());
        if path.is_file() {
            return read_columns(&path, columns);
        }
        let rows = self.rows(table)?;
        let cells = |column: &Column| rows.iter().map(|row| row.get(&column.name).cloned()).collect();
        Ok((rows.len(), columns.iter().map(cells).collect()))
    }

    /// The rows of the run in one of the tables that are not its calls.
    ///
    /// # Errors
    /// A file cannot be read; the message names it.
    pub(super) fn rows(&self, table: Table) -> Result<Vec<Row>> {
        match table {
            Table::Runs => Ok(vec![table_of(&self.facts()?)?]),
            Table::Results => self.records()?.iter().map(table_of).collect(),
            Table::Hardware => {
                let facts = self.facts()?;
                let mut row =
                    self.manifest()?.map(|manifest| table_of(&manifest.machine)).transpose()?.unwrap_or_default();
                row.insert("run_id".into(), Value::String(facts.run_id));
                row.insert("host_id".into(), Value::String(facts.host_id));
                Ok(vec![row])
            }
            Table::Calls => Ok(Vec::new()),
        }
    }

    /// Whether the two are one run that lies in two places.
    pub(super) fn is_same_as(&self, other: &Run) -> bool {
        let identity = |run: &Run| run.facts().ok().map(|facts| (facts.run_id, facts.host_id));
        self.folder == other.folder
            || self.name == other.name && identity(self).is_some_and(|own| identity(other) == Some(own))
    }
}

fn one_row(path: &Path, table: Table) -> Result<Row> {
    let mut rows = read_rows(path, table.columns())?;
    rows.pop().filter(|_| rows.is_empty()).with_context(|| format!("{}: it has not one row", path.display()))
}

fn read_csv(path: &Path) -> Result<Vec<Record>> {
    read_records(fs_err::File::open(path)?).with_context(|| path.display().to_string())
}
