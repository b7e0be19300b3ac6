//! Machine-learning inference benchmarks with Criterion.
//!
//! The data flow is the layout; nothing on the left imports from the right:
//!
//! ```text
//! definition ─▶ fixture ─▶ backend ─▶ measurement ─▶ harness ─▶ (Criterion's files) ─▶ criterion_dir
//!                                                                                          │
//!                                      cli ◀─ report ◀─ compare ◀─ store ◀─ record ◀─ convert
//! ```
//!
//! `duel` lets two executables of this package measure in turn, through `harness`, and judges them through `compare`.
//! `selftest` measures the machine through `harness`, `criterion_dir` and `duel`; `cli` gives its result to `compare` and the reports.

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
