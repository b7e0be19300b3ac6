//! The latencies of a case in one process, and those of several processes together.
//!
//! What is decided when a process starts (where its memory lies, which thread runs on which core) is the same for all
//! of its calls: the process is the unit of replication (Kalibera & Jones 2013, "Rigorous benchmarking in reasonable
//! time").

use serde::{Deserialize, Serialize};

use crate::statistics::{SortedCalls, StudentT, geometric_mean, mean, mean_and_deviation, variance};

/// The percentiles of [`Latencies`].
const PERCENTILES: [f64; 4] = [0.50, 0.90, 0.95, 0.99];
/// Fewer processes give no interval.
const FEWEST_FOR_INTERVAL: usize = 3;
/// The standard deviation of the rounding to whole nanoseconds, in milliseconds: `1 / √12` of one.
const ROUNDING_MS: f64 = 0.288_675_134_594_812_9e-6;

/// The figures of one process's calls, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    pub calls: usize,
    pub samples: usize,
    /// p50, p90, p95 and p99.
    pub percentiles_ms: [f64; 4],
    /// An upper bound of each percentile, with a confidence of 99 %, if there are enough calls.
    pub upper_bounds_ms: [Option<f64>; 4],
    pub mean_ms: f64,
    /// The standard deviation of calls.
    pub std_ms: Option<f64>,
    pub min_ms: f64,
    pub max_ms: f64,
    /// The fraction of the samples that was disturbed; absent if that is unknown.
    pub disturbed_share: Option<f64>,
}

impl Latencies {
    /// Computes the figures from the calls of each sample, in nanoseconds. Returns `None` if there are no calls.
    pub fn of_samples(samples_ns: &[Vec<u64>], disturbed: Option<&[bool]>) -> Option<Self> {
        Some(Latencies::of(samples_ns, &SortedCalls::new(samples_ns.concat())?, disturbed))
    }

    /// The same for calls that are sorted already.
    pub fn of(samples_ns: &[Vec<u64>], sorted: &SortedCalls, disturbed: Option<&[bool]>) -> Self {
        let milliseconds = |nanoseconds: f64| nanoseconds / 1e6;
        let (mean, deviation) = mean_and_deviation(sorted.in_order());
        let bound = |p| sorted.percentile_upper_bound(p).map(|bound| milliseconds(bound as f64));
        Latencies {
            calls: sorted.in_order().len(),
            samples: samples_ns.len(),
            percentiles_ms: PERCENTILES.map(|p| milliseconds(sorted.percentile(p) as f64)),
            upper_bounds_ms: PERCENTILES.map(bound),
            mean_ms: milliseconds(mean),
            std_ms: deviation.map(milliseconds),
            min_ms: milliseconds(sorted.min() as f64),
            max_ms: milliseconds(sorted.max() as f64),
            disturbed_share: disturbed
                .map(|marks| marks.iter().filter(|&&is_disturbed| is_disturbed).count() as f64 / marks.len() as f64),
        }
    }

    pub fn p50_ms(&self) -> f64 {
        self.percentiles_ms[0]
    }

    /// Combines several processes: the geometric mean of each figure, since processes differ by factors, and the
    /// extremes of all calls. A bound or a deviation that one process lacks is absent, and counts are those of the
    /// first process. Returns `None` if there is no process.
    pub fn together(processes: &[Latencies]) -> Option<Latencies> {
        let (first, further) = processes.split_first()?;
        if further.is_empty() {
            return Some(first.clone());
        }
        let among = |figure: &dyn Fn(&Latencies) -> Option<f64>| {
            let logarithms: Option<Vec<f64>> = processes.iter().map(|it| figure(it).map(f64::ln)).collect();
            logarithms.map(|logarithms| geometric_mean(&logarithms))
        };
        let of_all = |figure: &dyn Fn(&Latencies) -> f64| among(&|it| Some(figure(it))).unwrap_or(f64::NAN);
        let shares: Vec<f64> = processes.iter().filter_map(|it| it.disturbed_share).collect();
        Some(Latencies {
            calls: first.calls,
            samples: first.samples,
            percentiles_ms: [0, 1, 2, 3].map(|index| of_all(&|it| it.percentiles_ms[index])),
            upper_bounds_ms: [0, 1, 2, 3].map(|index| among(&|it| it.upper_bounds_ms[index])),
            mean_ms: of_all(&|it| it.mean_ms),
            std_ms: among(&|it| it.std_ms),
            min_ms: processes.iter().map(|it| it.min_ms).fold(f64::INFINITY, f64::min),
            max_ms: processes.iter().map(|it| it.max_ms).fold(0.0, f64::max),
            disturbed_share: (!shares.is_empty()).then(|| mean(&shares)),
        })
    }

