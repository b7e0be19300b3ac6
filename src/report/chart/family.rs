//! Which runtime suits which architecture: each backend's time over that of the fastest, by family of models.

use std::collections::HashMap;

use super::{Chart, Dot, Names, Plot, drawn, positive, why_nothing_ran};
use crate::report::selection::{Measured, Shown};

/// The time over that of the fastest backend, by family.
pub fn chart(shown: &Shown<'_>) -> Chart {
    let mut rows = Names::default();
    let mut points = Vec::new();
    let best = fastest(shown);
    for (index, case) in shown.measured() {
        let Some(ms) = positive(case.record.latency_p50_ms) else { continue };
        let row = rows.index(if case.record.family.is_empty() { "unknown" } else { &case.record.family });
        let value = drawn(ms / best[&same_work(case)]);
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
        plot: Plot::Dots { panels: vec![String::new()], rows: rows.names, reference: Some(1.0), points },
    }
}

/// Group, batch size and machine.
type SameWork<'a> = (&'a str, usize, usize);

fn same_work<'a>(case: &'a Measured<'_>) -> SameWork<'a> {
    (&case.group, case.record.batch_size, case.machine)
}

fn fastest<'a>(shown: &'a Shown<'_>) -> HashMap<SameWork<'a>, f64> {
    let mut best: HashMap<SameWork<'a>, f64> = HashMap::new();
    for (_, case) in shown.measured() {
        if let Some(ms) = positive(case.record.latency_p50_ms) {
            let known = best.entry(same_work(case)).or_insert(ms);
            *known = known.min(ms);
        }
    }
    best
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
