//! Every call of a run: `latencies.parquet`, the table `raw_benchmark_data`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::reader::get_typed_column_reader;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, TypePtr};

use super::columns::{Column, ColumnType};
use super::parquet::{open, read_values, schema};

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
    written: usize,
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
        Ok(CallsWriter { file, run_id: ByteArray::from(run_id), group: Group::default(), written: 0 })
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

    /// Ends the file, and returns how many calls are in it.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn finish(mut self) -> Result<(W, usize)> {
        if !self.group.cases.is_empty() {
            self.write_group()?;
        }
        Ok((self.file.into_inner()?, self.written))
    }

    fn write_group(&mut self) -> Result<()> {
        let group = std::mem::take(&mut self.group);
        let rows = group.cases.len();
        let present = vec![1; rows];
        let present = Some(present.as_slice());
        let run_ids = vec![self.run_id.clone(); rows];
        let mut file_group = self.file.next_row_group()?;
        for index in 0.. {
            let Some(mut column) = file_group.next_column()? else { break };
            match (index, column.untyped()) {
                (0, ColumnWriter::ByteArrayColumnWriter(writer)) => writer.write_batch(&run_ids, present, None)?,
                (1, ColumnWriter::ByteArrayColumnWriter(writer)) => writer.write_batch(&group.cases, present, None)?,
                (2, ColumnWriter::Int64ColumnWriter(writer)) => writer.write_batch(&group.samples, present, None)?,
                (3, ColumnWriter::Int64ColumnWriter(writer)) => writer.write_batch(&group.calls, present, None)?,
                (4, ColumnWriter::Int64ColumnWriter(writer)) => {
                    writer.write_batch(&group.nanoseconds, present, None)?
                }
                (5, ColumnWriter::BoolColumnWriter(writer)) => {
                    writer.write_batch(&group.disturbed, Some(&group.disturbed_levels), None)?
                }
                _ => bail!("column {index} of the calls has another type"),
            };
            column.close()?;
        }
        file_group.close()?;
        self.written += rows;
        Ok(())
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

fn column<T: DataType>(group: &dyn RowGroupReader, index: usize) -> Result<(Vec<T::T>, Vec<i16>)> {
    let rows = usize::try_from(group.metadata().num_rows())?;
    Ok(read_values(get_typed_column_reader::<T>(group.get_column_reader(index)?), rows)?)
}

/// How many calls a file has, once its footer says that it is whole, has these columns, and is of this run.
///
/// # Errors
/// It is not; the message names the file.
pub fn count_calls(path: &Path, run_id: &str) -> Result<usize> {
    let reader = open_calls(path)?;
    let metadata = reader.metadata();
    for group in metadata.row_groups() {
        let Some(Statistics::ByteArray(run_ids)) = group.column(0).statistics() else { continue };
        let others = [run_ids.min_opt(), run_ids.max_opt()].into_iter().flatten().map(ByteArray::data);
        if let Some(other) = others.into_iter().find(|id| *id != run_id.as_bytes()) {
            bail!("{}: it is of run {}, not {run_id}", path.display(), String::from_utf8_lossy(other));
        }
    }
    Ok(metadata.row_groups().iter().map(|group| group.num_rows() as usize).sum())
}

/// Opens a file of calls, whose columns are those of [`columns`].
fn open_calls(path: &Path) -> Result<impl FileReader> {
    let reader = open(path)?;
    let own = schema(&columns())?;
    let fields = reader.metadata().file_metadata().schema().get_fields();
    // DuckDB's files say of their integers that they are signed, which is another logical type and the same content.
    let is_alike = |(one, other): (&TypePtr, &TypePtr)| {
        one.name() == other.name() && one.is_primitive() && one.get_physical_type() == other.get_physical_type()
    };
    let is_own = fields.len() == own.get_fields().len() && fields.iter().zip(own.get_fields()).all(is_alike);
    ensure!(is_own, "{}: its columns are not those of {LATENCIES}", path.display());
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::parquet::read_rows;

    #[test]
    fn calls_are_rows_in_their_order_and_counted_without_reading_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = CallsWriter::new("r1", file.reopen().unwrap()).unwrap();
        writer.append("m/ort-cpu-f32/1", &[vec![5, 7], vec![6]], Some(&[false, true])).unwrap();
        writer.append("m/ort-cpu-f32/8", &[vec![9]], None).unwrap();
        assert_eq!(writer.finish().unwrap().1, 4);
        let rows = read_rows(file.path(), &columns()).unwrap();
        let cell = |row: &toml::Table, name: &str| row.get(name).map(ToString::to_string).unwrap_or_default();
        let lines: Vec<String> = rows
            .iter()
            .map(|row| columns().iter().map(|column| cell(row, &column.name)).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "\"r1\" \"m/ort-cpu-f32/1\" 0 0 5 false",
                "\"r1\" \"m/ort-cpu-f32/1\" 0 1 7 false",
                "\"r1\" \"m/ort-cpu-f32/1\" 1 0 6 true",
                "\"r1\" \"m/ort-cpu-f32/8\" 0 0 9 ",
            ]
        );
        let calls = read_calls(file.path()).unwrap();
        assert_eq!(calls["m/ort-cpu-f32/1"].samples_ns, [vec![5, 7], vec![6]]);
        assert_eq!(calls["m/ort-cpu-f32/1"].disturbed, [false, true]);
        assert_eq!(calls["m/ort-cpu-f32/8"], Calls { samples_ns: vec![vec![9]], disturbed: Vec::new() });
        assert_eq!(count_calls(file.path(), "r1").unwrap(), 4);
        assert!(count_calls(file.path(), "r2").unwrap_err().to_string().contains("it is of run r1, not r2"));
    }

    #[test]
    fn more_calls_than_a_row_group_are_all_there() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = CallsWriter::new("r1", file.reopen().unwrap()).unwrap();
        let calls: Vec<u64> = (0..ROW_GROUP as u64 + 10).collect();
        writer.append("m/ort-cpu-f32/1", std::slice::from_ref(&calls), None).unwrap();
        assert_eq!(writer.finish().unwrap().1, ROW_GROUP + 10);
        assert_eq!(count_calls(file.path(), "r1").unwrap(), ROW_GROUP + 10);
        assert_eq!(read_calls(file.path()).unwrap()["m/ort-cpu-f32/1"].samples_ns, [calls]);
    }
}
