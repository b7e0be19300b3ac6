//! What a run leaves behind: its manifest, the outcomes of its cases, and its records.
//!
//! Those who measure write these files and those who report read them; neither imports the other.

pub mod cbor_file;
mod criterion_arguments;
mod distribution;
mod evaluation;
pub mod json_lines;
mod latencies;
mod manifest;
mod outcomes;
mod peaks;
mod record;
mod run_folder;
mod stop_reason;
mod usage;
mod whole_file;

pub use criterion_arguments::{CriterionArguments, Mode};
pub use distribution::{DISTRIBUTIONS, Distribution, Distributions};
pub use evaluation::{Evaluation, LARGEST};
pub use latencies::Latencies;
pub use manifest::{MANIFEST_FORMAT, Manifest, ManifestCase};
pub use outcomes::{BY_REFERENCE, EvaluationOutcome, Event, Observed, Outcome, Outcomes, StartTimes};
pub use peaks::{Peaks, ProductRate};
pub use record::{Record, RunIdentity, SCHEMA_VERSION};
pub use run_folder::RunFolder;
pub use stop_reason::StopReason;
pub use usage::{EnergyUsage, MemoryUsage, Usage};
pub use whole_file::write_whole;
pub(crate) use whole_file::{HIDDEN, hidden};
