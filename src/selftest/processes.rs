//! A small real model, measured by several fresh processes one after the other, through the harness as any other case.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};

use crate::criterion_dir::{MeasuredEntry, read_entry};
use crate::definition::{BenchmarkId, Dtype, Status};
use crate::exit_codes;
use crate::harness::{self, Purpose, Request};
use crate::paths::Paths;
use crate::run_data::RunFolder;
use crate::selection::{EffortArguments, Selection};

const MODEL: &str = "tenn_eeg";
/// The first of them that can run it here does.
const BACKENDS: [&str; 2] = ["ort", "candle"];
/// Criterion's resampling is not used.
const CRITERION: [&str; 4] = ["--bench", "--noplot", "--nresamples", "1000"];
/// A spread needs some processes, whatever the time.
const FEWEST: usize = 3;
const MOST: usize = 100;

/// What one process has measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessFigures {
    pub p50_ns: f64,
    pub mean_ns: f64,
    pub calls: usize,
    /// The fraction of its samples that was disturbed; absent if that is unknown.
    pub disturbed_share: Option<f64>,
}

/// What all processes have measured.
pub(super) struct Measured {
    /// What chooses the case.
    pub selection: Selection,
    pub case: String,
    pub figures: Vec<ProcessFigures>,
    /// By process and sample.
    pub calls_ns: Vec<Vec<Vec<u64>>>,
}

/// Starts as many processes as fit in the time, one after the other. The inner error is an exit code.
///
/// # Errors
/// The model is not there, or the target folder cannot be written.
pub(super) fn measure(paths: &Paths, start: Instant, at_most: Duration) -> Result<Result<Measured, u8>> {
    let Some((selection, id)) = choose(paths)? else { return Ok(Err(exit_codes::NOTHING_MEASURED)) };
    let folder = paths.selftest().with_file_name("selftest");
    let apart = paths.apart(folder.clone());
    let budget = (at_most.as_secs_f64() / 40.0).clamp(0.2, 5.0);
    let mut request = Request {
        purpose: Purpose::Measure,
        selection,
        // More than fit: in the first process the budget decides.
        effort: EffortArguments { iterations: Some(1_000_000), budget: Some(budget), ..EffortArguments::default() },
        criterion_arguments: CRITERION.map(str::to_owned).to_vec(),
        resume: false,
    };
    let mut measured = Measured {
        selection: request.selection.clone(),
        case: id.to_string(),
        figures: Vec::new(),
        calls_ns: Vec::new(),
    };
    let begin = Instant::now();
    loop {
        let done = measured.figures.len();
        let each = begin.elapsed() / done.max(1) as u32;
        let is_over = start.elapsed() + each > at_most;
        if done >= MOST || done >= FEWEST && is_over {
            break;
        }
        let finished = harness::run_silently(&apart, &request)?;
        if finished.exit_code != exit_codes::OK {
            say_why(&finished, &measured.case);
            remove(&folder);
            return Ok(Err(finished.exit_code));
        }
        let entry = apart.criterion().join(&id.group).join(&id.function).join(&id.value).join("new");
        let entry = read_entry(&entry).map_err(|refusal| anyhow!("{id}: {refusal}"))?;
        let figures = ProcessFigures::of(&entry);
        eprintln!("{id}, process {}: {} calls, median {:.3} ms", done + 1, figures.calls, figures.p50_ns / 1e6,);
        // From now on every process makes the same number of calls, whatever its warm-up makes it expect.
        let calls = (budget * 1e9 / measured.figures.first().unwrap_or(&figures).p50_ns) as usize;
        request.effort.iterations = Some(calls.max(1));
        request.effort.budget = Some(10.0 * budget);
        measured.figures.push(figures);
        measured.calls_ns.push(entry.samples_ns);
    }
    remove(&folder);
    Ok(Ok(measured))
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

fn say_why(finished: &harness::FinishedRun, case: &str) {
    let outcomes = finished.folder.as_ref().map(RunFolder::read_outcomes).unwrap_or_default();
    match outcomes.finished.get(case) {
        Some(outcome) if outcome.status != Status::Ok => {
            eprintln!("{case}: {}: {}", outcome.status, outcome.message.as_deref().unwrap_or_default());
        }
        _ => eprintln!("{case}: stopped"),
    }
}

/// What the processes leave is read, and of no use to anyone.
fn remove(folder: &Path) {
    let _ = std::fs::remove_dir_all(folder);
}

impl ProcessFigures {
    fn of(entry: &MeasuredEntry) -> Self {
        let mut calls: Vec<u64> = entry.samples_ns.iter().flatten().copied().collect();
        calls.sort_unstable();
        ProcessFigures {
            // As reports take it: the nearest rank.
            p50_ns: calls[(calls.len() - 1) / 2] as f64,
            mean_ns: calls.iter().sum::<u64>() as f64 / calls.len() as f64,
            calls: calls.len(),
            disturbed_share: entry.disturbed_share(),
        }
    }
}
