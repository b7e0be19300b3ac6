//! Least squares on relative errors with coefficients that are not below given bounds.

/// How many terms a cost has.
pub const TERMS: usize = 8;

/// One observation: its terms, the positive value that they should add up to, and how much it counts.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    pub terms: [f64; TERMS],
    pub value: f64,
    pub weight: f64,
}

const SWEEPS: usize = 3000;
const STEADY: f64 = 1e-10;
const SMALLEST_RATIO: f64 = 0.05;

/// The coefficients `c ≥ least` that make `Σ weight (c · terms / value - 1)²` smallest.
///
/// The problem is convex, and its bounds are separate, so that minimising over one coefficient at a time finds the minimum
/// (coordinate descent; Bertsekas, "Nonlinear Programming", section 2.7). A term that is 0 in all observations keeps its bound.
pub fn fit(observations: &[Observation], least: [f64; TERMS]) -> [f64; TERMS] {
    // Terms differ by many orders of magnitude: each is scaled so that the sum of its squares is 1.
    let relative = |it: &Observation| it.terms.map(|term| term / it.value);
    let mut scales = [0.0; TERMS];
    for observation in observations {
        for (scale, term) in scales.iter_mut().zip(relative(observation)) {
            *scale += observation.weight * term * term;
        }
    }
    let scales = scales.map(f64::sqrt);
    let mut products = [[0.0; TERMS]; TERMS];
    let mut targets = [0.0; TERMS];
    for observation in observations {
        let terms = relative(observation);
        let scaled: [f64; TERMS] =
            std::array::from_fn(|place| if scales[place] > 0.0 { terms[place] / scales[place] } else { 0.0 });
        for (row, own) in scaled.iter().enumerate() {
            targets[row] += observation.weight * own;
            for (column, other) in scaled.iter().enumerate() {
                products[row][column] += observation.weight * own * other;
            }
        }
    }
    let bounds: [f64; TERMS] = std::array::from_fn(|place| least[place] * scales[place]);
    let mut found = bounds;
    for _ in 0..SWEEPS {
        let mut step: f64 = 0.0;
        for place in (0..TERMS).filter(|&place| scales[place] > 0.0) {
            let rest: f64 =
                (0..TERMS).filter(|&other| other != place).map(|other| products[place][other] * found[other]).sum();
            let next = ((targets[place] - rest) / products[place][place]).max(bounds[place]);
            step = step.max((next - found[place]).abs());
            found[place] = next;
        }
        if step < STEADY {
            break;
        }
    }
    std::array::from_fn(|place| if scales[place] > 0.0 { found[place] / scales[place] } else { least[place] })
}

const REFITS: usize = 12;
/// The first refits do not limit the pull of errors, so that the later ones have a good start.
const FIRST_REFITS: usize = 3;

/// Larger errors of logarithms pull no more than an error of this size, so that a model that the terms do not describe
/// does not spoil the fit of others. Tuned together with the widths of likeness.
const LARGEST_PULL: f64 = 0.4;

/// Like [`fit`], but for the logarithms of the ratios: half and twice the value are errors of one size, and large
/// errors count by their size instead of its square (Huber, Annals of Mathematical Statistics 35, 1964). The weights
/// follow from the ratios `r` of the previous fit, so that `(r - 1)²` has the gradient of `(ln r)²`.
pub fn fit_logarithms(observations: &[Observation], least: [f64; TERMS]) -> [f64; TERMS] {
    let mut found = fit(observations, least);
    for refit in 0..REFITS {
        let largest_pull = if refit < FIRST_REFITS { f64::INFINITY } else { LARGEST_PULL };
        let weight = |it: &Observation| {
            let ratio = (sum(&found, &it.terms) / it.value).max(SMALLEST_RATIO);
            let error = ratio.ln();
            let is_met = (ratio - 1.0).abs() < 1e-6;
            let pull = (largest_pull / error.abs()).min(1.0);
            if is_met { 1.0 } else { pull * error / (ratio - 1.0) / ratio }
        };
        let weighted = observations.iter().map(|it| Observation { weight: it.weight * weight(it), ..*it });
        found = fit(&weighted.collect::<Vec<_>>(), least);
    }
    found
}

