//! Tests of load tests by theory and simulations.

mod coverage;
pub mod simulation;
