//! Measures cases with Criterion: registers every case of the run, and measures those of the job.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use criterion::{
    AxisScale, BenchmarkGroup, BenchmarkId as CriterionId, Criterion, PlotConfiguration, SamplingMode, Throughput,
};
use indexmap::IndexMap;

use super::case_outcome::recorded;
use super::loaded_case::{LoadedCase, Worker, note_parts};
use super::profile::CriterionStacks;
use crate::criterion_dir::{LATENCY_LOG, LatencyLog};
use crate::definition::{BenchmarkId, Case, CaseFailure, Dtype, Effort};
use crate::fixture::seeded::Stream;
use crate::harness::protocol::{Job, WorkItem};
use crate::measurement::{self, LoggedSamples, SampleLog, Sampling, TimedSession, WarmUp, memory, unwinding};
use crate::report::numbers::plural;
use crate::run_data::{BY_REFERENCE, CriterionArguments, Mode, Outcome, Record, write_whole};

/// The length of Criterion's own warm-up, which follows ours and decides the number of calls per sample. A single call
/// would decide wrongly if it were interrupted.
const CALIBRATION_SECONDS: f64 = 0.05;

/// Criterion's own default, ten times as many, takes three seconds per case, mostly for the curves in its pages. The chance in
/// 10,000 resamples moves a limit of a 95 % interval by about 1.4 % of half its width: √(0.025 · 0.975 / 10,000) / φ(1.96) / 1.96.
const RESAMPLES: usize = 10_000;

/// Registers every case with Criterion and measures those of the job, under Criterion's command line.
pub fn measure(job: &Job) -> Result<()> {
    let arguments = CriterionArguments::parse_from(std::env::args_os().skip(1));
    let log = SampleLog::default();
    let mut criterion = Criterion::default()
        .with_measurement(log.clone())
        .with_profiler(CriterionStacks::default())
        .nresamples(RESAMPLES)
        .configure_from_args()
        .with_filter(exactly_one_of(&job.work))
        .output_directory(&job.criterion_root);

    let mut worker = CriterionWorker {
        worker: Worker::new(job),
        arguments,
        work: job.work.iter().map(|item| (item.id(), item)).collect(),
        cases_begun: 0,
        seconds_left: job.seconds_left,
        log,
    };
    for cases in groups(&job.registered, job.effort.shuffle) {
        let mut group = criterion.benchmark_group(cases[0].benchmark_id().group);
        group.plot_config(PlotConfiguration::default().summary_scale(AxisScale::Logarithmic));
        group.sampling_mode(SamplingMode::Flat);
        for case in cases {
            worker.register(&mut group, case)?;
        }
        group.finish();
    }
    criterion.final_summary();
    Ok(())
}

/// A filter that Criterion matches against whole ids.
fn exactly_one_of(work: &[WorkItem]) -> String {
    let ids: Vec<String> = work.iter().map(|item| regex::escape(&item.case.to_string())).collect();
    format!("^(?:{})$", ids.join("|"))
}

/// Cases by Criterion's group: a backend's batch sizes next to each other in ascending order, unless they are shuffled. A
/// group stays together: its page shows what was registered between its begin and its end.
pub fn groups(registered: &[Case], shuffle: Option<u64>) -> Vec<Vec<&Case>> {
    let mut groups: IndexMap<String, Vec<&Case>> = IndexMap::new();
    for case in registered {
        groups.entry(case.benchmark_id().group).or_default().push(case);
    }
    let mut groups: Vec<Vec<&Case>> = groups.into_values().collect();
    for group in &mut groups {
        // f32 first: outputs in other dtypes are compared with it if there is no reference.
        group.sort_by_key(|case| (case.dtype != Dtype::F32, case.benchmark_id().function, case.batch_size));
    }
    if let Some(seed) = shuffle {
        let order = |case: &&Case| (case.dtype != Dtype::F32, Stream::new(seed, &case.to_string()).at(0));
        groups.iter_mut().for_each(|group| group.sort_by_key(order));
        groups.sort_by_key(|group| Stream::new(seed, &group[0].benchmark_id().group).at(0));
    }
    groups
}

/// The sampling that the suite asks for, unless Criterion's arguments override it.
pub fn sampling(effort: &Effort, arguments: &CriterionArguments, warm_up: &WarmUp, pilot: &[u64]) -> Sampling {
    let mut effort = effort.clone();
    if let Some(seconds) = arguments.measurement_time {
        // It limits the requested iterations, as `--budget` does.
        (effort.budget_seconds, effort.are_iterations_explicit) = (seconds, false);
    }
    let sampling = Sampling::choose(&effort, warm_up.planned_call_ns(), pilot);
    match arguments.sample_size {
        Some(samples) => sampling.in_samples(samples as usize),
        None => sampling,
    }
}

