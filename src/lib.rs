//! Machine-learning inference benchmarks with Criterion.
//!
//! As a program, `inferbench` measures model files and packaged models; the [`guide`] explains how. As a development
//! dependency, it measures the engines, models and code of your own crate: begin with [`Harness`].
//!
//! ```toml
//! [dev-dependencies]
//! inferbench = "0.1"
//!
//! [lib]
//! bench = false      # as for every bench of Criterion
//!
//! [[bench]]
//! name = "inference"
//! harness = false
//! ```
//!
//! - [`Harness`]: what `cargo bench` measures.
//! - [`Backend`] and [`Session`]: an engine of your own. Their inputs and outputs: [`LoadRequest`], [`Tensor`],
//!   [`Model`], [`CaseFailure`].
//! - [`SuiteModel`]: a model that needs settings besides its name or file.
//! - [`Record`] and [`History`]: the results.
//!
//! # For contributors
//!
//! `RUSTDOCFLAGS='--cfg rooms' cargo doc` shows the rooms of the source. A run flows from left to right; a room
//! imports nothing from its right:
//!
//! ```text
//! definition ─▶ onnx ─▶ catalogue ─▶ selection ─┐
//!                └─▶ graph_dtype ─▶ fixture ─▶ backend ─▶ measurement ─▶ harness ─▶ run_data and Criterion's files
//! ```
//!
//! `run_data` lies below the rooms that make runs and those that read them; the latter never import the harness:
//!
//! ```text
//! run_data and Criterion's files ─▶ convert ─▶ history ─▶ compare ─▶ report ─▶ decision ─▶ cli
//! ```
//!
//! `load` generates the arrivals of requests, and decides about the trials that `measurement` and `harness` run.
//!
//! `service` answers requests over HTTP: each measurement is the command `run` in a process of its own.
//!
//! `remote` runs the same trials against running servers.
//!
//! `fleet` starts the parts of a suite on many machines, by Slurm or ssh, and merges what they have measured.
//!
//! `duel` measures executables alternately, through `harness`, and decides through `compare`. `selftest` measures what
//! the harness itself costs and how much processes differ on this machine.

#![cfg_attr(not(rooms), deny(missing_docs))]
#![cfg_attr(not(has_tests), allow(dead_code, unused_imports))]

#[macro_use]
mod printing;

pub mod guide;

// The executables, benches and tests of this package use the rooms, which are not part of the library's interface. The
// published package, which has no tests, keeps them private, and the documentation leaves them out unless it is made
// with `--cfg rooms`.
#[cfg_attr(not(rooms), doc(hidden))]
#[path = ""]
mod rooms {
    pub mod backend;
    pub mod catalogue;
    pub mod cli;
    pub mod compare;
    pub mod convert;
    pub mod criterion_dir;
    pub mod decision;
    pub mod definition;
    pub mod duel;
    pub mod exit_codes;
    pub mod fixture;
    pub mod fleet;
    pub mod gguf;
    pub mod graph_dtype;
    pub mod harness;
    pub mod history;
    pub mod load;
    pub mod machine;
    pub mod measurement;
    pub mod onnx;
    pub mod paths;
    pub mod pictures;
    pub mod profile;
    #[cfg(feature = "http-load")]
    pub mod remote;
    pub mod report;
    pub mod run_data;
    pub mod selection;
    pub mod selftest;
    #[cfg(feature = "serve")]
    pub mod service;
    pub mod statistics;
    pub mod texts;
}
#[cfg(has_tests)]
#[cfg_attr(not(rooms), doc(hidden))]
pub use rooms::*;
#[cfg(not(has_tests))]
use rooms::*;

/// `main` of the command `inferbench`.
#[doc(hidden)]
pub use cli::main;

pub use backend::{
    Backend, Continuation, DeviceReport, LoadRequest, NextTokens, Placement, ProfiledSession, Session, Stages, Trace,
    Turn,
};
pub use cli::Harness;
pub use definition::{
    CaseFailure, Dimension, Dtype, ElementType, Model, Phase, Sizes, Status, SuiteModel, Sweep, TensorSpec,
};
pub use fixture::{Artifacts, HostTensor as Tensor, PartFiles, TensorData};
pub use harness::Answer;
pub use history::{History, Run};
pub use run_data::{OperatorCall, Record, RecordedCall};
