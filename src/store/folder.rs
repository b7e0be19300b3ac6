//! The store: a folder of Parquet files, one a run and table, that DuckDB, pandas and Polars read as they are.
//!
//! ```text
//! store.toml                                                   versions
//! lock                                                         held by who writes, shared by who queries
//! benchmark_runs/host=1a2b3c/month=2026-01/<run>.parquet
//! benchmark_results/…  hardware_info/…  raw_benchmark_data/…   the same
//! ```
//!
//! All changes of a command are one [`Transaction`]. Whoever opens the store finishes one that was interrupted.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Table as Row;

use super::calls::count_calls;
use super::layout::{RunPlace, places};
use super::migration::migrate;
use super::parquet::{read_rows, table_of, write_rows};
use super::tables::{RunRow, StoredRun, Table};
use super::transaction::{Transaction, is_unfinished, recover};
use crate::record::{Record, SCHEMA_VERSION};

/// The version of the layout; a newer one is refused.
///
/// | version | since | change |
/// | --- | --- | --- |
/// | 1 | 0.1.0 | first |
pub const STORE_FORMAT: u32 = 1;

/// The file that makes a folder a store.
pub const STORE_FILE: &str = "store.toml";

/// What `store.toml` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Versions {
    /// [`STORE_FORMAT`]
    pub format: u32,
    /// [`SCHEMA_VERSION`] of the inferbench that wrote last.
    pub schema_version: u32,
    /// The columns that all files of each table have.
    #[serde(default)]
    pub columns: BTreeMap<String, Vec<String>>,
}

impl Versions {
    fn current() -> Self {
        let names = |table: Table| table.columns().iter().map(|column| column.name.to_owned()).collect();
        let columns = Table::ALL.iter().map(|&table| (table.name().to_owned(), names(table))).collect();
        Versions { format: STORE_FORMAT, schema_version: SCHEMA_VERSION, columns }
    }

    /// What only a newer inferbench can have written.
    fn is_newer(&self) -> Option<String> {
        let known = Versions::current();
        let newer = |what, version, known| {
            (version > known)
                .then(|| format!("{what} {version} is newer than this inferbench, which knows up to {known}"))
        };
        newer("format", self.format, known.format)
            .or_else(|| newer("schema_version", self.schema_version, known.schema_version))
            .or_else(|| {
                let mut columns =
                    self.columns.iter().flat_map(|(table, names)| names.iter().map(move |name| (table, name)));
                let is_known =
                    |table: &String, name| known.columns.get(table).is_some_and(|names| names.contains(name));
                let (table, name) = columns.find(|(table, name)| !is_known(table, name))?;
                Some(format!("{table} has a column {name}, which is newer than this inferbench"))
            })
    }
}

/// An open store. Its lock is held until it is dropped.
pub struct Store {
    folder: PathBuf,
    _lock: File,
}

/// What an import did with a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imported {
    Added,
    /// It was there, and has other content now.
    Replaced,
    /// It was there, as it is.
    Unchanged,
    /// It is there with more results or calls, which are kept: which.
    Refused(String),
}

