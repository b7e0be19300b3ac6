//! The ratio of two sides' times, with the interval in which it lies.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::noise::Noise;
use super::verdict::RatioInterval;
use super::within::Within;

/// The runs of one case on one side.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// The logarithm of each run's median.
    pub log_medians: Vec<f64>,
    /// How uncertain each is by its own calls, where that is known.
    pub within: Vec<Option<Within>>,
    pub noise: Noise,
}

/// What the runs say of the ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub interval: RatioInterval,
    /// Of a ratio that is this far from 1, or farther, if nothing has changed.
    pub p_value: f64,
    /// The change that equal code shows here, as a part of the base's time.
    pub floor: f64,
}

/// Nothing is known better than this, whatever the figures say.
const LEAST_LOG_ERROR: f64 = 1e-6;

/// A part of a variance, and the degrees of freedom that it was estimated with.
type Part = (f64, f64);

/// The candidate's time over the base's.
///
/// With `y` the mean over a side's `n` runs of the logarithm of their medians, `s` the noise between runs, and `w` the
/// error of each median by its own calls, the interval is that of a t test (Welch 1947; degrees of freedom by
/// Satterthwaite 1946) with the variance of all parts,
///
/// ```text
/// ln ratio = y₂ - y₁ ± t(½ + confidence / 2; ν) · √V     V = s₁²/n₁ + s₂²/n₂ + Σ w²/n²     ν = V² / Σ (Vᵢ² / νᵢ)
/// ```
///
/// Where both sides have the same noise, it is one part: `s² (1/n₁ + 1/n₂)`. ν is at most that of the noise alone: where
/// a few runs happen to be alike, `s` is small, and ν would rest on the calls. Since `s` was found from medians, errors
/// like `w` are in it already: the interval is rather too wide than too narrow.
///
/// The floor is the larger of `t · √(s₁²/n₁ + s₂²/n₂)` and the step that 95 % of the changes between equal runs did not exceed.
pub fn estimate(base: &Arm, candidate: &Arm, confidence: f64) -> Estimate {
    let between: Vec<Part> = if base.noise == candidate.noise {
        vec![of_noise(&base.noise, 1.0 / base.count() + 1.0 / candidate.count())]
    } else {
        vec![of_noise(&base.noise, 1.0 / base.count()), of_noise(&candidate.noise, 1.0 / candidate.count())]
    };
    let mut parts = between.clone();
    parts.extend(base.within_parts().chain(candidate.within_parts()));
    parts.push((LEAST_LOG_ERROR.powi(2), f64::INFINITY));

    let log_ratio = candidate.mean() - base.mean();
    let (between_error, between_freedom) = error_and_freedom(&between);
    let (error, freedom) = error_and_freedom(&parts);
    let t = t_distribution(freedom.min(between_freedom));
    let half_width = t.inverse_cdf(0.5 + confidence / 2.0) * error;
    let usual_step = base.noise.usual_step.max(candidate.noise.usual_step)
        * ((1.0 / base.count() + 1.0 / candidate.count()) / 2.0).sqrt();
    Estimate {
        interval: RatioInterval {
            ratio: log_ratio.exp(),
            lower: (log_ratio - half_width).exp(),
            upper: (log_ratio + half_width).exp(),
            confidence,
        },
        p_value: two_sided_p(&t, log_ratio / error),
        floor: (t.inverse_cdf(0.5 + confidence / 2.0) * between_error).max(usual_step).exp_m1(),
    }
}

fn of_noise(noise: &Noise, share: f64) -> Part {
    (noise.deviation.powi(2) * share, noise.freedom.unwrap_or(f64::INFINITY))
}

/// The square root of the parts' sum, and its degrees of freedom.
fn error_and_freedom(parts: &[Part]) -> (f64, f64) {
    let sum: f64 = parts.iter().map(|(variance, _)| variance).sum();
    let weights: f64 = parts.iter().map(|(variance, freedom)| variance.powi(2) / freedom).sum();
    let least = parts.iter().map(|(_, freedom)| *freedom).fold(f64::INFINITY, f64::min);
    (sum.sqrt(), if sum > 0.0 { sum.powi(2) / weights } else { least })
}

fn t_distribution(freedom: f64) -> StudentsT {
    const NEARLY_NORMAL: f64 = 1e6;
    // Not a number where a file has infinite figures.
    let freedom = if freedom.is_nan() { 1.0 } else { freedom.clamp(1.0, NEARLY_NORMAL) };
    StudentsT::new(0.0, 1.0, freedom).expect("location 0, scale 1 and freedom from 1 are a distribution")
}

