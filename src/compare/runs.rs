//! The estimator of `compare`: the ratio of two sides' times from whole runs, with the known noise between runs and the
//! uncertainty of each run's median by its own calls.

use statrs::distribution::{ContinuousCDF, Normal};

use super::noise::Noise;
use super::verdict::{RatioEstimate, RatioInterval};
use crate::run_data::Record;
use crate::statistics::{StudentT, mean};

/// The runs of one case on one side of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseRuns {
    /// The logarithm of each run's median.
    pub log_medians: Vec<f64>,
    /// The uncertainty of each median by its own calls, if it is known.
    pub within: Vec<Option<Within>>,
    pub noise: Noise,
}

/// Nothing is known better than this, whatever the figures say.
const LEAST_LOG_ERROR: f64 = 1e-6;

/// A component of a variance.
#[derive(Clone, Copy)]
struct Component {
    variance: f64,
    /// The degrees of freedom that the variance was estimated with.
    freedom: f64,
}

/// The candidate's time over the base's.
///
/// With `y` the mean over a side's `n` runs of the logarithm of their medians, `s` the noise between runs, and `w` the
/// error of each median by its own calls, the interval is that of a t test (Welch 1947; degrees of freedom by
/// Satterthwaite 1946) with the variance of all components,
///
/// ```text
/// ln ratio = y₂ - y₁ ± t(½ + confidence / 2; ν) · √V     V = s₁²/n₁ + s₂²/n₂ + Σ w²/n²     ν = V² / Σ (Vᵢ² / νᵢ)
/// ```
///
/// Where both sides have the same noise, it is one component: `s² (1/n₁ + 1/n₂)`. ν is at most that of the noise alone: if
/// a few runs happen to be alike, `s` is small, and ν would rest on the calls. Since `s` was found from medians, errors
/// like `w` are in it already: the interval is rather too wide than too narrow.
pub fn estimate(base: &CaseRuns, candidate: &CaseRuns, confidence: f64) -> RatioEstimate {
    let between = between(base, candidate);
    let mut components = between.clone();
    components.extend(base.within_components().chain(candidate.within_components()));
    components.push(Component { variance: LEAST_LOG_ERROR.powi(2), freedom: f64::INFINITY });

    let logarithm = mean(&candidate.log_medians) - mean(&base.log_medians);
    let (error, freedom) = error_and_freedom(&components);
    let t = StudentT::new(freedom.min(error_and_freedom(&between).1));
    let half_width = t.two_sided_quantile(confidence) * error;
    let logarithms = [logarithm, logarithm - half_width, logarithm + half_width];
    RatioEstimate {
        interval: RatioInterval::of_logarithms(logarithms, confidence),
        p_value: t.two_sided_p(logarithm / error),
    }
}

/// The change that identical code shows between such runs, as a fraction of the base's time: the larger of
/// `t · √(s₁²/n₁ + s₂²/n₂)` and the step that 95 % of the changes between equal runs did not exceed.
pub fn floor(base: &CaseRuns, candidate: &CaseRuns, confidence: f64) -> f64 {
    let (error, freedom) = error_and_freedom(&between(base, candidate));
    let usual_step = base.noise.usual_step.max(candidate.noise.usual_step)
        * f64::midpoint(1.0 / base.count(), 1.0 / candidate.count()).sqrt();
    (StudentT::new(freedom).two_sided_quantile(confidence) * error).max(usual_step).exp_m1()
}

/// The noise between runs.
fn between(base: &CaseRuns, candidate: &CaseRuns) -> Vec<Component> {
    let of_noise = |noise: &Noise, weight: f64| Component {
        variance: noise.deviation.powi(2) * weight,
        freedom: noise.freedom.unwrap_or(f64::INFINITY),
    };
    if base.noise == candidate.noise {
        vec![of_noise(&base.noise, 1.0 / base.count() + 1.0 / candidate.count())]
    } else {
        vec![of_noise(&base.noise, 1.0 / base.count()), of_noise(&candidate.noise, 1.0 / candidate.count())]
    }
}

/// The square root of the components' sum, and its degrees of freedom.
fn error_and_freedom(components: &[Component]) -> (f64, f64) {
    let sum: f64 = components.iter().map(|component| component.variance).sum();
    let weights: f64 = components.iter().map(|component| component.variance.powi(2) / component.freedom).sum();
    let least = components.iter().map(|component| component.freedom).fold(f64::INFINITY, f64::min);
    (sum.sqrt(), if sum > 0.0 { sum.powi(2) / weights } else { least })
}

impl CaseRuns {
    /// The runs of these records, with the logarithm of each one's time.
    pub fn new(records: &[&Record], log_medians: Vec<f64>, noise: Noise) -> Self {
        CaseRuns { log_medians, within: records.iter().map(|record| Within::of_record(record)).collect(), noise }
    }