impl Store {
    /// Opens a store to read it; who writes waits for the end of that.
    ///
    /// # Errors
    /// There is none, or it is of a newer inferbench.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let versions = read_versions(folder)?.ok_or_else(|| {
            format!("no store in {}; make one with `inferbench store import` or `convert --store`", folder.display())
        })?;
        let mut is_current = versions == Versions::current();
        let path = folder.join("lock");
        loop {
            if !is_current || is_unfinished(folder) {
                // Brings it to the present; a store that cannot be written is read as it is, if it is whole.
                match Store::write(folder) {
                    Err(error) if is_unfinished(folder) => return Err(error),
                    _ => is_current = true,
                }
            }
            // A read-only folder may be without: there is no writer to keep out.
            let lock = File::open(&path).or_else(|_| File::open(folder.join(STORE_FILE)));
            let lock = lock.map_err(|error| format!("{}: {error}", path.display()))?;
            lock.lock_shared().map_err(|error| format!("{}: {error}", path.display()))?;
            // Who wrote in the meantime may have been killed.
            if !is_unfinished(folder) {
                return Ok(Store { folder: folder.to_owned(), _lock: lock });
            }
        }
    }

    /// Opens a store to change it, and makes one where there is none. Waits for others who change or read it.
    ///
    /// # Errors
    /// The folder holds something else, cannot be written, or is a store of a newer inferbench.
    pub fn write(folder: &Path) -> Result<Self, String> {
        let named = |error: io::Error| format!("{}: {error}", folder.display());
        if read_versions(folder)?.is_none() && holds_something_else(folder) {
            return Err(format!(
                "{} is not a store: it has no {STORE_FILE}, but other files; choose another folder with `--store`",
                folder.display()
            ));
        }
        fs::create_dir_all(folder).map_err(named)?;
        let store = Store { folder: folder.to_owned(), _lock: lock(&folder.join("lock"))? };
        recover(folder)?;
        match read_versions(folder)? {
            Some(versions) if versions == Versions::current() => {}
            Some(_) => migrate(&store)?,
            None => {
                let mut transaction = Transaction::begin(folder)?;
                put_versions(&mut transaction)?;
                transaction.commit()?;
            }
        }
        Ok(store)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of a run's file.
    pub fn path(&self, place: &RunPlace, table: Table) -> PathBuf {
        self.folder.join(place.file(table))
    }

    /// The files of a table, by month, then run.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn files(&self, table: Table) -> Result<Vec<PathBuf>, String> {
        Ok(places(&self.folder, table)?.iter().map(|place| self.path(place, table)).collect())
    }

    /// Where the runs are, by month, then id.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn places(&self) -> Result<Vec<RunPlace>, String> {
        places(&self.folder, Table::Runs)
    }

    /// A run's own row.
    ///
    /// # Errors
    /// Its file is cut short; the message names it, and how to mend that.
    pub fn run_row(&self, place: &RunPlace) -> Result<RunRow, String> {
        let path = self.path(place, Table::Runs);
        read_one(&path)?.try_into().map_err(|error| format!("{}: {error}", path.display()))
    }

    /// All that is kept of a run.
    ///
    /// # Errors
    /// A file is missing or cut short; the message names it.
    pub fn stored_run(&self, place: &RunPlace) -> Result<StoredRun, String> {
        let run = self.run_row(place)?;
        let calls = Some(self.path(place, Table::Calls)).filter(|path| path.is_file());
        if let Some(path) = &calls {
            count_calls(path, &run.run_id)?;
        }
        Ok(StoredRun {
            records: records_of(&self.path(place, Table::Results))?,
            hardware: read_one(&self.path(place, Table::Hardware))?,
            calls,
            run,
        })
    }

    /// Adds runs, or puts them in the place of those with their host and id: all of them or, on an error, none. One that
    /// has fewer results or calls than the store has of it is refused, unless `replace`.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn import(&self, runs: &[StoredRun], replace: bool) -> Result<Vec<Imported>, String> {
        let mut transaction = Transaction::begin(&self.folder)?;
        // The last of several with one id counts.
        let latest: BTreeMap<RunPlace, usize> =
            runs.iter().enumerate().map(|(index, run)| (RunPlace::of(&run.run), index)).collect();
        let mut done = Vec::with_capacity(runs.len());
        for (index, run) in runs.iter().enumerate() {
            let place = RunPlace::of(&run.run);
            if latest[&place] == index {
                done.push(self.put_run(&mut transaction, &place, run, replace)?);
            } else {
                done.push(Imported::Unchanged);
            }
        }
        if done.iter().any(|imported| matches!(imported, Imported::Added | Imported::Replaced)) {
            transaction.commit()?;
        }
        Ok(done)
    }

    fn put_run(
        &self,
        transaction: &mut Transaction,
        place: &RunPlace,
        run: &StoredRun,
        replace: bool,
    ) -> Result<Imported, String> {
        let is_there = self.path(place, Table::Runs).is_file();
        // A row that cannot be read is worth less than any.
        let old = Some(place).filter(|_| is_there && !replace).and_then(|place| self.run_row(place).ok());
        if let Some(old) = old.filter(|old| old.cases_ok > run.run.cases_ok || old.calls > run.run.calls) {
            return Ok(Imported::Refused(format!(
                "run {} is in the store with {} measured cases and {} calls, and comes with {} and {} now; take it all the same \
                 with `inferbench store import --replace`",
                old.run_id, old.cases_ok, old.calls, run.run.cases_ok, run.run.calls
            )));
        }
        let mut is_changed = false;
        for (table, rows) in [
            (Table::Runs, vec![table_of(&run.run)?]),
            (Table::Hardware, vec![run.hardware.clone()]),
            (Table::Results, run.records.iter().map(table_of).collect::<Result<_, _>>()?),
        ] {
            let bytes = bytes_of(table, &rows)?;
            if fs::read(self.path(place, table)).is_ok_and(|old| old == bytes) {
                continue;
            }
            is_changed = true;
            transaction.put(&place.file(table), |file| write_all(file, &bytes))?;
        }
        let target = self.path(place, Table::Calls);
        match &run.calls {
            Some(source) if !same_content(source, &target) => {
                is_changed = true;
                transaction.put(&place.file(Table::Calls), |file| copy(source, file))?;
            }
            None if target.is_file() => {
                is_changed = true;
                transaction.remove(&place.file(Table::Calls));
            }
            _ => {}
        }
        Ok(match (is_changed, is_there) {
            (false, _) => Imported::Unchanged,
            (true, true) => Imported::Replaced,
            (true, false) => Imported::Added,
        })
    }

    /// Removes runs, or only their calls.
    ///
    /// # Errors
    /// A file cannot be removed or written.
    pub fn prune(&self, runs: &[RunPlace], only_calls: bool) -> Result<(), String> {
        let mut transaction = Transaction::begin(&self.folder)?;
        for place in runs {
            for table in Table::ALL.into_iter().filter(|&table| table == Table::Calls || !only_calls) {
                transaction.remove(&place.file(table));
            }
            if only_calls {
                let row = RunRow { calls: 0, ..self.run_row(place)? };
                let bytes = bytes_of(Table::Runs, &[table_of(&row)?])?;
                transaction.put(&place.file(Table::Runs), |file| write_all(file, &bytes))?;
            }
        }
        transaction.commit()
    }
}

