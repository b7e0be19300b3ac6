//! Who runs when: in every round a random order of the three contestants, and then its mirror image.
//!
//! The mirror lets a drift within the round hit all of them alike (ABBA); the draw makes the signs of the differences
//! fair coins, whatever the machine does. The order of a round depends on the seed and the round's number only, so that
//! a duel that goes on after an interruption goes on as it would have.

use serde::{Deserialize, Serialize};

use crate::fixture::seeded::Stream;

/// Who runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contestant {
    Base,
    /// The base once more, under another name.
    Null,
    Candidate,
}

impl Contestant {
    pub const ALL: [Contestant; 3] = [Contestant::Base, Contestant::Null, Contestant::Candidate];

    /// Its folder; names of the same length, since a longer path moves what a process has on its stack.
    pub fn letter(self) -> char {
        match self {
            Contestant::Base => 'a',
            Contestant::Null => 'n',
            Contestant::Candidate => 'b',
        }
    }
}

/// The six processes of a round.
pub fn order(seed: u64, round: usize) -> [Contestant; 6] {
    let [a, b, c] = Contestant::ALL;
    let orders = [[a, b, c], [a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]];
    let [first, second, third] = orders[(Stream::new(seed, "order").at(round as u64) % 6) as usize];
    [first, second, third, third, second, first]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_comes_about_as_often_and_is_mirrored() {
        let mut firsts = [0; 3];
        for round in 0..3000 {
            let order = order(7, round);
            assert!((0..3).all(|place| order[place] == order[5 - place]));
            firsts[order[0] as usize] += 1;
        }
        assert!(firsts.iter().all(|count| (900..1100).contains(count)), "{firsts:?}");
        assert_eq!(order(7, 12), order(7, 12));
        assert!((0..20).any(|round| order(1, round) != order(2, round)));
    }
}
