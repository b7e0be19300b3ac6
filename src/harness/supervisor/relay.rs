//! Passes a worker's output on, and remembers the end of its standard error.
//!
//! Some of Criterion's lines are left out: its warning that it cannot complete its samples, which it gives whenever a
//! sample is one call, here chosen on purpose; and its progress, in whose place the harness says more. Everything else
//! is passed on as it comes, also lines that are not ended yet.

use std::collections::VecDeque;
use std::io::{Read, Write};

/// Beginnings of the lines that are left out. The second is how Criterion overwrites a line of its progress.
const DROPPED: [&[u8]; 4] =
    [b"Benchmarking ", b"\x1b[2K", b"Warning: Unable to complete ", b"Gnuplot not found, using plotters backend"];
const LINES_KEPT: usize = 12;

/// Copies `input` to `output` until its end and returns the last lines. The log gets everything, also what is left out.
pub fn relay(mut input: impl Read, mut output: impl Write, mut log: impl Write) -> String {
    let mut filter = LineFilter::default();
    let mut buffer = [0; 4096];
    while let Ok(length) = input.read(&mut buffer) {
        if length == 0 {
            break;
        }
        let _ = log.write_all(&buffer[..length]);
        let passed = filter.pass(&buffer[..length]);
        // A closed terminal must not stop the run.
        let _ = output.write_all(&passed).and_then(|()| output.flush());
    }
    filter.tail()
}

/// Copies all of `input` to `output`. A reader of `output` that has gone away (`| head`) does not stop the writer.
pub fn copy(mut input: impl Read, mut output: impl Write) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = input.read(&mut buffer) {
        let _ = output.write_all(&buffer[..length]).and_then(|()| output.flush());
    }
}

#[derive(Default)]
struct LineFilter {
    /// The present line, as far as it is held back or was passed on.
    line: Vec<u8>,
    is_passed_on: bool,
    last_lines: VecDeque<String>,
}

impl LineFilter {
    fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut passed = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            self.line.push(byte);
            let may_be_dropped = DROPPED.iter().any(|drop| self.line.starts_with(drop) || drop.starts_with(&self.line));
            if self.is_passed_on {
                passed.push(byte);
            } else if !may_be_dropped {
                passed.extend_from_slice(&self.line);
                self.is_passed_on = true;
            }
            if matches!(byte, b'\n' | b'\r') {
                self.end_line();
            }
        }
        passed
    }

    fn end_line(&mut self) {
        let text = String::from_utf8_lossy(&self.line).trim_end().to_owned();
        if self.is_passed_on && !text.is_empty() {
            self.last_lines.push_back(text);
            if self.last_lines.len() > LINES_KEPT {
                self.last_lines.pop_front();
            }
        }
        self.line.clear();
        self.is_passed_on = false;
    }

    fn tail(mut self) -> String {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.last_lines.make_contiguous().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_warning_is_left_out_whatever_the_pieces() {
        let text = "[1/2] a\nWarning: Unable to complete 10 samples in 1.0ns. You may …\n\nWarning: other\nlast";
        for piece in [1, 7, 4096] {
            let mut filter = LineFilter::default();
            let passed: Vec<u8> = text.as_bytes().chunks(piece).flat_map(|bytes| filter.pass(bytes)).collect();
            assert_eq!(String::from_utf8(passed).unwrap(), "[1/2] a\n\nWarning: other\nlast");
            assert_eq!(filter.tail(), "[1/2] a\nWarning: other\nlast");
        }
    }

    #[test]
    fn a_line_without_an_end_is_passed_on_at_once() {
        let mut filter = LineFilter::default();
        assert_eq!(filter.pass(b"downloading 3 %"), b"downloading 3 %");
    }

    #[test]
    fn progress_that_overwrites_itself_is_left_out_and_an_error_after_it_is_not() {
        let mut filter = LineFilter::default();
        let text = b"Benchmarking x: Warming up\r\x1b[2KBenchmarking x: Analyzing\n\nerror: no\n";
        assert_eq!(filter.pass(text), b"\nerror: no\n");
    }
}
