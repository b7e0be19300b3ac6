//! What became of the cases of a run, `outcomes.jsonl`: one event per line, added while the run goes on.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::latencies::Latencies;
use super::record::Record;

/// A line of `outcomes.jsonl`. Cases are named by their ids.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A case has begun.
    Started { id: String },
    /// A case has ended.
    Finished(Box<Outcome>),
    /// A fresh process has loaded the case, and its row replaces the first one.
    Observed {
        row: Box<Record>,
        /// Seconds of the process, if it has watched memory and energy.
        watch_seconds: Option<f64>,
    },
    /// The answers of a finished case are being evaluated; repeated while that goes on.
    Evaluating { id: String },
    /// The evaluation of a finished case has ended.
    Evaluated {
        id: String,
        /// Why there are no answers.
        failure: Option<String>,
        #[serde(default)]
        seconds: f64,
    },
    /// A further process has measured a finished case.
    MeasuredAgain { id: String, latencies: Latencies },
    /// A further process has ended before it had measured the case.
    Lost { id: String },
    /// The failed parts of the case are done again.
    Reopened { id: String },
}

/// In `verified_by`: the outputs were compared with those that are known to be right.
pub const BY_REFERENCE: &str = "reference";

/// How a case ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// What is known of the case, except for what is computed from its calls and answers.
    pub row: Record,
    /// Tokens that a call reads (`prefill`) or makes (`decode`).
    pub tokens_a_call: Option<usize>,
    /// The median of a few calls that were made to see whether the case works, and not to measure it.
    pub rough_call_ms: Option<f64>,
    /// Whether the session had served another size before; `load_time_ms` is then the time that it took to load.
    pub is_session_shared: bool,
    /// Wall time of the whole case.
    pub seconds: f64,
}

/// What became of the cases so far.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    /// By id.
    pub finished: BTreeMap<String, Outcome>,
    /// What further processes have measured of each finished case, by id.
    pub further: BTreeMap<String, Vec<Latencies>>,
    /// How many further processes each case has lost, by id.
    pub lost: BTreeMap<String, usize>,
    /// The row of each case that a fresh process has loaded, by id.
    pub observed: BTreeMap<String, Record>,
    /// The cases whose memory and energy were watched.
    pub watched: BTreeSet<String>,
    /// The cases whose evaluation has ended, with the reason if it failed, by id.
    pub evaluated: BTreeMap<String, Option<String>>,
    /// Seconds in which each case was measured once, watched and evaluated, by id.
    pub seconds: BTreeMap<String, f64>,
    /// The case that began last and has not ended.
    pub unfinished: Option<String>,
    /// The finished case whose evaluation began and has not ended.
    pub unevaluated: Option<String>,
}

impl Outcome {
    /// The outcome of a case that goes well as long as nothing else is noted.
    pub fn new(row: Record) -> Self {
        Outcome { row, tokens_a_call: None, rough_call_ms: None, is_session_shared: false, seconds: 0.0 }
    }
}

impl Outcomes {
    /// What is known of a finished case. Returns `None` if it is not finished.
    pub fn row(&self, id: &str) -> Option<&Record> {
        let finished = self.finished.get(id)?;
        Some(self.observed.get(id).unwrap_or(&finished.row))
    }

    /// The ids of the cases that have failed, have lost one of so many processes for good, or could not be evaluated.
    pub fn failed(&self, processes: usize) -> BTreeSet<&str> {
        let lacking = self.lost.keys().filter(|id| 1 + self.further.get(*id).map_or(0, Vec::len) < processes);
        let cases = self.finished.iter().filter(|(_, outcome)| outcome.row.status.is_failure()).map(|(id, _)| id);
        let evaluations = self.evaluated.iter().filter(|(_, failure)| failure.is_some()).map(|(id, _)| id);
        cases.chain(lacking).chain(evaluations).map(String::as_str).collect()
    }

    /// Applies the next event of the file.
    pub(super) fn add(&mut self, event: Event) {
        let is_no_longer = |open: &mut Option<String>, id: &String| {
            open.take_if(|it| it == id);
        };
        let mut took = |id: &String, seconds| *self.seconds.entry(id.clone()).or_default() += seconds;
        match event {
            Event::Started { id } => self.unfinished = Some(id),
            Event::Finished(outcome) => {
                is_no_longer(&mut self.unfinished, &outcome.row.case_id);
                took(&outcome.row.case_id, outcome.seconds);
                self.finished.insert(outcome.row.case_id.clone(), *outcome);
            }
            Event::Observed { row, watch_seconds } => {
                if let Some(seconds) = watch_seconds {
                    took(&row.case_id, seconds);
                    self.watched.insert(row.case_id.clone());
                }
                self.observed.insert(row.case_id.clone(), *row);
            }
            Event::MeasuredAgain { id, latencies } => {
                is_no_longer(&mut self.unfinished, &id);
                self.further.entry(id).or_default().push(latencies);
            }
            Event::Lost { id } => {
                is_no_longer(&mut self.unfinished, &id);
                *self.lost.entry(id).or_default() += 1;
            }
            Event::Reopened { id } => {
                self.lost.remove(&id);
                self.evaluated.retain(|it, failure| *it != id || failure.is_none());
                // Nothing of a failed case is kept.
                if self.finished.get(&id).is_some_and(|outcome| outcome.row.status.is_failure()) {
                    self.finished.remove(&id);
                    self.observed.remove(&id);
                    self.seconds.remove(&id);
                    self.further.remove(&id);
                    self.watched.remove(&id);
                    self.evaluated.remove(&id);
                }
            }
            Event::Evaluating { id } => self.unevaluated = Some(id),
            Event::Evaluated { id, failure, seconds } => {
                is_no_longer(&mut self.unevaluated, &id);
                took(&id, seconds);
                self.evaluated.insert(id, failure);
            }
        }
    }
}
