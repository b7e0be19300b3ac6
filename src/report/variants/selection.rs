//! Which cases are compared with which: a table for what does the same work on the same machine, and in it one batch size
//! and one set of samples that the answers are judged by.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::difference::{Differences, Originals};
use super::notes::{LeftOut, notes};
use super::quality::agreement_interval;
use super::recommendation::recommend;
use super::repetition::{Pooled, Repeated, other_samples, samples_of};
use super::wording::name;
use super::{Measure, Options, OtherBatchSize, Recommendation, Row, Terms, VariantTable, front};
use crate::definition::{Boundary, Dtype, ORIGINAL, Phase, Status};
use crate::record::Record;

/// The records of a model.
pub fn of_model<'a>(records: &'a [Record], model: &str) -> Result<Vec<&'a Record>, String> {
    let of_model: Vec<&Record> = records.iter().filter(|record| record.model == model).collect();
    if of_model.is_empty() {
        let models: BTreeSet<&str> = records.iter().map(|record| record.model.as_str()).collect();
        let models: Vec<&str> = models.into_iter().collect();
        return Err(match models.as_slice() {
            [] => "there are no records at all".to_owned(),
            models => format!(
                "none of the records that were asked for is of the model {model:?}; there are {}",
                models.join(", ")
            ),
        });
    }
    if of_model.iter().all(|record| record.variant == ORIGINAL) {
        return Err(format!(
            "the records that were asked for have only the original of {model}; \
             `inferbench run --model {model} --variant all` runs its variants, too"
        ));
    }
    Ok(of_model)
}

/// Forward passes where there are any, and otherwise every phase; there is at least one case.
pub fn tables(cases: Vec<Repeated<'_>>, options: &Options) -> Vec<VariantTable> {
    let has_forward = cases.iter().any(|case| case.record().phase == Phase::Forward);
    let mut works: BTreeMap<(&str, &str, Phase, Option<usize>), Vec<Repeated<'_>>> = BTreeMap::new();
    for case in cases {
        let record = case.record();
        let work = (record.host_id.as_str(), record.boundary.name(), record.phase, record.sequence_length);
        if !has_forward || record.phase == Phase::Forward {
            works.entry(work).or_default().push(case);
        }
    }
    works.into_values().map(|cases| table(&cases, options)).collect()
}

/// A variant on a backend and device, in a dtype.
type Contestant<'a> = (&'a str, &'a str, &'a str, Dtype);

fn contestant(record: &Record) -> Contestant<'_> {
    (&record.variant, &record.backend, &record.device, record.dtype)
}

fn table(cases: &[Repeated<'_>], options: &Options) -> VariantTable {
    let samples = samples_of(cases);
    let pooled: Vec<Pooled> = cases.iter().map(|case| case.pooled(samples)).collect();
    let measured = || pooled.iter().map(|pooled| &pooled.record).filter(|record| record.status == Status::Ok);
    let contestants: BTreeSet<_> = measured().map(contestant).collect();
    let measured_at = |batch_size: usize| {
        measured().filter(|record| record.batch_size == batch_size).map(contestant).collect::<BTreeSet<_>>()
    };
    let batch_sizes: BTreeSet<usize> = pooled.iter().map(|pooled| pooled.record.batch_size).collect();
    // Of those at which most were measured, the smallest: `max_by_key` takes the last.
    let batch_size = batch_sizes.iter().copied().rev().max_by_key(|batch| measured_at(*batch).len()).unwrap_or(1);

    let work = |batch_size: usize| -> Vec<&Pooled> {
        pooled.iter().filter(|pooled| pooled.record.batch_size == batch_size).collect()
    };
    let Compared { measure, terms, rows, mut recommendation } = compared(&work(batch_size), options);
    let mut others = Vec::new();
    let mut different: Vec<String> = Vec::new();
    for other in batch_sizes.into_iter().filter(|other| *other != batch_size) {
        let compared = compared(&work(other), options);
        let is_same_choice = choice(&compared.rows) == choice(&rows);
        let chosen = compared.rows.iter().find(|row| row.is_recommended);
        if let Some(chosen) = chosen.filter(|_| !is_same_choice && choice(&rows).is_some()) {
            different.push(format!("at batch {other} {}", name(chosen, &compared.rows)));
        }
        others.push(OtherBatchSize { batch_size: other, recommendation: compared.recommendation, is_same_choice });
    }
    recommendation.warn_of_batch_sizes(&different);

    let left_out = LeftOut {
        contestants: contestants.len(),
        missing: contestants.len() - measured_at(batch_size).len(),
        samples: other_samples(cases, samples),
        has_other_programs: cases.iter().any(|case| case.has_others),
    };
    let notes = notes(&rows, measure, &terms, &left_out);
    let first = cases.first().map(Repeated::record);
    VariantTable {
        model: options.model.clone(),
        host_id: first.map(|record| record.host_id.clone()).unwrap_or_default(),
        phase: first.map(|record| record.phase).unwrap_or_default(),
        sequence_length: first.and_then(|record| record.sequence_length),
        boundary: first.map_or(Boundary::Compute, |record| record.boundary),
        batch_size,
        goal: options.goal,
        accuracy_loss: options.loss(),
        floor: terms.floor,
        least_gain: terms.least_gain,
        runs: terms.runs,
        measure,
        data_source: samples.map(str::to_owned),
        recommendation,
        rows,
        other_batch_sizes: others,
        notes,
    }
}

fn choice(rows: &[Row]) -> Option<Contestant<'_>> {
    rows.iter().find(|row| row.is_recommended).map(|row| contestant(&row.record))
}

