//! How much a call's time says about the next one's.

use super::moments::mean_and_deviation;

/// The autocorrelation of successive calls (lag 1). Returns `None` for constant calls and for fewer than three.
pub fn autocorrelation(calls: &[u64]) -> Option<f64> {
    if calls.len() < 3 {
        return None;
    }
    let (mean, _) = mean_and_deviation(calls);
    let centred: Vec<f64> = calls.iter().map(|&call| call as f64 - mean).collect();
    let variance: f64 = centred.iter().map(|value| value * value).sum();
    let covariance: f64 = centred.windows(2).map(|pair| pair[0] * pair[1]).sum();
    (variance > 0.0).then(|| covariance / variance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternating_calls_are_negative_and_a_trend_is_positive() {
        assert!(autocorrelation(&[1, 2, 1, 2, 1, 2, 1, 2]).unwrap() < -0.8);
        assert!(autocorrelation(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap() > 0.5);
        assert_eq!(autocorrelation(&[7, 7, 7]), None);
    }
}
