//! Compares an answer that is a map of pixels with the right one: the pixels of each class, the relative error of
//! depths, and the noise of a signal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The class of a label's pixels that do not count, as in Cityscapes and Pascal VOC.
const IGNORED: f64 = 255.0;
/// The most decibels: about those of the rounding of f32, so that equal signals have a finite ratio.
const MOST_DECIBELS: f64 = 150.0;

/// How the numbers of an output give the class of each pixel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum MaskForm {
    /// A score for each of this many classes, `[classes, height, width]`: the largest one gives the class.
    Scores(usize),
    /// One number, `[height, width]`: the class is 1 above this threshold, and 0 otherwise.
    Above(f32),
    /// The class itself, `[height, width]`.
    Class,
}

impl MaskForm {
    /// How many numbers there are per pixel.
    pub fn planes(self) -> usize {
        match self {
            MaskForm::Scores(classes) => classes,
            MaskForm::Above(_) | MaskForm::Class => 1,
        }
    }

    /// The class of a pixel by its numbers; of equal scores the first. Returns `None` if a number is not finite.
    pub fn class_of(self, numbers: impl Iterator<Item = f32>) -> Option<i64> {
        let mut best: Option<(i64, f32)> = None;
        for (class, number) in (0..).zip(numbers) {
            if !number.is_finite() {
                return None;
            }
            if best.is_none_or(|(_, score)| number > score) {
                best = Some((class, number));
            }
        }
        best.map(|(class, number)| match self {
            MaskForm::Scores(_) => class,
            MaskForm::Above(threshold) => (number > threshold).into(),
            MaskForm::Class => number as i64,
        })
    }

    /// The classes of all pixels of a sample.
    pub fn classes(self, row: &[f32]) -> impl Iterator<Item = Option<i64>> {
        let pixels = row.len() / self.planes().max(1);
        (0..pixels).map(move |pixel| self.class_of((0..self.planes()).map(|plane| row[plane * pixels + pixel])))
    }

    /// The class of a label's pixel. Returns `None` for 255, for negative numbers and for what is not a number: such
    /// pixels do not count.
    pub fn class_of_label(number: f64) -> Option<i64> {
        (number >= 0.0 && number != IGNORED).then_some(number as i64)
    }
}

/// The pixels of a class in a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassPixels {
    pub class: i64,
    /// Pixels that are of the class in both masks.
    pub shared: u64,
    /// Pixels that are of the class in at least one of them.
    pub united: u64,
}

/// The pixels of each class in a mask and in the right mask. Pixels without a class in the right mask do not count. A
/// pixel without a class in the first mask counts only for its right class.
pub fn class_pixels(
    found: impl Iterator<Item = Option<i64>>,
    right: impl Iterator<Item = Option<i64>>,
) -> Vec<ClassPixels> {
    let known: Vec<(Option<i64>, i64)> = found.zip(right).filter_map(|(found, right)| Some((found, right?))).collect();
    let mut pairs: BTreeMap<(Option<i64>, i64), u64> = BTreeMap::new();
    // Neighbours are mostly of one class.
    for same in known.chunk_by(|one, other| one == other) {
        *pairs.entry(same[0]).or_default() += same.len() as u64;
    }
    let mut classes: BTreeMap<i64, ClassPixels> = BTreeMap::new();
    let mut add = |class: i64, shared: u64, united: u64| {
        let pixels = classes.entry(class).or_insert(ClassPixels { class, ..ClassPixels::default() });
        pixels.shared += shared;
        pixels.united += united;
    };
    for ((found, right), count) in pairs {
        match found {
            Some(found) if found == right => add(right, count, count),
            found => {
                add(right, 0, count);
                found.into_iter().for_each(|found| add(found, 0, count));
            }
        }
    }
    classes.into_values().collect()
}