pub(super) fn put_versions(transaction: &mut Transaction) -> Result<(), String> {
    let versions = toml::to_string(&Versions::current()).map_err(|error| error.to_string())?;
    let text = format!("# A store of inferbench: the history of its runs, as Parquet files.\n{versions}");
    transaction.put(STORE_FILE, |file| write_all(file, text.as_bytes()))
}

/// The versions of a store; none where there is no store.
fn read_versions(folder: &Path) -> Result<Option<Versions>, String> {
    let path = folder.join(STORE_FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let versions: Versions = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    if let Some(what) = versions.is_newer() {
        let hint = "use the inferbench that wrote it, or a newer one";
        return Err(format!("{}: {what}; {hint}", path.display()));
    }
    Ok(Some(versions))
}

/// What an interrupted beginning of a store leaves is nothing else.
fn holds_something_else(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| !["lock", ".staging", ".committed"].iter().any(|name| entry.file_name() == *name))
}

fn lock(path: &Path) -> Result<File, String> {
    let named = |error: io::Error| format!("{}: {error}", path.display());
    let file = File::options().create(true).truncate(false).write(true).read(true).open(path).map_err(named)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("waiting for another inferbench that uses the store");
            file.lock().map_err(named)?;
        }
        Err(TryLockError::Error(error)) => return Err(named(error)),
    }
    Ok(file)
}

fn read_one(path: &Path) -> Result<Row, String> {
    let hint = |error| format!("{error}; import the run again, or remove it with `inferbench store prune --run`");
    let mut rows = read_rows(path).map_err(hint)?;
    rows.pop().filter(|_| rows.is_empty()).ok_or_else(|| hint(format!("{}: not one row", path.display())))
}

/// The records of a file of `benchmark_results`.
///
/// # Errors
/// It is cut short, of a newer version, or has other columns.
pub fn records_of(path: &Path) -> Result<Vec<Record>, String> {
    let record = |row: Row| {
        let version = row.get("schema_version").and_then(toml::Value::as_integer);
        match version {
            Some(version) if version > i64::from(SCHEMA_VERSION) => Err(format!(
                "{}: schema version {version} is newer than this inferbench, which reads up to {SCHEMA_VERSION}",
                path.display()
            )),
            _ => row.try_into().map_err(|error| format!("{}: {error}", path.display())),
        }
    };
    read_rows(path)?.into_iter().map(record).collect()
}

pub(super) fn bytes_of(table: Table, rows: &[Row]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    write_rows(&table.columns(), rows, &mut bytes)?;
    Ok(bytes)
}

pub(super) fn write_all(file: &mut File, bytes: &[u8]) -> Result<(), String> {
    io::Write::write_all(file, bytes).map_err(|error| error.to_string())
}

fn copy(source: &Path, target: &mut File) -> Result<(), String> {
    let mut source = File::open(source).map_err(|error| format!("{}: {error}", source.display()))?;
    io::copy(&mut source, target).map(|_| ()).map_err(|error| error.to_string())
}

fn same_content(a: &Path, b: &Path) -> bool {
    let length = |path: &Path| fs::metadata(path).map(|metadata| metadata.len()).ok();
    let is_same_length = length(a).is_some() && length(a) == length(b);
    is_same_length && fs::read(a).is_ok_and(|a| fs::read(b).is_ok_and(|b| a == b))
}
