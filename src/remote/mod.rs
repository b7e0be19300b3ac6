//! Load on servers that already run: the trials of a load test whose answers come over HTTP.
//!
//! It takes the address of a server and the terms of a load test. It gives the rows of the test. When requests arrive
//! and whether a test is valid is decided in `load`, as for local sessions.
//!
//! ```text
//! address ─▶ target ─▶ connection ─▶ protocol (what a request is, and a right answer)
//!                                        │
//!            load::Terms ─▶ measurement::serving::Trials ─▶ session ─▶ notes ─▶ rows of the load test
//! ```
//!
//! A connection is a session of a trial: requests wait in the trial's queue for a free one, from the time at which they were to arrive.

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
