//! Size against speed and accuracy against speed, with the Pareto front: the points that no other beats in both.

use std::collections::{BTreeSet, HashMap};

use indexmap::IndexSet;

use super::{Better, Chart, FrontPoint, Plot, positive, why_nothing_ran};
use crate::definition::Phase;
use crate::report::selection::Shown;
use crate::run_data::Record;

/// Model size against latency.
pub fn size(shown: &Shown<'_>) -> Chart {
    let (panels, points) = points(shown, |record| positive(record.model_size_mb));
    Chart {
        id: "size",
        title: "Size against speed",
        caption: "Model files against the median time of a call at the smallest batch size, for models with the same \
                  kind of input. The line is the Pareto front: every point above and to the right of it is larger and \
                  slower than another one."
            .into(),
        x: "latency, p50 (ms)",
        y: "model size (MB)",
        is_log: true,
        absent: points.is_empty().then(|| match shown.measured().next() {
            None => why_nothing_ran(),
            Some(_) => {
                "No two models or variants with the same kind of input were measured; `inferbench models` lists \
                 those that could be measured, too."
                    .into()
            }
        }),
        plot: Plot::Front { y_is_better: Better::Lower, panels, points },
    }
}

/// Accuracy against latency.
pub fn accuracy(shown: &Shown<'_>) -> Chart {
    let in_percent = |record: &Record| positive(record.accuracy).map(|accuracy| 100.0 * accuracy);
    let (panels, points) = points(shown, in_percent);
    Chart {
        id: "accuracy",
        title: "Accuracy against speed",
        caption: "Right answers over labelled samples against the median time of a call at the smallest batch size, for \
                  models with the same kind of input. The line is the Pareto front: every point below and to the \
                  right of it is less accurate and slower than another one."
            .into(),
        x: "latency, p50 (ms)",
        y: "accuracy (%)",
        is_log: false,
        absent: points.is_empty().then(|| {
            "No two models or variants have an accuracy: it is the column `accuracy` of results.csv, which is filled for \
             models with labelled samples."
                .into()
        }),
        plot: Plot::Front { y_is_better: Better::Higher, panels, points },
    }
}

/// The cases of the smallest batch size of each group, in a panel for each kind of input that has several models.
fn points(shown: &Shown<'_>, quantity: impl Fn(&Record) -> Option<f64>) -> (Vec<String>, Vec<FrontPoint>) {
    let mut smallest: HashMap<&str, usize> = HashMap::new();
    let mut models: HashMap<String, BTreeSet<&str>> = HashMap::new();
    for (_, case) in shown.measured() {
        let known = smallest.entry(&case.group).or_insert(case.record.batch_size);
        *known = case.record.batch_size.min(*known);
        if quantity(case.record).is_some() {
            models.entry(kind_of_input(case.record)).or_default().insert(&case.group);
        }
    }
    let mut panels = IndexSet::new();
    let mut points: Vec<FrontPoint> = Vec::new();
    for (index, case) in shown.measured().filter(|(_, case)| case.record.batch_size == smallest[case.group.as_str()]) {
        let kind = kind_of_input(case.record);
        let Some((x, y)) = positive(case.record.latency_p50_ms).zip(quantity(case.record)) else { continue };
        if models[&kind].len() > 1 {
            let panel = panels.insert_full(kind).0;
            points.push(FrontPoint { case: index, panel, x, y, label: case.group.clone() });
        }
    }
    (panels.into_iter().collect(), points)
}

/// `image`, `text · decode`: calls of different phases do different work and are not compared.
fn kind_of_input(record: &Record) -> String {
    let modality = if record.modality.is_empty() { "models" } else { &record.modality };
    match record.phase {
        Phase::Forward => modality.to_owned(),
        phase => format!("{modality} · {phase}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{record, run_of};

    #[test]
    fn models_are_compared_at_their_smallest_batch_size() {
        let of = |model, modality: &str, batch, ms, size| Record {
            model_size_mb: Some(size),
            modality: modality.into(),
            ..record(model, "ort", batch, Some(ms))
        };
        let runs = [run_of(
            1,
            vec![
                of("m", "image", 8, 9.0, 5.0),
                of("m", "image", 2, 3.0, 5.0),
                of("n", "image", 2, 4.0, 6.0),
                of("alone", "text", 1, 1.0, 1.0),
            ],
        )];
        let chart = size(&Shown::new(&runs, &[]));
        let Plot::Front { panels, points, .. } = chart.plot else { panic!("{:?}", chart.plot) };
        assert_eq!(panels, ["image"]);
        let found: Vec<_> = points.iter().map(|point| point.x).collect();
        assert_eq!(found, [3.0, 4.0]);
    }
}
