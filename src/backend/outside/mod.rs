//! Runtimes outside of this process: programs in any language that load and run models when they are asked to.
//!
//! A case's process starts the program, and both exchange frames over its standard input and output. The program times its calls
//! by its own clock, which is compared with ours. The chapter `workers` of the guide is the protocol's description.

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
#[cfg_attr(not(feature = "ort-web"), allow(dead_code, reason = "only a browser is talked to otherwise"))]
mod process;
pub(super) mod program;
#[cfg(any(feature = "jax", feature = "torch"))]
mod python;
mod session;
#[cfg(feature = "torch")]
pub(super) mod torch;
