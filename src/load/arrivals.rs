//! When requests arrive.

use crate::statistics::uniform;

/// The times of `queries` arrivals of a Poisson process, in nanoseconds from the first one, which comes at once, as in
/// MLPerf LoadGen. The same seed and number give the same times, stretched by the rate.
///
/// The times are scaled so that the rate of the schedule, `(queries - 1) / last arrival`, is exactly `per_second`. By
/// chance alone it would be off by about 1 % with 10,000 arrivals, and so would the reported rate.
pub fn poisson(per_second: f64, seed: u64, queries: usize) -> Vec<u64> {
    let mut state = seed;
    let mut at = 0.0;
    let arrival = |_| {
        at -= uniform(&mut state).ln();
        at
    };
    let drawn: Vec<f64> = (0..queries).map(arrival).collect();
    let first = drawn.first().copied().unwrap_or(0.0);
    // A single arrival has no gap to scale.
    let seconds = if at > first { (queries - 1) as f64 / per_second / (at - first) } else { 0.0 };
    drawn.into_iter().map(|at| (1e9 * seconds * (at - first)) as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{mean, variance};

    #[test]
    fn gaps_are_exponential_and_those_of_the_seed() {
        let arrivals = poisson(500.0, 7, 200_000);
        let gaps: Vec<f64> = arrivals.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
        // The mean and the standard deviation of an exponential distribution are equal: 2 ms.
        assert!((mean(&gaps) - 2.0).abs() < 0.02, "{}", mean(&gaps));
        assert!((variance(&gaps).sqrt() - 2.0).abs() < 0.03, "{}", variance(&gaps));
        let over = gaps.iter().filter(|gap| **gap > 6.0).count() as f64 / gaps.len() as f64;
        assert!((over - (-3.0_f64).exp()).abs() < 0.002, "{over}");
        let some = poisson(500.0, 7, 30);
        assert_eq!(poisson(500.0, 7, 30), some);
        assert_ne!(poisson(500.0, 8, 30), some);
        let twice = poisson(1000.0, 7, 30);
        assert!(twice.iter().zip(&some).all(|(fast, slow)| fast.abs_diff(slow / 2) <= 1));
    }

    #[test]
    fn no_seed_has_another_rate() {
        for (seed, queries) in [(1, 2), (1, 1500), (2, 1500), (3, 10_000)] {
            let arrivals = poisson(300.0, seed, queries);
            let rate = (queries - 1) as f64 / (arrivals[queries - 1] as f64 / 1e9);
            assert!((rate / 300.0 - 1.0).abs() < 1e-6, "{rate}");
            assert!(arrivals[0] == 0 && arrivals.is_sorted());
        }
        assert_eq!((poisson(300.0, 1, 0), poisson(4.0, 1, 1)), (vec![], vec![0]));
    }
}