    /// Returns true if there is a time.
    pub fn is_known(&self) -> bool {
        !self.log_medians.is_empty()
    }

    fn count(&self) -> f64 {
        self.log_medians.len() as f64
    }

    fn within_components(&self) -> impl Iterator<Item = Component> {
        let count = self.count();
        let component =
            move |within: &Within| Component { variance: (within.log_error / count).powi(2), freedom: within.freedom };
        self.within.iter().flatten().map(component)
    }
}

/// The standard error of the logarithm of a run's median latency, with its degrees of freedom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Within {
    pub log_error: f64,
    /// Degrees of freedom.
    pub freedom: f64,
}

/// The standard error of the median over that of the mean, for normal calls: `√(π / 2)`.
const MEDIAN_OVER_MEAN: f64 = 1.253_314_137_315_500_3;

impl Within {
    /// Estimates the error from the distance between median and p90, as for normal calls, or else from Criterion's
    /// interval of the median. Returns `None` if neither is known, and for a row of several processes, whose scatter
    /// includes this error.
    ///
    /// A few calls that took very long move neither percentile, unlike the standard deviation. Both ways assume independent calls. A
    /// positive lag-1 autocorrelation ρ makes `n` calls worth `n (1 - ρ) / (1 + ρ)` independent ones (Bayley & Hammersley 1946, "The
    /// effective number of independent observations").
    pub fn of_record(record: &Record) -> Option<Self> {
        if record.latency_p50_interval_lower_ms.is_some() {
            return None;
        }
        let rho = record.autocorrelation.unwrap_or(0.0).clamp(0.0, 0.99);
        let of = |log_error: f64, count: usize| {
            let log_error = log_error * ((1.0 + rho) / (1.0 - rho)).sqrt();
            (log_error.is_finite() && log_error >= 0.0 && count > 1)
                .then_some(Within { log_error, freedom: (count - 1) as f64 })
        };
        let by_criterion = || {
            let (lower, upper) = record.criterion_median_lower_ms.zip(record.criterion_median_upper_ms)?;
            let confidence = record.confidence_level.filter(|level| *level > 0.0 && *level < 1.0)?;
            let z = Normal::standard().inverse_cdf(0.5 + confidence / 2.0);
            of((upper / lower).ln() / (2.0 * z), record.sample_count?)
        };
        let by_percentiles = || {
            let (p90, p50) = record.latency_p90_ms.zip(record.latency_p50_ms)?;
            let deviation = (p90 / p50).ln() / Normal::standard().inverse_cdf(0.9);
            let count = record.iterations?;
            of(MEDIAN_OVER_MEAN * deviation / (count as f64).sqrt(), count)
        };
        by_percentiles().or_else(by_criterion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::noise::Source;
    use crate::compare::tests::simulation::{Process, empty_record, within};

    fn noise(deviation: f64, freedom: f64) -> Noise {
        Noise { deviation, freedom: Some(freedom), runs: 10, source: Source::Runs, usual_step: 0.0 }
    }

    fn runs(log_medians: &[f64], noise: Noise) -> CaseRuns {
        CaseRuns { log_medians: log_medians.to_vec(), within: vec![None; log_medians.len()], noise }
    }

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-4 * expected.abs(), "{found} is not {expected}");
    }

    #[test]
    fn the_interval_has_the_published_quantiles() {
        // t(0.995; 9) = 3.2498; √2 for a run on each side.
        let (base, candidate) = (runs(&[0.0], noise(0.01, 9.0)), runs(&[0.1], noise(0.01, 9.0)));
        let interval = estimate(&base, &candidate, 0.99).interval;
        let half_width = 3.249_84 * 0.01 * 2.0_f64.sqrt();
        assert_near(interval.ratio.ln(), 0.1);
        assert_near(interval.lower.ln(), 0.1 - half_width);
        assert_near(interval.upper.ln(), 0.1 + half_width);
        assert_near(floor(&base, &candidate, 0.99), half_width.exp() - 1.0);
    }

    #[test]
    fn several_runs_a_side_are_the_pooled_t_test() {
        // Differences 0.2 of two times three runs with s = 0.1: t = 2.4495 with 4 degrees of freedom, p = 0.0705.
        let (base, candidate) = (runs(&[-0.1, 0.0, 0.1], noise(0.1, 4.0)), runs(&[0.1, 0.2, 0.3], noise(0.1, 4.0)));
        assert_near(estimate(&base, &candidate, 0.95).p_value, 0.070_484);
    }

