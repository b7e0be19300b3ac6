//! What an error of a library means for a case.
//!
//! Each backend converts its library's errors with [`classify`] in a `From` of its own, so that `?` is enough.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::definition::{CaseFailure, Status};
use crate::printing;

/// Phrases in the errors of libraries that lack an operator or a dtype.
const UNSUPPORTED: [&str; 11] = [
    "not implemented",
    "not_implemented",
    "unsupported",
    "not supported",
    "could not find an implementation",
    "does not support",
    "no conversion rule found",
    // tract's, for an operator that it lacks entirely or in this form.
    "unimplemented(",
    "translating node",
    "building node",
    // llama.cpp's, for a file.
    "unknown model architecture",
];
const OUT_OF_MEMORY: [&str; 6] = [
    "out of memory",
    "bad_alloc",
    "failed to allocate memory",
    "can't allocate memory",
    "memory allocation of ",
    // The exceptions of Python, NumPy and Java.
    "memoryerror",
];

/// Converts a library's error to the status that it means for the case. Stack traces and source locations are left out.
pub(super) fn classify(error: impl Display) -> CaseFailure {
    let text = error.to_string();
    // Stack traces of libtorch, and of Rust with RUST_BACKTRACE, are at the end.
    let is_trace = |line: &str| ["0: ", "frame #", "Exception raised from"].iter().any(|begin| line.starts_with(begin));
    // OpenVINO's errors begin with source locations.
    let is_place = |line: &str| {
        line.is_empty() || line.starts_with("Exception from ") || line.starts_with("Check '") && line.ends_with(':')
    };
    let lines = text.lines().map(str::trim).take_while(|line| !is_trace(line)).filter(|line| !is_place(line));
    let told = lines.collect::<Vec<_>>().join(" ");
    let message = if told.is_empty() { text } else { told };
    let status = if is_out_of_memory(&message) {
        Status::OutOfMemory
    } else if has(&message, &UNSUPPORTED) {
        Status::Unsupported
    } else {
        Status::Failed
    };
    CaseFailure::new(status, message)
}

/// Whether a message of a library or an allocator says that memory ran out.
pub fn is_out_of_memory(text: &str) -> bool {
    has(text, &OUT_OF_MEMORY)
}

fn has(text: &str, phrases: &[&str]) -> bool {
    let lower = text.to_lowercase();
    phrases.iter().any(|phrase| lower.contains(phrase))
}

/// Runs library code that may panic. The panic is printed on standard error only if [`DEBUG`](super::DEBUG) is set.
///
/// # Errors
/// The code panicked; the error is the panic's payload.
pub fn caught<T>(action: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    if std::env::var_os(super::DEBUG).is_some() {
        catch_unwind(AssertUnwindSafe(action))
    } else {
        printing::caught(action)
    }
}

/// An error's chain of causes in one line: the first says where, the last says what.
impl From<anyhow::Error> for CaseFailure {
    fn from(error: anyhow::Error) -> Self {
        classify(format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_errors_become_statuses() {
        assert_eq!(classify("CUDA out of memory. Tried to allocate").status, Status::OutOfMemory);
        assert_eq!(classify("MemoryError").status, Status::OutOfMemory);
        assert_eq!(classify("op NOT_IMPLEMENTED: Foo").status, Status::Unsupported);
        assert_eq!(classify("shape mismatch").status, Status::Failed);
        assert_eq!(classify("llama.cpp: unknown model architecture: 'net'").status, Status::Unsupported);
        let operator = "Translating node #2 \"reduced\" Reduce13 ToTypedTranslator: expected axes as a constant";
        assert_eq!(classify(operator).status, Status::Unsupported);
        assert_eq!(classify("Failed analyse for node #1 \"y\" Unimplemented(Unique)").status, Status::Unsupported);
    }
}
