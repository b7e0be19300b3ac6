//! llama.cpp's log: its last lines tell why a call failed, and what was loaded.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backend::failure::classify;
use crate::backend::native_library::text_of;
use crate::definition::{CaseFailure, Status};

/// The last lines of the log about problems, and about what was loaded.
static SAID: Mutex<Said> = Mutex::new(Said { lines: VecDeque::new(), count: 0, is_kept: false });
const MOST_LINES: usize = 400;

struct Said {
    lines: VecDeque<Line>,
    /// The number of lines kept so far, including those dropped since.
    count: usize,
    /// Whether the last line was kept, which the next piece may continue.
    is_kept: bool,
}

struct Line {
    is_error: bool,
    text: String,
}

impl Said {
    /// Adds a piece of the log. Warnings, errors and loaded backends are kept; other information is not.
    fn add(&mut self, level: c_int, text: &str) {
        /// ggml's numbers.
        const WARNING: c_int = 3;
        const ERROR: c_int = 4;
        const CONTINUED: c_int = 5;
        if level == CONTINUED {
            if let Some(line) = self.lines.back_mut().filter(|_| self.is_kept) {
                line.text.push_str(text);
            }
            return;
        }
        self.is_kept = !text.trim().is_empty() && (level >= WARNING || text.starts_with("load_backend"));
        if self.is_kept {
            if self.lines.len() == MOST_LINES {
                self.lines.pop_front();
            }
            self.count += 1;
            self.lines.push_back(Line { is_error: level == ERROR, text: text.to_owned() });
        }
    }

    /// The lines after the first `count`.
    fn since(&self, count: usize) -> impl Iterator<Item = &Line> {
        self.lines.iter().skip(self.lines.len().saturating_sub(self.count - count))
    }

    /// The failure that the lines after the first `count` report, or else `otherwise`.
    fn failure(&self, count: usize, otherwise: &str) -> CaseFailure {
        // The first error is the cause, and later ones are its consequences.
        let first = self.since(count).find(|line| line.is_error).or_else(|| self.since(count).next());
        let line = first.map_or(otherwise, |line| line.text.trim());
        // `llama_model_load: error loading model: …` starts with the names of functions.
        let line = line.rsplit_once("error loading model: ").map_or(line, |(_, rest)| rest);
        let failure = classify(format!("llama.cpp: {line}"));
        let is_memory = |line: &Line| OUT_OF_MEMORY.iter().any(|phrase| line.text.contains(phrase));
        if self.since(count).any(is_memory) {
            return CaseFailure::new(Status::OutOfMemory, failure.message);
        }
        failure
    }
}

/// How ggml and llama.cpp say that memory is short.
const OUT_OF_MEMORY: [&str; 4] =
    ["insufficient memory", "failed to allocate", "unable to allocate", "could not reserve space"];

/// Takes a piece of the library's log.
pub(super) unsafe extern "C" fn log(level: c_int, text: *const c_char, _: *mut c_void) {
    // SAFETY: ggml passes texts that end with a zero.
    let text = unsafe { text_of(text) };
    if std::env::var_os(crate::backend::DEBUG).is_some() {
        eprint!("{text}");
    }
    said().add(level, &text);
}

fn said() -> MutexGuard<'static, Said> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a call of the library that returns `None` if it fails. The error is then what the library has logged, or else
/// `otherwise`.
pub(super) fn told<T>(run: impl FnOnce() -> Option<T>, otherwise: &str) -> Result<T, CaseFailure> {
    let before = said().count;
    run().ok_or_else(|| said().failure(before, otherwise))
}

/// `libggml-cpu-zen4.so`, from `load_backend: loaded CPU backend from /…/libggml-cpu-zen4.so`.
fn loaded_kernels(line: &str) -> Option<String> {
    let (_, path) = line.split_once("loaded CPU backend from ")?;
    Some(Path::new(path.trim()).file_name()?.to_str()?.to_owned())
}

/// The name of the file with the CPU's kernels, from the log of their loading.
pub(super) fn last_kernels() -> Option<String> {
    said().lines.iter().rev().find_map(|line| loaded_kernels(&line.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pieces: &[(c_int, &str)]) -> Said {
        let mut said = Said { lines: VecDeque::new(), count: 0, is_kept: false };
        pieces.iter().for_each(|(level, text)| said.add(*level, text));
        said
    }

    #[test]
    fn warnings_and_errors_are_kept_and_information_is_not() {
        let said = said(&[
            (2, "load_backend: loaded CPU backend from /x/libggml-cpu-zen4.so\n"),
            (2, "llama_model_loader: loaded meta data"),
            (5, " with 18 keys\n"),
            (1, "create_tensor: loading tensor\n"),
            (3, "load: a warning"),
            (5, " in two pieces\n"),
            (5, "\n"),
            (4, "decode: an error\n"),
        ]);
        let lines: Vec<&str> = said.since(0).map(|line| line.text.trim()).collect();
        let kernels = "load_backend: loaded CPU backend from /x/libggml-cpu-zen4.so";
        assert_eq!(lines, [kernels, "load: a warning in two pieces", "decode: an error"]);
        assert_eq!(loaded_kernels(lines[0]).unwrap(), "libggml-cpu-zen4.so");
        assert_eq!(said.since(2).count(), 1);
        assert_eq!(said.since(3).count(), 0);
    }

    #[test]
    fn a_failure_is_the_first_error_after_the_call_began() {
        let loading = "llama_model_load: error loading model: missing tensor 'output_norm.weight'\n";
        let said =
            said(&[(4, "of an earlier call\n"), (3, "a warning\n"), (4, loading), (4, "failed to load model\n")]);
        let failure = said.failure(1, "it failed");
        assert_eq!(
            (failure.status, failure.message.as_str()),
            (Status::Failed, "llama.cpp: missing tensor 'output_norm.weight'")
        );
        assert_eq!(said.failure(4, "llama_decode has returned -3").message, "llama.cpp: llama_decode has returned -3");
    }

    #[test]
    fn memory_that_is_short_is_told_as_such() {
        let short = "ggml_aligned_malloc: insufficient memory (attempted to allocate 4096.00 MB)\n";
        let said = said(&[(4, short), (4, "llama_init_from_model: failed to initialize the context\n")]);
        let failure = said.failure(0, "it makes no context");
        assert_eq!(failure.status, Status::OutOfMemory);
        assert!(failure.message.contains("attempted to allocate 4096.00 MB"), "{failure}");
    }
}
