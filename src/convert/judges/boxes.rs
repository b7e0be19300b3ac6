//! Boxes: mean average precision as COCO defines it (Lin et al. 2014, "Microsoft COCO"; pycocotools' `COCOeval`). For
//! each class, it is the mean over 101 recalls of the precision at that recall or a higher one, for boxes of all sizes.
//! At most 100 boxes of a picture are kept.

use std::collections::BTreeMap;

use super::figure::Figure;
use crate::run_data::{Better, FoundBox};

/// The overlaps from which a box counts as found: 0.5 to 0.95.
const OVERLAPS: usize = 10;
const RECALLS: usize = 101;
/// Without labels, the boxes whose score is at least this part of the best one in the picture count.
const LEAST_PART: f32 = 0.5;

/// Mean average precision over the overlaps 0.5 to 0.95 (`map`), and at 0.5 (`map50`). Without labels, the original's
/// boxes count as right; on both sides, only boxes count whose score is at least half of the best in the picture.
pub fn figures(
    found: &[Vec<FoundBox>],
    right: Option<&[Vec<FoundBox>]>,
    original: Option<&[Vec<FoundBox>]>,
) -> Vec<Figure> {
    let samples = found.len();
    let named = [("map", OVERLAPS), ("map50", 1)];
    if let Some(right) = right {
        let own = Matched::new(found, right);
        let before = original.map(|original| Matched::new(original, right));
        let figures = |(name, overlaps): (&str, usize)| {
            let precision = |matched: &Matched, drawn: &[u32]| matched.mean_precision(drawn, overlaps);
            Figure::with_change(name, Better::Higher, samples, (&own, before.as_ref()), precision)
        };
        return named.into_iter().flat_map(figures).collect();
    }
    let Some(original) = original else { return Vec::new() };
    let matched = Matched::new(&likely(found), &likely(original));
    let figure = |(name, overlaps)| {
        Figure::resampled(name, Better::Higher, samples, &|drawn: &[u32]| matched.mean_precision(drawn, overlaps))
    };
    named.into_iter().filter_map(figure).map(Figure::compared).collect()
}

fn likely(samples: &[Vec<FoundBox>]) -> Vec<Vec<FoundBox>> {
    let of_sample = |boxes: &Vec<FoundBox>| {
        let best = boxes.iter().map(|it| it.score).fold(f32::NEG_INFINITY, f32::max);
        boxes.iter().filter(|it| it.score >= LEAST_PART * best).copied().collect()
    };
    samples.iter().map(of_sample).collect()
}

/// Boxes of all samples by class, matched with the right ones.
struct Matched(Vec<MatchedClass>);

#[derive(Default)]
struct MatchedClass {
    /// The boxes found, by their scores from the highest on.
    found: Vec<MatchedBox>,
    /// The number of right boxes in each sample.
    right: Vec<u32>,
}

struct MatchedBox {
    sample: usize,
    score: f32,
    /// For each overlap, whether the box is right.
    is_right: [bool; OVERLAPS],
}

impl Matched {
    fn new(found: &[Vec<FoundBox>], right: &[Vec<FoundBox>]) -> Self {
        let mut classes: BTreeMap<i64, MatchedClass> = BTreeMap::new();
        for it in right.iter().flatten() {
            let new = || MatchedClass { found: Vec::new(), right: vec![0; right.len()] };
            classes.entry(it.class).or_insert_with(new);
        }
        for (class, matched) in &mut classes {
            for (sample, (found, right)) in found.iter().zip(right).enumerate() {
                let right: Vec<&FoundBox> = right.iter().filter(|it| it.class == *class).collect();
                let mut found: Vec<&FoundBox> = found.iter().filter(|it| it.class == *class).collect();
                found.sort_by(|one, other| other.score.total_cmp(&one.score));
                let is_right = matches(&found, &right);
                let boxes = found.iter().zip(is_right);
                matched.found.extend(boxes.map(|(it, is_right)| MatchedBox { sample, score: it.score, is_right }));
                matched.right[sample] = right.len() as u32;
            }
            matched.found.sort_by(|one, other| other.score.total_cmp(&one.score));
        }
        Matched(classes.into_values().collect())
    }

