//! Panics of libraries as failures of the case.

use crate::backend::caught;
use crate::definition::CaseFailure;

/// Runs code of a library and turns a panic into a failure of the case.
pub fn unwinding<T>(action: impl FnOnce() -> Result<T, CaseFailure>) -> Result<T, CaseFailure> {
    caught(action).unwrap_or_else(|panic| {
        Err(match panic.downcast::<CaseFailure>() {
            Ok(failure) => *failure,
            Err(panic) => {
                let text = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied())
                    .unwrap_or("no message");
                CaseFailure::failed(format!("the backend panicked: {text}"))
            }
        })
    })
}
