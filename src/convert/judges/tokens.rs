//! Tokens: how far a transcript is from the right one, and how a text is read token by token.

use strsim::generic_levenshtein;

use super::figure::{Figure, OfSamples, is_one_value, ratio};
use crate::run_data::{Better, ReadText, Transcript};

/// The error rate of transcripts: the insertions, deletions and substitutions that turn them into the right ones,
/// divided by the length of the right ones. It counts words if there is a vocabulary, and tokens otherwise. Without
/// labels, the original's transcripts count as right.
pub fn of_speech(said: &[Transcript], right: Option<&[Transcript]>, original: Option<&[Transcript]>) -> Vec<Figure> {
    let Some(reference) = right.or(original) else { return Vec::new() };
    let all = || said.iter().chain(reference).chain(original.unwrap_or_default());
    let has_words = all().all(|transcript| transcript.words.is_some());
    let name = if has_words { "word_error_rate" } else { "token_error_rate" };
    let errors = |said: &[Transcript]| -> Vec<(f64, f64)> {
        said.iter().zip(reference).map(|(one, right)| errors_and_length(one, right, has_words)).collect()
    };
    let own = errors(said);
    let before = original.filter(|_| right.is_some()).map(errors);
    let rates = Figure::with_change(name, Better::Lower, own.len(), (own.as_slice(), before.as_deref()), ratio);
    rates.into_iter().map(|rate| if right.is_some() { rate } else { rate.compared() }).collect()
}

fn errors_and_length(said: &Transcript, right: &Transcript, has_words: bool) -> (f64, f64) {
    // The types are written out because Rust's inference does not end here on macOS.
    let words = generic_levenshtein::<Vec<String>, Vec<String>, _, _>;
    let tokens = generic_levenshtein::<Vec<i64>, Vec<i64>, _, _>;
    match (&said.words, &right.words) {
        (Some(said), Some(right)) if has_words => (words(said, right) as f64, right.len() as f64),
        _ => (tokens(&said.tokens, &right.tokens) as f64, right.tokens.len() as f64),
    }
}

/// How a text is read: the perplexity of its tokens, which is e to the mean of their negative log probabilities; how
/// much it is above the original's, as a fraction of that; and the part of the positions at which the likeliest token
/// is the original's. A model need not find seeded tokens likely, so it is unknown which perplexity is better for them.
pub fn of_text(read: &[ReadText], is_recorded: bool, original: Option<&[ReadText]>) -> Vec<Figure> {
    let losses = |read: &[ReadText]| -> Vec<(f64, f64)> {
        read.iter().map(|text| (text.loss, text.likeliest.len() as f64)).collect()
    };
    let own = losses(read);
    let mean = |drawn: &[u32]| ratio(&own, drawn);
    let perplexity =
        Figure::resampled_without_limit("perplexity", Better::Lower, own.len(), &|drawn| mean(drawn).map(f64::exp));
    let change = original.map(losses).and_then(|before| {
        // The original's perplexity is 1 in its own unit.
        let relative = |drawn: &[u32]| Some((mean(drawn)? - ratio(&before, drawn)?).exp());
        Figure::resampled_change("perplexity", Better::Lower, own.len(), &relative, &|_| Some(1.0))
    });
    let directed = |figure: Figure| Figure { better: figure.better.filter(|_| is_recorded), ..figure };
    let perplexity = perplexity.map(|figure| figure.in_unit(""));
    let mut figures: Vec<Figure> = perplexity.into_iter().chain(change).map(directed).collect();
    if let Some(original) = original {
        let agreement: Vec<(f64, f64)> = read.iter().zip(original).map(|(one, other)| agreeing(one, other)).collect();
        let agree = |drawn: &[u32]| ratio(&agreement, drawn);
        let agree = Figure::resampled("token_agreement", Better::Higher, agreement.len(), &agree);
        figures.extend(agree.map(Figure::compared));
        figures.extend(divergences(read, original));
    }
    figures
}

