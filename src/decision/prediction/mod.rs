//! Latency, throughput and memory of cases that were not measured, each with an interval.
//!
//! ```text
//! records ─▶ example (terms of each row) ─▶ least_squares ─▶ fitted (a sum of costs) ─▶ predictor ─▶ output
//!                                                              └▶ misses of what was left out ─▶ evaluation
//! ```
//!
//! The predicted time of a call is a weighted sum of the number of nodes and of the times that convolutions, matrix
//! products and bytes would take at the machine's peaks. The weights are fitted for each case to the rows of its
//! backend, device and dtype on the machine. Similar rows count most, and chains of single operators are further
//! examples. If the same model was measured at other batch sizes, the sum is multiplied by the ratio of measured to
//! predicted times there.

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