/// What was run at one batch size.
struct Compared<'a> {
    measure: Measure,
    terms: Terms<'a>,
    rows: Vec<Row>,
    recommendation: Recommendation,
}

fn compared<'a>(cases: &[&Pooled], options: &'a Options) -> Compared<'a> {
    let records: Vec<&Record> = cases.iter().map(|case| &case.record).collect();
    let measure = Measure::of(records.iter().copied());
    let originals = Originals::among(&records);
    let baseline = originals.as_ref().and_then(Originals::fastest);
    let mut rows: Vec<Row> = in_order(cases)
        .into_iter()
        .map(|Pooled { record, run_ids }| {
            let is_original = originals.as_ref().is_some_and(|originals| originals.has(record));
            let original = originals.as_ref().filter(|_| record.status == Status::Ok);
            let original = original.and_then(|originals| originals.of(record));
            let agreement = agreement_interval(record);
            Row {
                quality: measure.judge(record, is_original, options.loss()),
                agreement_lower: agreement.map(|(lower, _)| lower),
                agreement_upper: agreement.map(|(_, upper)| upper),
                differences: original.map(|original| Differences::new(record, original)),
                is_baseline: baseline.is_some_and(|baseline| std::ptr::eq(baseline, record)),
                is_on_front: false,
                is_recommended: false,
                record: record.clone(),
                run_ids: run_ids.clone(),
            }
        })
        .collect();
    let runs = rows.iter().filter(|row| row.is_measured()).map(|row| row.run_ids.len()).min().unwrap_or(1);
    let candidates = rows.iter().filter(|row| row.is_candidate() && !row.is_baseline).count();
    let terms = Terms::new(options, runs, candidates);
    front::mark(&mut rows, measure);
    let recommendation = recommend(&rows, measure, &terms);
    for row in &mut rows {
        row.is_recommended = Some(&row.record.case_id) == recommendation.case_id.as_ref();
    }
    Compared { measure, terms, rows, recommendation }
}

