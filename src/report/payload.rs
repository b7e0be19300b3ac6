//! All that a report with charts shows, in one serialisable value: the page and the figures are made of nothing else.

use std::collections::BTreeMap;

use serde::Serialize;

use super::chart::{Chart, Step, charts};
use super::colour::{Colour, PLACES, colours};
use super::machine_facts::{Fact, facts};
use super::ranking::best_of;
use super::selection::{Measured, Shown};
use crate::compare::Noise;
use crate::definition::{Phase, Status};
use crate::record::Record;

/// What is known of machines beside their runs.
pub struct Known<'a> {
    /// The smallest change that can be shown on a host, in a line.
    pub resolution: &'a dyn Fn(&str) -> String,
    /// How much the same program differs from itself on a host.
    pub noise: &'a dyn Fn(&str) -> Noise,
}

/// A whole report.
#[derive(Clone, Debug, Serialize)]
pub struct Payload {
    pub title: String,
    /// The newest first; those that are looked at for the trend only are among them.
    pub runs: Vec<RunRow>,
    pub machines: Vec<MachineRow>,
    pub cases: Vec<CaseRow>,
    pub charts: Vec<Chart>,
    /// By backend.
    pub colours: BTreeMap<String, Colour>,
    /// Of what is no backend, by its order.
    pub places: [Colour; 6],
}

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

#[derive(Clone, Debug, Serialize)]
pub struct MachineRow {
    pub name: String,
    pub resolution: String,
    pub facts: Vec<Fact>,
}

/// A case: what it is filtered by, and its row of the table.
#[derive(Clone, Debug, Serialize)]
pub struct CaseRow {
    pub id: String,
    pub group: String,
    pub series: String,
    pub model: String,
    pub variant: String,
    pub phase: Phase,
    pub sequence_length: Option<usize>,
    pub family: String,
    pub backend: String,
    pub device: String,
    pub dtype: &'static str,
    pub batch_size: usize,
    pub machine: String,
    pub run_id: String,
    pub status: Status,
    pub message: Option<String>,
    pub latency_p50_ms: Option<f64>,
    pub latency_p99_ms: Option<f64>,
    pub latency_p99_upper_ms: Option<f64>,
    pub throughput_ips: Option<f64>,
    pub tokens_per_second: Option<f64>,
    pub memory_mb: Option<f64>,
    /// p50 over that of the fastest at the same work on the same machine.
    pub ratio_to_best: Option<f64>,
    pub iterations: Option<usize>,
}

impl Payload {
    pub fn new(shown: &Shown<'_>, known: &Known<'_>) -> Self {
        let steps = Step::find(shown, known.noise);
        let best = best_of(shown.cases.iter().map(|case| case.record));
        Payload {
            title: title(shown),
            runs: runs(shown),
            machines: machines(shown, known),
            cases: shown
                .cases
                .iter()
                .zip(best)
                .map(|(case, ratio)| row(case, ratio, &shown.machines[case.machine].name))
                .collect(),
            charts: charts(shown, &steps),
            colours: colours(shown.cases.iter().map(|case| case.case.backend.as_str())),
            places: PLACES,
        }
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

fn row(case: &Measured<'_>, ratio_to_best: Option<f64>, machine: &str) -> CaseRow {
    CaseRow { machine: machine.to_owned(), ratio_to_best, ..CaseRow::new(case.record, case.series.clone()) }
}

impl CaseRow {
    /// Of a record that is compared with no other one.
    pub fn new(record: &Record, series: String) -> Self {
        let case = record.case();
        CaseRow {
            id: case.to_string(),
            group: case.benchmark_id().group,
            series,
            model: record.model.clone(),
            variant: record.variant.clone(),
            phase: record.phase,
            sequence_length: record.sequence_length,
            family: record.family.clone(),
            backend: record.backend.clone(),
            device: record.device.clone(),
            dtype: record.dtype.name(),
            batch_size: record.batch_size,
            machine: record.host_id.clone(),
            run_id: record.run_id.clone(),
            status: record.status,
            message: record.message.clone(),
            latency_p50_ms: record.latency_p50_ms,
            latency_p99_ms: record.latency_p99_ms,
            latency_p99_upper_ms: record.latency_p99_upper_ms,
            throughput_ips: record.throughput_ips,
            tokens_per_second: record.tokens_per_second,
            memory_mb: record.memory_mb,
            ratio_to_best: None,
            iterations: record.iterations,
        }
    }
}
