//! What the generations of a duel say, so far or at its end.

use super::journal::{Agreement, Entry, PlannedDuel};
use crate::compare::{CaseOutcome, DUEL_FORMAT, Duel, DuetRule, Generation, decide_duet, duel_exit_code, in_percent};

/// What the generations of a case have measured.
pub fn generations_of(entries: &[Entry], case: usize) -> Vec<Generation> {
    let own = entries.iter().filter(|entry| entry.case == case);
    own.filter_map(|entry| entry.result.as_ref().ok()).map(Generation::from).collect()
}

/// What the generations so far say of every case.
pub fn conclude(agreement: &Agreement, entries: &[Entry]) -> Duel {
    let question = &agreement.question;
    let loss = |case: usize| {
        let later = entries.iter().filter(|entry| entry.case == case).find_map(|entry| entry.result.as_ref().err());
        agreement.cases[case].plan.as_ref().err().or(later)
    };
    let compared: Vec<usize> = (0..agreement.cases.len()).filter(|&case| loss(case).is_none()).collect();
    let generations: Vec<Vec<Generation>> = compared.iter().map(|&case| generations_of(entries, case)).collect();
    let rule =
        DuetRule { tolerance: question.tolerance, is_same_build: question.base.sha256 == question.candidate.sha256 };
    let mut decided = decide_duet(&generations, rule).into_iter();
    let outcome = |(case, planned): (usize, &PlannedDuel)| CaseOutcome {
        id: planned.id.clone(),
        plan: planned.plan.clone().ok(),
        comparison: if loss(case).is_none() { decided.next().flatten() } else { None },
        loss: loss(case).cloned(),
    };
    let cases: Vec<CaseOutcome> = agreement.cases.iter().enumerate().map(outcome).collect();
    let measured = entries.iter().filter_map(|entry| entry.result.as_ref().ok());
    Duel {
        format: DUEL_FORMAT,
        name: agreement.name.clone(),
        base: question.base.clone(),
        candidate: question.candidate.clone(),
        null_slowdown: question.null_slowdown,
        seed: agreement.seed,
        tolerance: question.tolerance,
        slice_ms: question.slice_ms,
        processors: agreement.processors.clone(),
        seconds: measured.map(|it| it.start_seconds + it.row_seconds).sum(),
        machine: agreement.machine.clone(),
        exit_code: duel_exit_code(&cases),
        cases,
    }
}

/// `generation 7/40: digits/ort-cpu-f32/1: +0.3 % [-0.8, +1.2], no verdict yet`
pub fn progress(duel: &Duel, case: usize, done: usize, total: usize) -> String {
    let outcome = &duel.cases[case];
    let now = match (&outcome.loss, &outcome.comparison) {
        (Some(loss), _) => format!("lost: {}", loss.message),
        (None, Some(found)) => format!("{}, no verdict yet", in_percent(&found.change.interval)),
        (None, None) => "too few generations for an interval".into(),
    };
    format!("generation {done}/{total}: {}: {now}", outcome.id)
}
