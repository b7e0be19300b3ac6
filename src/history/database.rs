//! DuckDB over the history: the tables as views of what the runs hold, or as real tables of a database file.

use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use duckdb::arrow::array::{Array, ArrayRef};
use duckdb::arrow::compute::cast;
use duckdb::arrow::datatypes::DataType;
use duckdb::arrow::util::display::{ArrayFormatter, FormatOptions};
use duckdb::{AccessMode, Config, Connection};
use fs_err as fs;
use parquet::data_type::Int64Type;
use serde_json::Value;
use tempfile::TempDir;

use super::beside::{rows_of_loads, rows_of_profiles};
use super::calls::{CallsWriter, count_calls};
use super::csv::{Rows, read_records, write_records};
use super::facts::{RunFacts, Table};
use super::parquet::{distinct, write_rows};
use super::query::Answer;
use super::run::{METRICS, RESULTS, Run};
use crate::run_data::{MANIFEST, SCHEMA_VERSION, hidden};

/// From this size of `results.csv` on, about a hundred records, reading some columns of `results.parquet` takes less time.
const LARGE_RESULTS: u64 = 128 << 10;

/// An open database.
pub struct Database {
    connection: Connection,
    views: Option<Views>,
}

/// The runs and folders of an open history, and the files that its views read.
struct Views {
    runs: Vec<Run>,
    /// Folders that may hold profiles and load tests without a run.
    roots: Vec<PathBuf>,
    files: TempDir,
}

impl Database {
    /// Opens the tables as views of these runs, and of the profiles and load tests beside them and in the folders
    /// `roots`.
    pub fn over(runs: &[Run], roots: &[PathBuf]) -> Result<Self> {
        let open = || Connection::open_in_memory_with_flags(config(AccessMode::Automatic)?);
        let connection = open().map_err(plain)?;
        let views = Views { runs: runs.to_vec(), roots: roots.to_vec(), files: TempDir::new()? };
        Ok(Database { connection, views: Some(views) })
    }

    /// Opens a database file for reading.
    ///
    /// # Errors
    /// The file is missing, is of a newer DuckDB, or is not a database.
    pub fn open(path: &Path) -> Result<Self> {
        fs::File::open(path)?;
        let open = || Connection::open_with_flags(path, config(AccessMode::ReadOnly)?);
        let connection = open().map_err(plain).with_context(|| path.display().to_string())?;
        Ok(Database { connection, views: None })
    }

    /// Runs SQL, and returns the rows of the last statement.
    ///
    /// # Errors
    /// The SQL is wrong, in DuckDB's words, or a file of a run cannot be read; the message names it.
    pub fn query(&self, sql: &str) -> Result<Answer> {
        // Only the tables that the SQL names: each takes time, and a broken file must not affect queries of other
        // tables. SQL that names none may ask which tables there are.
        let lower = sql.to_lowercase();
        let mut tables: Vec<Table> = Table::ALL.into_iter().filter(|table| lower.contains(table.name())).collect();
        if tables.is_empty() {
            tables.extend(Table::ALL);
        }
        tables.into_iter().try_for_each(|table| self.create_view(table))?;
        let mut statement = self.connection.prepare(sql).map_err(plain)?;
        let batches = statement.query_arrow([]).map_err(plain)?;
        let columns = batches.get_schema().fields().iter().map(|field| field.name().clone()).collect();
        let mut rows = Vec::new();
        for batch in batches {
            let columns = batch.columns().iter().map(values).collect::<Result<Vec<_>>>()?;
            rows.extend((0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()));
        }
        Ok(Answer { columns, rows, notes: Vec::new() })
    }

    fn execute(&self, sql: &str) -> Result<()> {
        self.connection.execute_batch(sql).map_err(plain)
    }

