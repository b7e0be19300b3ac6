//! Flags on top of a suite, and the plan of cases that follows from both.
//!
//! It takes a suite and flags. It gives the cases with their sizes; a case that cannot run has the reason. It asks
//! about devices and models through a trait, so it does not depend on backends.

mod arguments;
mod plan;
pub mod values;
mod variables;

pub use arguments::{EffortArguments, Selection, Trust};
pub use plan::{Capabilities, PlannedCase, plan};
pub use variables::parse_with_variables;
