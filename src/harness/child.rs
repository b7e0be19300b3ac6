//! A child process: registers every case with Criterion and measures those of one backend and device.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use criterion::{
    AxisScale, BenchmarkGroup, BenchmarkId as CriterionId, Criterion, PlotConfiguration, SamplingMode, Throughput,
};

use super::arguments::{CriterionArguments, Mode};
use super::assignment::{Assignment, Purpose, WorkItem};
use super::evaluation::evaluate;
use super::manifest::{Event, Judgement, Observed, Outcome, RunFolder};
use super::round;
use super::trial::{self, Fixtures, Trial};
use crate::criterion_dir::{LatencyLog, write_latency_log};
use crate::definition::{BenchmarkId, Case, CaseFailure, Status};
use crate::fixture::seeded::Stream;
use crate::measurement::{self, LoggedSamples, LoggedWallTime, SampleLog, Sampling, Stop, WarmUp, memory};

/// Criterion's own warm-up comes after the detected one, and decides the number of calls in a sample: of a single call,
/// which may be interrupted, it would take the wrong one.
const CALIBRATION_SECONDS: f64 = 0.05;
/// How often a child that judges answers says how far it is: to the user, and to the parent that it is alive.
const JUDGING_SAYS_EVERY: Duration = Duration::from_secs(10);

