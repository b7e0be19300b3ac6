//! Confidence intervals by resampling, for figures without a formula.

use statrs::distribution::{ContinuousCDF, Normal};

use super::random::uniform;
use super::student::StudentT;

/// How often the samples are drawn again.
const RESAMPLES: usize = 1000;
/// Fewer samples do not show how far they scatter.
const FEWEST_SAMPLES: usize = 5;

/// The expanded percentile interval of a figure of `samples` samples. As many samples are drawn from them with
/// replacement, again and again with a fixed seed. The interval lies between two quantiles of the figures of these
/// draws (Hesterberg 2015, "What teachers should know about the bootstrap"). Plain quantiles (Efron and Tibshirani
/// 1993) are too close together for few samples: resamples scatter less, by `√((n - 1) / n)`, and their spread is
/// itself an estimate.
///
/// `figure` gets how often each sample was drawn. Returns `None` for fewer than five samples, or if the figure has no
/// value for more than a tenth of the draws.
pub fn bootstrap_interval(
    samples: usize,
    confidence: f64,
    mut figure: impl FnMut(&[u32]) -> Option<f64>,
) -> Option<(f64, f64)> {
    if samples < FEWEST_SAMPLES {
        return None;
    }
    let mut state = 1;
    let mut drawn = vec![0; samples];
    let mut figures = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        drawn.fill(0);
        for _ in 0..samples {
            drawn[((uniform(&mut state) * samples as f64) as usize).min(samples - 1)] += 1;
        }
        figures.extend(figure(&drawn).filter(|value| value.is_finite()));
    }
    if figures.len() * 10 < RESAMPLES * 9 {
        return None;
    }
    figures.sort_by(f64::total_cmp);
    let n = samples as f64;
    let reach = StudentT::new(n - 1.0).two_sided_quantile(confidence) * (n / (n - 1.0)).sqrt();
    let tail = Normal::standard().cdf(-reach);
    let quantile = |part: f64| figures[(part * (figures.len() - 1) as f64).round() as usize];
    Some((quantile(tail), quantile(1.0 - tail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_interval(values: &[f64]) -> (f64, f64) {
        let mean = |drawn: &[u32]| {
            let sum: f64 = values.iter().zip(drawn).map(|(value, &count)| value * f64::from(count)).sum();
            Some(sum / values.len() as f64)
        };
        bootstrap_interval(values.len(), 0.95, mean).unwrap()
    }

    #[test]
    fn the_interval_of_a_mean_covers_it() {
        const SERIES: usize = 300;
        let normal = Normal::standard();
        let mut state = 5;
        let covered = (0..SERIES).filter(|_| {
            let values: Vec<f64> = (0..64).map(|_| normal.inverse_cdf(uniform(&mut state))).collect();
            let (lower, upper) = mean_interval(&values);
            (lower..=upper).contains(&0.0)
        });
        let coverage = covered.count() as f64 / SERIES as f64;
        assert!((0.9..0.98).contains(&coverage), "{coverage}");
    }

    #[test]
    fn the_interval_lies_between_quantiles_of_the_figures() {
        let mut figure = 0.0;
        let next = |_: &[u32]| {
            figure += 1.0;
            Some(figure)
        };
        // t(0.95; 4) = 2.131847, times √(5/4), is 2.383: the normal distribution has 0.86 % beyond it.
        assert_eq!(bootstrap_interval(5, 0.9, next), Some((10.0, 991.0)));
    }

    #[test]
    fn the_same_samples_have_the_same_interval_and_none_have_none() {
        let values = [1.0, 2.0, 5.0, 7.0, 1.0, 0.0];
        assert_eq!(mean_interval(&values), mean_interval(&values));
        assert_eq!(bootstrap_interval(4, 0.95, |_| Some(1.0)), None);
        assert_eq!(bootstrap_interval(6, 0.95, |_| None), None);
    }
}
