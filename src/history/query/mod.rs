//! Questions to the records of all runs without SQL: which rows, in which groups, with which figures.
//!
//! There are histories of ten thousand runs, so each thread reads a part of them, one file after the other, and keeps
//! only the columns that are asked for.

mod terms;

use std::collections::BTreeSet;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use csv::ByteRecord;
use indexmap::IndexMap;
use serde_json::{Map, Value};

use super::csv::Rows;
use super::run::{RESULTS, Run};
use crate::definition::Status;

pub use terms::{Condition, Figure, RecordColumn, SHORT_NAMES};

/// Columns that say what was measured and where. A figure over rows that differ in one of them mixes different work.
const WORK: [&str; 16] = [
    "model",
    "model_sha256",
    "variant",
    "phase",
    "backend",
    "device",
    "dtype",
    "batch_size",
    "sequence_length",
    "input_shape",
    "new_tokens",
    "timed_samples",
    "boundary",
    "timed_on",
    "threads",
    "host_id",
];

/// The flags of a question. Without groups and without an aggregate, each row is shown.
#[derive(Args, Clone, Debug, Default)]
pub struct Question {
    /// Take only rows for which this holds: COLUMN=VALUE,… (one of the values), COLUMN!=VALUE,… (none of them), `<`,
    /// `<=`, `>`, `>=`, or COLUMN~TEXT (contains the text). May be repeated; then all conditions have to hold
    #[arg(long = "where", value_name = "CONDITION")]
    pub conditions: Vec<Condition>,
    /// Group rows that have the same values in these columns
    #[arg(long = "by", value_name = "COLUMNS", value_delimiter = ',')]
    pub groups: Vec<RecordColumn>,
    /// The columns to show [default: p50]; for a group, the median, or min:COLUMN and max:COLUMN
    #[arg(long = "show", value_name = "COLUMNS", value_delimiter = ',')]
    pub shown: Vec<Figure>,
    /// Sort by this column of the answer, the smallest value first [default: the first column of --show, if rows are
    /// grouped]
    #[arg(long = "sort", value_name = "COLUMN")]
    pub order: Option<String>,
    /// Put the largest value first; without --sort and groups, sort by the first number of --show
    #[arg(long = "descending")]
    pub is_descending: bool,
    /// Show only the first rows of the answer
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<usize>,
}

/// The answer to a query: a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
    /// Notes for the reader, such as how many rows were left out.
    pub notes: Vec<String>,
}

/// The rows that become one row of the answer.
struct Group {
    rows: usize,
    /// The values of each figure, without absent ones.
    cells: Vec<Vec<String>>,
    /// The first row's values in the columns of [`WORK`].
    work: Vec<String>,
}

/// The part of a question that is asked of each row.
#[derive(Clone, Copy)]
struct Reader<'a> {
    conditions: &'a [Condition],
    /// Without keys, each row is a group.
    keys: Option<&'a [RecordColumn]>,
    figures: &'a [Figure],
    work: &'a [RecordColumn],
    /// The column of the status, if rows that are not `ok` are left out.
    right: Option<RecordColumn>,
}

