//! The guide: how to measure, how to read the results, and what a figure means.
//!
//! | chapter | answers |
//! | --- | --- |
//! | [`measuring`] | Which cases run, how long, and from where to where the clock runs |
//! | [`results`] | What a run leaves: tables, pages, charts, files, statuses, exit codes |
//! | [`own_models`] | How to benchmark a file of your own, and how to write a suite |
//! | [`variants`] | Which form of a model to ship: pruned, distilled, quantised |
//! | [`deciding`] | What to deploy within limits, and what cases that were not measured would take |
//! | [`devices`] | Which devices and dtypes there are, and what each of them needs |
//! | [`comparing`] | How to compare runs and baselines, and how small a change this machine can show |
//! | [`paired_benchmarks`] | How to gate a pull request: a paired (duet) benchmark of two revisions |
//! | [`profiles`] | Where the time of a call goes, and why one case is slower than another |
//! | [`serving`] | What users feel: latency under load, and how many requests a machine serves |
//! | [`workers`] | How to benchmark JAX, a browser, and a runtime of yours in any language |
//! | [`fleet`] | How to measure one suite on many machines, by Slurm, ssh or a matrix of CI jobs |
//! | [`service`] | How to measure over HTTP on a machine that a team shares, and the page for it |
//! | [`own_crate`] | How to benchmark the engine and the code of your own crate with `cargo bench` |
//! | [`history`] | How to keep runs and query them with pandas, Polars or SQL |
//! | [`method`] | How a figure is made, and what the harness itself costs |
//!
//! In all chapters `inferbench` stands for `cargo run --release --features tch,candle-onnx --`. After `scripts/bench` the executable is
//! `target/release/inferbench`.

#[doc = include_str!("comparing.md")]
pub mod comparing {}

#[doc = include_str!("deciding.md")]
pub mod deciding {}

#[doc = include_str!("devices.md")]
pub mod devices {}

#[doc = include_str!("fleet.md")]
pub mod fleet {}

#[doc = include_str!("history.md")]
pub mod history {}

#[doc = include_str!("measuring.md")]
pub mod measuring {}

#[doc = include_str!("method.md")]
pub mod method {}

#[doc = include_str!("own_crate.md")]
pub mod own_crate {}

#[doc = include_str!("own_models.md")]
pub mod own_models {}

#[doc = include_str!("paired_benchmarks.md")]
pub mod paired_benchmarks {}

#[doc = include_str!("profiles.md")]
pub mod profiles {}

#[doc = include_str!("results.md")]
pub mod results {}

#[doc = include_str!("service.md")]
pub mod service {}

#[doc = include_str!("serving.md")]
pub mod serving {}

#[doc = include_str!("variants.md")]
pub mod variants {}

#[doc = include_str!("workers.md")]
pub mod workers {}
