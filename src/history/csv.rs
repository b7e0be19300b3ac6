//! Records and metrics as CSV.

use std::io::{Read, Write};

use anyhow::{Context, Result, ensure};
use csv::ByteRecord;
use serde::{Deserialize, Serialize};

use super::columns::{Column, ColumnType, names_of};
use super::facts::{Measured, RunFacts, Table};
use crate::definition::Status;
use crate::run_data::{Metric, Record, SCHEMA_VERSION};

/// Writes `results.csv`: a header, and one row per record.
pub fn write_records(records: &[Record], output: impl Write) -> Result<()> {
    write(records, output)
}

/// Writes `metrics.csv`: a header, and one row per metric.
pub fn write_metrics(metrics: &[Metric], output: impl Write) -> Result<()> {
    write(metrics, output)
}

fn write<T: Default + Serialize>(rows: &[T], output: impl Write) -> Result<()> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(output);
    // The header is there even if there is no row.
    writer.write_record(names_of::<T>())?;
    rows.iter().try_for_each(|row| writer.serialize(row))?;
    Ok(writer.flush()?)
}

/// Reads what [`write_records`] wrote, of this schema version or an older one.
///
/// # Errors
/// The input is another kind of CSV, is of a newer schema version, or has a truncated row; the message names the line.
pub fn read_records(input: impl Read) -> Result<Vec<Record>> {
    let mut rows = Rows::open(input)?;
    let mut records = Vec::new();
    while rows.advance()? {
        let record: Record = rows.read()?;
        // Versions before 5 do not have the id.
        records.push(Record { case_id: record.case().to_string(), ..record });
    }
    Ok(records)
}

/// Reads what [`write_metrics`] wrote.
///
/// # Errors
/// The input is another kind of CSV, or has a truncated row; the message names the line.
pub fn read_metrics(input: impl Read) -> Result<Vec<Metric>> {
    Ok(csv::Reader::from_reader(input).deserialize().collect::<Result<_, _>>()?)
}

/// The facts of a run, from its rows; `None` if there is no row. Only the necessary columns are parsed, since there are
/// histories of ten thousand runs.
///
/// # Errors
/// Those of [`read_records`], and the rows are of several runs.
pub fn read_facts(bytes: &[u8]) -> Result<Option<RunFacts>> {
    let mut rows = Rows::open(bytes)?;
    let (run_id, status) = (rows.place("run_id")?, rows.place("status")?);
    let [model, backend, case_id, p50] =
        ["model", "backend", "case_id", "latency_p50_ms"].map(|it| rows.place(it).ok());
    let mut measured = Measured::default();
    let mut facts: Option<RunFacts> = None;
    while rows.advance()? {
        let is = |place: usize, text: &str| rows.row[place] == *text.as_bytes();
        let facts = match &mut facts {
            Some(facts) => facts,
            None => facts.insert(rows.read()?),
        };
        // Only the run's id has to agree: a merged run has rows of several machines.
        ensure!(is(run_id, &facts.run_id), "its rows are of several runs");
        facts.cases += 1;
        let is_ok = is(status, Status::Ok.name());
        facts.cases_ok += usize::from(is_ok);
        let text =
            |place: Option<usize>| place.and_then(|place| str::from_utf8(&rows.row[place]).ok()).unwrap_or_default();
        let median = text(p50).parse().ok().filter(|_| is_ok).map(|ms| (ms, text(case_id)));
        measured.add(text(model), text(backend), median);
    }
    if let Some(facts) = &mut facts {
        measured.put_into(facts);
    }
    Ok(facts)
}

/// The rows of a CSV file of records, one at a time.
pub struct Rows<R> {
    reader: csv::Reader<R>,
    header: ByteRecord,
    schema_version: usize,
    /// The columns of `true` and `false`.
    flags: Vec<usize>,
    pub row: ByteRecord,
}

impl<R: Read> Rows<R> {
    pub fn open(input: R) -> Result<Self> {
        let mut reader = csv::Reader::from_reader(input);
        let header = reader.byte_headers()?.clone();
        let mut rows = Rows { reader, header, schema_version: 0, flags: Vec::new(), row: ByteRecord::new() };
        rows.schema_version = rows.place("schema_version")?;
        let is_flag = |column: &&Column| column.column_type == ColumnType::Boolean;
        let flags = Table::Results.columns().iter().filter(is_flag);
        rows.flags = flags.filter_map(|column| rows.place(&column.name).ok()).collect();
        Ok(rows)
    }

    fn place(&self, column: &str) -> Result<usize> {
        let place = self.header.iter().position(|name| name == column.as_bytes());
        place.with_context(|| format!("not a results.csv of inferbench: it has no column {column}"))
    }

    /// Goes to the next row, if there is one.
    ///
    /// # Errors
    /// The row is truncated or of a newer schema version; the message names the line.
    pub fn advance(&mut self) -> Result<bool> {
        if !self.reader.read_byte_record(&mut self.row)? {
            return Ok(false);
        }
        // Spreadsheets save `true` as `TRUE`, and pandas as `True`.
        if self.flags.iter().any(|place| self.row[*place].iter().any(u8::is_ascii_uppercase)) {
            let lower = |(place, cell): (usize, &[u8])| match self.flags.contains(&place) {
                true => cell.to_ascii_lowercase(),
                false => cell.to_vec(),
            };
            let mut row: ByteRecord = self.row.iter().enumerate().map(lower).collect();
            row.set_position(self.row.position().cloned());
            self.row = row;
        }
        let version = str::from_utf8(&self.row[self.schema_version]).ok().and_then(|text| text.parse::<u32>().ok());
        let version = version.with_context(|| format!("line {}: schema_version is not a number", self.line()))?;
        ensure!(
            version <= SCHEMA_VERSION,
            "line {}: schema version {version} is newer than this inferbench, which reads up to {SCHEMA_VERSION}",
            self.line()
        );
        Ok(true)
    }

