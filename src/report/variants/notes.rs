//! How the figures of a table are to be read, and what is not in it.

use std::collections::BTreeSet;

use super::wording::{listed, name, short_percent};
use super::{LEAST_AGREEMENT, LEAST_COSINE, Measure, Quality, Row, Terms, own_memory};
use crate::compare::is_like;
use crate::definition::Dtype;
use crate::record::Record;

/// What was asked for and is not in the table.
pub struct LeftOut<'a> {
    /// Variants on their backends and devices that were measured at any batch size.
    pub contestants: usize,
    /// Those of them that were not measured at the table's.
    pub missing: usize,
    /// Samples by which answers were judged, too.
    pub samples: BTreeSet<&'a str>,
    /// Whether there are measurements of other programs than the newest.
    pub has_other_programs: bool,
}

/// The most important first.
pub fn notes(rows: &[Row], measure: Measure, terms: &Terms<'_>, left_out: &LeftOut<'_>) -> Vec<String> {
    let measured: Vec<&Row> = rows.iter().filter(|row| row.is_measured()).collect();
    let mut notes = of_quality(&measured, measure, terms, left_out);
    notes.extend(of_originals(rows));
    let wrong = measured.iter().filter(|row| row.quality == Quality::Wrong);
    notes.extend(wrong.map(|row| format!("{}: its outputs were not right; it is not ranked", name(row, rows))));
    if measured.iter().any(|row| row.record.memory_mb.is_some() && own_memory(&row.record).is_none()) {
        notes.push(
            "memory without × may be the peak of a process that has measured other cases, too; it is not compared"
                .into(),
        );
    }
    notes.extend(of_times(&measured, terms));
    notes.extend(of_programs(&measured));
    if left_out.has_other_programs {
        notes.push(
            "left out are runs of other code, libraries or files than a row's newest, runs before one that failed, and those \
             of a tree with changes, of which nobody knows whether the code was equal"
                .into(),
        );
    }
    if left_out.missing > 0 {
        notes.push(format!(
            "no batch size was measured of all: {} of {} are missing here",
            left_out.missing, left_out.contestants
        ));
    }
    notes
}

fn of_quality(measured: &[&Row], measure: Measure, terms: &Terms<'_>, left_out: &LeftOut<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let source = measured.iter().find_map(|row| row.record.data_source.as_deref());
    match measure {
        Measure::Accuracy => notes.push(format!(
            "accuracy with its 95 % interval on labelled samples{}",
            source.map(|source| format!(" of {source}")).unwrap_or_default()
        )),
        Measure::Agreement => notes.push(format!(
            "no accuracy: there were no labelled samples, and weights that are seeded and not trained have none; quality \
             here is agreement with the original (the largest output at the same place, with its 95 % interval) and the \
             cosine between the outputs; at least {} and {LEAST_COSINE} are taken as kept, which says nothing of accuracy",
            short_percent(LEAST_AGREEMENT)
        )),
        Measure::Unknown => notes.push("neither accuracy nor agreement with the original was measured".into()),
    }
    if let Some(loss) = terms.options.accuracy_loss.filter(|_| measure != Measure::Accuracy) {
        notes.push(format!(
            "the accuracy loss of {} that was asked for decides nothing here: there were no labelled samples",
            short_percent(loss)
        ));
    }
    let counts: BTreeSet<u64> = measured.iter().filter_map(|row| row.record.accuracy_samples).collect();
    if counts.len() > 1 {
        notes.push(
            "not all rows were judged by equally many samples: compare their changes, not their accuracies".into(),
        );
    }
    if !left_out.samples.is_empty() {
        let others: Vec<String> = left_out.samples.iter().map(|samples| (*samples).to_owned()).collect();
        notes.push(format!("what was judged by other samples is left out: {}", listed(&others)));
    }
    notes
}

fn of_originals(rows: &[Row]) -> Vec<String> {
    let Some(baseline) = rows.iter().find(|row| row.is_baseline) else {
        return vec![
            "no original that was measured and right is among these records: there is nothing to compare with".into(),
        ];
    };
    let dtype = baseline.record.dtype;
    let mut notes = Vec::new();
    if dtype != Dtype::F32 {
        notes.push(format!(
            "no original in f32 that was measured and right is among these records: the one in {dtype} takes its place"
        ));
    }
    for row in rows {
        let Some(differences) = &row.differences else { continue };
        let Some(original) = rows.iter().find(|other| other.record.case_id == differences.original) else { continue };
        let place = |row: &Row| (row.record.backend.clone(), row.record.device.clone());
        if place(row) != place(original) {
            notes.push(format!(
                "{}: no original in {dtype} was measured there; its differences are to {}",
                name(row, rows),
                name(original, rows)
            ));
        }
    }
    notes
}

