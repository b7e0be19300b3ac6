//! What theory and simulations say of load tests.

mod coverage;
pub mod simulation;
