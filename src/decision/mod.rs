//! What to deploy: the best measured case of a model for a goal, within limits.
//!
//! It takes records, a goal and limits. It gives the case to deploy with the runner-up, and predictions for cases that
//! were not measured. Neither verdicts about two runs (`compare`) nor the look of tables (`report`) belong here.
//!
//! ```text
//! records ─▶ repeated (runs of one program) ─▶ rows, limits ─▶ choice ─┬▶ advice (all batch sizes and machines together)
//!                                                                      └▶ variants (a table for each batch size and machine)
//! ```
//!
//! [`advise`] answers `inferbench recommend`, and [`compare`] answers `inferbench report --variants`. In both,
//! `choice::choose` decides which case is recommended.

mod advice;
mod advice_output;
mod choice;
mod drift;
mod goal;
mod limits;
mod predicted;
pub mod prediction;
mod quality;
mod repeated;
mod rows;
mod side_by_side;
#[cfg(test)]
mod tests;
mod under_load;
mod variants_output;

pub use advice::{Advice, Deployed, RunnerUp, advise};
pub use advice_output::{render, schema as advice_schema, section, table as advice_table};
pub use drift::{Drift, drifts};
pub use goal::{Goal, Prices};
pub use limits::{Excluded, Limits};
pub use predicted::{PredictedCase, add_predictions};
pub use quality::{Measure, Quality};
pub use side_by_side::{BestCase, Per, best_schema, best_table, side_by_side};
pub use under_load::UnderLoad;
pub use variants_output::schema;

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use schemars::JsonSchema;
use serde::Serialize;

use crate::compare::{CaseFilter, Noise, RatioInterval, Verdict};
use crate::definition::{Boundary, ORIGINAL, Phase, Status, TimedOn};
use crate::report::columns::has_own_memory;
use crate::run_data::{LoadResult, Metric, Record};

/// Which cases may be recommended, and by which rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub model: String,
    pub goal: Goal,
    /// The cases that may be recommended. Others still determine the original and the newest file.
    pub filter: CaseFilter,
    /// The device, machine, backend, dtype or model that a recommended case must have.
    pub among: Option<(Per, String)>,
    /// A variant must be shown to lose at most this fraction of the samples.
    pub accuracy_loss: f64,
    pub limits: Limits,
    pub prices: Prices,
    /// Load tests. Their rates and latencies count for the limits, and their rates for the goals `throughput` and
    /// `cost`.
    pub loads: Vec<LoadResult>,
    /// Runs in which a machine was slower than usual.
    pub drifted: Vec<Drift>,
    /// The noise between runs, as far as it is known without these runs.
    pub noise: Noise,
}

impl Options {
    /// Options for the fastest variant that loses at most one point of accuracy, on a machine whose noise is unknown.
    pub fn new(model: impl Into<String>) -> Self {
        Options {
            model: model.into(),
            goal: Goal::default(),
            filter: CaseFilter::default(),
            among: None,
            accuracy_loss: 0.01,
            limits: Limits::default(),
            prices: Prices::default(),
            loads: Vec::new(),
            drifted: Vec::new(),
            noise: Noise::assumed(),
        }
    }

    /// Returns true if the case passes the filters, so that it may be recommended.
    fn may_choose(&self, record: &Record) -> bool {
        let is_among = self.among.as_ref().is_none_or(|(per, name)| per.of(record) == *name);
        is_among && self.filter.matches(&record.case())
    }
}

/// A model's variants: at least one table, and one for each phase, sequence length, boundary, batch size and machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Variants {
    pub tables: Vec<VariantTable>,
}

/// Rows that do the same work on the same machine.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct VariantTable {
    pub model: String,
    pub host_id: String,
    pub phase: Phase,
    pub sequence_length: Option<usize>,
    pub boundary: Boundary,
    pub timed_on: TimedOn,
    pub batch_size: usize,
    pub goal: Goal,
    pub accuracy_loss: f64,
    /// Times of identical code differ by up to this fraction here, in 95 % of the cases.
    pub floor: f64,
    /// The smallest number of runs of a row. The times of a row are geometric means over its runs.
    pub runs: usize,
    /// How the answers are evaluated.
    pub measure: Measure,
    /// The samples that the answers are evaluated with.
    pub data_source: Option<String>,
    pub recommendation: Recommendation,
    /// The rows that were measured, the original first; then those that were not.
    pub rows: Vec<Row>,
    /// How to read the figures.
    pub notes: Vec<String>,
}

