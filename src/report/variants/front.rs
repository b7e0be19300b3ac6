//! The Pareto front in latency, quality and size.

use super::{Measure, Row};

/// Marks each row that no other one beats: none is at least as good in all three and better in one.
///
/// What no row has a figure of does not count; a row without a figure that others have is not on the front.
pub fn mark(rows: &mut [Row], measure: Measure) {
    let figures: Vec<[Option<f64>; 3]> = rows.iter().map(|row| figures(row, measure)).collect();
    let counts = [0, 1, 2].map(|axis| figures.iter().any(|figures| figures[axis].is_some()));
    let point = |figures: &[Option<f64>; 3]| -> Option<[f64; 3]> {
        let mut point = [0.0; 3];
        for axis in (0..3).filter(|axis| counts[*axis]) {
            point[axis] = figures[axis]?;
        }
        Some(point)
    };
    let points: Vec<Option<[f64; 3]>> =
        rows.iter().zip(&figures).map(|(row, figures)| row.is_candidate().then(|| point(figures)).flatten()).collect();
    for (row, is_on_front) in rows.iter_mut().zip(front(&points)) {
        row.is_on_front = is_on_front;
    }
}

/// A smaller one is better in each.
fn figures(row: &Row, measure: Measure) -> [Option<f64>; 3] {
    if !row.is_candidate() {
        return [None; 3];
    }
    let quality = measure.value(row).map(|value| -value);
    [row.record.latency_p50_ms, quality, row.record.model_size_mb]
        .map(|figure| figure.filter(|value| value.is_finite()))
}

fn front(points: &[Option<[f64; 3]>]) -> Vec<bool> {
    let is_beaten = |own: &[f64; 3]| points.iter().flatten().any(|other| beats(other, own));
    points.iter().map(|point| point.as_ref().is_some_and(|own| !is_beaten(own))).collect()
}

fn beats(one: &[f64; 3], other: &[f64; 3]) -> bool {
    one.iter().zip(other).all(|(one, other)| one <= other) && one != other
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{SAME, measured, table_of};
    use super::*;
    use crate::record::Record;

    fn on_front(records: Vec<Record>) -> Vec<String> {
        let table = table_of(records);
        table.rows.iter().filter(|row| row.is_on_front).map(|row| row.record.case_id.clone()).collect()
    }

    proptest! {
        /// A row is on the front just if nothing is as good in all three and better in one.
        #[test]
        fn it_is_the_definition(figures in prop::collection::vec((1u8..6, 1u8..6, 0u8..6), 1..25)) {
            let row = |(index, (ms, size, change)): (usize, &(u8, u8, u8))| {
                let change = -f64::from(*change);
                measured(&format!("v{index}"), "ort", f64::from(*size), f64::from(*ms), (change, change, change))
            };
            let table = table_of(figures.iter().enumerate().map(row).collect());
            for own in &table.rows {
                let better = |other: &Row| {
                    let (one, two) = (&other.record, &own.record);
                    let all = one.latency_p50_ms <= two.latency_p50_ms
                        && one.model_size_mb <= two.model_size_mb
                        && one.accuracy >= two.accuracy;
                    let any = one.latency_p50_ms < two.latency_p50_ms
                        || one.model_size_mb < two.model_size_mb
                        || one.accuracy > two.accuracy;
                    all && any
                };
                prop_assert_eq!(own.is_on_front, !table.rows.iter().any(better));
            }
            prop_assert!(table.rows.iter().any(|row| row.is_on_front));
        }
    }

    #[test]
    fn equal_rows_are_on_it_together_and_wrong_ones_never() {
        let wrong = Record { verified: Some(false), ..measured("pruned", "ort", 0.1, 0.1, SAME) };
        let found = on_front(vec![
            measured("original", "ort", 4.0, 2.0, SAME),
            measured("original", "tch", 4.0, 2.0, SAME),
            measured("int8", "ort", 5.0, 3.0, SAME),
            wrong,
        ]);
        assert_eq!(found, ["m/ort-cpu-f32/1", "m/tch-cpu-f32/1"]);
    }

    #[test]
    fn what_nobody_has_measured_does_not_count() {
        let without_size = |record: Record| Record { model_size_mb: None, ..record };
        let rows = || vec![measured("original", "ort", 4.0, 2.0, SAME), measured("int8", "ort", 1.0, 3.0, SAME)];
        assert_eq!(on_front(rows()).len(), 2);
        assert_eq!(on_front(rows().into_iter().map(without_size).collect()), ["m/ort-cpu-f32/1"]);
        let one_without = vec![rows().remove(0), without_size(measured("int8", "ort", 1.0, 1.0, SAME))];
        assert_eq!(on_front(one_without), ["m/ort-cpu-f32/1"]);
    }
}
