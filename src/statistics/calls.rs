//! Statistics of single calls.

use super::autocorrelation::{effective_count, variance_inflation};
use super::early_stopping::{most_over, queries_for};
use super::moments::mean_and_deviation;
use super::student::StudentT;

/// The confidence of the percentiles' upper bounds.
pub const CONFIDENCE: f64 = 0.99;
/// The confidence of the mean's interval.
const MEAN_CONFIDENCE: f64 = 0.95;

/// The calls of a case, in nanoseconds, with their percentiles. There is at least one.
pub struct SortedCalls {
    in_order: Vec<u64>,
    sorted: Vec<u64>,
}

impl SortedCalls {
    /// From the calls in the order in which they were made. Returns `None` if there are no calls.
    pub fn new(in_order: Vec<u64>) -> Option<Self> {
        let mut sorted = in_order.clone();
        sorted.sort_unstable();
        (!sorted.is_empty()).then_some(SortedCalls { in_order, sorted })
    }

    /// The calls in the order in which they were made.
    pub fn in_order(&self) -> &[u64] {
        &self.in_order
    }

    pub fn min(&self) -> u64 {
        self.sorted[0]
    }

    pub fn max(&self) -> u64 {
        self.sorted[self.sorted.len() - 1]
    }

    /// The smallest call that at least the fraction `p` of all calls does not exceed (nearest rank).
    pub fn percentile(&self, p: f64) -> u64 {
        self.sorted[nearest_rank(p, self.sorted.len())]
    }

    /// An upper bound of the percentile `p` with confidence 99 %, whatever the distribution of the calls is.
    ///
    /// This is MLPerf LoadGen's early stopping (see [`most_over`]): `t` is the most of `n` calls that may be over the
    /// latency, and the bound is the `t`-th largest call.
    ///
    /// That holds for independent calls. Calls that depend on one another count as fewer: `n` is the effective number
    /// of calls for "over the percentile" (by autocorrelation and by batch means), and the bound is the call at the
    /// same fraction of all calls. Returns `None` if they are too few even for `t = 1`: p90 needs 64 independent calls,
    /// p95 130 and p99 662.
    pub fn percentile_upper_bound(&self, p: f64) -> Option<u64> {
        let percentile = self.percentile(p);
        let is_over: Vec<bool> = self.in_order.iter().map(|&call| call > percentile).collect();
        let effective = effective_count(&is_over).floor();
        let most = most_over(p, effective as u64, 1.0).filter(|most| *most > 0)?;
        let n = self.sorted.len();
        let place = 1 + ((most - 1) as f64 * n as f64 / effective) as usize;
        Some(self.sorted[n - place])
    }

    /// Calls outside Tukey's inner fences: more than 1.5 interquartile ranges below or above the quartiles.
    pub fn outliers(&self) -> usize {
        let (lower, upper) = (self.percentile(0.25) as f64, self.percentile(0.75) as f64);
        let reach = 1.5 * (upper - lower);
        self.sorted.iter().filter(|&&call| (call as f64) < lower - reach || (call as f64) > upper + reach).count()
    }
}

/// The position of the percentile `p` among `count` sorted values: the smallest value that at least the fraction `p` of
/// them does not exceed. `count` must not be 0.
pub fn nearest_rank(p: f64, count: usize) -> usize {
    // 0.55 · 100 is 55.00000000000001.
    ((p * count as f64 * (1.0 - 1e-12)).ceil() as usize).clamp(1, count) - 1
}

/// The fewest independent calls with which [`SortedCalls::percentile_upper_bound`] can bound the percentile `p`, from 0
/// to 1 exclusive: enough for a bound that one call is over.
pub fn calls_for_bound(p: f64) -> usize {
    queries_for(p, 1, 1.0) as usize
}

