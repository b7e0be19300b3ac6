//! Embeddings: whether the nearest other sample is of the same group, or the nearest of the original's vectors belongs
//! to the same sample; and the cosine with the original's.

use super::figure::{Figure, ratio};
use crate::run_data::{Better, Evaluation, Judged};

/// Samples among which the nearest is looked for, at most, evenly spread: every one is compared with every other.
const MOST: usize = 2000;

/// The figures of each output that holds vectors. With several, the name of the output is at the end of the figure's.
pub fn figures(own: &Evaluation, original: Option<&Evaluation>) -> Vec<Figure> {
    let outputs = outputs_of(own);
    let originals = original.map(outputs_of).unwrap_or_default();
    let is_one = outputs.len() == 1;
    let mut figures = Vec::new();
    for (name, rows) in outputs {
        let named = |figure: &str| if is_one { figure.to_owned() } else { format!("{figure}_{name}") };
        let is_comparable =
            |of: &[Vec<f32>]| of.len() == rows.len() && of.first().map(Vec::len) == rows.first().map(Vec::len);
        let original = originals.iter().find(|(other, _)| *other == name).map(|(_, rows)| *rows);
        let original = original.filter(|rows| is_comparable(rows)).map(Vectors::new);
        let own_vectors = Vectors::new(rows);
        if let Some(labels) = &own.labels {
            let right = own_vectors.nearest_is_of_group(labels);
            figures.extend(Figure::of_proportion(&named(RETRIEVAL), &right));
            let was_right = original.as_ref().map(|original| original.nearest_is_of_group(labels));
            figures.extend(was_right.and_then(|was| Figure::of_difference(&named(RETRIEVAL), &right, &was)));
        }
        let Some(original) = original else { continue };
        if own.labels.is_none() {
            let right = own_vectors.nearest_is_same_of(&original);
            figures.extend(Figure::of_proportion(&named(RETRIEVAL), &right).map(Figure::compared));
        }
        let cosines: Vec<(f64, f64)> =
            own_vectors.0.iter().zip(&original.0).map(|(one, other)| (f64::from(dot(one, other)), 1.0)).collect();
        let mean = |drawn: &[u32]| ratio(&cosines, drawn);
        let figure = Figure::resampled(&named("cosine"), Better::Higher, cosines.len(), &mean);
        figures.extend(figure.map(|figure| figure.in_unit("cosine").compared()));
    }
    figures
}

const RETRIEVAL: &str = "retrieval_at_1";

/// The vectors per sample of each output, by its name.
fn outputs_of(evaluation: &Evaluation) -> Vec<(&str, &[Vec<f32>])> {
    let Some(Judged::Embeddings { first, others }) = &evaluation.judged else { return Vec::new() };
    let others = others.iter().map(|(name, rows)| (name.as_str(), rows.as_slice()));
    std::iter::once((first.as_str(), evaluation.outputs.as_slice())).chain(others).collect()
}

/// Vectors, scaled to length 1. Those that are not finite are 0 throughout.
struct Vectors(Vec<Vec<f32>>);

impl Vectors {
    fn new(rows: &[Vec<f32>]) -> Self {
        let unit = |row: &Vec<f32>| {
            let length = row.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
            let scale = if length.is_finite() && length > 0.0 { length.recip() } else { 0.0 };
            let scaled = |&value: &f32| if scale > 0.0 { (f64::from(value) * scale) as f32 } else { 0.0 };
            row.iter().map(scaled).collect()
        };
        Vectors(rows.iter().map(unit).collect())
    }

    /// The positions of the samples that are compared.
    fn places(&self) -> Vec<usize> {
        (0..self.0.len()).step_by(self.0.len().div_ceil(MOST).max(1)).collect()
    }

    /// For each sample that has others of its group: whether the nearest other sample by cosine is of the group. A
    /// vector without a direction has no nearest one.
    fn nearest_is_of_group(&self, labels: &[i64]) -> Vec<bool> {
        let places = self.places();
        let nearest = |own: usize| {
            let has_direction = self.0[own].iter().any(|value| *value != 0.0);
            let others = places.iter().filter(|&&other| has_direction && other != own);
            others
                .map(|&other| (other, dot(&self.0[own], &self.0[other])))
                .max_by(|one, other| one.1.total_cmp(&other.1))
        };
        let has_others = |own: usize| places.iter().any(|&other| other != own && labels.get(other) == labels.get(own));
        let is_right = |own: usize| nearest(own).is_some_and(|(other, _)| labels.get(other) == labels.get(own));
        places.iter().filter(|&&own| has_others(own)).map(|&own| is_right(own)).collect()
    }

    /// For each sample: whether none of the original's vectors is nearer than the vector of the same sample.
    fn nearest_is_same_of(&self, original: &Vectors) -> Vec<bool> {
        let places = self.places();
        let is_right = |&own: &usize| {
            let cosine = dot(&self.0[own], &original.0[own]);
            cosine > 0.0 && places.iter().all(|&other| dot(&self.0[own], &original.0[other]) <= cosine)
        };
        places.iter().map(is_right).collect()
    }
}

fn dot(one: &[f32], other: &[f32]) -> f32 {
    // Eight sums, which a compiler computes at once.
    let (ones, others) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in ones.0.iter().zip(others.0) {
        for place in 0..8 {
            sums[place] += a[place] * b[place];
        }
    }
    sums.iter().sum::<f32>() + ones.1.iter().zip(others.1).map(|(a, b)| a * b).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_without_a_direction_is_found_nowhere() {
        let vectors = Vectors::new(&[vec![1.0, 0.0], vec![f32::NAN, 1.0], vec![2.0, 0.1]]);
        assert_eq!(vectors.nearest_is_of_group(&[7; 3]), [true, false, true]);
        assert_eq!(vectors.nearest_is_same_of(&vectors), [true, false, true]);
    }
}
