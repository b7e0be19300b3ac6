//! Criterion's files, the latency log and the run's manifest → records.
//!
//! Every case of the run becomes a record, also one that could not run. An entry of Criterion's tree that does not
//! belong to the run, or whose files do not belong together, is refused with its reason; the rest is converted.

mod quality;
mod roofline;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use crate::criterion_dir::{Estimate, MeasuredEntry, Refusal, SamplingMode, find_entries, read_entry, read_estimates};
use crate::definition::{Case, Effort, Phase, Status};
use crate::run_data::{
    ColdStart, Distribution, Latencies, Manifest, ManifestCase, Observed, Outcomes, Record, RunFolder, RunIdentity,
    StopReason, Usage,
};
use crate::statistics::{SortedCalls, autocorrelation, relative_half_width};

/// What a run comes to.
pub struct Conversion {
    pub manifest: Manifest,
    pub records: Vec<Record>,
    /// Of the calls of each measured case, by its id.
    pub distributions: BTreeMap<String, Distribution>,
    /// Entries of Criterion's tree that are not in the records, with the reason.
    pub refused: Vec<(String, String)>,
    /// Entries that other runs measured, by run.
    pub of_other_runs: BTreeMap<String, usize>,
    /// Cases that an interrupted run did not come to.
    pub not_reached: usize,
}

/// Converts a run whose measurements are in `baseline` of Criterion's tree: `new`, or a saved name.
///
/// # Errors
/// The manifest cannot be read. Entries that cannot be read are in [`Conversion::refused`].
pub fn convert(folder: &RunFolder, criterion_root: &Path, baseline: &str) -> Result<Conversion> {
    convert_each(folder, criterion_root, baseline, |_, _| Ok(()))
}

/// The same, and hands on each record that has figures, with the calls that they are made of.
///
/// # Errors
/// Those of [`convert`], and the first one of `measured`.
pub fn convert_each(
    folder: &RunFolder,
    criterion_root: &Path,
    baseline: &str,
    mut measured: impl FnMut(&Record, &MeasuredEntry) -> Result<()>,
) -> Result<Conversion> {
    let manifest = folder.read_manifest()?;
    let outcomes = folder.read_outcomes();
    let mut conversion = Conversion {
        records: Vec::with_capacity(manifest.cases.len()),
        distributions: BTreeMap::new(),
        refused: Vec::new(),
        of_other_runs: BTreeMap::new(),
        not_reached: 0,
        manifest,
    };
    let run = conversion.manifest.identity();
    let answers = quality::Answers::read(folder, &conversion.manifest);
    let mut own = BTreeSet::new();
    for case in &conversion.manifest.cases {
        let id = case.case.benchmark_id();
        let entry_folder = criterion_root.join(&id.group).join(&id.function).join(&id.value).join(baseline);
        own.insert(entry_folder.clone());
        let manifest = &conversion.manifest;
        let context = Context { manifest, outcomes: &outcomes, answers: &answers, run: &run, criterion_root };
        match context.record(case, &entry_folder) {
            Some((record, Calls::Kept(entry, distribution))) => {
                measured(&record, &entry)?;
                conversion.records.push(record);
                conversion.distributions.extend(distribution.map(|of| (id.to_string(), of)));
            }
            Some((record, Calls::Refused(reason))) => {
                conversion.records.push(record);
                conversion.refused.push((id.to_string(), reason));
            }
            Some((record, Calls::None)) => conversion.records.push(record),
            None => conversion.not_reached += 1,
        }
    }
    // Nothing there yet is no error: a run may have measured nothing.
    for entry_folder in find_entries(criterion_root, baseline).unwrap_or_default() {
        if own.contains(&entry_folder) {
            continue;
        }
        match read_entry(&entry_folder) {
            Ok(entry) => *conversion.of_other_runs.entry(entry.run_id).or_default() += 1,
            Err(refusal) => conversion.refused.push((entry_folder.display().to_string(), refusal.to_string())),
        }
    }
    Ok(conversion)
}

/// The calls of a record.
enum Calls {
    /// They, and how they are distributed.
    Kept(Box<MeasuredEntry>, Option<Distribution>),
    /// They are not the case's, or not whole: why.
    Refused(String),
    /// It was not measured.
    None,
}

struct Context<'a> {
    manifest: &'a Manifest,
    outcomes: &'a Outcomes,
    answers: &'a quality::Answers,
    run: &'a RunIdentity,
    criterion_root: &'a Path,
}