/// 1 where the ratio is no number: 0 by 0, of equal runs without any scatter.
fn two_sided_p(t: &StudentsT, ratio: f64) -> f64 {
    if ratio.is_nan() { 1.0 } else { 2.0 * t.sf(ratio.abs()) }
}

impl Arm {
    fn count(&self) -> f64 {
        self.log_medians.len() as f64
    }

    fn mean(&self) -> f64 {
        self.log_medians.iter().sum::<f64>() / self.count()
    }

    fn within_parts(&self) -> impl Iterator<Item = Part> {
        let count = self.count();
        self.within.iter().flatten().map(move |within| ((within.log_error / count).powi(2), within.freedom))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::noise::Source;

    fn noise(deviation: f64, freedom: f64) -> Noise {
        Noise { deviation, freedom: Some(freedom), source: Source::Runs, usual_step: 0.0 }
    }

    fn arm(log_medians: &[f64], noise: Noise) -> Arm {
        Arm { log_medians: log_medians.to_vec(), within: vec![None; log_medians.len()], noise }
    }

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-4 * expected.abs(), "{found} is not {expected}");
    }

    #[test]
    fn the_interval_has_the_published_quantiles() {
        // t(0.995; 9) = 3.2498; √2 for a run on each side.
        let Estimate { interval, floor, .. } =
            estimate(&arm(&[0.0], noise(0.01, 9.0)), &arm(&[0.1], noise(0.01, 9.0)), 0.99);
        let half_width = 3.249_84 * 0.01 * 2.0_f64.sqrt();
        assert_near(interval.ratio.ln(), 0.1);
        assert_near(interval.lower.ln(), 0.1 - half_width);
        assert_near(interval.upper.ln(), 0.1 + half_width);
        assert_near(floor, half_width.exp() - 1.0);
    }

    #[test]
    fn several_runs_a_side_are_the_pooled_t_test() {
        // Differences 0.2 of two times three runs with s = 0.1: t = 2.4495 with 4 degrees of freedom, p = 0.0705.
        let (base, candidate) = (arm(&[-0.1, 0.0, 0.1], noise(0.1, 4.0)), arm(&[0.1, 0.2, 0.3], noise(0.1, 4.0)));
        assert_near(estimate(&base, &candidate, 0.95).p_value, 0.070_484);
    }

    #[test]
    fn scatter_of_the_calls_is_added() {
        let quiet = arm(&[0.0], noise(0.03, 1e6));
        let scattered = Arm { within: vec![Some(Within { log_error: 0.04, freedom: 1e6 })], ..quiet.clone() };
        let width = |base: &Arm, candidate: &Arm| estimate(base, candidate, 0.95).interval.upper.ln();
        assert_near(width(&quiet, &quiet), 1.959_96 * 0.03 * 2.0_f64.sqrt());
        assert_near(width(&quiet, &scattered), 1.959_96 * (2.0 * 0.0009 + 0.0016_f64).sqrt());
        assert_near(width(&scattered, &scattered), 1.959_96 * (2.0 * 0.0009 + 2.0 * 0.0016_f64).sqrt());
    }

    #[test]
    fn unequal_noise_has_the_degrees_of_freedom_of_welch() {
        let estimate = estimate(&arm(&[0.0], noise(0.01, 4.0)), &arm(&[0.0], noise(0.03, 4.0)), 0.95);
        // ν = (1 + 9)² / (1/4 + 81/4) = 4.878; t(0.975; 4.878) = 2.5900.
        assert_near(estimate.interval.upper.ln(), 2.590_04 * 0.001_f64.sqrt());
    }

    #[test]
    fn no_noise_at_all_is_no_division_by_zero() {
        let Estimate { interval, p_value, floor } =
            estimate(&arm(&[0.0], noise(0.0, 3.0)), &arm(&[0.0], noise(0.0, 3.0)), 0.99);
        assert!(interval.lower < 1.0 && interval.upper > 1.0 && p_value > 0.9 && floor == 0.0);
    }

    #[test]
    fn the_usual_step_lifts_the_floor() {
        let stepping = Noise { usual_step: 0.2, ..noise(0.001, 9.0) };
        assert_near(estimate(&arm(&[0.0], stepping), &arm(&[0.0], stepping), 0.99).floor, 0.2_f64.exp() - 1.0);
    }
}
