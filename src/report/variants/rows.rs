//! Which cases are compared with which: a table for the same work on the same machine, at one batch size.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::choice::{Times, choose, mark_front};
use super::output::{notes, sentence};
use super::quality::agreement_interval;
use super::repeated::{Repeated, samples_of};
use super::{Differences, Measure, Options, OtherBatchSize, Recommendation, Row, VariantTable, own_memory, rate};
use crate::definition::{Boundary, Dtype, ORIGINAL, Phase, Status};
use crate::run_data::Record;

/// Tables of forward passes if there are any, and otherwise of every phase. There is at least one case.
pub fn tables(cases: Vec<Repeated<'_>>, options: &Options) -> Vec<VariantTable> {
    let has_forward = cases.iter().any(|case| case.newest.phase == Phase::Forward);
    let mut works: BTreeMap<(&str, &str, Phase, Option<usize>), Vec<Repeated<'_>>> = BTreeMap::new();
    for case in cases {
        let record = case.newest;
        let work = (record.host_id.as_str(), record.boundary.name(), record.phase, record.sequence_length);
        if !has_forward || record.phase == Phase::Forward {
            works.entry(work).or_default().push(case);
        }
    }
    works.into_values().map(|cases| table(&cases, options)).collect()
}

/// What tells rows of a table apart: variant, backend, device and dtype.
type Identity<'a> = (&'a str, &'a str, &'a str, Dtype);

fn identity(record: &Record) -> Identity<'_> {
    (&record.variant, &record.backend, &record.device, record.dtype)
}

fn table(cases: &[Repeated<'_>], options: &Options) -> VariantTable {
    let samples = samples_of(cases);
    let measured_at = |batch_size: usize| {
        let measured = cases.iter().map(|case| case.newest).filter(|record| record.status == Status::Ok);
        measured.filter(|record| record.batch_size == batch_size).map(identity).collect::<BTreeSet<_>>()
    };
    let batch_sizes: BTreeSet<usize> = cases.iter().map(|case| case.newest.batch_size).collect();
    // The smallest of those at which most were measured: `max_by_key` takes the last.
    let batch_size = batch_sizes.iter().copied().rev().max_by_key(|batch| measured_at(*batch).len()).unwrap_or(1);
    let at = |batch_size: usize| {
        let cases: Vec<&Repeated<'_>> = cases.iter().filter(|case| case.newest.batch_size == batch_size).collect();
        one_batch_size(&cases, samples, options)
    };
    let table = at(batch_size);
    let other = |batch_size: usize| {
        let other = at(batch_size);
        let is_same_choice = choice(&other.rows) == choice(&table.rows);
        OtherBatchSize { batch_size, recommendation: other.recommendation, is_same_choice }
    };
    let other_batch_sizes = batch_sizes.into_iter().filter(|other| *other != batch_size).map(other).collect();
    let notes = notes(&table, cases, options);
    VariantTable { other_batch_sizes, notes, ..table }
}

fn choice(rows: &[Row]) -> Option<Identity<'_>> {
    rows.iter().find(|row| row.is_recommended).map(|row| identity(&row.record))
}

