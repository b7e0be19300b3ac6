//! Which cases are compared with which: a table for the same work on the same machine, at one batch size.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::advice::by_kind;
use super::choice::{Spread, choose, compare_times, goal_of_times, mark_front};
use super::limits::Losses;
use super::quality::{compared_with, is_compared};
use super::repeated::{Repeated, samples_of};
use super::variants_output::{notes, sentence};
use super::{
    Differences, Excluded, Measure, Options, Quality, Recommendation, Row, UnderLoad, VariantTable, own_memory, rate,
};
use crate::definition::{Case, Dtype, ORIGINAL, Phase, Status};
use crate::report::columns::has_own_memory;
use crate::run_data::{Metric, Record};

/// The tables in the order of host, inputs, boundary, phase, sequence length, shape and batch size.
pub fn tables(cases: Vec<Repeated<'_>>, metrics: &[Metric], options: &Options) -> Vec<VariantTable> {
    let mut works: BTreeMap<(&str, usize, usize), Vec<Repeated<'_>>> = BTreeMap::new();
    for (place, (_, cases)) in by_kind(cases).into_iter().enumerate() {
        for case in cases {
            works.entry((&case.newest.host_id, place, case.newest.batch_size)).or_default().push(case);
        }
    }
    works.into_values().filter_map(|cases| table(&cases, metrics, options)).collect()
}

/// Cases that do the same work, as rows in the order of the cases, and the one to use.
pub struct Candidates<'a> {
    pub rows: Vec<Row>,
    pub measure: Measure,
    /// The samples that the answers are evaluated with.
    pub samples: Option<&'a str>,
    pub spread: Spread,
    /// The index of the row to use, or why nothing can be recommended.
    pub chosen: Result<usize, String>,
}

/// Evaluates these cases, and chooses one.
pub fn candidates<'a>(cases: &[Repeated<'a>], all_metrics: &[Metric], options: &Options) -> Candidates<'a> {
    let samples = samples_of(cases);
    let records: Vec<Record> = cases.iter().map(|case| case.pooled(samples)).collect();
    // Metrics over other samples cannot be compared.
    let of_record = |record: &Record| match record.data_source {
        Some(_) => Metric::all_of(all_metrics, record).into_iter().cloned().collect(),
        None => Vec::new(),
    };
    let metrics: Vec<Vec<Metric>> = records.iter().map(of_record).collect();
    let measure = Measure::of(records.iter().zip(&metrics));
    let originals = originals(&records);
    let fastest = originals.first().copied();
    let of_answers = cases.iter().zip(&records).zip(&metrics);
    let of_answers: Vec<Cow<'_, [Metric]>> =
        of_answers.map(|((case, record), own)| of_decoding(case, record, own, all_metrics)).collect();
    // An original counts as compared if a variant was compared with it.
    let measured = records.iter().zip(&of_answers).filter(|(it, _)| it.status == Status::Ok);
    let compared_with: BTreeSet<&str> = measured.flat_map(|(it, answers)| compared_with(it, answers)).collect();
    let row = |(index, case): (usize, &Repeated<'_>)| {
        let (record, metrics, answers) = (&records[index], &metrics[index], &of_answers[index]);
        let is_original = record.variant == ORIGINAL && fastest.is_some_and(|fastest| fastest.dtype == record.dtype);
        // The original on the row's own backend and device, or else the fastest.
        let is_there = |other: &&&Record| (&other.backend, &other.device) == (&record.backend, &record.device);
        let original = originals.iter().find(is_there).copied().or(fastest);
        let original = original.filter(|_| record.status == Status::Ok);
        let under_load = UnderLoad::of(&options.loads, record, &options.limits);
        let losses = Losses::of(answers, is_original);
        let beyond = options.limits.excluding(record, losses, under_load.as_ref());
        let is_original_of_one =
            || [record.case_id.clone(), id_of_decoding(record)].iter().any(|id| compared_with.contains(id.as_str()));
        let has_compared = is_compared(record, answers) || is_original_of_one();
        let uncompared = (!has_compared).then(|| Excluded::uncompared(beyond.is_none()));
        let judged = measure.evaluate(record, metrics, is_original, options.accuracy_loss);
        let is_settled = matches!(judged, Quality::Original | Quality::Wrong);
        Row {
            quality: options.limits.quality(losses).filter(|_| !is_settled).unwrap_or(judged),
            excluded: (!options.may_choose(record))
                .then(Excluded::by_filter)
                .or(uncompared)
                .or(beyond)
                .filter(|_| record.status == Status::Ok),
            under_load,
            differences: original.map(|original| Differences::new(record, original)),
            change: None,
            verdict: None,
            is_baseline: false,
            is_on_front: false,
            is_recommended: false,
            record: record.clone(),
            metrics: metrics.clone(),
            run_ids: case.run_ids(),
        }
    };
    let mut rows: Vec<Row> = cases.iter().enumerate().map(row).collect();
    if let Some(index) = baseline(&rows, options) {
        rows[index].is_baseline = true;
    }
    let spread = Spread::of(cases, options);
    compare_times(&mut rows, &spread);
    mark_front(&mut rows, measure);
    let chosen = choose(&rows, options, measure, spread.floor);
    if let Ok(index) = chosen {
        rows[index].is_recommended = true;
    }
    Candidates { rows, measure, samples, spread, chosen }
}

