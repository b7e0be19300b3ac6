//! Tables as Parquet, for pandas, Polars and DuckDB: every column optional, no compression.
//!
//! Rows are [`toml::Table`]: serde's form of a flat struct that keeps integers apart from floats, knows infinity, and
//! leaves absent values out.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use toml::{Table, Value};

use super::columns::{Column, ColumnType};

/// Writes a file with these columns, in one row group.
///
/// # Errors
/// The output cannot be written, or a value is not of its column's type.
pub fn write_rows(columns: &[Column], rows: &[Table], output: impl Write + Send) -> Result<()> {
    // Statistics would be larger than the rows of a run, and to decompress such short columns would take longer than to read them.
    let properties =
        WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None).set_offset_index_disabled(true);
    let mut file = SerializedFileWriter::new(output, schema(columns)?, Arc::new(properties.build()))?;
    let mut group = file.next_row_group()?;
    let microseconds = |value: &Value| value.as_str()?.parse().ok().map(Timestamp::as_microsecond);
    let places: HashMap<&str, usize> = columns.iter().enumerate().map(|(at, it)| (it.name.as_str(), at)).collect();
    let mut cells = vec![vec![None; rows.len()]; columns.len()];
    for (number, row) in rows.iter().enumerate() {
        for (name, value) in row {
            if let Some(place) = places.get(name.as_str()) {
                cells[*place][number] = Some(value);
            }
        }
    }
    for (column, cells) in columns.iter().zip(cells) {
        let written = match column.column_type {
            ColumnType::Boolean => write_cells::<BoolType, _>(&mut group, &cells, Value::as_bool),
            ColumnType::BigInt => write_cells::<Int64Type, _>(&mut group, &cells, Value::as_integer),
            ColumnType::Double => write_cells::<DoubleType, _>(&mut group, &cells, Value::as_float),
            ColumnType::Text => {
                write_cells::<ByteArrayType, _>(&mut group, &cells, |it| Some(text(it)?.as_str().into()))
            }
            ColumnType::Timestamp => write_cells::<Int64Type, _>(&mut group, &cells, microseconds),
        };
        written.with_context(|| format!("column {}", column.name))?;
    }
    group.close()?;
    file.close()?;
    Ok(())
}

fn write_cells<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    cells: &[Option<&Value>],
    of: impl Fn(&Value) -> Option<T::T>,
) -> Result<()> {
    let value = |cell: &&Value| of(cell).with_context(|| format!("{cell} is of another type"));
    let values = cells.iter().flatten().map(value).collect::<Result<Vec<_>>>()?;
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    write_column::<T, W>(group, &values, &levels)
}

/// Writes the next column of a row group: the values that exist, and for each row 1 if it has a value, or else 0.
///
/// # Errors
/// The output cannot be written, or the schema has fewer columns.
pub fn write_column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    levels: &[i16],
) -> Result<()> {
    let mut column = group.next_column()?.context("the schema has fewer columns")?;
    column.typed::<T>().write_batch(values, Some(levels), None)?;
    Ok(column.close()?)
}

/// Opens a file and reads its footer. The footer is at the end, so a truncated file has none.
///
/// # Errors
/// The file is missing, cut short, or not a Parquet file; the message names it.
pub fn open(path: &Path) -> Result<SerializedFileReader<File>> {
    SerializedFileReader::new(fs_err::File::open(path)?.into_parts().0)
        .with_context(|| format!("{}: cut short, or not a Parquet file", path.display()))
}

/// The distinct values of a column, converted by `read` and sorted; empty if there is no such column.
///
/// # Errors
/// Those of [`open`], and the column is cut short or of another type.
pub fn distinct<T: DataType, V: Ord>(
    path: &Path,
    column: &str,
    read: impl Fn(&T::T) -> Result<V, ParquetError>,
) -> Result<BTreeSet<V>> {
    let file = open(path)?;
    let schema = file.metadata().file_metadata().schema_descr();
    let mut found = BTreeSet::new();
    let Some(place) = schema.columns().iter().position(|own| own.path().string() == column) else { return Ok(found) };
    let wrong = || format!("{}: the column {column} is not as inferbench writes it", path.display());
    ensure!(has_column(schema, place, T::get_physical_type()), wrong());
    for number in 0..file.num_row_groups() {
        let group = file.get_row_group(number)?;
        let rows = usize::try_from(group.metadata().num_rows())?;
        for value in read_column::<T>(&*group, place, rows).with_context(wrong)?.0 {
            found.insert(read(&value).with_context(wrong)?);
        }
    }
    Ok(found)
}

