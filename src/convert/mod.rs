//! Criterion's files, the latency log and the run's manifest → records.
//!
//! It takes the folder of a run that the harness has left. It gives the records. They are written by `history`, and
//! Criterion's own layout is known to `criterion_dir` only.
//!
//! Every case that has ended becomes a record, also one that could not run. If the entry of a case in Criterion's tree
//! is of another run, or its files do not belong together, it is refused with a reason; the rest is converted.

mod judges;
mod quality;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::criterion_dir::{Estimate, MeasuredEntry, QUICK, read_entry, read_estimates};
use crate::definition::{CLOSURE, Case, CaseFailure, Dtype, Effort, NULL, Phase, Status};
use crate::run_data::{
    BY_REFERENCE, Distribution, Latencies, Manifest, ManifestCase, Metric, Outcomes, Peaks, Record, RunFolder,
    StopReason,
};
use crate::statistics::{SortedCalls, autocorrelation, relative_half_width};

/// The result of a conversion.
pub struct Conversion {
    pub manifest: Manifest,
    pub records: Vec<Record>,
    /// Figures of the cases that are not columns of their records.
    pub metrics: Vec<Metric>,
    /// The distribution of the calls of each measured case, by its id.
    pub distributions: BTreeMap<String, Distribution>,
    /// Cases whose measurement in Criterion's tree is not in the records, with the reason.
    pub refused: Vec<(String, String)>,
}

/// Converts a run whose measurements are in `baseline` of Criterion's tree: `new`, or a saved name. `measured` gets
/// each record that has figures, with the calls that they are made of.
///
/// # Errors
/// The manifest cannot be read, and the first error of `measured`. Entries that cannot be read are in
/// [`Conversion::refused`].
pub fn convert(
    folder: &RunFolder,
    criterion_root: &Path,
    baseline: &str,
    mut measured: impl FnMut(&Record, &MeasuredEntry) -> Result<()>,
) -> Result<Conversion> {
    let manifest = folder.read_manifest()?;
    let outcomes = folder.read_outcomes()?;
    let answers = quality::Answers::read(folder, &manifest);
    let context = Context { manifest: &manifest, outcomes: &outcomes, answers: &answers, criterion_root, baseline };
    let (mut records, mut distributions) = (Vec::with_capacity(manifest.cases.len()), BTreeMap::new());
    let mut refused = Vec::new();
    for planned in &manifest.cases {
        let Some(mut record) = known(&manifest, &outcomes, planned) else { continue };
        match context.put_measurement(&mut record) {
            Ok(None) => {}
            Ok(Some((entry, distribution))) => {
                measured(&record, &entry)?;
                distributions.extend(distribution.map(|of| (record.case_id.clone(), of)));
            }
            Err(error) => {
                let reason = format!("{error:#}");
                record.fail(CaseFailure::failed(format!("its measurement was not converted: {reason}")));
                refused.push((record.case_id.clone(), reason));
            }
        }
        records.push(record);
    }
    agree_both_ways(&mut records);
    let metrics = records.iter().flat_map(|record| answers.metrics_of(record).into_iter().chain(rate_of_code(record)));
    let metrics = metrics.collect();
    Ok(Conversion { manifest, records, metrics, distributions, refused })
}

/// How many of its elements code handles per second; the column `modality` says what the elements are. Neither
/// direction is better here: the time says the same, and its verdict knows the noise between runs.
fn rate_of_code(record: &Record) -> Option<Metric> {
    Some(Metric {
        run_id: record.run_id.clone(),
        case_id: record.case_id.clone(),
        metric: "throughput".into(),
        value: record.throughput_ips.filter(|_| record.backend == CLOSURE)?,
        lower: record.throughput_lower_ips,
        upper: record.throughput_upper_ips,
        unit: format!("{}/s", record.modality),
        host_id: Some(record.host_id.clone()),
        ..Metric::default()
    })
}

/// The records of a verification, which has measured nothing: what became of each case, and what was observed of it.
pub fn verified(manifest: &Manifest, outcomes: &Outcomes) -> Vec<Record> {
    let record =
        |planned| known(manifest, outcomes, planned).unwrap_or_else(|| failed(manifest, planned, "not reached"));
    let mut records: Vec<Record> = manifest.cases.iter().map(record).collect();
    agree_both_ways(&mut records);
    records
}

/// If a backend's outputs agree with another's, the other backend is verified, too.
fn agree_both_ways(records: &mut [Record]) {
    let is_agreed =
        |record: &&Record| record.verified == Some(true) && record.verified_by.as_deref() != Some(BY_REFERENCE);
    let agreed: Vec<(Case, String)> =
        records.iter().filter(is_agreed).filter_map(|it| Some((it.case(), it.verified_by.clone()?))).collect();
    for (case, with) in agreed {
        let (backend, dtype) = with.split_once(" in ").unwrap_or((&with, case.dtype.name()));
        let is_other = |record: &&mut Record| {
            let other = record.case();
            let is_compared =
                other.benchmark_id().group == case.benchmark_id().group && other.batch_size == case.batch_size;
            let is_open = record.status == Status::Ok && record.verified.is_none();
            is_compared && other.backend == backend && other.dtype.name() == dtype && is_open
        };
        if let Some(other) = records.iter_mut().find(is_other) {
            other.verified = Some(true);
            let is_dtype_same = other.dtype == case.dtype;
            let by = if is_dtype_same { case.backend } else { format!("{} in {}", case.backend, case.dtype) };
            other.verified_by = Some(by);
        }
    }
}