    /// Creates the view of a table, unless it exists.
    fn create_view(&self, table: Table) -> Result<()> {
        let Some(Views { runs, roots, files }) = &self.views else { return Ok(()) };
        let path = files.path().join(table.file());
        if path.exists() {
            return Ok(());
        }
        let rows = match table {
            Table::Results => results(runs, &path)?,
            Table::Calls => {
                // An empty file, so that the columns exist even if there are no calls.
                CallsWriter::new("", "", fs::File::create(&path)?.into_parts().0)?.finish()?;
                let mut files = vec![quoted_glob(&path)];
                for run in runs {
                    let path = run.folder().join(table.file());
                    if run.with_advice(count_calls(&path))? > 0 {
                        files.push(quoted_glob(&path));
                    }
                }
                // Files of older versions do not name the machine.
                format!("read_parquet([{}], union_by_name = true)", files.join(", "))
            }
            Table::Profiles | Table::Loads => {
                let beside_runs = runs.iter().filter_map(|run| run.folder().parent());
                let roots: BTreeSet<&Path> = roots.iter().map(PathBuf::as_path).chain(beside_runs).collect();
                let read = if table == Table::Profiles { rows_of_profiles } else { rows_of_loads };
                let rows = roots.into_iter().map(read).collect::<Result<Vec<_>>>()?.concat();
                write_rows(table.columns(), &rows, fs::File::create(&path)?)?;
                format!("read_parquet({})", quoted_glob(&path))
            }
            Table::Runs | Table::Hardware | Table::Metrics => {
                let rows = |run: &Run| run.with_advice(run.rows(table));
                let rows = runs.iter().map(rows).collect::<Result<Vec<_>>>()?.concat();
                write_rows(table.columns(), &rows, fs::File::create(&path)?)?;
                format!("read_parquet({})", quoted_glob(&path))
            }
        };
        self.execute(&format!("CREATE VIEW {} AS FROM {rows}", table.name()))
    }
}

/// The SQL that reads the records of all runs: large runs from their own Parquet files, all others from one CSV file,
/// which is written here.
///
/// DuckDB takes a second for ten thousand rows of one file, but almost a millisecond for each further file, whatever
/// the query: eight seconds for ten thousand runs.
fn results(runs: &[Run], path: &Path) -> Result<String> {
    let mut header = Vec::new();
    write_records(&[], &mut header)?;
    let mut all = fs::File::create(path)?;
    all.write_all(&header)?;
    let mut large = Vec::new();
    for run in runs {
        if let Some(file) = large_results(run, &header) {
            large.push(quoted_glob(&file));
            continue;
        }
        let bytes = run.with_advice(checked_results(run))?;
        all.write_all(&bytes[header.len()..])?;
    }
    let columns = Table::Results.columns().iter();
    let columns: Vec<String> = columns.map(|column| format!("'{}': '{}'", column.name, column.column_type)).collect();
    let path = quoted_glob(path);
    let small = format!("read_csv({path}, header = true, auto_detect = false, columns = {{{}}})", columns.join(", "));
    match large.is_empty() {
        true => Ok(small),
        false => Ok(format!("(FROM {small} UNION ALL BY NAME FROM read_parquet([{}]))", large.join(", "))),
    }
}

/// The bytes of `results.csv` with the columns of this version, checked row by row. DuckDB itself ignores the version
/// of a row, and reports a truncated row by its position among the rows of all runs.
fn checked_results(run: &Run) -> Result<Vec<u8>> {
    let named = || run.folder().join(RESULTS).display().to_string();
    let bytes = run.results_of_this_version()?;
    let mut rows = Rows::open(bytes.as_slice()).with_context(named)?;
    while rows.advance().with_context(named)? {}
    Ok(bytes)
}

/// The Parquet file of the records, if it can be read instead of the CSV file. The CSV file has to be so large that
/// this is faster. Both files have to be complete, written by the same import, and of this version: the CSV file begins
/// with its header, and no row is of a newer version.
fn large_results(run: &Run, header: &[u8]) -> Option<PathBuf> {
    let (csv, columns) = (run.folder().join(RESULTS), run.folder().join(Table::Results.file()));
    let (of_csv, of_columns) = (csv.metadata().ok()?, columns.metadata().ok()?);
    if of_csv.len() < LARGE_RESULTS || of_columns.modified().ok()? < of_csv.modified().ok()? {
        return None;
    }
    let mut file = std::fs::File::open(&csv).ok()?;
    let (mut head, mut end) = (vec![0; header.len()], [0]);
    file.read_exact(&mut head).ok()?;
    file.seek(SeekFrom::End(-1)).ok()?;
    file.read_exact(&mut end).ok()?;
    let versions = distinct::<Int64Type, _>(&columns, "schema_version", |version| Ok(*version)).ok()?;
    let is_newest_known = versions.last().is_some_and(|newest| *newest <= i64::from(SCHEMA_VERSION));
    (head == header && end == *b"\n" && is_newest_known).then_some(columns)
}

/// The table of manifests in a database file. A run that is read from the file gets its facts and machine from it.
const MANIFESTS: &str = "run_manifests";

