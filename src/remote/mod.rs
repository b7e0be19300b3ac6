//! Load tests of servers that already run. Requests are sent over HTTP.
//!
//! It takes the address of a server and the terms of a load test. It gives the rows of the test. As for local sessions,
//! `load` decides when requests arrive and whether a test is valid.
//!
//! ```text
//! address ─▶ target ─▶ connection ─▶ protocol (what a request is, and a right answer)
//!                                        │
//!              LoadTerms ─▶ measurement::serving::Trials ─▶ session ─▶ notes ─▶ rows of the load test
//! ```
//!
//! A connection is a session of a trial: requests wait in the trial's queue for a free connection, from their scheduled
//! arrival on.

mod connection;
mod fault;
#[cfg(fuzzing)]
pub mod fuzzed;
mod grpc_status;
mod limits;
mod notes;
mod protocol;
mod session;
mod target;
mod trials;

pub use fault::{Fault, Kind};
pub use limits::Limits;
pub use protocol::{ProtocolName, USUAL_TOKENS, Wishes, parse_field};
pub use target::{Address, Headers, headers_of_file, token};
pub use trials::{Reference, Server, load};
