//! How many queries decide whether a percentile is within a bound.
//!
//! The rule is the early stopping of MLPerf LoadGen (Reddi et al. 2020, "MLPerf Inference Benchmark", and LoadGen's
//! note "early stopping"), with a confidence of 99 % and a tolerance of 0. LoadGen takes queries as independent of one
//! another. Here queries that depend on one another count as fewer ones: [`dependence`] says how many of them are worth
//! one independent query. With a dependence of 1 the rule is LoadGen's own.

use statrs::function::beta::beta_reg;

use super::autocorrelation::block_excesses;
use super::calls::{CONFIDENCE, nearest_rank};

/// The fewest blocks of successive queries whose counts show how much queries depend on one another.
const FEWEST_BLOCKS: usize = 20;
/// Fewer queries do not show how much they depend on one another.
pub const FEWEST_FOR_DEPENDENCE: usize = 2 * FEWEST_BLOCKS;
/// Crossings of these percentiles of the series count besides those of the percentile that is judged. Crossings of that
/// one are so rare that a short trial may have none, while the waits that lead to it show at lower percentiles.
const THRESHOLDS: [f64; 5] = [0.5, 0.75, 0.9, 0.95, 0.99];

/// The probability that at most `over` of `queries` are over the bound if each is with probability `1 - p`: the
/// binomial distribution by the regularised incomplete beta function, `I_p(n - t, t + 1)`, which takes fractions of
/// queries, too.
fn chance(p: f64, queries: f64, over: f64) -> f64 {
    if over >= queries { 1.0 } else { beta_reg(queries - over, over + 1.0, p) }
}

/// The fewest queries by which the percentile `p` is within the bound if `over` of them are over it: the least `n` such
/// that at most `over` of `n` being over has a probability of at most 1 %, if each were over with probability `1 - p`.
/// With a dependence of 1 this is LoadGen's `h + t` with the smallest `h` for which `I_p(h, 1 + t) ≤ 0.01`.
pub fn queries_for(p: f64, over: u64, dependence: f64) -> u64 {
    let is_enough = |n: u64| chance(p, n as f64 / dependence, over as f64 / dependence) <= 1.0 - CONFIDENCE;
    let mut most = over + 1;
    while !is_enough(most) {
        most *= 2;
    }
    first(over, most, is_enough)
}

/// How many of `queries` may be over the bound. Returns `None` if the queries are too few for any percentile to be
/// certain.
pub fn most_over(p: f64, queries: u64, dependence: f64) -> Option<u64> {
    let is_too_many = |over: u64| chance(p, queries as f64 / dependence, over as f64 / dependence) > 1.0 - CONFIDENCE;
    if queries == 0 || is_too_many(0) {
        return None;
    }
    Some(first(0, queries, is_too_many) - 1)
}

/// The first number above `no` for which `is_so` holds, by bisection: it does not hold for `no`, and holds from `yes`
/// on.
fn first(mut no: u64, mut yes: u64, is_so: impl Fn(u64) -> bool) -> u64 {
    while yes - no > 1 {
        let middle = no.midpoint(yes);
        if is_so(middle) { yes = middle } else { no = middle }
    }
    yes
}

/// How many queries of this series, in the order of their arrival, are worth one independent query when those above the
/// percentile `p` are counted: the variance of the count over that of independent queries. It is at least 1. Returns
/// `None` for fewer than 40 queries, which do not show it.
///
/// The variance is that of the counts in blocks (`block_excesses`). Blocks that are too short cut clusters in two, and
/// long ones are few. So the largest estimate counts, over all lengths with at least twenty blocks, each estimate with
/// its standard error, and over several thresholds: a queue that seldom empties shows this at its median, before a
/// short trial has seen its worst waits. What changes more slowly than a twentieth of the series does not show.
pub fn dependence(series: &[f64], p: f64) -> Option<f64> {
    if series.len() < FEWEST_FOR_DEPENDENCE {
        return None;
    }
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |p: f64| sorted[nearest_rank(p, sorted.len())];
    let thresholds = THRESHOLDS.into_iter().filter(|threshold| *threshold < p).chain([p]);
    Some(thresholds.map(|threshold| of_crossings(series, at(threshold))).fold(1.0, f64::max))
}

/// The variance of the number of values above `threshold` over that of independent ones: the largest one over lengths
/// of blocks.
fn of_crossings(series: &[f64], threshold: f64) -> f64 {
    let over: Vec<f64> = series.iter().map(|value| f64::from(u8::from(*value > threshold))).collect();
    let excesses = block_excesses(&over, FEWEST_BLOCKS).into_iter();
    excesses.map(|(excess, error)| excess * (1.0 + error)).fold(1.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::uniform;

    #[test]
    fn numbers_of_queries_are_those_of_load_gen() {
        let table = [
            (0.90, [44, 64, 81, 127, 197]),
            (0.99, [459, 662, 838, 1307, 2010]),
            (0.999, [4603, 6636, 8403, 13105, 20140]),
        ];
        for (p, queries) in table {
            for (over, least) in [0, 1, 2, 5, 10].into_iter().zip(queries) {
                assert_eq!(queries_for(p, over, 1.0), least, "{over} over p{}", 100.0 * p);
                assert_eq!(most_over(p, least, 1.0), Some(over));
                assert_eq!(most_over(p, least - 1, 1.0), over.checked_sub(1));
            }
        }
        assert_eq!((most_over(0.99, 0, 1.0), most_over(0.5, 7, 1.0)), (None, Some(0)));
    }

    #[test]
    fn queries_that_depend_on_one_another_count_as_fewer() {
        // Ten queries are worth one: ten times as many are needed, with ten times as many over.
        assert_eq!(queries_for(0.99, 50, 10.0), 13068);
        assert_eq!(most_over(0.99, 13068, 10.0), Some(50));
        assert_eq!(most_over(0.99, 4580, 10.0), None);
        let mut state = 3;
        let independent: Vec<f64> = (0..20_000).map(|_| uniform(&mut state)).collect();
        let found = dependence(&independent, 0.99).unwrap();
        assert!((1.0..2.0).contains(&found), "{found}");
        let in_tens: Vec<f64> = independent.iter().take(2000).flat_map(|value| [*value; 10]).collect();
        let found = dependence(&in_tens, 0.99).unwrap();
        assert!((9.0..25.0).contains(&found), "{found}");
        // Twenty pairs, half of which are over: their counts have the variance 20/19 in place of 1/2.
        let halves: Vec<f64> = (0..40).map(|place| f64::from(u8::from(place < 20))).collect();
        let expected = 20.0 / 19.0 / 0.5 * (1.0 + (2.0_f64 / 19.0).sqrt());
        assert!((dependence(&halves, 0.99).unwrap() - expected).abs() < 1e-9);
        assert_eq!((dependence(&[1.0; 39], 0.99), dependence(&[1.0; 50], 0.99)), (None, Some(1.0)));
    }
}
