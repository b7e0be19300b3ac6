//! DuckDB over the history: the four tables as views of the runs' files, or as real tables of a database file.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use duckdb::types::{TimeUnit, Value as Cell};
use duckdb::{AccessMode, Config, Connection};
use fs_err as fs;
use jiff::{SignedDuration, Timestamp, ToSpan, civil};
use serde_json::{Map, Number, Value};
use tempfile::TempDir;

use super::facts::Table;
use super::parquet;
use super::run::Run;
use super::table_function::register;

/// An open database.
pub struct Database {
    connection: Connection,
    /// The runs that it is a view of; `None` for a database file.
    runs: Option<Vec<Run>>,
}

/// The result of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
}

impl Database {
    /// The four tables, as views of the files of these runs.
    ///
    /// # Errors
    /// DuckDB cannot be started.
    pub fn over(runs: &[Run]) -> Result<Self> {
        let open = || Connection::open_in_memory_with_flags(config(AccessMode::Automatic)?);
        let database = Database { connection: open().map_err(plain)?, runs: Some(runs.to_vec()) };
        for table in [Table::Runs, Table::Results, Table::Hardware] {
            let rows = register(&database.connection, table, runs).map_err(plain)?;
            database.execute(&format!("CREATE VIEW {} AS SELECT * FROM {rows}()", table.name()))?;
        }
        Ok(database)
    }

    /// A database file, to read it.
    ///
    /// # Errors
    /// It is missing, of a newer DuckDB, or no database.
    pub fn open(path: &Path) -> Result<Self> {
        fs::File::open(path)?;
        let open = || Connection::open_with_flags(path, config(AccessMode::ReadOnly)?);
        let connection = open().map_err(plain).with_context(|| path.display().to_string())?;
        Ok(Database { connection, runs: None })
    }

    /// Runs SQL, and returns the rows of the last statement.
    ///
    /// # Errors
    /// DuckDB's own message, or which file of a run is cut short.
    pub fn query(&self, sql: &str) -> Result<Answer> {
        // DuckDB opens the first of the files when it makes a view of them, and a broken one concerns no other table.
        let is_of_others =
            [Table::Runs, Table::Results, Table::Hardware].iter().any(|table| sql.contains(table.name()));
        if self.runs.is_some() && (sql.contains(Table::Calls.name()) || !is_of_others) {
            self.execute(&format!("CREATE VIEW IF NOT EXISTS {} AS {}", Table::Calls.name(), self.calls()))?;
        }
        self.rows(sql).map_err(|error| self.explain(error))
    }

    fn rows(&self, sql: &str) -> duckdb::Result<Answer> {
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        let columns = rows.as_ref().map(duckdb::Statement::column_names).unwrap_or_default();
        let mut answer = Answer { columns, rows: Vec::new() };
        while let Some(row) = rows.next()? {
            let cells = (0..answer.columns.len()).map(|index| row.get::<_, Cell>(index).map(value));
            answer.rows.push(cells.collect::<duckdb::Result<_>>()?);
        }
        Ok(answer)
    }

    fn execute(&self, sql: &str) -> Result<()> {
        self.connection.execute_batch(sql).map_err(|error| self.explain(error))
    }

    /// A query for all calls. If there are none, the columns are there all the same.
    fn calls(&self) -> String {
        let files =
            self.runs.iter().flatten().map(|run| run.folder().join(Table::Calls.file())).filter(|path| path.is_file());
        let files: Vec<String> = files.map(|path| quoted(&literal_glob(&path.display().to_string()))).collect();
        if !files.is_empty() {
            return format!("SELECT * FROM read_parquet([{}])", files.join(", "));
        }
        let columns = Table::Calls.columns();
        let columns = columns.iter().map(|column| format!("NULL::{} AS \"{}\"", column.column_type.sql(), column.name));
        format!("SELECT {} WHERE false", columns.collect::<Vec<_>>().join(", "))
    }