struct CriterionWorker<'a> {
    worker: Worker<'a>,
    arguments: CriterionArguments,
    work: HashMap<String, &'a WorkItem>,
    cases_begun: usize,
    /// Expected seconds for the rest of the run.
    seconds_left: f64,
    log: SampleLog,
}

type Group<'g> = BenchmarkGroup<'g, SampleLog>;

impl CriterionWorker<'_> {
    /// Registers a case, and measures it if it is this process's. A case that goes wrong is an outcome, not an error.
    fn register(&mut self, group: &mut Group<'_>, case: &Case) -> Result<()> {
        let id = case.benchmark_id();
        group.throughput(Throughput::Elements(case.batch_size as u64));
        let is_measured = self.arguments.mode() != Mode::Load;
        let Some(item) = self.work.get(&id.to_string()).copied().filter(|_| is_measured) else {
            // Criterion reads the case from disk, for the group's page, too; the closure does not run.
            group.bench_function(CriterionId::new(&id.function, &id.value), |_| {});
            return Ok(());
        };
        self.announce(item);
        let status = recorded(&self.worker.job.folder, item, |outcome| {
            let loaded = self.measure(group, item, &id, outcome)?;
            self.worker.release(loaded);
            Ok(())
        })?;
        self.worker.note_end(case, status);
        Ok(())
    }

    fn measure(
        &mut self,
        group: &mut Group<'_>,
        item: &WorkItem,
        id: &BenchmarkId,
        outcome: &mut Outcome,
    ) -> Result<LoadedCase, CaseFailure> {
        let mut loaded = unwinding(|| self.worker.load(item, outcome))?;
        let warm_up = loaded.warm_up(&self.worker.job.effort)?;
        outcome.row.warmup_is_steady = Some(warm_up.is_steady);
        let pilot = measurement::pilot(&mut loaded.session, &self.worker.job.effort, warm_up.planned_call_ns())?;
        let sampling = sampling(&self.worker.job.effort, &self.arguments, &warm_up, &pilot);
        outcome.row.stopped_by = Some(sampling.stop.to_string());
        self.announce_sampling(sampling, &warm_up, outcome);
        let before_sampling = [warm_up.calls.as_slice(), &pilot].concat();
        outcome.row.warmup_iterations = Some(before_sampling.len());
        // Criterion divides the time that it is given by the mean of its own short warm-up.
        let are_calls_grouped = sampling.calls_per_sample > 1;
        let call_ns = match loaded.session.session().has_own_clock() {
            true if are_calls_grouped => calibrated_call_ns(&mut loaded.session)?,
            _ => warm_up.mean_call_ns((1e9 * CALIBRATION_SECONDS) as u64).max(warm_up.expected_call_ns()),
        };
        self.log.begin();
        self.sample(group, &mut loaded, sampling, call_ns, id)?;
        let samples = self.log.take();
        // Criterion's own warm-up calls come before the measured ones.
        let calls = samples.samples_ns.iter().map(Vec::len).sum();
        note_parts(&loaded.session.take_parts(), calls, &mut outcome.row);
        outcome.row.calls_together = loaded.session.session().placement().together;
        if let Some(expectation) = &loaded.expectation {
            expectation.verify_again(loaded.session.session())?;
        }
        outcome.row.memory_mb = memory::peak_bytes().map(memory::megabytes);
        outcome.row.memory_kind = outcome.row.memory_mb.map(|_| "shared-process-peak-rss".into());
        if self.arguments.mode() == Mode::Measure && !self.arguments.discard_baseline {
            self.keep(id, before_sampling, samples)?;
        }
        Ok(loaded)
    }

    fn sample(
        &self,
        group: &mut Group<'_>,
        loaded: &mut LoadedCase,
        sampling: Sampling,
        call_ns: u64,
        id: &BenchmarkId,
    ) -> Result<(), CaseFailure> {
        group.sample_size(sampling.samples);
        group.measurement_time(sampling.measurement_time(call_ns));
        let warm_up_time = self.arguments.warm_up_time.unwrap_or(CALIBRATION_SECONDS).max(1e-9);
        group.warm_up_time(Duration::from_secs_f64(warm_up_time));

        unwinding(|| {
            group.bench_function(CriterionId::new(&id.function, &id.value), |bencher| {
                bencher.iter_custom(|calls| match loaded.session.call(calls) {
                    Ok(times) => times,
                    // Unwinds through Criterion, which then writes nothing; `unwinding` returns the failure.
                    Err(failure) => resume_unwind(Box::new(failure)),
                });
            });
            Ok(())
        })
    }

    /// Puts the latency log beside Criterion's files.
    fn keep(&self, id: &BenchmarkId, warm_up_ns: Vec<u64>, samples: LoggedSamples) -> Result<()> {
        let LoggedSamples { samples_ns, disturbed } = samples;
        let log = LatencyLog { run_id: self.worker.job.folder.id(), warm_up_ns, samples_ns, disturbed };
        let folder = self.worker.job.criterion_root.join(id.to_string());
        for name in std::iter::once("new").chain(self.arguments.save_baseline.as_deref()) {
            write_whole(&folder.join(name).join(LATENCY_LOG), &serde_json::to_vec(&log)?)?;
        }
        Ok(())
    }

    fn announce(&mut self, item: &WorkItem) {
        self.cases_begun += 1;
        let number = self.worker.job.cases_before + self.cases_begun;
        let left = minutes(self.seconds_left);
        eprintln!("\n[{number}/{}] {}, about {left} left", self.worker.job.cases_in_all, item.case);
        self.seconds_left -= item.expected_seconds;
    }

    fn announce_sampling(&self, sampling: Sampling, warm_up: &WarmUp, outcome: &Outcome) {
        if self.arguments.mode() != Mode::Measure {
            return;
        }
        let Record { verified_by, max_rel_error, .. } = &outcome.row;
        let compared = verified_by.as_deref().zip(*max_rel_error).filter(|_| outcome.row.verified == Some(true));
        let verified = match compared {
            Some((BY_REFERENCE, error)) => format!("outputs right (error {error:.0e})"),
            Some((other, error)) => format!("outputs agree with those of {other} (error {error:.0e})"),
            None => "outputs not compared".into(),
        };
        let load_time = Duration::from_secs_f64(outcome.row.load_time_ms.unwrap_or_default() / 1e3);
        let loaded = format!("loaded in {load_time:.0?}");
        let loaded = if outcome.is_session_shared { "same session" } else { &loaded };
        let calls = sampling.samples as u64 * sampling.calls_per_sample;
        let call = Duration::from_nanos(warm_up.expected_call_ns());
        eprintln!(
            "  {loaded}, {verified}, {} of {call:.1?}: {calls} calls in {} samples, about {:.1} s",
            plural(warm_up.calls.len(), "warm-up call", "warm-up calls"),
            sampling.samples,
            calls as f64 * warm_up.planned_call_ns() as f64 / 1e9,
        );
    }
}

