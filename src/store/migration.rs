//! Brings a store of an older inferbench to the present columns.
//!
//! Readers outside take a table's columns from the first file that they see, so all files must have the same. All tables
//! but the calls are small and are written anew, with the new columns absent.

use super::folder::{STORE_FILE, Store, bytes_of, put_versions, write_all};
use super::layout::places;
use super::parquet::read_rows;
use super::tables::Table;
use super::transaction::Transaction;

/// Rewrites what has other columns now: all of it or, on an error, nothing. The caller holds the store's lock.
///
/// # Errors
/// A file cannot be written.
pub(super) fn migrate(store: &Store) -> Result<(), String> {
    let mut transaction = Transaction::begin(store.folder())?;
    let mut runs = 0;
    for table in [Table::Runs, Table::Hardware, Table::Results] {
        let places = places(store.folder(), table)?;
        runs = runs.max(places.len());
        for place in places {
            match read_rows(&store.path(&place, table)) {
                Ok(rows) => {
                    let bytes = bytes_of(table, &rows)?;
                    transaction.put(&place.file(table), |file| write_all(file, &bytes))?;
                }
                // It is no worse than before, and whoever reads it is told again.
                Err(error) => eprintln!("left as it is: {error}"),
            }
        }
    }
    put_versions(&mut transaction)?;
    transaction.commit()?;
    eprintln!("{}: {runs} runs have the columns of this inferbench now", store.folder().join(STORE_FILE).display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::definition::{Case, Status};
    use crate::record::{Record, RunIdentity};
    use crate::store::StoredRun;
    use crate::store::parquet::write_rows;

    fn stored(id: &str) -> StoredRun {
        let run = RunIdentity {
            run_id: id.into(),
            timestamp: "2026-01-01T00:00:00Z".parse().unwrap(),
            git_commit: None,
            git_dirty: None,
            host_id: "h".into(),
            suite: "quick".into(),
            rustc_version: String::new(),
        };
        let record = Record::new(&run, &Case::new("m", "ort", 1), Status::Ok, None);
        StoredRun::new(vec![record], None, None).unwrap()
    }

    /// Takes a column away, as if no inferbench had known it when the store was written.
    fn make_older(store: &Store, table: Table, column: &str) {
        let columns: Vec<_> = table.columns().into_iter().filter(|known| known.name != column).collect();
        for path in store.files(table).unwrap() {
            let rows = read_rows(&path).unwrap();
            write_rows(&columns, &rows, fs::File::create(path).unwrap()).unwrap();
        }
        let path = store.folder().join(STORE_FILE);
        let mut versions: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        let names = versions["columns"][table.name()].as_array_mut().unwrap();
        names.retain(|name| name.as_str() != Some(column));
        versions["schema_version"] = 3.into();
        fs::write(path, versions.to_string()).unwrap();
    }

    #[test]
    fn an_older_store_gets_the_columns_that_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::write(folder.path()).unwrap();
        store.import(&[stored("r1"), stored("r2")], false).unwrap();
        let tables = [(Table::Results, "stopped_by"), (Table::Hardware, "caches"), (Table::Runs, "is_quick")];
        let bytes = |store: &Store| tables.map(|(table, _)| fs::read(&store.files(table).unwrap()[0]).unwrap());
        let before = bytes(&store);
        for (table, column) in tables {
            make_older(&store, table, column);
        }
        assert_ne!(bytes(&store), before);
        drop(store);
        let store = Store::read(folder.path()).unwrap();
        assert_eq!(bytes(&store), before);
        let runs: Vec<_> = store.places().unwrap().iter().map(|place| store.stored_run(place).unwrap()).collect();
        assert_eq!(runs, [stored("r1"), stored("r2")]);
    }

    #[test]
    fn a_broken_file_does_not_stop_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::write(folder.path()).unwrap();
        store.import(&[stored("r1"), stored("r2")], false).unwrap();
        make_older(&store, Table::Results, "stopped_by");
        let files = store.files(Table::Results).unwrap();
        fs::write(&files[0], "PAR1").unwrap();
        drop(store);
        let store = Store::read(folder.path()).unwrap();
        assert_eq!(fs::read(&files[0]).unwrap(), b"PAR1");
        assert_eq!(store.stored_run(&store.places().unwrap()[1]).unwrap(), stored("r2"));
    }
}