impl Context<'_> {
    /// The record of a case, and its calls; none for a case that the run did not come to.
    fn record(&self, planned: &ManifestCase, entry_folder: &Path) -> Option<(Record, Calls)> {
        let case = &planned.case;
        let bare = |status, message| {
            let mut record = Record::new(self.run, case, status, message);
            record.framework = planned.framework.clone();
            record.family = planned.family.clone();
            record.modality = planned.modality.clone();
            record.parameters = planned.parameters;
            record.nonzero_parameters = planned.nonzero_parameters;
            roofline::put_cost(&mut record, planned.cost);
            record
        };
        if let Some(failure) = &planned.failure {
            return Some((bare(failure.status, Some(failure.message.clone())), Calls::None));
        }
        let Some(outcome) = self.outcomes.finished.get(&case.to_string()) else {
            let was_at_it = self.outcomes.unfinished.as_ref() == Some(&case.benchmark_id());
            let was_killed = self.manifest.finished.is_none();
            return (was_at_it && was_killed)
                .then(|| (bare(Status::Failed, Some("the run was killed at this case".into())), Calls::None));
        };
        let mut record = bare(outcome.status, outcome.message.clone());
        put_observed(&mut record, &outcome.observed);
        if let Some(start) = self.outcomes.cold_starts.get(&case.to_string()) {
            put_cold_start(&mut record, start);
        }
        if let Some(usage) = self.outcomes.watched.get(&case.to_string()) {
            put_usage(&mut record, usage);
        }
        if !outcome.status.is_measured() {
            return Some((record, Calls::None));
        }
        match self.entry(entry_folder) {
            Ok(entry) => {
                let (first, distribution) = put_calls(&mut record, &entry).unzip();
                let further = self.outcomes.further.get(&case.to_string()).into_iter().flatten().cloned();
                let processes: Vec<Latencies> = first.into_iter().chain(further).collect();
                record.stopped_by = self.stopped_by(&outcome.observed, &entry);
                put_criterion(&mut record, &entry);
                put_processes(&mut record, &processes, outcome.observed.tokens_a_call);
                roofline::put_speed(&mut record, self.manifest.peaks.as_ref());
                self.put_change(&mut record, &entry);
                self.answers.put_into(&mut record);
                if let Some(why) = self.why_not_judged(case) {
                    quality::add_note(&mut record, format!("its answers were not evaluated: {why}"));
                }
                Some((record, Calls::Kept(Box::new(entry), distribution)))
            }
            Err(reason) => {
                record.status = Status::Failed;
                record.message = Some(format!("its measurement was not converted: {reason}"));
                Some((record, Calls::Refused(reason)))
            }
        }
    }

    fn why_not_judged(&self, case: &Case) -> Option<&str> {
        if self.outcomes.unevaluated.as_ref() == Some(&case.benchmark_id()) {
            return Some("the run was stopped before; `--resume` measures and evaluates it anew");
        }
        self.outcomes.evaluated.get(&case.to_string())?.failure.as_deref()
    }

    fn entry(&self, folder: &Path) -> Result<MeasuredEntry, String> {
        if self.manifest.is_quick {
            return Err(Refusal::Quick.to_string());
        }
        let entry = read_entry(folder).map_err(|refusal| refusal.to_string())?;
        if entry.run_id != self.run.run_id {
            return Err(format!("stale: run {} has measured it since", entry.run_id));
        }
        Ok(entry)
    }

    /// The reason that was planned with, and whether it was missed.
    fn stopped_by(&self, observed: &Observed, entry: &MeasuredEntry) -> Option<String> {
        let planned = observed.stopped_by?;
        let missed =
            if is_missed(planned, &self.manifest.suite.effort, entry.samples_ns.concat()) { "-missed" } else { "" };
        Some(format!("{planned}{missed}"))
    }

    fn put_change(&self, record: &mut Record, entry: &MeasuredEntry) {
        let Some(name) = &self.manifest.compared_baseline else { return };
        let id = &entry.id;
        let folder = self.criterion_root.join(&id.group).join(&id.function).join(&id.value).join(name);
        if let Ok(before) = read_estimates(&folder) {
            record.baseline = Some(name.clone());
            record.change_vs_baseline = Some(entry.estimates.mean.point / before.mean.point - 1.0);
        }
    }
}

