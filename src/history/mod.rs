//! The history of runs: the folders of `target-reports/`, each with everything that is kept of one run.
//!
//! ```text
//! target-reports/<run>/
//!   results.parquet      the records, as results.csv has them      view benchmark_results
//!   run.parquet          one row: when, where, of which source     view benchmark_runs
//!   hardware.parquet     one row: the machine                      view hardware_info
//!   latencies.parquet    every call                                view raw_benchmark_data
//!   results.csv, throughput.csv, manifest.json, distributions.json, report.html, …
//! ```
//!
//! The folders are the database: there is no index and no second copy. Readers use these names:
//!
//! - [`History::open`] opens any number of roots; [`History::runs`] lists the runs, the newest first;
//!   [`History::latest`], [`History::find`] and [`History::get`] choose one.
//! - [`Run::facts`], [`Run::records`], [`Run::manifest`], [`Run::machine`], [`Run::distributions`] and [`Run::calls`]
//!   read one run. Nothing is read before it is asked for.

mod run;
mod runs;

pub use run::{Calls, Run, RunFacts};
pub use runs::History;