/// Runs the cases of the assignment, under the command line that Criterion reads.
pub fn run(assignment_path: &Path) -> ExitCode {
    let assignment = match Assignment::read(assignment_path) {
        Ok(assignment) => assignment,
        Err(error) => {
            eprintln!("inferbench: {error}");
            return ExitCode::from(2);
        }
    };
    end_with_parent(assignment.parent_process);
    let result = match assignment.purpose {
        Purpose::Verify => verify(&assignment),
        Purpose::Watch => watch(&assignment),
        Purpose::Load => start_cold(&assignment),
        Purpose::Round(terms) => round::time_calls(&assignment, terms),
        Purpose::Measure | Purpose::MeasureUnproven => measure(&assignment),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("inferbench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs each case once and compares its outputs.
///
/// # Errors
/// The run's folder cannot be written any more.
fn verify(assignment: &Assignment) -> Result<(), String> {
    let folder = RunFolder::new(assignment.run_folder.clone());
    let mut fixtures = Fixtures::default();
    for (index, item) in assignment.work.iter().enumerate() {
        eprintln!("[{}/{}] {}", assignment.cases_before + index + 1, assignment.cases_in_all, item.case);
        recorded(&folder, &item.case.benchmark_id(), |observed| {
            unwinding(|| {
                let mut trial = trial::load_and_prove(&item.case, &item.model, assignment, &mut fixtures, observed)?;
                observed.rough_call_ms = Some(trial.rough_call_ms()?);
                Ok(())
            })
        })?;
    }
    Ok(())
}

/// Runs some calls of each case and notes what they use.
///
/// # Errors
/// A case cannot run any more, or the run's folder cannot be written.
fn watch(assignment: &Assignment) -> Result<(), String> {
    let folder = RunFolder::new(assignment.run_folder.clone());
    let mut fixtures = Fixtures::default();
    for item in &assignment.work {
        let id = item.case.benchmark_id();
        let start = Instant::now();
        let mut observed = Observed::default();
        let usage = unwinding(|| {
            let loaded = trial::load(&item.case, &item.model, assignment, &mut fixtures, &mut observed)?;
            let mut session = trial::timed(loaded.session, loaded.ring, item.case.boundary);
            measurement::watch(&mut session, &item.case.device, item.case.batch_size, assignment.effort.budget_seconds)
        });
        let usage = usage.map_err(|failure| format!("{id}: {failure}"))?;
        folder.append(&Event::cold_start(id.clone(), &observed))?;
        folder.append(&Event::Watched { id, usage, seconds: start.elapsed().as_secs_f64() })?;
    }
    Ok(())
}

/// Loads each case and makes its first call.
///
/// # Errors
/// A case cannot run, or the run's folder cannot be written.
fn start_cold(assignment: &Assignment) -> Result<(), String> {
    let folder = RunFolder::new(assignment.run_folder.clone());
    let mut fixtures = Fixtures::default();
    for item in &assignment.work {
        let mut observed = Observed::default();
        unwinding(|| trial::load(&item.case, &item.model, assignment, &mut fixtures, &mut observed))
            .map_err(|failure| failure.to_string())?;
        folder.append(&Event::cold_start(item.case.benchmark_id(), &observed))?;
    }
    Ok(())
}

/// Puts what becomes of a case into the run's folder.
pub(super) fn recorded(
    folder: &RunFolder,
    id: &BenchmarkId,
    action: impl FnOnce(&mut Observed) -> Result<(), CaseFailure>,
) -> Result<(), String> {
    folder.append(&Event::Started { id: id.clone() })?;
    let start = Instant::now();
    let mut observed = Observed::default();
    let (status, message) = match action(&mut observed) {
        Ok(()) => (Status::Ok, None),
        Err(failure) => {
            eprintln!("  {id}: {failure}");
            (failure.status, Some(failure.message))
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    folder.append(&Event::Finished(Box::new(Outcome { id: id.clone(), status, message, observed, seconds })))
}

/// Registers every case with Criterion and measures those of the assignment, under Criterion's command line.
///
/// # Errors
/// The run's folder cannot be written any more.
fn measure(assignment: &Assignment) -> Result<(), String> {
    let arguments = CriterionArguments::parse_from(std::env::args().skip(1));
    let log = SampleLog::default();
    let mut criterion = Criterion::default()
        .with_measurement(LoggedWallTime::new(log.clone()))
        .configure_from_args()
        .with_filter(exactly_one_of(&assignment.work))
        .output_directory(&assignment.criterion_root);

    let mut worker = Worker {
        folder: RunFolder::new(assignment.run_folder.clone()),
        work: assignment.work.iter().map(|item| (item.case.to_string(), item)).collect(),
        fixtures: Fixtures::default(),
        cases_begun: 0,
        assignment,
        arguments,
        log,
    };
    for cases in groups(&assignment.registered, assignment.effort.shuffle) {
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

/// Cases by Criterion's group; contestants next to each other, batch sizes in their natural order, if they are not
/// shuffled. A group stays together: its page shows what was registered between its begin and its end.
fn groups(registered: &[Case], shuffle: Option<u64>) -> Vec<Vec<&Case>> {
    let mut groups: Vec<Vec<&Case>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for case in registered {
        let place = *places.entry(case.benchmark_id().group).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[place].push(case);
    }
    for group in &mut groups {
        group.sort_by_key(|case| (case.benchmark_id().function, case.batch_size));
    }
    if let Some(seed) = shuffle {
        groups.iter_mut().for_each(|group| group.sort_by_key(|case| Stream::new(seed, &case.to_string()).at(0)));
        groups.sort_by_key(|group| Stream::new(seed, &group[0].benchmark_id().group).at(0));
    }
    groups
}

struct Worker<'a> {
    assignment: &'a Assignment,
    arguments: CriterionArguments,
    folder: RunFolder,
    work: HashMap<String, &'a WorkItem>,
    fixtures: Fixtures,
    cases_begun: usize,
    log: SampleLog,
}

type Group<'g> = BenchmarkGroup<'g, LoggedWallTime>;

impl Worker<'_> {
    /// Registers a case, and measures it if it is this process's.
    ///
    /// # Errors
    /// The run's folder cannot be written any more; a case that goes wrong is an outcome, not an error.
    fn register(&mut self, group: &mut Group<'_>, case: &Case) -> Result<(), String> {
        let id = case.benchmark_id();
        group.throughput(Throughput::Elements(case.batch_size as u64));
        let Some(item) = self.work.get(&id.to_string()).copied() else {
            // Criterion reads it from disk for the group's page; the filter keeps the closure from running.
            group.bench_function(CriterionId::new(&id.function, &id.value), |_| {});
            return Ok(());
        };
        if self.arguments.mode() == Mode::Load {
            group.bench_function(CriterionId::new(&id.function, &id.value), |_| {});
            return Ok(());
        }
        self.announce(item);
        let folder = self.folder.clone();
        let mut measured = None;
        recorded(&folder, &id, |observed| {
            measured = Some(self.measure(group, item, &id, observed)?);
            Ok(())
        })?;
        match measured {
            Some(trial) if item.is_judged && self.keeps_measurements() => self.judge(trial, item, &id),
            _ => Ok(()),
        }
    }

    fn keeps_measurements(&self) -> bool {
        self.arguments.mode() == Mode::Measure && !self.arguments.discard_baseline
    }

    fn measure(
        &mut self,
        group: &mut Group<'_>,
        item: &WorkItem,
        id: &BenchmarkId,
        observed: &mut Observed,
    ) -> Result<Trial, CaseFailure> {
        let mut trial = unwinding(|| {
            trial::load_and_prove(&item.case, &item.model, self.assignment, &mut self.fixtures, observed)
        })?;
        let warm_up = trial.warm_up(&item.case, &self.assignment.effort)?;
        observed.warmup_is_steady = Some(warm_up.is_steady);
        let pilot = measurement::pilot(&mut trial.session, &self.assignment.effort, warm_up.expected_call_ns())?;
        let sampling = self.sampling(&warm_up, &pilot);
        observed.stopped_by = Some(sampling.stop);
        self.announce_sampling(sampling, &warm_up, observed);
        let before_sampling = [warm_up.calls.as_slice(), &pilot].concat();
        observed.warmup_iterations = Some(before_sampling.len());
        // Those of the warm-up.
        trial.stage_medians();
        self.log.begin();
        self.sample(group, &mut trial, sampling, warm_up.expected_call_ns(), id)?;
        let samples = self.log.take();
        if let Some([h2d, compute, d2h]) = trial.stage_medians() {
            (observed.h2d_ms, observed.compute_ms, observed.d2h_ms) = (Some(h2d), Some(compute), Some(d2h));
        }
        trial.prove_again()?;
        observed.peak_memory_bytes = memory::peak_bytes();
        if self.keeps_measurements() {
            self.keep(id, before_sampling, samples)?;
        }
        Ok(trial)
    }

    /// Lets the session that was measured answer the model's samples, and keeps the answers. The case is finished before:
    /// what was measured stays, whatever comes of this.
    ///
    /// # Errors
    /// The run's folder cannot be written any more.
    fn judge(&mut self, trial: Trial, item: &WorkItem, id: &BenchmarkId) -> Result<(), String> {
        let start = Instant::now();
        self.folder.append(&Event::Judging { id: id.clone(), samples: 0 })?;
        let failure = self.answers(trial, item, id).err().map(|failure| failure.message);
        if let Some(failure) = &failure {
            eprintln!("  not judged: {failure}");
        }
        let judgement = Judgement { failure, seconds: start.elapsed().as_secs_f64() };
        self.folder.append(&Event::Judged { id: id.clone(), judgement })
    }

    fn answers(&mut self, mut trial: Trial, item: &WorkItem, id: &BenchmarkId) -> Result<(), CaseFailure> {
        let samples = self.fixtures.samples(&item.model, item.case.sequence_length)?;
        eprintln!("  judging {} samples of {}", samples.len(), samples.name());
        let (start, mut said) = (Instant::now(), Instant::now());
        let folder = &self.folder;
        let mut answered = |answered: usize| {
            if said.elapsed() < JUDGING_SAYS_EVERY {
                return Ok(());
            }
            said = Instant::now();
            let left = start.elapsed().as_secs_f64() / answered as f64 * (samples.len() - answered) as f64;
            eprintln!("  {answered} of {} samples, about {} left", samples.len(), minutes(left));
            folder.append(&Event::Judging { id: id.clone(), samples: answered }).map_err(CaseFailure::failed)
        };
        let session = trial.session.session();
        let evaluation = unwinding(|| evaluate(session, &item.case, &item.model, &samples, &mut answered))?;
        for why in &evaluation.unreadable {
            eprintln!("  left out: {why}");
        }
        evaluation.write(folder.path(), id).map_err(CaseFailure::failed)
    }

    /// What the suite asks for, if Criterion's arguments do not say something else.
    fn sampling(&self, warm_up: &WarmUp, pilot: &[u64]) -> Sampling {
        let mut effort = self.assignment.effort.clone();
        if let Some(seconds) = self.arguments.measurement_time {
            effort.budget_seconds = seconds;
        }
        let sampling = Sampling::choose(&effort, warm_up.expected_call_ns(), pilot);
        match self.arguments.sample_size {
            Some(samples) => Sampling { samples: samples as usize, stop: Stop::Arguments, ..sampling },
            None => sampling,
        }
    }

    fn sample(
        &self,
        group: &mut Group<'_>,
        trial: &mut Trial,
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
                bencher.iter_custom(|calls| match trial.session.call(calls) {
                    Ok(times) => times,
                    // Unwinds through Criterion, which then writes nothing; `unwinding` takes it up again.
                    Err(failure) => resume_unwind(Box::new(failure)),
                });
            });
            Ok(())
        })
    }

    /// Puts the latency log beside Criterion's files.
    fn keep(&self, id: &BenchmarkId, warm_up_ns: Vec<u64>, samples: LoggedSamples) -> Result<(), CaseFailure> {
        let LoggedSamples { samples_ns, disturbed } = samples;
        let log = LatencyLog { run_id: self.assignment.run_id.clone(), warm_up_ns, samples_ns, disturbed };
        let folder = self.assignment.criterion_root.join(&id.group).join(&id.function).join(&id.value);
        let named = |name: &str| folder.join(name);
        let folders = std::iter::once(named("new")).chain(self.arguments.save_baseline.as_deref().map(named));
        for folder in folders {
            write_latency_log(&folder, &log)
                .map_err(|error| CaseFailure::failed(format!("the latency log in {}: {error}", folder.display())))?;
        }
        Ok(())
    }

    fn announce(&mut self, item: &WorkItem) {
        let expected = |item: &WorkItem| item.expected_seconds;
        let left: Option<f64> = self.assignment.work[self.cases_begun..].iter().map(expected).sum();
        let left = match (left, self.assignment.seconds_after) {
            (Some(own), Some(others)) => format!(", about {} left", minutes(own + others)),
            _ => String::new(),
        };
        self.cases_begun += 1;
        let number = self.assignment.cases_before + self.cases_begun;
        eprintln!("\n[{number}/{}] {}{left}", self.assignment.cases_in_all, item.case);
    }

    fn announce_sampling(&self, sampling: Sampling, warm_up: &WarmUp, observed: &Observed) {
        if self.arguments.mode() != Mode::Measure {
            return;
        }
        let proof = match (observed.verified, observed.max_rel_error) {
            (Some(true), Some(error)) => format!("outputs right (error {error:.0e})"),
            _ => "no reference".into(),
        };
        let calls = sampling.samples as u64 * sampling.calls_per_sample;
        let call = Duration::from_nanos(warm_up.expected_call_ns());
        eprintln!(
            "  loaded in {:.0?}, {proof}, {} warm-up calls, {call:.1?} a call: {calls} calls in {} samples, about {:.1} s",
            Duration::from_secs_f64(observed.load_ms.unwrap_or_default() / 1e3),
            warm_up.calls.len(),
            sampling.samples,
            calls as f64 * call.as_secs_f64(),
        );
    }
}

fn minutes(seconds: f64) -> String {
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

/// A child whose parent was killed must not go on measuring unseen. The thread that looks for it sleeps between looks.
fn end_with_parent(parent: u32) {
    #[cfg(unix)]
    std::thread::spawn(move || {
        while std::os::unix::process::parent_id() == parent {
            std::thread::sleep(Duration::from_secs(1));
        }
        eprintln!("inferbench: the parent process is gone; this one ends too");
        std::process::exit(1);
    });
    #[cfg(not(unix))]
    let _ = parent;
}

/// Runs something of a library's, and turns a panic into an outcome of the case.
pub(super) fn unwinding<T>(action: impl FnOnce() -> Result<T, CaseFailure>) -> Result<T, CaseFailure> {
    catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|panic| {
        Err(match panic.downcast::<CaseFailure>() {
            Ok(failure) => *failure,
            Err(panic) => {
                let text = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied())
                    .unwrap_or("no message");
                CaseFailure::failed(format!("panicked: {text}"))
            }
        })
    })
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
    fn a_shuffled_order_has_all_cases_and_is_that_of_its_seed() {
        assert_eq!(order(None)[..4], ["a/ort-cpu-f32/1", "a/ort-cpu-f32/2", "a/ort-cpu-f32/8", "b/ort-cpu-f32/1"]);
        assert_eq!(order(Some(1)), order(Some(1)));
        assert_ne!(order(Some(1)), order(Some(2)));
        let mut sorted = order(Some(1));
        sorted.sort();
        assert_eq!(sorted, order(None));
    }
}
