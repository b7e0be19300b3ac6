//! Every call of a run: `latencies.parquet`, the table `raw_benchmark_data`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};

use super::columns::{Column, ColumnType};
use super::parquet::{Cells, Values, open, schema, write_group};

/// The file of the calls in a run's folder.
pub const LATENCIES: &str = "latencies.parquet";

/// The single calls of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Nanoseconds of each call, one list per sample.
    pub samples_ns: Vec<Vec<u64>>,
    /// Whether each sample was disturbed; empty where that is unknown.
    pub disturbed: Vec<bool>,
}

/// The columns: which run, which case (`digits/ort-cpu-f32/1`), sample and call in it from 0, the time of the call, and
/// whether the sample was disturbed, where that is known.
pub fn columns() -> Vec<Column> {
    use ColumnType::{BigInt, Boolean, Text};
    let columns = [
        ("run_id", Text),
        ("case", Text),
        ("sample", BigInt),
        ("call", BigInt),
        ("nanoseconds", BigInt),
        ("disturbed", Boolean),
    ];
    columns.map(|(name, column_type)| Column::new(name, column_type)).into()
}

/// A reader's thread takes one row group at a time, and the writer keeps one in memory.
const ROW_GROUP: usize = 1 << 18;

/// Writes calls, one case after the other.
pub struct CallsWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    run_id: ByteArray,
    group: Group,
}

/// Calls that are not written yet, by column.
#[derive(Default)]
struct Group {
    cases: Vec<ByteArray>,
    samples: Vec<i64>,
    calls: Vec<i64>,
    nanoseconds: Vec<i64>,
    disturbed: Vec<bool>,
    disturbed_levels: Vec<i16>,
}

impl<W: Write + Send> CallsWriter<W> {
    /// Begins the file of a run.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn new(run_id: &str, output: W) -> Result<Self> {
        let mut properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()));
        for name in ["sample", "call", "nanoseconds"] {
            properties = properties
                .set_column_dictionary_enabled(ColumnPath::from(name), false)
                .set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED);
        }
        let file = SerializedFileWriter::new(output, schema(&columns())?, Arc::new(properties.build()))?;
        Ok(CallsWriter { file, run_id: ByteArray::from(run_id), group: Group::default() })
    }

    /// Adds a case: nanoseconds of each call, one list per sample.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn append(&mut self, case: &str, samples_ns: &[Vec<u64>], disturbed: Option<&[bool]>) -> Result<()> {
        let case = ByteArray::from(case);
        for (sample, calls) in samples_ns.iter().enumerate() {
            let mark = disturbed.and_then(|marks| marks.get(sample));
            for (call, &nanoseconds) in calls.iter().enumerate() {
                let group = &mut self.group;
                group.cases.push(case.clone());
                group.samples.push(sample as i64);
                group.calls.push(call as i64);
                group.nanoseconds.push(i64::try_from(nanoseconds).unwrap_or(i64::MAX));
                group.disturbed.extend(mark);
                group.disturbed_levels.push(i16::from(mark.is_some()));
                if group.cases.len() == ROW_GROUP {
                    self.write_group()?;
                }
            }
        }
        Ok(())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn finish(mut self) -> Result<W> {
        if !self.group.cases.is_empty() {
            self.write_group()?;
        }
        Ok(self.file.into_inner()?)
    }

    fn write_group(&mut self) -> Result<()> {
        let group = std::mem::take(&mut self.group);
        let rows = group.cases.len();
        let whole = |values| Cells { values, levels: vec![1; rows] };
        let columns = [
            whole(Values::Text(vec![self.run_id.clone(); rows])),
            whole(Values::Text(group.cases)),
            whole(Values::BigInt(group.samples)),
            whole(Values::BigInt(group.calls)),
            whole(Values::BigInt(group.nanoseconds)),
            Cells { values: Values::Boolean(group.disturbed), levels: group.disturbed_levels },
        ];
        write_group(&mut self.file, &columns)
    }
}

/// The calls of each case, by its id. Returns an empty map if there is no file.
///
/// # Errors
/// The file is cut short or has other columns; the message names it.
pub fn read_calls(path: &Path) -> Result<BTreeMap<String, Calls>> {
    let mut cases = BTreeMap::new();
    if path.is_file() {
        let reader = open_calls(path)?;
        for index in 0..reader.num_row_groups() {
            let group = reader.get_row_group(index).map_err(anyhow::Error::from);
            group.and_then(|group| read_group(&*group, &mut cases)).with_context(|| path.display().to_string())?;
        }
    }
    Ok(cases)
}

