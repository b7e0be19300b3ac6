//! The four tables of the store, and what a run has in each.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use toml::{Table as Row, Value};

use super::calls;
use super::columns::{Column, ColumnType, columns_of};
use super::parquet::table_of;
use crate::definition::Status;
use crate::harness::{Machine, Manifest};
use crate::record::Record;

/// A table; its folder in the store and its name in DuckDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// A row a run: when, where, of which source, how many cases.
    Runs,
    /// A row a case and run: the columns of `results.csv`.
    Results,
    /// A row a run: the machine, as the run found it.
    Hardware,
    /// A row a call: `run_id`, `case`, `sample`, `call`, `nanoseconds`, `disturbed`.
    Calls,
}

impl Table {
    pub const ALL: [Table; 4] = [Table::Runs, Table::Results, Table::Hardware, Table::Calls];

    pub fn name(self) -> &'static str {
        match self {
            Table::Runs => "benchmark_runs",
            Table::Results => "benchmark_results",
            Table::Hardware => "hardware_info",
            Table::Calls => "raw_benchmark_data",
        }
    }

    /// The columns, of which each file of the table has all, in this order.
    pub fn columns(self) -> Vec<Column> {
        match self {
            Table::Runs => columns_of::<RunRow>(),
            Table::Results => columns_of::<Record>(),
            Table::Hardware => {
                let run_id = Column { name: "run_id", column_type: ColumnType::Text };
                std::iter::once(run_id).chain(columns_of::<Machine>()).collect()
            }
            Table::Calls => calls::COLUMNS.to_vec(),
        }
    }
}

/// A row of `benchmark_runs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    pub run_id: String,
    /// When it began.
    pub timestamp: Timestamp,
    /// Absent where the run was killed, or came without its manifest.
    pub finished: Option<Timestamp>,
    pub is_interrupted: Option<bool>,
    pub is_quick: Option<bool>,
    pub host_id: String,
    pub suite: String,
    pub arguments: Option<String>,
    pub threads: Option<usize>,
    pub git_commit: Option<String>,
    pub git_dirty: Option<bool>,
    pub saved_baseline: Option<String>,
    pub compared_baseline: Option<String>,
    pub inferbench_version: Option<String>,
    pub rustc_version: String,
    pub schema_version: u32,
    /// Rows of `benchmark_results`.
    pub cases: usize,
    /// Those with status `ok`.
    pub cases_ok: usize,
    /// Rows of `raw_benchmark_data`.
    pub calls: usize,
}

/// What the store keeps of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRun {
    pub run: RunRow,
    pub records: Vec<Record>,
    /// One row, in serde's form.
    pub hardware: Row,
    /// A file with every call, if they were kept.
    pub calls: Option<PathBuf>,
}

impl StoredRun {
    /// A run out of its records, and its manifest if that is there.
    ///
    /// # Errors
    /// There is no record, or they are of several runs.
    pub fn new(
        mut records: Vec<Record>,
        manifest: Option<&Manifest>,
        calls: Option<(PathBuf, usize)>,
    ) -> Result<Self, String> {
        for record in &mut records {
            record.timestamp = to_microsecond(record.timestamp);
        }
        let first = records.first().ok_or("it has no row")?;
        if let Some(other) =
            records.iter().find(|record| record.run_id != first.run_id || record.host_id != first.host_id)
        {
            return Err(format!("rows of several runs: {} and {}", first.run_id, other.run_id));
        }
        if let Some(manifest) = manifest.filter(|manifest| manifest.run_id != first.run_id) {
            return Err(format!("its manifest.json is of run {}, its rows of {}", manifest.run_id, first.run_id));
        }
        let run = RunRow {
            run_id: first.run_id.clone(),
            timestamp: first.timestamp,
            finished: manifest.and_then(|manifest| manifest.finished).map(to_microsecond),
            is_interrupted: manifest.map(|manifest| manifest.is_interrupted),
            is_quick: manifest.map(|manifest| manifest.is_quick),
            host_id: first.host_id.clone(),
            suite: first.suite.clone(),
            arguments: manifest.map(|manifest| manifest.arguments.join(" ")),
            threads: manifest.map(|manifest| manifest.threads),
            git_commit: first.git_commit.clone(),
            git_dirty: first.git_dirty,
            saved_baseline: manifest.and_then(|manifest| manifest.saved_baseline.clone()),
            compared_baseline: manifest.and_then(|manifest| manifest.compared_baseline.clone()),
            inferbench_version: manifest.map(|manifest| manifest.inferbench_version.clone()),
            rustc_version: first.rustc_version.clone(),
            schema_version: first.schema_version,
            cases: records.len(),
            cases_ok: records.iter().filter(|record| record.status == Status::Ok).count(),
            calls: calls.as_ref().map_or(0, |(_, count)| *count),
        };
        let mut hardware = match manifest {
            Some(manifest) => table_of(&manifest.machine)?,
            None => Row::from_iter([("host_id".to_owned(), Value::String(run.host_id.clone()))]),
        };
        hardware.insert("run_id".into(), Value::String(run.run_id.clone()));
        Ok(StoredRun { run, records, hardware, calls: calls.map(|(path, _)| path) })
    }
}

/// What a column of timestamps keeps.
fn to_microsecond(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_its_columns_with_their_types() {
        let column = |table: Table, name| {
            let columns = table.columns();
            columns.into_iter().find(|column| column.name == name).map(|column| column.column_type)
        };
        assert_eq!(column(Table::Results, "timestamp"), Some(ColumnType::Timestamp));
        assert_eq!(column(Table::Results, "phase"), Some(ColumnType::Text));
        assert_eq!(column(Table::Results, "iterations"), Some(ColumnType::BigInt));
        assert_eq!(column(Table::Results, "energy_j_per_sample"), Some(ColumnType::Double));
        assert_eq!(column(Table::Runs, "finished"), Some(ColumnType::Timestamp));
        assert_eq!(column(Table::Hardware, "gpus"), Some(ColumnType::Text));
        assert_eq!(column(Table::Calls, "nanoseconds"), Some(ColumnType::BigInt));
        for table in Table::ALL {
            assert!(column(table, "run_id").is_some(), "{table:?} can be joined");
        }
    }

    #[test]
    fn columns_of_results_are_those_of_the_csv() {
        let mut csv = Vec::new();
        crate::store::write_records(&[], &mut csv).unwrap();
        let names: Vec<&str> = Table::Results.columns().iter().map(|column| column.name).collect();
        assert_eq!(String::from_utf8(csv).unwrap().trim_end(), names.join(","));
    }
}
