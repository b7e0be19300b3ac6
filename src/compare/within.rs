//! How uncertain a run's median latency is by its own calls.
//!
//! This is only one component of the uncertainty: how the medians of different processes differ is in [`noise`](super::noise).

use statrs::distribution::{ContinuousCDF, Normal};

use crate::run_data::Record;
use crate::statistics::variance;

/// The standard error of the logarithm of a run's median latency, and what is known of that error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Within {
    pub log_error: f64,
    /// Degrees of freedom.
    pub freedom: f64,
}

/// The standard deviation of the rounding of a clock, in steps of the clock: `1 / √12`, since it is uniform over one step.
const ROUNDING: f64 = 0.288_675_134_594_812_9;

/// The standard error of the median over that of the mean, for normal calls: `√(π / 2)`.
const MEDIAN_OVER_MEAN: f64 = 1.253_314_137_315_500_3;

impl Within {
    /// From the calls in the order in which they were made, in nanoseconds. Returns `None` for fewer than ten.
    ///
    /// The interval of a quantile by order statistics (Woodruff 1952, "Confidence intervals for medians and other
    /// position measures"), with the share of calls up to the median as uncertain as its batch means show it to be
    /// (Flegal & Jones 2010, "Batch means and spectral variance estimators in Markov chain Monte Carlo": batches of `√n`
    /// calls). Drift, steps and autocorrelation make batches unequal, and so are in the error; outliers are not more
    /// than calls above the median. With `I` the mean over a batch of "not above the median", for `a` batches of `b`,
    ///
    /// ```text
    /// σ² = max(b · var(I), 1/4)     h = √(σ² / n)     error = [ln q(½ + 2h) - ln q(½ - 2h)] / 4
    /// ```
    ///
    /// The rounding of the clock is added; its step is the smallest difference between two calls.
    pub fn of_calls(calls: &[u64]) -> Option<Self> {
        if calls.len() < 10 {
            return None;
        }
        let n = calls.len() as f64;
        let mut sorted = calls.to_vec();
        sorted.sort_unstable();
        let quantile = |p: f64| sorted[((p * n).ceil() as usize).clamp(1, sorted.len()) - 1] as f64;
        let median = quantile(0.5);
        if median <= 0.0 {
            return None;
        }
        let batch = calls.len().isqrt();
        let shares: Vec<f64> = calls
            .chunks_exact(batch)
            .map(|calls| calls.iter().filter(|&&call| call as f64 <= median).count() as f64 / batch as f64)
            .collect();
        let long_run_variance = (batch as f64 * variance(&shares)).max(0.25);
        let h = (long_run_variance / n).sqrt();
        let (low, high) = ((0.5 - 2.0 * h).max(0.0), (0.5 + 2.0 * h).min(1.0));
        let width = quantile(high).ln() - quantile(low).max(1.0).ln();
        let log_error = (width * h / (high - low)).hypot(ROUNDING * clock_step(&sorted) / median);
        Some(Within { log_error, freedom: (shares.len() - 1) as f64 })
    }

    /// From a record without its calls: the interval of Criterion's median, or the standard deviation of the calls. Returns
    /// `None` for a row of several processes, whose scatter has this error in it.
    ///
    /// Both assume independent calls. A positive lag-1 autocorrelation ρ makes `n` calls worth `n (1 - ρ) / (1 + ρ)`
    /// independent ones (Bayley & Hammersley 1946, "The effective number of independent observations").
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
        let by_deviation = || {
            let (deviation, mean) = record.latency_std_ms.zip(record.latency_mean_ms)?;
            let count = record.iterations?;
            of(MEDIAN_OVER_MEAN * deviation / mean / (count as f64).sqrt(), count)
        };
        by_criterion().or_else(by_deviation)
    }
}