/// A variant on a backend and device, in a dtype: all columns of its record, and how they compare.
///
/// If there are several runs, the record is that of the run that says most about the answers to the table's samples.
/// `latency_p50_ms`, `throughput_ips`, `tokens_per_second` and `energy_j_per_sample` are geometric means.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    #[serde(flatten)]
    pub record: Record,
    /// The runs that its times are from.
    pub run_ids: Vec<String>,
    /// Figures that are not columns of the record.
    pub metrics: Vec<Metric>,
    pub quality: Quality,
    /// Its figures in load tests.
    pub under_load: Option<UnderLoad>,
    /// The limit that it breaks.
    pub excluded: Option<Excluded>,
    pub differences: Option<Differences>,
    /// The ratio of its time to the baseline's, with a 95 % interval. For the goals `throughput`, `energy` and `cost`,
    /// the ratio of the time, energy or price per sample.
    pub change: Option<RatioInterval>,
    /// Whether it is faster than the baseline, after control of the false-discovery rate over the rows.
    pub verdict: Option<Verdict>,
    /// Whether the verdicts compare with it: it is the best original or, if no original is within the limits, the best
    /// row of kept quality.
    pub is_baseline: bool,
    /// Whether no other row is at least as good in latency, quality and size, and better in one of them.
    pub is_on_front: bool,
    pub is_recommended: bool,
}

/// The ratios of the row's figures to those of the original on the same backend and device, or else of the fastest
/// original.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Differences {
    /// The case of that original.
    pub original: String,
    pub model_size: Option<f64>,
    pub latency_p50: Option<f64>,
    pub throughput: Option<f64>,
    /// The ratio of the peaks, both of devices or both of processes that have measured nothing else.
    pub memory: Option<f64>,
}

/// The row to use, in one sentence.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Recommendation {
    pub sentence: String,
    /// The id of the recommended case; absent if nothing can be recommended.
    pub case_id: Option<String>,
}

/// Compares the variants of a model. The times of a case are the geometric means over the runs of one program.
///
/// # Errors
/// The records have no such model, or nothing but its original; the message says which models there are, or how to measure
/// more.
pub fn compare(records: &[Record], metrics: &[Metric], options: &Options) -> Result<Variants> {
    let model = &options.model;
    let of_model = of_model(records, model)?;
    if of_model.iter().all(|record| record.variant == ORIGINAL) {
        bail!(
            "the chosen records have only the original of {model}: `inferbench run --model {model} --variant all`, or for a \
             file `inferbench run FILE --variant all`, measures its variants; `--last 5` includes earlier runs"
        );
    }
    let current = repeated::of_newest_files(&of_model);
    Ok(Variants { tables: rows::tables(repeated::repeated(&current, options), metrics, options) })
}

/// The records of a model.
///
/// # Errors
/// No record is of the model; the message says which models there are.
fn of_model<'a>(records: &'a [Record], model: &str) -> Result<Vec<&'a Record>> {
    let of_model: Vec<&Record> = records.iter().filter(|record| record.model == *model).collect();
    if of_model.is_empty() {
        ensure!(!records.is_empty(), "there are no records");
        let models: BTreeSet<&str> = records.iter().map(|record| record.model.as_str()).collect();
        let models = Vec::from_iter(models).join(", ");
        bail!("none of the chosen records is of the model {model:?}; there are {models}");
    }
    Ok(of_model)
}

impl Row {
    pub fn is_measured(&self) -> bool {
        self.record.status == Status::Ok
    }

    /// Whether it was measured, is not known to be wrong, and is within the limits.
    pub fn is_candidate(&self) -> bool {
        self.is_measured() && self.quality != Quality::Wrong && self.excluded.is_none()
    }

    /// Returns true if the row may be recommended.
    pub fn is_acceptable(&self) -> bool {
        self.is_candidate() && self.quality.is_acceptable()
    }
}

/// Tokens per second if they are counted, samples per second otherwise.
fn rate(record: &Record) -> Option<f64> {
    record.tokens_per_second.or(record.throughput_ips)
}

/// The peak of the device if it has memory of its own, or else of a process that has measured nothing else: only such
/// peaks can be compared.
fn own_memory(record: &Record) -> Option<f64> {
    if has_own_memory(record) {
        return record.device_memory_mb;
    }
    let is_own = |kind: &str| kind.starts_with("own-process-");
    record.memory_mb.filter(|_| record.memory_kind.as_deref().is_some_and(is_own))
}
