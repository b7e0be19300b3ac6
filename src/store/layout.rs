//! Where a run's files are in the store: `<table>/host=<host>/month=<YYYY-MM>/<run>.parquet`, a hive-partitioned tree.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use super::tables::{RunRow, Table};

/// A run's place in the store. A run is one by its host and its id: two machines may begin a run in the same second.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunPlace {
    host: String,
    month: String,
    run: String,
}

impl RunPlace {
    pub fn of(run: &RunRow) -> Self {
        RunPlace {
            host: escape(&run.host_id),
            month: run.timestamp.strftime("%Y-%m").to_string(),
            run: escape(&run.run_id),
        }
    }

    /// The path below the store's folder.
    pub fn file(&self, table: Table) -> String {
        format!("{}/host={}/month={}/{}.parquet", table.name(), self.host, self.month, self.run)
    }

    /// The run's id, as it is in file names.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Whether it is the run with this id.
    pub fn is_run(&self, id: &str) -> bool {
        self.run == escape(id)
    }
}

/// The runs that a table has files of, by month, then id.
///
/// # Errors
/// A folder cannot be read.
pub fn places(store: &Path, table: Table) -> Result<Vec<RunPlace>, String> {
    let mut places = Vec::new();
    for (host, folder) in partitions(&store.join(table.name()), "host=")? {
        for (month, folder) in partitions(&folder, "month=")? {
            for path in entries(&folder)? {
                let name = path.file_name().and_then(|name| name.to_str());
                if let Some(run) = name.and_then(|name| name.strip_suffix(".parquet")) {
                    places.push(RunPlace { host: host.clone(), month: month.clone(), run: run.to_owned() });
                }
            }
        }
    }
    places.sort_by(|a, b| (&a.month, &a.run, &a.host).cmp(&(&b.month, &b.run, &b.host)));
    Ok(places)
}

fn partitions(folder: &Path, prefix: &str) -> Result<Vec<(String, PathBuf)>, String> {
    let value = |path: PathBuf| {
        let value = path.file_name()?.to_str()?.strip_prefix(prefix)?.to_owned();
        path.is_dir().then_some((value, path))
    };
    Ok(entries(folder)?.into_iter().filter_map(value).collect())
}

/// A table that has no folder yet has no entries.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    Ok(entries.map_err(|error| format!("{}: {error}", folder.display()))?.iter().map(fs::DirEntry::path).collect())
}

/// A value as a file name that no folder, glob or hive reader misunderstands: others than letters, digits, `-`, `_` and `.`
/// inside as `%41`, as hive does; nothing as hive's name for it.
pub fn escape(value: &str) -> String {
    if value.is_empty() {
        return "__HIVE_DEFAULT_PARTITION__".into();
    }
    let mut escaped = String::new();
    for (index, byte) in value.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) || (byte == b'.' && index > 0) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leaves_its_folder() {
        assert_eq!(escape("20260101T000000Z-2"), "20260101T000000Z-2");
        assert_eq!(escape("../../etc/passwd"), "%2E.%2F..%2Fetc%2Fpasswd");
        assert_eq!(escape("a=b *?[é"), "a%3Db%20%2A%3F%5B%C3%A9");
        assert_eq!(escape(""), "__HIVE_DEFAULT_PARTITION__");
    }

    #[test]
    fn places_are_what_the_files_say() {
        let store = tempfile::tempdir().unwrap();
        let files = ["host=b/month=2026-02/r3", "host=a/month=2026-02/r2", "host=b/month=2025-12/r1"];
        for file in files {
            let path = store.path().join("benchmark_runs").join(file).with_extension("parquet");
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found = places(store.path(), Table::Runs).unwrap();
        assert_eq!(found.iter().map(RunPlace::run).collect::<Vec<_>>(), ["r1", "r2", "r3"]);
        assert_eq!(found[1].file(Table::Calls), "raw_benchmark_data/host=a/month=2026-02/r2.parquet");
        assert_eq!(places(store.path(), Table::Results), Ok(Vec::new()));
    }
}
