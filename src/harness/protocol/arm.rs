//! An arm of a paired benchmark: a process that holds one loaded case and times slices of calls when it is told to.
//!
//! `inferbench duel` speaks to executables of any revision through this protocol, so fields are only ever added, and
//! [`ARM_PROTOCOL`] changes when an older reader would misunderstand.
//!
//! 1. `inferbench arm plan …` plans the cases as a run does, prepares their artifacts, compares every case's outputs once,
//!    writes a job for each, and prints an [`ArmPlan`] as one JSON document. Later processes repeat none of this.
//! 2. `inferbench arm time JOB` loads the job's case, warms it up, and answers `ready`. It then answers each line
//!    `slice NANOSECONDS DROPPED COUNTED` ([`SliceLength`](crate::compare::SliceLength)) of its standard input with a
//!    slice, each as a line of [`ArmAnswer`]; the end of the input ends it. Between slices the driver suspends the
//!    process by a signal. With `--load-on PROCESSORS`, it loads the case on these processors and answers `loaded`.
//!    When it reads the line `warm-up`, it moves to its own processors and warms the case up.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::definition::{CaseFailure, Status};
use crate::statistics::{mean, median};

/// The version of the protocol.
pub const ARM_PROTOCOL: u32 = 3;
/// A slice reports the time of each call if it has at most this many calls.
const MOST_TOLD: usize = 16;
/// The line that tells an arm with `--load-on` to move to its own processors and warm up.
pub const WARM_UP: &str = "warm-up";
/// Answers begin with this word: libraries may print to standard output too.
const ANSWER: &str = "arm ";

/// What an executable can measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmPlan {
    pub protocol: u32,
    pub cases: Vec<ArmCase>,
}

/// One case of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmCase {
    pub id: String,
    pub status: Status,
    pub message: Option<String>,
    /// How an arm of the case is started; present if the status is `ok`.
    pub start: Option<ArmStart>,
    /// Types, sizes and ranges of the inputs, if they are known; older executables do not send them.
    #[serde(default)]
    pub inputs: Option<String>,
    /// The backend and the version of its library, if it was loaded; older executables do not send it.
    #[serde(default)]
    pub library: Option<String>,
    /// The SHA-256 of all files that it can be loaded from; older executables do not send it.
    #[serde(default)]
    pub files_sha256: Option<String>,
    /// Whether its outputs were compared with something; older executables do not send it.
    #[serde(default)]
    pub is_verified: Option<bool>,
}

/// How an arm is started: `inferbench arm time JOB` with these variables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmStart {
    pub job: PathBuf,
    /// Environment variables that libraries read when their process starts.
    pub environment: BTreeMap<String, String>,
    /// The processors that its threads are pinned to; empty if they are not pinned.
    pub processors: Vec<usize>,
    /// Seconds after which an arm that does not answer has failed.
    pub timeout_seconds: f64,
    /// Whether it knows `--load-on`; older executables do not.
    #[serde(default)]
    pub loads_elsewhere: bool,
}

/// A line of an arm's standard output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArmAnswer {
    /// Loaded on the processors of `--load-on`, and not warmed up.
    Loaded,
    Ready(ArmReady),
    Slice(SliceFigures),
    Failed(CaseFailure),
}

/// An arm that is loaded and warmed up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmReady {
    /// Expected nanoseconds of a call.
    pub call_ns: u64,
    /// The numbers of threads, by the processors that they may run on, as the kernel lists them.
    pub affinities: BTreeMap<String, usize>,
}

/// The figures of the counted calls of one slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SliceFigures {
    pub calls: usize,
    pub median_ns: f64,
    pub mean_ns: f64,
    /// Nanoseconds of each call, in order; empty if there are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls_ns: Vec<u64>,
}

impl ArmAnswer {
    /// Reads an answer. Returns `None` if the line is something else, such as what a library prints.
    pub fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line.strip_prefix(ANSWER)?).ok()
    }

    /// The answer as a line.
    ///
    /// # Errors
    /// The answer cannot be written as JSON.
    pub fn to_line(&self) -> Result<String> {
        Ok(format!("{ANSWER}{}", serde_json::to_string(self)?))
    }
}

impl SliceFigures {
    /// Returns `None` if there are no calls.
    pub fn of(calls_ns: &[u64]) -> Option<Self> {
        let calls: Vec<f64> = calls_ns.iter().map(|&ns| ns as f64).collect();
        let told = if calls.len() > MOST_TOLD { &[] } else { calls_ns };
        Some(SliceFigures {
            calls: calls.len(),
            median_ns: median(&calls)?,
            mean_ns: mean(&calls),
            calls_ns: told.to_vec(),
        })
    }
}

/// How the calls of an arm are made longer on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Handicap {
    /// Millionths by which each call is made longer. With 0, calls still go through the same code.
    pub slowdown_ppm: u32,
    /// Minimum nanoseconds of a call, before the slowdown.
    pub least_call_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_of_calls_is_between_the_two_in_the_middle() {
        let figures = SliceFigures::of(&[4, 1, 100, 2]).unwrap();
        assert_eq!((figures.calls, figures.median_ns, figures.mean_ns), (4, 3.0, 26.75));
        assert_eq!(figures.calls_ns, [4, 1, 100, 2]);
        assert!(SliceFigures::of(&[1; 1000]).unwrap().calls_ns.is_empty());
        assert_eq!(SliceFigures::of(&[3, 1, 2]).unwrap().median_ns, 2.0);
        assert_eq!(SliceFigures::of(&[]), None);
    }

    #[test]
    fn answers_are_told_from_what_a_library_prints() {
        let answer = ArmAnswer::Failed(CaseFailure::failed("no\nmemory"));
        let line = answer.to_line().unwrap();
        assert_eq!((ArmAnswer::read(&line), line.lines().count()), (Some(answer), 1));
        assert_eq!(ArmAnswer::read("arm wrestling"), None);
    }
}