/// The distinct texts of a column; see [`distinct`].
pub fn texts_of(path: &Path, column: &str) -> Result<BTreeSet<String>> {
    distinct::<ByteArrayType, _>(path, column, |text| Ok(text.as_utf8()?.to_owned()))
}

/// Larger row groups are refused: a few bytes can stand for any number of equal rows.
const MOST_ROWS: usize = 1 << 24;

/// Whether a column exists, is of this type and has at most one value per row, as [`write_column`] writes them.
pub fn has_column(schema: &SchemaDescriptor, place: usize, physical: PhysicalType) -> bool {
    schema.columns().get(place).is_some_and(|column| {
        column.physical_type() == physical && column.max_rep_level() == 0 && column.max_def_level() == 1
    })
}

/// The values of a column of a row group, and for each row 1 if it has a value, or else 0. [`has_column`] must hold.
///
/// # Errors
/// The column is cut short or has fewer rows, or the row group is too large.
pub fn read_column<T: DataType>(
    group: &dyn RowGroupReader,
    place: usize,
    rows: usize,
) -> Result<(Vec<T::T>, Vec<i16>)> {
    ensure!(rows <= MOST_ROWS, "it has {rows} rows in one group, and at most {MOST_ROWS} are read");
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let mut reader = get_typed_column_reader::<T>(group.get_column_reader(place)?);
    while levels.len() < rows {
        let (read, ..) = reader.read_records(rows - levels.len(), Some(&mut levels), None, &mut values)?;
        ensure!(read > 0, "a column has fewer rows than the file says");
    }
    Ok((values, levels))
}

/// The schema of these columns.
///
/// # Errors
/// A column has no name.
pub fn schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
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

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => Some(items.iter().map(text).collect::<Option<Vec<_>>>()?.join(", ")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::columns::columns_of;
    use parquet::file::reader::FileReader;
    use schemars::JsonSchema;
    use serde::Serialize;

    #[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
    struct Row {
        name: String,
        at: Timestamp,
        count: Option<u64>,
        mean: Option<f64>,
        is_new: Option<bool>,
        tags: Option<Vec<String>>,
    }

    fn rows() -> Vec<Row> {
        let at: Timestamp = "2026-01-02T03:04:05.123456Z".parse().unwrap();
        let full = Row {
            name: "a \"b\"\nλ".into(),
            at,
            count: Some(1 << 62),
            mean: Some(0.1 + 0.2),
            is_new: Some(true),
            tags: Some(vec!["a".into(), "b".into()]),
        };
        let empty = Row { at, ..Row::default() };
        vec![full.clone(), empty, Row { mean: Some(f64::INFINITY), is_new: Some(false), ..full }]
    }

    fn written(rows: &[Row]) -> Vec<u8> {
        let tables: Vec<Table> = rows.iter().map(|row| Table::try_from(row).unwrap()).collect();
        let mut bytes = Vec::new();
        write_rows(&columns_of::<Row>(), &tables, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn rows_are_in_the_file_with_their_types() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), written(&rows())).unwrap();
        let reader = open(file.path()).unwrap();
        let lines: Vec<String> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        let at = "at: 2026-01-02 03:04:05.123456 +00:00";
        let full = format!(
            "{{name: \"a \"b\"\nλ\", {at}, count: 4611686018427387904, mean: 0.30000000000000004, is_new: true, tags: \"a, b\"}}"
        );
        let empty = format!("{{name: \"\", {at}, count: null, mean: null, is_new: null, tags: null}}");
        assert_eq!(lines[..2], [full, empty]);
        assert!(lines[2].contains("mean: inf, is_new: false"), "{}", lines[2]);
        std::fs::write(file.path(), written(&[])).unwrap();
        assert_eq!(open(file.path()).unwrap().get_row_iter(None).unwrap().count(), 0);
    }

    #[test]
    fn texts_are_those_of_a_column_and_no_other_type_is_taken_for_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), written(&rows())).unwrap();
        assert_eq!(texts_of(file.path(), "name").unwrap(), BTreeSet::from(["".to_owned(), "a \"b\"\nλ".to_owned()]));
        assert!(texts_of(file.path(), "other").unwrap().is_empty());
        assert!(texts_of(file.path(), "count").unwrap_err().to_string().contains("the column count is not as"));
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
            let error = open(file.path()).err().unwrap().to_string();
            assert!(error.contains("cut short") && error.contains(file.path().to_str().unwrap()), "{error}");
        }
    }
}
