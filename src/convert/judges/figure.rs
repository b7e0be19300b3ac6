//! A figure of a case's answers with its interval.

use crate::run_data::{Better, CHANGE, FRACTION};
use crate::statistics::{bootstrap_interval, paired_difference_interval, proportion_interval};

const CONFIDENCE: f64 = 0.95;

/// A figure of a case's answers, with its 95 % interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub interval: Option<(f64, f64)>,
    pub unit: String,
    /// Which values are the better ones, if it is known.
    pub better: Option<Better>,
    pub samples: usize,
    /// Whether it depends on the original's answers.
    pub is_compared: bool,
}

/// Computes a figure from how often each sample counts.
pub type OfSamples<'a> = &'a dyn Fn(&[u32]) -> Option<f64>;

impl Figure {
    /// The part of the samples that are right, with its exact interval (Clopper and Pearson 1934). Returns `None` if
    /// there are no samples.
    pub fn of_proportion(name: &str, right: &[bool]) -> Option<Self> {
        let count = right.iter().filter(|is_right| **is_right).count();
        let interval = proportion_interval(count as u64, right.len() as u64, CONFIDENCE)?;
        let value = count as f64 / right.len() as f64;
        Some(Self::new(name, value, Some(interval), Better::Higher, right.len()))
    }

    /// How much larger the part of the right samples is than the original's, on the same samples (Bonett and Price
    /// 2012).
    pub fn of_difference(name: &str, right: &[bool], was_right: &[bool]) -> Option<Self> {
        let count = |now: bool, before: bool| {
            let pairs = right.iter().zip(was_right);
            pairs.filter(|(one, other)| (**one, **other) == (now, before)).count() as u64
        };
        let (gained, lost, samples) = (count(true, false), count(false, true), right.len() as u64);
        let interval = paired_difference_interval(gained, lost, samples, CONFIDENCE)?;
        let value = (gained as f64 - lost as f64) / samples as f64;
        Some(Self::new(name, value, Some(interval), Better::Higher, right.len()).into_change())
    }

    /// A figure of all samples, with the interval of a bootstrap over them.
    ///
    /// If a fraction is exactly 0 or 1, drawing the samples again may show no spread. Its interval is then that of a
    /// proportion of the samples.
    pub fn resampled(name: &str, better: Better, samples: usize, figure: OfSamples<'_>) -> Option<Self> {
        let mut found = Self::resampled_without_limit(name, better, samples, figure)?;
        let value = found.value;
        if found.interval.is_none_or(|(lower, upper)| lower == upper) && (value == 0.0 || value == 1.0) {
            found.interval = proportion_interval((value * samples as f64) as u64, samples as u64, CONFIDENCE);
        }
        Some(found)
    }

    /// The same for a figure that is not a fraction.
    pub fn resampled_without_limit(name: &str, better: Better, samples: usize, figure: OfSamples<'_>) -> Option<Self> {
        let value = figure(&vec![1; samples]).filter(|value| value.is_finite())?;
        Some(Self::new(name, value, bootstrap_interval(samples, CONFIDENCE, figure), better, samples))
    }

    /// A figure of all samples and, if there is an original, how much larger it is than the original's. `of` computes
    /// the figure from the answers of either.
    pub fn with_change<T: ?Sized>(
        name: &str,
        better: Better,
        samples: usize,
        (own, original): (&T, Option<&T>),
        of: impl Fn(&T, &[u32]) -> Option<f64>,
    ) -> Vec<Self> {
        let figure = |drawn: &[u32]| of(own, drawn);
        let change = original
            .and_then(|original| Self::resampled_change(name, better, samples, &figure, &|drawn| of(original, drawn)));
        Self::resampled(name, better, samples, &figure).into_iter().chain(change).collect()
    }

