//! Tokens: how far a transcript is from the right one, and how a text is read token by token.

use strsim::generic_levenshtein;

use super::figure::{Figure, OfSamples, ratio};
use crate::run_data::{Better, ReadText, Transcript};

/// The error rate of transcripts: the insertions, deletions and substitutions that make the right ones of them, over the length
/// of those. It counts words where there is a vocabulary, and tokens otherwise. If there are no right ones, those of the original
/// are.
pub fn of_speech(said: &[Transcript], right: Option<&[Transcript]>, original: Option<&[Transcript]>) -> Vec<Figure> {
    let Some(reference) = right.or(original) else { return Vec::new() };
    let all = || said.iter().chain(reference).chain(original.unwrap_or_default());
    let has_words = all().all(|transcript| transcript.words.is_some());
    let name = if has_words { "word_error_rate" } else { "token_error_rate" };
    let errors = |said: &[Transcript]| -> Vec<(f64, f64)> {
        said.iter().zip(reference).map(|(one, right)| errors_and_length(one, right, has_words)).collect()
    };
    let own = errors(said);
    let rate = |drawn: &[u32]| ratio(&own, drawn);
    if right.is_none() {
        return Figure::resampled(name, Better::Lower, own.len(), &rate).map(Figure::compared).into_iter().collect();
    }
    let before = original.map(errors);
    let before = before.as_ref().map(|before| move |drawn: &[u32]| ratio(before, drawn));
    let before = before.as_ref().map(|it| it as OfSamples<'_>);
    Figure::with_change(name, Better::Lower, own.len(), &rate, before).collect()
}

fn errors_and_length(said: &Transcript, right: &Transcript, has_words: bool) -> (f64, f64) {
    // The types are said because Rust's inference does not end here on macOS.
    let words = generic_levenshtein::<Vec<String>, Vec<String>, _, _>;
    let tokens = generic_levenshtein::<Vec<i64>, Vec<i64>, _, _>;
    match (&said.words, &right.words) {
        (Some(said), Some(right)) if has_words => (words(said, right) as f64, right.len() as f64),
        _ => (tokens(&said.tokens, &right.tokens) as f64, right.tokens.len() as f64),
    }
}

/// How a text is read: the perplexity of its tokens, which is e to the mean of their negative log probabilities; how much
/// that is more than the original's, as a fraction of it; and the part of the places at which the likeliest token is the
/// original's. A model need not hold seeded tokens to be likely: of those nobody knows which perplexity is better.
pub fn of_text(read: &[ReadText], is_recorded: bool, original: Option<&[ReadText]>) -> Vec<Figure> {
    let losses = |read: &[ReadText]| -> Vec<(f64, f64)> {
        read.iter().map(|text| (text.loss, text.likeliest.len() as f64)).collect()
    };
    let own = losses(read);
    let mean = |drawn: &[u32]| ratio(&own, drawn);
    let perplexity = Figure::resampled("perplexity", Better::Lower, own.len(), &|drawn| mean(drawn).map(f64::exp));
    let mut figures: Vec<Figure> = perplexity.map(|figure| figure.in_unit("")).into_iter().collect();
    let Some(original) = original else { return directed(figures, is_recorded) };
    let before = losses(original);
    // The original's perplexity is 1 in its own unit.
    let relative = |drawn: &[u32]| Some((mean(drawn)? - ratio(&before, drawn)?).exp());
    let change = Figure::resampled_change("perplexity", Better::Lower, own.len(), &relative, &|_| Some(1.0));
    let agreement: Vec<(f64, f64)> = read.iter().zip(original).map(|(one, other)| agreeing(one, other)).collect();
    let agree = |drawn: &[u32]| ratio(&agreement, drawn);
    let agreement = Figure::resampled("token_agreement", Better::Higher, agreement.len(), &agree);
    figures.extend(change);
    let mut figures = directed(figures, is_recorded);
    figures.extend(agreement.map(Figure::compared));
    figures
}

fn directed(figures: Vec<Figure>, is_recorded: bool) -> Vec<Figure> {
    figures.into_iter().map(|figure| if is_recorded { figure } else { figure.undirected() }).collect()
}

fn agreeing(one: &ReadText, other: &ReadText) -> (f64, f64) {
    let is_same = |(one, other): &(&i64, &i64)| one == other;
    let same = one.likeliest.iter().zip(&other.likeliest).filter(is_same).count();
    (same as f64, one.likeliest.len() as f64)
}
