//! Rankings: how often of two items the right one has the higher score.

use super::figure::Figure;
use crate::run_data::{Better, Evaluation};

/// The area under the receiver operating characteristic (`auc`) of the scores, with labels that say what was chosen.
/// Without labels, the fraction of the pairs of samples with different original scores that are ordered in the same way
/// (`concordance`; Harrell's C). Pairs with equal scores count half.
pub fn figures(own: &Evaluation, original: Option<&Evaluation>) -> Vec<Figure> {
    let scores = |evaluation: &Evaluation| -> Vec<f64> {
        evaluation.outputs.iter().map(|row| row.last().map_or(f64::NAN, |&score| score.into())).collect()
    };
    let (own_scores, before) = (scores(own), original.map(scores));
    let samples = own_scores.len();
    let Some(labels) = &own.labels else {
        let Some(before) = before else { return Vec::new() };
        let ranking = Ranking::new(&own_scores, &before);
        let figure = Figure::resampled("concordance", Better::Higher, samples, &|drawn| ranking.concordance(drawn));
        return figure.map(Figure::compared).into_iter().collect();
    };
    let labels: Vec<f64> = labels.iter().map(|&label| label as f64).collect();
    let ranking = Ranking::new(&own_scores, &labels);
    let before = before.map(|before| Ranking::new(&before, &labels));
    Figure::with_change("auc", Better::Higher, samples, (&ranking, before.as_ref()), Ranking::concordance)
}

/// Samples with the ranks of their scores and of their right values; equal numbers have the same rank.
struct Ranking {
    /// In ascending order: the rank of the right value, the rank of the score, and the position of the sample.
    samples: Vec<(usize, Option<usize>, usize)>,
    /// The number of different scores.
    scores: usize,
}

impl Ranking {
    fn new(scores: &[f64], right: &[f64]) -> Self {
        let (score_ranks, scores) = ranks(scores);
        let (right_ranks, _) = ranks(right);
        // A sample whose right rank is not known is in no pair.
        let known = right_ranks.into_iter().zip(score_ranks).enumerate();
        let mut samples: Vec<_> = known.filter_map(|(place, (right, score))| Some((right?, score, place))).collect();
        samples.sort_unstable();
        Ranking { samples, scores }
    }

    /// Of all pairs of samples with different right ranks, the fraction in which the higher right rank has the higher
    /// score, with each sample as often as it was drawn. A score that is not a number is wrong in every pair. Returns
    /// `None` if there is no pair.
    fn concordance(&self, drawn: &[u32]) -> Option<f64> {
        let mut below = Counts(vec![0; self.scores + 1]);
        let (mut concordant, mut pairs, mut lower) = (0.0, 0.0, 0_u64);
        for group in self.samples.chunk_by(|one, other| one.0 == other.0) {
            for &(_, score, place) in group {
                let count = f64::from(drawn[place]);
                pairs += count * lower as f64;
                if let Some(score) = score {
                    let (less, up_to) = (below.before(score), below.before(score + 1));
                    concordant += count * (less as f64 + 0.5 * (up_to - less) as f64);
                }
            }
            for &(_, score, place) in group {
                lower += u64::from(drawn[place]);
                if let Some(score) = score {
                    below.add(score, drawn[place].into());
                }
            }
        }
        (pairs > 0.0).then(|| concordant / pairs)
    }
}

/// The ranks of numbers, equal for equal numbers and `None` for what is not a number; and the number of ranks.
fn ranks(numbers: &[f64]) -> (Vec<Option<usize>>, usize) {
    // `+ 0.0` makes both zeros equal.
    let mut sorted: Vec<f64> = numbers.iter().map(|number| number + 0.0).filter(|number| !number.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    let rank = |number: &f64| (!number.is_nan()).then(|| sorted.partition_point(|it| it < number));
    (numbers.iter().map(rank).collect(), sorted.len())
}

/// Counts by position, whose sums are found in logarithmic time (Fenwick 1994).
struct Counts(Vec<u64>);

impl Counts {
    fn add(&mut self, place: usize, count: u64) {
        let mut node = place + 1;
        while node < self.0.len() {
            self.0[node] += count;
            node += node & node.wrapping_neg();
        }
    }

    /// The sum of the counts before a position.
    fn before(&self, place: usize) -> u64 {
        let (mut node, mut sum) = (place, 0);
        while node > 0 {
            sum += self.0[node];
            node &= node - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concordance(scores: &[f64], right: &[f64]) -> Option<f64> {
        Ranking::new(scores, right).concordance(&vec![1; scores.len()])
    }

    #[test]
    fn equal_scores_are_half_right_and_what_is_no_number_is_wrong() {
        let labels = [0.0, 0.0, 1.0, 1.0];
        assert_eq!(concordance(&[0.1, 0.4, 0.35, 0.8], &labels), Some(0.75));
        assert_eq!(concordance(&[0.5; 4], &labels), Some(0.5));
        assert_eq!(concordance(&[0.0, -0.0, 0.0, 1.0], &labels), Some(0.75));
        assert_eq!(concordance(&[0.1, 0.2, f64::NAN, 0.8], &labels), Some(0.5));
        assert_eq!(concordance(&[0.1, 0.2, 0.3, 0.8], &[1.0; 4]), None, "nothing was not chosen");
        // A sample that is drawn twice makes each of its pairs twice.
        let drawn = Ranking::new(&[0.1, 0.4, 0.35, 0.8], &labels).concordance(&[0, 2, 1, 1]);
        assert_eq!(drawn, concordance(&[0.4, 0.4, 0.35, 0.8], &labels));
    }
}
