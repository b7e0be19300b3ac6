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