/// What is known of a case besides its measurement. Returns `None` if the run was stopped before the case ended: that
/// says nothing about the case.
fn known(manifest: &Manifest, outcomes: &Outcomes, planned: &ManifestCase) -> Option<Record> {
    if planned.failure.is_some() {
        return Some(manifest.row(planned));
    }
    outcomes.row(&planned.case.to_string()).cloned()
}

fn failed(manifest: &Manifest, planned: &ManifestCase, why: &str) -> Record {
    let mut row = manifest.row(planned);
    row.fail(CaseFailure::failed(why));
    row
}

struct Context<'a> {
    manifest: &'a Manifest,
    outcomes: &'a Outcomes,
    answers: &'a quality::Answers,
    criterion_root: &'a Path,
    baseline: &'a str,
}

impl Context<'_> {
    /// Adds the measurement of a case, and returns its calls and their distribution. Returns `None` if nothing was
    /// measured.
    ///
    /// # Errors
    /// The calls are of another run, were made up by `--quick`, or are not whole.
    fn put_measurement(&self, record: &mut Record) -> Result<Option<(MeasuredEntry, Option<Distribution>)>> {
        let id = record.case_id.clone();
        let Some(outcome) = self.outcomes.finished.get(&id).filter(|_| record.status.is_measured()) else {
            return Ok(None);
        };
        let folder = self.criterion_root.join(&id);
        ensure!(!self.manifest.is_quick, QUICK);
        let entry = read_entry(&folder.join(self.baseline))?;
        let when = if entry.run_id > self.manifest.run_id { "since" } else { "before" };
        ensure!(entry.run_id == self.manifest.run_id, "stale: run {} has measured it {when}", entry.run_id);
        let (first, distribution) = put_calls(record, &entry).unzip();
        let further = self.outcomes.further.get(&id).into_iter().flatten().cloned();
        let processes: Vec<Latencies> = first.into_iter().chain(further).collect();
        // The reason that was planned, marked if it was missed.
        let planned = record.stopped_by.as_ref().and_then(|reason| reason.parse().ok());
        if planned.is_some_and(|reason| is_missed(reason, &self.manifest.suite.effort, entry.samples_ns.concat())) {
            record.stopped_by = record.stopped_by.take().map(|reason| reason + "-missed");
        }
        put_criterion(record, &entry);
        put_processes(record, &processes, outcome.tokens_a_call);
        put_speed(record, self.manifest.peaks.as_ref());
        if let Some(name) = &self.manifest.compared_baseline
            && let Ok(before) = read_estimates(&folder.join(name))
        {
            record.baseline = Some(name.clone());
            record.change_vs_baseline = Some(entry.estimates.mean.point / before.mean.point - 1.0);
        }
        self.answers.put_into(record);
        if let Some(why) = self.why_not_evaluated(&id) {
            quality::add_note(record, format!("its answers were not evaluated: {why}"));
        }
        Ok(Some((entry, distribution)))
    }

    fn why_not_evaluated(&self, id: &str) -> Option<&str> {
        if self.outcomes.unevaluated.as_deref() == Some(id) {
            return Some("the run was stopped before; `--resume` evaluates it");
        }
        self.outcomes.evaluated.get(id)?.as_deref()
    }
}

/// Whether a case missed what was planned: Criterion made fewer calls than it was asked for, the interval is wider than
/// the pilot predicted, or the percentile has no bound, for example because calls depend on one another.
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

/// Adds figures of the first process's calls, and returns their latencies and distribution.
fn put_calls(record: &mut Record, entry: &MeasuredEntry) -> Option<(Latencies, Distribution)> {
    let sorted = SortedCalls::new(entry.samples_ns.concat())?;
    let calls = sorted.in_order();
    record.iterations = Some(calls.len());
    record.autocorrelation = autocorrelation(calls);
    record.outliers = Some(sorted.outliers());
    let latencies = Latencies::of(&entry.samples_ns, &sorted, entry.disturbed.as_deref());
    Some((latencies, Distribution::of(&sorted, calls.len())))
}

