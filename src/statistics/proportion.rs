//! How well a fraction of samples is known: intervals of proportions, and of the difference of two on the same samples.

use statrs::distribution::{Beta, ContinuousCDF, Normal};

/// The exact interval of a proportion that was seen in `count` of `samples`, with at least `confidence`.
///
/// Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial", Biometrika
/// 26(4), 1934: its ends are quantiles of beta distributions. Returns `None` if there are no samples.
pub fn proportion_interval(count: u64, samples: u64, confidence: f64) -> Option<(f64, f64)> {
    if samples == 0 || count > samples {
        return None;
    }
    let tail = (1.0 - confidence) / 2.0;
    let (count, others) = (count as f64, (samples - count) as f64);
    let quantile = |a: f64, b: f64, p: f64| Some(Beta::new(a, b).ok()?.inverse_cdf(p));
    let lower = if count == 0.0 { 0.0 } else { quantile(count, others + 1.0, tail)? };
    let upper = if others == 0.0 { 1.0 } else { quantile(count + 1.0, others, 1.0 - tail)? };
    Some((lower, upper))
}

/// The interval of the difference of two proportions on the same samples, where `gained` samples have only the first
/// property and `lost` have only the second.
///
/// The adjusted Wald interval of Bonett and Price, "Adjusted Wald confidence interval for a difference of binomial
/// proportions based on paired data", Journal of Educational and Behavioral Statistics 37(4), 2012. Returns `None` if
/// there are no samples.
pub fn paired_difference_interval(gained: u64, lost: u64, samples: u64, confidence: f64) -> Option<(f64, f64)> {
    if samples == 0 || gained + lost > samples {
        return None;
    }
    let z = Normal::standard().inverse_cdf(0.5 + confidence / 2.0);
    let adjusted = samples as f64 + 2.0;
    let (p, q) = ((gained as f64 + 1.0) / adjusted, (lost as f64 + 1.0) / adjusted);
    let half_width = z * ((p + q - (p - q).powi(2)) / adjusted).sqrt();
    Some(((p - q - half_width).max(-1.0), (p - q + half_width).min(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::random::uniform;

    #[test]
    fn the_exact_interval_is_that_of_tables() {
        // By R's binom.test.
        let close = |(lower, upper): (f64, f64), expected: (f64, f64)| {
            assert!((lower - expected.0).abs() < 1e-5 && (upper - expected.1).abs() < 1e-5, "{lower} {upper}");
        };
        close(proportion_interval(8, 10, 0.95).unwrap(), (0.443_905, 0.974_789));
        close(proportion_interval(0, 20, 0.95).unwrap(), (0.0, 0.168_433));
        close(proportion_interval(442, 450, 0.95).unwrap(), (0.965_277, 0.992_292));
        assert_eq!(proportion_interval(20, 20, 0.95).unwrap().1, 1.0);
        assert_eq!(proportion_interval(0, 0, 0.95), None);
    }

    #[test]
    fn a_difference_on_the_same_samples_is_known_better_than_either() {
        let (lower, upper) = paired_difference_interval(0, 0, 450, 0.95).unwrap();
        assert!(lower == -upper && (0.005..0.007).contains(&upper), "{lower} {upper}");
        let (lower, upper) = paired_difference_interval(1, 12, 450, 0.95).unwrap();
        assert!(lower > -0.045 && upper < 0.0, "{lower} {upper}");
        let (lower, upper) = paired_difference_interval(10, 40, 100, 0.95).unwrap();
        assert!((lower - -0.420379).abs() < 1e-5 && (upper - -0.167856).abs() < 1e-5, "{lower} {upper}");
        assert!(paired_difference_interval(2, 3, 5, 0.95).is_some());
        assert_eq!(paired_difference_interval(3, 3, 5, 0.95), None);
    }

    #[test]
    fn the_interval_of_a_difference_covers_it_as_often_as_it_says() {
        const SERIES: u64 = 2000;
        let covered = (0..SERIES).filter(|seed| {
            let mut state = 1000 * seed;
            let drawn: Vec<f64> = (0..450).map(|_| uniform(&mut state)).collect();
            let count = |from: f64, to: f64| drawn.iter().filter(|&&value| value >= from && value < to).count() as u64;
            // 1 % of the samples are gained and 3 % lost.
            let (gained, lost) = (count(0.0, 0.01), count(0.01, 0.04));
            let (lower, upper) = paired_difference_interval(gained, lost, 450, 0.95).unwrap();
            (lower..=upper).contains(&-0.02)
        });
        let coverage = covered.count() as f64 / SERIES as f64;
        assert!((0.93..0.99).contains(&coverage), "{coverage}");
    }
}
