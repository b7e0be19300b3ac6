//! Latency, throughput and memory of cases that were not measured, each with an interval.
//!
//! ```text
//! records ─▶ example (terms of each row) ─▶ least_squares ─▶ fitted (a sum of costs) ─▶ predictor ─▶ output
//!                                                              └▶ misses of what was left out ─▶ evaluation
//! ```
//!
//! A call takes so much for each node, and so much for what its convolutions, its matrix products and its bytes would take at the
//! peaks of the machine. The factors are fitted for each case, to the rows of its backend, device and dtype on the machine, of which
//! those that are like it count most; chains of single operators are further examples. Where the same model was measured at other batch
//! sizes, the sum is multiplied by what these took, over what it says of them.

mod anchor;
mod evaluation;
mod example;
mod families;
mod fitted;
mod least_squares;
mod output;
mod predictor;
mod scaling;
#[cfg(test)]
mod tests;

pub use anchor::Anchor;
pub use evaluation::{Errors, Evaluation, Loss, evaluate};
pub use example::{Example, Lessons, Runtime, Site, Subject};
pub use output::{Asked, evaluation_text, predictions_text, schema};
pub use predictor::{Basis, Estimate, Prediction, Predictor, Refusal, command};
pub use scaling::in_words;
