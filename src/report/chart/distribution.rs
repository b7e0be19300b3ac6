//! How the latencies of single calls are distributed, with percentiles and their upper bounds.

use indexmap::IndexSet;

use super::{Chart, Curve, Plot, drawn, panel_with_batch, positive, why_nothing_ran};
use crate::report::selection::{Measured, Shown};
use crate::run_data::Record;

/// Quantiles of the latency of each case.
pub fn chart(shown: &Shown<'_>) -> Chart {
    let mut panels = IndexSet::new();
    let curves: Vec<Curve> = shown
        .measured()
        .filter_map(|(index, case)| {
            let mut bounds = bounds(case.record);
            let quantiles = quantiles(case, &bounds);
            // A percentile that no call exceeds would only repeat the largest call.
            let told = quantiles.last().map_or(0.0, |(fraction, _)| *fraction);
            bounds.retain(|(fraction, ..)| *fraction <= told);
            (!quantiles.is_empty()).then(|| Curve {
                case: index,
                panel: panels.insert_full(panel_with_batch(case)).0,
                quantiles,
                bounds,
            })
        })
        .collect();
    Chart {
        id: "distribution",
        title: "Distribution of the latency",
        caption: "The time that a fraction of the calls does not exceed: a flat line is a steady model, a rise to the right \
                  is a long tail. Bars go from p50, p90, p95 and p99 to their 99 % upper bounds; a missing bar needs more \
                  calls."
            .into(),
        x: "fraction of the calls",
        y: "latency (ms)",
        is_log: true,
        absent: curves.is_empty().then(why_nothing_ran),
        plot: Plot::Distributions { panels: panels.into_iter().collect(), curves },
    }
}

fn bounds(record: &Record) -> Vec<(f64, f64, Option<f64>)> {
    let percentiles = [
        (0.5, record.latency_p50_ms, record.latency_p50_upper_ms),
        (0.9, record.latency_p90_ms, record.latency_p90_upper_ms),
        (0.95, record.latency_p95_ms, record.latency_p95_upper_ms),
        (0.99, record.latency_p99_ms, record.latency_p99_upper_ms),
    ];
    percentiles.into_iter().filter_map(|(p, ms, upper)| Some((p, positive(ms)?, positive(upper)))).collect()
}

/// The quantiles as they were kept; the percentiles of the record if the run has none.
fn quantiles(case: &Measured<'_>, bounds: &[(f64, f64, Option<f64>)]) -> Vec<(f64, f64)> {
    match case.distribution {
        Some(kept) if !kept.quantiles_ms.is_empty() => {
            kept.quantiles_ms.iter().filter(|(_, ms)| *ms > 0.0).map(|(p, ms)| (*p, drawn(*ms))).collect()
        }
        _ => bounds.iter().map(|(p, ms, _)| (*p, *ms)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::report::tests::{record, run_of};
    use crate::run_data::{Distribution, Distributions};

    #[test]
    fn kept_quantiles_go_before_the_percentiles_of_the_record() {
        let with_percentiles = |batch| Record {
            latency_p99_ms: Some(3.0),
            latency_p99_upper_ms: Some(4.0),
            ..record("m", "ort", batch, Some(2.0))
        };
        let mut run = run_of(1, vec![with_percentiles(1), with_percentiles(8)]);
        let kept = Distribution { calls: 4, quantiles_ms: vec![(0.25, 1.0), (0.5, 2.0), (0.75, 2.5)] };
        run.distributions = Some(Distributions::new(BTreeMap::from([("m/ort-cpu-f32/8".to_owned(), kept)])));
        let runs = [run];
        let chart = chart(&Shown::new(&runs, &[]));
        let Plot::Distributions { panels, curves } = chart.plot else { panic!("{:?}", chart.plot) };
        assert_eq!(panels, ["m · batch 1", "m · batch 8"]);
        assert_eq!(curves[0].quantiles, [(0.5, 2.0), (0.99, 3.0)]);
        assert_eq!(curves[0].bounds, [(0.5, 2.0, None), (0.99, 3.0, Some(4.0))]);
        // Of four calls, p99 is not told.
        assert_eq!((curves[1].quantiles.len(), curves[1].bounds.len()), (3, 1));
    }
}
