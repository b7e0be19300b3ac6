//! What became of the cases of a run, `outcomes.jsonl`: one event per line, added while the run goes on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::latencies::Latencies;
use super::stop_reason::StopReason;
use super::usage::Usage;
use crate::definition::{BenchmarkId, Dtype, Status};

/// A line of `outcomes.jsonl`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Started {
        id: BenchmarkId,
    },
    Finished(Box<Outcome>),
    /// The answers of a finished case are being evaluated; repeated while that goes on.
    #[serde(alias = "judging")]
    Evaluating {
        id: BenchmarkId,
        /// Samples so far.
        samples: usize,
    },
    /// The evaluation of a finished case has ended.
    #[serde(alias = "judged")]
    Evaluated {
        id: BenchmarkId,
        #[serde(alias = "judgement")]
        evaluation: EvaluationOutcome,
    },
    /// A further process has measured a finished case.
    MeasuredAgain {
        id: BenchmarkId,
        latencies: Latencies,
    },
    ColdStarted {
        id: BenchmarkId,
        start: StartTimes,
    },
    Watched {
        id: BenchmarkId,
        usage: Usage,
        /// Wall time of the process.
        #[serde(default)]
        seconds: f64,
    },
}

/// The times of a process from the model's file to the first output: of a cold start, if it had loaded nothing before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StartTimes {
    pub load_ms: Option<f64>,
    /// Time to compile for the shapes that are bound, if the runtime does that apart from loading.
    pub compilation_ms: Option<f64>,
    pub first_inference_ms: Option<f64>,
}

/// How a case ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub id: BenchmarkId,
    pub status: Status,
    pub message: Option<String>,
    pub observed: Observed,
    /// Wall time of the whole case.
    pub seconds: f64,
}

/// How evaluating the answers of a case ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationOutcome {
    /// Why there is no evaluation, if it failed.
    pub failure: Option<String>,
    /// Wall time.
    pub seconds: f64,
}

/// In `verified_by`: the outputs were compared with those that are known to be right.
pub const BY_REFERENCE: &str = "reference";

/// What was observed of a case besides the latencies. An unknown is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Observed {
    pub input_shape: Option<String>,
    /// Tokens that a call reads (`prefill`) or makes (`decode`).
    pub tokens_a_call: Option<usize>,
    /// Whether the outputs were right. Absent if there was nothing to compare them with.
    pub verified: Option<bool>,
    /// What they were compared with: [`BY_REFERENCE`], or the name of another backend.
    pub verified_by: Option<String>,
    /// Why the outputs look wrong, if there was nothing to compare them with.
    pub suspicion: Option<String>,
    pub max_abs_error: Option<f64>,
    pub max_rel_error: Option<f64>,
    pub effective_device: Option<String>,
    pub effective_dtype: Option<Dtype>,
    pub providers: Option<String>,
    /// Fraction of the nodes, from 0 to 1, that a profile shows on the provider of the device.
    pub provider_share: Option<f64>,
    /// The hardware behind the device, if the runtime says it: `cpu`, `gpu` or `npu`.
    pub device_type: Option<String>,
    pub executor: Option<String>,
    pub threads: Option<usize>,
    /// The median of a few calls that were made to see whether the case works, and not to measure it.
    pub rough_call_ms: Option<f64>,
    #[serde(flatten)]
    pub start: StartTimes,
    /// Whether the session had served another size before; `load_ms` is then the time that it took to load.
    pub is_session_shared: bool,
    /// Medians over the measured calls of the stages of a call from host to host.
    pub h2d_ms: Option<f64>,
    pub compute_ms: Option<f64>,
    pub d2h_ms: Option<f64>,
    pub warmup_iterations: Option<usize>,
    /// Whether the warm-up ended because the times were steady, and not because its time was spent.
    pub warmup_is_steady: Option<bool>,
    pub stopped_by: Option<StopReason>,
    /// Peak resident set of the process over the case.
    pub peak_memory_bytes: Option<u64>,
    pub artifact_bytes: Option<u64>,
    pub artifact_sha256: Option<String>,
    pub backend_version: Option<String>,
    pub library_version: Option<String>,
}

/// What became of the cases so far.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    /// By id.
    pub finished: BTreeMap<String, Outcome>,
    /// What further processes have measured of each finished case, by id.
    pub further: BTreeMap<String, Vec<Latencies>>,
    /// Memory and energy of the cases that were watched, by id.
    pub watched: BTreeMap<String, Usage>,
    /// The last cold start of each case, by id.
    pub cold_starts: BTreeMap<String, StartTimes>,
    /// Seconds that watching each case took, by id.
    pub watch_seconds: BTreeMap<String, f64>,
    /// How evaluating the answers of cases ended, by id.
    pub evaluated: BTreeMap<String, EvaluationOutcome>,
    /// The case that began last and has not ended.
    pub unfinished: Option<BenchmarkId>,
    /// The finished case whose evaluation began and has not ended.
    pub unevaluated: Option<BenchmarkId>,
}

impl Outcomes {
    /// Takes up the next event of the file.
    pub(super) fn add(&mut self, event: Event) {
        let is_no_longer = |open: &mut Option<BenchmarkId>, id: &BenchmarkId| {
            open.take_if(|it| it == id);
        };
        match event {
            Event::Started { id } => self.unfinished = Some(id),
            Event::Finished(outcome) => {
                is_no_longer(&mut self.unfinished, &outcome.id);
                self.finished.insert(outcome.id.to_string(), *outcome);
            }
            Event::MeasuredAgain { id, latencies } => {
                is_no_longer(&mut self.unfinished, &id);
                self.further.entry(id.to_string()).or_default().push(latencies);
            }
            Event::Evaluating { id, .. } => self.unevaluated = Some(id),
            Event::Evaluated { id, evaluation } => {
                is_no_longer(&mut self.unevaluated, &id);
                self.evaluated.insert(id.to_string(), evaluation);
            }
            Event::ColdStarted { id, start } => drop(self.cold_starts.insert(id.to_string(), start)),
            Event::Watched { id, usage, seconds } => {
                self.watch_seconds.insert(id.to_string(), seconds);
                self.watched.insert(id.to_string(), usage);
            }
        }
    }
}
