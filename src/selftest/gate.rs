//! A duel of this executable with itself, out of which the gate's own error rates are found.

use std::time::Duration;

use anyhow::Result;

use crate::duel::{self, DuelEnd, Gate, Length, Terms};
use crate::exit_codes;
use crate::paths::Paths;
use crate::selection::Selection;

/// As duels have them by default.
const SLICE: Duration = Duration::from_millis(20);
const TOLERANCE: f64 = 0.015;

/// Measures for about that long. The inner error is an exit code; there is no gate if too few generations fit.
///
/// # Errors
/// A process refuses, or the target folder cannot be written.
pub(super) fn measure(paths: &Paths, selection: Selection, at_most: Duration) -> Result<Result<Option<Gate>, u8>> {
    let Some([one, other]) = duel::resolve_both(paths, ".", ".")? else { return Ok(Err(exit_codes::INTERRUPTED)) };
    let minutes = at_most.as_secs_f64() / 60.0;
    eprintln!("a duel of this program with itself, about {minutes:.1} min");
    let terms = Terms {
        selection,
        threads: None,
        is_pinned: true,
        slice: SLICE,
        length: Length::WholeMinutes(minutes),
        seed: None,
        tolerance: TOLERANCE,
        null_slowdown: None,
        least_call_ns: 0,
        resume: false,
        is_silent: true,
    };
    let duel = match duel::duel_between(paths, &one.program, &other.program, &terms)? {
        DuelEnd::Complete(duel) => duel,
        DuelEnd::Interrupted { .. } => return Ok(Err(exit_codes::INTERRUPTED)),
    };
    let gate = Gate::of(paths, &duel)?;
    // Nobody asks for this duel any more.
    let _ = std::fs::remove_dir_all(paths.duels().join(&duel.name));
    Ok(Ok(gate))
}
