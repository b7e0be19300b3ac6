//! The worker of a duel's round: times the calls of its cases without Criterion.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::case_outcome::{recorded, unwinding};
use super::loaded_case::{self, Fixtures, LoadedCase};
use crate::definition::CaseFailure;
use crate::harness::protocol::{CallFigures, Job, RoundTerms};
use crate::measurement::{Slowed, TimedSession};
use crate::run_data::{RunFolder, json_lines};

/// A median of fewer calls says little of the process.
const FEWEST_CALLS: usize = 10;
/// What there is room for at first; more than fit allocate between two calls, and not in one.
const ROOM: usize = 1 << 16;

/// Times the calls of each case of the job.
///
/// # Errors
/// The run's folder cannot be written any more.
pub fn time_calls(job: &Job, terms: RoundTerms) -> Result<()> {
    let folder = RunFolder::new(job.run_folder.clone());
    let mut fixtures = Fixtures::default();
    for item in &job.work {
        let id = item.case.benchmark_id();
        recorded(&folder, &id, |observed| {
            let (case, model) = (&item.case, &item.model);
            let mut loaded = unwinding(|| {
                if terms.is_verified {
                    loaded_case::load_and_verify(case, model, job, &mut fixtures, observed)
                } else {
                    loaded_case::load_unverified(case, model, job, &mut fixtures, observed)
                }
            })?;
            if let Some(ppm) = terms.slowdown_ppm {
                let slowed = |session| -> Box<dyn crate::backend::Session> {
                    Box::new(Slowed::new(session, f64::from(ppm) / 1e6))
                };
                loaded.session = loaded.session.wrapped(slowed);
            }
            let calls = unwinding(|| {
                loaded.warm_up(case, &job.effort)?;
                calls_for(&mut loaded, terms.duration)
            })?;
            if terms.is_verified {
                loaded.verify_again()?;
            }
            let figures = CallFigures::of(calls).ok_or_else(|| CaseFailure::failed("no call was made"))?;
            Ok(json_lines::append(&figures_path(&job.run_folder), &FiguresLine { id: id.to_string(), figures })?)
        })?;
    }
    Ok(())
}

fn calls_for(loaded: &mut LoadedCase, duration: Duration) -> Result<Vec<u64>, CaseFailure> {
    let mut calls = Vec::with_capacity(ROOM);
    let session: &mut TimedSession = &mut loaded.session;
    let start = Instant::now();
    while calls.len() < FEWEST_CALLS || start.elapsed() < duration {
        calls.extend_from_slice(session.call(1)?.as_nanoseconds());
    }
    Ok(calls)
}

/// One line a case, beside the outcomes.
#[derive(Serialize, Deserialize)]
struct FiguresLine {
    id: String,
    figures: CallFigures,
}

fn figures_path(run_folder: &Path) -> PathBuf {
    run_folder.join("figures.jsonl")
}

/// Reads what the workers of a round have written.
pub fn read_figures(run_folder: &Path) -> BTreeMap<String, CallFigures> {
    json_lines::read::<FiguresLine>(&figures_path(run_folder)).into_iter().map(|line| (line.id, line.figures)).collect()
}
