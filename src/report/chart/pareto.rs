//! Size against speed and accuracy against speed, with the Pareto front: the points that no other beats in both.

use super::{Axis, Better, Chart, FrontPoint, Plot, Scale, positive, why_nothing_ran};
use crate::record::Record;
use crate::report::selection::Shown;

pub fn size(shown: &Shown<'_>) -> Chart {
    let (points, is_empty) = points(shown, Better::Lower, |record| positive(record.model_size_mb));
    Chart {
        id: "size",
        title: "Size against speed",
        caption: "Model files against the median time of a call at the smallest batch size. The line is the Pareto \
                  front: what is above and to the right of it is both larger and slower than something else."
            .into(),
        x: Axis::new("latency, p50 (ms)", Scale::Log),
        y: Axis::new("model size (MB)", Scale::Log),
        absent: is_empty.then(why_nothing_ran),
        plot: Plot::Front { y_is_better: Better::Lower, points },
    }
}

pub fn accuracy(shown: &Shown<'_>) -> Chart {
    let in_percent = |record: &Record| positive(record.accuracy).map(|accuracy| 100.0 * accuracy);
    let (points, is_empty) = points(shown, Better::Higher, in_percent);
    Chart {
        id: "accuracy",
        title: "Accuracy against speed",
        caption: "Right answers over labelled samples against the median time of a call at the smallest batch size. The \
                  line is the Pareto front: what is below and to the right of it is less accurate and slower than \
                  something else."
            .into(),
        x: Axis::new("latency, p50 (ms)", Scale::Log),
        y: Axis::new("accuracy (%)", Scale::Linear),
        absent: is_empty.then(|| {
            "No case has an accuracy: it is the column `accuracy` of results.csv, which is filled for models with \
             labelled samples."
                .into()
        }),
        plot: Plot::Front { y_is_better: Better::Higher, points },
    }
}

/// The cases of the smallest batch size of each group, and whether there is none.
fn points(
    shown: &Shown<'_>,
    better: Better,
    quantity: impl Fn(&Record) -> Option<f64>,
) -> (Vec<FrontPoint>, bool) {
    let smallest = |group: &str| {
        shown.measured().filter(|(_, case)| case.group == group).map(|(_, case)| case.record.batch_size).min()
    };
    let mut known: std::collections::HashMap<&str, Option<usize>> = std::collections::HashMap::new();
    let mut points: Vec<FrontPoint> = Vec::new();
    for (index, case) in shown.measured() {
        let batch_size = *known.entry(&case.group).or_insert_with(|| smallest(&case.group));
        if Some(case.record.batch_size) != batch_size {
            continue;
        }
        let Some((x, y)) = positive(case.record.latency_p50_ms).zip(quantity(case.record)) else { continue };
        points.push(FrontPoint { case: index, x, y, label: case.group.clone(), is_on_front: false });
    }
    let values: Vec<(f64, f64)> = points.iter().map(|point| (point.x, point.y)).collect();
    for (point, is_on_front) in points.iter_mut().zip(front(&values, better)) {
        point.is_on_front = is_on_front;
    }
    let is_empty = points.is_empty();
    (points, is_empty)
}

/// Which points no other one beats: none is as good in both and better in one. A smaller x is better.
fn front(points: &[(f64, f64)], y_is_better: Better) -> Vec<bool> {
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
        let of = |backend, batch, ms, size| Record {
            model_size_mb: Some(size),
            ..record("m", backend, batch, Some(ms))
        };
        let runs = [run_of(1, vec![of("ort", 8, 9.0, 5.0), of("ort", 2, 3.0, 5.0), of("tch", 2, 4.0, 6.0)])];
        let chart = size(&Shown::new(&runs, &[]));
        let Plot::Front { points, .. } = chart.plot else { panic!("{:?}", chart.plot) };
        let found: Vec<_> = points.iter().map(|point| (point.x, point.is_on_front)).collect();
        assert_eq!(found, [(3.0, true), (4.0, false)]);
    }
}
