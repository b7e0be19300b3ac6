//! How much a call's time says about the next one's, and how many independent calls a series is worth.

use super::moments::{mean, variance};

/// The autocorrelation of successive calls (lag 1). Returns `None` for constant calls and for fewer than three.
pub fn autocorrelation(calls: &[u64]) -> Option<f64> {
    let calls: Vec<f64> = calls.iter().map(|&call| call as f64).collect();
    if calls.len() < 3 { None } else { autocorrelation_of(&calls) }
}

/// The autocorrelation of neighbours (lag 1) in a series of any values. Returns `None` if they are all equal.
pub fn autocorrelation_of(values: &[f64]) -> Option<f64> {
    let mean = mean(values);
    let centred: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let squares: f64 = centred.iter().map(|value| value * value).sum();
    let products: f64 = centred.windows(2).map(|pair| pair[0] * pair[1]).sum();
    (squares > 0.0).then(|| products / squares)
}

/// [`variance_inflation`] uses blocks only as long as there are at least this many.
const FEWEST_BLOCKS: usize = 10;

/// For blocks of 2, 4, 8 and more successive values, as long as there are `fewest`: the variance of their sums over
/// that of independent values, and the relative standard error of that variance (batch means; Conway 1963, "Some
/// tactical problems in digital simulation").
pub(super) fn block_excesses(values: &[f64], fewest: usize) -> Vec<(f64, f64)> {
    let middle = mean(values);
    let single = values.iter().map(|value| (value - middle).powi(2)).sum::<f64>() / values.len() as f64;
    let (mut sums, mut length, mut found) = (values.to_vec(), 1.0, Vec::new());
    while single > 0.0 && sums.len() / 2 >= fewest {
        sums = sums.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect();
        length *= 2.0;
        found.push((variance(&sums) / (length * single), (2.0 / (sums.len() - 1) as f64).sqrt()));
    }
    found
}

/// The variance of the mean of these values over that of as many independent ones; at least 1. This many successive
/// values are worth one independent value.
///
/// The largest of several estimates counts: `(1 + ρ) / (1 - ρ)` with the autocorrelation ρ of neighbours (Bayley &
/// Hammersley 1946, "The effective number of independent observations in an autocorrelated time series"), which sees
/// clusters, and those of [`block_excesses`], which see slow changes. The latter count only if they are above 1 by more
/// than three standard errors, since few blocks scatter.
pub(super) fn variance_inflation(values: &[f64]) -> f64 {
    let Some(rho) = autocorrelation_of(values) else { return 1.0 };
    let rho = rho.clamp(0.0, 0.999);
    let clear = block_excesses(values, FEWEST_BLOCKS).into_iter().filter(|(excess, error)| *excess > 1.0 + 3.0 * error);
    clear.map(|(excess, _)| excess).fold((1.0 + rho) / (1.0 - rho), f64::max)
}

/// The number of independent observations that say as much about a fraction as this series. `is_in` tells of each
/// observation whether it is in the fraction. The result is at most the length of the series.
pub(super) fn effective_count(is_in: &[bool]) -> f64 {
    let observations: Vec<f64> = is_in.iter().map(|&is_in| f64::from(u8::from(is_in))).collect();
    is_in.len() as f64 / variance_inflation(&observations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_and_slow_changes_are_worth_fewer_observations() {
        let every_tenth: Vec<bool> = (0..1000).map(|index| index % 10 == 0).collect();
        assert_eq!(effective_count(&every_tenth), 1000.0);
        let in_clusters: Vec<bool> = (0..1000).map(|index| index % 100 < 10).collect();
        assert!(effective_count(&in_clusters) < 120.0);
        let late: Vec<bool> = (0..1000).map(|index| index > 500 && index % 5 == 0).collect();
        assert!(effective_count(&late) < 600.0);
        assert_eq!(effective_count(&[true; 50]), 50.0);
    }

    #[test]
    fn alternating_calls_are_negative_and_a_trend_is_positive() {
        assert!(autocorrelation(&[1, 2, 1, 2, 1, 2, 1, 2]).unwrap() < -0.8);
        assert!(autocorrelation(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap() > 0.5);
        assert_eq!(autocorrelation(&[7, 7, 7]), None);
        assert_eq!(autocorrelation(&[1, 2, 3]), Some(0.0));
        assert_eq!(autocorrelation(&[1, 2]), None);
    }
}