/// Whether a case has not what was planned for: Criterion made fewer calls than it was asked for, the interval is wider than
/// the pilot made expect, or the percentile has no bound, for example since calls depend on one another.
fn is_missed(planned: StopReason, effort: &Effort, calls: Vec<u64>) -> bool {
    match planned {
        StopReason::Iterations => calls.len() < effort.iterations,
        StopReason::Interval => effort
            .until_interval
            .is_some_and(|percent| relative_half_width(&calls).is_none_or(|width| width > percent / 100.0)),
        StopReason::PercentileBound => effort.until_percentile.is_some_and(|percent| {
            SortedCalls::new(calls).and_then(|calls| calls.percentile_upper_bound(percent / 100.0)).is_none()
        }),
        StopReason::Budget | StopReason::MostCalls | StopReason::Arguments => false,
    }
}

fn put_observed(record: &mut Record, observed: &Observed) {
    let observed = observed.clone();
    record.effective_device = observed.effective_device;
    record.effective_dtype = observed.effective_dtype;
    record.providers = observed.providers;
    record.provider_share = observed.provider_share;
    record.device_type = observed.device_type.or(record.device_type.take());
    record.input_shape = observed.input_shape;
    record.threads = observed.threads;
    record.verified = observed.verified;
    record.max_abs_error = observed.max_abs_error;
    record.max_rel_error = observed.max_rel_error;
    record.warmup_iterations = observed.warmup_iterations;
    record.warmup_is_steady = observed.warmup_is_steady;
    record.load_time_ms = observed.load_ms;
    record.first_inference_ms = observed.first_inference_ms;
    record.compilation_time_ms = observed.compilation_ms;
    record.h2d_ms = observed.h2d_ms;
    record.compute_ms = observed.compute_ms;
    record.d2h_ms = observed.d2h_ms;
    record.memory_mb = observed.peak_memory_bytes.map(megabytes);
    record.memory_kind = observed.peak_memory_bytes.map(|_| "shared-process-peak-rss".into());
    record.model_size_mb = observed.artifact_bytes.map(megabytes);
    record.artifact_sha256 = observed.artifact_sha256;
    record.backend_version = observed.backend_version;
    record.library_version = observed.library_version;
    if record.message.is_none() {
        record.message = observed.executor.map(|executor| format!("executed by {executor}"));
    }
}

/// In a process that has loaded other cases before, files and libraries are there already.
fn put_cold_start(record: &mut Record, start: &ColdStart) {
    record.load_time_ms = Some(start.load_ms);
    // A runtime that compiles in more calls than the first tells it only of a longer run.
    record.compilation_time_ms = start.compilation_ms.or(record.compilation_time_ms);
    record.first_inference_ms = Some(start.first_inference_ms);
}

/// What a process of its own has used is better known than what the measuring process had used by then.
fn put_usage(record: &mut Record, usage: &Usage) {
    if let Some(memory) = &usage.memory {
        record.memory_mb = Some(megabytes(memory.peak_bytes));
        record.memory_avg_mb = Some(megabytes(memory.average_bytes));
        record.memory_growth_mb =
            memory.calls_peak_bytes.map(|peak| megabytes(peak.saturating_sub(memory.loaded_bytes)));
        record.memory_kind = Some("own-process-peak-rss".into());
    }
    record.device_memory_mb = usage.device_peak_bytes.map(megabytes);
    match &usage.energy {
        Ok(energy) => {
            record.energy_j_per_sample = Some(energy.joules_per_sample);
            record.power_w = Some(energy.watts);
            record.energy_kind = Some(energy.kind.clone());
        }
        Err(reason) => record.energy_kind = Some(format!("none: {reason}")),
    }
}

/// What the calls of the first process say, and how they are distributed.
fn put_calls(record: &mut Record, entry: &MeasuredEntry) -> Option<(Latencies, Distribution)> {
    let sorted = SortedCalls::new(entry.samples_ns.concat())?;
    let calls = sorted.in_order();
    record.iterations = Some(calls.len());
    record.autocorrelation = autocorrelation(calls);
    record.outliers = Some(sorted.outliers());
    let latencies = Latencies::of(&entry.samples_ns, &sorted, entry.disturbed.as_deref());
    Some((latencies, Distribution::of(&sorted, calls.len())))
}