    /// Parses the columns of the row that `T` has.
    fn read<'row, T: Deserialize<'row>>(&'row self) -> Result<T> {
        self.row.deserialize(Some(&self.header)).with_context(|| format!("line {}", self.line()))
    }

    /// The line at which the row begins.
    pub fn line(&self) -> u64 {
        self.row.position().map_or(0, csv::Position::line)
    }
}

/// The columns of `throughput.csv`, the short form that people open in a spreadsheet.
const SHORT: &str = "model,variant,phase,dims,sequence_length,backend,device,dtype,batch_size,boundary,timed_on,latency_p50_ms,latency_p99_ms,\
                     throughput_ips,tokens_per_second,memory_mb,status";

/// Writes `throughput.csv`: a few columns of the records.
pub fn write_throughput(records: &[Record], output: impl Write) -> Result<()> {
    let mut bytes = Vec::new();
    write_records(records, &mut bytes)?;
    let mut rows = Rows::open(bytes.as_slice())?;
    let places = SHORT.split(',').map(|name| rows.place(name)).collect::<Result<Vec<usize>>>()?;
    let mut writer = csv::Writer::from_writer(output);
    writer.write_record(SHORT.split(','))?;
    while rows.advance()? {
        writer.write_record(places.iter().map(|place| &rows.row[*place]))?;
    }
    Ok(writer.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Case;
    use crate::run_data::Better;

    fn record() -> Record {
        let run = Record {
            run_id: "20260101T000000Z".into(),
            timestamp: "2026-01-01T00:00:00Z".parse().unwrap(),
            git_dirty: Some(false),
            host_id: "h".into(),
            suite: "quick".into(),
            rustc_version: "rustc 1".into(),
            ..Record::default()
        };
        let case = Case::new("m", "ort", 1);
        let mut record = run.about(&case);
        (record.status, record.message) = (Status::WrongOutput, Some("a \"quoted\", long\nreason".into()));
        record.latency_p50_ms = Some(0.1 + 0.2);
        record
    }

    fn written() -> String {
        let mut bytes = Vec::new();
        write_records(&[record()], &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        assert_eq!(read_records(written().as_bytes()).unwrap(), [record()]);
    }

    #[test]
    fn true_and_false_may_be_spelt_as_spreadsheets_and_pandas_spell_them() {
        for spelling in ["FALSE", "False"] {
            let saved = written().replace(",false,", &format!(",{spelling},"));
            assert!(saved.contains(spelling), "{saved}");
            assert_eq!(read_records(saved.as_bytes()).unwrap(), [record()]);
        }
    }

    #[test]
    fn metrics_come_back_as_they_were() {
        let known = Metric {
            run_id: "r".into(),
            case_id: "m/ort-cpu-f32/1".into(),
            metric: "mine, of \"all\"".into(),
            value: 0.1 + 0.2,
            lower: Some(0.25),
            upper: Some(0.5),
            unit: "fraction".into(),
            samples: 3,
            compared_with: Some("m/tch-cpu-f32/1".into()),
            better: Some(Better::Lower),
            host_id: Some("h".into()),
        };
        let least = Metric { run_id: "r".into(), metric: "least".into(), ..Metric::default() };
        let mut bytes = Vec::new();
        write_metrics(&[known.clone(), least.clone()], &mut bytes).unwrap();
        assert!(
            bytes.starts_with(b"run_id,case_id,metric,value,lower,upper,unit,samples,compared_with,better,host_id\n")
        );
        assert_eq!(read_metrics(bytes.as_slice()).unwrap(), [known, least]);
        assert!(read_metrics(&bytes[..bytes.len() - 8]).is_err());
    }

    #[test]
    fn no_records_are_a_header_that_is_read_as_no_records() {
        let mut bytes = Vec::new();
        write_records(&[], &mut bytes).unwrap();
        assert!(bytes.starts_with(b"run_id,timestamp,"));
        assert_eq!(read_records(bytes.as_slice()).unwrap(), []);
    }

    #[test]
    fn the_short_form_has_a_few_columns_of_each_record() {
        let mut bytes = Vec::new();
        write_throughput(&[record()], &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], SHORT);
        assert_eq!(lines[1], "m,original,forward,,,ort,cpu,f32,1,compute,seeded,0.30000000000000004,,,,,wrong-output");
    }

    #[test]
    fn another_csv_and_a_newer_version_are_refused() {
        assert!(read_records("a,b\n1,2\n".as_bytes()).unwrap_err().to_string().contains("no column schema_version"));
        let newer = written().replace(&format!(",{SCHEMA_VERSION},h,quick"), ",99,h,quick");
        assert!(read_records(newer.as_bytes()).unwrap_err().to_string().contains("version 99 is newer"));
        let text = written();
        assert!(read_records(&text.as_bytes()[..text.len() - 40]).is_err());
    }
}
