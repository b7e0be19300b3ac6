//! The search for the highest rate that keeps a bound.

use crate::statistics::{StudentT, geometric_mean, variance};

/// The ratio of the lowest failing rate to the highest passing one at which the search ends.
const RESOLUTION: f64 = 1.02;
/// While nothing has failed, the rate grows by this factor. The smaller one is for a search that begins with the result
/// of an earlier one.
const STEP: f64 = 1.5;
const STEP_NEARBY: f64 = 1.1;
/// If the lowest failing rate is within this factor of the highest passing one, several seeds judge each rate.
const NEAR: f64 = 1.25;
/// Seeds that judge a rate near the limit; the majority decides.
pub const SEEDS: u64 = 3;
/// The most rates that are tried: a machine whose speed changes could keep a search going forever.
const MOST_RATES: usize = 25;
/// If the majority of the seeds fails a rate that one seed has passed, the rate falls by 4 %, and then by twice as much
/// each time. This is the number of doublings, beginning with 2 %.
const MOST_DOUBLINGS: u32 = 4;
/// The search gives up below this part of its first rate if the majority of the seeds fails there. At such a rate
/// requests hardly wait, so a lower one would not make them faster.
const LEAST_PART: f64 = 0.1;

/// The words before the reason in the message of the last trial, if a limit has ended its search.
pub const ENDED_HERE: &str = "the search ended here: ";

/// Where the limit lies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Absent if none passes.
    pub highest_passing: Option<f64>,
    /// Absent if none fails.
    pub lowest_failing: Option<f64>,
}

/// A rate that was judged, and whether several seeds have judged it.
#[derive(Clone, Copy)]
struct Judged {
    rate: f64,
    is_sure: bool,
}

/// Where a search begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Begin {
    /// With a rate that may pass.
    Guess(f64),
    /// With the highest rate that an earlier search has found.
    Found(f64),
}

/// Finds the limit to 2 %, if it is not above `most`. `passes` makes a trial with a rate and the number of a seed, and
/// returns `None` if the trial is inconclusive. Returns `None` if the trials of a rate are inconclusive or divided: the
/// limit is then unknown.
///
/// # Errors
/// As `passes`.
pub fn search<E>(
    begin: Begin,
    most: f64,
    mut passes: impl FnMut(f64, u64) -> Result<Option<bool>, E>,
) -> Result<Option<Limits>, E> {
    let (first, step) = match begin {
        Begin::Guess(rate) => (rate, STEP),
        Begin::Found(rate) => (rate, STEP_NEARBY),
    };
    let first = first.min(most);
    let (mut low, mut high): (Option<Judged>, Option<Judged>) = (None, None);
    let mut rate = first;
    // How often the rate has fallen since one passed.
    let mut falls = 0;
    let is_least = |judged: &Judged| judged.rate < first * LEAST_PART;
    // Whether the first seed has failed rates that the majority passes.
    let mut is_misled = false;
    for _ in 0..MOST_RATES {
        let is_near = match (low, high) {
            (Some(low), Some(high)) => high.rate / low.rate <= NEAR,
            // The majority has failed a rate that one seed passed: the limit is not far below.
            (None, high) => high.is_some_and(|high| high.is_sure || is_least(&high)),
            (Some(_), None) => false,
        } || is_misled
            || rate >= most;
        let answer = if is_near { majority(rate, &mut passes)? } else { passes(rate, 0)? };
        let Some(has_passed) = answer else { return Ok(None) };
        falls = if has_passed { 0 } else { falls + 1 };
        let judged = Some(Judged { rate, is_sure: is_near });
        if has_passed {
            is_misled |= high.is_some_and(|high| is_least(&high));
            low = judged;
            // A lower rate that failed before did so by chance.
            high = high.filter(|high| high.rate > rate);
        } else {
            high = judged;
            low = low.filter(|low| low.rate < rate);
        }
        rate = match (low, high) {
            (Some(low), Some(high)) if high.rate / low.rate > RESOLUTION => (low.rate * high.rate).sqrt(),
            // The ends of the interval are judged by as many seeds as the rates in between.
            (Some(low), Some(_)) if !low.is_sure => low.rate,
            (Some(_), Some(high)) if !high.is_sure => high.rate,
            (Some(_), Some(_)) => break,
            (Some(low), None) if low.rate >= most => break,
            (Some(low), None) => (low.rate * step).min(most),
            (None, Some(high)) if is_least(&high) && high.is_sure => break,
            (None, Some(high)) if is_least(&high) => high.rate,
            (None, Some(high)) => {
                high.rate / if high.is_sure { RESOLUTION.powi(1 << falls.min(MOST_DOUBLINGS)) } else { step }
            }
            (None, None) => rate,
        };
    }
    let of = |judged: Option<Judged>| judged.map(|judged| judged.rate);
    Ok(Some(Limits { highest_passing: of(low), lowest_failing: of(high) }))
}

/// The verdict of most seeds. It ends as soon as the other seeds cannot change it. Returns `None` if the conclusive
/// seeds are divided.
fn majority<E>(rate: f64, passes: &mut impl FnMut(f64, u64) -> Result<Option<bool>, E>) -> Result<Option<bool>, E> {
    let (mut passed, mut failed) = (0, 0);
    for seed in 0..SEEDS {
        match passes(rate, seed)? {
            Some(true) => passed += 1,
            Some(false) => failed += 1,
            None => {}
        }
        if 2 * passed.max(failed) > SEEDS {
            break;
        }
    }
    Ok((passed != failed).then_some(passed > failed))
}

