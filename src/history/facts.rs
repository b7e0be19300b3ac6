//! The tables of the history, and the facts of a run, which are its row in the first table.

use std::sync::LazyLock;

use anyhow::{Result, ensure};
use indexmap::{IndexMap, IndexSet};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::calls;
use super::columns::{Column, ColumnType, columns_of};
use crate::machine::Machine;
use crate::run_data::{LoadResult, Metric, ProfileRow, Record};

/// A table of the history: one Parquet file per run, profile or load test, and a view in DuckDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum Table {
    /// One row per run: its time, machine, source revision and number of cases.
    #[strum(serialize = "benchmark_runs")]
    Runs,
    /// One row per case and run: the columns of `results.csv`.
    #[strum(serialize = "benchmark_results")]
    Results,
    /// One row per run: the machine, as the run found it.
    #[strum(serialize = "hardware_info")]
    Hardware,
    /// One row per call: `run_id`, `case`, `sample`, `call`, `nanoseconds`, `disturbed`, `host_id`.
    #[strum(serialize = "raw_benchmark_data")]
    Calls,
    /// One row per case and metric: the columns of `metrics.csv`.
    #[strum(serialize = "metrics")]
    Metrics,
    /// One row per operator of a profiled case. `profiles.parquet` is in the folder of a profile, not of a run.
    #[strum(serialize = "profiles")]
    Profiles,
    /// One row per trial of a load test. `load_results.parquet` is in the folder of a load test, not of a run.
    #[strum(serialize = "load_results")]
    Loads,
}

impl Table {
    /// All tables.
    pub const ALL: [Table; 7] =
        [Table::Runs, Table::Results, Table::Hardware, Table::Calls, Table::Metrics, Table::Profiles, Table::Loads];

    /// The name in DuckDB.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The file in the folder of a run, profile or load test.
    pub fn file(self) -> &'static str {
        match self {
            Table::Runs => "run.parquet",
            Table::Results => "results.parquet",
            Table::Hardware => "hardware.parquet",
            Table::Calls => calls::LATENCIES,
            Table::Metrics => "metrics.parquet",
            Table::Profiles => "profiles.parquet",
            Table::Loads => "load_results.parquet",
        }
    }

    /// The columns, in their order. They are derived once, since a history has many runs.
    pub fn columns(self) -> &'static [Column] {
        static COLUMNS: LazyLock<[Vec<Column>; 7]> = LazyLock::new(|| {
            let run_id = Column::new("run_id", ColumnType::Text);
            let hardware = std::iter::once(run_id).chain(columns_of::<Machine>()).collect();
            [
                columns_of::<RunFacts>(),
                columns_of::<Record>(),
                hardware,
                calls::columns(),
                columns_of::<Metric>(),
                columns_of::<ProfileRow>(),
                columns_of::<LoadResult>(),
            ]
        });
        &COLUMNS[self as usize]
    }
}

/// The time, machine and source revision of a run, and how much it holds: its row of `benchmark_runs`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunFacts {
    pub run_id: String,
    /// When it began.
    pub timestamp: Timestamp,
    /// Absent if the run was killed, or came without its manifest.
    pub finished: Option<Timestamp>,
    pub is_interrupted: Option<bool>,
    pub host_id: String,
    pub suite: String,
    pub arguments: Option<String>,
    pub threads: Option<usize>,
    pub git_commit: Option<String>,
    pub git_dirty: Option<bool>,
    pub inferbench_version: Option<String>,
    pub rustc_version: String,
    pub schema_version: u32,
    /// Rows of `benchmark_results`.
    pub cases: usize,
    /// Those with status `ok`.
    pub cases_ok: usize,
    /// Rows of `raw_benchmark_data`.
    pub calls: usize,
    /// The names of the models, separated by commas.
    pub models: String,
    /// The names of the backends, separated by commas.
    pub backends: String,
    /// The ids of the cases with the lowest median, one per model, separated by commas.
    pub fastest_cases: String,
    /// The median of the fastest case, if there is one model.
    pub fastest_p50_ms: Option<f64>,
}

