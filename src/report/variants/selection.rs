//! Which records are compared with which: a typical one of each case, a table for what does the same work on the same
//! machine, and in it one batch size.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::difference::{Differences, fastest_original, original_of};
use super::recommendation::recommend;
use super::wording::{name, short_percent};
use super::{Measure, OtherBatchSize, Quality, Recommendation, Row, Terms, VariantTable, front, is_original_in_f32};
use crate::definition::{Boundary, Case, Dtype, ORIGINAL, Phase, Status};
use crate::record::Record;

/// The records of a model.
pub fn of_model<'a>(records: &'a [Record], model: &str) -> Result<Vec<&'a Record>, String> {
    let of_model: Vec<&Record> = records.iter().filter(|record| record.model == model).collect();
    if of_model.is_empty() {
        let models: BTreeSet<&str> = records.iter().map(|record| record.model.as_str()).collect();
        let models: Vec<&str> = models.into_iter().collect();
        return Err(match models.as_slice() {
            [] => format!("no record is of the model {model:?}; there are none at all"),
            models => format!("no record is of the model {model:?}; there are {}", models.join(", ")),
        });
    }
    if of_model.iter().all(|record| record.variant == ORIGINAL) {
        return Err(format!(
            "of {model} only the original was run; `inferbench run --model {model} --variant all` runs its variants, too"
        ));
    }
    Ok(of_model)
}

/// One record a case and machine.
pub struct Typical<'a> {
    pub records: Vec<&'a Record>,
    /// Runs that each is the median of, at least.
    pub runs: usize,
}

/// Of each case on each machine the record with the median latency, of those that ran the same file at the commit of the
/// newest one; the newest itself where it has no latency.
pub fn typical<'a>(records: &[&'a Record]) -> Typical<'a> {
    let mut places: HashMap<(Case, &str), usize> = HashMap::new();
    let mut groups: Vec<Vec<&Record>> = Vec::new();
    for record in records {
        let place = *places.entry((record.case(), record.host_id.as_str())).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[place].push(record);
    }
    let mut typical = Typical { records: Vec::new(), runs: usize::MAX };
    for group in groups {
        let Some(&newest) = group.iter().max_by_key(|record| record.timestamp) else { continue };
        let has_latency = |record: &Record| record.status == Status::Ok && record.latency_p50_ms.is_some();
        let is_like_the_newest = |record: &Record| {
            (&record.git_commit, &record.artifact_sha256) == (&newest.git_commit, &newest.artifact_sha256)
        };
        let mut like: Vec<&Record> =
            group.into_iter().filter(|record| has_latency(record) && is_like_the_newest(record)).collect();
        like.sort_by(|one, other| {
            one.latency_p50_ms.unwrap_or_default().total_cmp(&other.latency_p50_ms.unwrap_or_default())
        });
        if has_latency(newest) {
            typical.runs = typical.runs.min(like.len());
            typical.records.push(like[(like.len() - 1) / 2]);
        } else {
            typical.records.push(newest);
        }
    }
    typical.runs = if typical.runs == usize::MAX { 1 } else { typical.runs };
    typical
}

/// Forward passes where there are any, and otherwise every phase; there is at least one record.
pub fn tables(records: &[&Record], terms: &Terms<'_>) -> Vec<VariantTable> {
    let has_forward = records.iter().any(|record| record.phase == Phase::Forward);
    let mut works: BTreeMap<(&str, &str, Phase, Option<usize>), Vec<&Record>> = BTreeMap::new();
    for record in records.iter().filter(|record| !has_forward || record.phase == Phase::Forward) {
        let work = (record.host_id.as_str(), record.boundary.name(), record.phase, record.sequence_length);
        works.entry(work).or_default().push(record);
    }
    works.into_values().map(|records| table(&records, terms)).collect()
}

/// A variant on a backend and device, in a dtype.
type Contestant<'a> = (&'a str, &'a str, &'a str, Dtype);

fn contestant(record: &Record) -> Contestant<'_> {
    (&record.variant, &record.backend, &record.device, record.dtype)
}