/// The Kullback-Leibler divergence of the next token's distribution from the original's, in nats (Kullback and Leibler
/// 1951): the mean over positions of texts, the median, and the 99th percentile.
fn divergences(read: &[ReadText], original: &[ReadText]) -> Vec<Figure> {
    let of_text = |(own, original): (&ReadText, &ReadText)| -> Vec<f64> {
        let places = own.log_probabilities.iter().zip(&original.log_probabilities);
        let same = places.filter(|(own, original)| own.0 == original.0 && own.1.len() == original.1.len());
        same.map(|((_, own), (_, original))| divergence(original, own)).collect()
    };
    let by_text: Vec<Vec<f64>> = read.iter().zip(original).map(of_text).collect();
    let count = by_text.iter().map(Vec::len).sum::<usize>();
    if count == 0 {
        return Vec::new();
    }
    let sums: Vec<(f64, f64)> = by_text.iter().map(|text| (text.iter().sum(), text.len() as f64)).collect();
    let mean = |drawn: &[u32]| ratio(&sums, drawn);
    // All positions in ascending order of divergence, with their texts.
    let mut ordered: Vec<(f64, usize)> =
        by_text.iter().enumerate().flat_map(|(text, values)| values.iter().map(move |&value| (value, text))).collect();
    ordered.sort_by(|one, other| one.0.total_cmp(&other.0));
    let quantile = |part: f64, drawn: &[u32]| {
        let all: f64 = ordered.iter().map(|(_, text)| f64::from(drawn[*text])).sum();
        let mut passed = 0.0;
        let reached = ordered.iter().find(|(_, text)| {
            passed += f64::from(drawn[*text]);
            passed >= part * all
        });
        reached.map(|(value, _)| *value)
    };
    let (median, most) = (|drawn: &[u32]| quantile(0.5, drawn), |drawn: &[u32]| quantile(0.99, drawn));
    let figures: [(&str, OfSamples<'_>); 3] =
        [("kl_divergence", &mean), ("kl_divergence_median", &median), ("kl_divergence_p99", &most)];
    let figure = |(name, of): (&str, OfSamples<'_>)| {
        let figure =
            Figure::resampled_without_limit(name, Better::Lower, by_text.len(), of)?.in_unit("nats").compared();
        // Copies of one text do not show how much other texts lose.
        let interval = figure.interval.filter(|own| figure.value == 0.0 || !is_one_value(*own));
        Some(Figure { interval, ..figure })
    };
    figures.into_iter().filter_map(figure).collect()
}

/// The divergence of one distribution from an original, both as logarithms of probabilities. Rounding cannot bring it
/// below 0. It is infinite if it is not a number, because logits were not.
fn divergence(original: &[f32], own: &[f32]) -> f64 {
    let part = |(&original, &own): (&f32, &f32)| {
        let (original, own) = (f64::from(original), f64::from(own));
        if original == f64::NEG_INFINITY { 0.0 } else { original.exp() * (original - own) }
    };
    let sum: f64 = original.iter().zip(own).map(part).sum();
    if sum.is_nan() { f64::INFINITY } else { sum.max(0.0) }
}

fn agreeing(one: &ReadText, other: &ReadText) -> (f64, f64) {
    let is_same = |(one, other): &(&i64, &i64)| one == other;
    let same = one.likeliest.iter().zip(&other.likeliest).filter(is_same).count();
    (same as f64, one.likeliest.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(distributions: &[[f64; 2]]) -> ReadText {
        let logarithms = |of: &[f64; 2]| of.iter().map(|it| it.ln() as f32).collect();
        ReadText {
            likeliest: vec![0; distributions.len()],
            loss: 0.0,
            log_probabilities: (0..).zip(distributions.iter().map(logarithms)).collect(),
        }
    }

    #[test]
    fn the_divergence_is_that_of_its_formula_and_0_of_the_same() {
        let original = vec![text(&[[0.5, 0.5], [0.25, 0.75]]); 8];
        let own = vec![text(&[[0.25, 0.75], [0.25, 0.75]]); 8];
        let of = |read: &[ReadText], name: &str| {
            let figures = of_text(read, true, Some(&original));
            figures.into_iter().find(|figure| figure.name == name).unwrap()
        };
        let first = 0.5 * (0.5_f64 / 0.25).ln() + 0.5 * (0.5_f64 / 0.75).ln();
        let mean = of(&own, "kl_divergence");
        assert!((mean.value - first / 2.0).abs() < 1e-6 && mean.is_compared && mean.unit == "nats", "{mean:?}");
        assert!((of(&own, "kl_divergence_p99").value - first).abs() < 1e-6);
        assert_eq!(of(&own, "kl_divergence_median").value, 0.0);
        let same = of(&original, "kl_divergence");
        assert_eq!((same.value, same.interval), (0.0, Some((0.0, 0.0))), "its interval is not that of a fraction");
        let losses = |loss: f64| own.iter().map(|text| ReadText { loss, ..text.clone() }).collect::<Vec<_>>();
        let change = of_text(&losses(0.3), true, Some(&losses(0.2999))).into_iter();
        let change = change.filter(|figure| figure.name == "perplexity_change");
        let widths: Vec<f64> = change.filter_map(|it| it.interval.map(|(lower, upper)| upper - lower)).collect();
        assert!(mean.interval.is_none() && widths.len() == 1 && widths[0] > 0.1, "copies show no scatter: {widths:?}");
    }

    #[test]
    fn what_is_no_distribution_has_no_divergence_that_could_be_within_a_limit() {
        let original = vec![text(&[[0.5, 0.5]]); 8];
        let mut broken = original.clone();
        broken[3].log_probabilities[0].1 = vec![f32::NAN; 2];
        let names: Vec<String> = divergences(&broken, &original).into_iter().map(|figure| figure.name).collect();
        assert_eq!(names, ["kl_divergence_median"]);
    }
}
