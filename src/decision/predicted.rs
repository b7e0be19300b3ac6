//! Predicted cases beside a recommendation, each with the command that measures it.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::advice::{kind, rate_text};
use super::prediction::{Basis, Estimate, Example, Lessons, Predictor, Runtime, Subject, command};
use super::repeated::of_newest_files;
use super::{Advice, Limits, Options};
use crate::definition::{Boundary, Case, Dtype, ORIGINAL, Status, TimedOn};
use crate::report::numbers::{latency, megabytes};
use crate::run_data::{Record, Work, is_no_difference};

/// The most predicted cases that an answer names.
const MOST_NAMED: usize = 3;

/// A case that was not measured, and is predicted to be better than the recommended one.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PredictedCase {
    pub case_id: String,
    pub host_id: String,
    /// True if the history has cases of several machines, so that the text has to name this one.
    #[serde(skip)]
    pub has_machines: bool,
    pub latency_ms: Estimate,
    pub throughput_ips: Estimate,
    /// Absent if the rates of the model do not count tokens.
    pub tokens_per_second: Option<f64>,
    pub memory_mb: Option<Estimate>,
    /// Whether its whole interval is within the limits, and better than the measured figure of the recommended case.
    /// False if p99 has a limit, since no p99 is predicted.
    pub is_beyond: bool,
    /// The command that measures it.
    pub command: String,
}

impl PredictedCase {
    /// The case, and its machine where there are several.
    pub fn name(&self) -> String {
        let host = if self.has_machines { format!(" on host {}", self.host_id) } else { String::new() };
        format!("{}{host}", self.case_id)
    }

    /// `m/tch-cpu-f32/4, not measured: p50 2.10 ms (1.52 ms … 2.90 ms), 1905 samples/s, which may be better; inferbench run … would decide`.
    pub fn text(&self) -> String {
        let PredictedCase { latency_ms: ms, throughput_ips: rate, .. } = self;
        let (value, lower, upper) = (latency(ms.value), latency(ms.lower), latency(ms.upper));
        let how = if self.is_beyond { "is better in its whole interval" } else { "may be better" };
        format!(
            "{}, not measured: p50 {value} ({lower} … {upper}), {}, which {how}; {} would decide",
            self.name(),
            rate_text(self.tokens_per_second, Some(rate.value)).unwrap_or_default(),
            self.command
        )
    }
}

/// Adds predictions of cases that were not measured, over the backends, devices and batch sizes of these records: those
/// within the limits and the filter that may be better than the recommended case. Also adds the largest batch that is
/// predicted to fit into the machine's memory. A prediction never replaces a measured case, since its outputs were
/// never checked.
pub fn add_predictions(
    all: &mut [Advice],
    records: &[Record],
    lessons: &Lessons,
    memory_mb: &BTreeMap<String, f64>,
    options: &Options,
) {
    let predictor = Predictor::new(lessons);
    let is_plain = |advice: &&mut Advice| advice.boundary == Boundary::Compute && advice.timed_on == TimedOn::Seeded;
    for advice in all.iter_mut().filter(is_plain) {
        let chosen = advice.chosen(records);
        let measured = advice.pooled.as_ref().and_then(|record| options.quantity(options.goal, record));
        let of_advice: Vec<&Record> = records.iter().filter(|record| advice.is_about(record)).collect();
        let current: Vec<Work> = of_newest_files(&of_advice).into_iter().map(Work::of).collect();
        // The rows of the model's present files.
        let is_of_advice = |it: &&Example| {
            let own = &it.subject.work;
            let is_present = |it: &Work| it.case.variant != own.case.variant || it.has_same_network(own);
            own.case.model == advice.model && advice.work.is_same(&kind(own.clone())) && current.iter().all(is_present)
        };
        // On the machine of the recommended case, only rows with as many or unknown threads can be compared with it.
        let is_comparable = |it: &&Example| {
            let there = advice.pooled.as_ref().filter(|record| record.host_id == it.site.host_id);
            there.is_none_or(|record| is_no_difference(&record.threads, &it.site.threads))
        };
        let examples: Vec<&Example> = lessons.examples.iter().filter(is_of_advice).filter(is_comparable).collect();
        let runtimes = records.iter().map(|record| (record.backend.as_str(), record.device.as_str())).collect();
        advice.predicted = better(&predictor, &examples, &of_advice, &runtimes, measured, options);
        if let Some(best) = advice.predicted.first().filter(|best| best.is_beyond) {
            let (ms, id) = (latency(best.latency_ms.value), best.name());
            advice.sentence += &format!(" But {id}, which was not measured, is predicted to be better: p50 {ms}.");
        }
        advice.largest_batch = chosen.and_then(|record| {
            let most = [memory_mb.get(&record.host_id).copied(), options.limits.max_memory_mb];
            let most = most.into_iter().flatten().reduce(f64::min).filter(|_| record.device == "cpu")?;
            // The recommended case fits: it was measured there.
            let batch = largest_batch(&predictor, &examples, record, most).filter(|batch| *batch > 0)?;
            Some(format!("{batch} is the largest that is predicted to fit into {}", megabytes(most)))
        });
    }
}

/// Tokens per sample if rates count tokens, or else 1: predicted rates count samples. A sample of `decode` is one
/// token.
fn tokens_of(records: &[&Record]) -> f64 {
    let both = |record: &&Record| record.tokens_per_second.zip(record.throughput_ips);
    let mut ratios = records.iter().filter_map(both).map(|(tokens, samples)| tokens / samples);
    ratios.rfind(|ratio| ratio.is_finite() && *ratio > 0.0).unwrap_or(1.0)
}