/// Adds latencies and throughput. Throughput is by the mean, which is Criterion's with its interval if there is one
/// process.
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
    // A call of `decode` makes a token, not a sample.
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
        [estimate.point, estimate.interval.lower, estimate.interval.upper]
            .map(|nanoseconds| Some(nanoseconds / 1e6).filter(|ms| ms.is_finite()))
    };
    [record.criterion_mean_ms, record.criterion_mean_lower_ms, record.criterion_mean_upper_ms] = parts(&estimates.mean);
    [record.criterion_median_ms, record.criterion_median_lower_ms, record.criterion_median_upper_ms] =
        parts(&estimates.median);
    [record.criterion_std_dev_ms, record.criterion_std_dev_lower_ms, record.criterion_std_dev_upper_ms] =
        parts(&estimates.std_dev);
    if let Some(slope) = &estimates.slope {
        [record.criterion_slope_ms, record.criterion_slope_lower_ms, record.criterion_slope_upper_ms] = parts(slope);
    }
    record.confidence_level = Some(estimates.mean.interval.confidence_level);
    record.sample_count = Some(entry.samples_ns.len());
    record.sampling_mode = Some(entry.sampling_mode.to_lowercase());
}

/// Adds the FLOP/s by the mean latency, which has to be there, and their percentage of the machine's peaks. These are
/// of f32 on the processor, with the threads that the run asked for. The null backend computes nothing, so it has
/// neither.
fn put_speed(record: &mut Record, peaks: Option<&Peaks>) {
    if record.backend == NULL {
        return;
    }
    let per_second = |(flops, ms): (u64, f64)| flops as f64 / ms / 1e6;
    record.gflops_per_second = record.flops.zip(record.latency_mean_ms).map(per_second);
    let has_threads = |peaks: &&Peaks| record.threads.is_none_or(|threads| threads == peaks.threads);
    let is_of_peaks = record.device == "cpu" && [Some(record.dtype), record.effective_dtype] == [Some(Dtype::F32); 2];
    let peaks = peaks.filter(has_threads).filter(|_| is_of_peaks);
    let all = record.gflops_per_second.zip(record.arithmetic_intensity).zip(peaks);
    record.roofline_percent = all.and_then(|((speed, intensity), peaks)| peaks.roofline_percent(speed, intensity));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Cost;

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
        // As many calls that depend on one another.
        assert!(missed(StopReason::PercentileBound, &in_a_row));
        assert!(!missed(StopReason::Budget, &[1000; 3]));
    }

    #[test]
    fn the_row_that_ran_is_verified_and_not_that_of_a_device_that_is_not_there() {
        let record = |backend: &str, device: &str, status| {
            let case = Case { device: device.into(), ..Case::new("m", backend, 1) };
            Record { status, ..Record::default().about(&case) }
        };
        let (mut verified, other) = (record("tch", "cpu", Status::Ok), record("ort", "cpu", Status::Ok));
        (verified.verified, verified.verified_by) = (Some(true), Some("ort".into()));
        let mut records = [record("ort", "cuda", Status::Unavailable), other, verified];
        agree_both_ways(&mut records);
        assert_eq!(records.map(|record| record.verified), [None, Some(true), Some(true)]);
        let (mut half, full) = (record("tch", "cpu", Status::Ok), record("ort", "cpu", Status::Ok));
        (half.dtype, half.verified, half.verified_by) = (Dtype::F16, Some(true), Some("ort in f32".into()));
        let mut records = [full, half];
        agree_both_ways(&mut records);
        assert_eq!(records[0].verified_by.as_deref(), Some("tch in f16"));
    }

    fn record(case: &Case, threads: usize) -> Record {
        let mut record = Record::default().about(case);
        (record.threads, record.latency_mean_ms) = (Some(threads), Some(2.0));
        record.effective_dtype = Some(case.dtype);
        record.put_cost(Some(Cost { flops: 80_000_000, bytes: 10_000_000, ..Cost::default() }));
        let (product_gflops_per_second, copy_gb_per_second) = (100.0, 20.0);
        put_speed(
            &mut record,
            Some(&Peaks { threads: 2, product_gflops_per_second, copy_gb_per_second, ..Peaks::default() }),
        );
        record
    }

    #[test]
    fn the_percentage_is_of_the_lower_of_the_two_roofs() {
        let record = record(&Case::new("m", "ort", 1), 2);
        assert_eq!((record.flops, record.arithmetic_intensity), (Some(80_000_000), Some(8.0)));
        // 8 operations a byte at 20 GB/s are more than the product's 100 GFLOP/s.
        assert_eq!((record.gflops_per_second, record.roofline_percent), (Some(40.0), Some(40.0)));
    }

    #[test]
    fn a_case_that_the_peaks_are_not_of_has_no_percentage() {
        let plain = Case::new("m", "ort", 1);
        let half = record(&Case { dtype: Dtype::F16, ..plain.clone() }, 2);
        assert_eq!(
            (half.gflops_per_second, half.arithmetic_intensity, half.roofline_percent),
            (Some(40.0), None, None)
        );
        let elsewhere = record(&Case { device: "cuda".into(), ..plain.clone() }, 2);
        assert_eq!((elsewhere.arithmetic_intensity, elsewhere.roofline_percent), (Some(8.0), None));
        assert_eq!(record(&plain, 1).roofline_percent, None);
        let null = record(&Case::new("m", NULL, 1), 2);
        assert_eq!((null.flops, null.gflops_per_second, null.roofline_percent), (Some(80_000_000), None, None));
    }
}