fn of_times(measured: &[&Row], terms: &Terms<'_>) -> Vec<String> {
    if terms.candidates == 0 || !measured.iter().any(|row| row.is_baseline) {
        return Vec::new();
    }
    let runs = match terms.runs {
        1 => "each time is of one process, and processes differ: run it again, at one commit and without changes, and \
              compare all runs, as in `report --variants MODEL --last 3`"
            .into(),
        runs => format!("each time is the geometric mean of at least {runs} runs"),
    };
    let floor = format!(
        "times are taken as equal up to {}, by which two of equal code differ in one of twenty cases",
        short_percent(terms.floor)
    );
    let gain = match terms.candidates {
        1 => format!("a row is shown to be faster from {} on", short_percent(terms.least_gain)),
        several => format!(
            "a row is shown to be faster from {} on, since the best of {several} of equal code seems to be by chance",
            short_percent(terms.least_gain)
        ),
    };
    vec![runs, floor, format!("{gain}, and only if the slower one was not as fast as its median at times")]
}

/// Where rows are not of one program, or not run alike.
fn of_programs(measured: &[&Row]) -> Vec<String> {
    let mut notes = Vec::new();
    let runs: BTreeSet<&str> = measured.iter().flat_map(|row| &row.run_ids).map(String::as_str).collect();
    if runs.len() > 1 {
        let runs: Vec<&str> = runs.into_iter().collect();
        notes.push(format!("the rows are of {} runs: {}", runs.len(), runs.join(", ")));
    }
    let code: BTreeSet<_> = measured.iter().map(|row| code(&row.record)).collect();
    if code.len() > 1 {
        let names: BTreeSet<String> = code.into_iter().map(|(name, _)| name).collect();
        notes.push(format!(
            "the rows may not all be of the same code ({}): a difference may be that of the code",
            listed(&names.into_iter().collect::<Vec<_>>())
        ));
    }
    let place = |row: &Row| (row.record.backend.clone(), row.record.device.clone());
    let places: BTreeSet<(String, String)> = measured.iter().map(|row| place(row)).collect();
    for (backend, device) in places {
        let mut rows = measured.iter().filter(|row| row.record.backend == backend && row.record.device == device);
        let Some(first) = rows.next() else { continue };
        if !rows.all(|row| is_like(&row.record, &first.record)) {
            notes.push(format!(
                "the rows of {backend} are not all of one version with one number of threads: a difference may be that"
            ));
        }
    }
    notes
}