/// The cases of the original that are not among these records and are predicted to be better than `measured`, the best
/// first.
fn better(
    predictor: &Predictor<'_>,
    examples: &[&Example],
    records: &[&Record],
    runtimes: &BTreeSet<(&str, &str)>,
    measured: Option<f64>,
    options: &Options,
) -> Vec<PredictedCase> {
    let tokens = tokens_of(records);
    let has_tokens = records.iter().any(|record| record.tokens_per_second.is_some());
    let mut tried: BTreeMap<(String, &str), Vec<Work>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.status != Status::Unavailable) {
        tried.entry((record.case_id.clone(), &record.host_id)).or_default().push(Work::of(record));
    }
    let mut found: BTreeMap<(String, &str), (f64, PredictedCase)> = BTreeMap::new();
    // A narrower dtype is another form of the model, whose answers were never compared.
    let original = |record: &&&Record| record.variant == ORIGINAL && record.status == Status::Ok;
    let dtypes: Vec<Dtype> = records.iter().filter(original).map(|record| record.dtype).collect();
    let widest = Dtype::ALL.into_iter().find(|dtype| dtypes.contains(dtype));
    let is_original = |case: &Case| case.variant == ORIGINAL && Some(case.dtype) == widest;
    let has_machines = records.iter().any(|record| record.host_id != records[0].host_id);
    for example in examples.iter().filter(|it| is_original(&it.subject.work.case)) {
        for (backend, device) in runtimes {
            let (known, host_id) = (&example.subject.work, example.site.host_id.as_str());
            let case = Case { backend: (*backend).to_owned(), device: (*device).to_owned(), ..known.case.clone() };
            let work = Work { case: case.clone(), artifact_sha256: None, ..known.clone() };
            let case_id = case.to_string();
            let subject = Subject { runtime: Runtime::of(&case), work, ..example.subject.clone() };
            let of_case = tried.get(&(case_id.clone(), host_id));
            let is_tried = of_case.is_some_and(|works| works.iter().any(|work| work.is_same(&subject.work)));
            if is_tried || !options.filter.matches(&case) {
                continue;
            }
            let prediction = predictor.predict(&subject, &example.site).ok();
            let Some(prediction) = prediction.filter(|it| it.basis != Basis::Measured) else { continue };
            let (latency_ms, throughput_ips) = (prediction.latency_ms, prediction.throughput_ips);
            let quantity = |ms: f64, rate: f64| {
                let figures = Record {
                    host_id: host_id.to_owned(),
                    device: case.device.clone(),
                    latency_p50_ms: Some(ms),
                    throughput_ips: Some(tokens * rate),
                    ..Record::default()
                };
                options.goal.quantity(&figures, &options.prices)
            };
            let value = quantity(latency_ms.value, throughput_ips.value);
            let worst = quantity(latency_ms.upper, throughput_ips.lower);
            let (limits, memory_mb) = (&options.limits, prediction.memory_mb);
            let is_allowed =
                limits.allow(latency_ms.value, memory_mb.map(|it| it.value), tokens * throughput_ips.value);
            let is_surely_allowed = limits.max_p99_ms.is_none()
                && limits.allow(latency_ms.upper, memory_mb.map(|it| it.upper), tokens * throughput_ips.lower);
            let predicted = PredictedCase {
                case_id: case_id.clone(),
                host_id: host_id.to_owned(),
                has_machines,
                latency_ms,
                throughput_ips,
                tokens_per_second: has_tokens.then_some(tokens * throughput_ips.value),
                memory_mb,
                is_beyond: is_surely_allowed && measured.zip(worst).is_some_and(|(measured, worst)| worst < measured),
                command: command(&subject.runtime, &subject.work, case.batch_size),
            };
            let is_better = |value: &f64| measured.is_none_or(|measured| *value < measured);
            if let Some(value) = value.filter(is_better).filter(|_| is_allowed) {
                found.insert((case_id, host_id), (value, predicted));
            }
        }
    }
    let mut found: Vec<(f64, PredictedCase)> = found.into_values().collect();
    found.sort_by(|one, other| one.0.total_cmp(&other.0));
    found.into_iter().map(|(_, it)| it).take(MOST_NAMED).collect()
}

/// The largest batch of the case that is predicted to fit into `most` megabytes, by its measured batch sizes.
fn largest_batch(predictor: &Predictor<'_>, examples: &[&Example], record: &Record, most: f64) -> Option<usize> {
    let runtime = Runtime::of(&record.case());
    let is_of_case = |it: &&Example| {
        it.subject.runtime == runtime
            && it.site.host_id == record.host_id
            && it.subject.work.case.variant == record.variant
    };
    let own: Vec<&Example> = examples.iter().copied().filter(is_of_case).collect();
    let first = own.iter().min_by_key(|it| it.subject.batch_size)?;
    let last = own.iter().max_by_key(|it| it.subject.batch_size)?;
    predictor.largest_batch(&first.subject, &last.subject, &first.site, most)
}

impl Limits {
    /// Whether a case with these figures may keep the limits of p99, memory and rate: p99 is at least the p50. `rate`
    /// counts samples, or tokens.
    fn allow(&self, p50_ms: f64, memory_mb: Option<f64>, rate: f64) -> bool {
        self.max_p99_ms.is_none_or(|most| p50_ms <= most)
            && self.max_memory_mb.is_none_or(|most| memory_mb.is_some_and(|memory| memory <= most))
            && self.min_rate.is_none_or(|least| rate >= least)
    }
}
