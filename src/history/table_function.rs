//! The tables of the history as table functions of DuckDB.
//!
//! DuckDB's own reader takes most of a millisecond per Parquet file of a hundred columns, whatever is asked of it: seven
//! seconds of processor time for ten thousand runs. These functions read the columns that a query names and nothing else,
//! and folders of older versions from their CSV files.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use duckdb::Connection;
use duckdb::core::{DataChunkHandle, Inserter, LogicalTypeHandle, LogicalTypeId};
use duckdb::vtab::{BindInfo, InitInfo, TableFunctionInfo, VTab};
use jiff::Timestamp;
use toml::Value;

use super::columns::{Column, ColumnType};
use super::facts::Table;
use super::parquet::Cells;
use super::run::Run;

/// Rows that DuckDB takes at once.
const CHUNK: usize = 2048;

/// What a function is a table of.
#[derive(Clone)]
struct Source {
    table: Table,
    runs: Arc<[Run]>,
}

/// Makes the rows of a table of these runs a function, and returns its name.
///
/// # Errors
/// DuckDB refuses it.
pub fn register(connection: &Connection, table: Table, runs: &[Run]) -> duckdb::Result<String> {
    let name = format!("rows_of_{}", table.name());
    connection.register_table_function_with_extra_info::<Rows, _>(&name, &Source { table, runs: runs.into() })?;
    Ok(name)
}

/// The state of one scan, which several threads share.
struct Scan {
    source: Source,
    /// The columns that are asked for; `None` where DuckDB only counts.
    columns: Vec<Option<Column>>,
    next: AtomicUsize,
    /// The rest of runs with more rows than a chunk has, and from which row.
    rest: Mutex<Vec<(usize, Vec<Cells>, usize)>>,
}

impl Scan {
    /// The next rows: how many the run has, their columns, and the first that was not handed on yet.
    fn next(&self) -> anyhow::Result<Option<(usize, Vec<Cells>, usize)>> {
        if let Some(rest) = self.rest.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(Some(rest));
        }
        let Some(run) = self.source.runs.get(self.next.fetch_add(1, Ordering::Relaxed)) else { return Ok(None) };
        let columns: Vec<Column> = self.columns.iter().flatten().cloned().collect();
        let (count, cells) = run.columns(self.source.table, &columns)?;
        Ok(Some((count, cells, 0)))
    }
}

struct Rows;

impl VTab for Rows {
    type BindData = Source;
    type InitData = Scan;

    fn bind(bind: &BindInfo) -> Result<Source, Box<dyn Error>> {
        // SAFETY: `register` has put a `Source` there, which lives as long as the function.
        let source = unsafe { &*bind.get_extra_info::<Source>() };
        for column in source.table.columns() {
            bind.add_result_column(&column.name, LogicalTypeHandle::from(type_id(column.column_type)));
        }
        Ok(source.clone())
    }

    fn init(init: &InitInfo) -> Result<Scan, Box<dyn Error>> {
        // SAFETY: `bind` has returned a `Source`, which DuckDB keeps until the query ends.
        let source = unsafe { &*init.get_bind_data::<Source>() }.clone();
        let all = source.table.columns();
        let asked = init.get_column_indices().into_iter();
        let columns = asked.map(|index| all.get(usize::try_from(index).ok()?).cloned()).collect();
        init.set_max_threads(std::thread::available_parallelism().map_or(1, |count| count.get() as u64));
        Ok(Scan { source, columns, next: AtomicUsize::new(0), rest: Mutex::new(Vec::new()) })
    }

    fn func(function: &TableFunctionInfo<Self>, output: &mut DataChunkHandle) -> Result<(), Box<dyn Error>> {
        let scan = function.get_init_data();
        while let Some((count, cells, first)) = scan.next().map_err(|error| format!("{error:#}"))? {
            let end = count.min(first + CHUNK);
            if first == end {
                continue;
            }
            let places = scan.columns.iter().enumerate().filter_map(|(place, column)| Some((place, column.as_ref()?)));
            for ((place, column), cells) in places.zip(&cells) {
                put_column(output, place, column, &cells[first..end])?;
            }
            output.set_len(end - first);
            if end < count {
                scan.rest.lock().unwrap_or_else(PoisonError::into_inner).push((count, cells, end));
            }
            return Ok(());
        }
        output.set_len(0);
        Ok(())
    }

    fn supports_pushdown() -> bool {
        true
    }
}

fn put_column(
    output: &DataChunkHandle,
    place: usize,
    column: &Column,
    cells: &[Option<Value>],
) -> Result<(), Box<dyn Error>> {
    let mut vector = output.flat_vector(place);
    for (row, cell) in cells.iter().enumerate() {
        // SAFETY: the type of the slice is that of the column, by `type_id`, and a chunk has room for all rows.
        match (column.column_type, cell) {
            (_, None) => vector.set_null(row),
            (ColumnType::Boolean, Some(Value::Boolean(value))) => unsafe { vector.as_mut_slice()[row] = *value },
            (ColumnType::BigInt, Some(Value::Integer(value))) => unsafe { vector.as_mut_slice()[row] = *value },
            (ColumnType::Double, Some(Value::Float(value))) => unsafe { vector.as_mut_slice()[row] = *value },
            (ColumnType::Text, Some(Value::String(value))) => vector.insert(row, value.as_str()),
            (ColumnType::Text, Some(Value::Array(items))) => {
                let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                vector.insert(row, texts.join(", ").as_str());
            }
            (ColumnType::Timestamp, Some(Value::String(value))) => {
                let microseconds = value.parse::<Timestamp>()?.as_microsecond();
                unsafe { vector.as_mut_slice()[row] = microseconds }
            }
            (_, Some(value)) => return Err(format!("column {}: {value} is of another type", column.name).into()),
        }
    }
    Ok(())
}

fn type_id(column_type: ColumnType) -> LogicalTypeId {
    match column_type {
        ColumnType::Boolean => LogicalTypeId::Boolean,
        ColumnType::BigInt => LogicalTypeId::Bigint,
        ColumnType::Double => LogicalTypeId::Double,
        ColumnType::Text => LogicalTypeId::Varchar,
        ColumnType::Timestamp => LogicalTypeId::Timestamp,
    }
}
