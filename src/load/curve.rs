//! The knee of a curve of rates and latencies, and the Pareto front of choices.

/// The place of the knee of a curve that rises: the point that is farthest below the line from its first to its last point, both
/// axes from 0 to 1 (Satopää et al. 2011, "Finding a 'kneedle' in a haystack", without smoothing). The points are in the order of
/// `x`. Returns `None` for fewer than three points, if the last one is not above the first, and if none is below the line.
pub fn knee(points: &[(f64, f64)]) -> Option<usize> {
    let (&(x0, y0), &(x1, y1)) = (points.first()?, points.last()?);
    if x1 <= x0 || y1 <= y0 {
        return None;
    }
    let below = |&(x, y): &(f64, f64)| (x - x0) / (x1 - x0) - (y - y0) / (y1 - y0);
    let inner = points.iter().enumerate().skip(1).take(points.len().saturating_sub(2));
    let distances = inner.map(|(place, point)| (place, below(point))).filter(|(_, distance)| *distance > 0.0);
    distances.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(place, _)| place)
}

/// Whether each choice is on the Pareto front: no other one is at least as good in all figures and better in one. Less
/// is better.
pub fn front<const N: usize>(choices: &[[f64; N]]) -> Vec<bool> {
    let beats = |one: &[f64; N], other: &[f64; N]| {
        one.iter().zip(other).all(|(one, other)| one <= other) && one.iter().zip(other).any(|(one, other)| one < other)
    };
    choices.iter().map(|choice| !choices.iter().any(|other| beats(other, choice))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_where_latency_begins_to_rise() {
        // The mean time in an M/M/1 queue with a service of 1.
        let rates = [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99];
        let curve: Vec<(f64, f64)> = rates.iter().map(|rho| (*rho, 1.0 / (1.0 - rho))).collect();
        assert_eq!(knee(&curve).map(|place| curve[place].0), Some(0.9));
        assert_eq!(knee(&curve[..2]), None);
        assert_eq!(knee(&[(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]), None);
        assert_eq!(knee(&[(1.0, 5.0), (2.0, 5.0), (3.0, 5.0)]), None);
        // Latencies that scatter and do not rise have no knee.
        assert_eq!(knee(&[(1.0, 5.0), (2.0, 4.9), (3.0, 5.0)]), None);
        assert_eq!(knee(&[(1.0, 5.0), (2.0, 4.9), (3.0, 4.8)]), None);
    }

    #[test]
    fn what_is_beaten_in_all_is_not_on_the_front() {
        assert_eq!(
            front(&[[1.0, 3.0], [2.0, 2.0], [2.0, 3.0], [3.0, 1.0], [1.0, 3.0]]),
            [true, true, false, true, true]
        );
    }
}
