//! Measures a small real model in several processes, through the harness as any other case.

use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::criterion_dir::{MeasuredEntry, read_entry};
use crate::definition::{BenchmarkId, Dtype, Status};
use crate::exit_codes;
use crate::harness::{self, Request};
use crate::paths::Paths;
use crate::run_data::{Latencies, Outcome, RunFolder};
use crate::selection::{EffortArguments, Selection};

const MODEL: &str = "tenn_eeg";
/// The first of these that can run the model here is measured.
const BACKENDS: [&str; 2] = ["ort", "candle"];
/// Criterion's resampling is not used.
const CRITERION: [&str; 4] = ["--bench", "--noplot", "--nresamples", "1000"];
/// The spread needs at least so many processes, however short the time is.
const FEWEST: usize = 3;
const MOST: usize = 100;
/// The approximate time of a process besides its measured calls, in seconds.
const START: f64 = 1.0;

/// The latencies that all processes have measured.
pub(super) struct Measured {
    /// Selects the case.
    pub selection: Selection,
    pub case: String,
    pub processes: Vec<Latencies>,
}

/// Measures in as many processes as fit into `at_most`, approximately. The inner error is an exit code.
///
/// # Errors
/// The model is not there, or the target folder cannot be written.
pub(super) fn measure(paths: &Paths, at_most: Duration) -> Result<Result<Measured, u8>> {
    let Some((selection, id)) = choose(paths)? else { return Ok(Err(exit_codes::NOTHING_MEASURED)) };
    let budget = (at_most.as_secs_f64() / 40.0).clamp(0.2, 5.0);
    let processes = ((at_most.as_secs_f64() / (START + budget)) as usize).clamp(FEWEST, MOST);
    eprintln!("{id} in {processes} processes");
    let effort = EffortArguments {
        processes: Some(processes),
        // More calls than fit into the budget, so that the budget decides.
        iterations: Some(1_000_000),
        budget: Some(budget),
        ..EffortArguments::default()
    };
    let request = Request {
        selection: selection.clone(),
        effort,
        criterion_arguments: CRITERION.map(str::to_owned).to_vec(),
        is_silent: true,
        ..Request::default()
    };
    let folder = paths.selftest().with_file_name("selftest");
    let measured = run(&paths.apart(folder.clone()), &id, &request);
    // The files of the processes have been read, and nobody needs them any more.
    let _ = std::fs::remove_dir_all(&folder);
    Ok(measured?.map(|processes| Measured { selection, case: id.to_string(), processes }))
}

/// Runs the case, and reads the latencies of its processes.
fn run(apart: &Paths, id: &BenchmarkId, request: &Request) -> Result<Result<Vec<Latencies>, u8>> {
    let finished = harness::run(apart, request)?;
    let mut outcomes = finished.folder.as_ref().map(RunFolder::read_outcomes).transpose()?.unwrap_or_default();
    if finished.exit_code != exit_codes::OK {
        match outcomes.finished.get(&id.to_string()) {
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
    let mut processes = Vec::from_iter(Latencies::of_samples(&samples_ns, disturbed.as_deref()));
    processes.extend(outcomes.further.remove(&id.to_string()).unwrap_or_default());
    Ok(Ok(processes))
}

/// The case of the first backend that can run the model; prints the reasons if there is none.
fn choose(paths: &Paths) -> Result<Option<(Selection, BenchmarkId)>> {
    let selection = Selection {
        suite: Some("quick".into()),
        model: vec![MODEL.into()],
        backend: BACKENDS.map(str::to_owned).to_vec(),
        device: vec!["cpu".into()],
        dtype: vec![Dtype::F32],
        batch_sizes: vec![1],
        ..Selection::default()
    };
    let mut reasons = Vec::new();
    for planned in harness::make_plan(paths, None, &selection, &EffortArguments::default())?.cases {
        match &planned.model {
            Ok(_) => {
                let id = planned.case.benchmark_id();
                return Ok(Some((Selection { backend: vec![planned.case.backend], ..selection }, id)));
            }
            Err(failure) => reasons.push(format!("{}: {failure}", planned.case)),
        }
    }
    reasons.iter().for_each(|reason| eprintln!("left out: {reason}"));
    Ok(None)
}