fn table(records: &[&Record], terms: &Terms<'_>) -> VariantTable {
    let is_ok = |record: &&&Record| record.status == Status::Ok;
    let contestants: BTreeSet<_> = records.iter().filter(is_ok).map(|record| contestant(record)).collect();
    let measured_at = |batch_size: usize| {
        let measured = records.iter().filter(is_ok).filter(|record| record.batch_size == batch_size);
        measured.map(|record| contestant(record)).collect::<BTreeSet<_>>()
    };
    let batch_sizes: BTreeSet<usize> = records.iter().map(|record| record.batch_size).collect();
    // Of those at which most were measured, the smallest: `max_by_key` takes the last.
    let batch_size = batch_sizes.iter().copied().rev().max_by_key(|batch| measured_at(*batch).len()).unwrap_or(1);

    let work = |batch_size: usize| -> Vec<&Record> {
        records.iter().filter(|record| record.batch_size == batch_size).copied().collect()
    };
    let Compared { measure, rows, mut recommendation } = compared(&work(batch_size), terms);
    let mut others = Vec::new();
    let mut different: Vec<String> = Vec::new();
    for other in batch_sizes.into_iter().filter(|other| *other != batch_size) {
        let compared = compared(&work(other), terms);
        let is_same_choice = choice(&compared.rows) == choice(&rows);
        let chosen = compared.rows.iter().find(|row| row.is_recommended);
        if let Some(chosen) = chosen.filter(|_| !is_same_choice && choice(&rows).is_some()) {
            different.push(format!("at batch {other} {}", name(chosen, &compared.rows)));
        }
        others.push(OtherBatchSize { batch_size: other, recommendation: compared.recommendation, is_same_choice });
    }
    recommendation.warn_of_batch_sizes(&different);

    let mut notes = notes(&rows, measure, terms);
    let missing = contestants.len() - measured_at(batch_size).len();
    if missing > 0 {
        notes.push(format!("no batch size was measured of all: {missing} of {} are missing here", contestants.len()));
    }
    let first = records.first();
    VariantTable {
        model: terms.options.model.clone(),
        host_id: first.map(|record| record.host_id.clone()).unwrap_or_default(),
        phase: first.map(|record| record.phase).unwrap_or_default(),
        sequence_length: first.and_then(|record| record.sequence_length),
        boundary: first.map_or(Boundary::Compute, |record| record.boundary),
        batch_size,
        goal: terms.options.goal,
        accuracy_loss: terms.options.accuracy_loss,
        floor: terms.floor,
        runs: terms.runs,
        measure,
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
struct Compared {
    measure: Measure,
    rows: Vec<Row>,
    recommendation: Recommendation,
}

fn compared(records: &[&Record], terms: &Terms<'_>) -> Compared {
    let measure = Measure::of(records.iter().copied());
    let baseline = fastest_original(records);
    let mut rows: Vec<Row> = in_order(records)
        .into_iter()
        .map(|record| {
            let is_measured = record.status == Status::Ok;
            let differences = original_of(record, records).filter(|_| is_measured);
            Row {
                // Files of earlier versions have no ids.
                record: Record { case_id: record.case().to_string(), ..record.clone() },
                quality: measure.judge(record, terms.options.accuracy_loss),
                differences: differences.map(|original| Differences::new(record, original)),
                is_baseline: baseline.is_some_and(|baseline| std::ptr::eq(baseline, record)),
                is_on_front: false,
                is_recommended: false,
            }
        })
        .collect();
    front::mark(&mut rows, measure);
    let recommendation = recommend(&rows, measure, terms);
    for row in &mut rows {
        row.is_recommended = Some(&row.record.case_id) == recommendation.case_id.as_ref();
    }
    Compared { measure, rows, recommendation }
}

/// The original first, then the variant with the fastest row; the fastest row of each first, and last what has no figures.
fn in_order<'a>(records: &[&'a Record]) -> Vec<&'a Record> {
    let latency = |record: &Record| match record.status {
        Status::Ok => record.latency_p50_ms.unwrap_or(f64::MAX),
        _ => f64::INFINITY,
    };
    let mut fastest: HashMap<&str, f64> = HashMap::new();
    for record in records {
        let known = fastest.entry(&record.variant).or_insert(f64::INFINITY);
        *known = known.min(latency(record));
    }
    let mut order = records.to_vec();
    order.sort_by(|one, other| {
        let place = |record: &Record| (record.status != Status::Ok, record.variant != ORIGINAL);
        place(one)
            .cmp(&place(other))
            .then(fastest[one.variant.as_str()].total_cmp(&fastest[other.variant.as_str()]))
            .then(one.variant.cmp(&other.variant))
            .then(latency(one).total_cmp(&latency(other)))
    });
    order
}