/// The table of one batch size, without its notes.
fn one_batch_size(cases: &[&Repeated<'_>], samples: Option<&str>, options: &Options) -> VariantTable {
    let pooled: Vec<(&Repeated<'_>, Record)> = cases.iter().map(|case| (*case, case.pooled(samples))).collect();
    let measure = Measure::of(pooled.iter().map(|(_, record)| record));
    let originals = Originals::among(pooled.iter().map(|(_, record)| record));
    let baseline = originals.as_ref().and_then(Originals::fastest);
    let is_baseline = |record: &Record| baseline.is_some_and(|baseline| std::ptr::eq(baseline, record));
    let base = pooled.iter().find(|(_, record)| is_baseline(record)).map(|(case, _)| *case);
    let times = Times::new(cases, base, options);
    let row = |&(case, ref record): &(&Repeated<'_>, Record)| {
        let is_original = originals.as_ref().is_some_and(|originals| originals.has(record));
        let original = originals.as_ref().filter(|_| record.status == Status::Ok);
        let agreement = agreement_interval(record);
        Row {
            quality: measure.evaluate(record, is_original, options.loss()),
            agreement_lower: agreement.map(|(lower, _)| lower),
            agreement_upper: agreement.map(|(_, upper)| upper),
            differences: original.and_then(|it| it.of(record)).map(|original| Differences::new(record, original)),
            change: None,
            verdict: None,
            is_baseline: is_baseline(record),
            is_on_front: false,
            is_recommended: false,
            record: record.clone(),
            run_ids: case.run_ids(),
        }
    };
    let mut rows: Vec<Row> = pooled.iter().map(row).collect();
    times.compare(cases, &mut rows);
    mark_front(&mut rows, measure);
    let chosen = choose(&rows, options.goal, measure, times.floor);
    if let Ok(index) = chosen {
        rows[index].is_recommended = true;
    }
    sort(&mut rows);
    let first = cases.first().map(|case| case.newest);
    let mut table = VariantTable {
        model: options.model.clone(),
        host_id: first.map(|record| record.host_id.clone()).unwrap_or_default(),
        phase: first.map(|record| record.phase).unwrap_or_default(),
        sequence_length: first.and_then(|record| record.sequence_length),
        boundary: first.map_or(Boundary::Compute, |record| record.boundary),
        batch_size: first.map_or(1, |record| record.batch_size),
        goal: options.goal,
        accuracy_loss: options.loss(),
        floor: times.floor,
        runs: times.runs,
        measure,
        data_source: samples.map(str::to_owned),
        recommendation: Recommendation { sentence: String::new(), case_id: None },
        rows,
        other_batch_sizes: Vec::new(),
        notes: Vec::new(),
    };
    let recommended = table.rows.iter().find(|row| row.is_recommended);
    table.recommendation = Recommendation {
        case_id: recommended.map(|row| row.record.case_id.clone()),
        sentence: sentence(&table, recommended.ok_or_else(|| chosen.err().unwrap_or_default())),
    };
    table
}

/// The original first, then the variant with the fastest row; the fastest row of each first, and last the rows without figures.
fn sort(rows: &mut [Row]) {
    let latency = |row: &Row| match row.record.status {
        Status::Ok => row.record.latency_p50_ms.unwrap_or(f64::MAX),
        _ => f64::INFINITY,
    };
    let mut fastest: HashMap<String, f64> = HashMap::new();
    for row in rows.iter() {
        let known = fastest.entry(row.record.variant.clone()).or_insert(f64::INFINITY);
        *known = known.min(latency(row));
    }
    rows.sort_by(|one, other| {
        let kind = |row: &Row| (!row.is_measured(), row.record.variant != ORIGINAL);
        kind(one)
            .cmp(&kind(other))
            .then(fastest[&one.record.variant].total_cmp(&fastest[&other.record.variant]))
            .then(one.record.variant.cmp(&other.record.variant))
            .then(latency(one).total_cmp(&latency(other)))
    });
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

/// The originals that others are compared with: those that were measured and are not wrong, in f32, or else in the dtype
/// that the model itself has. The fastest comes first.
struct Originals<'a>(Vec<&'a Record>);

impl<'a> Originals<'a> {
    /// Returns `None` if no original was measured.
    fn among(records: impl Iterator<Item = &'a Record> + Clone) -> Option<Self> {
        let is_right = |record: &&Record| record.status == Status::Ok && record.verified != Some(false);
        Dtype::ALL.into_iter().find_map(|dtype| {
            let originals = records.clone().filter(|record| record.variant == ORIGINAL && record.dtype == dtype);
            let mut measured: Vec<&Record> = originals.filter(is_right).collect();
            let latency = |record: &Record| record.latency_p50_ms.unwrap_or(f64::INFINITY);
            measured.sort_by(|one, other| latency(one).total_cmp(&latency(other)));
            (!measured.is_empty()).then_some(Originals(measured))
        })
    }

    fn fastest(&self) -> Option<&'a Record> {
        self.0.first().copied()
    }

    /// The original on a row's own backend and device, or else the fastest.
    fn of(&self, record: &Record) -> Option<&'a Record> {
        let is_there = |other: &&&Record| (&other.backend, &other.device) == (&record.backend, &record.device);
        self.0.iter().find(is_there).copied().or_else(|| self.fastest())
    }

    /// Whether a record is one that others are compared with.
    fn has(&self, record: &Record) -> bool {
        record.variant == ORIGINAL && self.0.first().is_some_and(|first| first.dtype == record.dtype)
    }
}