/// Half the width of the 95 % interval of the mean, as a fraction of the mean: `t(0.975; n - 1) · s / √n · √d`.
///
/// The last factor allows for calls that depend on one another: `d` calls are worth one independent call
/// (`variance_inflation`). Returns `None` for fewer than three calls.
pub fn relative_half_width(calls: &[u64]) -> Option<f64> {
    if calls.len() < 3 {
        return None;
    }
    let n = calls.len() as f64;
    let (mean, deviation) = mean_and_deviation(calls);
    let values: Vec<f64> = calls.iter().map(|&call| call as f64).collect();
    let t = StudentT::new(n - 1.0).two_sided_quantile(MEAN_CONFIDENCE);
    Some(t * deviation? / n.sqrt() * variance_inflation(&values).sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use statrs::distribution::{ContinuousCDF, Normal};

    use super::*;
    use crate::statistics::random::uniform;

    fn calls(n: u64) -> SortedCalls {
        // 7919 is a prime: the calls come in an order without a trend.
        SortedCalls::new((0..n).map(|index| index * 7919 % n + 1).collect()).unwrap()
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let hundred = calls(100);
        assert_eq!([0.5, 0.9, 0.95, 0.99, 1.0].map(|p| hundred.percentile(p)), [50, 90, 95, 99, 100]);
        assert_eq!([0.55, 0.07, 0.14].map(|p| hundred.percentile(p)), [55, 7, 14]);
        assert_eq!((calls(1).percentile(0.5), hundred.min(), hundred.max()), (1, 1, 100));
        assert_eq!(calls(3).in_order(), [1, 3, 2]);
        assert!(SortedCalls::new(vec![]).is_none());
    }

    #[test]
    fn outliers_are_beyond_the_fences() {
        let outliers = |calls: [u64; 8]| SortedCalls::new(calls.into()).unwrap().outliers();
        assert_eq!(outliers([4, 10, 10, 12, 12, 14, 14, 20]), 0);
        assert_eq!(outliers([3, 10, 10, 12, 12, 14, 14, 21]), 2);
    }

    #[test]
    fn the_interval_of_a_mean_is_that_of_students_distribution() {
        // t(0.975; 2) = 4.302653, a deviation of 1, a mean of 2, and no autocorrelation.
        assert!((relative_half_width(&[1, 2, 3]).unwrap() - 4.302653 / 3.0_f64.sqrt() / 2.0).abs() < 1e-6);
        assert_eq!(relative_half_width(&[1, 2]), None);
    }

    #[test]
    fn bounds_appear_at_the_published_numbers_of_calls() {
        for (p, least) in [(0.90, 64), (0.95, 130), (0.99, 662)] {
            assert_eq!(calls(least - 1).percentile_upper_bound(p), None);
            assert_eq!(calls(least).percentile_upper_bound(p), Some(least));
            assert_eq!(calls_for_bound(p) as u64, least);
        }
    }

    /// The bound holds in 99 % of the series, whatever the distribution, which is given by its quantile function.
    #[test]
    fn bounds_cover_the_percentile_as_often_as_they_say() {
        const SERIES: usize = 2000;
        let normal = Normal::new(0.0, 1.0).unwrap();
        let distributions: [(&str, &dyn Fn(f64) -> f64); 4] = [
            ("normal", &|u| 1e6 + 1e4 * normal.inverse_cdf(u)),
            ("log-normal", &|u| 1e6 * (0.5 * normal.inverse_cdf(u)).exp()),
            // Every tenth call is of another kind, twice as slow.
            ("bimodal", &|u| {
                let (centre, rest) = if u < 0.9 { (1e6, u / 0.9) } else { (2e6, (u - 0.9) / 0.1) };
                centre + 1e4 * normal.inverse_cdf(rest)
            }),
            // A Pareto tail without a variance.
            ("heavy tail", &|u| 1e6 * (1.0 - u).powf(-1.0 / 1.5)),
        ];
        for (name, quantile) in distributions {
            let mut state = 1;
            for (p, n) in [(0.5, 100), (0.9, 100), (0.95, 200), (0.99, 700)] {
                let truth = quantile(p);
                let holds = |_: &usize| {
                    let calls = (0..n).map(|_| quantile(uniform(&mut state)) as u64).collect();
                    let bound = SortedCalls::new(calls).unwrap().percentile_upper_bound(p);
                    bound.is_none_or(|bound| bound as f64 >= truth.floor())
                };
                let coverage = (0..SERIES).filter(holds).count() as f64 / SERIES as f64;
                let error = (CONFIDENCE * (1.0 - CONFIDENCE) / SERIES as f64).sqrt();
                assert!(coverage >= CONFIDENCE - 3.0 * error, "{name}: p{} of {n} calls: {coverage}", 100.0 * p);
            }
        }
    }

    /// The share of these series that have a bound, and the share in which no bound is below the truth.
    fn bounded_and_right(r: f64, p: f64, n: usize) -> (f64, f64) {
        const SERIES: usize = 500;
        let normal = Normal::new(0.0, 1.0).unwrap();
        let truth = 1e6 * (1.0 + 0.05 * normal.inverse_cdf(p));
        let mut state = 3;
        let (mut bounded, mut wrong) = (0, 0);
        for _ in 0..SERIES {
            let mut z = normal.inverse_cdf(uniform(&mut state));
            let step = |_| {
                z = r * z + (1.0_f64 - r * r).sqrt() * normal.inverse_cdf(uniform(&mut state));
                (1e6 * (1.0 + 0.05 * z)) as u64
            };
            let bound = SortedCalls::new((0..n).map(step).collect()).unwrap().percentile_upper_bound(p);
            bounded += usize::from(bound.is_some());
            wrong += usize::from(bound.is_some_and(|bound| (bound as f64) < truth.floor()));
        }
        (bounded as f64 / SERIES as f64, 1.0 - wrong as f64 / SERIES as f64)
    }

    /// With an autocorrelation of 0.9 the bound for independent calls covers the 99th percentile in 91 % of the series.
    #[test]
    fn calls_that_depend_on_one_another_count_as_fewer() {
        let (bounded, right) = bounded_and_right(0.9, 0.99, 700);
        assert!(bounded < 0.1 && right > 0.98, "{bounded} {right}");
        let (bounded, right) = bounded_and_right(0.9, 0.99, 10_000);
        assert!(bounded > 0.95 && right > 0.97, "{bounded} {right}");
        let (bounded, right) = bounded_and_right(0.9, 0.9, 2000);
        assert!(bounded > 0.95 && right > 0.97, "{bounded} {right}");
        let (bounded, _) = bounded_and_right(0.0, 0.99, 700);
        assert!(bounded > 0.85, "{bounded}");
    }

    #[test]
    fn a_bound_lies_above_its_percentile_and_comes_closer_with_more_calls() {
        let excess = |n: u64| {
            let calls = calls(n);
            let bound = calls.percentile_upper_bound(0.9).unwrap();
            assert!(bound >= calls.percentile(0.9));
            bound as f64 / n as f64 - 0.9
        };
        assert!(excess(10_000) < excess(1_000) && excess(1_000) < excess(100));
    }

    /// The interval of the mean covers the mean as often as it says, also for a series with autocorrelation.
    #[test]
    fn the_interval_of_the_mean_covers_it() {
        const SERIES: usize = 1000;
        let normal = Normal::new(0.0, 1.0).unwrap();
        let mut state = 7;
        for r in [0.0, 0.5] {
            let mut holds = 0;
            for _ in 0..SERIES {
                let mut z = normal.inverse_cdf(uniform(&mut state));
                let step = |_| {
                    z = r * z + (1.0_f64 - r * r).sqrt() * normal.inverse_cdf(uniform(&mut state));
                    (1e6 * (1.0 + 0.05 * z)) as u64
                };
                let calls: Vec<u64> = (0..200).map(step).collect();
                let (mean, _) = mean_and_deviation(&calls);
                holds += usize::from((mean / 1e6 - 1.0).abs() <= relative_half_width(&calls).unwrap());
            }
            let coverage = holds as f64 / SERIES as f64;
            assert!((0.93..0.97).contains(&coverage), "r = {r}: {coverage}");
        }
    }
}