/// Writes these runs as real tables of a database file, whole or not at all.
pub fn write_database(runs: &[Run], path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let hidden = hidden(0o700).tempdir_in(folder).context(path.display().to_string())?;
    let partial = hidden.path().join("history.duckdb");
    let database = Database::over(runs, &[])?;
    let write = || -> Result<()> {
        database.execute(&format!("ATTACH {} AS export", quoted(&partial)))?;
        for table in Table::ALL {
            database.create_view(table)?;
            database.execute(&format!("CREATE TABLE export.{0} AS FROM {0}", table.name()))?;
        }
        database.execute(&format!("CREATE TABLE export.{MANIFESTS} (run_id TEXT, host_id TEXT, manifest TEXT)"))?;
        for run in runs {
            if let Ok(manifest) = fs::read_to_string(run.folder().join(MANIFEST)) {
                let RunFacts { run_id, host_id, .. } = run.facts()?;
                let insert = format!("INSERT INTO export.{MANIFESTS} VALUES (?, ?, ?)");
                database.connection.execute(&insert, [run_id, host_id, manifest]).map_err(plain)?;
            }
        }
        database.execute("CHECKPOINT export; DETACH export")?;
        fs::File::open(&partial)?.sync_all()?;
        Ok(fs::rename(&partial, path)?)
    };
    write().with_context(|| path.display().to_string())
}

/// The runs of a database that [`write_database`] wrote, each in a temporary folder of its own.
///
/// # Errors
/// The file is not a database, or lacks the tables.
pub fn runs_of_database(path: &Path) -> Result<Vec<Run>> {
    let database = Database::open(path)?;
    let read = || -> Result<Vec<Run>> {
        let extracted = TempDir::new()?;
        let results = extracted.path().join(RESULTS);
        let copy = |rows: &str, target: &Path, options: &str| {
            database.execute(&format!("COPY (FROM {rows}) TO {} ({options})", quoted(target)))
        };
        copy(Table::Results.name(), &results, "FORMAT csv, TIMESTAMPFORMAT '%Y-%m-%dT%H:%M:%S.%fZ'")?;
        let runs = Run::extract(read_records(fs::File::open(&results)?)?, path)?;
        let with_metrics = database.query(&format!("SELECT DISTINCT run_id FROM {}", Table::Metrics.name()))?;
        for run in &runs {
            let RunFacts { run_id, host_id, .. } = run.facts()?;
            let is_of_run = format!("run_id = '{}'", run_id.replace('\'', "''"));
            // A merged run has several machines. Calls of older versions do not name theirs.
            let machines = run.host_ids()?.iter().map(|it| format!("'{}'", it.replace('\'', "''"))).collect::<Vec<_>>();
            let is_of_machine = format!("(host_id IS NULL OR host_id IN ({}))", machines.join(", "));
            let rows = |table: Table| format!("{} WHERE {is_of_run} AND {is_of_machine}", table.name());
            let calls = run.folder().join(Table::Calls.file());
            copy(&rows(Table::Calls), &calls, "FORMAT parquet, COMPRESSION zstd")?;
            if with_metrics.texts().any(|row| row[0] == run_id) {
                copy(&rows(Table::Metrics), &run.folder().join(METRICS), "FORMAT csv, HEADER")?;
            }
            let manifests = database.query(&format!("SELECT host_id, manifest FROM {MANIFESTS} WHERE {is_of_run}"))?;
            for manifest in manifests.texts().filter(|row| row[0] == host_id) {
                fs::write(run.folder().join(MANIFEST), &manifest[1])?;
            }
        }
        Ok(runs)
    };
    read().with_context(|| path.display().to_string())
}

/// DuckDB must not download extensions.
fn config(access: AccessMode) -> duckdb::Result<Config> {
    Config::default().access_mode(access)?.enable_autoload_extension(false)
}

/// DuckDB's message alone: the cause that comes with it is a number.
fn plain(error: duckdb::Error) -> anyhow::Error {
    anyhow::Error::msg(error.to_string())
}

/// A path as an SQL string.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "''"))
}

/// A path as an SQL string in which DuckDB sees no wildcard.
fn quoted_glob(path: &Path) -> String {
    let literal = |c: char| if "*?[".contains(c) { format!("[{c}]") } else { c.to_string() };
    quoted(&PathBuf::from(path.display().to_string().chars().map(literal).collect::<String>()))
}

