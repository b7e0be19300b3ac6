//! Which cases are compared with which: a table for the same work on the same machine, at one batch size.

use std::collections::BTreeMap;

use super::choice::{choose, compare_times, mark_front};
use super::output::{notes, sentence};
use super::repeated::{Repeated, samples_of};
use super::{Differences, Measure, Options, Recommendation, Row, VariantTable, own_memory, rate};
use crate::definition::{Boundary, Dtype, ORIGINAL, Phase, Status, TimedOn};
use crate::run_data::{Metric, Record};

/// Host, inputs, boundary, phase, sequence length and batch size.
type Work<'a> = (&'a str, TimedOn, Boundary, Phase, Option<usize>, usize);

/// The tables in the order of host, inputs, boundary, phase, sequence length and batch size.
pub fn tables(cases: Vec<Repeated<'_>>, metrics: &[Metric], options: &Options) -> Vec<VariantTable> {
    let mut works: BTreeMap<Work<'_>, Vec<Repeated<'_>>> = BTreeMap::new();
    for case in cases {
        let Record { host_id, timed_on, boundary, phase, sequence_length, batch_size, .. } = case.newest;
        works.entry((host_id, *timed_on, *boundary, *phase, *sequence_length, *batch_size)).or_default().push(case);
    }
    works.into_values().filter_map(|cases| table(&cases, metrics, options)).collect()
}

/// The table of these cases. Returns `None` if there is no case.
fn table(cases: &[Repeated<'_>], metrics: &[Metric], options: &Options) -> Option<VariantTable> {
    let first = cases.first()?.newest;
    let samples = samples_of(cases);
    let records: Vec<Record> = cases.iter().map(|case| case.pooled(samples)).collect();
    // What is known of other samples cannot be compared.
    let of_record = |record: &Record| match record.data_source {
        Some(_) => Metric::all_of(metrics, record).into_iter().cloned().collect(),
        None => Vec::new(),
    };
    let metrics: Vec<Vec<Metric>> = records.iter().map(of_record).collect();
    let measure = Measure::of(records.iter().zip(&metrics));
    let originals = originals(&records);
    let fastest = originals.first().copied();
    let row = |((case, record), metrics): ((&Repeated<'_>, &Record), &Vec<Metric>)| {
        let is_original = record.variant == ORIGINAL && fastest.is_some_and(|fastest| fastest.dtype == record.dtype);
        // The original on the row's own backend and device, or else the fastest.
        let is_there = |other: &&&Record| (&other.backend, &other.device) == (&record.backend, &record.device);
        let original = originals.iter().find(is_there).copied().or(fastest);
        let original = original.filter(|_| record.status == Status::Ok);
        Row {
            quality: measure.evaluate(record, metrics, is_original, options.accuracy_loss),
            differences: original.map(|original| Differences::new(record, original)),
            change: None,
            verdict: None,
            is_baseline: fastest.is_some_and(|fastest| std::ptr::eq(fastest, record)),
            is_on_front: false,
            is_recommended: false,
            record: record.clone(),
            metrics: metrics.clone(),
            run_ids: case.run_ids(),
        }
    };
    let mut rows: Vec<Row> = cases.iter().zip(&records).zip(&metrics).map(row).collect();
    let (floor, runs) = compare_times(cases, &mut rows, options);
    mark_front(&mut rows, measure);
    let chosen = choose(&rows, options.goal, measure, floor);
    if let Ok(index) = chosen {
        rows[index].is_recommended = true;
    }
    let recommendation = Recommendation {
        case_id: chosen.as_ref().ok().map(|index| rows[*index].record.case_id.clone()),
        sentence: match &chosen {
            Ok(index) => sentence(&rows[*index], &rows, measure, options.goal),
            Err(why) => format!("Nothing is recommended: {why}."),
        },
    };
    sort(&mut rows);
    let mut table = VariantTable {
        model: options.model.clone(),
        host_id: first.host_id.clone(),
        phase: first.phase,
        sequence_length: first.sequence_length,
        boundary: first.boundary,
        timed_on: first.timed_on,
        batch_size: first.batch_size,
        goal: options.goal,
        accuracy_loss: options.accuracy_loss,
        floor,
        runs,
        measure,
        data_source: samples.map(str::to_owned),
        recommendation,
        rows,
        notes: Vec::new(),
    };
    table.notes = notes(&table);
    Some(table)
}

/// The originals first, and last the rows without figures; in each part the fastest first.
fn sort(rows: &mut [Row]) {
    let part = |row: &Row| (!row.is_measured(), row.record.variant != ORIGINAL);
    let latency = |row: &Row| row.record.latency_p50_ms.unwrap_or(f64::INFINITY);
    rows.sort_by(|one, other| part(one).cmp(&part(other)).then(latency(one).total_cmp(&latency(other))));
}

impl Differences {
    fn new(record: &Record, original: &Record) -> Self {
        let of = |figure: fn(&Record) -> Option<f64>| {
            let (own, original) = figure(record).zip(figure(original))?;
            (original > 0.0 && original.is_finite() && own.is_finite()).then(|| own / original)
        };
        Differences {
            original: original.case().to_string(),
            model_size: of(|record| record.model_size_mb),
            latency_p50: of(|record| record.latency_p50_ms),
            throughput: of(rate),
            memory: of(own_memory),
        }
    }
}

/// The originals that others are compared with, the fastest first: those that were measured and are not wrong, in f32, or
/// else in the dtype that the model itself has.
fn originals(records: &[Record]) -> Vec<&Record> {
    let is_right = |record: &&Record| record.status == Status::Ok && record.verified != Some(false);
    let mut originals: Vec<&Record> =
        records.iter().filter(is_right).filter(|record| record.variant == ORIGINAL).collect();
    let widest = Dtype::ALL.into_iter().find(|dtype| originals.iter().any(|record| record.dtype == *dtype));
    originals.retain(|record| Some(record.dtype) == widest);
    let latency = |record: &Record| record.latency_p50_ms.unwrap_or(f64::INFINITY);
    originals.sort_by(|one, other| latency(one).total_cmp(&latency(other)));
    originals
}