impl Reader<'_> {
    /// Reads the runs of a part of the history.
    fn read(&self, part: usize, runs: &[&Run]) -> Result<Found> {
        let mut found = Found::default();
        runs.iter().try_for_each(|run| run.with_advice(self.read_run(part, run, &mut found)))?;
        Ok(found)
    }

    fn read_run(&self, part: usize, run: &Run, found: &mut Found) -> Result<()> {
        let cells = |columns: &[RecordColumn], row: &ByteRecord| -> Vec<String> {
            columns.iter().map(|column| column.cell(row).to_owned()).collect()
        };
        let keys = self.keys.unwrap_or_default();
        let mut key = vec![String::new(); keys.len()];
        let asked = self.conditions.iter().map(|it| it.column).chain(keys.iter().copied());
        let asked = asked.chain(self.figures.iter().map(|figure| figure.column));
        let numbers: Vec<RecordColumn> = asked.filter(|column| column.is_number()).collect();
        let named = || run.folder().join(RESULTS).display().to_string();
        let bytes = run.results_of_this_version()?;
        std::str::from_utf8(&bytes).with_context(named)?;
        let mut rows = Rows::open(bytes.as_slice()).with_context(named)?;
        while rows.advance().with_context(named)? {
            for column in &numbers {
                let (cell, name) = (column.cell(&rows.row), &column.column().name);
                let is_right = cell.is_empty() || cell.parse::<f64>().is_ok();
                ensure!(is_right, "{}: line {}: {name} is {cell:?}, not a number", named(), rows.line());
            }
            found.seen += 1;
            if !self.conditions.iter().all(|it| it.holds(it.column.cell(&rows.row))) {
                continue;
            }
            if self.right.is_some_and(|status| status.cell(&rows.row) != Status::Ok.name()) {
                found.left_out += 1;
                continue;
            }
            for (text, column) in key.iter_mut().zip(keys) {
                text.clear();
                text.push_str(column.cell(&rows.row));
            }
            if self.keys.is_none() {
                key = vec![format!("{part} {}", found.seen)];
            }
            let place = found.groups.get_index_of(&key).unwrap_or_else(|| {
                let cells_of_figures = vec![Vec::new(); self.figures.len()];
                let group = Group { rows: 0, cells: cells_of_figures, work: cells(self.work, &rows.row) };
                found.groups.insert_full(key.clone(), group).0
            });
            let group = &mut found.groups[place];
            group.rows += 1;
            let differs = self.work.iter().zip(&group.work).filter(|(column, first)| !column.is(first, &rows.row));
            found.differing.extend(differs.map(|(column, _)| column.column().name.as_str()));
            for (kept, figure) in group.cells.iter_mut().zip(self.figures) {
                let cell = figure.column.cell(&rows.row);
                kept.extend((!cell.is_empty()).then(|| cell.to_owned()));
            }
        }
        Ok(())
    }
}

/// The answer from a part of the runs.
#[derive(Default)]
struct Found {
    seen: usize,
    left_out: usize,
    /// Columns of [`WORK`] in which rows of one group differ.
    differing: BTreeSet<&'static str>,
    groups: IndexMap<Vec<String>, Group>,
}

impl Found {
    /// Adds the answer from later runs.
    fn append(&mut self, later: Found, work: &[RecordColumn]) {
        self.seen += later.seen;
        self.left_out += later.left_out;
        self.differing.extend(later.differing);
        for (key, mut group) in later.groups {
            let Some(known) = self.groups.get_mut(&key) else {
                self.groups.insert(key, group);
                continue;
            };
            known.rows += group.rows;
            known.cells.iter_mut().zip(&mut group.cells).for_each(|(known, cells)| known.append(cells));
            let differs = work.iter().zip(known.work.iter().zip(&group.work)).filter(|(_, (one, other))| one != other);
            self.differing.extend(differs.map(|(column, _)| column.column().name.as_str()));
        }
    }
}