/// The mean over pixels of the error of a depth as a fraction of the right one (Eigen, Puhrsch and Fergus 2014, section
/// 4.2). The error of a depth that is not finite is 1. Only pixels count whose right depth is above 0 and finite;
/// returns `None` if there are none.
pub fn relative_error(found: &[f32], right: &[f32]) -> Option<f64> {
    let is_known = |(_, right): &(&f32, &f32)| right.is_finite() && **right > 0.0;
    let error = |(&found, &right): (&f32, &f32)| match found.is_finite() {
        true => (f64::from(found) - f64::from(right)).abs() / f64::from(right),
        false => 1.0,
    };
    let known = || found.iter().zip(right).filter(is_known);
    let count = known().count();
    (count > 0).then(|| known().map(error).sum::<f64>() / count as f64)
}

/// The ratio of a signal's peak to its noise in decibels: `10·log10(peak² / mean squared error)`, at most 150, and 0
/// for a signal that has a number that is not finite. The peak is the right signal's largest number minus its smallest;
/// returns `None` if that is 0 or not finite.
pub fn decibels(found: &[f32], right: &[f32]) -> Option<f64> {
    let (least, most) = right
        .iter()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(least, most), &number| (least.min(number), most.max(number)));
    let peak = f64::from(most) - f64::from(least);
    if peak <= 0.0 || !peak.is_finite() || right.iter().any(|number| !number.is_finite()) {
        return None;
    }
    let squared = |(&found, &right): (&f32, &f32)| (f64::from(found) - f64::from(right)).powi(2);
    let error = found.iter().zip(right).map(squared).sum::<f64>() / right.len() as f64;
    Some(if error.is_finite() { (10.0 * (peak * peak / error).log10()).min(MOST_DECIBELS) } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_that_are_ignored_count_for_no_class() {
        let right = [0.0, 1.0, 255.0, -1.0, f64::NAN, 1.0].map(MaskForm::class_of_label);
        assert_eq!(right, [Some(0), Some(1), None, None, None, Some(1)]);
        let found = [Some(0), Some(0), Some(2), Some(2), Some(2), None];
        let pixels = class_pixels(found.into_iter(), right.into_iter());
        let of = |class, shared, united| ClassPixels { class, shared, united };
        assert_eq!(pixels, [of(0, 1, 2), of(1, 0, 2)]);
    }

    #[test]
    fn a_class_is_the_first_of_the_largest_scores() {
        let of = |form: MaskForm, row: &[f32]| form.classes(row).collect::<Vec<_>>();
        assert_eq!(of(MaskForm::Scores(2), &[1.0, 0.0, f32::NAN, 1.0, 2.0, 0.0]), [Some(0), Some(1), None]);
        assert_eq!(of(MaskForm::Above(0.5), &[0.5, 0.6]), [Some(0), Some(1)]);
        assert_eq!(of(MaskForm::Class, &[3.0, 0.0]), [Some(3), Some(0)]);
    }

    #[test]
    fn a_depth_of_0_is_not_known_and_one_that_is_no_number_is_wrong() {
        assert_eq!(relative_error(&[2.0, 3.0, 9.0, 9.0], &[4.0, 3.0, 0.0, f32::INFINITY]), Some(0.25));
        assert_eq!(relative_error(&[f32::NAN, 3.0], &[4.0, 3.0]), Some(0.5));
        assert_eq!(relative_error(&[1.0], &[0.0]), None);
    }

    #[test]
    fn equal_signals_have_the_most_decibels_and_one_number_has_no_peak() {
        assert_eq!(decibels(&[0.0, 1.0], &[0.0, 1.0]), Some(MOST_DECIBELS));
        assert_eq!(decibels(&[0.1, 1.1], &[0.0, 1.0]).map(|decibels| (decibels * 1e4).round()), Some(200_000.0));
        assert_eq!(decibels(&[f32::NAN, 1.0], &[0.0, 1.0]), Some(0.0));
        assert_eq!(decibels(&[1.0, 1.0], &[1.0, 1.0]), None);
    }
}
