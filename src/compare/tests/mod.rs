//! Simulations of runs and duels for the estimators and verdicts, and comparisons with failures.

mod duet_simulation;
mod failures;
pub mod simulation;
