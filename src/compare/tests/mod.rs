//! Simulations of what the estimators and verdicts make of runs and duels.

mod duet_simulation;
mod failures;
pub mod simulation;