/// The original first, then the variant with the fastest row; the fastest row of each first, and last what has no figures.
fn in_order<'a>(cases: &[&'a Pooled]) -> Vec<&'a Pooled> {
    let latency = |record: &Record| match record.status {
        Status::Ok => record.latency_p50_ms.unwrap_or(f64::MAX),
        _ => f64::INFINITY,
    };
    let mut fastest: HashMap<&str, f64> = HashMap::new();
    for Pooled { record, .. } in cases {
        let known = fastest.entry(&record.variant).or_insert(f64::INFINITY);
        *known = known.min(latency(record));
    }
    let mut order = cases.to_vec();
    order.sort_by(|Pooled { record: one, .. }, Pooled { record: other, .. }| {
        let place = |record: &Record| (record.status != Status::Ok, record.variant != ORIGINAL);
        place(one)
            .cmp(&place(other))
            .then(fastest[one.variant.as_str()].total_cmp(&fastest[other.variant.as_str()]))
            .then(one.variant.cmp(&other.variant))
            .then(latency(one).total_cmp(&latency(other)))
    });
    order
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SAME, at, at_commit, example, in_run, measured, table_of, unlabelled, with};
    use super::super::{Options, Quality, compare};
    use super::*;

    #[test]
    fn the_smallest_batch_size_that_all_have_is_compared() {
        let both = |batch: usize, scale: f64| {
            let scaled = |variant, ms: f64| at(batch, measured(variant, "ort", 4.0, ms * scale, SAME));
            vec![scaled("original", 2.0), scaled("int8", 1.0)]
        };
        let records = [vec![at(1, measured("original", "ort", 4.0, 2.0, SAME))], both(8, 4.0), both(2, 1.5)].concat();
        let table = table_of(records.clone());
        assert_eq!((table.batch_size, table.rows.len()), (2, 2));
        let others: Vec<_> =
            table.other_batch_sizes.iter().map(|other| (other.batch_size, other.is_same_choice)).collect();
        assert_eq!(others, [(1, false), (8, true)]);
        // Where none is common, that of most rows.
        let mut without = records;
        without.push(at(16, measured("pruned", "tch", 4.0, 2.0, SAME)));
        let table = table_of(without);
        assert_eq!(table.batch_size, 2);
        assert!(table.notes.iter().any(|note| note.ends_with("1 of 3 are missing here")), "{:?}", table.notes);
    }

    #[test]
    fn runs_are_counted_in_the_rows_of_the_table() {
        let run = |month, records: Vec<Record>| -> Vec<Record> {
            records.into_iter().map(|record| in_run(month, at_commit("c0ffee", record))).collect()
        };
        let one = table_of(run(1, example()));
        assert_eq!(one.runs, 1);
        let twice = table_of([run(1, example()), run(2, example())].concat());
        assert_eq!(twice.runs, 2);
        assert!(twice.floor < one.floor);
        // A run that is named twice is one.
        assert_eq!(table_of([run(1, example()), run(1, example())].concat()).runs, 1);
        // Of what is in no row it does not matter how often it was run.
        let large: Vec<Record> = example().into_iter().take(1).map(|record| at(8, record)).collect();
        let table = table_of([run(1, example()), run(2, example()), run(2, large)].concat());
        assert_eq!((table.batch_size, table.runs), (1, 2));
    }

    #[test]
    fn answers_of_a_run_with_labels_are_not_lost_to_a_faster_one_without() {
        let labelled = [measured("original", "ort", 10.0, 2.0, SAME), measured("int8", "ort", 3.0, 1.0, SAME)];
        let faster =
            [unlabelled("original", "ort", 10.0, 1.9, (1.0, 1.0)), unlabelled("int8", "ort", 3.0, 0.9, (0.9, 0.9))];
        let of = |month, records: &[Record]| -> Vec<Record> {
            records.iter().map(|record| in_run(month, at_commit("c0ffee", record.clone()))).collect()
        };
        let table = table_of([of(1, &labelled), of(2, &faster)].concat());
        assert!(table.rows.iter().all(|row| row.record.accuracy.is_some() && row.run_ids.len() == 2));
        assert_eq!((table.measure, table.data_source.as_deref()), (Measure::Accuracy, Some("digits")));
        assert_eq!(table.rows[1].quality, Quality::Kept);
    }

    #[test]
    fn machines_and_sequence_lengths_are_compared_apart_and_forward_passes_only() {
        let mut records = example();
        records.extend(example().into_iter().map(|record| Record { host_id: "other".into(), ..record }));
        records.extend(example().into_iter().map(|record| Record { sequence_length: Some(128), ..record }));
        records.extend(example().into_iter().map(|record| Record { phase: Phase::Decode, ..record }));
        let variants = compare(&records, &Options::new("m")).unwrap();
        let works: Vec<_> = variants
            .tables
            .iter()
            .map(|table| (table.host_id.as_str(), table.phase, table.sequence_length, table.rows.len()))
            .collect();
        let expected =
            [("h", Phase::Forward, None, 5), ("h", Phase::Forward, Some(128), 5), ("other", Phase::Forward, None, 5)];
        assert_eq!(works, expected);
        let generative: Vec<Record> = records.into_iter().filter(|record| record.phase == Phase::Decode).collect();
        assert_eq!(with(generative, |_| ()).phase, Phase::Decode);
    }
}
