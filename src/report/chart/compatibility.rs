//! What runs here, and why not: models down, contestants across.

use serde::Serialize;

use super::{Axis, Cell, Chart, Names, Plot, Scale};
use crate::definition::Status;
use crate::record::Record;
use crate::report::selection::{Measured, Shown};

/// How well a model runs on a contestant, from good to bad: the worst of a cell's cases counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It runs, and its outputs are the reference's.
    Verified,
    /// It runs, and there is nothing to compare its outputs with.
    Runs,
    /// The backend or device is not here.
    Unavailable,
    /// The backend cannot run it.
    Unsupported,
    /// It should have run and did not: failed, out of memory, timed out, unstable.
    Failed,
    WrongOutput,
}

impl Standing {
    fn of(record: &Record) -> Self {
        match record.status {
            Status::Ok if record.verified == Some(true) => Standing::Verified,
            Status::Ok => Standing::Runs,
            Status::Unavailable => Standing::Unavailable,
            Status::Unsupported => Standing::Unsupported,
            Status::Failed | Status::OutOfMemory | Status::Timeout | Status::Unstable => Standing::Failed,
            Status::WrongOutput => Standing::WrongOutput,
        }
    }
}

pub fn chart(shown: &Shown<'_>) -> Chart {
    let (mut rows, mut columns) = (Names::default(), Names::default());
    let mut cells: Vec<Cell> = Vec::new();
    for (index, case) in shown.cases.iter().enumerate() {
        let (row, column) = (rows.index(&case.group), columns.index(&column(shown, case)));
        let one = Cell {
            cases: vec![index],
            row,
            column,
            standing: Standing::of(case.record),
            text: text(case.record),
            reason: reason(case.record),
        };
        match cells.iter_mut().find(|cell| (cell.row, cell.column) == (row, column)) {
            Some(cell) => join(cell, one),
            None => cells.push(one),
        }
    }
    Chart {
        id: "compatibility",
        title: "Compatibility",
        caption: "Whether each model runs, and the largest error of its outputs relative to the largest value of the \
                  reference's. The worst batch size counts; point at a cell for the reason."
            .into(),
        x: Axis::new("backend · device · dtype", Scale::Names),
        y: Axis::new("model", Scale::Names),
        absent: cells
            .is_empty()
            .then(|| "The run has no case; `inferbench run --dry-run` lists those of a suite.".into()),
        plot: Plot::Cells { rows: rows.names, columns: columns.names, cells },
    }
}

fn column(shown: &Shown<'_>, case: &Measured<'_>) -> String {
    let contestant = format!("{} · {} · {}", case.case.backend, case.case.device, case.case.dtype);
    match shown.machines.len() {
        0 | 1 => contestant,
        _ => format!("{contestant} · {}", shown.machines[case.machine].name),
    }
}

fn text(record: &Record) -> String {
    match (record.status, record.verified, record.max_rel_error) {
        (Status::Ok, Some(true), Some(error)) => format!("{error:.0e}"),
        (Status::Ok, Some(true), None) => "right".into(),
        (Status::Ok, ..) => "runs".into(),
        (status, ..) => status.to_string(),
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

/// The worse standing's text; the reasons of all.
fn join(cell: &mut Cell, other: Cell) {
    let is_larger_error = || {
        let error = |text: &str| text.parse::<f64>().unwrap_or_default();
        error(&other.text) > error(&cell.text)
    };
    if other.standing > cell.standing || (other.standing == cell.standing && is_larger_error()) {
        cell.standing = other.standing;
        cell.text = other.text;
    }
    cell.cases.extend(other.cases);
    cell.reason = format!("{}\n{}", cell.reason, other.reason);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{record, run_of};

    #[test]
    fn one_bad_batch_size_spoils_the_cell_and_all_reasons_are_kept() {
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
        assert_eq!((good.len(), good[0].standing, good[0].text.as_str()), (1, Standing::Verified, "2e-6"));
        let bad = cells(vec![right(1, 1e-7), wrong, right(8, 2e-6)]);
        assert_eq!((bad[0].standing, bad[0].text.as_str()), (Standing::WrongOutput, "wrong-output"));
        assert!(bad[0].reason.contains("batch 16: wrong-output: 0.5 off") && bad[0].cases.len() == 3);
    }
}
