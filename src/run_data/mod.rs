//! What a run leaves behind: its manifest, the outcomes of its cases, and its records.
//!
//! It takes what was measured. It gives the files' types with readers and writers: manifest, outcomes, calls,
//! records. Where a run's folder lies is known to `history`.
//!
//! Those who measure write these files and those who report read them; neither imports the other.

mod calibration;
mod criterion_arguments;
mod distribution;
mod evaluation;
pub mod files;
mod latencies;
mod load;
mod manifest;
mod maps;
mod metric;
mod outcomes;
mod profile;
mod record;
mod run_folder;
mod work;

pub use calibration::{Calibration, Node, Probe, ProcessSpread, RunPart};
pub use criterion_arguments::{CriterionArguments, Mode};
pub use distribution::{DISTRIBUTIONS, Distribution, Distributions};
pub use evaluation::{Evaluation, FoundBox, Judged, ReadText, Scores, Transcript, places_of_largest};
pub use files::write_whole;
pub(crate) use files::{HIDDEN, hidden};
pub use latencies::Latencies;
pub use load::{
    LoadAnswer, LoadResult, LoadRun, LoadTerms, LoadWindow, RequestLengths, Scenario, ServiceTime, TokenLength, Verdict,
};
pub use manifest::{MANIFEST_FORMAT, Manifest, ManifestCase, Peaks};
pub use maps::{ClassPixels, MaskForm, class_pixels, decibels, relative_error};
pub use metric::{Better, CHANGE, FRACTION, Metric};
pub use outcomes::{BY_REFERENCE, Event, Outcome, Outcomes};
pub use profile::{
    Bound, CaseProfile, CpuStack, CpuStacks, OUTSIDE, OperatorCall, OperatorTimes, PositionRow, Profile,
    ProfileFailure, ProfileRow, ProfiledCalls, RecordedCall,
};
pub(crate) use record::with_note;
pub use record::{Record, SCHEMA_VERSION, StopReason};
pub use run_folder::{MANIFEST, RunFolder};
pub(crate) use work::is_no_difference;
pub use work::{Work, Works};
