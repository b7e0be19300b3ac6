//! A duel of this executable with itself, from which the gate's own error rates are found.

use std::time::Duration;

use anyhow::Result;

use super::driver::duel_between;
use super::program::running;
use super::terms::{Rules, Terms};
use crate::compare::Gate;
use crate::machine::processes::CAN_SUSPEND;
use crate::paths::Paths;
use crate::selection::Selection;

/// Measures a duel of this executable with itself, by the default rules, for about `at_most`. Returns `None` if too few
/// generations fit, or the system cannot stop processes.
///
/// # Errors
/// A process refuses, the user stops it ([`Interrupted`](crate::harness::Interrupted)), or the target folder cannot be written.
pub fn measure_gate(paths: &Paths, selection: Selection, at_most: Duration) -> Result<Option<Gate>> {
    if !CAN_SUSPEND {
        return Ok(None);
    }
    let own = running(paths)?;
    let minutes = at_most.as_secs_f64() / 60.0;
    eprintln!("a duel of this program with itself, about {minutes:.1} min");
    let rules = Rules { minutes: Some(minutes), are_minutes_used_up: true, tolerance: 0.01, ..Rules::default() };
    let terms = Terms { selection, rules, is_silent: true, ..Terms::default() };
    let (duel, generations) = duel_between(paths, &own, std::slice::from_ref(&own), &terms)?;
    // Nobody needs the files of this duel any more.
    let _ = std::fs::remove_dir_all(paths.duels().join(&duel.name));
    let mut measured = duel.cases.iter().zip(&generations).filter(|(case, _)| case.plan.is_some());
    Ok(measured.next().and_then(|(case, generations)| Gate::out_of(case.id.clone(), generations, duel.tolerance)))
}
