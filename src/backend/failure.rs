//! What an error of a library means for a case.
//!
//! Each backend converts its library's errors with [`classify`] in a `From` of its own, so that `?` is enough.

use std::fmt::Display;

use crate::definition::{CaseFailure, Status};

/// A library's error with the status that it means for the case.
pub(super) fn classify(error: impl Display) -> CaseFailure {
    let text = error.to_string();
    // Some libraries put a backtrace into their message when RUST_BACKTRACE is set.
    let lines = text.trim().lines().take_while(|line| !line.trim_start().starts_with("0: "));
    let message = lines.collect::<Vec<_>>().join("\n");
    let lower = message.to_lowercase();
    let has = |phrases: &[&str]| phrases.iter().any(|phrase| lower.contains(phrase));
    let status = if has(&["out of memory", "bad_alloc", "failed to allocate memory", "can't allocate memory"]) {
        Status::OutOfMemory
    } else if has(&[
        "not implemented",
        "not_implemented",
        "unsupported",
        "not supported",
        "could not find an implementation",
    ]) {
        Status::Unsupported
    } else {
        Status::Failed
    };
    CaseFailure::new(status, message)
}

/// The chain of an error in one line: the first link says where, the last says what.
impl From<anyhow::Error> for CaseFailure {
    fn from(error: anyhow::Error) -> Self {
        classify(format!("{error:#}"))
    }
}

impl From<std::io::Error> for CaseFailure {
    fn from(error: std::io::Error) -> Self {
        classify(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_errors_become_statuses() {
        assert_eq!(classify("CUDA out of memory. Tried to allocate").status, Status::OutOfMemory);
        assert_eq!(classify("op NOT_IMPLEMENTED: Foo").status, Status::Unsupported);
        assert_eq!(classify("shape mismatch").status, Status::Failed);
    }
}
