//! Which of many changes are found, so that few of those found are false.

/// Which of the p values are discoveries, so that the expected fraction of false ones among them is at most `rate`.
///
/// Benjamini & Hochberg 1995, "Controlling the false discovery rate": the k smallest p values, for the largest k with
/// `p(k) ≤ rate · k / n`.
pub fn discoveries(p_values: &[f64], rate: f64) -> Vec<bool> {
    let mut sorted = p_values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let passes = |&(index, p): &(usize, &f64)| *p <= rate * (index + 1) as f64 / n;
    let limit = sorted.iter().enumerate().filter(passes).map(|(_, p)| *p).next_back();
    p_values.iter().map(|p| limit.is_some_and(|limit| *p <= limit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discoveries_are_those_of_the_published_procedure() {
        // The example of Benjamini & Hochberg 1995, section 3.2: four of fifteen at 0.05.
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
            0.7590, 1.0,
        ];
        assert_eq!(discoveries(&p, 0.05).iter().filter(|found| **found).count(), 4);
        assert_eq!(discoveries(&[0.04, 0.001, 0.9], 0.05), [false, true, false]);
        assert!(discoveries(&[], 0.05).is_empty());
    }
}
