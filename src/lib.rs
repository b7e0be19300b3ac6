//! Machine-learning inference benchmarks with Criterion.
//!
//! As a program, `inferbench` measures files of models and packaged models; the [`guide`] has the chapters. As a development
//! dependency, it measures the engines, models and code of your own crate: [`Harness`] is where to begin.
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
//! - [`Backend`] and [`Session`]: an engine of your own. What they are given and give: [`LoadRequest`], [`Tensor`], [`Model`],
//!   [`CaseFailure`].
//! - [`SuiteModel`]: a model with more than a name or a file.
//! - [`Record`] and [`History`]: what came of it.
//!
//! # For contributors
//!
//! `RUSTDOCFLAGS='--cfg rooms' cargo doc` shows the rooms of the source. A run flows from the left to the right; nothing imports from
//! its right:
//!
//! ```text
//! definition ─▶ onnx ─▶ catalogue ─▶ selection ─┐
//!                └─▶ graph_dtype ─▶ fixture ─▶ backend ─▶ measurement ─▶ harness ─▶ run_data and Criterion's files
//! ```
//!
//! `run_data` lies below both those who make runs and those who read them, who never import the harness:
//!
//! ```text
//! run_data and Criterion's files ─▶ convert ─▶ history ─▶ compare ─▶ report ─▶ decision ─▶ cli
//! ```
//!
//! `load` makes the arrivals of requests and judges the trials that `measurement` and `harness` put a case through.
//!
//! `duel` lets executables take turns, through `harness`, and decides through `compare`. `selftest` measures what the harness
//! itself costs and how much processes differ on this machine.

#![cfg_attr(not(rooms), deny(missing_docs))]

#[macro_use]
mod printing;

pub mod guide;

// The rooms are what the executables, benches and tests of this package use. They are no part of the library's interface, so its
// documentation leaves them out, unless it is made with `--cfg rooms`.
#[cfg_attr(not(rooms), doc(hidden))]
pub mod backend;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod catalogue;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod cli;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod compare;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod convert;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod criterion_dir;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod decision;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod definition;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod duel;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod exit_codes;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod fixture;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod graph_dtype;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod harness;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod history;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod load;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod machine;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod measurement;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod onnx;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod paths;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod pictures;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod profile;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod report;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod run_data;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod selection;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod selftest;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod statistics;
#[cfg_attr(not(rooms), doc(hidden))]
pub mod texts;

pub use backend::{
    Backend, Continuation, DeviceReport, LoadRequest, NextTokens, Placement, ProfiledSession, Session, Stages, Trace,
};
pub use cli::Harness;
pub use definition::{CaseFailure, Dimension, Dtype, ElementType, Model, Phase, Sizes, Status, SuiteModel, TensorSpec};
pub use fixture::{Artifacts, HostTensor as Tensor, PartFiles, TensorData};
pub use harness::Answer;
pub use history::{History, Run};
pub use run_data::{OperatorCall, Record, RecordedCall};