fn notes(rows: &[Row], measure: Measure, terms: &Terms<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let measured = || rows.iter().filter(|row| row.is_measured());
    let sources: BTreeSet<&str> = measured().filter_map(|row| row.record.data_source.as_deref()).collect();
    let sources = sources.into_iter().collect::<Vec<_>>().join(", ");
    match measure {
        Measure::Accuracy => notes.push(format!(
            "accuracy with its 95 % interval on labelled samples{}",
            if sources.is_empty() { String::new() } else { format!(" of {sources}") }
        )),
        Measure::Agreement => notes.push(
            "no accuracy: seeded weights have none, and others need labelled samples; quality here is agreement with \
             the original in f32 (the largest output at the same place) and the cosine between the outputs"
                .into(),
        ),
        Measure::Unknown => notes.push("neither accuracy nor agreement with the original was measured".into()),
    }
    for row in measured() {
        let Some(original) = row.differences.as_ref().map(|differences| &differences.original) else { continue };
        let Some(original) = rows.iter().find(|other| other.record.case_id == *original) else { continue };
        let place = |row: &Row| (row.record.backend.clone(), row.record.device.clone());
        if place(row) != place(original) {
            notes.push(format!(
                "{}: no original was measured there; its differences are to {}",
                name(row, rows),
                name(original, rows)
            ));
        }
    }
    for row in measured().filter(|row| row.quality == Quality::Wrong) {
        notes.push(format!("{}: its outputs were not right; it is not ranked", name(row, rows)));
    }
    let is_shared = |row: &&Row| row.record.memory_kind.as_deref().is_some_and(|kind| kind.starts_with("shared"));
    if measured().any(|row| is_shared(&row)) {
        notes.push("memory is the peak of a process that has measured other cases, too".into());
    }
    notes.push(match terms.runs {
        1 => "each time is of one process, and processes differ: run it again and compare all runs, as in `report \
              --variants MODEL --last 3`"
            .into(),
        runs => format!("each row is the median of at least {runs} runs"),
    });
    notes.push(format!(
        "times are taken as equal up to {}, and where the slower one was as fast as the other's median at times",
        short_percent(terms.floor)
    ));
    let runs: BTreeSet<&str> = measured().map(|row| row.record.run_id.as_str()).collect();
    if runs.len() > 1 {
        let runs: Vec<&str> = runs.into_iter().collect();
        notes.push(format!("the rows are of {} runs: {}", runs.len(), runs.join(", ")));
    }
    if measured().all(|row| !is_original_in_f32(&row.record)) {
        notes.push("no original was measured in f32: there are no differences".into());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SAME, at, example, measured, table_of, with};
    use super::super::{Options, compare};
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
    fn of_several_runs_the_median_of_each_case_counts() {
        let run = |month: u32, ms| Record {
            run_id: format!("run{month}"),
            timestamp: format!("2027-{month:02}-01T00:00:00Z").parse().unwrap(),
            ..measured("int8-static", "ort", 3.0, ms, SAME)
        };
        let latency = |table: &VariantTable| {
            table.rows.iter().find(|row| row.record.variant == "int8-static").unwrap().record.latency_p50_ms
        };
        let mut records = example();
        records.extend([run(1, 9.0), run(2, 1.0)]);
        let table = table_of(records.clone());
        // 1.0, 1.25 and 9.0; of the others there is one.
        assert_eq!((latency(&table), table.runs), (Some(1.25), 1));
        assert!(table.notes.iter().any(|note| note.starts_with("each time is of one process")), "{:?}", table.notes);
        // Of another commit than the newest's, or after which it failed, earlier ones say nothing.
        records.push(Record { git_commit: Some("c0ffee".into()), ..run(3, 2.0) });
        assert_eq!(latency(&table_of(records.clone())), Some(2.0));
        records.push(Record { status: Status::Failed, ..run(4, 1.0) });
        assert_eq!(table_of(records.clone()).rows.last().unwrap().record.run_id, "run4");
        let twice = table_of([example(), example()].concat());
        assert_eq!(twice.runs, 2);
        assert!(twice.floor < table.floor && twice.notes.contains(&"each row is the median of at least 2 runs".into()));
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

    #[test]
    fn memory_of_a_shared_process_is_said_to_be_that() {
        let mut records = example();
        records[2].memory_kind = Some("shared-process-peak-rss".into());
        assert!(table_of(records).notes.iter().any(|note| note.starts_with("memory is the peak of a process that")));
        assert!(!table_of(example()).notes.iter().any(|note| note.starts_with("memory")));
    }
}
