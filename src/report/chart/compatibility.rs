//! How well each model works on each backend, device and dtype, in the words of `inferbench verify`.

use indexmap::{IndexMap, IndexSet};

use super::{Cell, Chart, Plot};
use crate::definition::Status;
use crate::report::compatibility::{RULE, Standing, VerifiedCase};
use crate::report::ranking::best_of;
use crate::report::selection::{Measured, Shown};
use crate::run_data::Record;

/// The level of each model on each configuration.
pub fn chart(shown: &Shown<'_>) -> Chart {
    let (mut rows, mut columns) = (IndexSet::new(), IndexSet::new());
    let mut members: IndexMap<(usize, usize), Vec<usize>> = IndexMap::new();
    for (index, case) in shown.cases.iter().enumerate() {
        let place = (rows.insert_full(case.group.clone()).0, columns.insert_full(column(shown, case)).0);
        members.entry(place).or_default().push(index);
    }
    let ratios = best_of(shown.cases.iter().map(|case| case.record));
    let cell = |((row, column), cases): ((usize, usize), Vec<usize>)| {
        let of_index = |index: &usize| VerifiedCase::of_record(shown.cases[*index].record, ratios[*index]);
        let verified: Vec<VerifiedCase> = cases.iter().map(of_index).collect();
        let standing = Standing::of(&verified.iter().collect::<Vec<_>>());
        let reasons: Vec<String> = cases.iter().map(|index| reason(shown.cases[*index].record)).collect();
        let kind = match standing.status.filter(|_| standing.right == 0) {
            Some(status) => status.to_string(),
            None => standing.level.to_string(),
        };
        Cell { cases, row, column, kind, text: standing.short_text(), reason: reasons.join("\n") }
    };
    let cells: Vec<Cell> = members.into_iter().map(cell).collect();
    Chart {
        id: "compatibility",
        title: "Compatibility",
        caption: format!("{}{} Point at a cell for the details.", RULE[..1].to_uppercase(), &RULE[1..]),
        x: "backend · device · dtype",
        y: "model",
        is_log: false,
        absent: cells
            .is_empty()
            .then(|| "The run has no case; `inferbench run --dry-run` lists those of a suite.".into()),
        plot: Plot::Cells { rows: rows.into_iter().collect(), columns: columns.into_iter().collect(), cells },
    }
}

fn column(shown: &Shown<'_>, case: &Measured<'_>) -> String {
    let configuration = format!("{} · {} · {}", case.case.backend, case.case.device, case.case.dtype);
    match shown.machines.len() {
        0 | 1 => configuration,
        _ => format!("{configuration} · {}", shown.machines[case.machine].name),
    }
}

fn reason(record: &Record) -> String {
    let batch = record.batch_size;
    match (record.status, &record.message, record.max_rel_error) {
        (Status::Ok, _, Some(error)) if record.verified == Some(true) => {
            format!("batch {batch}: outputs as the reference's, relative error {error:.1e}")
        }
        (Status::Ok, ..) => format!("batch {batch}: runs; there is no reference to compare its outputs with"),
        (status, Some(message), _) => format!("batch {batch}: {status}: {message}"),
        (status, None, _) => format!("batch {batch}: {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{record, run_of};

    #[test]
    fn one_bad_batch_size_lowers_the_level_and_all_reasons_are_kept() {
        let right = |batch, error| Record {
            verified: Some(true),
            max_rel_error: Some(error),
            ..record("m", "ort", batch, Some(1.0))
        };
        let mut wrong = record("m", "ort", 16, None);
        wrong.status = Status::WrongOutput;
        wrong.message = Some("0.5 off".into());
        let cells = |records: Vec<Record>| match chart(&Shown::new(&[run_of(1, records)], &[])).plot {
            Plot::Cells { cells, .. } => cells,
            other => panic!("{other:?}"),
        };
        let good = cells(vec![right(1, 1e-7), right(8, 2e-6), right(2, 1e-8)]);
        assert_eq!((good.len(), good[0].kind.as_str(), good[0].text.as_str()), (1, "high", "high, error 2e-6"));
        let mixed = cells(vec![right(1, 1e-7), wrong.clone(), right(8, 2e-6)]);
        assert_eq!((mixed[0].kind.as_str(), mixed[0].text.as_str()), ("low", "low, 2 of 3, error 2e-6"));
        assert!(mixed[0].reason.contains("batch 16: wrong-output: 0.5 off") && mixed[0].cases.len() == 3);
        let bad = cells(vec![wrong]);
        assert_eq!((bad[0].kind.as_str(), bad[0].text.as_str()), ("wrong-output", "none, wrong-output"));
    }
}
