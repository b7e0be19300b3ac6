//! What a larger batch brings, in words.

use crate::report::numbers::{latency, percent};

/// A time per sample within this fraction of the best one counts as the best.
const LITTLE: f64 = 0.05;

/// The batch size from which on larger ones save little per sample, and the one with the best time per sample. `times` are
/// batch sizes with the milliseconds of a call. Returns `None` for fewer than two of them.
pub fn in_words(times: &[(usize, f64)]) -> Option<String> {
    let mut times = times.to_vec();
    times.sort_by_key(|(batch, _)| *batch);
    times.dedup_by_key(|(batch, _)| *batch);
    let per_sample = |(batch, ms): (usize, f64)| ms / batch as f64;
    let best = times.iter().copied().min_by(|one, other| per_sample(*one).total_cmp(&per_sample(*other)))?;
    let (&first, &last) = times.first().zip(times.last()).filter(|_| times.len() > 1)?;
    let knee = times.iter().copied().find(|it| per_sample(*it) <= per_sample(best) * (1.0 + LITTLE)).unwrap_or(best);
    let best_text = format!("batch {} has the best time per sample, {}", best.0, latency(per_sample(best)));
    let saved = 1.0 - per_sample(knee) / per_sample(first);
    let growth = (last.1 / first.1).powf(1.0 / (last.0 as f64 / first.0 as f64).log2());
    let doubling = format!("a doubled batch takes {growth:.2} times as long on average");
    Some(if knee.0 == first.0 {
        format!("{best_text}; larger batches than {} save less than 5 % per sample; {doubling}", first.0)
    } else if knee.0 == best.0 {
        format!("{best_text}, {} less than batch {}; {doubling}", percent(saved), first.0)
    } else {
        format!("{best_text}; from batch {} on, larger batches save less than 5 % per sample; {doubling}", knee.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_where_larger_batches_save_little() {
        let text = in_words(&[(1, 1.0), (2, 1.2), (4, 2.0), (8, 3.9), (16, 7.7)]).unwrap();
        assert!(text.starts_with("batch 16 has the best time per sample, 481 µs; from batch 4 on"), "{text}");
        let linear = in_words(&[(1, 1.0), (4, 4.0), (16, 16.0)]).unwrap();
        assert!(
            linear.contains("larger batches than 1 save less") && linear.ends_with("2.00 times as long on average"),
            "{linear}"
        );
        let growing = in_words(&[(8, 2.0), (1, 1.0)]).unwrap();
        assert!(
            growing.starts_with("batch 8 has the best time per sample, 250 µs, 75.0 % less than batch 1"),
            "{growing}"
        );
        assert_eq!(in_words(&[(1, 1.0)]), None);
        assert!(in_words(&[(2, 3.0), (8, 12.0)]).unwrap().ends_with("2.00 times as long on average"));
    }
}
