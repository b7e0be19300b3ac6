//! What a fixed number of paired differences says: Wilcoxon's signed-rank test, its interval, and the estimate that
//! belongs to them.
//!
//! Wilcoxon 1945, "Individual comparisons by ranking methods"; Hodges & Lehmann 1963, "Estimates of location based on rank
//! tests"; the interval by inverting the test is in Hollander, Wolfe & Chicken 2014, "Nonparametric statistical methods",
//! section 3.3. Nothing is assumed of the differences but that their signs are fair coins when nothing has changed. In a
//! duel that is true by construction and not by hope: who runs first is drawn anew in every round (Fisher 1935, "The
//! design of experiments"), so neither drift nor steps nor memory of the machine from round to round can break it.

use statrs::distribution::{ContinuousCDF, Normal};

/// Up to here the distribution is counted out; beyond it is normal to the third digit.
const COUNTED_OUT: usize = 60;

/// The Hodges–Lehmann estimate: the median of the means of all pairs.
pub fn estimate(differences: &[f64]) -> Option<f64> {
    let means = walsh_averages(differences);
    let middle = means.len() / 2;
    match means.len() {
        0 => None,
        n if n % 2 == 1 => Some(means[middle]),
        _ => Some((means[middle - 1] + means[middle]) / 2.0),
    }
}

/// The interval that holds the true shift with this probability; `None` for too few differences.
pub fn interval(differences: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let tail = (1.0 - confidence) / 2.0;
    let rejected = largest_rejected(differences.len(), tail)?;
    let means = walsh_averages(differences);
    Some((means[rejected], means[means.len() - 1 - rejected]))
}

/// The two-sided p value of "no shift". Differences of 0 are left out, and equal ones share their ranks; it is exact
/// all the same, being taken over the signs of just these differences.
pub fn p_value(differences: &[f64]) -> f64 {
    let doubled = doubled_ranks(differences);
    let positive: u64 = doubled.iter().filter(|(is_positive, _)| *is_positive).map(|(_, rank)| rank).sum();
    let total: u64 = doubled.iter().map(|(_, rank)| rank).sum();
    let smaller = positive.min(total - positive);
    let tail = if doubled.len() <= COUNTED_OUT {
        let distribution = sums_of_subsets(doubled.iter().map(|(_, rank)| *rank as usize));
        distribution[..=smaller as usize].iter().sum()
    } else {
        let variance = doubled.iter().map(|(_, rank)| (*rank as f64).powi(2)).sum::<f64>() / 4.0;
        // Half a step of a rank, which is 1 in doubled ranks.
        standard_normal().cdf((smaller as f64 + 1.0 - total as f64 / 2.0) / variance.sqrt())
    };
    (2.0 * tail).min(1.0)
}

/// The fewest differences that can have a p value up to `level`.
pub fn fewest(level: f64) -> usize {
    (1 - level.log2().floor() as i32).max(1) as usize
}

/// Means of all pairs, each difference with itself too, in order.
fn walsh_averages(differences: &[f64]) -> Vec<f64> {
    let pairs = differences.iter().enumerate();
    let mut means: Vec<f64> = pairs
        .flat_map(|(index, first)| differences[index..].iter().map(move |second| (first + second) / 2.0))
        .collect();
    means.sort_by(f64::total_cmp);
    means
}

/// The largest rank sum that is in the lower tail of this size.
fn largest_rejected(count: usize, tail: f64) -> Option<usize> {
    if count <= COUNTED_OUT {
        let mut below = 0.0;
        let mut fits = |probability: &f64| {
            below += probability;
            below <= tail
        };
        return sums_of_subsets(1..=count).iter().take_while(|probability| fits(probability)).count().checked_sub(1);
    }
    let n = count as f64;
    let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
    let limit = n * (n + 1.0) / 4.0 + deviation * standard_normal().inverse_cdf(tail) - 0.5;
    (limit >= 0.0).then_some(limit as usize)
}

