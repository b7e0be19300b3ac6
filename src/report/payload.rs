//! Everything that a report with charts shows, in one serialisable value: the page's program makes all charts of it, in a
//! browser and for `--charts`. The program alone reads the fields, so they are named where they are made.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::colour::{Colour, colours, places};
use super::columns::{ALL, RecordColumn, STATUS, chosen, peak_memory};
use super::compatibility::{RULE, Standing};
use super::machine_facts::facts;
use super::ranking::{Entry, best_of};
use super::selection::{MachineName, Measured, ReportedRun, Shown};
use super::trend::{TrendPoint, trend};
use crate::compare::Noise;
use crate::definition::Status;

/// The columns of records that the program reads; cells of the table have the others as text.
const COLUMNS: [&str; 28] = [
    "backend",
    "model",
    "variant",
    "family",
    "modality",
    "phase",
    "device",
    "dtype",
    "batch_size",
    "status",
    "message",
    "verified",
    "max_rel_error",
    "latency_p50_ms",
    "latency_p50_upper_ms",
    "latency_p90_ms",
    "latency_p90_upper_ms",
    "latency_p95_ms",
    "latency_p95_upper_ms",
    "latency_p99_ms",
    "latency_p99_upper_ms",
    "throughput_ips",
    "throughput_lower_ips",
    "throughput_upper_ips",
    "tokens_per_second",
    "model_size_mb",
    "accuracy",
    "output_cosine",
];

/// What is known about machines besides their runs.
pub struct Known<'a> {
    /// A line about the smallest change that can be shown on a host.
    pub resolution: &'a dyn Fn(&str) -> String,
    /// How much measurements of the same program differ on a host.
    pub noise: &'a dyn Fn(&str) -> Noise,
}

/// A whole report.
#[derive(Clone, Debug, Serialize)]
pub struct Payload {
    pub title: String,
    /// All runs, the newest first, with those that only the trend shows.
    runs: Vec<Value>,
    machines: Vec<Value>,
    /// The columns of the table of cases of which something is known.
    columns: Vec<Value>,
    /// Records with what follows from all of them, and a cell for each column.
    cases: Vec<Value>,
    /// How well each model works on each backend, device and dtype, and the rule of the levels.
    matrix: Vec<Value>,
    rule: &'static str,
    /// All measurements of the cases, run by run.
    trend: Vec<TrendPoint>,
    /// The colour of each backend.
    colours: BTreeMap<String, Colour>,
    /// The colours of series that are no backends, by their order.
    places: Vec<Colour>,
}

impl Payload {
    /// The payload of a page about these runs.
    pub fn new<'a>(shown: &Shown<'a>, known: &Known<'_>) -> Self {
        let ratios = best_of(shown.cases.iter().map(|case| case.record));
        let entry = |(case, ratio_to_best): (&Measured<'a>, Option<f64>)| Entry { record: case.record, ratio_to_best };
        let entries: Vec<Entry<'_>> = shown.cases.iter().zip(ratios).map(entry).collect();
        let columns = chosen(&[ALL.to_owned()], &entries);
        let machine = |machine: &MachineName<'_>| {
            json!({
                "name": machine.name,
                "resolution": (known.resolution)(&machine.host_id),
                "facts": facts(&machine.host_id, machine.facts),
            })
        };
        let column = |column: &&RecordColumn| {
            json!({
                "name": column.name,
                "title": column.header,
                "is_number": column.is_number,
                // Whether it is shown before a reader chooses.
                "is_default": column.is_default || column.name == STATUS,
            })
        };
        let case = |(case, entry): (&Measured<'a>, &Entry<'_>)| case_row(shown, case, entry, &columns);
        Payload {
            title: title(shown),
            runs: shown.runs.iter().rev().filter_map(|run| run_row(shown, run)).collect(),
            machines: shown.machines.iter().map(machine).collect(),
            cases: shown.cases.iter().zip(&entries).map(case).collect(),
            columns: columns.iter().map(column).collect(),
            matrix: matrix(shown, &entries),
            rule: RULE,
            trend: trend(shown, known.noise),
            colours: colours(shown.cases.iter().map(|case| case.case.backend.as_str())),
            places: places(),
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

fn run_row(shown: &Shown<'_>, run: &ReportedRun) -> Option<Value> {
    let first = run.records.first()?;
    let machine = shown.machines.iter().find(|machine| machine.host_id == first.host_id);
    Some(json!({
        "run_id": first.run_id,
        "started": first.timestamp.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        "commit": first.git_commit,
        "is_dirty": first.git_dirty,
        "suite": first.suite,
        "machine": machine.map_or(&first.host_id, |machine| &machine.name),
        "cases": run.records.len(),
        "measured": run.records.iter().filter(|record| record.status == Status::Ok).count(),
    }))
}

/// The known columns of the record, and what the record alone does not say.
fn case_row(shown: &Shown<'_>, case: &Measured<'_>, entry: &Entry<'_>, columns: &[&RecordColumn]) -> Value {
    // A number to sort by with its text, or only a text.
    let cell = |column: &&RecordColumn| match column.value(entry) {
        Some(value) => json!([value, column.text(entry)]),
        None => column.text(entry).into(),
    };
    let others = json!({
        "id": case.case.to_string(),
        "group": case.group,
        "machine": shown.machines[case.machine].name,
        "ratio_to_best": entry.ratio_to_best,
        "peak_memory_mb": peak_memory(case.record),
        // Pairs of a fraction of the calls and milliseconds; empty if they were not kept.
        "quantiles_ms": case.distribution.map(|kept| kept.quantiles_ms.as_slice()).unwrap_or_default(),
        "cells": columns.iter().map(cell).collect::<Vec<_>>(),
    });
    let record = json!(case.record);
    let known = COLUMNS.iter().map(|name| ((*name).to_owned(), record[*name].clone()));
    let mut row: Map<String, Value> = known.filter(|(_, value)| !value.is_null()).collect();
    if let Value::Object(others) = others {
        row.extend(others);
    }
    row.into()
}

/// The cases of each model on each configuration and machine, with the level, or the status if no case is right.
fn matrix(shown: &Shown<'_>, entries: &[Entry<'_>]) -> Vec<Value> {
    let mut members: IndexMap<(&str, String, usize), Vec<usize>> = IndexMap::new();
    for (index, case) in shown.cases.iter().enumerate() {
        members.entry((&case.group, case.case.benchmark_id().function, case.machine)).or_default().push(index);
    }
    let cell = |cases: Vec<usize>| {
        let standing = Standing::of(&cases.iter().map(|index| entries[*index]).collect::<Vec<_>>());
        let status = standing.status.filter(|_| standing.right == 0);
        let kind = status.map_or_else(|| standing.level.to_string(), |status| status.to_string());
        json!({ "cases": cases, "kind": kind, "text": standing.short_text() })
    };
    members.into_values().map(cell).collect()
}
