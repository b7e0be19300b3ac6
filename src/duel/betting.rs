//! What a growing number of paired differences says, however often one looks: a test by betting.
//!
//! A gambler bets on the sign of every difference, a part of the wealth that depends on the earlier ones and on how large
//! this one is among them. When nothing has changed the signs are fair coins, whatever the sizes, so the wealth is a
//! nonnegative martingale that begins at 1, and by Ville's inequality (Ville 1939, "Étude critique de la notion de
//! collectif") it ever reaches `1/α` with probability `α` at the most. To stop when it does is no peeking. The sizes
//! come in by sequential ranks (Reynolds 1975, "A sequential signed-rank test for symmetry"), which no outlier can
//! dominate; the wealth is shared among several stakes (Waudby-Smith & Ramdas 2024, "Estimating means of bounded random
//! variables by betting"). Shifts at which the wealth stays below `1/α` make a confidence sequence: all intervals
//! together hold the true shift with probability `1 - α`. Wealth over several cases is an e-value each, and Benjamini &
//! Hochberg's procedure on its reciprocals controls the false discoveries under any dependence (Wang & Ramdas 2022,
//! "False discovery rate control with e-values").

/// Parts of the wealth that are put on a difference of full size.
const STAKES: [f64; 6] = [0.15, 0.3, 0.45, 0.6, 0.75, 0.9];
const BISECTIONS: usize = 24;

/// The wealth of who bets against "the shift is `shift`".
pub fn evidence(differences: &[f64], shift: f64) -> f64 {
    let stakes = STAKES.iter().flat_map(|stake| [*stake, -stake]);
    let mut wealth: Vec<(f64, f64)> = stakes.map(|stake| (stake, 1.0)).collect();
    let mut sizes: Vec<f64> = Vec::with_capacity(differences.len());
    for difference in differences.iter().map(|difference| difference - shift) {
        let size = difference.abs();
        let place = sizes.partition_point(|earlier| *earlier < size);
        sizes.insert(place, size);
        // The larger half counts in full.
        let weight = (2.0 * (place + 1) as f64 / sizes.len() as f64).min(1.0);
        let outcome = if difference == 0.0 { 0.0 } else { difference.signum() * weight };
        for (stake, wealth) in &mut wealth {
            *wealth *= 1.0 + *stake * outcome;
        }
    }
    wealth.iter().map(|(_, wealth)| wealth).sum::<f64>() / wealth.len() as f64
}

/// A p value that holds at every moment, also one that was chosen for it.
pub fn p_value(differences: &[f64]) -> f64 {
    (1.0 / evidence(differences, 0.0)).min(1.0)
}

/// The interval of the confidence sequence; `None` while there is too little to have one.
///
/// The evidence grows with the distance from `middle`, but for small waves; the ends are where it first suffices.
pub fn interval(differences: &[f64], middle: f64, confidence: f64) -> Option<(f64, f64)> {
    let enough = 1.0 / (1.0 - confidence);
    let is_rejected = |shift: f64| evidence(differences, shift) >= enough;
    let reach = differences.iter().map(|difference| (difference - middle).abs()).fold(0.0, f64::max);
    let end = |direction: f64| {
        let (mut inner, mut outer) = (middle, middle + direction * (2.0 * reach + f64::EPSILON));
        if !is_rejected(outer) {
            return None;
        }
        for _ in 0..BISECTIONS {
            let between = (inner + outer) / 2.0;
            if is_rejected(between) { outer = between } else { inner = between }
        }
        Some(outer)
    };
    Some((end(-1.0)?, end(1.0)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duel::signed_rank;
    use crate::fixture::seeded::{Fill, values};

    fn differences(seed: u64, count: usize, shift: f64) -> Vec<f64> {
        values(seed, "betting", Fill::Normal(0.04), 0, count).map(|z| f64::from(z) + shift).collect()
    }

    #[test]
    fn evidence_is_fair_in_the_mean() {
        // Over all signs of five differences the mean is exactly 1.
        let sizes = [0.3, 1.0, 0.2, 2.0, 0.5];
        let signed = |signs: u32| {
            sizes.iter().enumerate().map(move |(bit, size)| if signs >> bit & 1 == 1 { *size } else { -size })
        };
        let mean = (0..32).map(|signs| evidence(&signed(signs).collect::<Vec<_>>(), 0.0)).sum::<f64>() / 32.0;
        assert!((mean - 1.0).abs() < 1e-12, "{mean}");
    }

    #[test]
    fn looking_after_every_difference_raises_no_more_alarms_than_promised() {
        const DUELS: usize = 400;
        let is_alarm = |seed: u64| {
            let all = differences(seed, 60, 0.0);
            (1..=60).any(|count| p_value(&all[..count]) <= 0.05)
        };
        let alarms = (0..DUELS as u64).filter(|seed| is_alarm(*seed)).count();
        assert!(alarms <= 20, "{alarms} of {DUELS}");
    }

    #[test]
    fn a_shift_is_found_and_lies_in_every_interval() {
        const DUELS: u64 = 50;
        let (mut found, mut missed) = (0, 0);
        for seed in 0..DUELS {
            let all = differences(seed, 40, 0.05);
            found += u32::from(p_value(&all) <= 0.01);
            let is_missed = (10..=40).step_by(6).any(|count| {
                let some = &all[..count];
                let interval = interval(some, signed_rank::estimate(some).unwrap(), 0.95);
                interval.is_some_and(|(lower, upper)| lower > 0.05 || upper < 0.05)
            });
            missed += u32::from(is_missed);
        }
        assert!(found >= 46 && missed <= 2, "found {found}, missed {missed}");
    }

    #[test]
    fn too_little_has_no_interval() {
        assert_eq!(interval(&[0.1; 5], 0.1, 0.99), None);
    }
}