fn read_group(group: &dyn RowGroupReader, cases: &mut BTreeMap<String, Calls>) -> Result<()> {
    let (names, _) = column::<ByteArrayType>(group, 1)?;
    let (samples, _) = column::<Int64Type>(group, 2)?;
    let (nanoseconds, _) = column::<Int64Type>(group, 4)?;
    let (disturbed, levels) = column::<BoolType>(group, 5)?;
    ensure!(names.len() == samples.len() && names.len() == nanoseconds.len(), "a call is not whole");
    let mut marks = disturbed.into_iter();
    let mut row = 0;
    for of_case in names.chunk_by(|one, next| one == next) {
        let calls = cases.entry(of_case[0].as_utf8()?.to_owned()).or_default();
        for _ in of_case {
            let sample = usize::try_from(samples[row])?;
            let mark = if levels[row] == 1 { marks.next() } else { None };
            ensure!(sample <= calls.samples_ns.len(), "sample {sample} follows no sample before it");
            if sample == calls.samples_ns.len() {
                calls.samples_ns.push(Vec::new());
                calls.disturbed.extend(mark);
            }
            calls.samples_ns[sample].push(u64::try_from(nanoseconds[row])?);
            row += 1;
        }
    }
    Ok(())
}

/// The values of a column that are there, and for each row 1 if there is one.
fn column<T: DataType>(group: &dyn RowGroupReader, index: usize) -> Result<(Vec<T::T>, Vec<i16>)> {
    let rows = usize::try_from(group.metadata().num_rows())?;
    let mut reader = get_typed_column_reader::<T>(group.get_column_reader(index)?);
    let (mut values, mut levels) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    while levels.len() < rows {
        let (read, ..) = reader.read_records(rows - levels.len(), Some(&mut levels), None, &mut values)?;
        ensure!(read > 0, "{} of {rows} rows are there", levels.len());
    }
    Ok((values, levels))
}

/// How many calls a file has, by its footer, which says that it is whole; 0 if there is no file.
///
/// # Errors
/// The file is cut short or has other columns; the message names it.
pub fn count_calls(path: &Path) -> Result<usize> {
    let rows = if path.is_file() { open_calls(path)?.metadata().file_metadata().num_rows() } else { 0 };
    Ok(usize::try_from(rows)?)
}

/// Opens a file of calls, whose columns are those of [`columns`].
fn open_calls(path: &Path) -> Result<impl FileReader> {
    let reader = open(path)?;
    // DuckDB's files say of their integers that they are signed, which is another logical type and the same content.
    let kinds = |schema: &Type| -> Vec<_> {
        let kind = |field: &Type| (field.name().to_owned(), field.is_primitive().then(|| field.get_physical_type()));
        schema.get_fields().iter().map(|field| kind(field)).collect()
    };
    let is_own = kinds(reader.metadata().file_metadata().schema()) == kinds(schema(&columns())?.as_ref());
    ensure!(is_own, "{}: its columns are not those of {LATENCIES}", path.display());
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_rows_in_their_order_and_counted_without_reading_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = CallsWriter::new("r1", file.reopen().unwrap()).unwrap();
        writer.append("m/ort-cpu-f32/1", &[vec![5, 7], vec![6]], Some(&[false, true])).unwrap();
        writer.append("m/ort-cpu-f32/8", &[vec![9]], None).unwrap();
        writer.finish().unwrap();
        let reader = open(file.path()).unwrap();
        let lines: Vec<String> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        let line = |case: &str, sample, call, nanoseconds, disturbed| {
            format!(
                "{{run_id: \"r1\", case: \"{case}\", sample: {sample}, call: {call}, nanoseconds: {nanoseconds}, disturbed: {disturbed}}}"
            )
        };
        assert_eq!(
            lines,
            [
                line("m/ort-cpu-f32/1", 0, 0, 5, "false"),
                line("m/ort-cpu-f32/1", 0, 1, 7, "false"),
                line("m/ort-cpu-f32/1", 1, 0, 6, "true"),
                line("m/ort-cpu-f32/8", 0, 0, 9, "null"),
            ]
        );
        let calls = read_calls(file.path()).unwrap();
        assert_eq!(calls["m/ort-cpu-f32/1"].samples_ns, [vec![5, 7], vec![6]]);
        assert_eq!(calls["m/ort-cpu-f32/1"].disturbed, [false, true]);
        assert_eq!(calls["m/ort-cpu-f32/8"], Calls { samples_ns: vec![vec![9]], disturbed: Vec::new() });
        assert_eq!(count_calls(file.path()).unwrap(), 4);
    }

    #[test]
    fn more_calls_than_a_row_group_are_all_there() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = CallsWriter::new("r1", file.reopen().unwrap()).unwrap();
        let calls: Vec<u64> = (0..ROW_GROUP as u64 + 10).collect();
        writer.append("m/ort-cpu-f32/1", std::slice::from_ref(&calls), None).unwrap();
        writer.finish().unwrap();
        assert_eq!(count_calls(file.path()).unwrap(), ROW_GROUP + 10);
        assert_eq!(read_calls(file.path()).unwrap()["m/ort-cpu-f32/1"].samples_ns, [calls]);
    }
}
