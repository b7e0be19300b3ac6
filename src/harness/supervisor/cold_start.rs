//! Cold starts: how long a fresh process takes from a model's file to its first output.
//!
//! Each of Criterion's samples is a process of its own, and its value is what that process reports: loading the model,
//! compiling it where the runtime does that apart, and the first call. Starting the process and loading the native
//! library are not in it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use criterion::{BenchmarkId as CriterionId, Criterion, SamplingMode};

use super::{RunEnd, Supervisor, is_interrupted};
use crate::definition::{Case, CaseFailure, Model, Status};
use crate::harness::protocol::{Job, Purpose};
use crate::harness::worker::unwinding;
use crate::run_data::{ColdStart, Event, Mode, Observed, Outcome};
use crate::statistics::median;

/// Criterion's minimum.
const PROCESSES: usize = 10;

impl Supervisor<'_> {
    /// Starts every case in fresh processes, one per sample.
    ///
    /// # Errors
    /// A worker cannot be started, or the run's folder cannot be written.
    pub(super) fn measure_cold_starts(&self) -> Result<RunEnd> {
        let mut criterion = Criterion::default()
            .sample_size(self.cold_start_samples())
            // The shortest times that there are: one process a sample.
            .measurement_time(Duration::from_nanos(1))
            .warm_up_time(Duration::from_nanos(1))
            .configure_from_args()
            .output_directory(self.criterion_root);
        let work =
            self.groups.iter().enumerate().flat_map(|(index, group)| group.cases.iter().map(move |it| (index, it)));
        for (index, work) in work {
            let start = Instant::now();
            let id = work.0.benchmark_id();
            self.folder.append(&Event::Started { id: id.clone() })?;
            let mut starts = Vec::new();
            let measured = unwinding(|| self.sample(&mut criterion, index, work, &mut starts));
            if is_interrupted() {
                return Ok(RunEnd::Interrupted);
            }
            let (status, message) = match measured {
                Ok(()) => (Status::Ok, None),
                Err(failure) => {
                    eprintln!("  {id}: {failure}");
                    (failure.status, Some(failure.message))
                }
            };
            let observed =
                ColdStart::medians(&starts, self.cold_start_samples()).map(Observed::from).unwrap_or_default();
            let seconds = start.elapsed().as_secs_f64();
            self.folder.append(&Event::Finished(Box::new(Outcome { id, status, message, observed, seconds })))?;
        }
        if self.parsed.mode() == Mode::Measure {
            criterion.final_summary();
        }
        Ok(RunEnd::Complete)
    }

    fn cold_start_samples(&self) -> usize {
        self.parsed.sample_size.map_or(PROCESSES, |samples| samples as usize)
    }

    fn sample(
        &self,
        criterion: &mut Criterion,
        index: usize,
        work: &(Case, Model),
        starts: &mut Vec<ColdStart>,
    ) -> Result<(), CaseFailure> {
        let id = work.0.benchmark_id();
        let path = self.folder.path().join("job-load.json");
        let job = Job { purpose: Purpose::Load, ..self.job(index, &[work], &Default::default()) };
        job.write(&path)?;
        let mut group = criterion.benchmark_group(id.group);
        group.sampling_mode(SamplingMode::Flat);
        group.bench_function(CriterionId::new(id.function, id.value), |bencher| {
            bencher.iter_custom(|processes| {
                (0..processes)
                    .map(|_| {
                        let start = self.start_cold(index, &work.0, &path).unwrap_or_else(|failure| {
                            // Unwinds through Criterion, which then writes nothing; `unwinding` takes it up again.
                            std::panic::resume_unwind(Box::new(failure))
                        });
                        starts.push(start);
                        Duration::from_secs_f64(start.total_ms() / 1e3)
                    })
                    .sum()
            });
        });
        group.finish();
        Ok(())
    }

    /// One process.
    fn start_cold(&self, index: usize, case: &Case, job: &Path) -> Result<ColdStart, CaseFailure> {
        let ended = self.run_worker(&self.groups[index], job)?;
        if is_interrupted() {
            return Err(CaseFailure::failed("interrupted"));
        }
        if !ended.status.success() {
            return Err(ended.failure(self.effort));
        }
        let mut outcomes = self.folder.read_outcomes();
        outcomes
            .cold_starts
            .remove(&case.to_string())
            .ok_or_else(|| CaseFailure::failed("the process reported nothing"))
    }
}

impl ColdStart {
    fn total_ms(&self) -> f64 {
        self.load_ms + self.compilation_ms.unwrap_or(0.0) + self.first_inference_ms
    }

    /// The median of each part over the last `samples` processes. Those before them are Criterion's warm-up. Returns `None`
    /// if there is no process.
    fn medians(starts: &[ColdStart], samples: usize) -> Option<ColdStart> {
        let starts = &starts[starts.len().saturating_sub(samples)..];
        let median_of =
            |part: fn(&ColdStart) -> Option<f64>| median(&starts.iter().filter_map(part).collect::<Vec<f64>>());
        Some(ColdStart {
            load_ms: median_of(|start| Some(start.load_ms))?,
            compilation_ms: median_of(|start| start.compilation_ms),
            first_inference_ms: median_of(|start| Some(start.first_inference_ms))?,
        })
    }
}

impl From<ColdStart> for Observed {
    fn from(start: ColdStart) -> Self {
        Observed {
            load_ms: Some(start.load_ms),
            compilation_ms: start.compilation_ms,
            first_inference_ms: Some(start.first_inference_ms),
            ..Observed::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_own_median_without_the_warm_up() {
        let start = |load_ms, first_inference_ms| ColdStart { load_ms, compilation_ms: None, first_inference_ms };
        let starts = [start(90.0, 90.0), start(1.0, 9.0), start(3.0, 7.0), start(2.0, 8.0)];
        let medians = ColdStart::medians(&starts, 3).unwrap();
        assert_eq!((medians.load_ms, medians.compilation_ms, medians.first_inference_ms), (2.0, None, 8.0));
        assert_eq!(medians.total_ms(), 10.0);
        assert!(ColdStart::medians(&[], 3).is_none());
    }
}
