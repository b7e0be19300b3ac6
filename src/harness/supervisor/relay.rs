//! Passes a worker's output on, and remembers its end.
//!
//! Some of Criterion's lines are left out: its warning that it cannot complete its samples, which it gives whenever a
//! sample is one call, here chosen on purpose; and its progress, in whose place the harness says more.

use std::io::{BufRead, BufReader, Read, Write};

/// Beginnings of the lines that are left out. The second is how Criterion overwrites a line of its progress.
const DROPPED: [&[u8]; 4] =
    [b"Benchmarking ", b"\x1b[2K", b"Warning: Unable to complete ", b"Gnuplot not found, using plotters backend"];

/// Copies the lines of `input` to `output` until its end and returns the last one that is not empty. The log gets everything,
/// also what is left out.
pub fn relay(input: impl Read, mut output: impl Write, mut log: impl Write) -> String {
    let mut input = BufReader::new(input);
    let mut last = String::new();
    let mut line = Vec::new();
    while let Ok(1..) = input.read_until(b'\n', &mut line) {
        let _ = log.write_all(&line);
        if !DROPPED.iter().any(|dropped| line.starts_with(dropped)) {
            // A reader that has gone away (`| head`) must not stop the run.
            let _ = output.write_all(&line).and_then(|()| output.flush());
            let text = String::from_utf8_lossy(&line);
            if !text.trim().is_empty() {
                last = text.trim_end().to_owned();
            }
        }
        line.clear();
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_criterions_own_lines_are_left_out() {
        let text = "[1/2] a\nWarning: Unable to complete 10 samples in 1.0ns. You may …\n\nWarning: other\n\
            Benchmarking x: Warming up\r\x1b[2KBenchmarking x: Analyzing\nerror: no\nlast";
        let (mut shown, mut log) = (Vec::new(), Vec::new());
        let last_words = relay(text.as_bytes(), &mut shown, &mut log);
        assert_eq!(String::from_utf8(shown).unwrap(), "[1/2] a\n\nWarning: other\nerror: no\nlast");
        assert_eq!(last_words, "last");
        assert_eq!(String::from_utf8(log).unwrap(), text);
    }
}