impl Question {
    /// Answers the question from the records of these runs. Rows whose status is not `ok` are left out, unless the question names the status.
    ///
    /// # Errors
    /// The records of a run cannot be read, or text is asked for as a figure of a group.
    pub fn ask<'a>(&self, runs: impl IntoIterator<Item = &'a Run>) -> Result<Answer> {
        let is_grouped = !self.groups.is_empty() || self.shown.iter().any(|figure| figure.aggregate.is_some());
        let figures = self.figures(is_grouped)?;
        let columns = |names: &[&str]| names.iter().filter_map(|name| RecordColumn::named(name)).collect::<Vec<_>>();
        let work = if is_grouped { columns(&WORK) } else { Vec::new() };
        let status = RecordColumn::named("status");
        let named = self.conditions.iter().map(|condition| condition.column);
        let named = named.chain(self.groups.iter().copied()).chain(figures.iter().map(|figure| figure.column));
        let right = status.filter(|status| !named.into_iter().any(|column| column == *status));
        let keys = is_grouped.then_some(self.groups.as_slice());
        let reader = Reader { conditions: &self.conditions, keys, figures: &figures, work: &work, right };
        let runs: Vec<&Run> = runs.into_iter().collect();
        let threads = thread::available_parallelism().map_or(1, |count| count.get());
        let parts: Vec<Result<Found>> = thread::scope(|scope| {
            let parts = runs.chunks(runs.len().div_ceil(threads).max(1)).enumerate();
            let parts: Vec<_> = parts.map(|(part, runs)| scope.spawn(move || reader.read(part, runs))).collect();
            parts
                .into_iter()
                .map(|part| part.join().unwrap_or_else(|_| bail!("a thread that reads has failed")))
                .collect()
        });
        let mut found = Found::default();
        for part in parts {
            found.append(part?, &work);
        }
        let Found { seen, left_out, differing, groups } = found;
        let mut answer = Answer { columns: self.headers(is_grouped, &figures), rows: Vec::new(), notes: Vec::new() };
        for (key, group) in &groups {
            let keys = self.groups.iter().zip(key).map(|(column, text)| column.value(text));
            let count = is_grouped.then(|| group.rows.into());
            let values = figures.iter().zip(&group.cells).map(|(figure, cells)| figure.value(cells));
            answer.rows.push(keys.chain(count).chain(values).collect());
        }
        self.sort(&mut answer, is_grouped, &figures)?;
        if !differing.is_empty() {
            let names = Vec::from_iter(differing).join(", ");
            answer.notes.push(format!(
                "rows of one group differ in {names}: --by keeps them apart, and --where chooses among them"
            ));
        }
        if left_out > 0 {
            answer.notes.push(format!("rows whose status is not ok are left out ({left_out}); --by status shows them"));
        }
        if groups.is_empty() && left_out == 0 {
            answer.notes.push(format!("none of the {seen} rows passes"));
        }
        Ok(answer)
    }

    fn figures(&self, is_grouped: bool) -> Result<Vec<Figure>> {
        let usual: &[&str] = if is_grouped { &["p50"] } else { &["timestamp", "case_id", "p50"] };
        let usual = usual.iter().map(|name| name.parse()).collect::<Result<Vec<Figure>>>()?;
        let shown = if self.shown.is_empty() { &usual } else { &self.shown };
        shown.iter().map(|figure| if is_grouped { figure.of_group() } else { Ok(*figure) }).collect()
    }

    fn headers(&self, is_grouped: bool, figures: &[Figure]) -> Vec<String> {
        let keys = self.groups.iter().map(|column| column.column().name.clone());
        let count = is_grouped.then(|| "rows".to_owned());
        keys.chain(count).chain(figures.iter().map(|figure| figure.header())).collect()
    }

    /// Sorts the rows of the answer and keeps the first ones. A row without a value comes last.
    fn sort(&self, answer: &mut Answer, is_grouped: bool, figures: &[Figure]) -> Result<()> {
        let header = match &self.order {
            Some(header) if answer.columns.contains(header) => Some(header.clone()),
            Some(name) => {
                if let Some(name) = name.strip_prefix('-') {
                    bail!("`--sort {name} --descending` puts the largest value first");
                }
                let figure: Figure = name.parse()?;
                let is_of_group = is_grouped && !self.groups.contains(&figure.column);
                Some(if is_of_group { figure.of_group()? } else { figure }.header())
            }
            None if is_grouped => figures.first().map(|figure| figure.header()),
            None if self.is_descending => {
                let number = figures.iter().find(|figure| figure.column.is_number());
                Some(number.context("--descending: no number is shown; name a column to sort by with --sort")?.header())
            }
            None => None,
        };
        if let Some(header) = header {
            let place = answer.columns.iter().position(|column| *column == header);
            let place =
                place.with_context(|| format!("the answer has no column {header} to sort by; --show adds it"))?;
            answer.rows.sort_by(|one, other| {
                let order = match (&one[place], &other[place]) {
                    (Value::Null, Value::Null) => std::cmp::Ordering::Equal,
                    (Value::Null, _) => return std::cmp::Ordering::Greater,
                    (_, Value::Null) => return std::cmp::Ordering::Less,
                    (Value::String(one), Value::String(other)) => one.cmp(other),
                    (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
                    (one, other) => one.as_f64().unwrap_or_default().total_cmp(&other.as_f64().unwrap_or_default()),
                };
                if self.is_descending { order.reverse() } else { order }
            });
        }
        answer.rows.truncate(self.limit.unwrap_or(usize::MAX));
        Ok(())
    }
}

