//! When requests arrive.

use crate::statistics::uniform;

/// The times of `queries` arrivals of a Poisson process with so many arrivals per second, in nanoseconds from the beginning. The
/// same seed gives the same times, stretched by the rate.
pub fn poisson(per_second: f64, seed: u64, queries: usize) -> Vec<u64> {
    let mut state = seed;
    let mut seconds = 0.0;
    let arrival = |_| {
        seconds -= uniform(&mut state).ln() / per_second;
        (1e9 * seconds) as u64
    };
    (0..queries).map(arrival).collect()
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
        assert_eq!(poisson(500.0, 7, 3), arrivals[..3]);
        assert_ne!(poisson(500.0, 8, 3), arrivals[..3]);
        let twice = poisson(1000.0, 7, 3);
        assert!(twice.iter().zip(&arrivals).all(|(fast, slow)| fast.abs_diff(slow / 2) <= 1));
    }
}