/// `coefficients · terms`.
pub fn sum(coefficients: &[f64; TERMS], terms: &[f64; TERMS]) -> f64 {
    coefficients.iter().zip(terms).map(|(coefficient, term)| coefficient * term).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn observations(terms: &[[f64; TERMS]], coefficients: [f64; TERMS]) -> Vec<Observation> {
        let of = |terms: &[f64; TERMS]| Observation { terms: *terms, value: sum(&coefficients, terms), weight: 1.0 };
        terms.iter().map(of).collect()
    }

    fn of_one_term(value: f64) -> Observation {
        let terms = std::array::from_fn(|place| if place == 0 { 1.0 } else { 0.0 });
        Observation { terms, value, weight: 1.0 }
    }

    const TERMS_OF_EIGHT: [[f64; TERMS]; 8] = [
        [1e2, 1e9, 1e7, 1e6, 5e7, 1e6, 0.0, 0.0],
        [3e2, 1e7, 1e9, 1e7, 1e6, 1e7, 0.0, 0.0],
        [1e3, 0.0, 1e8, 1e8, 0.0, 1e6, 1e6, 0.0],
        [5e1, 1e8, 0.0, 1e5, 1e8, 1e5, 0.0, 0.0],
        [2e2, 5e8, 5e8, 2e7, 2e7, 1e6, 1e5, 1e6],
        [1e2, 1e7, 1e7, 1e6, 1e5, 2e8, 0.0, 0.0],
        [1e1, 1e6, 1e7, 1e6, 1e5, 2e5, 2e8, 1e5],
        [1e1, 1e6, 1e7, 1e6, 1e5, 2e5, 1e6, 3e8],
    ];

    #[test]
    fn what_was_put_in_is_found() {
        let coefficients = [2e-3, 1e-8, 3e-8, 5e-8, 4e-8, 2e-8, 3e-8, 6e-8];
        let found = fit(&observations(&TERMS_OF_EIGHT, coefficients), [0.0; TERMS]);
        for (found, expected) in found.into_iter().zip(coefficients) {
            assert!((found / expected - 1.0).abs() < 1e-2, "{found} is not {expected}");
        }
        let observations = observations(&TERMS_OF_EIGHT, coefficients);
        let by_logarithms = fit_logarithms(&observations, [0.0; TERMS]);
        assert!((sum(&by_logarithms, &TERMS_OF_EIGHT[0]) / observations[0].value - 1.0).abs() < 1e-3);
    }

    #[test]
    fn half_and_twice_the_value_are_errors_of_one_size() {
        let found = fit_logarithms(&[1.0, 4.0].map(of_one_term), [0.0; TERMS]);
        assert!((found[0] - 2.0).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn one_that_is_far_off_pulls_less_than_its_square() {
        let most_are_one = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 100.0].map(of_one_term);
        let found = fit_logarithms(&most_are_one, [0.0; TERMS])[0];
        // The squares of the logarithms alone would give 100^(1/10), which is 1.58.
        assert!((1.0..1.1).contains(&found), "{found}");
    }

    #[test]
    fn no_coefficient_is_below_its_bound_and_an_unseen_term_keeps_it() {
        let least = [0.0, 2e-8, 0.0, 7e-8, 0.0, 0.0, 0.0, 0.0];
        let without = |terms: &[f64; TERMS]| std::array::from_fn(|place| if place == 3 { 0.0 } else { terms[place] });
        let without_one: Vec<[f64; TERMS]> = TERMS_OF_EIGHT.iter().map(without).collect();
        let found = fit(&observations(&without_one, [2e-3, 1e-8, 3e-8, 0.0, 1e-8, 1e-8, 1e-8, 1e-8]), least);
        assert!(found[1] >= 2e-8 && found[3] == 7e-8, "{found:?}");
    }

    proptest! {
        /// No small step to another allowed point makes the squares smaller.
        #[test]
        fn the_minimum_is_one(values in prop::collection::vec(0.1f64..10.0, TERMS), step in 0usize..TERMS, sign in prop::bool::ANY) {
            let weights = [1.0, 0.5, 1.0, 0.7, 1.0, 1.0, 0.2, 1.0];
            let make = |((terms, value), weight): ((&[f64; TERMS], &f64), f64)| Observation { terms: *terms, value: *value, weight };
            let all: Vec<Observation> = TERMS_OF_EIGHT.iter().zip(&values).zip(weights).map(make).collect();
            let squares = |coefficients: &[f64; TERMS]| -> f64 {
                all.iter().map(|it| it.weight * (sum(coefficients, &it.terms) / it.value - 1.0).powi(2)).sum()
            };
            let found = fit(&all, [0.0; TERMS]);
            let mut other = found;
            other[step] = (other[step] * if sign { 1.01 } else { 0.99 }).max(0.0);
            prop_assert!(squares(&found) <= squares(&other) + 1e-6);
        }
    }
}
