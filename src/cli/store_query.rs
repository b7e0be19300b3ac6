//! `inferbench store query`: rows and groups of the records by flags, in every build, or SQL in a build with DuckDB.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::{ArgGroup, Args, ValueEnum};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde_json::Value;

use crate::exit_codes;
use crate::history::{Answer, History, Question, Run};
use crate::report::json;
use crate::report::numbers::three_digits;
use crate::report::table::{Column, Table};

/// The flags of a question that is not in SQL.
const QUESTION: [&str; 7] = ["conditions", "groups", "shown", "since", "order", "is_descending", "limit"];

/// Find and group the records of all runs, or query the history with SQL
#[derive(Args)]
#[command(
    after_help = "Columns are those of results.csv, such as latency_p50_ms, or the short names of `inferbench report --columns`, such as p50, \
        except interval, memory, outputs, ratio and level, which are not single columns. \
        Rows whose status is not ok are left out, unless the query names the status. If the rows of one group did different work, a note names the \
        columns in which they differ.\n\n\
        SQL needs a build with `--features duckdb`. Tables: benchmark_runs, benchmark_results, hardware_info, metrics, profiles, load_results, raw_benchmark_data \
        (run_id, \"case\", sample, call, nanoseconds, disturbed, host_id).\n\nExamples:\n  \
        inferbench store query --where model=resnet50 --where batch=1 --by backend --show p50 --since 30d\n  \
        inferbench store query --where backend=ort,tch --where 'p50<20' --by case_id,host_id --show min:p50,max:p50,max:timestamp\n  \
        inferbench store query --where status!=ok --show case_id,status,message --format tsv\n  \
        inferbench store query 'FROM benchmark_runs'\n  \
        inferbench store query --format csv 'SELECT * FROM benchmark_results' > all.csv"
)]
#[command(group = ArgGroup::new("asked").arg("sql").args(QUESTION).required(true).multiple(true))]
pub struct Query {
    /// A query in DuckDB's SQL
    #[arg(conflicts_with_all = QUESTION)]
    sql: Option<String>,
    #[command(flatten)]
    question: Question,
    /// Take runs that began within this time, or since this day: 30d, 12h, 6mo, or a day such as 2026-01-31 (UTC)
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Timestamp>,
    #[arg(long, value_enum, default_value = "table")]
    format: QueryFormat,
    /// Query this database file with SQL instead of the history
    #[arg(long, value_name = "FILE", requires = "sql", conflicts_with_all = QUESTION)]
    database: Option<PathBuf>,
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum QueryFormat {
    Table,
    Json,
    Csv,
    Tsv,
}

impl Query {
    pub fn run(&self, open: impl FnOnce() -> Result<History>) -> Result<u8> {
        let answer = match &self.sql {
            Some(sql) if sql.trim().is_empty() => bail!("the query is empty"),
            Some(sql) => self.ask_duckdb(sql, open)?,
            None => {
                let is_taken =
                    |run: &&Run| self.since.is_none_or(|since| run.started().is_some_and(|started| started >= since));
                self.question.ask(open()?.runs().iter().rev().filter(is_taken))?
            }
        };
        let mut table = Table::new(answer.columns.iter().enumerate().map(|(place, name)| {
            let is_number = self.sql.is_none() && answer.rows.iter().any(|row| row[place].is_number());
            if is_number { Column::number(name) } else { Column::text(name) }
        }));
        let is_rounded = self.sql.is_none() && self.format == QueryFormat::Table;
        for (row, texts) in answer.rows.iter().zip(answer.texts()) {
            let cell = |(value, text): (&Value, String)| if is_rounded { rounded(value).unwrap_or(text) } else { text };
            table.row(row.iter().zip(texts).map(cell));
        }
        let text = match self.format {
            QueryFormat::Table => table.terminal(),
            QueryFormat::Json => json(&answer.objects()),
            QueryFormat::Csv => table.separated(b','),
            QueryFormat::Tsv => table.separated(b'\t'),
        };
        print!("{text}");
        answer.notes.iter().for_each(|note| eprintln!("{note}"));
        Ok(exit_codes::OK)
    }

    #[cfg(not(feature = "duckdb"))]
    fn ask_duckdb(&self, _sql: &str, _open: impl FnOnce() -> Result<History>) -> Result<Answer> {
        bail!(
            "{}; without it, `store query --where model=resnet50 --by backend --show p50` finds and groups records, and pandas, Polars \
             and DuckDB itself read the Parquet files of the runs as they are",
            crate::history::WITHOUT_DUCKDB
        )
    }

    #[cfg(feature = "duckdb")]
    fn ask_duckdb(&self, sql: &str, open: impl FnOnce() -> Result<History>) -> Result<Answer> {
        use crate::history::Database;

        let database = match &self.database {
            Some(path) => Database::open(path)?,
            None => {
                let history = open()?;
                Database::over(history.runs(), history.roots())?
            }
        };
        database.query(sql)
    }
}

/// A number with a fraction in three significant digits, for a reader.
fn rounded(value: &Value) -> Option<String> {
    let number = value.as_f64().filter(|_| value.is_f64())?;
    let zeros = -number.abs().log10().floor();
    let is_small = number != 0.0 && (1.0..=12.0).contains(&zeros);
    Some(if is_small { format!("{number:.*}", zeros as usize + 2) } else { three_digits(number) })
}

/// `30d`, `2026-01-31`.
pub(super) fn since(text: &str) -> Result<Timestamp> {
    if let Ok(date) = text.parse::<Date>() {
        return Ok(date.to_zoned(TimeZone::UTC)?.timestamp());
    }
    let span: Span = text.parse().ok().context("not a time; write 30d, 12h, 6mo or 2026-01-31")?;
    let now = Timestamp::now();
    let since = now.to_zoned(TimeZone::UTC).checked_sub(span)?.timestamp();
    ensure!(since <= now, "this is in the future");
    Ok(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_asked_in_sql() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            query: Query,
        }
        let parse = |arguments: &[&str]| {
            let arguments = [&["query", "--database", "file"], arguments].concat();
            <Cli as clap::Parser>::try_parse_from(arguments).map(|cli| cli.query.sql).map_err(|error| error.kind())
        };
        assert_eq!(parse(&["SELECT 1"]), Ok(Some("SELECT 1".to_owned())));
        assert_eq!(parse(&["--by", "model"]), Err(clap::error::ErrorKind::ArgumentConflict));
    }

    #[test]
    fn a_time_is_a_span_before_now_or_a_day() {
        let hours = |text: &str| (Timestamp::now().duration_since(since(text).unwrap()).as_mins() + 30) / 60;
        assert_eq!([hours("30d"), hours("12h"), hours("2 weeks")], [720, 12, 336]);
        assert!((28 * 24..=31 * 24).contains(&hours("1mo")));
        assert_eq!(since("2026-01-31").unwrap().to_string(), "2026-01-31T00:00:00Z");
        assert!(since("yesterday").is_err() && since("-3d").is_err());
    }

    #[test]
    fn numbers_have_three_digits_and_counts_all_of_theirs() {
        let shown = |value: Value| rounded(&value);
        let texts = [42.517, 0.012_345, 0.000_123_4, 0.0, 12345.6].map(|number| shown(number.into()).unwrap());
        assert_eq!(texts, ["42.5", "0.0123", "0.000123", "0.00", "12346"]);
        assert_eq!(shown(123_456.into()), None);
    }
}