/// The values of a column. Values that JSON cannot express become text.
fn values(column: &ArrayRef) -> Result<Vec<Value>> {
    let column = match column.data_type() {
        // Arrow needs a time zone database to print a time with a zone. These are UTC, so the zone is dropped.
        DataType::Timestamp(unit, Some(_)) => &cast(column, &DataType::Timestamp(*unit, None))?,
        _ => column,
    };
    let options = FormatOptions::new().with_null("null").with_timestamp_format(Some("%Y-%m-%dT%H:%M:%S%.fZ"));
    let texts = ArrayFormatter::try_new(column, &options)?;
    let is_json =
        column.data_type().is_numeric() || matches!(column.data_type(), DataType::Boolean | DataType::List(_));
    let value = |row: usize| -> Result<Value> {
        if column.is_null(row) {
            return Ok(Value::Null);
        }
        let text = texts.value(row).try_to_string()?;
        let known = if is_json { serde_json::from_str(&text).ok() } else { None };
        Ok(known.unwrap_or(Value::String(text)))
    };
    (0..column.len()).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Case;
    use crate::history::records_as_parquet;
    use crate::run_data::Record;
    use serde_json::json;

    #[test]
    fn a_row_of_a_newer_version_is_refused_wherever_it_is() {
        // A run with the second number of rows is read from its Parquet file.
        for rows in [2, 1000] {
            let folder = tempfile::tempdir().unwrap();
            let record = Record { host_id: "h".into(), ..Record::default() }.about(&Case::new("m", "ort", 1));
            let mut records = vec![record; rows];
            let ask = |records: &[Record]| {
                write_records(records, fs::File::create(folder.path().join(RESULTS)).unwrap()).unwrap();
                let columns = records_as_parquet(records).unwrap();
                fs::write(folder.path().join(Table::Results.file()), columns).unwrap();
                let database = Database::over(&[Run::in_folder(folder.path())], &[]).unwrap();
                database.query("SELECT count(*) FROM benchmark_results")
            };
            assert_eq!(ask(&records).unwrap().rows, [[json!(rows)]]);
            records[rows - 1].schema_version = 99;
            let error = ask(&records).unwrap_err().to_string();
            let reason = format!("results.csv: line {}: schema version 99 is newer", rows + 1);
            assert!(error.contains(&reason) && error.ends_with("update inferbench to read it"), "{error}");
        }
    }

    #[test]
    fn cells_of_every_kind_have_a_form() {
        let database = Database::over(&[], &[]).unwrap();
        let sql = "SELECT NULL AS a, 1::TINYINT AS b, 9223372036854775807::HUGEINT AS c, 0.5 AS d, \
            'nan'::DOUBLE AS e, DATE '2026-03-01' AS f, TIMESTAMP '2026-03-01 12:00:00.25' AS g, TIME '01:02:03' AS h, \
            [1, NULL] AS i, {'x': true} AS j, MAP {'k': 2} AS k, 'a''b' AS l, sum(2) AS m, \
            TIMESTAMPTZ '2026-03-01 12:00:00+00' AS n";
        let answer = database.query(sql).unwrap();
        assert_eq!(
            answer.rows,
            [vec![
                Value::Null,
                json!(1),
                json!(9_223_372_036_854_775_807_i64),
                json!(0.5),
                json!("NaN"),
                json!("2026-03-01"),
                json!("2026-03-01T12:00:00.250Z"),
                json!("01:02:03"),
                json!([1, null]),
                json!("{x: true}"),
                json!("{k: 2}"),
                json!("a'b"),
                json!(2),
                json!("2026-03-01T12:00:00Z"),
            ]]
        );
        assert_eq!(answer.columns.join(""), "abcdefghijklmn");
    }

    #[test]
    fn an_empty_history_has_its_tables_with_their_types() {
        let database = Database::over(&[], &[]).unwrap();
        let answer = database
            .query(
                "SELECT table_name, column_name, data_type FROM information_schema.columns ORDER BY ordinal_position",
            )
            .unwrap();
        let types: Vec<String> = answer.texts().map(|row| row.join(" ")).collect();
        for expected in [
            "benchmark_runs timestamp TIMESTAMP",
            "benchmark_results latency_p99_ms DOUBLE",
            "hardware_info logical_processors BIGINT",
            "raw_benchmark_data nanoseconds BIGINT",
            "metrics value DOUBLE",
        ] {
            assert!(types.iter().any(|column| column == expected), "no {expected} in {types:?}");
        }
        assert_eq!(database.query("SELECT count(*) FROM raw_benchmark_data").unwrap().rows, [[json!(0)]]);
    }

    #[test]
    fn wrong_sql_is_an_error_with_its_place() {
        let database = Database::over(&[], &[]).unwrap();
        assert!(database.query("SELECT nothing FROM benchmark_runs").unwrap_err().to_string().contains("nothing"));
        assert!(database.query("SELEC 1").unwrap_err().to_string().contains("SELEC"));
        assert!(database.query(" ; ").is_err());
    }
}