/// The fields of a manifest that the facts need. A whole manifest is long, and there are histories of ten thousand
/// runs.
#[derive(Deserialize)]
pub struct ManifestFacts {
    run_id: String,
    finished: Option<Timestamp>,
    is_interrupted: bool,
    arguments: Vec<String>,
    threads: usize,
    inferbench_version: String,
}

/// Separates the names of a list.
const SEPARATOR: &str = ", ";

/// Models, backends and the fastest cases of rows that are read one after the other.
#[derive(Default)]
pub struct Measured {
    /// Each model with the median and id of its fastest case, if one has figures.
    models: IndexMap<String, Option<(f64, String)>>,
    backends: IndexSet<String>,
}

impl Measured {
    /// Adds a row. `median` is the median in milliseconds and the id of the case, if its status is `ok`.
    pub fn add(&mut self, model: &str, backend: &str, median: Option<(f64, &str)>) {
        if !self.backends.contains(backend) {
            self.backends.insert(backend.to_owned());
        }
        let fastest = match self.models.get_mut(model) {
            Some(fastest) => fastest,
            None => self.models.entry(model.to_owned()).or_default(),
        };
        if let Some((ms, case_id)) = median
            && fastest.as_ref().is_none_or(|(least, _)| ms < *least)
        {
            *fastest = Some((ms, case_id.to_owned()));
        }
    }

    pub fn put_into(self, facts: &mut RunFacts) {
        let fastest: Vec<&(f64, String)> = self.models.values().flatten().collect();
        facts.fastest_p50_ms = fastest.first().filter(|_| self.models.len() == 1).map(|(ms, _)| *ms);
        facts.fastest_cases = fastest.iter().map(|(_, id)| id.as_str()).collect::<Vec<_>>().join(SEPARATOR);
        facts.models = Vec::from_iter(self.models.into_keys()).join(SEPARATOR);
        facts.backends = Vec::from_iter(self.backends).join(SEPARATOR);
    }
}

/// The names in a list of [`RunFacts`], such as `models`.
pub fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(SEPARATOR).filter(|name| !name.is_empty())
}

impl RunFacts {
    /// Whether the run has one of these models and one of these backends. An empty list is no restriction.
    pub fn has(&self, models: &[String], backends: &[String]) -> bool {
        let has_one =
            |asked: &[String], own: &str| asked.is_empty() || names(own).any(|name| asked.iter().any(|it| it == name));
        has_one(models, &self.models) && has_one(backends, &self.backends)
    }

    /// The facts of a run without rows, from the columns that all its rows would share.
    pub fn of_columns(row: Record) -> Self {
        let Record { run_id, timestamp, git_commit, git_dirty, host_id, suite, rustc_version, schema_version, .. } =
            row;
        let known = RunFacts { run_id, timestamp, git_commit, git_dirty, host_id, suite, ..RunFacts::default() };
        RunFacts { rustc_version, schema_version, ..known }
    }

    /// Adds the facts that the manifest has.
    ///
    /// # Errors
    /// The manifest is of another run.
    pub fn with_manifest(self, manifest: ManifestFacts) -> Result<Self> {
        let (of_manifest, of_rows) = (&manifest.run_id, &self.run_id);
        ensure!(of_manifest == of_rows, "its manifest.json is of run {of_manifest}, its rows of {of_rows}");
        Ok(RunFacts {
            finished: manifest.finished,
            is_interrupted: Some(manifest.is_interrupted),
            arguments: Some(manifest.arguments.join(" ")),
            threads: Some(manifest.threads),
            inferbench_version: Some(manifest.inferbench_version),
            ..self
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
        assert_eq!(column(Table::Metrics, "lower"), Some(ColumnType::Double));
        assert_eq!(column(Table::Metrics, "better"), Some(ColumnType::Text));
        for table in Table::ALL {
            assert!(column(table, "run_id").is_some(), "{table:?} can be joined");
        }
    }
}