/// The probability of each sum when every number is in it or not, by a fair coin.
fn sums_of_subsets(numbers: impl Iterator<Item = usize>) -> Vec<f64> {
    let mut probabilities = vec![1.0];
    for number in numbers {
        let before = probabilities.len();
        probabilities.resize(before + number, 0.0);
        for sum in (0..probabilities.len()).rev() {
            let with = sum.checked_sub(number).map_or(0.0, |rest| probabilities[rest]);
            let without = if sum < before { probabilities[sum] } else { 0.0 };
            probabilities[sum] = (with + without) / 2.0;
        }
    }
    probabilities
}

/// Sign and twice the rank of every difference that is not 0.
fn doubled_ranks(differences: &[f64]) -> Vec<(bool, u64)> {
    let mut ordered: Vec<f64> = differences.iter().copied().filter(|difference| *difference != 0.0).collect();
    ordered.sort_by(|one, other| one.abs().total_cmp(&other.abs()));
    let mut ranks = Vec::with_capacity(ordered.len());
    for equal in ordered.chunk_by(|one, other| one.abs() == other.abs()) {
        let first = ranks.len() as u64 + 1;
        let last = first + equal.len() as u64 - 1;
        ranks.extend(equal.iter().map(|difference| (*difference > 0.0, first + last)));
    }
    ranks
}

fn standard_normal() -> Normal {
    Normal::standard()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::seeded::{Fill, values};

    #[track_caller]
    fn assert_near(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() <= tolerance, "{found} is not {expected} ± {tolerance}");
    }

    /// Hamilton depression scale factor, table 3.1 of Hollander, Wolfe & Chicken: nine patients, T+ = 5 of 45.
    const DEPRESSION: [f64; 9] = [-0.952, 0.147, -1.022, -0.430, -0.620, -0.590, -0.490, 0.080, -0.010];

    #[test]
    fn a_published_example_comes_out_as_published() {
        // One-sided P = 0.0195, the estimate -0.46, and with 96 % the shift lies from -0.786 to -0.010.
        assert_near(p_value(&DEPRESSION), 2.0 * 0.01953, 1e-4);
        assert_near(estimate(&DEPRESSION).unwrap(), -0.46, 1e-9);
        let (lower, upper) = interval(&DEPRESSION, 0.96).unwrap();
        assert_near(lower, -0.786, 1e-9);
        assert_near(upper, -0.010, 1e-9);
    }

    #[test]
    fn too_few_differences_show_nothing() {
        assert_eq!(fewest(0.01), 8);
        assert_eq!(fewest(0.01 / 3.0), 10);
        for (count, is_enough) in [(7, false), (8, true)] {
            let differences: Vec<f64> = (1..=count).map(f64::from).collect();
            assert_eq!(p_value(&differences) <= 0.01, is_enough);
            assert_eq!(interval(&differences, 0.99).is_some(), is_enough);
        }
        assert_eq!((estimate(&[]), p_value(&[])), (None, 1.0));
    }

    #[test]
    fn equal_and_absent_differences_are_allowed() {
        assert_eq!(p_value(&[0.0; 20]), 1.0);
        assert_near(p_value(&[1.0; 10]), 2.0 / 1024.0, 1e-12);
        // Ranks 1.5, 1.5 and 3: the sums 0 and 1.5 have the probabilities 1/8 and 2/8.
        assert_near(p_value(&[-1.0, 1.0, 2.0]), 2.0 * 3.0 / 8.0, 1e-12);
    }

    #[test]
    fn test_and_interval_agree() {
        for seed in 0..200 {
            let differences: Vec<f64> =
                values(seed, "d", Fill::Normal(1.0), 0, 14).map(|z| f64::from(z) + 0.7).collect();
            let (lower, upper) = interval(&differences, 0.99).unwrap();
            assert_eq!(p_value(&differences) <= 0.01, lower > 0.0 || upper < 0.0);
            let middle = estimate(&differences).unwrap();
            assert!(lower <= middle && middle <= upper);
        }
    }

    #[test]
    fn counting_and_the_normal_curve_meet() {
        let counted = largest_rejected(COUNTED_OUT, 0.005).unwrap();
        let next = largest_rejected(COUNTED_OUT + 1, 0.005).unwrap();
        assert!((counted + 10..counted + 40).contains(&next), "{counted} {next}");
    }
}
