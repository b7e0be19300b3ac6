//! What becomes of a case: its outcome in the run's folder.

use std::time::Instant;

use anyhow::Result;

use crate::definition::{CaseFailure, Status};
use crate::harness::protocol::WorkItem;
use crate::run_data::{Event, Outcome, RunFolder};

/// Runs a case and writes its outcome into the run's folder. Returns its status.
///
/// # Errors
/// The run's folder cannot be written; a case that fails is an outcome, not an error.
pub fn recorded(
    folder: &RunFolder,
    item: &WorkItem,
    action: impl FnOnce(&mut Outcome) -> Result<(), CaseFailure>,
) -> Result<Status> {
    folder.append(&Event::Started { id: item.id() })?;
    let start = Instant::now();
    let mut outcome = Outcome::new(item.row.clone());
    if let Err(failure) = action(&mut outcome) {
        outcome.row.fail(failure);
    }
    if outcome.row.status != Status::Ok {
        let message = outcome.row.message.as_deref().unwrap_or_default();
        eprintln!("  {}: {}: {message}", outcome.row.case_id, outcome.row.status);
    }
    outcome.seconds = start.elapsed().as_secs_f64();
    let status = outcome.row.status;
    folder.append(&Event::Finished(Box::new(outcome)))?;
    Ok(status)
}
