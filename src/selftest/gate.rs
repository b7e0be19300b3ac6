//! A duel of this executable with itself, out of which the gate's own error rates are found.

use std::time::Duration;

use crate::definition::Selection;
use crate::duel::{self, Ending, Gate, Length, Terms};
use crate::exit_codes;
use crate::paths::Paths;

/// Of measured calls a process, as a duel has by default.
const SECONDS: Duration = Duration::from_millis(100);
const TOLERANCE: f64 = 0.03;

/// Fights for about that long. The inner error is an exit code; no gate where too few rounds fit.
///
/// # Errors
/// A process refuses, or the target folder cannot be written.
pub(super) fn measure(
    paths: &Paths,
    selection: Selection,
    at_most: Duration,
) -> Result<Result<Option<Gate>, u8>, String> {
    let Some([one, other]) = duel::resolve_both(paths, ".", ".")? else { return Ok(Err(exit_codes::INTERRUPTED)) };
    let minutes = at_most.as_secs_f64() / 60.0;
    eprintln!("a duel of this program with itself, about {minutes:.1} min");
    let terms = Terms {
        selection,
        threads: None,
        duration: SECONDS,
        length: Length::Minutes(minutes),
        is_sequential: false,
        seed: None,
        tolerance: TOLERANCE,
        null_slowdown: None,
        resume: false,
        is_silent: true,
    };
    let fought = match duel::between(paths, &one.side, &other.side, &terms)? {
        Ending::Complete(fought) => fought,
        Ending::Interrupted { .. } => return Ok(Err(exit_codes::INTERRUPTED)),
    };
    let gate = Gate::of(paths, &fought)?;
    // Nobody asks for this duel any more.
    let _ = std::fs::remove_dir_all(paths.duels().join(&fought.name));
    Ok(Ok(gate))
}
