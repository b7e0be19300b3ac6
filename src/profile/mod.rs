//! What profiles say, whichever runtime they come from.

mod difference;
mod kind;

pub use difference::{Difference, DifferenceRow, DifferenceSide, difference};
pub use kind::Kind;