impl Answer {
    /// The rows as texts, for tables and CSV: an absent value is empty.
    pub fn texts(&self) -> impl Iterator<Item = Vec<String>> {
        self.rows.iter().map(|row| row.iter().map(text).collect())
    }

    /// The rows as objects.
    pub fn objects(&self) -> Value {
        let object = |row: &Vec<Value>| self.columns.iter().cloned().zip(row.iter().cloned()).collect::<Map<_, _>>();
        self.rows.iter().map(|row| Value::Object(object(row))).collect()
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use serde_json::json;

    use super::*;
    use crate::definition::Case;
    use crate::history::write_records;
    use crate::run_data::{Record, SCHEMA_VERSION};

    fn record(backend: &str, batch_size: usize, p50: Option<f64>) -> Record {
        let run = Record { run_id: "r".into(), host_id: "h".into(), git_dirty: Some(true), ..Record::default() };
        let of_case = run.about(&Case::new("m", backend, batch_size));
        Record { latency_p50_ms: p50, iterations: p50.map(|_| 7), ..of_case }
    }

    fn ask(records: &[Record], question: &Question) -> Result<Answer> {
        let folder = tempfile::tempdir().unwrap();
        write_records(records, fs_err::File::create(folder.path().join(RESULTS)).unwrap()).unwrap();
        question.ask([&Run::in_folder(folder.path())])
    }

    fn parsed<T: FromStr<Err = anyhow::Error>>(texts: &[&str]) -> Vec<T> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn groups_have_medians_the_smallest_first_and_say_what_they_mix() {
        let times = [("ort", 4.0), ("tch", 3.0), ("ort", 1.0), ("ort", 9.0)];
        let mut records = Vec::from(times.map(|(backend, ms)| record(backend, 1, Some(ms))));
        let question = Question {
            groups: parsed(&["backend"]),
            shown: parsed(&["p50", "min:p50", "max:latency_p50_ms", "calls"]),
            ..Question::default()
        };
        let answer = ask(&records, &question).unwrap();
        let headers = "backend rows median_latency_p50_ms min_latency_p50_ms max_latency_p50_ms median_iterations";
        assert_eq!(answer.columns.join(" "), headers);
        assert_eq!(json!(answer.rows), json!([["tch", 1, 3.0, 3.0, 3.0, 7], ["ort", 3, 4.0, 1.0, 9.0, 7]]));
        assert_eq!(answer.notes, Vec::<String>::new());
        records[2] = record("ort", 8, Some(1.0));
        assert!(ask(&records, &question).unwrap().notes[0].starts_with("rows of one group differ in batch_size: "));
        let (order, limit) = (Some("max:p50".to_owned()), Some(1));
        let largest = ask(&records, &Question { order, is_descending: true, limit, ..question.clone() }).unwrap();
        assert_eq!((largest.rows.len(), &largest.rows[0][0]), (1, &json!("ort")));
        let by_rows = ask(&records, &Question { order: Some("rows".into()), ..question.clone() }).unwrap();
        assert_eq!(by_rows.rows[0][0], json!("tch"));
        let order = Some("p99".to_owned());
        assert!(ask(&records, &Question { order, ..question }).unwrap_err().to_string().contains("--show adds it"));
    }

    #[test]
    fn what_is_not_right_is_left_out_unless_it_is_asked_for() {
        let mut wrong = record("tch", 1, Some(0.1));
        wrong.status = Status::WrongOutput;
        let records = [record("ort", 1, Some(4.0)), wrong];
        let rows = |question: Question| ask(&records, &question).unwrap();
        let usual = rows(Question { shown: parsed(&["backend"]), ..Question::default() });
        assert_eq!(json!(usual.rows), json!([["ort"]]));
        assert!(usual.notes[0].contains("left out (1)"), "{:?}", usual.notes);
        let named = rows(Question { groups: parsed(&["status"]), ..Question::default() });
        assert_eq!(json!(named.rows), json!([["wrong-output", 1, 0.1], ["ok", 1, 4.0]]));
        let nothing = rows(Question { conditions: parsed(&["backend=x"]), ..Question::default() });
        assert_eq!((nothing.rows.len(), nothing.notes), (0, vec!["none of the 2 rows passes".to_owned()]));
    }

    #[test]
    fn rows_are_sorted_by_a_column_or_by_the_first_number_that_is_shown() {
        let records = [record("ort", 1, Some(4.0)), record("tch", 1, Some(9.0)), record("ort", 8, Some(1.0))];
        let descending = |shown: &[&str]| {
            ask(&records, &Question { shown: parsed(shown), is_descending: true, ..Question::default() })
        };
        let dirty = |git_dirty| Record { git_dirty, ..record("ort", 1, None) };
        let order = Question { shown: parsed(&["git_dirty"]), order: Some("git_dirty".into()), ..Question::default() };
        let sorted = ask(&[dirty(Some(true)), dirty(None), dirty(Some(false))], &order).unwrap();
        assert_eq!(json!(sorted.rows), json!([[false], [true], [null]]));
        let rows = descending(&["backend", "p50"]).unwrap().rows;
        assert_eq!(json!(rows), json!([["tch", 9.0], ["ort", 4.0], ["ort", 1.0]]));
        assert!(descending(&["backend"]).unwrap_err().to_string().contains("--sort"));
        let minus = ask(&records, &Question { order: Some("-p50".into()), ..Question::default() }).unwrap_err();
        assert!(minus.to_string().contains("--sort p50 --descending"), "{minus}");
    }

    #[test]
    fn what_cannot_be_read_is_named_by_its_file_and_line_before_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = Vec::new();
        write_records(&[record("ort", 1, Some(4.25))], &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let refused = |from: &str, to: &str, question: &Question| {
            assert!(text.contains(from), "{text}");
            fs_err::write(folder.path().join(RESULTS), text.replace(from, to)).unwrap();
            question.ask([&Run::in_folder(folder.path())]).unwrap_err().to_string()
        };
        let newer = refused(&format!(",{SCHEMA_VERSION},h,"), ",99,h,", &Question::default());
        assert!(newer.contains("results.csv: line 2: schema version 99 is newer"), "{newer}");
        assert!(newer.ends_with("; update inferbench to read it"), "{newer}");
        let filtered = Question { conditions: parsed(&["p50<5"]), shown: parsed(&["model"]), ..Question::default() };
        for question in [Question::default(), filtered] {
            let wrong = refused(",4.25,", ",abc,", &question);
            let reason = "results.csv: line 2: latency_p50_ms is \"abc\", not a number; convert";
            assert!(wrong.contains(reason), "{wrong}");
        }
    }

    #[test]
    fn text_is_no_figure_of_a_group_but_for_its_ends() {
        let records = [record("ort", 1, Some(4.0)), record("tch", 1, Some(2.0))];
        let question = |shown: &[&str]| Question {
            groups: parsed(&["git_dirty", "accuracy"]),
            shown: parsed(shown),
            ..Question::default()
        };
        let ends = ask(&records, &question(&["min:backend", "max:backend"])).unwrap();
        assert_eq!(json!(ends.rows), json!([[true, null, 2, "ort", "tch"]]));
        assert!(ask(&records, &question(&["backend"])).unwrap_err().to_string().contains("add it to --by"));
        assert!("median:backend".parse::<Figure>().is_err() && "mode:p50".parse::<Figure>().is_err());
    }
}
