//! Flags on top of a suite, and the plan of cases that follows from both.

mod arguments;
mod plan;
pub mod values;

pub use arguments::{EffortArguments, Selection, Trust, parse_with_variables};
pub use plan::{Capabilities, PlannedCase, plan};
