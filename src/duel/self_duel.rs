//! A duel of this executable with itself, out of which the gate's own error rates are found.

use std::time::Duration;

use anyhow::Result;

use super::conclusion::generations_of;
use super::driver::{DuelEnd, Terms, duel_between};
use super::journal::{Journal, Length};
use super::program::resolve_all;
use crate::compare::{Duel, Gate};
use crate::exit_codes;
use crate::paths::Paths;
use crate::selection::Selection;

/// As duels have them by default.
const SLICE: Duration = Duration::from_millis(2);
const TOLERANCE: f64 = 0.01;

/// Measures duels of this executable with itself for about that long. The inner error is an exit code; there is no gate if too few generations fit.
///
/// # Errors
/// A process refuses, or the target folder cannot be written.
pub fn measure_gate(paths: &Paths, selection: Selection, at_most: Duration) -> Result<Result<Option<Gate>, u8>> {
    let own = resolve_all(paths, &[".".to_owned()])?;
    let Some([own]) = own.as_deref() else { return Ok(Err(exit_codes::INTERRUPTED)) };
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
    let duel = match duel_between(paths, &own.program, std::slice::from_ref(&own.program), &terms)? {
        DuelEnd::Complete(duel) => duel,
        DuelEnd::Interrupted { .. } => return Ok(Err(exit_codes::INTERRUPTED)),
    };
    let gate = gate_of(paths, &duel)?;
    // Nobody asks for this duel any more.
    let _ = std::fs::remove_dir_all(paths.duels().join(&duel.name));
    Ok(Ok(gate))
}

/// The gate's rates out of a duel between equal programs. Returns `None` if it has too few generations.
fn gate_of(paths: &Paths, duel: &Duel) -> Result<Option<Gate>> {
    let (journal, agreement) = Journal::open(paths.duels().join(&duel.name))?;
    let Some(case) = agreement.cases.iter().position(|case| case.plan.is_ok()) else { return Ok(None) };
    let generations = generations_of(&journal.entries(), case);
    Ok(Gate::out_of(agreement.cases[case].id.clone(), &generations, duel.tolerance))
}
