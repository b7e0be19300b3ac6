//! Makes sense of profiles: modules, the profiler's own cost, and what differs between two.

mod analysis;
mod modules;

pub use analysis::analyse;
