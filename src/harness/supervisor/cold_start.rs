//! Cold starts: how long a fresh process takes from a model's file to its first output.
//!
//! Each of Criterion's samples is a process of its own, and its value is what that process reports: loading the model,
//! tracing and compiling it if the runtime reports these separately, and the first call. Starting the process and
//! loading the native library are not included.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use criterion::{BenchmarkId as CriterionId, Criterion, SamplingMode};

use super::{Interrupted, Supervisor, is_interrupted};
use crate::definition::{Case, CaseFailure};
use crate::harness::protocol::{Job, Purpose, WorkItem};
use crate::measurement::unwinding;
use crate::run_data::{Event, Mode, Outcome, Outcomes, Record};
use crate::statistics::median;

/// Criterion's minimum.
const PROCESSES: usize = 10;

impl Supervisor {
    /// Starts every case in fresh processes, one per sample.
    pub(super) fn measure_cold_starts(&self) -> Result<()> {
        let mut criterion = Criterion::default()
            .sample_size(self.cold_start_samples())
            // The shortest possible times make Criterion start one process per sample.
            .measurement_time(Duration::from_nanos(1))
            .warm_up_time(Duration::from_nanos(1))
            .configure_from_args()
            .output_directory(&self.job.criterion_root);
        for item in self.groups.iter().flatten() {
            if !self.is_right(item)? {
                continue;
            }
            let start = Instant::now();
            self.job.folder.append(&Event::Started { id: item.id() })?;
            let mut starts = Vec::new();
            let measured = unwinding(|| self.sample(&mut criterion, item, &mut starts));
            if is_interrupted() {
                bail!(Interrupted);
            }
            let mut row = with_medians(item.row.clone(), &starts, self.cold_start_samples());
            if let Err(failure) = measured {
                eprintln!("  {}: {failure}", item.case);
                row.fail(failure);
            }
            let outcome = Outcome { seconds: start.elapsed().as_secs_f64(), ..Outcome::new(row) };
            self.job.folder.append(&Event::Finished(Box::new(outcome)))?;
        }
        if self.parsed.mode() == Mode::Measure {
            criterion.final_summary();
        }
        Ok(())
    }

    /// Verifies the case in a separate process, since cold starts only record times. Returns whether it may be
    /// measured.
    fn is_right(&self, item: &WorkItem) -> Result<bool> {
        let job = Job { purpose: Purpose::Confirm, ..self.job.clone() };
        let is_open = |outcomes: &Outcomes, id: &str| !outcomes.finished.contains_key(id);
        self.work_through(std::slice::from_ref(item), &job, "verify", is_open, |item, ended| {
            let failure = ended.failure();
            eprintln!("  {}: {failure}", item.case);
            let mut outcome = Outcome { seconds: ended.seconds_in_case, ..Outcome::new(item.row.clone()) };
            outcome.row.fail(failure);
            Event::Finished(Box::new(outcome))
        })?;
        Ok(self.job.folder.read_outcomes()?.row(&item.id()).is_some_and(|row| row.status.is_measured()))
    }

    fn cold_start_samples(&self) -> usize {
        self.parsed.sample_size.map_or(PROCESSES, |samples| samples as usize)
    }

    fn sample(&self, criterion: &mut Criterion, item: &WorkItem, starts: &mut Vec<Record>) -> Result<(), CaseFailure> {
        let id = item.case.benchmark_id();
        let job = self.with_work(&self.job, &[item], &Outcomes::default());
        let mut group = criterion.benchmark_group(id.group);
        group.sampling_mode(SamplingMode::Flat);
        group.bench_function(CriterionId::new(id.function, id.value), |bencher| {
            bencher.iter_custom(|processes| {
                (0..processes)
                    .map(|_| {
                        let start = self.start_cold(&job, &item.case).unwrap_or_else(|failure| {
                            // Unwinds through Criterion, which then writes nothing; `unwinding` returns the failure.
                            std::panic::resume_unwind(Box::new(failure))
                        });
                        let seconds = total_ms(&start) / 1e3;
                        starts.push(start);
                        Duration::from_secs_f64(seconds)
                    })
                    .sum()
            });
        });
        group.finish();
        Ok(())
    }

    fn start_cold(&self, job: &Job, case: &Case) -> Result<Record, CaseFailure> {
        let ended = self.run_worker(job, "load")?;
        if !ended.status.success() {
            return Err(ended.failure());
        }
        let outcomes = self.job.folder.read_outcomes().map_err(|why| CaseFailure::failed(format!("{why:#}")));
        let start = outcomes?.observed.remove(&case.to_string());
        start.ok_or_else(|| CaseFailure::failed("the process reported nothing"))
    }
}

fn total_ms(start: &Record) -> f64 {
    let Record { load_time_ms, trace_time_ms, compilation_time_ms, first_inference_ms, .. } = start;
    [load_time_ms, trace_time_ms, compilation_time_ms, first_inference_ms].into_iter().flatten().sum()
}

/// The row with the median of each part over the last `samples` processes. Those before them are Criterion's warm-up.
fn with_medians(row: Record, starts: &[Record], samples: usize) -> Record {
    let starts = &starts[starts.len().saturating_sub(samples)..];
    let median_of = |part: fn(&Record) -> Option<f64>| median(&starts.iter().filter_map(part).collect::<Vec<f64>>());
    Record {
        load_time_ms: median_of(|start| start.load_time_ms),
        trace_time_ms: median_of(|start| start.trace_time_ms),
        compilation_time_ms: median_of(|start| start.compilation_time_ms),
        first_inference_ms: median_of(|start| start.first_inference_ms),
        ..row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_own_median_without_the_warm_up() {
        let start = |load_time_ms, first_inference_ms| Record {
            load_time_ms: Some(load_time_ms),
            trace_time_ms: Some(0.5 * load_time_ms),
            first_inference_ms: Some(first_inference_ms),
            ..Record::default()
        };
        let starts = [start(90.0, 90.0), start(1.0, 9.0), start(3.0, 7.0), start(2.0, 8.0)];
        let medians = with_medians(Record::default(), &starts, 3);
        assert_eq!((total_ms(&medians), medians), (11.0, start(2.0, 8.0)));
        assert_eq!(with_medians(Record::default(), &[], 3), Record::default());
    }
}
