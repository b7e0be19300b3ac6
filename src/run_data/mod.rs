//! What a run leaves behind: its manifest, the outcomes of its cases, and its records.
//!
//! Those who measure write these files and those who report read them; neither imports the other.

mod criterion_arguments;
mod distribution;
mod evaluation;
pub mod files;
mod latencies;
mod manifest;
mod outcomes;
mod peaks;
mod record;
mod run_folder;
mod whole_file;

pub use criterion_arguments::{CriterionArguments, Mode};
pub use distribution::{DISTRIBUTIONS, Distribution, Distributions};
pub use evaluation::{Evaluation, LARGEST};
pub use latencies::Latencies;
pub use manifest::{MANIFEST_FORMAT, Manifest, ManifestCase};
pub use outcomes::{BY_REFERENCE, EvaluationOutcome, Event, Outcome, Outcomes};
pub use peaks::Peaks;
pub use record::{Record, RunIdentity, SCHEMA_VERSION, StopReason};
pub use run_folder::RunFolder;
pub use whole_file::write_whole;
pub(crate) use whole_file::{HIDDEN, hidden};
