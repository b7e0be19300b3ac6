//! Random numbers with fixed seeds.

/// The finaliser of SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators").
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The next uniform number of this state, by SplitMix64: above 0, and 1 at most.
pub fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    (mix(*state) >> 11) as f64 * 2.0_f64.powi(-53) + 2.0_f64.powi(-54)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_split_mix() {
        let numbers = [1_u64, 2].map(|turn| mix(turn.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        assert_eq!(numbers, [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
    }
}
