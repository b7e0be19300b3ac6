//! The centre of a symmetric distribution, with an interval that a few outliers among many values hardly widen.

use super::moments::median;

/// The Hodges–Lehmann estimate of a centre, with the interval and the p-value of Wilcoxon's signed-rank test.
///
/// They hold for any symmetric distribution of independent values, however long its tails are (Hodges & Lehmann 1963,
/// "Estimates of location based on rank tests"; Hollander & Wolfe, "Nonparametric Statistical Methods", chapter 3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignedRank {
    /// The median of the means of all pairs of values.
    pub estimate: f64,
    pub lower: f64,
    pub upper: f64,
    /// The probability of ranks that are this uneven, or more, if the centre is 0.
    pub p_value: f64,
}

impl SignedRank {
    /// Finds the interval that misses the centre with a probability of at most `error_rate`. Returns `None` if there
    /// are too few values for one: fewer than 8 at 1 %.
    pub fn of(values: &[f64], error_rate: f64) -> Option<Self> {
        let below = cumulative(values.len());
        let outside =
            below.iter().take_while(|&&probability| probability <= error_rate / 2.0).count().checked_sub(1)?;
        let mut means: Vec<f64> = values
            .iter()
            .enumerate()
            .flat_map(|(index, one)| values[index..].iter().map(move |other| f64::midpoint(*one, *other)))
            .collect();
        means.sort_unstable_by(f64::total_cmp);
        Some(SignedRank {
            estimate: median(&means)?,
            lower: means[outside],
            upper: means[means.len() - 1 - outside],
            p_value: p_value(values, &below),
        })
    }
}

/// For each sum of positive ranks: the probability of this sum or a smaller one, if each sign is random.
fn cumulative(count: usize) -> Vec<f64> {
    let mut probabilities = vec![0.0; count * (count + 1) / 2 + 1];
    probabilities[0] = 1.0;
    for rank in 1..=count {
        // No sum of the ranks so far is larger.
        for sum in (0..=rank * (rank + 1) / 2).rev() {
            let with = sum.checked_sub(rank).map_or(0.0, |rest| probabilities[rest]);
            probabilities[sum] = f64::midpoint(probabilities[sum], with);
        }
    }
    let mut total = 0.0;
    probabilities.iter_mut().for_each(|probability| {
        total += *probability;
        *probability = total;
    });
    probabilities
}

/// Zeros count half on each side. Equal sizes take the ranks as they come, which changes next to nothing.
fn p_value(values: &[f64], below: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = values.to_vec();
    sorted.sort_unstable_by(|one, other| one.abs().total_cmp(&other.abs()));
    let share = |value: f64| if value == 0.0 { 0.5 } else { f64::from(u8::from(value > 0.0)) };
    let positive: f64 = sorted.iter().enumerate().map(|(index, value)| (index + 1) as f64 * share(*value)).sum();
    let negative = (below.len() - 1) as f64 - positive;
    // The distribution is symmetric.
    let smaller = positive.min(negative).ceil();
    (2.0 * below[smaller as usize]).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_example_gets_its_published_figures() {
        // Hollander & Wolfe, table 3.1: depression factors before and after therapy.
        let changes = [0.952, -0.147, 1.022, 0.43, 0.62, 0.59, 0.49, -0.08, 0.01];
        let found = SignedRank::of(&changes, 0.05).unwrap();
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
        near(found.estimate, 0.46);
        near(found.lower, 0.010);
        near(found.upper, 0.786);
        near(found.p_value, 0.0390625);
    }

    #[test]
    fn outliers_move_the_interval_no_farther_than_any_large_values() {
        let with = |outlier: f64| {
            let mut values: Vec<f64> = (-12..12).map(|number| 0.01 * f64::from(number)).collect();
            (values[3], values[20]) = (outlier, outlier);
            SignedRank::of(&values, 0.01).unwrap()
        };
        assert_eq!(with(-5.0).lower, with(-5000.0).lower);
    }

    #[test]
    fn too_few_values_have_no_interval_and_zeros_no_centre_but_zero() {
        assert_eq!(SignedRank::of(&[1.0; 7], 0.01), None);
        let flat = SignedRank::of(&[0.0; 8], 0.01).unwrap();
        assert_eq!((flat.lower, flat.upper, flat.p_value), (0.0, 0.0, 1.0));
        assert_eq!(SignedRank::of(&[1.0; 8], 0.01).unwrap().p_value, 2.0 / 256.0);
        assert_eq!(SignedRank::of(&[], 0.01), None);
    }
}
