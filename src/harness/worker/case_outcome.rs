//! What becomes of a case: its outcome in the run's folder, also if a library panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use anyhow::Result;

use crate::definition::{BenchmarkId, CaseFailure, Status};
use crate::run_data::{Event, Observed, Outcome, RunFolder};

/// Runs a case and writes its outcome into the run's folder.
///
/// # Errors
/// The run's folder cannot be written; a case that fails is an outcome, not an error.
pub fn recorded(
    folder: &RunFolder,
    id: &BenchmarkId,
    action: impl FnOnce(&mut Observed) -> Result<(), CaseFailure>,
) -> Result<()> {
    folder.append(&Event::Started { id: id.clone() })?;
    let start = Instant::now();
    let mut observed = Observed::default();
    let (status, message) = match action(&mut observed) {
        Ok(()) => match &observed.suspicion {
            None => (Status::Ok, None),
            Some(suspicion) => {
                let message = format!("{suspicion}, and there is nothing to compare them with");
                eprintln!("  {id}: suspicious: {message}");
                (Status::Suspicious, Some(message))
            }
        },
        Err(failure) => {
            eprintln!("  {id}: {failure}");
            (failure.status, Some(failure.message))
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    folder.append(&Event::Finished(Box::new(Outcome { id: id.clone(), status, message, observed, seconds })))
}

/// Runs code of a library and turns a panic into a failure of the case.
pub fn unwinding<T>(action: impl FnOnce() -> Result<T, CaseFailure>) -> Result<T, CaseFailure> {
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
