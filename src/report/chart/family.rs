//! Which runtime suits which architecture: each backend's time over that of the fastest, by family of models.

use indexmap::IndexSet;

use super::{Chart, Dot, Plot, positive, why_nothing_ran};
use crate::report::ranking::best_of;
use crate::report::selection::Shown;

/// The time over that of the fastest backend, by family.
pub fn chart(shown: &Shown<'_>) -> Chart {
    let mut rows = IndexSet::new();
    let mut points = Vec::new();
    let ratios = best_of(shown.cases.iter().map(|case| case.record));
    for (index, case) in shown.measured() {
        let Some(value) = positive(ratios[index]) else { continue };
        let row = if case.record.family.is_empty() { "unknown" } else { &case.record.family };
        let row = rows.insert_full(row.to_owned()).0;
        points.push(Dot { case: index, panel: 0, row, series: case.series.clone(), value });
    }
    Chart {
        id: "architectures",
        title: "Architectures: time over the fastest",
        caption: "p50 over that of the fastest backend at the same model, phase and batch size, as the geometric mean \
                  over a family's cases. 1 is the fastest everywhere."
            .into(),
        x: "p50 ÷ fastest p50",
        y: "family",
        is_log: true,
        absent: points.is_empty().then(why_nothing_ran),
        plot: Plot::Dots {
            panels: vec![String::new()],
            rows: rows.into_iter().collect(),
            reference: Some(1.0),
            points,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{record, run_of};
    use crate::run_data::Record;

    #[test]
    fn each_batch_size_has_its_own_fastest() {
        let of = |backend, batch, ms| Record { family: "resnet".into(), ..record("m", backend, batch, Some(ms)) };
        let runs = [run_of(1, vec![of("ort", 1, 2.0), of("tch", 1, 3.0), of("ort", 8, 8.0), of("tch", 8, 4.0)])];
        let chart = chart(&Shown::new(&runs, &[]));
        let Plot::Dots { rows, points, .. } = chart.plot else { panic!("{:?}", chart.plot) };
        assert_eq!(rows, ["resnet"]);
        assert_eq!(points.iter().map(|dot| dot.value).collect::<Vec<_>>(), [1.0, 1.5, 2.0, 1.0]);
    }
}
