//! External workers: programs in any language that load and run models on request.
//!
//! The process of a case starts a worker and exchanges frames with it over the worker's standard input and output. The
//! worker times calls with its own clock, which is compared with ours. The guide's chapter `workers` describes the
//! protocol.

mod clock;
pub(super) mod conformance;
mod frame;
#[cfg(fuzzing)]
pub mod fuzzed;
#[cfg(any(feature = "jax", feature = "ort-web", feature = "torch"))]
mod guard;
#[cfg(feature = "jax")]
pub(super) mod jax;
mod messages;
#[cfg(feature = "ort-web")]
pub(super) mod ort_web;
#[cfg(feature = "ort-web")]
mod page_server;
#[cfg_attr(not(feature = "ort-web"), allow(dead_code, reason = "only a browser needs other wires"))]
mod process;
pub(super) mod program;
#[cfg(any(feature = "jax", feature = "torch"))]
mod python;
mod session;
#[cfg(feature = "torch")]
pub(super) mod torch;
