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

pub mod backend;
pub mod cli;
pub mod compare;
pub mod convert;
pub mod criterion_dir;
pub mod definition;
pub mod duel;
pub mod exit_codes;
pub mod fixture;
pub mod guide;
pub mod harness;
pub mod measurement;
pub mod paths;
pub mod record;
pub mod report;
pub mod selftest;
pub mod store;
