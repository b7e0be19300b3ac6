//! Machine-learning inference benchmarks with Criterion.
//!
//! A run flows from the left to the right; nothing imports from its right:
//!
//! ```text
//! definition ─▶ onnx ─▶ catalogue ─▶ selection ─┐
//!                └─▶ graph_dtype ─▶ fixture ─▶ backend ─▶ measurement ─▶ harness ─▶ run_data and Criterion's files
//! ```
//!
//! `run_data` lies below both those who make runs and those who read them, who never import the harness:
//!
//! ```text
//! run_data and Criterion's files ─▶ convert ─▶ history ─▶ compare ─▶ report ─▶ cli
//! ```
//!
//! `duel` lets executables of this package take turns, through `harness`, and decides through `compare`. `selftest` measures
//! what the harness itself costs and how much processes differ on this machine.

#[macro_use]
mod printing;

pub mod backend;
pub mod catalogue;
pub mod cli;
pub mod compare;
pub mod convert;
pub mod criterion_dir;
pub mod definition;
pub mod duel;
pub mod exit_codes;
pub mod fixture;
pub mod graph_dtype;
pub mod guide;
pub mod harness;
pub mod history;
pub mod machine;
pub mod measurement;
pub mod onnx;
pub mod paths;
pub mod pictures;
pub mod report;
pub mod run_data;
pub mod selection;
pub mod selftest;
pub mod statistics;
pub mod texts;
