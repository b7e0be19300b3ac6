//! Every call of a run: `latencies.parquet`, the table `raw_benchmark_data`.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use parquet::basic::{Compression, Encoding, Type, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::FileReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use super::columns::{Column, ColumnType};
use super::parquet::{has_column, open, read_column, schema, write_column};

/// The file of the calls in a run's folder.
pub const LATENCIES: &str = "latencies.parquet";

/// The columns: the run, the case (`digits/ort-cpu-f32/1`), the sample and the call within it (both from 0), the time
/// of the call, whether the sample was disturbed (if known), and the machine, which files of older versions lack.
pub fn columns() -> Vec<Column> {
    use ColumnType::{BigInt, Boolean, Text};
    let columns = [
        ("run_id", Text),
        ("case", Text),
        ("sample", BigInt),
        ("call", BigInt),
        ("nanoseconds", BigInt),
        ("disturbed", Boolean),
        ("host_id", Text),
    ];
    columns.map(|(name, column_type)| Column::new(name, column_type)).into()
}

/// Calls per row group. A reader's thread takes one row group at a time, and the writer keeps one in memory.
const ROW_GROUP: usize = 1 << 18;

/// Writes calls, one case after the other.
pub struct CallsWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    run_id: ByteArray,
    host_id: ByteArray,
    /// Calls that are not written yet.
    group: Vec<Call>,
}

struct Call {
    case: ByteArray,
    host_id: ByteArray,
    /// The sample, the number of the call in the sample, and the nanoseconds.
    numbers: [i64; 3],
    disturbed: Option<bool>,
}