/// A name of the code for readers, and what else tells it from other code: of a tree with changes, or of none, its run.
fn code(record: &Record) -> (String, Option<&str>) {
    let commit = record.git_commit.as_deref().map(|commit| commit.chars().take(10).collect::<String>());
    match (commit, record.git_dirty) {
        (Some(commit), Some(false)) => (commit, None),
        (Some(commit), _) => (format!("{commit} with changes"), Some(&record.run_id)),
        (None, _) => ("unknown".to_owned(), Some(&record.run_id)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SAME, at_commit, example, in_run, measured, table_of, unlabelled, with};
    use super::super::wording::legend;
    use super::*;

    fn has(records: Vec<Record>, part: &str) -> bool {
        table_of(records).notes.iter().any(|note| note.contains(part))
    }

    #[test]
    fn how_sure_the_times_are_is_said_with_the_count_of_rows() {
        let notes = table_of(example()).notes;
        assert!(notes.iter().any(|note| note.starts_with("each time is of one process")), "{notes:?}");
        let floor = "times are taken as equal up to 5 %, by which two of equal code differ in one of twenty cases";
        assert!(notes.contains(&floor.to_owned()), "{notes:?}");
        let gain =
            "a row is shown to be faster from 6.1 % on, since the best of 3 of equal code seems to be by chance, and ";
        assert!(notes.iter().any(|note| note.starts_with(gain)), "{notes:?}");
        let of = |month| example().into_iter().map(move |record| in_run(month, at_commit("c0ffee", record)));
        let notes = table_of(of(1).chain(of(2)).collect()).notes;
        assert!(notes.contains(&"each time is the geometric mean of at least 2 runs".into()), "{notes:?}");
        assert!(notes.contains(&"the rows are of 2 runs: run1, run2".into()), "{notes:?}");
        assert!(!notes.iter().any(|note| note.contains("same code") || note.contains("left out")), "{notes:?}");
    }

    #[test]
    fn rows_of_different_code_or_libraries_are_said_to_be_that() {
        let pair = |change: &dyn Fn(Record) -> Record| {
            let int8 = in_run(2, at_commit("c0ffee", measured("int8", "ort", 3.0, 1.0, SAME)));
            vec![in_run(1, at_commit("c0ffee", measured("original", "ort", 10.0, 2.0, SAME))), change(int8)]
        };
        assert!(!has(pair(&|int8| int8), "same code"));
        let other = pair(&|int8| at_commit("decaf", int8));
        assert!(has(other, "the rows may not all be of the same code (c0ffee and decaf)"));
        let dirty = pair(&|int8| Record { git_dirty: Some(true), ..int8 });
        assert!(has(dirty, "same code (c0ffee and c0ffee with changes)"));
        let newer = pair(&|int8| Record { library_version: Some("2".into()), ..int8 });
        assert!(has(newer, "the rows of ort are not all of one version"));
    }

    #[test]
    fn runs_that_do_not_count_are_said_to_be_left_out() {
        let of = |month, commit: &'static str| {
            example().into_iter().map(move |record| in_run(month, at_commit(commit, record)))
        };
        assert!(has(of(1, "c0ffee").chain(of(2, "decaf")).collect(), "runs of other code, libraries or files"));
        assert!(!has(of(1, "c0ffee").chain(of(2, "c0ffee")).collect(), "left out"));
        let pictures = of(2, "c0ffee").map(|record| Record { data_source: Some("pictures".into()), ..record });
        assert!(has(of(1, "c0ffee").chain(pictures).collect(), "what was judged by other samples is left out: digits"));
    }

    #[test]
    fn memory_of_a_shared_process_is_said_to_be_that() {
        let mut records = example();
        records[2].memory_kind = Some("shared-process-peak-rss".into());
        assert!(has(records, "memory without × may be the peak of a process that has measured other cases"));
        assert!(!has(example(), "memory"));
    }

    #[test]
    fn without_labels_the_rule_is_stated_and_a_loss_decides_nothing() {
        let records = || {
            vec![
                unlabelled("original", "ort", 10.0, 2.0, (1.0, 1.0)),
                unlabelled("int8", "ort", 2.5, 1.0, (0.98, 0.999)),
            ]
        };
        assert!(has(records(), "at least 95 % and 0.99 are taken as kept, which says nothing of accuracy"));
        assert!(!has(records(), "accuracy loss"));
        let asked = with(records(), |options| options.accuracy_loss = Some(0.005));
        let expected =
            "the accuracy loss of 0.5 % that was asked for decides nothing here: there were no labelled samples";
        assert!(asked.notes.iter().any(|note| note == expected), "{:?}", asked.notes);
    }

    #[test]
    fn an_original_in_its_own_dtype_is_said_to_take_the_place() {
        let half = |record: Record| Record { dtype: Dtype::F16, ..record };
        let table = table_of(vec![
            half(measured("original", "ort", 10.0, 2.0, SAME)),
            half(measured("int8", "ort", 3.0, 1.0, SAME)),
        ]);
        assert!(
            table.recommendation.sentence.starts_with(
                "Ship int8 on ort: 2.0 × faster and 3.3 × smaller than the \
            original in f16 on ort, "
            ),
            "{}",
            table.recommendation.sentence
        );
        let legend = legend(&table).join("\n");
        assert!(legend.contains("× is to the original in f16 on the same backend and device"), "{legend}");
        assert!(legend.contains("the one in f16 takes its place"), "{legend}");
    }

    #[test]
    fn without_an_original_no_factor_is_explained() {
        let table = table_of(vec![measured("int8", "ort", 3.0, 1.0, SAME), measured("pruned", "ort", 3.0, 1.0, SAME)]);
        let legend = legend(&table).join("\n");
        assert!(!legend.contains("× is to") && !legend.contains("times are taken as equal"), "{legend}");
        assert!(legend.contains("no original that was measured and right is among these records"), "{legend}");
    }
}
