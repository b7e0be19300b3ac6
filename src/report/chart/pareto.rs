//! Size against speed and accuracy against speed, with the Pareto front: the points that no other beats in both.

use std::collections::{BTreeSet, HashMap};

use super::{Axis, Better, Chart, FrontPoint, Names, Plot, Scale, positive, why_nothing_ran};
use crate::definition::Phase;
use crate::record::Record;
use crate::report::selection::Shown;

pub fn size(shown: &Shown<'_>) -> Chart {
    let (panels, points) = points(shown, Better::Lower, |record| positive(record.model_size_mb));
    Chart {
        id: "size",
        title: "Size against speed",
        caption: "Model files against the median time of a call at the smallest batch size, for models with the same \
                  kind of input. The line is the Pareto front: what is above and to the right of it is both larger and \
                  slower than something else."
            .into(),
        x: Axis::new("latency, p50 (ms)", Scale::Log),
        y: Axis::new("model size (MB)", Scale::Log),
        absent: points.is_empty().then(|| match shown.measured().next() {
            None => why_nothing_ran(),
            Some(_) => {
                "No two models or variants with the same kind of input were measured; `inferbench models` lists \
                        what could be measured beside."
                    .into()
            }
        }),
        plot: Plot::Front { y_is_better: Better::Lower, panels, points },
    }
}

pub fn accuracy(shown: &Shown<'_>) -> Chart {
    let in_percent = |record: &Record| positive(record.accuracy).map(|accuracy| 100.0 * accuracy);
    let (panels, points) = points(shown, Better::Higher, in_percent);
    Chart {
        id: "accuracy",
        title: "Accuracy against speed",
        caption: "Right answers over labelled samples against the median time of a call at the smallest batch size, for \
                  models with the same kind of input. The line is the Pareto front: what is below and to the right of \
                  it is less accurate and slower than something else."
            .into(),
        x: Axis::new("latency, p50 (ms)", Scale::Log),
        y: Axis::new("accuracy (%)", Scale::Fitted),
        absent: points.is_empty().then(|| {
            "No two models or variants have an accuracy: it is the column `accuracy` of results.csv, which is filled for \
             models with labelled samples."
                .into()
        }),
        plot: Plot::Front { y_is_better: Better::Higher, panels, points },
    }
}

/// The cases of the smallest batch size of each group, in a panel for each kind of input that has several models.
fn points(
    shown: &Shown<'_>,
    better: Better,
    quantity: impl Fn(&Record) -> Option<f64>,
) -> (Vec<String>, Vec<FrontPoint>) {
    let mut smallest: HashMap<&str, usize> = HashMap::new();
    let mut models: HashMap<String, BTreeSet<&str>> = HashMap::new();
    for (_, case) in shown.measured() {
        let known = smallest.entry(&case.group).or_insert(case.record.batch_size);
        *known = case.record.batch_size.min(*known);
        if quantity(case.record).is_some() {
            models.entry(kind_of_input(case.record)).or_default().insert(&case.group);
        }
    }
    let mut panels = Names::default();
    let mut points: Vec<FrontPoint> = Vec::new();
    for (index, case) in shown.measured().filter(|(_, case)| case.record.batch_size == smallest[case.group.as_str()]) {
        let kind = kind_of_input(case.record);
        let Some((x, y)) = positive(case.record.latency_p50_ms).zip(quantity(case.record)) else { continue };
        if models[&kind].len() > 1 {
            let panel = panels.index(&kind);
            points.push(FrontPoint { case: index, panel, x, y, label: case.group.clone(), is_on_front: false });
        }
    }
    for panel in 0..panels.names.len() {
        let mut members: Vec<&mut FrontPoint> = points.iter_mut().filter(|point| point.panel == panel).collect();
        let values: Vec<(f64, f64)> = members.iter().map(|point| (point.x, point.y)).collect();
        for (point, is_on_front) in members.iter_mut().zip(front(&values, better)) {
            point.is_on_front = is_on_front;
        }
    }
    (panels.names, points)
}

/// `image`, `text · decode`: calls that do another part of the work are not compared.
fn kind_of_input(record: &Record) -> String {
    let modality = if record.modality.is_empty() { "models" } else { &record.modality };
    match record.phase {
        Phase::Forward => modality.to_owned(),
        phase => format!("{modality} · {phase}"),
    }
}

/// Which points no other one beats: none is as good in both and better in one. A smaller x is better.
pub fn front(points: &[(f64, f64)], y_is_better: Better) -> Vec<bool> {
    let sign = if y_is_better == Better::Lower { 1.0 } else { -1.0 };
    let mut order: Vec<usize> = (0..points.len()).collect();
    let key = |index: &usize| (points[*index].0, sign * points[*index].1);
    order.sort_by(|one, other| {
        let ((x, y), (other_x, other_y)) = (key(one), key(other));
        x.total_cmp(&other_x).then(y.total_cmp(&other_y))
    });
    let mut is_on_front = vec![false; points.len()];
    let mut best: Option<(f64, f64)> = None;
    for index in order {
        let (x, y) = key(&index);
        if best.is_none_or(|(best_x, best_y)| y < best_y || (x, y) == (best_x, best_y)) {
            is_on_front[index] = true;
            best = Some((x, y));
        }
    }
    is_on_front
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::tests::{record, run_of};

    #[test]
    fn the_front_is_what_no_other_point_beats() {
        let points = [(1.0, 9.0), (2.0, 5.0), (2.0, 6.0), (3.0, 5.0), (4.0, 1.0)];
        assert_eq!(front(&points, Better::Lower), [true, true, false, false, true]);
        assert_eq!(front(&points, Better::Higher), [true, false, false, false, false]);
        assert_eq!(front(&[(1.0, 1.0), (1.0, 1.0)], Better::Lower), [true, true]);
        assert!(front(&[], Better::Lower).is_empty());
    }

    proptest! {
        #[test]
        fn it_is_the_definition(points in prop::collection::vec((0u8..9, 0u8..9), 0..30)) {
            let points: Vec<(f64, f64)> = points.into_iter().map(|(x, y)| (x.into(), y.into())).collect();
            let beats = |a: &(f64, f64), b: &(f64, f64)| a.0 <= b.0 && a.1 <= b.1 && a != b;
            let expected: Vec<bool> = points.iter().map(|p| !points.iter().any(|other| beats(other, p))).collect();
            prop_assert_eq!(front(&points, Better::Lower), expected);
        }
    }

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
        let found: Vec<_> = points.iter().map(|point| (point.x, point.is_on_front)).collect();
        assert_eq!(found, [(3.0, true), (4.0, false)]);
    }
}
