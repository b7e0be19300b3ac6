//! How uncertain a run's median latency is by its own calls.
//!
//! This is only one component of the uncertainty: how the medians of different processes differ is in [`noise`](super::noise).

use statrs::distribution::{ContinuousCDF, Normal};

use crate::run_data::Record;

/// The standard error of the logarithm of a run's median latency, and what is known of that error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Within {
    pub log_error: f64,
    /// Degrees of freedom.
    pub freedom: f64,
}

/// The standard error of the median over that of the mean, for normal calls: `√(π / 2)`.
const MEDIAN_OVER_MEAN: f64 = 1.253_314_137_315_500_3;

impl Within {
    /// By the standard deviation of the calls, or else the interval of Criterion's median. Returns `None` for a row of several
    /// processes, whose scatter has this error in it.
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
        by_deviation().or_else(by_criterion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::simulation::empty_record;

    #[test]
    fn it_is_the_scatter_of_calls_widened_by_autocorrelation_or_criterions_interval() {
        let mut record = empty_record();
        assert_eq!(Within::of_record(&record), None);
        record.latency_std_ms = Some(0.1);
        record.latency_mean_ms = Some(1.0);
        record.iterations = Some(100);
        let by_deviation = Within::of_record(&record).unwrap();
        assert!((by_deviation.log_error - 0.012_533).abs() < 1e-5);
        record.autocorrelation = Some(0.6);
        assert!((Within::of_record(&record).unwrap().log_error - 0.025_066).abs() < 1e-5);
        record.latency_std_ms = None;
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
}
