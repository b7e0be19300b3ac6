//! How many queries decide whether a percentile is within a bound: the early stopping of MLPerf LoadGen.
//!
//! Reddi et al. 2020, "MLPerf Inference Benchmark", and LoadGen's note "early stopping", with a confidence of 99 % and a
//! tolerance of 0. It assumes queries that are independent of each other.

use statrs::distribution::{Binomial, DiscreteCDF};

use super::calls::{CONFIDENCE, first};

/// The fewest queries by which the percentile `p` is within the bound if `over` of them are over it: the least `n` such that at
/// most `over` of `n` being over has a probability of at most 1 %, if each were over with probability `1 - p`. This is LoadGen's
/// `h + t` with the smallest `h` for which `I_p(h, 1 + t) ≤ 0.01`.
pub fn queries_for(p: f64, over: u64) -> u64 {
    let is_enough = |n: u64| Binomial::new(1.0 - p, n).is_ok_and(|number| number.cdf(over) <= 1.0 - CONFIDENCE);
    let mut most = over + 1;
    while !is_enough(most) {
        most *= 2;
    }
    first(over, most, is_enough)
}

/// How many of `queries` may be over the bound. Returns `None` if the queries are too few for any percentile to be certain.
pub fn most_over(p: f64, queries: u64) -> Option<u64> {
    let number = Binomial::new(1.0 - p, queries).ok()?;
    let allowed = (0..queries).take_while(|&over| number.cdf(over) <= 1.0 - CONFIDENCE).count() as u64;
    allowed.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_queries_are_those_of_load_gen() {
        let table = [
            (0.90, [44, 64, 81, 127, 197]),
            (0.99, [459, 662, 838, 1307, 2010]),
            (0.999, [4603, 6636, 8403, 13105, 20140]),
        ];
        for (p, queries) in table {
            for (over, least) in [0, 1, 2, 5, 10].into_iter().zip(queries) {
                assert_eq!(queries_for(p, over), least, "{over} over p{}", 100.0 * p);
                assert_eq!(most_over(p, least), Some(over));
                assert_eq!(most_over(p, least - 1), over.checked_sub(1));
            }
        }
    }
}
