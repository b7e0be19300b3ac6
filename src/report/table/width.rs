//! The width of tables and messages: that of the terminal, or 100 columns in a pipe, unless everything is wanted
//! (`--wide`).

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::report::escape;

/// Columns of text if there is no terminal.
const OF_A_PIPE: usize = 100;
/// A narrower terminal is not a reason to leave out more.
const LEAST: usize = 40;

static LIMIT: OnceLock<usize> = OnceLock::new();
static LEFT_OUT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Limits tables and messages of this process to the width of the terminal, or that of the variable `COLUMNS`. Without this call
/// nothing is limited.
pub fn fit_to_terminal() {
    let said = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse::<usize>().ok());
    let of_terminal = || comfy_table::Table::new().width().map(usize::from);
    let width = said.filter(|width| *width > 0).or_else(of_terminal).unwrap_or(OF_A_PIPE);
    LIMIT.get_or_init(|| width.max(LEAST));
}

/// The line about the columns that had no room in the tables so far, if there are any.
pub fn left_out() -> Option<String> {
    let headers = LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    (!headers.is_empty()).then(|| {
        format!("left out for lack of width: {}; `--wide` (or COLUMNS=400) shows all columns", headers.join(", "))
    })
}

/// The text in lines that fit, ending with a line break. All lines begin with so many spaces, and those after the first
/// with two more. Words are not broken.
pub fn wrapped(text: &str, indent: usize) -> String {
    wrapped_within(&escape::terminal(text), indent, limit())
}

pub(super) fn limit() -> usize {
    LIMIT.get().copied().unwrap_or(usize::MAX)
}

pub(super) fn note_left_out(headers: impl IntoIterator<Item = String>) {
    LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner).extend(headers);
}

pub(super) fn wrapped_within(text: &str, indent: usize, limit: usize) -> String {
    let (mut lines, mut length) = (" ".repeat(indent), indent);
    for (place, word) in text.split(' ').enumerate() {
        let letters = word.chars().count();
        if place > 0 && length + 1 + letters > limit {
            lines += &format!("\n{}", " ".repeat(indent + 2));
            length = indent + 2;
        } else if place > 0 {
            lines.push(' ');
            length += 1;
        }
        lines += word;
        length += letters;
    }
    lines + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_broken_between_words() {
        assert_eq!(wrapped_within("a bc def", 2, 6), "  a bc\n    def\n");
        assert_eq!(wrapped_within("a  b", 2, usize::MAX), "  a  b\n");
        assert_eq!(wrapped_within("longer-than-the-limit b", 0, 5), "longer-than-the-limit\n  b\n");
    }
}
