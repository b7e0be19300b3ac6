//! Makes sense of profiles: modules, the profiler's own cost, and what differs between two.
//!
//! It takes the operators of profiled calls. It gives them by module and kind, and the difference of two profiles.
//! Profiling is done by `backend` and `harness`, and shown by `report`.

mod analysis;
mod difference;
mod kind;
mod modules;
mod positions;

pub use analysis::analyse;
pub use difference::{Difference, DifferenceRow, DifferenceSide, difference};
pub use kind::Kind;