    /// How much larger a figure is than the original's, with the interval of a bootstrap over the samples of both.
    pub fn resampled_change(
        name: &str,
        better: Better,
        samples: usize,
        own: OfSamples<'_>,
        original: OfSamples<'_>,
    ) -> Option<Self> {
        let change = |drawn: &[u32]| Some(own(drawn)? - original(drawn)?);
        let value = change(&vec![1; samples]).filter(|value| value.is_finite())?;
        let drawn = bootstrap_interval(samples, CONFIDENCE, change);
        let interval = match drawn {
            // No sample differs from the others. The interval is as wide as if no sample had been gained or lost.
            Some(found) if is_one_value(found) => {
                let none = paired_difference_interval(0, 0, samples as u64, CONFIDENCE);
                none.map(|(lower, upper)| (value + lower, value + upper))
            }
            drawn => drawn,
        };
        Some(Self::new(name, value, interval, better, samples).into_change())
    }

    /// The same with another unit.
    pub fn in_unit(self, unit: &str) -> Self {
        Figure { unit: unit.to_owned(), ..self }
    }

    /// The same, marked as dependent on the original's answers.
    pub fn compared(self) -> Self {
        Figure { is_compared: true, ..self }
    }

    fn into_change(self) -> Self {
        Figure { name: self.name + CHANGE, is_compared: true, ..self }
    }

    fn new(name: &str, value: f64, interval: Option<(f64, f64)>, better: Better, samples: usize) -> Self {
        let (name, unit, better) = (name.to_owned(), FRACTION.into(), Some(better));
        Figure { name, value, interval, unit, better, samples, is_compared: false }
    }
}

/// Whether every resample has given the same value, apart from rounding: the samples are copies of one another.
pub fn is_one_value((lower, upper): (f64, f64)) -> bool {
    upper - lower <= 1e-9 * lower.abs().max(upper.abs())
}

/// A sample's figure and how often it counts: not at all if it is unknown.
pub fn part(figure: Option<f64>) -> (f64, f64) {
    figure.map_or((0.0, 0.0), |figure| (figure, 1.0))
}

/// The sum of the first numbers divided by the sum of the second, with each sample as often as it was drawn. Returns
/// `None` if the latter is 0.
pub fn ratio(parts: &[(f64, f64)], drawn: &[u32]) -> Option<f64> {
    let sum = |of: fn(&(f64, f64)) -> f64| parts.iter().zip(drawn).map(|(it, &count)| of(it) * f64::from(count)).sum();
    let (part, all): (f64, f64) = (sum(|it| it.0), sum(|it| it.1));
    (all > 0.0).then(|| part / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_are_all_perfect_are_not_known_for_certain() {
        let of = |parts: &[(f64, f64)]| {
            Figure::resampled("m", Better::Higher, parts.len(), &|drawn| ratio(parts, drawn)).unwrap()
        };
        let perfect = of(&[(3.0, 3.0); 20]);
        assert_eq!((perfect.value, perfect.interval), (1.0, proportion_interval(20, 20, 0.95)));
        let mixed = of(&[(3.0, 3.0), (0.0, 3.0), (3.0, 3.0), (1.0, 3.0), (3.0, 3.0), (2.0, 3.0)]);
        let (lower, upper) = mixed.interval.unwrap();
        assert!(lower < mixed.value && mixed.value < upper && (mixed.value - 12.0 / 18.0).abs() < 1e-12, "{mixed:?}");
        let same = Figure::resampled_change("m", Better::Higher, 6, &|_| Some(0.5), &|_| Some(0.5)).unwrap();
        assert_eq!((same.name.as_str(), same.value), ("m_change", 0.0));
        assert!(same.interval.is_some_and(|(lower, upper)| lower < -0.1 && upper > 0.1), "{same:?}");
        let lost = Figure::resampled_change("m", Better::Higher, 6, &|_| Some(0.0), &|_| Some(1.0)).unwrap();
        assert!(lost.interval.is_some_and(|(lower, upper)| lower < lost.value && upper < -0.5), "{lost:?}");
    }
}