    #[test]
    fn scatter_of_the_calls_is_added() {
        let quiet = runs(&[0.0], noise(0.03, 1e6));
        let scattered = CaseRuns { within: vec![Some(Within { log_error: 0.04, freedom: 1e6 })], ..quiet.clone() };
        let width = |base: &CaseRuns, candidate: &CaseRuns| estimate(base, candidate, 0.95).interval.upper.ln();
        assert_near(width(&quiet, &quiet), 1.959_96 * 0.03 * 2.0_f64.sqrt());
        assert_near(width(&quiet, &scattered), 1.959_96 * (2.0 * 0.0009 + 0.0016_f64).sqrt());
        assert_near(width(&scattered, &scattered), 1.959_96 * (2.0 * 0.0009 + 2.0 * 0.0016_f64).sqrt());
    }

    #[test]
    fn unequal_noise_has_the_degrees_of_freedom_of_welch() {
        let estimate = estimate(&runs(&[0.0], noise(0.01, 4.0)), &runs(&[0.0], noise(0.03, 4.0)), 0.95);
        // ν = (1 + 9)² / (1/4 + 81/4) = 4.878; t(0.975; 4.878) = 2.5900.
        assert_near(estimate.interval.upper.ln(), 2.590_04 * 0.001_f64.sqrt());
    }

    #[test]
    fn no_noise_at_all_is_no_division_by_zero() {
        let equal = runs(&[0.0], noise(0.0, 3.0));
        let RatioEstimate { interval, p_value } = estimate(&equal, &equal, 0.99);
        assert!(interval.lower < 1.0 && interval.upper > 1.0 && p_value > 0.9);
        assert_eq!(floor(&equal, &equal, 0.99), 0.0);
    }

    #[test]
    fn the_usual_step_lifts_the_floor() {
        let stepping = Noise { usual_step: 0.2, ..noise(0.001, 9.0) };
        assert_near(floor(&runs(&[0.0], stepping), &runs(&[0.0], stepping), 0.99), 0.2_f64.exp() - 1.0);
    }

    #[test]
    fn a_call_that_took_a_thousand_times_as_long_leaves_the_error_of_the_median() {
        let by_calls = |calls: Vec<u64>| within(&calls).unwrap().log_error;
        let calls = Process { calls: 0.01, ..Process::default() }.calls(7, 900);
        let with_one = |call: u64| [calls.as_slice(), &[call]].concat();
        // 1 % · √(π / 2) / √900
        let expected = 0.01 * MEDIAN_OVER_MEAN / 30.0;
        for call in [1_000_000, 1_000_000_000] {
            let found = by_calls(with_one(call));
            assert!((0.7..1.4).contains(&(found / expected)), "{found} is not {expected}");
        }
    }

    #[test]
    fn it_is_the_scatter_of_calls_widened_by_autocorrelation_or_criterions_interval() {
        let mut record = empty_record();
        assert_eq!(Within::of_record(&record), None);
        // p90 of normal numbers is 1.28155 standard deviations above the median.
        record.latency_p50_ms = Some(1.0);
        record.latency_p90_ms = Some(0.128_155_f64.exp());
        record.iterations = Some(100);
        let by_percentiles = Within::of_record(&record).unwrap();
        assert!((by_percentiles.log_error - 0.012_533).abs() < 1e-5);
        record.autocorrelation = Some(0.6);
        assert!((Within::of_record(&record).unwrap().log_error - 0.025_066).abs() < 1e-5);
        record.latency_p90_ms = None;
        record.criterion_median_lower_ms = Some((-0.0196_f64).exp());
        record.criterion_median_upper_ms = Some(0.0196_f64.exp());
        record.confidence_level = Some(0.95);
        record.sample_count = Some(50);
        record.autocorrelation = None;
        let by_criterion = Within::of_record(&record).unwrap();
        assert!((by_criterion.log_error - 0.01).abs() < 1e-5 && by_criterion.freedom == 49.0);
        record.autocorrelation = Some(0.6);
        assert!((Within::of_record(&record).unwrap().log_error - 0.02).abs() < 1e-4);
    }

    #[test]
    fn several_runs_a_side_narrow_unequal_noise_and_the_usual_step() {
        let (base, candidate) = (runs(&[0.0; 2], noise(0.02, 1e9)), runs(&[0.0; 4], noise(0.04, 1e9)));
        let error = (0.0004_f64 / 2.0 + 0.0016 / 4.0).sqrt();
        assert_near(estimate(&base, &candidate, 0.95).interval.upper.ln(), 1.959_96 * error);
        let stepping = Noise { usual_step: 0.2, ..noise(0.001, 9.0) };
        let found = floor(&runs(&[0.0; 2], stepping), &runs(&[0.0; 4], stepping), 0.99);
        assert_near(found, (0.2 * 0.375_f64.sqrt()).exp() - 1.0);
    }
}
