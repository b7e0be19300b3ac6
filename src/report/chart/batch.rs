//! Latency, throughput and memory against the batch size: a panel per model, a line per series.

use indexmap::IndexSet;

use super::{BatchPoint, Chart, Plot, positive, why_nothing_ran};
use crate::definition::Phase;
use crate::report::columns::peak_memory;
use crate::report::selection::Shown;
use crate::run_data::Record;

/// A value, and the ends of its whisker.
type Figure = (f64, Option<f64>, Option<f64>);

/// p50 with a whisker to p99.
pub fn latency(shown: &Shown<'_>) -> Chart {
    let figure =
        |record: &Record| positive(record.latency_p50_ms).map(|p50| (p50, Some(p50), positive(record.latency_p99_ms)));
    chart(
        shown,
        ("latency", "Latency against batch size"),
        "Median time of a call; the whisker ends at p99. Lower is better.",
        "latency, p50 to p99 (ms)",
        true,
        figure,
    )
}

/// Samples per second, or tokens per second where they are counted.
pub fn throughput(shown: &Shown<'_>) -> Chart {
    let figure = |record: &Record| match record.phase {
        Phase::Prefill | Phase::Decode if record.tokens_per_second.is_some() => {
            positive(record.tokens_per_second).map(|rate| (rate, None, None))
        }
        _ => positive(record.throughput_ips)
            .map(|rate| (rate, positive(record.throughput_lower_ips), positive(record.throughput_upper_ips))),
    };
    chart(
        shown,
        ("throughput", "Throughput against batch size"),
        "Samples per second; tokens per second for prefill and decode. The whisker is the 95 % interval of the mean. Higher \
         is better.",
        "throughput (samples/s; tokens/s for prefill, decode)",
        true,
        figure,
    )
}

/// Peak memory of the process or the device.
pub fn memory(shown: &Shown<'_>) -> Chart {
    let mut chart = chart(
        shown,
        ("memory", "Memory against batch size"),
        "Peak resident memory of a process that only runs this case; peak memory of the device if it has its own. Lower is \
         better.",
        "peak memory (MB)",
        false,
        |record| positive(peak_memory(record)).map(|memory| (memory, None, None)),
    );
    if chart.absent.is_some() && shown.measured().next().is_some() {
        chart.absent = Some("No case has its memory; measure it with `inferbench run` and `watch = true`.".into());
    }
    chart
}

fn chart(
    shown: &Shown<'_>,
    (id, title): (&'static str, &'static str),
    caption: &str,
    y: &'static str,
    is_log: bool,
    figure: impl Fn(&Record) -> Option<Figure>,
) -> Chart {
    let mut panels = IndexSet::new();
    let points: Vec<BatchPoint> = shown
        .measured()
        .filter_map(|(index, case)| {
            let (value, low, high) = figure(case.record)?;
            let panel = panels.insert_full(case.group.clone()).0;
            Some(BatchPoint { case: index, panel, batch_size: case.record.batch_size, value, low, high })
        })
        .collect();
    Chart {
        id,
        title,
        caption: caption.into(),
        x: "batch size (samples)",
        y,
        is_log,
        absent: points.is_empty().then(why_nothing_ran),
        plot: Plot::Batches { panels: panels.into_iter().collect(), points },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Status;
    use crate::report::tests::{record, run_of};

    #[test]
    fn a_case_without_a_right_figure_is_not_drawn() {
        let wrong = Record { status: Status::WrongOutput, ..record("m", "tch", 1, Some(1.0)) };
        let zero = record("n", "ort", 1, Some(0.0));
        let runs = [run_of(1, vec![record("m", "ort", 8, Some(2.0)), wrong, zero])];
        let chart = latency(&Shown::new(&runs, &[]));
        let Plot::Batches { panels, points } = chart.plot else { panic!("{:?}", chart.plot) };
        assert_eq!(panels, ["m"]);
        assert_eq!(points.iter().map(|point| (point.case, point.batch_size)).collect::<Vec<_>>(), [(0, 8)]);
    }

    #[test]
    fn an_empty_chart_says_what_would_fill_it() {
        let runs = [run_of(1, vec![record("m", "ort", 1, Some(1.0))])];
        assert!(memory(&Shown::new(&runs, &[])).absent.unwrap().contains("watch = true"));
        assert!(latency(&Shown::new(&[], &[])).absent.unwrap().contains("inferbench devices"));
    }
}
