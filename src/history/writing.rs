//! Adds runs to a history and removes them, whole or not at all.
//!
//! A run is written into a hidden folder of the same root, every file is synced, and then the folder is renamed into
//! place, or swapped with the one that it replaces. If the process ends early, the old run or the new one is in place.
//! A hidden folder may be left, which a later writer removes.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fs_err as fs;
use tempfile::TempDir;

use super::calls::{CallsWriter, LATENCIES};
use super::csv::{write_metrics, write_records, write_throughput};
use super::facts::{RunFacts, Table};
use super::parquet::write_rows;
use super::run::{METRICS, RESULTS, Run, identity};
use crate::machine::files;
use crate::run_data::{DISTRIBUTIONS, Distributions, HIDDEN, MANIFEST, Manifest, Metric, Record, hidden, write_whole};

/// The short form of the records.
pub const THROUGHPUT: &str = "throughput.csv";

/// The files that a conversion writes; all others in a run's folder are pages, or the user's.
const OWN_FILES: [&str; 10] = [
    "results.parquet",
    "run.parquet",
    "hardware.parquet",
    "metrics.parquet",
    LATENCIES,
    RESULTS,
    METRICS,
    THROUGHPUT,
    MANIFEST,
    DISTRIBUTIONS,
];

/// A hidden folder that is older is abandoned.
const ABANDONED: Duration = Duration::from_secs(3600);

/// What became of a run that was to be put into a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imported {
    Added,
    /// The history had it with other content.
    Replaced,
    /// The history had it with the same content.
    Unchanged,
    /// The history keeps its own copy, for this reason: the copy has more results or calls, a newer inferbench has
    /// written it, or it cannot be read and may be of another machine.
    Refused(String),
}

/// A run that is being written, not yet in its history.
pub struct NewRun {
    root: PathBuf,
    folder: TempDir,
    calls: CallsWriter<File>,
}

impl NewRun {
    /// Begins a run of a machine in the history in `root`.
    pub fn create(root: &Path, run_id: &str, host_id: &str) -> Result<Self> {
        let folder = hidden_folder(root)?;
        let file = fs::File::create(folder.path().join(LATENCIES))?.into_parts().0;
        Ok(NewRun { root: root.to_owned(), calls: CallsWriter::new(run_id, host_id, file)?, folder })
    }

    /// Adds the calls of a case: nanoseconds, one list per sample.
    pub fn append_calls(&mut self, case: &str, samples_ns: &[Vec<u64>], disturbed: Option<&[bool]>) -> Result<()> {
        self.calls.append(case, samples_ns, disturbed).with_context(|| format!("{}: {LATENCIES}", self.root.display()))
    }

    /// Adds the calls of the wanted cases from a run of the machine `host_id`.
    pub fn copy_calls(&mut self, run: &Run, host_id: &str, is_wanted: &dyn Fn(&str) -> bool) -> Result<()> {
        self.calls.copy(&run.folder().join(LATENCIES), host_id, is_wanted)
    }

    /// Writes the rest, and moves the run into the history. Unless `replace`, it is refused if the history has more of
    /// the same run. Returns the history's copy.
    ///
    /// # Errors
    /// A file cannot be written, the records are of several runs, or a folder that is not this run has its name.
    pub fn publish(
        self,
        manifest: &Manifest,
        records: &[Record],
        metrics: &[Metric],
        distributions: &Distributions,
        replace: bool,
    ) -> Result<(Imported, Run)> {
        let NewRun { root, folder, calls } = self;
        let path = folder.path();
        let named = || path.display().to_string();
        calls.finish().and_then(|file| Ok(file.sync_all()?)).with_context(named)?;
        put(path, RESULTS, |bytes| write_records(records, bytes))?;
        if !metrics.is_empty() {
            put(path, METRICS, |bytes| write_metrics(metrics, bytes))?;
        }
        put(path, MANIFEST, |bytes| Ok(serde_json::to_writer_pretty(bytes, manifest)?))?;
        put(path, DISTRIBUTIONS, |bytes| Ok(serde_json::to_writer(bytes, distributions)?))?;
        write_tables(path)?;
        place(&folder, &root, replace)
    }
}

/// Copies a run into the history in `root`. Unless `replace`, it is refused if the history has more of the same run.
pub fn import(run: &Run, root: &Path, replace: bool) -> Result<Imported> {
    // What cannot be read is not imported.
    run.facts()?;
    // The folder of a run that is already in this history may have another name than its id.
    let place_of = |folder: &Path| folder.canonicalize().ok();
    if run.folder().parent().and_then(place_of).is_some_and(|parent| place_of(root) == Some(parent)) {
        let tables = || Table::ALL.map(|table| run.folder().join(table.file()).is_file());
        let before = tables();
        write_tables(run.folder())?;
        return Ok(if tables() == before { Imported::Unchanged } else { Imported::Replaced });
    }
    let folder = hidden_folder(root)?;
    for entry in walkdir::WalkDir::new(run.folder()).min_depth(1) {
        let entry = entry?;
        let target = folder.path().join(entry.path().strip_prefix(run.folder())?);
        if entry.file_type().is_dir() {
            fs::create_dir(&target)?;
        } else {
            fs::copy(entry.path(), &target)?;
            fs::File::open(&target)?.sync_all()?;
        }
    }
    write_tables(folder.path())?;
    Ok(place(&folder, root, replace)?.0)
}