/// The id of the case that decodes after the prompts of a record of `prefill`.
fn id_of_decoding(record: &Record) -> String {
    Case { phase: Phase::Decode, ..record.case() }.to_string()
}

/// The metrics of a row. If a row of `prefill` has none, they are those of `decode` in its runs, by which its answers
/// are evaluated.
fn of_decoding<'a>(case: &Repeated<'_>, record: &Record, own: &'a [Metric], all: &[Metric]) -> Cow<'a, [Metric]> {
    if record.phase != Phase::Prefill || !own.is_empty() {
        return own.into();
    }
    let case_id = id_of_decoding(record);
    let decoding = |run: &&Record| Metric::all_of(all, &Record { case_id: case_id.clone(), ..Record::clone(run) });
    case.like.iter().rev().flat_map(decoding).cloned().collect::<Vec<Metric>>().into()
}

/// The row that others must be shown to be better than: the best original or, if none is within the limits, the best
/// row of kept quality. For goals that do not follow from times, it is the fastest of those whose figure is known.
fn baseline(rows: &[Row], options: &Options) -> Option<usize> {
    let goal = goal_of_times(options);
    let quantity = |index: &usize| options.quantity(goal, &rows[*index].record).unwrap_or(f64::INFINITY);
    let is_unknown = |index: &usize| options.quantity(options.goal, &rows[*index].record).is_none();
    let best_of = |is_meant: fn(&Row) -> bool| {
        let meant = (0..rows.len()).filter(|&index| rows[index].is_acceptable() && is_meant(&rows[index]));
        meant.min_by(|one, other| {
            is_unknown(one).cmp(&is_unknown(other)).then(quantity(one).total_cmp(&quantity(other)))
        })
    };
    let of_limits = || best_of(|_| true).filter(|_| rows.iter().any(|row| row.excluded.is_some()));
    best_of(|row| row.quality == Quality::Original).or_else(of_limits)
}

/// The table of these cases. Returns `None` if there is no case.
fn table(cases: &[Repeated<'_>], metrics: &[Metric], options: &Options) -> Option<VariantTable> {
    let first = cases.first()?.newest;
    let Candidates { mut rows, measure, samples, spread, chosen } = candidates(cases, metrics, options);
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
        floor: spread.floor,
        runs: spread.runs,
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
            memory: of(own_memory).filter(|_| has_own_memory(record) == has_own_memory(original)),
        }
    }
}

/// The originals that others are compared with, the fastest first. They were measured, are not wrong, and have the
/// widest dtype of all originals.
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
