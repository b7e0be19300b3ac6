//! Everything that a report with charts shows, in one serialisable value: the page and the charts of `--charts` are made of
//! nothing else.

use std::collections::BTreeMap;

use serde::Serialize;

use super::chart::{Chart, Step, charts};
use super::colour::{Colour, colours, places};
use super::columns::{ALL, RecordColumn, STATUS, chosen};
use super::machine_facts::{Fact, facts};
use super::ranking::{Entry, best_of};
use super::selection::{Measured, Shown};
use crate::compare::Noise;
use crate::definition::{Phase, Status};
use crate::run_data::Record;

/// What is known about machines besides their runs.
pub struct Known<'a> {
    /// A line about the smallest change that can be shown on a host.
    pub resolution: &'a dyn Fn(&str) -> String,
    /// How much measurements of the same program differ on a host.
    pub noise: &'a dyn Fn(&str) -> Noise,
}

/// A whole report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Payload {
    pub title: String,
    /// All runs, the newest first, with those that only the trend shows.
    pub runs: Vec<RunRow>,
    pub machines: Vec<MachineRow>,
    /// The columns of the table of cases of which something is known.
    pub columns: Vec<ColumnHead>,
    pub cases: Vec<CaseRow>,
    pub charts: Vec<Chart>,
    /// The colour of each backend.
    pub colours: BTreeMap<String, Colour>,
    /// The colours of series that are no backends, by their order.
    pub places: Vec<Colour>,
}

/// A row of the list of runs.
#[derive(Clone, Debug, Serialize)]
pub struct RunRow {
    pub run_id: String,
    pub started: String,
    pub commit: Option<String>,
    pub is_dirty: Option<bool>,
    pub suite: String,
    pub machine: String,
    pub cases: usize,
    pub measured: usize,
}

/// A machine with the facts about it.
#[derive(Clone, Debug, Serialize)]
pub struct MachineRow {
    pub name: String,
    pub resolution: String,
    pub facts: Vec<Fact>,
}

/// A column of the table of cases.
#[derive(Clone, Debug, Serialize)]
pub struct ColumnHead {
    pub name: &'static str,
    pub title: &'static str,
    pub is_number: bool,
    /// Whether it is shown before a reader chooses.
    pub is_default: bool,
}

/// A cell of that table: a number to sort by with its text, or only a text.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Cell {
    Number(f64, String),
    Text(String),
}

/// A case: the fields by which the page filters it, and its row of the table.
#[derive(Clone, Debug, Serialize)]
pub struct CaseRow {
    pub id: String,
    pub group: String,
    pub series: String,
    pub model: String,
    pub variant: String,
    pub phase: Phase,
    pub backend: String,
    pub device: String,
    pub dtype: &'static str,
    pub batch_size: usize,
    pub machine: String,
    /// Whether the throughput chart counts tokens instead of samples.
    pub is_in_tokens: bool,
    pub is_best: bool,
    /// One per column of the payload.
    pub cells: Vec<Cell>,
}

impl Payload {
    /// The payload of a page about these runs.
    pub fn new<'a>(shown: &Shown<'a>, known: &Known<'_>) -> Self {
        let steps = Step::find(shown, known.noise);
        let ratios = best_of(shown.cases.iter().map(|case| case.record));
        let entry = |(case, ratio_to_best): (&Measured<'a>, Option<f64>)| Entry { record: case.record, ratio_to_best };
        let entries: Vec<Entry<'_>> = shown.cases.iter().zip(ratios).map(entry).collect();
        let columns = chosen(&[ALL.to_owned()], &entries);
        Payload {
            title: title(shown),
            runs: runs(shown),
            machines: machines(shown, known),
            cases: shown
                .cases
                .iter()
                .zip(&entries)
                .map(|(case, entry)| CaseRow {
                    machine: shown.machines[case.machine].name.clone(),
                    is_best: entry.is_best(),
                    cells: columns.iter().map(|column| cell(column, entry)).collect(),
                    ..CaseRow::new(case.record, case.series.clone())
                })
                .collect(),
            columns: columns.iter().map(|column| head(column)).collect(),
            charts: charts(shown, &steps),
            colours: colours(shown.cases.iter().map(|case| case.case.backend.as_str())),
            places: places(),
        }
    }

    /// A payload with one chart of these cases, to be drawn without a page.
    pub fn of_chart(chart: Chart, cases: Vec<CaseRow>) -> Self {
        let colours = colours(cases.iter().map(|case| case.backend.as_str()));
        Payload { cases, charts: vec![chart], colours, places: places(), ..Payload::default() }
    }
}

fn title(shown: &Shown<'_>) -> String {
    let mut suites: Vec<&str> = shown.cases.iter().map(|case| case.record.suite.as_str()).collect();
    suites.sort_unstable();
    suites.dedup();
    let machines: Vec<&str> = shown.machines.iter().map(|machine| machine.name.as_str()).collect();
    format!("Inference benchmarks: suite {} on {}", suites.join(", "), machines.join(", "))
}

fn runs(shown: &Shown<'_>) -> Vec<RunRow> {
    let row = |run: &&super::selection::ReportedRun| {
        let first = run.records.first()?;
        let machine = shown.machines.iter().find(|machine| machine.host_id == first.host_id);
        Some(RunRow {
            run_id: first.run_id.clone(),
            started: first.timestamp.strftime("%Y-%m-%d %H:%M UTC").to_string(),
            commit: first.git_commit.clone(),
            is_dirty: first.git_dirty,
            suite: first.suite.clone(),
            machine: machine.map_or_else(|| first.host_id.clone(), |machine| machine.name.clone()),
            cases: run.records.len(),
            measured: run.records.iter().filter(|record| record.status == Status::Ok).count(),
        })
    };
    shown.runs.iter().rev().filter_map(row).collect()
}

fn machines(shown: &Shown<'_>, known: &Known<'_>) -> Vec<MachineRow> {
    let row = |machine: &super::selection::MachineName<'_>| MachineRow {
        name: machine.name.clone(),
        resolution: (known.resolution)(&machine.host_id),
        facts: facts(&machine.host_id, machine.facts),
    };
    shown.machines.iter().map(row).collect()
}

fn head(column: &RecordColumn) -> ColumnHead {
    ColumnHead {
        name: column.name,
        title: column.header,
        is_number: column.is_number(),
        is_default: column.is_default || column.name == STATUS,
    }
}

fn cell(column: &RecordColumn, entry: &Entry<'_>) -> Cell {
    match column.value(entry) {
        Some(value) => Cell::Number(value, column.text(entry)),
        None => Cell::Text(column.text(entry)),
    }
}

impl CaseRow {
    /// The case of a record that is compared with no other one, without cells.
    pub fn new(record: &Record, series: String) -> Self {
        let case = record.case();
        CaseRow {
            id: case.to_string(),
            group: case.benchmark_id().group,
            series,
            model: record.model.clone(),
            variant: record.variant.clone(),
            phase: record.phase,
            backend: record.backend.clone(),
            device: record.device.clone(),
            dtype: record.dtype.name(),
            batch_size: record.batch_size,
            machine: record.host_id.clone(),
            is_in_tokens: record.tokens_per_second.is_some(),
            is_best: false,
            cells: Vec::new(),
        }
    }
}