    /// The mean over classes and the first overlaps, with each sample as often as it was drawn. Returns `None` if these
    /// samples have no right box.
    fn mean_precision(&self, drawn: &[u32], overlaps: usize) -> Option<f64> {
        let of_class = |class: &MatchedClass| {
            let right: u32 = class.right.iter().zip(drawn).map(|(count, drawn)| count * drawn).sum();
            let precision = |overlap| class.precision(drawn, overlap, f64::from(right));
            (right > 0).then(|| (0..overlaps).map(precision).sum::<f64>() / overlaps as f64)
        };
        let precisions: Vec<f64> = self.0.iter().filter_map(of_class).collect();
        (!precisions.is_empty()).then(|| precisions.iter().sum::<f64>() / precisions.len() as f64)
    }
}

impl MatchedClass {
    fn precision(&self, drawn: &[u32], overlap: usize, right: f64) -> f64 {
        // Recall and precision after each box.
        let mut curve: Vec<(f64, f64)> = Vec::with_capacity(self.found.len());
        let (mut hits, mut misses) = (0.0, 0.0);
        for it in self.found.iter().filter(|it| drawn[it.sample] > 0) {
            let count = f64::from(drawn[it.sample]);
            if it.is_right[overlap] {
                hits += count
            } else {
                misses += count
            }
            curve.push((hits / right, hits / (hits + misses)));
        }
        let mut best = 0.0_f64;
        for (_, precision) in curve.iter_mut().rev() {
            best = best.max(*precision);
            *precision = best;
        }
        let mut rest = curve.iter().peekable();
        let mut sum = 0.0;
        for number in 0..RECALLS {
            let recall = if number + 1 == RECALLS { 1.0 } else { number as f64 * 0.01 };
            while rest.peek().is_some_and(|(reached, _)| *reached < recall) {
                rest.next();
            }
            sum += rest.peek().map_or(0.0, |(_, precision)| *precision);
        }
        sum / RECALLS as f64
    }
}

/// For each box found, from the highest score on, and each overlap: whether a right box that no earlier box has taken
/// overlaps with it at least that much. It takes the one that overlaps most.
fn matches(found: &[&FoundBox], right: &[&FoundBox]) -> Vec<[bool; OVERLAPS]> {
    let overlaps: Vec<Vec<f64>> =
        found.iter().map(|one| right.iter().map(|other| overlap(&one.corners, &other.corners)).collect()).collect();
    let mut is_right = vec![[false; OVERLAPS]; found.len()];
    for number in 0..OVERLAPS {
        let least = 0.5 + number as f64 * ((0.95 - 0.5) / 9.0);
        let mut is_taken = vec![false; right.len()];
        for (overlaps, is_right) in overlaps.iter().zip(&mut is_right) {
            let (mut best, mut taken) = (least.min(1.0 - 1e-10), None);
            for (place, &overlap) in overlaps.iter().enumerate() {
                if !is_taken[place] && overlap >= best {
                    (best, taken) = (overlap, Some(place));
                }
            }
            if let Some(place) = taken {
                (is_taken[place], is_right[number]) = (true, true);
            }
        }
    }
    is_right
}

/// The area that two boxes share, divided by the area of their union.
fn overlap(one: &[f32; 4], other: &[f32; 4]) -> f64 {
    let [one, other] = [one, other].map(|corners| corners.map(f64::from));
    let side = |from: usize| one[from + 2].min(other[from + 2]) - one[from].max(other[from]);
    let area = |corners: &[f64; 4]| (corners[2] - corners[0]) * (corners[3] - corners[1]);
    let (width, height) = (side(0), side(1));
    if width <= 0.0 || height <= 0.0 {
        return 0.0;
    }
    let shared = width * height;
    shared / (area(&one) + area(&other) - shared)
}
