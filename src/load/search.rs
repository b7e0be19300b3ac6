//! The search for the highest rate that keeps a bound.

/// How close the highest rate that passes and the lowest that fails come, as a ratio.
const RESOLUTION: f64 = 1.02;
/// While nothing has failed, the rate grows by this.
const STEP: f64 = 1.5;
/// So close to the limit, a rate is judged by several seeds.
const NEAR: f64 = 1.25;
/// Seeds that judge a rate near the limit; the majority decides.
const SEEDS: u64 = 3;
/// Rates that are tried at most: a machine whose speed changes could keep a search going for ever.
const MOST_RATES: usize = 25;
/// The search gives up below this part of the rate that it begins with: requests hardly wait any more, so that fewer of them are no
/// faster.
const LEAST_PART: f64 = 0.1;

/// Where the limit lies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Absent if none passes.
    pub highest_passing: Option<f64>,
    /// Absent if none fails.
    pub lowest_failing: Option<f64>,
}

/// A rate with its verdict, and whether several seeds have given it.
#[derive(Clone, Copy)]
struct Judged {
    rate: f64,
    is_sure: bool,
}

/// Finds the limit to 2 %, from a rate that may pass. `passes` makes a trial with a rate and the number of a seed.
///
/// # Errors
/// Those of `passes`.
pub fn search<E>(first: f64, mut passes: impl FnMut(f64, u64) -> Result<bool, E>) -> Result<Limits, E> {
    let (mut low, mut high): (Option<Judged>, Option<Judged>) = (None, None);
    let mut rate = first;
    for _ in 0..MOST_RATES {
        let is_near = low.zip(high).is_some_and(|(low, high)| high.rate / low.rate <= NEAR);
        let has_passed = if is_near { majority(rate, &mut passes)? } else { passes(rate, 0)? };
        let judged = Some(Judged { rate, is_sure: is_near });
        if has_passed {
            low = judged;
            // What failed by one seed before, and less than what passes now, has failed by chance.
            high = high.filter(|high| high.rate > rate);
        } else {
            high = judged;
            low = low.filter(|low| low.rate < rate);
        }
        rate = match (low, high) {
            (Some(low), Some(high)) if high.rate / low.rate > RESOLUTION => (low.rate * high.rate).sqrt(),
            // The ends of the interval are judged by as many seeds as what lies between.
            (Some(low), Some(_)) if !low.is_sure => low.rate,
            (Some(_), Some(high)) if !high.is_sure => high.rate,
            (Some(_), Some(_)) => break,
            (Some(low), None) => low.rate * STEP,
            (None, Some(high)) if high.rate < first * LEAST_PART => break,
            (None, Some(high)) => high.rate / if high.is_sure { RESOLUTION.powi(2) } else { STEP },
            (None, None) => rate,
        };
    }
    let of = |judged: Option<Judged>| judged.map(|judged| judged.rate);
    Ok(Limits { highest_passing: of(low), lowest_failing: of(high) })
}

/// Ends as soon as the rest of the seeds cannot change it.
fn majority<E>(rate: f64, passes: &mut impl FnMut(f64, u64) -> Result<bool, E>) -> Result<bool, E> {
    let (mut passed, mut failed) = (0, 0);
    for seed in 0..SEEDS {
        if passes(rate, seed)? {
            passed += 1
        } else {
            failed += 1
        }
        if 2 * passed.max(failed) > SEEDS {
            break;
        }
    }
    Ok(passed > failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::simulation::queue;
    use crate::load::{Draws, figures, poisson};
    use crate::run_data::{LoadResult, LoadTerms, ServiceTime, Verdict};

    fn limits(first: f64, limit: f64) -> (Limits, usize) {
        let mut trials = 0;
        let found = search::<()>(first, |rate, _| {
            trials += 1;
            Ok(rate <= limit)
        });
        (found.unwrap(), trials)
    }

    #[test]
    fn the_limit_is_found_to_two_per_cent_from_anywhere() {
        for first in [40.0, 300.0, 900.0, 4000.0] {
            let (found, trials) = limits(first, 431.7);
            let (low, high) = (found.highest_passing.unwrap(), found.lowest_failing.unwrap());
            assert!(low <= 431.7 && high > 431.7 && high / low <= 1.02, "{found:?}");
            assert!(trials < 45, "{trials} trials from {first}");
        }
    }

    #[test]
    fn a_rate_that_nothing_keeps_is_given_up() {
        let (found, _) = limits(300.0, 0.0);
        assert_eq!(found.highest_passing, None);
        assert!(found.lowest_failing.unwrap() < 30.0);
        assert_eq!(search(300.0, |_, _| Err(7)), Err(7));
    }

    #[test]
    fn one_seed_of_three_does_not_decide() {
        let found = search::<()>(400.0, |rate, seed| Ok(if seed == 1 { rate > 431.7 } else { rate <= 431.7 })).unwrap();
        assert!(found.highest_passing.unwrap() <= 431.7 && found.lowest_failing.unwrap() > 431.7, "{found:?}");
    }

    /// In an M/M/1 queue the time in the system is exponential with the mean 1 / (µ - λ): its p99 is ln(100) / (µ - λ).
    #[test]
    fn the_limit_of_a_queue_is_that_of_theory() {
        let (service, bound_ms) = (0.002, 20.0);
        let limit = 1.0 / service - 100.0_f64.ln() / (bound_ms / 1e3);
        let found = search::<()>(100.0, |rate, seed| {
            let terms = LoadTerms { bound_ms: Some(bound_ms), ..LoadTerms::default() };
            let mut services = Draws::new(ServiceTime::Exponential(service), 99 + seed);
            let trial = queue(&poisson(rate, 1 + seed, 200_000), &mut services);
            Ok(figures(LoadResult::default(), &trial, &terms, 1).unwrap().0.verdict == Some(Verdict::Passed))
        });
        let found = found.unwrap().highest_passing.unwrap();
        assert!((found / limit - 1.0).abs() < 0.06, "{found} and not {limit}");
    }
}