/// Removes a run from its history.
pub fn remove(run: &Run) -> Result<()> {
    let root = run.folder().parent().filter(|root| !root.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let hidden = hidden_folder(root)?;
    fs::rename(run.folder(), hidden.path().join("removed"))?;
    Ok(hidden.close()?)
}

/// Removes the calls of a run.
pub fn remove_calls(run: &Run) -> Result<()> {
    // Without these, the tables could not be rewritten, and would go on counting the removed calls.
    run.records()?;
    run.manifest()?;
    match fs::remove_file(run.folder().join(LATENCIES)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => write_tables(run.folder()),
    }
}

/// Records as a Parquet file, like `results.parquet` in a run's folder.
///
/// # Errors
/// A value is not of its column's type.
pub fn records_as_parquet(records: &[Record]) -> Result<Vec<u8>> {
    let rows = records.iter().map(toml::Table::try_from).collect::<Result<Vec<_>, _>>()?;
    let mut bytes = Vec::new();
    write_rows(Table::Results.columns(), &rows, &mut bytes)?;
    Ok(bytes)
}

/// Writes the tables of a run's folder, except its calls, for other programs.
fn write_tables(folder: &Path) -> Result<()> {
    for table in [Table::Results, Table::Runs, Table::Hardware, Table::Metrics] {
        let rows = Run::in_folder(folder).rows(table)?;
        put(folder, table.file(), |bytes| write_rows(table.columns(), &rows, bytes))?;
    }
    put(folder, THROUGHPUT, |bytes| write_throughput(&Run::in_folder(folder).records()?, bytes))
}

pub(super) fn put(folder: &Path, name: &str, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    let mut bytes = Vec::new();
    write(&mut bytes).with_context(|| name.to_owned())?;
    write_whole(&folder.join(name), &bytes)
}

/// Creates a hidden folder in a history, which is removed when it is dropped. Also removes abandoned ones.
pub(super) fn hidden_folder(root: &Path) -> Result<TempDir> {
    fs::create_dir_all(root)?;
    for entry in fs::read_dir(root)?.flatten() {
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(HIDDEN.as_bytes());
        let age = || entry.metadata().and_then(|metadata| metadata.modified()).ok()?.elapsed().ok();
        if is_hidden && age().is_some_and(|age| age > ABANDONED) {
            let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
        }
    }
    hidden(0o777).tempdir_in(root).with_context(|| root.display().to_string())
}

/// Renames a complete folder to the place of its run: its id, or its id and host if another run has that id.
fn place(new: &TempDir, root: &Path, replace: bool) -> Result<(Imported, Run)> {
    let facts = Run::in_folder(new.path()).facts()?;
    let mut names = [facts.run_id.clone(), format!("{}-{}", facts.run_id, facts.host_id)];
    // It may have the second name already, although the run that had the first one is gone.
    let second = Run::in_folder(&root.join(file_name(&names[1])));
    if second.facts().is_ok_and(|known| identity(&known) == identity(&facts)) {
        names.reverse();
    }
    for name in names {
        let target = root.join(file_name(&name));
        let run = Run::in_folder(&target);
        loop {
            match std::fs::rename(new.path(), &target) {
                Ok(()) => return Ok((Imported::Added, run)),
                Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {}
                Err(error) => return Err(error).with_context(|| target.display().to_string()),
            }
            if !Run::is_run(&target) {
                bail!("{} exists and is not a run", target.display());
            }
            let known = run.facts().ok();
            if known.is_none() {
                // Other files of it may still be readable.
                let hosts = run.host_ids().unwrap_or_default();
                if !hosts.is_empty() && !hosts.contains(&facts.host_id) {
                    break;
                }
                let why = match run.is_newer() {
                    true => Some("a newer inferbench has written it"),
                    false => hosts.is_empty().then_some("it cannot be read and may be of another machine"),
                };
                if let Some(why) = why.filter(|_| !replace) {
                    let name = run.name();
                    let reason = format!("run {name} is kept, because {why}; use `--replace` to take this one anyway");
                    return Ok((Imported::Refused(reason), run));
                }
            }
            // An unreadable run of this machine is worth less than this one.
            if known.as_ref().is_some_and(|known| identity(known) != identity(&facts)) {
                break;
            }
            if known.is_some() && has_same_files(new.path(), &target) {
                return Ok((Imported::Unchanged, run));
            }
            if let Some(reason) = known.filter(|_| !replace).and_then(|known| refusal(&known, &facts)) {
                return Ok((Imported::Refused(reason), run));
            }
            match exchange(new.path(), &target) {
                Ok(()) => {
                    keep_other_files(new.path(), &target)?;
                    return Ok((Imported::Replaced, run));
                }
                // It was removed in the meantime.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| target.display().to_string()),
            }
        }
    }
    bail!("{}: other runs have the id {} already", root.display(), facts.run_id)
}

/// Why a run is kept, if the new one has less. Mere records, such as a CSV file's, have neither a manifest nor metrics.
fn refusal(known: &RunFacts, new: &RunFacts) -> Option<String> {
    let loses_manifest = known.arguments.is_some() && new.arguments.is_none();
    let is_more = known.cases_ok > new.cases_ok || known.calls > new.calls || loses_manifest;
    let without = if loses_manifest { ", without manifest and metrics" } else { "" };
    is_more.then(|| {
        format!(
            "run {} is kept with {} measured cases and {} calls, and would be replaced by one with {} and {}{without}; \
             use `--replace` to take it anyway",
            known.run_id, known.cases_ok, known.calls, new.cases_ok, new.calls
        )
    })
}

fn has_same_files(one: &Path, other: &Path) -> bool {
    let content = |folder: &Path, name: &str| fs::read(folder.join(name)).ok();
    OWN_FILES.iter().all(|name| content(one, name) == content(other, name))
}

/// Swaps two folders, in one step where the system can do so.
pub(super) fn exchange(new: &Path, old: &Path) -> io::Result<()> {
    if files::swap(new, old)? {
        return Ok(());
    }
    let aside = new.with_extension("replaced");
    std::fs::rename(old, &aside)?;
    std::fs::rename(new, old).inspect_err(|_| drop(std::fs::rename(&aside, old)))?;
    std::fs::rename(&aside, new)
}

/// Moves the files that no conversion writes from the replaced run to the new one.
fn keep_other_files(replaced: &Path, target: &Path) -> Result<()> {
    for entry in fs::read_dir(replaced)? {
        let entry = entry?;
        let name = entry.file_name();
        // A run from a database or a CSV file has no quantiles, so it gets those of the replaced run.
        let is_written = OWN_FILES.iter().any(|own| name == *own) && name != DISTRIBUTIONS;
        if !is_written && !target.join(&name).exists() {
            fs::rename(entry.path(), target.join(&name))?;
        }
    }
    Ok(())
}

/// An id as a file name without separators and wildcards.
fn file_name(id: &str) -> String {
    let is_plain = |(index, c): (usize, char)| {
        if c.is_ascii_alphanumeric() || "-_".contains(c) || (c == '.' && index > 0) { c } else { '_' }
    };
    id.chars().enumerate().map(is_plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Case;
    use crate::run_data::SCHEMA_VERSION;

    #[test]
    fn a_run_that_a_newer_version_has_written_is_replaced_only_on_request() {
        let (source, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |folder: &Path, schema_version: u32| {
            let run = Record { run_id: "r".into(), host_id: "h".into(), ..Record::default() };
            let record = Record { schema_version, ..run.about(&Case::new("m", "ort", 1)) };
            write_records(&[record], fs::File::create(folder.join(RESULTS)).unwrap()).unwrap();
        };
        fs::create_dir(root.path().join("r")).unwrap();
        write(&root.path().join("r"), 99);
        write(source.path(), SCHEMA_VERSION);
        let run = Run::in_folder(source.path());
        assert!(matches!(import(&run, root.path(), false).unwrap(), Imported::Refused(_)));
        assert_eq!(import(&run, root.path(), true).unwrap(), Imported::Replaced);
    }

    #[test]
    fn a_run_that_is_kept_by_its_id_and_host_is_not_added_again() {
        let (source, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let import_of = |host_id: &str| {
            let run = Record { run_id: "r".into(), host_id: host_id.into(), ..Record::default() };
            let record = run.about(&Case::new("m", "ort", 1));
            write_records(&[record], fs::File::create(source.path().join(RESULTS)).unwrap()).unwrap();
            import(&Run::in_folder(source.path()), root.path(), false).unwrap()
        };
        assert_eq!(["a", "b"].map(import_of), [Imported::Added, Imported::Added]);
        fs::remove_dir_all(root.path().join("r")).unwrap();
        assert_eq!(import_of("b"), Imported::Unchanged);
    }

    #[test]
    fn an_unreadable_run_is_replaced_only_by_one_of_its_machine_or_on_request() {
        let (source, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let import_of = |host_id: &str, replace: bool| {
            let run = Record { run_id: "r".into(), host_id: host_id.into(), ..Record::default() };
            let record = run.about(&Case::new("m", "ort", 1));
            write_records(&[record], fs::File::create(source.path().join(RESULTS)).unwrap()).unwrap();
            import(&Run::in_folder(source.path()), root.path(), replace).unwrap()
        };
        let kept = root.path().join("r");
        assert_eq!(import_of("a", false), Imported::Added);
        fs::write(kept.join(RESULTS), "cut").unwrap();
        assert_eq!(import_of("b", true), Imported::Added, "it has the id and the host for a name");
        assert_eq!(import_of("a", false), Imported::Replaced);
        fs::write(kept.join(RESULTS), "cut").unwrap();
        fs::remove_file(kept.join(Table::Hardware.file())).unwrap();
        assert!(matches!(import_of("a", false), Imported::Refused(_)));
        assert_eq!(import_of("a", true), Imported::Replaced);
    }
}