    /// The interval of a figure of [`together`](Self::together): `exp(mean ± t · s / √n)` over the logarithms of the
    /// processes. Returns `None` if there are fewer than three.
    pub fn interval(processes: &[Latencies], figure: fn(&Latencies) -> f64, confidence: f64) -> Option<(f64, f64)> {
        let logarithms: Vec<f64> = processes.iter().map(|it| figure(it).ln()).collect();
        if logarithms.len() < FEWEST_FOR_INTERVAL {
            return None;
        }
        let (n, middle) = (logarithms.len() as f64, mean(&logarithms));
        // Times of a few nanoseconds may all be equal, but are no more exact than the clock.
        let deviation = variance(&logarithms).sqrt().hypot(ROUNDING_MS / middle.exp());
        let half_width = StudentT::new(n - 1.0).two_sided_quantile(confidence) * deviation / n.sqrt();
        Some(((middle - half_width).exp(), (middle + half_width).exp()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process whose calls take about this long, in milliseconds.
    fn process(ms: f64) -> Latencies {
        let calls = [0.9, 1.0, 1.0, 1.2].map(|factor| (1e6 * ms * factor).round() as u64);
        Latencies::of_samples(&[calls[..2].to_vec(), calls[2..].to_vec()], None).unwrap()
    }

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} is not {expected}");
    }

    #[test]
    fn one_process_is_itself() {
        let one = process(3.0);
        assert_eq!(Latencies::together(std::slice::from_ref(&one)), Some(one.clone()));
        assert_eq!((one.calls, one.samples, one.p50_ms(), one.min_ms, one.max_ms), (4, 2, 3.0, 2.7, 3.6));
        assert_eq!(Latencies::together(&[]), None);
        assert_eq!(Latencies::of_samples(&[], None), None);
    }

    #[test]
    fn several_processes_are_their_geometric_mean_and_their_extremes() {
        let bounded = Latencies { upper_bounds_ms: [Some(2.0), Some(2.0), None, None], ..process(1.0) };
        let other = Latencies { upper_bounds_ms: [Some(8.0), None, Some(8.0), None], ..process(4.0) };
        let shares = [Some(0.1), None, Some(0.3)];
        let processes = [bounded, other, process(2.0)];
        let processes: Vec<Latencies> = processes
            .into_iter()
            .zip(shares)
            .map(|(it, disturbed_share)| Latencies { disturbed_share, ..it })
            .collect();
        let all = Latencies::together(&processes).unwrap();
        assert_near(all.p50_ms(), 2.0);
        assert_near(all.mean_ms, 2.0 * 1.025);
        assert_near(all.disturbed_share.unwrap(), 0.2);
        assert_eq!((all.min_ms, all.max_ms, all.calls), (0.9, 4.8, 4));
        assert_eq!(all.upper_bounds_ms, [None; 4]);
        let two = Latencies::together(&processes[..2]).unwrap();
        assert_near(two.upper_bounds_ms[0].unwrap(), 4.0);
        assert_eq!(two.upper_bounds_ms[1..], [None; 3]);
    }

    #[test]
    fn the_interval_is_that_of_a_t_test_and_takes_three_processes() {
        let processes = [-0.1_f64, 0.0, 0.1].map(|logarithm| process(1000.0 * logarithm.exp()));
        let interval = |processes| Latencies::interval(processes, Latencies::p50_ms, 0.95);
        // t(0.975; 2) = 4.30265; s = 0.1.
        let half_width = 4.302_653 * 0.1 / 3.0_f64.sqrt();
        let (lower, upper) = interval(&processes).unwrap();
        assert_near(lower, 1000.0 * (-half_width).exp());
        assert_near(upper, 1000.0 * half_width.exp());
        assert_eq!(interval(&processes[..2]), None);
    }

    #[test]
    fn equal_times_are_no_more_exact_than_the_clock() {
        let (lower, upper) = Latencies::interval(&[50e-6; 3].map(process), Latencies::p50_ms, 0.95).unwrap();
        // ± 4.3 · 0.29 ns / √3.
        assert!(lower < 49.4e-6 && upper > 50.6e-6, "{lower} {upper}");
    }
}
