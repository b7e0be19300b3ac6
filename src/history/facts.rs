//! The four tables of the history, and the facts of a run, which are its row in the first of them.

use std::sync::LazyLock;

use anyhow::{Result, bail};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::calls;
use super::columns::{Column, ColumnType, columns_of};
use super::csv::Summary;
use crate::machine::Machine;
use crate::run_data::{Manifest, Record};

/// A table of the history: one Parquet file per run, and a view in DuckDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// One row per run: when, where, of which source, how many cases.
    Runs,
    /// One row per case and run: the columns of `results.csv`.
    Results,
    /// One row per run: the machine, as the run found it.
    Hardware,
    /// One row per call: `run_id`, `case`, `sample`, `call`, `nanoseconds`, `disturbed`.
    Calls,
}

impl Table {
    /// All tables.
    pub const ALL: [Table; 4] = [Table::Runs, Table::Results, Table::Hardware, Table::Calls];

    /// The name in DuckDB.
    pub fn name(self) -> &'static str {
        match self {
            Table::Runs => "benchmark_runs",
            Table::Results => "benchmark_results",
            Table::Hardware => "hardware_info",
            Table::Calls => "raw_benchmark_data",
        }
    }

    /// The file in a run's folder.
    pub fn file(self) -> &'static str {
        match self {
            Table::Runs => "run.parquet",
            Table::Results => "results.parquet",
            Table::Hardware => "hardware.parquet",
            Table::Calls => calls::LATENCIES,
        }
    }

    /// The columns, in their order. They are derived once: a history has many runs.
    pub fn columns(self) -> &'static [Column] {
        static COLUMNS: LazyLock<[Vec<Column>; 4]> = LazyLock::new(|| {
            let run_id = Column::new("run_id", ColumnType::Text);
            let hardware = std::iter::once(run_id).chain(columns_of::<Machine>()).collect();
            [columns_of::<RunFacts>(), columns_of::<Record>(), hardware, calls::columns()]
        });
        &COLUMNS[self as usize]
    }
}

/// When, where and of which source a run is, and how much there is of it: its row of `benchmark_runs`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunFacts {
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

impl RunFacts {
    /// The facts of a run, by its records and, where it is there, its manifest.
    ///
    /// # Errors
    /// There is neither a record nor a manifest, or they are of several runs.
    pub fn new(rows: &Summary, manifest: Option<&Manifest>, calls: usize) -> Result<Self> {
        let Some(row) = rows.first.clone().or_else(|| manifest.map(Manifest::run_columns)) else {
            bail!("it has no row");
        };
        if let Some(manifest) = manifest.filter(|manifest| manifest.run_id != row.run_id) {
            bail!("its manifest.json is of run {}, its rows of {}", manifest.run_id, row.run_id);
        }
        Ok(RunFacts {
            run_id: row.run_id,
            timestamp: row.timestamp,
            finished: manifest.and_then(|manifest| manifest.finished),
            is_interrupted: manifest.map(|manifest| manifest.is_interrupted),
            is_quick: manifest.map(|manifest| manifest.is_quick),
            host_id: row.host_id,
            suite: row.suite,
            arguments: manifest.map(|manifest| manifest.arguments.join(" ")),
            threads: manifest.map(|manifest| manifest.threads),
            git_commit: row.git_commit,
            git_dirty: row.git_dirty,
            saved_baseline: manifest.and_then(|manifest| manifest.saved_baseline.clone()),
            compared_baseline: manifest.and_then(|manifest| manifest.compared_baseline.clone()),
            inferbench_version: manifest.map(|manifest| manifest.inferbench_version.clone()),
            rustc_version: row.rustc_version,
            schema_version: row.schema_version,
            cases: rows.cases,
            cases_ok: rows.ok,
            calls,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_its_columns_with_their_types() {
        let column = |table: Table, name| {
            let columns = table.columns();
            columns.iter().find(|column| column.name == name).map(|column| column.column_type)
        };
        assert_eq!(column(Table::Results, "timestamp"), Some(ColumnType::Timestamp));
        assert_eq!(column(Table::Results, "phase"), Some(ColumnType::Text));
        assert_eq!(column(Table::Results, "effective_dtype"), Some(ColumnType::Text));
        assert_eq!(column(Table::Results, "iterations"), Some(ColumnType::BigInt));
        assert_eq!(column(Table::Results, "energy_j_per_sample"), Some(ColumnType::Double));
        assert_eq!(column(Table::Runs, "finished"), Some(ColumnType::Timestamp));
        assert_eq!(column(Table::Hardware, "gpus"), Some(ColumnType::Text));
        assert_eq!(column(Table::Calls, "nanoseconds"), Some(ColumnType::BigInt));
        for table in Table::ALL {
            assert!(column(table, "run_id").is_some(), "{table:?} can be joined");
        }
    }
}
