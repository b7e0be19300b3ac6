//! Flags on top of a suite, and the plan of cases that follows from both.

mod arguments;
mod plan;

pub use arguments::{EffortArguments, Selection};
pub use plan::{Capabilities, PlannedCase, plan};
