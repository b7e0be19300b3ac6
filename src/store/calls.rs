//! Every call of a run: `latencies.parquet`, and the store's table `raw_benchmark_data`, which are the same file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use parquet::basic::Encoding;
use parquet::column::reader::get_typed_column_reader;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use super::columns::{Column, ColumnType};
use super::parquet::{open, plain, properties, schema};
use crate::history::Calls;

/// The calls' file in a run's folder.
pub const LATENCIES: &str = "latencies.parquet";

/// The columns: which run, which case (`digits/ort-cpu-f32/1`), sample and call in it from 0, the time of the call, and
/// whether the sample was disturbed, where that is known.
pub const COLUMNS: [Column; 6] = [
    Column { name: "run_id", column_type: ColumnType::Text },
    Column { name: "case", column_type: ColumnType::Text },
    Column { name: "sample", column_type: ColumnType::BigInt },
    Column { name: "call", column_type: ColumnType::BigInt },
    Column { name: "nanoseconds", column_type: ColumnType::BigInt },
    Column { name: "disturbed", column_type: ColumnType::Boolean },
];

/// A reader's thread takes a row group at a time, and the writer keeps one in memory.
const ROW_GROUP: usize = 1 << 18;

/// Writes calls, a case after the other.
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
    /// # Errors
    /// The output cannot be written.
    pub fn new(run_id: &str, output: W) -> Result<Self, String> {
        let column = |name: &str| ColumnPath::from(name);
        let mut properties = properties();
        for name in ["sample", "call", "nanoseconds"] {
            properties = properties
                .set_column_dictionary_enabled(column(name), false)
                .set_column_encoding(column(name), Encoding::DELTA_BINARY_PACKED);
        }
        let file = schema(&COLUMNS)
            .and_then(|schema| SerializedFileWriter::new(output, schema, Arc::new(properties.build())))
            .map_err(|error| plain(&error))?;
        Ok(CallsWriter { file, run_id: ByteArray::from(run_id), group: Group::default(), written: 0 })
    }

    /// Adds a case: nanoseconds of each call, one list a sample.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn append(&mut self, case: &str, samples_ns: &[Vec<u64>], disturbed: Option<&[bool]>) -> Result<(), String> {
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
                    self.write_group().map_err(|error| plain(&error))?;
                }
            }
        }
        Ok(())
    }

    /// Ends the file, and says how many calls are in it.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn finish(mut self) -> Result<(W, usize), String> {
        let written = self.written + self.group.cases.len();
        if !self.group.cases.is_empty() {
            self.write_group().map_err(|error| plain(&error))?;
        }
        let output = self.file.into_inner().map_err(|error| plain(&error))?;
        Ok((output, written))
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let group = std::mem::take(&mut self.group);
        let rows = group.cases.len();
        let present = vec![1; rows];
        let run_ids = vec![self.run_id.clone(); rows];
        let mut file_group = self.file.next_row_group()?;
        for index in 0.. {
            let Some(mut column) = file_group.next_column()? else { break };
            match (index, column.untyped()) {
                (0, ColumnWriter::ByteArrayColumnWriter(writer)) => {
                    writer.write_batch(&run_ids, Some(&present), None)?
                }
                (1, ColumnWriter::ByteArrayColumnWriter(writer)) => {
                    writer.write_batch(&group.cases, Some(&present), None)?
                }
                (2, ColumnWriter::Int64ColumnWriter(writer)) => {
                    writer.write_batch(&group.samples, Some(&present), None)?
                }
                (3, ColumnWriter::Int64ColumnWriter(writer)) => {
                    writer.write_batch(&group.calls, Some(&present), None)?
                }
                (4, ColumnWriter::Int64ColumnWriter(writer)) => {
                    writer.write_batch(&group.nanoseconds, Some(&present), None)?
                }
                (5, ColumnWriter::BoolColumnWriter(writer)) => {
                    writer.write_batch(&group.disturbed, Some(&group.disturbed_levels), None)?
                }
                _ => return Err(ParquetError::General(format!("column {index} of the calls has another type"))),
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
pub fn read_calls(path: &Path) -> anyhow::Result<BTreeMap<String, Calls>> {
    let mut cases: BTreeMap<String, Calls> = BTreeMap::new();
    if !path.is_file() {
        return Ok(cases);
    }
    let reader = open_calls(path).map_err(anyhow::Error::msg)?;
    for index in 0..reader.num_row_groups() {
        read_group(&*reader.get_row_group(index)?, &mut cases).with_context(|| path.display().to_string())?;
    }
    Ok(cases)
}

fn read_group(group: &dyn RowGroupReader, cases: &mut BTreeMap<String, Calls>) -> anyhow::Result<()> {
    let (names, _) = column::<ByteArrayType>(group, 1)?;
    let (samples, _) = column::<Int64Type>(group, 2)?;
    let (nanoseconds, _) = column::<Int64Type>(group, 4)?;
    let (disturbed, levels) = column::<BoolType>(group, 5)?;
    anyhow::ensure!(names.len() == samples.len() && names.len() == nanoseconds.len(), "a call is not whole");
    let mut marks = disturbed.into_iter();
    let mut row = 0;
    for of_case in names.chunk_by(|one, next| one == next) {
        let calls = cases.entry(of_case[0].as_utf8()?.to_owned()).or_default();
        for _ in of_case {
            let sample = samples[row] as usize;
            let mark = if levels[row] == 1 { marks.next() } else { None };
            if calls.samples_ns.len() <= sample {
                anyhow::ensure!(calls.samples_ns.len() == sample, "sample {sample} follows no sample before it");
                calls.samples_ns.push(Vec::new());
                calls.disturbed.extend(mark);
            }
            calls.samples_ns[sample].push(nanoseconds[row] as u64);
            row += 1;
        }
    }
    Ok(())
}

/// The values of a column that are there, and for each row whether one is.
fn column<T: DataType>(group: &dyn RowGroupReader, index: usize) -> Result<(Vec<T::T>, Vec<i16>), ParquetError> {
    let rows = group.metadata().num_rows() as usize;
    let (mut values, mut levels) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    let mut reader = get_typed_column_reader::<T>(group.get_column_reader(index)?);
    while levels.len() < rows && reader.read_records(rows - levels.len(), Some(&mut levels), None, &mut values)?.0 > 0 {
    }
    Ok((values, levels))
}

/// How many calls a file has, once its footer says that it is whole, has these columns, and is of this run.
///
/// # Errors
/// It is not; the message names the file.
pub fn count_calls(path: &Path, run_id: &str) -> Result<usize, String> {
    let reader = open_calls(path)?;
    let metadata = reader.metadata();
    for group in metadata.row_groups() {
        let Some(Statistics::ByteArray(run_ids)) = group.column(0).statistics() else { continue };
        let others = [run_ids.min_opt(), run_ids.max_opt()].into_iter().flatten().map(ByteArray::data);
        if let Some(other) = others.into_iter().find(|id| *id != run_id.as_bytes()) {
            return Err(format!("{}: it is of run {}, not {run_id}", path.display(), String::from_utf8_lossy(other)));
        }
    }
    Ok(metadata.row_groups().iter().map(|group| group.num_rows() as usize).sum())
}

fn open_calls(path: &Path) -> Result<SerializedFileReader<File>, String> {
    let reader = open(path)?;
    let own = schema(&COLUMNS).map_err(|error| plain(&error))?;
    if reader.metadata().file_metadata().schema().get_fields() != own.get_fields() {
        return Err(format!("{}: its columns are not those of {LATENCIES}", path.display()));
    }
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::parquet::read_rows;

    #[test]
    fn calls_are_rows_in_their_order_and_counted_without_reading_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = CallsWriter::new("r1", file.reopen().unwrap()).unwrap();
        writer.append("m/ort-cpu-f32/1", &[vec![5, 7], vec![6]], Some(&[false, true])).unwrap();
        writer.append("m/ort-cpu-f32/8", &[vec![9]], None).unwrap();
        assert_eq!(writer.finish().unwrap().1, 4);
        let rows = read_rows(file.path()).unwrap();
        let cell = |row: &toml::Table, name| row.get(name).map(ToString::to_string).unwrap_or_default();
        let lines: Vec<String> =
            rows.iter().map(|row| COLUMNS.map(|column| cell(row, column.name)).join(" ")).collect();
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
        assert_eq!(count_calls(file.path(), "r1"), Ok(4));
        assert!(count_calls(file.path(), "r2").unwrap_err().contains("it is of run r1, not r2"));
    }

    #[test]
    fn more_calls_than_a_row_group_are_all_there() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = CallsWriter::new("r1", file.reopen().unwrap()).unwrap();
        let calls: Vec<u64> = (0..ROW_GROUP as u64 + 10).collect();
        writer.append("m/ort-cpu-f32/1", std::slice::from_ref(&calls), None).unwrap();
        assert_eq!(writer.finish().unwrap().1, ROW_GROUP + 10);
        assert_eq!(count_calls(file.path(), "r1"), Ok(ROW_GROUP + 10));
        assert_eq!(read_calls(file.path()).unwrap()["m/ort-cpu-f32/1"].samples_ns, [calls]);
    }
}
