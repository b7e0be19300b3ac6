//! Makes sense of profiles: modules, the profiler's own cost, and what differs between two.

mod analysis;
mod difference;
mod kind;
mod modules;
mod positions;

pub use analysis::analyse;
pub use difference::{Difference, DifferenceRow, DifferenceSide, difference};
pub use kind::Kind;
