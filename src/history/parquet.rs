//! Tables as Parquet: every column optional, one row group, no compression.
//!
//! Rows go through [`toml::Table`], serde's own form of a flat struct that keeps integers apart from floats, knows
//! infinity, and leaves absent values out.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use jiff::Timestamp;
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use toml::{Table, Value};

use super::columns::{Column, ColumnType};

/// The values of one column, one per row. An absent value is `None`.
pub type Cells = Vec<Option<Value>>;

/// Writes a file with these columns, in one row group.
///
/// # Errors
/// The output cannot be written, or a value is not of its column's type.
pub fn write_rows(columns: &[Column], rows: &[Table], output: impl Write + Send) -> Result<()> {
    // Statistics would be larger than the rows of a run, and so short columns take longer to decompress than to read.
    let properties =
        WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None).set_offset_index_disabled(true);
    let mut file = SerializedFileWriter::new(output, schema(columns)?, Arc::new(properties.build()))?;
    let mut group = file.next_row_group()?;
    for column in columns {
        let mut writer = group.next_column()?.context("a column is missing")?;
        write_column(column, rows, &mut writer).with_context(|| format!("column {}", column.name))?;
        writer.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(())
}

/// Reads the rows of a file, with these of its columns. Absent values are left out.
///
/// # Errors
/// The file is missing, cut short, or no Parquet file; the message names it.
pub fn read_rows(path: &Path, columns: &[Column]) -> Result<Vec<Table>> {
    let (count, cells) = read_columns(path, columns)?;
    let mut rows = vec![Table::new(); count];
    for (column, cells) in columns.iter().zip(cells) {
        for (row, cell) in rows.iter_mut().zip(cells) {
            row.extend(cell.map(|value| (column.name.clone(), value)));
        }
    }
    Ok(rows)
}

/// Reads how many rows a file has, and these of its columns. A column that the file lacks has only absent values.
///
/// # Errors
/// The file is missing, cut short, or no Parquet file; the message names it.
pub fn read_columns(path: &Path, columns: &[Column]) -> Result<(usize, Vec<Cells>)> {
    // One read of a small file instead of two for each column.
    let reader = reader_of(Bytes::from(fs_err::read(path)?), path)?;
    let descriptors = reader.metadata().file_metadata().schema_descr().columns();
    let mut found = vec![Vec::new(); columns.len()];
    let mut count = 0;
    for index in 0..reader.num_row_groups() {
        let group = reader.get_row_group(index).with_context(|| path.display().to_string())?;
        let rows = usize::try_from(group.metadata().num_rows())?;
        count += rows;
        for (column, cells) in columns.iter().zip(&mut found) {
            match descriptors.iter().position(|known| known.name() == column.name) {
                Some(place) => {
                    let read = group.get_column_reader(place).map_err(anyhow::Error::from);
                    let read = read.and_then(|reader| read_cells(reader, rows, column.column_type));
                    cells.extend(read.with_context(|| format!("{}: column {}", path.display(), column.name))?);
                }
                None => cells.resize(count, None),
            }
        }
    }
    Ok((count, found))
}

/// Opens a file and reads its footer, which is at the end: a file that is cut short has none.
///
/// # Errors
/// The file is missing, cut short, or no Parquet file; the message names it.
pub fn open(path: &Path) -> Result<SerializedFileReader<File>> {
    reader_of(fs_err::File::open(path)?.into_parts().0, path)
}

fn reader_of<R: ChunkReader + 'static>(input: R, path: &Path) -> Result<SerializedFileReader<R>> {
    SerializedFileReader::new(input)
        .map_err(|error| anyhow::anyhow!("{}: cut short, or no Parquet file ({})", path.display(), plain(&error)))
}

/// The schema of these columns.
pub(super) fn schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let field = |column: &Column| {
        let (physical, logical) = match column.column_type {
            ColumnType::Boolean => (PhysicalType::BOOLEAN, None),
            ColumnType::BigInt => (PhysicalType::INT64, None),
            ColumnType::Double => (PhysicalType::DOUBLE, None),
            ColumnType::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
            // DuckDB's TIMESTAMP, and pandas' datetime64 without a zone; UTC by definition.
            ColumnType::Timestamp => (PhysicalType::INT64, Some(LogicalType::timestamp(false, TimeUnit::MICROS))),
        };
        let field = Type::primitive_type_builder(&column.name, physical)
            .with_logical_type(logical)
            .with_repetition(Repetition::OPTIONAL);
        field.build().map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
    Type::group_type_builder("schema").with_fields(fields).build().map(Arc::new)
}

/// The library's message without its own prefix.
fn plain(error: &ParquetError) -> String {
    let text = error.to_string();
    ["Parquet error: ", "External: ", "EOF: "]
        .iter()
        .fold(text.as_str(), |text, prefix| text.strip_prefix(prefix).unwrap_or(text))
        .to_owned()
}

