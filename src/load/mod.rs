//! Load tests: when requests arrive, how they were answered, whether a bound is kept, and up to which rate. Nothing
//! here waits, reads files or runs a model: times are numbers, so that theory can check them.
//!
//! It takes the terms of a load test, and times. It gives arrivals, percentiles with their validity, and the next rate
//! to try. The requests are answered elsewhere (`measurement::serving`, `remote`).

mod arrivals;
mod curve;
mod figures;
mod lengths;
mod search;
mod served;
mod service;
mod soak;
#[cfg(test)]
mod tests;
mod tokens;
mod trace;

pub use arrivals::poisson;
pub use curve::{front, knee};
pub use figures::{bounds_in_words, figures, percentile_name};
pub use lengths::{lengths_of, parse_lengths, parse_token_length};
pub use search::{Begin, ENDED_HERE, Limits, SEEDS, found_rate, search};
pub use served::{Bounds, Generator, Served, Trial};
pub use service::{Draws, parse_service};
pub use soak::{LOOKS, Moment, growth, windows, with_changes};
pub use tokens::DEFINITIONS;
pub use trace::{Arrivals, parse_trace};