/// The rate that several searches have found: the geometric mean, and its 95 % interval by Student's t if there are several. Returns
/// `None` if there are no rates.
pub fn found_rate(rates: &[f64]) -> Option<(f64, Option<(f64, f64)>)> {
    const CONFIDENCE: f64 = 0.95;
    let logarithms: Vec<f64> = rates.iter().map(|rate| rate.ln()).collect();
    let n = rates.len();
    let rate = geometric_mean(&logarithms);
    let interval = || {
        let error = (variance(&logarithms) / n as f64).sqrt();
        let reach = StudentT::new((n - 1) as f64).two_sided_quantile(CONFIDENCE) * error;
        (rate * (-reach).exp(), rate * reach.exp())
    };
    (n > 0).then(|| (rate, (n > 1).then(interval)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(first: f64, limit: f64) -> (Limits, usize) {
        let mut trials = 0;
        let found = search::<()>(Begin::Guess(first), f64::INFINITY, |rate, _| {
            trials += 1;
            Ok(Some(rate <= limit))
        });
        (found.unwrap().unwrap(), trials)
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
        assert_eq!(search(Begin::Guess(300.0), f64::INFINITY, |_, _| Err(7)), Err(7));
    }

    #[test]
    fn a_seed_that_nothing_keeps_does_not_end_the_search() {
        let passes = |rate, seed| Ok(Some(seed != 0 && rate <= 431.7));
        let found = search::<()>(Begin::Guess(400.0), f64::INFINITY, passes).unwrap().unwrap();
        let (low, high) = (found.highest_passing.unwrap(), found.lowest_failing.unwrap());
        assert!(low <= 431.7 && high > 431.7 && high / low <= 1.02, "{found:?}");
    }

    #[test]
    fn no_trial_has_a_higher_rate_than_is_allowed() {
        for (first, limit) in [(40.0, 431.7), (900.0, 431.7), (40.0, 100.0), (900.0, 199.0)] {
            let mut rates = Vec::new();
            let found = search::<()>(Begin::Guess(first), 200.0, |rate, _| {
                rates.push(rate);
                Ok(Some(rate <= limit))
            });
            let found = found.unwrap().unwrap();
            assert!(rates.iter().all(|rate| *rate <= 200.0), "{rates:?}");
            let highest = found.highest_passing.unwrap();
            match limit < 200.0 {
                true => assert!(highest <= limit && found.lowest_failing.unwrap() / highest <= 1.02, "{found:?}"),
                false => assert_eq!((highest, found.lowest_failing), (200.0, None)),
            }
        }
    }

    #[test]
    fn one_seed_of_three_does_not_decide() {
        let passes = |rate, seed| Ok(Some(if seed == 1 { rate > 431.7 } else { rate <= 431.7 }));
        let found = search::<()>(Begin::Guess(400.0), f64::INFINITY, passes).unwrap().unwrap();
        assert!(found.highest_passing.unwrap() <= 431.7 && found.lowest_failing.unwrap() > 431.7, "{found:?}");
    }

    #[test]
    fn a_trial_that_says_nothing_is_neither_a_pass_nor_a_failure() {
        // One seed of three is always inconclusive.
        let silent = |rate: f64, seed: u64| Ok::<_, ()>((seed != 1).then_some(rate <= 431.7));
        let found = search(Begin::Guess(400.0), f64::INFINITY, silent).unwrap().unwrap();
        assert!(found.highest_passing.unwrap() <= 431.7 && found.lowest_failing.unwrap() > 431.7, "{found:?}");
        let late = |rate: f64, _: u64| Ok::<_, ()>((rate < 430.0).then_some(true));
        assert_eq!(search(Begin::Guess(400.0), f64::INFINITY, late), Ok(None));
    }

    #[test]
    fn a_search_that_begins_with_what_was_found_needs_fewer_trials() {
        let trials_from = |begin: Begin| {
            let mut trials = 0;
            let found = search::<()>(begin, f64::INFINITY, |rate, _| {
                trials += 1;
                Ok(Some(rate <= 431.7))
            });
            let found = found.unwrap().unwrap();
            assert!(found.highest_passing.unwrap() <= 431.7 && found.lowest_failing.unwrap() > 431.7, "{found:?}");
            trials
        };
        assert!(trials_from(Begin::Found(425.0)) < trials_from(Begin::Guess(1000.0)) - 2);
    }

    #[test]
    fn several_searches_say_how_certain_the_rate_is() {
        assert_eq!((found_rate(&[]), found_rate(&[1.0])), (None, Some((1.0, None))));
        let (rate, interval) = found_rate(&[100.0, 110.0, 121.0]).unwrap();
        let (lower, upper) = interval.unwrap();
        // t(0.975; 2) = 4.303 standard errors of ln(1.1) / √3.
        assert!(
            (rate - 110.0).abs() < 1e-9 && (upper / rate - (4.303 * 1.1_f64.ln() / 3.0_f64.sqrt()).exp()).abs() < 1e-3
        );
        assert!((lower * upper / rate / rate - 1.0).abs() < 1e-9);
    }
}
