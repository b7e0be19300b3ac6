//! Two programs against each other, in turn, on this machine: which one is faster, and is that sure?
//!
//! A round runs three contestants, the base, the base once more as a null control, and the candidate, in a random order and
//! then in its mirror image, a fresh process each (`order`, `fighter`). Rounds are what the verdicts are made of
//! (`judgement`), by a rank test after a number of rounds that was fixed before (`signed_rank`), or by betting, which may
//! stop early (`betting`). [`between`] fights a duel; `simulation` tries the method on machines that are made up.

mod betting;
mod fighter;
mod gate;
mod journal;
mod judgement;
mod order;
mod outcome;
mod pairing;
mod presentation;
mod process;
mod progress;
mod referee;
mod revision;
mod side;
mod signed_rank;
#[cfg(test)]
mod simulation;

/// Rounds of a duel by default, of six processes each: a minute or two for one small model, more in a build with libtorch,
/// whose processes start slowly.
pub const ROUNDS: usize = 40;

pub use fighter::Side;
pub use gate::{Found, Gate};
pub use journal::Length;
pub use judgement::{FALSE_DISCOVERIES, Judgement};
pub use outcome::{CaseOutcome, Duel};
pub use pairing::{Trouble, Whose};
pub use presentation::{markdown, table};
pub use referee::{Ending, Terms, between};
pub use side::{Ready, resolve_both};