fn write_column(column: &Column, rows: &[Table], writer: &mut SerializedColumnWriter<'_>) -> Result<()> {
    /// The values that are there, as the column's type.
    fn values<T>(cells: &[Option<&Value>], of: impl Fn(&Value) -> Option<T>) -> Result<Vec<T>> {
        let of = |value: &&Value| of(value).with_context(|| format!("{value} is of another type"));
        cells.iter().flatten().map(of).collect()
    }
    let cells: Vec<Option<&Value>> = rows.iter().map(|row| row.get(&column.name)).collect();
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let levels = Some(levels.as_slice());
    let microseconds = |value: &Value| value.as_str()?.parse().ok().map(Timestamp::as_microsecond);
    match (column.column_type, writer.untyped()) {
        (ColumnType::Boolean, ColumnWriter::BoolColumnWriter(writer)) => {
            writer.write_batch(&values(&cells, Value::as_bool)?, levels, None)?
        }
        (ColumnType::BigInt, ColumnWriter::Int64ColumnWriter(writer)) => {
            writer.write_batch(&values(&cells, Value::as_integer)?, levels, None)?
        }
        (ColumnType::Timestamp, ColumnWriter::Int64ColumnWriter(writer)) => {
            writer.write_batch(&values(&cells, microseconds)?, levels, None)?
        }
        (ColumnType::Double, ColumnWriter::DoubleColumnWriter(writer)) => {
            writer.write_batch(&values(&cells, Value::as_float)?, levels, None)?
        }
        (ColumnType::Text, ColumnWriter::ByteArrayColumnWriter(writer)) => {
            let bytes = |value: &Value| text(value).map(|text| ByteArray::from(text.as_str()));
            writer.write_batch(&values(&cells, bytes)?, levels, None)?
        }
        _ => bail!("it has another type in the schema"),
    };
    Ok(())
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => Some(items.iter().map(text).collect::<Option<Vec<_>>>()?.join(", ")),
        _ => None,
    }
}

fn read_cells(reader: ColumnReader, rows: usize, column_type: ColumnType) -> Result<Cells> {
    fn cells<T: DataType>(
        reader: ColumnReaderImpl<T>,
        rows: usize,
        of: impl Fn(T::T) -> Result<Value>,
    ) -> Result<Cells> {
        let (values, levels) = read_values(reader, rows)?;
        let mut values = values.into_iter();
        let next = |level| if level == 1 { values.next().map(&of).transpose() } else { Ok(None) };
        levels.into_iter().map(next).collect()
    }
    match (column_type, reader) {
        (ColumnType::Boolean, ColumnReader::BoolColumnReader(reader)) => {
            cells(reader, rows, |value| Ok(Value::Boolean(value)))
        }
        (ColumnType::BigInt, ColumnReader::Int64ColumnReader(reader)) => {
            cells(reader, rows, |value| Ok(Value::Integer(value)))
        }
        (ColumnType::Timestamp, ColumnReader::Int64ColumnReader(reader)) => {
            cells(reader, rows, |value| Ok(Value::String(Timestamp::from_microsecond(value)?.to_string())))
        }
        (ColumnType::Double, ColumnReader::DoubleColumnReader(reader)) => {
            cells(reader, rows, |value| Ok(Value::Float(value)))
        }
        (ColumnType::Text, ColumnReader::ByteArrayColumnReader(reader)) => {
            cells(reader, rows, |value| Ok(Value::String(value.as_utf8()?.to_owned())))
        }
        _ => bail!("it is of a type that inferbench does not write"),
    }
}

/// The values of a column that are there, and for each row 1 if there is one.
pub(super) fn read_values<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
) -> Result<(Vec<T::T>, Vec<i16>), ParquetError> {
    let (mut values, mut levels) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    while levels.len() < rows {
        let (read, ..) = reader.read_records(rows - levels.len(), Some(&mut levels), None, &mut values)?;
        if read == 0 {
            return Err(ParquetError::General(format!("{} of {rows} rows are there", levels.len())));
        }
    }
    Ok((values, levels))
}

/// A row as a table.
///
/// # Errors
/// An integer is above `i64::MAX`.
pub fn table_of(row: &impl serde::Serialize) -> Result<Table> {
    Ok(Table::try_from(row)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::columns::columns_of;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Row {
        name: String,
        at: Timestamp,
        count: Option<u64>,
        mean: Option<f64>,
        is_new: Option<bool>,
        ended: Option<Timestamp>,
    }

    fn rows() -> Vec<Row> {
        let at: Timestamp = "2026-01-02T03:04:05.123456Z".parse().unwrap();
        let full = Row {
            name: "a \"b\"\nλ".into(),
            at,
            count: Some(1 << 62),
            mean: Some(0.1 + 0.2),
            is_new: Some(true),
            ended: Some(at),
        };
        let empty = Row { name: String::new(), at, count: None, mean: None, is_new: None, ended: None };
        vec![full.clone(), empty, Row { mean: Some(f64::INFINITY), is_new: Some(false), ..full }]
    }

    fn written(rows: &[Row]) -> Vec<u8> {
        let tables: Vec<Table> = rows.iter().map(|row| table_of(row).unwrap()).collect();
        let mut bytes = Vec::new();
        write_rows(&columns_of::<Row>(), &tables, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn rows_come_back_as_they_were() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for rows in [rows(), Vec::new()] {
            std::fs::write(file.path(), written(&rows)).unwrap();
            let read: Vec<Row> = read_rows(file.path(), &columns_of::<Row>())
                .unwrap()
                .into_iter()
                .map(|table| table.try_into().unwrap())
                .collect();
            assert_eq!(read, rows);
        }
    }

    #[test]
    fn the_same_rows_are_the_same_bytes() {
        assert_eq!(written(&rows()), written(&rows()));
    }

    #[test]
    fn a_file_cut_anywhere_is_refused_by_its_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes = written(&rows());
        for length in (0..bytes.len()).step_by(7) {
            std::fs::write(file.path(), &bytes[..length]).unwrap();
            let error = read_rows(file.path(), &columns_of::<Row>()).unwrap_err().to_string();
            assert!(error.contains("cut short") && error.contains(file.path().to_str().unwrap()), "{error}");
        }
    }
}
