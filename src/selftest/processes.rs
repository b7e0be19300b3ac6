//! A small real model, measured in several processes, through the harness as any other case.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::criterion_dir::{MeasuredEntry, read_entry};
use crate::definition::{BenchmarkId, Dtype, Status};
use crate::exit_codes;
use crate::harness::{self, Request};
use crate::paths::Paths;
use crate::run_data::{Latencies, Outcome, RunFolder};
use crate::selection::{EffortArguments, Selection};

const MODEL: &str = "tenn_eeg";
/// The first of them that can run it here does.
const BACKENDS: [&str; 2] = ["ort", "candle"];
/// Criterion's resampling is not used.
const CRITERION: [&str; 4] = ["--bench", "--noplot", "--nresamples", "1000"];
/// A spread needs some processes, whatever the time.
const FEWEST: usize = 3;
const MOST: usize = 100;

/// What all processes have measured.
pub(super) struct Measured {
    /// What chooses the case.
    pub selection: Selection,
    pub case: String,
    pub processes: Vec<Latencies>,
}

/// Measures in as many processes as fit in the time. The inner error is an exit code.
///
/// # Errors
/// The model is not there, or the target folder cannot be written.
pub(super) fn measure(paths: &Paths, start: Instant, at_most: Duration) -> Result<Result<Measured, u8>> {
    let Some((selection, id)) = choose(paths)? else { return Ok(Err(exit_codes::NOTHING_MEASURED)) };
    let folder = paths.selftest().with_file_name("selftest");
    let mut measured = Measured { selection, case: id.to_string(), processes: Vec::new() };
    let begin = Instant::now();
    let ended = run(paths.apart(folder.clone()), &id, &mut measured, FEWEST, at_most)?;
    // What the fewest have taken says how many more fit.
    let each = begin.elapsed() / FEWEST as u32;
    let left = at_most.saturating_sub(start.elapsed()).as_secs_f64() / each.as_secs_f64();
    let more = (left as usize).min(MOST - FEWEST);
    let ended = match ended {
        Ok(()) if more > 0 => run(paths.apart(folder.clone()), &id, &mut measured, more, at_most)?,
        ended => ended,
    };
    // What the processes leave is read, and of no use to anyone.
    let _ = std::fs::remove_dir_all(&folder);
    Ok(ended.map(|()| measured))
}

/// A run of so many processes.
fn run(
    apart: Paths,
    id: &BenchmarkId,
    measured: &mut Measured,
    processes: usize,
    at_most: Duration,
) -> Result<Result<(), u8>> {
    eprintln!("{id} in {processes} processes");
    let effort = EffortArguments {
        processes: Some(processes),
        // More than fit: the budget decides.
        iterations: Some(1_000_000),
        budget: Some((at_most.as_secs_f64() / 40.0).clamp(0.2, 5.0)),
        ..EffortArguments::default()
    };
    let finished = harness::run(
        &apart,
        &Request {
            selection: measured.selection.clone(),
            effort,
            criterion_arguments: CRITERION.map(str::to_owned).to_vec(),
            is_silent: true,
            ..Request::default()
        },
    )?;
    let mut outcomes = finished.folder.as_ref().map(RunFolder::read_outcomes).unwrap_or_default();
    if finished.exit_code != exit_codes::OK {
        match outcomes.finished.get(&measured.case) {
            Some(Outcome { row, .. }) if row.status != Status::Ok => {
                eprintln!("{id}: {}: {}", row.status, row.message.as_deref().unwrap_or_default());
            }
            _ => eprintln!("{id}: stopped"),
        }
        return Ok(Err(finished.exit_code));
    }
    let entry = apart.criterion().join(&id.group).join(&id.function).join(&id.value).join("new");
    let MeasuredEntry { samples_ns, disturbed, .. } =
        read_entry(&entry).map_err(|refusal| anyhow!("{id}: {refusal}"))?;
    measured.processes.extend(Latencies::of_samples(&samples_ns, disturbed.as_deref()));
    measured.processes.extend(outcomes.further.remove(&measured.case).unwrap_or_default());
    Ok(Ok(()))
}

/// The case of the first backend that can run the model; says why there is none.
fn choose(paths: &Paths) -> Result<Option<(Selection, BenchmarkId)>> {
    let mut reasons = Vec::new();
    for backend in BACKENDS {
        let selection = Selection {
            suite: "quick".into(),
            model: vec![MODEL.into()],
            backend: vec![backend.into()],
            device: vec!["cpu".into()],
            dtype: vec![Dtype::F32],
            batch_sizes: vec![1],
            ..Selection::default()
        };
        let plan = harness::make_plan(paths, &selection, &EffortArguments::default())?;
        for planned in &plan.cases {
            match &planned.model {
                Ok(_) => return Ok(Some((selection, planned.case.benchmark_id()))),
                Err(failure) => reasons.push(format!("{}: {failure}", planned.case)),
            }
        }
    }
    for reason in reasons {
        eprintln!("left out: {reason}");
    }
    Ok(None)
}