impl<W: Write + Send> CallsWriter<W> {
    /// Begins the file of a run. Cases that are appended were measured by the machine `host_id`.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn new(run_id: &str, host_id: &str, output: W) -> Result<Self> {
        let mut properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()));
        for name in ["sample", "call", "nanoseconds"] {
            properties = properties
                .set_column_dictionary_enabled(ColumnPath::from(name), false)
                .set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED);
        }
        let file = SerializedFileWriter::new(output, schema(&columns())?, Arc::new(properties.build()))?;
        let (run_id, host_id) = (ByteArray::from(run_id), ByteArray::from(host_id));
        Ok(CallsWriter { file, run_id, host_id, group: Vec::new() })
    }

    /// Adds a case: nanoseconds of each call, one list per sample.
    pub fn append(&mut self, case: &str, samples_ns: &[Vec<u64>], disturbed: Option<&[bool]>) -> Result<()> {
        let case = ByteArray::from(case);
        for (sample, calls) in samples_ns.iter().enumerate() {
            let mark = disturbed.and_then(|marks| marks.get(sample));
            for (call, &nanoseconds) in calls.iter().enumerate() {
                let nanoseconds = i64::try_from(nanoseconds).unwrap_or(i64::MAX);
                self.push(&case, [sample as i64, call as i64, nanoseconds], mark.copied())?;
            }
        }
        Ok(())
    }

    /// Adds the calls of the wanted cases from another run's file, as calls of the machine `host_id`. A missing file
    /// has no calls.
    pub fn copy(&mut self, path: &Path, host_id: &str, is_wanted: &dyn Fn(&str) -> bool) -> Result<()> {
        use Type::{BOOLEAN, BYTE_ARRAY, INT64};
        self.host_id = ByteArray::from(host_id);
        if !path.is_file() {
            return Ok(());
        }
        let file = open(path)?;
        let schema = file.metadata().file_metadata().schema_descr();
        let wanted = [BYTE_ARRAY, BYTE_ARRAY, INT64, INT64, INT64, BOOLEAN];
        let has_columns = wanted.into_iter().enumerate().all(|(number, physical)| has_column(schema, number, physical));
        ensure!(has_columns, "{}: its columns are not those of calls", path.display());
        for place in 0..file.num_row_groups() {
            let group = file.get_row_group(place)?;
            let rows = usize::try_from(group.metadata().num_rows())?;
            let (cases, _) = read_column::<ByteArrayType>(&*group, 1, rows)?;
            let [samples, calls, nanoseconds] = [2, 3, 4].map(|number| read_column::<Int64Type>(&*group, number, rows));
            let (samples, calls, nanoseconds) = (samples?.0, calls?.0, nanoseconds?.0);
            let (disturbed, levels) = read_column::<BoolType>(&*group, 5, rows)?;
            let are_whole = [cases.len(), samples.len(), calls.len(), nanoseconds.len()].iter().all(|it| *it == rows);
            ensure!(are_whole, "{}: a call lacks its case, sample, number or time", path.display());
            let mut disturbed = disturbed.into_iter();
            let mut known: Option<(ByteArray, bool)> = None;
            for (row, case) in cases.iter().enumerate() {
                let mark = if levels[row] == 1 { disturbed.next() } else { None };
                let is_kept = match &known {
                    Some((same, is_kept)) if same == case => *is_kept,
                    _ => is_wanted(case.as_utf8()?),
                };
                known = Some((case.clone(), is_kept));
                if is_kept {
                    self.push(case, [samples[row], calls[row], nanoseconds[row]], mark)?;
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, case: &ByteArray, numbers: [i64; 3], disturbed: Option<bool>) -> Result<()> {
        self.group.push(Call { case: case.clone(), host_id: self.host_id.clone(), numbers, disturbed });
        if self.group.len() == ROW_GROUP { self.write_group() } else { Ok(()) }
    }

    /// Ends the file.
    pub fn finish(mut self) -> Result<W> {
        if !self.group.is_empty() {
            self.write_group()?;
        }
        Ok(self.file.into_inner()?)
    }

    fn write_group(&mut self) -> Result<()> {
        let calls = std::mem::take(&mut self.group);
        let all = vec![1; calls.len()];
        let texts = |of: fn(&Call) -> &ByteArray| calls.iter().map(of).cloned().collect::<Vec<_>>();
        let mut group = self.file.next_row_group()?;
        for texts in [vec![self.run_id.clone(); calls.len()], texts(|call| &call.case)] {
            write_column::<ByteArrayType, W>(&mut group, &texts, &all)?;
        }
        for place in 0..3 {
            let numbers: Vec<i64> = calls.iter().map(|call| call.numbers[place]).collect();
            write_column::<Int64Type, W>(&mut group, &numbers, &all)?;
        }
        let disturbed: Vec<bool> = calls.iter().filter_map(|call| call.disturbed).collect();
        let levels: Vec<i16> = calls.iter().map(|call| i16::from(call.disturbed.is_some())).collect();
        write_column::<BoolType, W>(&mut group, &disturbed, &levels)?;
        write_column::<ByteArrayType, W>(&mut group, &texts(|call| &call.host_id), &all)?;
        group.close()?;
        Ok(())
    }
}

/// The number of calls in a file, read from its footer, which only a complete file has; 0 if there is no file.
pub fn count_calls(path: &Path) -> Result<usize> {
    let rows = if path.is_file() { open(path)?.metadata().file_metadata().num_rows() } else { 0 };
    Ok(usize::try_from(rows)?)
}

#[cfg(test)]
mod tests {
    use parquet::record::RowAccessor;

    use super::*;

    #[test]
    fn calls_are_rows_in_their_order_and_counted_without_reading_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = CallsWriter::new("r1", "h", file.reopen().unwrap()).unwrap();
        writer.append("m/ort-cpu-f32/1", &[vec![5, 7], vec![6]], Some(&[false, true])).unwrap();
        writer.append("m/ort-cpu-f32/8", &[vec![9]], None).unwrap();
        writer.finish().unwrap();
        let reader = open(file.path()).unwrap();
        let lines: Vec<String> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        let line = |case: &str, sample, call, nanoseconds, disturbed| {
            format!(
                "{{run_id: \"r1\", case: \"{case}\", sample: {sample}, call: {call}, nanoseconds: {nanoseconds}, disturbed: {disturbed}, host_id: \"h\"}}"
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
        assert_eq!(count_calls(file.path()).unwrap(), 4);
    }

    #[test]
    fn a_file_with_other_columns_is_refused_by_its_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut columns = columns();
        columns.swap(1, 2);
        super::super::parquet::write_rows(&columns, &[], &file).unwrap();
        let mut copy = CallsWriter::new("r1", "h", Vec::new()).unwrap();
        let error = copy.copy(file.path(), "h", &|_| true).unwrap_err().to_string();
        assert!(error.contains("columns are not those of calls") && error.contains(file.path().to_str().unwrap()));
    }

    #[test]
    fn calls_that_lack_a_value_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let number = |name: &str| (name.to_owned(), toml::Value::Integer(5));
        let without_case = toml::Table::from_iter(["sample", "call", "nanoseconds"].map(number));
        let only_case = toml::Table::from_iter([("case".to_owned(), "m/ort-cpu-f32/1".into())]);
        super::super::parquet::write_rows(&columns(), &[without_case, only_case], &file).unwrap();
        let mut copy = CallsWriter::new("r1", "h", Vec::new()).unwrap();
        let error = copy.copy(file.path(), "h", &|_| true).unwrap_err().to_string();
        assert!(error.contains("a call lacks its case, sample, number or time"), "{error}");
    }

    #[test]
    fn more_calls_than_a_row_group_are_all_there() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = CallsWriter::new("r1", "h", file.reopen().unwrap()).unwrap();
        let calls: Vec<u64> = (0..ROW_GROUP as u64 + 10).collect();
        writer.append("m/ort-cpu-f32/1", std::slice::from_ref(&calls), None).unwrap();
        writer.finish().unwrap();
        assert_eq!(count_calls(file.path()).unwrap(), ROW_GROUP + 10);
        let reader = open(file.path()).unwrap();
        let rows = reader.get_row_iter(None).unwrap();
        let written: Vec<u64> = rows.map(|row| row.unwrap().get_long(4).unwrap().try_into().unwrap()).collect();
        assert_eq!(written, calls);
    }
}
