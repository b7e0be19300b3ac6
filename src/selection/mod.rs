//! Flags on top of a suite, and the plan of cases that follows from both.
//!
//! It takes a suite and flags. It gives the cases, each one with its sizes, and those that cannot run with the
//! reason. It asks for devices by a trait, so that it knows no backend.

mod arguments;
mod plan;
pub mod values;
mod variables;

pub use arguments::{EffortArguments, Selection, Trust};
pub use plan::{Capabilities, PlannedCase, plan};
pub use variables::parse_with_variables;
