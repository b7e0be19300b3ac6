//! Criterion's files, and the latency log that the harness puts beside them.
//!
//! Criterion 0.8 keeps a benchmark in `<root>/<group>/<function>/<value>/<baseline>/` as `benchmark.json`,
//! `sample.json`, `estimates.json` and `tukey.json`; `<baseline>` is `new` for the last run. The format is not public:
//! the crate's version is pinned, and a test over a recorded tree guards it. `benchmark.json` is written last.

mod files;
mod walk;

pub use files::{Estimate, Estimates, LATENCY_LOG, LatencyLog, SamplingMode};
pub use walk::{MeasuredEntry, QUICK, find_baselines, find_entries, read_entry, read_estimates};
