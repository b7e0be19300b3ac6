//! DuckDB over the store: the four tables as views of the Parquet files, or as real tables of a database file.

use std::fs::{self, File};
use std::path::Path;

use duckdb::types::{TimeUnit, Value as Cell};
use duckdb::{AccessMode, Config, Connection};
use jiff::{SignedDuration, Timestamp, ToSpan, civil};
use serde_json::{Map, Number, Value};

use super::folder::Store;
use super::layout::RunPlace;
use super::parquet;
use super::tables::Table;

/// An open database. A store stays locked against changes as long.
pub struct Database {
    connection: Connection,
    store: Option<Store>,
}

/// What a query came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
}

impl Database {
    /// The tables of a store, as views of its files.
    ///
    /// # Errors
    /// A file of the store is cut short; the message names it.
    pub fn over(store: Store) -> Result<Self, String> {
        let database = Database {
            connection: config(AccessMode::Automatic)
                .and_then(Connection::open_in_memory_with_flags)
                .map_err(|error| plain(&error))?,
            store: Some(store),
        };
        if let Some(store) = &database.store {
            let places = store.places()?;
            for table in Table::ALL {
                let sql = format!("CREATE VIEW {} AS {}", table.name(), select(store, table, &places));
                database.connection.execute_batch(&sql).map_err(|error| database.explain(&error))?;
            }
        }
        Ok(database)
    }

    /// A database file, to read it.
    ///
    /// # Errors
    /// It is missing, of a newer DuckDB, or no database.
    pub fn open(path: &Path) -> Result<Self, String> {
        let named = |error: String| format!("{}: {error}", path.display());
        File::open(path).map_err(|error| named(error.to_string()))?;
        let config = config(AccessMode::ReadOnly).map_err(|error| named(plain(&error)))?;
        let connection = Connection::open_with_flags(path, config).map_err(|error| named(plain(&error)))?;
        Ok(Database { connection, store: None })
    }

    /// Runs SQL; the answer is that of the last statement.
    ///
    /// # Errors
    /// DuckDB's own message, or which file of the store is cut short.
    pub fn query(&self, sql: &str) -> Result<Answer, String> {
        self.run(sql).map_err(|error| self.explain(&error))
    }

    fn run(&self, sql: &str) -> duckdb::Result<Answer> {
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

    /// DuckDB says what is wrong with a file, but not what mends it.
    fn explain(&self, error: &duckdb::Error) -> String {
        let broken = || -> Result<(), String> {
            let Some(store) = &self.store else { return Ok(()) };
            for table in Table::ALL {
                for file in store.files(table)? {
                    parquet::open(&file)?;
                }
            }
            Ok(())
        };
        match broken() {
            Err(broken) => {
                format!("{broken}; import its run again, or remove it with `inferbench store prune --run`")
            }
            Ok(()) => plain(error),
        }
    }
}

/// Writes these runs of a store as real tables of a database file, whole or not at all.
///
/// # Errors
/// The disk is full, or a file of the store is cut short.
pub fn write_database(store: Store, places: &[RunPlace], path: &Path) -> Result<(), String> {
    let named = |error: String| format!("{}: {error}", path.display());
    let partial = path.with_extension("partial");
    let clear_away = || {
        let _ = fs::remove_file(&partial);
        let _ = fs::remove_file(partial.with_extension("partial.wal"));
    };
    clear_away();
    let write = || -> Result<(), String> {
        let config = config(AccessMode::Automatic).map_err(|error| plain(&error))?;
        let connection = Connection::open_with_flags(&partial, config).map_err(|error| plain(&error))?;
        let database = Database { connection, store: Some(store) };
        if let Some(store) = &database.store {
            for table in Table::ALL {
                let sql = format!("CREATE TABLE {} AS {}", table.name(), select(store, table, places));
                database.connection.execute_batch(&sql).map_err(|error| database.explain(&error))?;
            }
        }
        database.connection.execute_batch("CHECKPOINT").map_err(|error| plain(&error))?;
        database.connection.close().map_err(|(_, error)| plain(&error))?;
        let close = File::open(&partial).and_then(|file| file.sync_all()).and_then(|()| fs::rename(&partial, path));
        close.map_err(|error| error.to_string())
    };
    write().map_err(|error| {
        clear_away();
        named(error)
    })
}

/// Nothing is fetched from anywhere.
fn config(access: AccessMode) -> duckdb::Result<Config> {
    Config::default().access_mode(access)?.enable_autoload_extension(false)
}

/// The rows of these runs in a table. Where there are none, the columns are there all the same.
fn select(store: &Store, table: Table, places: &[RunPlace]) -> String {
    let files = places.iter().map(|place| store.path(place, table)).filter(|path| path.is_file());
    let files: Vec<String> = files.map(|path| quoted(&literal_glob(&path.display().to_string()))).collect();
    if files.is_empty() {
        let columns = table.columns();
        let partitions = ["host", "month"].map(|name| format!("NULL::VARCHAR AS {name}"));
        let columns = columns.iter().map(|column| format!("NULL::{} AS \"{}\"", column.column_type.sql(), column.name));
        return format!("SELECT {} WHERE false", columns.chain(partitions).collect::<Vec<_>>().join(", "));
    }
    format!(
        "SELECT * FROM read_parquet([{}], union_by_name = true, hive_partitioning = true, \
         hive_types = {{'host': VARCHAR, 'month': VARCHAR}})",
        files.join(", ")
    )
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

fn plain(error: &duckdb::Error) -> String {
    match error {
        duckdb::Error::DuckDBFailure(_, Some(message)) => message.clone(),
        duckdb::Error::DuckDBFailure(_, None) => "no statement, or one that DuckDB says nothing about".into(),
        other => other.to_string(),
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
        let folder = tempfile::tempdir().unwrap();
        let database = Database::over(Store::write(folder.path()).unwrap()).unwrap();
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
    fn an_empty_store_has_its_tables_with_their_types() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::over(Store::write(&folder.path().join("it's [a] store*")).unwrap()).unwrap();
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
            "raw_benchmark_data host VARCHAR",
        ] {
            assert!(types.iter().any(|column| column == expected), "no {expected} in {types:?}");
        }
        assert_eq!(database.query("SELECT count(*) FROM raw_benchmark_data").unwrap().rows, [[json!(0)]]);
    }

    #[test]
    fn wrong_sql_is_an_error_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::over(Store::write(folder.path()).unwrap()).unwrap();
        assert!(database.query("SELECT nothing FROM benchmark_runs").unwrap_err().contains("nothing"));
        assert!(database.query("SELEC 1").unwrap_err().contains("SELEC"));
        assert!(database.query(" ; ").unwrap_err().contains("no statement"));
    }
}
