//! Mean, median and variance.

/// The arithmetic mean; not a number if there are no values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The geometric mean of positive values, from their natural logarithms; not a number if there are none.
pub fn geometric_mean(logarithms: &[f64]) -> f64 {
    mean(logarithms).exp()
}

/// The median: of an even number of values the mean of the two in the middle. Returns `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[middle - 1], upper) })
}

/// The variance of a sample (with the divisor n - 1); 0 for fewer than two values.
pub fn variance(values: &[f64]) -> f64 {
    squares(values) / (values.len().max(2) - 1) as f64
}

/// The variance within groups, `Σᵢ Σⱼ (xᵢⱼ - x̄ᵢ)² / Σᵢ (nᵢ - 1)`, and its degrees of freedom; 0 and 0 if each group
/// has one member.
pub fn pooled_variance(groups: &[Vec<f64>]) -> (f64, f64) {
    let freedom: usize = groups.iter().map(|group| group.len().saturating_sub(1)).sum();
    (groups.iter().map(|group| squares(group)).sum::<f64>() / freedom.max(1) as f64, freedom as f64)
}

/// Mean and standard deviation of the calls (with the divisor n - 1); there is no deviation of a single call.
pub fn mean_and_deviation(calls: &[u64]) -> (f64, Option<f64>) {
    let calls: Vec<f64> = calls.iter().map(|&call| call as f64).collect();
    (mean(&calls), (calls.len() > 1).then(|| variance(&calls).sqrt()))
}

/// The sum of squared deviations from the mean; 0 if there are no values.
fn squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[-4.0, -1.0, -2.0, -3.0]), Some(-2.5));
    }

    #[test]
    fn moments_of_known_samples() {
        assert_eq!(mean_and_deviation(&[1, 3]), (2.0, Some(2.0_f64.sqrt())));
        assert_eq!(mean_and_deviation(&[5]), (5.0, None));
        assert_eq!((variance(&[1.0, 3.0]), variance(&[7.0]), variance(&[])), (2.0, 0.0, 0.0));
        assert!((geometric_mean(&[2.0_f64.ln(), 8.0_f64.ln()]) - 4.0).abs() < 1e-12);
        // The distance between the groups does not count.
        assert_eq!(pooled_variance(&[vec![1.0, 3.0], vec![11.0, 13.0], vec![50.0], vec![]]), (2.0, 2.0));
    }
}