/// Latencies, and throughput by their mean, which is Criterion's with its interval if there is one process.
fn put_processes(record: &mut Record, processes: &[Latencies], tokens_a_call: Option<usize>) {
    let Some(all) = Latencies::together(processes) else { return };
    record.processes = Some(processes.len());
    [record.latency_p50_ms, record.latency_p90_ms, record.latency_p95_ms, record.latency_p99_ms] =
        all.percentiles_ms.map(Some);
    [
        record.latency_p50_upper_ms,
        record.latency_p90_upper_ms,
        record.latency_p95_upper_ms,
        record.latency_p99_upper_ms,
    ] = all.upper_bounds_ms;
    record.latency_mean_ms = Some(all.mean_ms);
    record.latency_std_ms = all.std_ms;
    record.latency_min_ms = Some(all.min_ms);
    record.latency_max_ms = Some(all.max_ms);
    record.disturbed_share = all.disturbed_share;
    if record.phase == Phase::Prefill {
        record.first_token_ms = record.latency_p50_ms;
    }
    let confidence = record.confidence_level;
    let interval =
        |figure| confidence.and_then(|confidence| Latencies::interval(processes, figure, confidence)).unzip();
    (record.latency_p50_interval_lower_ms, record.latency_p50_interval_upper_ms) = interval(Latencies::p50_ms);
    let (mean, (shortest, longest)) = match processes {
        [_] => (record.criterion_mean_ms, (record.criterion_mean_lower_ms, record.criterion_mean_upper_ms)),
        _ => (record.latency_mean_ms, interval(|it| it.mean_ms)),
    };
    let per_second = |count: usize, ms: Option<f64>| ms.map(|ms| count as f64 / ms * 1e3);
    record.tokens_per_second = tokens_a_call.and_then(|tokens| per_second(tokens, mean));
    // A call of `decode` is a token and no sample.
    if record.phase != Phase::Decode {
        let per_second = |ms| per_second(record.batch_size, ms);
        record.throughput_ips = per_second(mean);
        // The longest mean is the lowest throughput.
        record.throughput_lower_ips = per_second(longest);
        record.throughput_upper_ips = per_second(shortest);
    }
}

fn put_criterion(record: &mut Record, entry: &MeasuredEntry) {
    let estimates = &entry.estimates;
    let parts = |estimate: &Estimate| {
        [estimate.point, estimate.lower, estimate.upper].map(|value| value.is_finite().then(|| milliseconds(value)))
    };
    [record.criterion_mean_ms, record.criterion_mean_lower_ms, record.criterion_mean_upper_ms] = parts(&estimates.mean);
    [record.criterion_median_ms, record.criterion_median_lower_ms, record.criterion_median_upper_ms] =
        parts(&estimates.median);
    [record.criterion_std_dev_ms, record.criterion_std_dev_lower_ms, record.criterion_std_dev_upper_ms] =
        parts(&estimates.std_dev);
    if let Some(slope) = &estimates.slope {
        [record.criterion_slope_ms, record.criterion_slope_lower_ms, record.criterion_slope_upper_ms] = parts(slope);
    }
    record.confidence_level = Some(estimates.mean.confidence_level);
    record.sample_count = Some(entry.samples_ns.len());
    record.sampling_mode = Some(match entry.sampling_mode {
        SamplingMode::Flat => "flat".into(),
        SamplingMode::Linear => "linear".into(),
    });
}

fn milliseconds(nanoseconds: f64) -> f64 {
    nanoseconds / 1e6
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_to_stop_is_missed_if_the_calls_do_not_give_it() {
        let effort =
            Effort { iterations: 100, until_percentile: Some(99.0), until_interval: Some(1.0), ..Effort::default() };
        let missed = |planned, calls: &[u64]| is_missed(planned, &effort, calls.to_vec());
        assert_eq!([99, 100].map(|count| missed(StopReason::Iterations, &vec![1000; count])), [true, false]);
        assert!(
            missed(StopReason::Interval, &[1000, 2000, 3000]) && !missed(StopReason::Interval, &[1000, 1001, 1000])
        );
        let (mixed, in_a_row): (Vec<u64>, Vec<u64>) =
            ((0..700).map(|call| call * 7919 % 700).collect(), (0..700).collect());
        assert!(!missed(StopReason::PercentileBound, &mixed));
        assert!(missed(StopReason::PercentileBound, &mixed[..661]));
        // As many calls, which depend on one another.
        assert!(missed(StopReason::PercentileBound, &in_a_row));
        assert!(!missed(StopReason::Budget, &[1000; 3]));
    }
}