/// In nanoseconds; 1 where all calls are equal.
fn clock_step(sorted: &[u64]) -> f64 {
    let steps = sorted.windows(2).map(|pair| pair[1] - pair[0]).filter(|step| *step > 0);
    steps.min().unwrap_or(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::simulation::{Process, empty_record};

    /// The fraction of processes whose interval `± 2.6 errors` holds the true median of 1 ms.
    fn coverage(process: Process, tests: u64) -> f64 {
        let holds = |test: &u64| {
            let calls = process.calls(*test, 400);
            let mut sorted = calls.clone();
            sorted.sort_unstable();
            let error = Within::of_calls(&calls).unwrap().log_error;
            (sorted[199] as f64 / 1e6).ln().abs() <= 2.6 * error
        };
        (0..tests).filter(holds).count() as f64 / tests as f64
    }

    #[test]
    fn independent_calls_are_covered_as_often_as_it_says() {
        let found = coverage(Process { calls: 0.05, ..Process::default() }, 600);
        assert!(found >= 0.975, "{found}");
    }

    #[test]
    fn autocorrelation_and_outliers_cost_little_coverage() {
        let process = Process { calls: 0.05, autocorrelation: 0.7, outliers: 0.03, ..Process::default() };
        let found = coverage(process, 600);
        assert!(found >= 0.95, "{found}");
        // By the formula for independent calls it would be far from that.
        let independent = Process { autocorrelation: 0.0, ..process };
        let error = |process: Process| Within::of_calls(&process.calls(1, 4000)).unwrap().log_error;
        assert!(error(process) > 1.5 * error(independent));
    }

    #[test]
    fn drift_and_steps_widen_the_error() {
        let steady = Process { calls: 0.01, ..Process::default() };
        let error = |process: Process| Within::of_calls(&process.calls(1, 400)).unwrap().log_error;
        assert!(error(Process { drift: 0.1, ..steady }) > 5.0 * error(steady));
        assert!(error(Process { step: 0.1, ..steady }) > 5.0 * error(steady));
    }

    #[test]
    fn outliers_alone_do_not() {
        let steady = Process { calls: 0.01, ..Process::default() };
        let error = |process: Process| Within::of_calls(&process.calls(1, 400)).unwrap().log_error;
        assert!(error(Process { outliers: 0.05, ..steady }) < 1.5 * error(steady));
    }

    #[test]
    fn equal_calls_are_as_certain_as_the_clock() {
        let within = Within::of_calls(&[50; 100]).unwrap();
        assert!((within.log_error - ROUNDING / 50.0).abs() < 1e-12);
        let coarse: Vec<u64> = (0..100).map(|call| if call % 10 == 0 { 60 } else { 50 }).collect();
        assert!(Within::of_calls(&coarse).unwrap().log_error >= ROUNDING * 10.0 / 50.0);
        assert_eq!(within.freedom, 9.0);
        assert_eq!(Within::of_calls(&[50; 9]), None);
    }

    #[test]
    fn a_record_alone_gives_criterions_interval_widened_by_autocorrelation() {
        let mut record = empty_record();
        assert_eq!(Within::of_record(&record), None);
        record.latency_std_ms = Some(0.1);
        record.latency_mean_ms = Some(1.0);
        record.iterations = Some(100);
        let by_deviation = Within::of_record(&record).unwrap();
        assert!((by_deviation.log_error - 0.012_533).abs() < 1e-5);
        record.criterion_median_lower_ms = Some((-0.0196_f64).exp());
        record.criterion_median_upper_ms = Some(0.0196_f64.exp());
        record.confidence_level = Some(0.95);
        record.sample_count = Some(50);
        let by_criterion = Within::of_record(&record).unwrap();
        assert!((by_criterion.log_error - 0.01).abs() < 1e-5 && by_criterion.freedom == 49.0);
        record.autocorrelation = Some(0.6);
        assert!((Within::of_record(&record).unwrap().log_error - 0.02).abs() < 1e-4);
    }

    #[test]
    fn the_two_ways_agree_on_independent_calls() {
        let calls = Process { calls: 0.05, ..Process::default() }.calls(3, 4000);
        let expected = MEDIAN_OVER_MEAN * 0.05 / 4000_f64.sqrt();
        let found = Within::of_calls(&calls).unwrap().log_error;
        assert!((found / expected - 1.0).abs() < 0.3, "{found} {expected}");
    }
}
