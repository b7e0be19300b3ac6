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

/// The number of independent observations that say as much about a fraction as this series, which has for each observation whether
/// it is in the fraction. It is at most the length of the series.
///
/// The smaller of two estimates counts, for a variance `σ² = m (1 - m)` of single observations with the mean `m`:
/// `n (1 - ρ) / (1 + ρ)` with the autocorrelation ρ of neighbours (Bayley & Hammersley 1946, "The effective number of
/// independent observations in an autocorrelated time series"), which sees clusters, and `n σ² / (b · var(batch means))` with
/// batches of `b = √n` (Flegal & Jones 2010, "Batch means and spectral variance estimators in Markov chain Monte Carlo"), which
/// sees slow changes. The latter counts only if it is below `n` by more than two standard errors, since few batches scatter.
pub(super) fn effective_count(is_in: &[bool]) -> f64 {
    let n = is_in.len() as f64;
    let observations: Vec<f64> = is_in.iter().map(|&is_in| f64::from(u8::from(is_in))).collect();
    let m = mean(&observations);
    let single = m * (1.0 - m);
    let batch = is_in.len().isqrt();
    if single <= 0.0 || batch < 2 {
        return n;
    }
    let rho = autocorrelation_of(&observations).unwrap_or(0.0).clamp(0.0, 0.999);
    let batch_means: Vec<f64> = observations.chunks_exact(batch).map(mean).collect();
    let excess = batch as f64 * variance(&batch_means) / single;
    let usual_excess = 1.0 + 2.0 * (2.0 / (batch_means.len() - 1) as f64).sqrt();
    (n * (1.0 - rho) / (1.0 + rho)).min(if excess > usual_excess { n / excess } else { n })
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
    fn a_short_series_counts_by_its_batches_only_if_they_differ_by_more_than_chance() {
        let series = |text: &str| text.chars().map(|letter| letter == '1').collect::<Vec<_>>();
        // Batches of two: four means with the variance 1/3, which is 8/3 of what single observations would give, and 2.63 is usual.
        assert!((effective_count(&series("11001100")) - 3.0).abs() < 1e-9);
        // Three means: 2.72 times as much, and 3 is usual.
        assert_eq!(effective_count(&series("1100110")), 7.0);
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