    /// DuckDB says what is wrong with a file, but not what mends it.
    fn explain(&self, error: duckdb::Error) -> anyhow::Error {
        let files =
            self.runs.iter().flatten().flat_map(|run| Table::ALL.map(|table| (run, run.folder().join(table.file()))));
        let broken =
            files.filter(|(_, path)| path.is_file()).find_map(|(run, path)| Some((run, parquet::open(&path).err()?)));
        match broken {
            Some((run, broken)) => broken.context(format!(
                "run {} cannot be read; convert or import it again with `--replace`, or remove it with \
                 `inferbench store prune --run {}`",
                run.name(),
                run.name()
            )),
            None => plain(error),
        }
    }
}

/// Writes these runs as real tables of a database file, whole or not at all.
///
/// # Errors
/// The disk is full, or a file of a run is cut short.
pub fn write_database(runs: &[Run], path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let hidden = tempfile::Builder::new().prefix(".partial-").tempdir_in(folder).context(path.display().to_string())?;
    let partial = hidden.path().join("history.duckdb");
    let database = Database::over(runs)?;
    let write = || -> Result<()> {
        database.execute(&format!("ATTACH {} AS export", quoted(&partial.display().to_string())))?;
        for table in Table::ALL {
            let rows = if table == Table::Calls { database.calls() } else { format!("FROM {}", table.name()) };
            database.execute(&format!("CREATE TABLE export.{} AS {rows}", table.name()))?;
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
/// It is no database, or has not the four tables.
pub fn runs_of_database(path: &Path) -> Result<Vec<Run>> {
    let database = Database::open(path)?;
    let extracted = Arc::new(TempDir::new()?);
    let named = || path.display().to_string();
    let answer = database.query("SELECT run_id, host_id FROM benchmark_runs").with_context(named)?;
    let mut runs = Vec::new();
    for (index, row) in answer.texts().enumerate() {
        let [run_id, host_id] = row.as_slice() else { bail!("{}: no run", path.display()) };
        let folder = extracted.path().join(index.to_string());
        fs::create_dir(&folder)?;
        for table in Table::ALL {
            let has_host =
                if table == Table::Calls { String::new() } else { format!(" AND host_id = {}", quoted(host_id)) };
            let rows = format!("FROM {} WHERE run_id = {}{has_host}", table.name(), quoted(run_id));
            let target = quoted(&folder.join(table.file()).display().to_string());
            database
                .execute(&format!("COPY ({rows}) TO {target} (FORMAT parquet, COMPRESSION zstd)"))
                .with_context(named)?;
        }
        runs.push(Run::extracted(run_id.clone(), folder, path, &extracted));
    }
    Ok(runs)
}

/// Nothing is fetched from anywhere.
fn config(access: AccessMode) -> duckdb::Result<Config> {
    Config::default().access_mode(access)?.enable_autoload_extension(false)
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A path that DuckDB's globbing takes as it is.
fn literal_glob(path: &str) -> String {
    path.chars().fold(String::new(), |mut glob, c| {
        match c {
            '*' | '?' | '[' => glob.extend(['[', c, ']']),
            _ => glob.push(c),
        }
        glob
    })
}

fn plain(error: duckdb::Error) -> anyhow::Error {
    match error {
        duckdb::Error::DuckDBFailure(_, Some(message)) => anyhow::Error::msg(message),
        duckdb::Error::DuckDBFailure(_, None) => {
            anyhow::Error::msg("no statement, or one that DuckDB says nothing about")
        }
        other => other.into(),
    }
}

/// A cell for people and scripts: what JSON has no form for is text.
fn value(cell: Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Boolean(value) => value.into(),
        Cell::TinyInt(value) => value.into(),
        Cell::SmallInt(value) => value.into(),
        Cell::Int(value) => value.into(),
        Cell::BigInt(value) => value.into(),
        Cell::HugeInt(value) => i64::try_from(value).map_or_else(|_| value.to_string().into(), Value::from),
        Cell::UHugeInt(value) => u64::try_from(value).map_or_else(|_| value.to_string().into(), Value::from),
        Cell::UTinyInt(value) => value.into(),
        Cell::USmallInt(value) => value.into(),
        Cell::UInt(value) => value.into(),
        Cell::UBigInt(value) => value.into(),
        Cell::Float(value) => double(value.into()),
        Cell::Double(value) => double(value),
        Cell::Decimal(value) => value.to_string().parse().map_or_else(|_| value.to_string().into(), double),
        Cell::Timestamp(unit, value) => timestamp(unit, value).into(),
        Cell::Date32(days) => date(days).into(),
        Cell::Time64(unit, value) => time(unit, value).into(),
        Cell::Interval { months, days, nanos } => {
            format!("{months} months {days} days {} s", nanos as f64 / 1e9).into()
        }
        Cell::Text(text) | Cell::Enum(text) => text.into(),
        Cell::Blob(bytes) | Cell::Geometry(bytes) => {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
        }
        Cell::List(cells) | Cell::Array(cells) => cells.into_iter().map(value).collect(),
        Cell::Struct(fields) => {
            let fields = fields.iter().map(|(name, cell)| (name.clone(), value(cell.clone())));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Cell::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, cell)| (text(&value(key.clone())), value(cell.clone())));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        Cell::Union(cell) => value(*cell),
        other => format!("{other:?}").into(),
    }
}

impl Answer {
    /// The rows as texts, for tables and CSV: an absent value is empty.
    pub fn texts(&self) -> impl Iterator<Item = Vec<String>> {
        self.rows.iter().map(|row| row.iter().map(text).collect())
    }

    /// The rows as objects.
    pub fn objects(&self) -> Value {
        let object = |row: &Vec<Value>| self.columns.iter().cloned().zip(row.iter().cloned()).collect::<Map<_, _>>();
        self.rows.iter().map(|row| Value::Object(object(row))).collect()
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn double(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
}

fn timestamp(unit: TimeUnit, value: i64) -> String {
    let of_nanoseconds = Timestamp::from_nanosecond(value.into());
    let time = if matches!(unit, TimeUnit::Nanosecond) {
        of_nanoseconds
    } else {
        Timestamp::from_microsecond(unit.to_micros(value))
    };
    time.map_or_else(|_| value.to_string(), |time| time.to_string())
}

fn date(days: i32) -> String {
    let date = civil::date(1970, 1, 1).checked_add(days.days());
    date.map_or_else(|_| days.to_string(), |date| date.to_string())
}

fn time(unit: TimeUnit, value: i64) -> String {
    let time = civil::Time::midnight().checked_add(SignedDuration::from_micros(unit.to_micros(value)));
    time.map_or_else(|_| value.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_of_every_kind_have_a_form() {
        let database = Database::over(&[]).unwrap();
        let sql = "SELECT NULL AS a, 1::TINYINT AS b, 170141183460469231731687303715884105727::HUGEINT AS c, 0.5 AS d, \
            'nan'::DOUBLE AS e, DATE '2026-03-01' AS f, TIMESTAMP '2026-03-01 12:00:00.25' AS g, TIME '01:02:03' AS h, \
            [1, NULL] AS i, {'x': true} AS j, MAP {'k': 2} AS k, 'a''b' AS l, sum(2) AS m, \
            TIMESTAMPTZ '2026-03-01 12:00:00+00' AS n";
        let answer = database.query(sql).unwrap();
        assert_eq!(
            answer.rows,
            [vec![
                Value::Null,
                json!(1),
                json!("170141183460469231731687303715884105727"),
                json!(0.5),
                json!("NaN"),
                json!("2026-03-01"),
                json!("2026-03-01T12:00:00.25Z"),
                json!("01:02:03"),
                json!([1, null]),
                json!({"x": true}),
                json!({"k": 2}),
                json!("a'b"),
                json!(2),
                json!("2026-03-01T12:00:00Z"),
            ]]
        );
        assert_eq!(answer.columns.join(""), "abcdefghijklmn");
    }

    #[test]
    fn an_empty_history_has_its_tables_with_their_types() {
        let database = Database::over(&[]).unwrap();
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
        ] {
            assert!(types.iter().any(|column| column == expected), "no {expected} in {types:?}");
        }
        assert_eq!(database.query("SELECT count(*) FROM raw_benchmark_data").unwrap().rows, [[json!(0)]]);
    }

    #[test]
    fn wrong_sql_is_an_error_with_its_place() {
        let database = Database::over(&[]).unwrap();
        assert!(database.query("SELECT nothing FROM benchmark_runs").unwrap_err().to_string().contains("nothing"));
        assert!(database.query("SELEC 1").unwrap_err().to_string().contains("SELEC"));
        assert!(database.query(" ; ").unwrap_err().to_string().contains("no statement"));
    }
}