/// The time of a call that Criterion's own warm-up finds for another process: with untimed calls and communication.
fn calibrated_call_ns(session: &mut TimedSession) -> Result<u64, CaseFailure> {
    let (start, mut calls, mut next) = (Instant::now(), 0, 1);
    while start.elapsed().as_secs_f64() <= CALIBRATION_SECONDS {
        session.call(next)?;
        (calls, next) = (calls + next, 2 * next);
    }
    Ok(start.elapsed().as_nanos() as u64 / calls.max(1))
}

fn minutes(seconds: f64) -> String {
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(shuffle: Option<u64>) -> Vec<String> {
        let case = |model: &str, batch_size| Case::new(model, "ort", batch_size);
        let models = ["a", "b", "c", "d", "e"];
        let cases: Vec<Case> = models.iter().flat_map(|model| [8, 1, 2].map(|batch| case(model, batch))).collect();
        groups(&cases, shuffle).concat().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn arguments_of_criterion_do_not_multiply_the_calls() {
        let warm_up = WarmUp { calls: vec![5_000_000; 10], is_steady: true };
        let effort = Effort { iterations: 1000, are_iterations_explicit: true, ..Effort::default() };
        let calls = |sample_size, measurement_time| {
            let arguments = CriterionArguments { sample_size, measurement_time, ..CriterionArguments::default() };
            let sampling = sampling(&effort, &arguments, &warm_up, &[]);
            sampling.samples as u64 * sampling.calls_per_sample
        };
        assert_eq!([None, Some(1000), Some(10)].map(|samples| calls(samples, None)), [1000; 3]);
        assert_eq!([None, Some(200)].map(|samples| calls(samples, Some(2.0))), [400; 2]);
    }

    #[test]
    fn f32_comes_before_the_dtypes_that_are_compared_with_it() {
        let cases: Vec<Case> =
            [Dtype::Bf16, Dtype::F16, Dtype::F32].map(|dtype| Case { dtype, ..Case::new("m", "ort", 1) }).into();
        for shuffle in [None, Some(1), Some(2), Some(3), Some(4)] {
            assert_eq!(groups(&cases, shuffle)[0][0].dtype, Dtype::F32);
        }
    }

    #[test]
    fn a_shuffled_order_has_all_cases_and_is_that_of_its_seed() {
        assert_eq!(order(None)[..4], ["a/ort-cpu-f32/1", "a/ort-cpu-f32/2", "a/ort-cpu-f32/8", "b/ort-cpu-f32/1"]);
        assert_eq!(order(Some(1)), order(Some(1)));
        assert_ne!(order(Some(1)), order(Some(2)));
        let mut sorted = order(Some(1));
        sorted.sort();
        assert_eq!(sorted, order(None));
    }
}
