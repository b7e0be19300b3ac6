//! Tables as Parquet: zstd, every column optional, one file whole.
//!
//! Rows go through [`toml::Table`], serde's own form of a flat struct that keeps integers apart from floats, knows
//! infinity, and leaves absent values out.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as PhysicalType, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, ByteArrayType, DataType};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::record::Field;
use parquet::schema::types::{Type, TypePtr};
use toml::{Table, Value};

use super::columns::{Column, ColumnType};

/// Writes a file with these columns, in one row group.
///
/// # Errors
/// The output cannot be written, or a value is not of its column's type.
pub fn write_rows(columns: &[Column], rows: &[Table], output: impl Write + Send) -> Result<(), String> {
    let write = || -> Result<(), ParquetError> {
        let mut file = SerializedFileWriter::new(output, schema(columns)?, Arc::new(properties().build()))?;
        let mut group = file.next_row_group()?;
        for column in columns {
            let mut writer = group.next_column()?.ok_or_else(|| general("a column is missing"))?;
            write_column(*column, rows, &mut writer)?;
            writer.close()?;
        }
        group.close()?;
        file.close()?;
        Ok(())
    };
    write().map_err(|error| plain(&error))
}

/// Reads the rows of a file. Absent values are left out.
///
/// # Errors
/// The file is missing, cut short, or no Parquet; the message names it.
pub fn read_rows(path: &Path) -> Result<Vec<Table>, String> {
    let reader = open(path)?;
    let named = |error: &ParquetError| format!("{}: {}", path.display(), plain(error));
    let is_timestamp = timestamps(&reader);
    let rows = reader.get_row_iter(None).map_err(|error| named(&error))?;
    let mut tables = Vec::new();
    for row in rows {
        let row = row.map_err(|error| named(&error))?;
        let cells = row.into_columns().into_iter().zip(&is_timestamp);
        let cell = |((name, field), &is_timestamp)| match value(field, is_timestamp) {
            Ok(value) => value.map(|value| Ok((name, value))),
            Err(what) => Some(Err(format!("{}: column {name}: {what}", path.display()))),
        };
        tables.push(cells.filter_map(cell).collect::<Result<Table, String>>()?);
    }
    Ok(tables)
}

/// Opens a file and reads its footer, which is at the end: a file that is cut short has none.
///
/// # Errors
/// The file is missing, cut short, or no Parquet; the message names it.
pub fn open(path: &Path) -> Result<SerializedFileReader<File>, String> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    SerializedFileReader::new(file)
        .map_err(|error| format!("{}: cut short, or no Parquet file ({})", path.display(), plain(&error)))
}

/// How files are written: zstd at its lowest level, which is smaller than any other codec here and as fast to read.
pub(super) fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()))
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
        let field = Type::primitive_type_builder(column.name, physical)
            .with_logical_type(logical)
            .with_repetition(Repetition::OPTIONAL);
        field.build().map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
    Type::group_type_builder("schema").with_fields(fields).build().map(Arc::new)
}

/// The library's message without its own prefix.
pub(super) fn plain(error: &ParquetError) -> String {
    let text = error.to_string();
    ["Parquet error: ", "External: ", "EOF: "]
        .iter()
        .fold(text.as_str(), |text, prefix| text.strip_prefix(prefix).unwrap_or(text))
        .to_owned()
}

fn general(what: impl Into<String>) -> ParquetError {
    ParquetError::General(what.into())
}

fn write_column(column: Column, rows: &[Table], writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
    let mismatch =
        |value: &Value| general(format!("column {}: {value} is no {}", column.name, column.column_type.sql()));
    let cells: Vec<Option<&Value>> = rows.iter().map(|row| row.get(column.name)).collect();
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let present = cells.into_iter().flatten();
    match (column.column_type, writer.untyped()) {
        (ColumnType::Boolean, ColumnWriter::BoolColumnWriter(writer)) => {
            let values = present.map(|value| value.as_bool().ok_or_else(|| mismatch(value)));
            writer.write_batch(&values.collect::<Result<Vec<_>, _>>()?, Some(&levels), None)
        }
        (ColumnType::BigInt, ColumnWriter::Int64ColumnWriter(writer)) => {
            let values = present.map(|value| value.as_integer().ok_or_else(|| mismatch(value)));
            writer.write_batch(&values.collect::<Result<Vec<_>, _>>()?, Some(&levels), None)
        }
        (ColumnType::Timestamp, ColumnWriter::Int64ColumnWriter(writer)) => {
            let microseconds = |value: &Value| value.as_str()?.parse().ok().map(Timestamp::as_microsecond);
            let values = present.map(|value| microseconds(value).ok_or_else(|| mismatch(value)));
            writer.write_batch(&values.collect::<Result<Vec<_>, _>>()?, Some(&levels), None)
        }
        (ColumnType::Double, ColumnWriter::DoubleColumnWriter(writer)) => {
            let values = present.map(|value| value.as_float().ok_or_else(|| mismatch(value)));
            writer.write_batch(&values.collect::<Result<Vec<_>, _>>()?, Some(&levels), None)
        }
        (ColumnType::Text, ColumnWriter::ByteArrayColumnWriter(writer)) => {
            let values = present.map(|value| text(value).map(|text| ByteArray::from(text.as_str())));
            let values = values.collect::<Option<Vec<<ByteArrayType as DataType>::T>>>();
            writer.write_batch(
                &values.ok_or_else(|| general(format!("column {}: no text", column.name)))?,
                Some(&levels),
                None,
            )
        }
        _ => Err(general(format!("column {} has another type in the schema", column.name))),
    }
    .map(|_| ())
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => Some(items.iter().map(text).collect::<Option<Vec<_>>>()?.join(", ")),
        _ => None,
    }
}

/// Which columns hold microseconds since 1970. The reader itself only knows those with a time zone.
fn timestamps(reader: &SerializedFileReader<File>) -> Vec<bool> {
    let columns = reader.metadata().file_metadata().schema_descr().columns().iter();
    let of_microseconds = LogicalType::timestamp(false, TimeUnit::MICROS);
    columns.map(|column| column.logical_type_ref() == Some(&of_microseconds)).collect()
}

fn value(field: Field, is_timestamp: bool) -> Result<Option<Value>, String> {
    Ok(Some(match field {
        Field::Null => return Ok(None),
        Field::Bool(value) => Value::Boolean(value),
        Field::Int(value) => Value::Integer(value.into()),
        Field::Long(value) | Field::TimestampMicros(value) if is_timestamp => {
            Value::String(Timestamp::from_microsecond(value).map_err(|error| error.to_string())?.to_string())
        }
        Field::Long(value) => Value::Integer(value),
        Field::Float(value) => Value::Float(value.into()),
        Field::Double(value) => Value::Float(value),
        Field::Str(value) => Value::String(value),
        other => return Err(format!("{other} is of a type that inferbench does not write")),
    }))
}

/// A row as a table.
///
/// # Errors
/// An integer is above `i64::MAX`.
pub fn table_of(row: &impl serde::Serialize) -> Result<Table, String> {
    Table::try_from(row).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::columns::columns_of;
    use serde::{Deserialize, Serialize};

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
            let read: Vec<Row> =
                read_rows(file.path()).unwrap().into_iter().map(|table| table.try_into().unwrap()).collect();
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
            let error = read_rows(file.path()).unwrap_err();
            assert!(error.contains("cut short") && error.contains(file.path().to_str().unwrap()), "{error}");
        }
    }
}
