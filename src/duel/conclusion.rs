//! The result of a duel from its generations, so far or at its end.

use super::foresight::minutes_needed;
use super::generation::MeasuredGeneration;
use super::journal::Entry;
use crate::compare::{
    CaseOutcome, Duel, FALSE_DISCOVERIES, Generation, Paired, PairedChange, decide_duet, duel_exit_code, in_percent,
};

fn measured(entries: &[Entry], case: usize) -> impl Iterator<Item = &MeasuredGeneration> {
    entries.iter().filter(move |entry| entry.case == case).filter_map(|entry| entry.result.as_ref().ok())
}

/// The measurements of a case, one for each generation.
pub fn generations_of(entries: &[Entry], case: usize) -> Vec<Generation> {
    measured(entries, case).map(Generation::from).collect()
}

/// A case with each of its candidates.
pub fn outcomes_of(duel: &Duel, case: usize) -> &[CaseOutcome] {
    &duel.cases[case * duel.candidates.len()..][..duel.candidates.len()]
}

/// The case with each candidate that is measured. Other candidates have no figures in the rows.
fn paired<'a>(duel: &Duel, case: usize, generations: &'a [Generation]) -> Vec<Paired<'a>> {
    let outcomes = outcomes_of(duel, case);
    let error_rate = outcomes[0].plan.as_ref().map_or(FALSE_DISCOVERIES, |plan| plan.error_rate(generations.len()));
    let measured = outcomes.iter().filter(|outcome| outcome.loss.is_none());
    // Another Python environment has other runtimes, so the code differs.
    let is_same_build = |outcome: &CaseOutcome| {
        let candidate = &duel.candidates[outcome.candidate];
        duel.is_same_code || (&candidate.sha256, &candidate.environment) == (&duel.base.sha256, &duel.base.environment)
    };
    measured
        .enumerate()
        .map(|(place, it)| Paired { generations, candidate: place, is_same_build: is_same_build(it), error_rate })
        .collect()
}

/// Whether a case needs no more generations: one of its looks is due, and every candidate's verdict is settled.
pub fn is_settled(duel: &Duel, entries: &[Entry], case: usize) -> bool {
    let generations = generations_of(entries, case);
    let Some(plan) = &outcomes_of(duel, case)[0].plan else { return true };
    let is_enough = |found: &Option<PairedChange>| found.as_ref().is_some_and(|it| it.is_settled(duel.cases.len()));
    plan.is_look(generations.len())
        && decide_duet(&paired(duel, case, &generations), duel.tolerance).iter().all(is_enough)
}

/// A planned duel with the result of every case after these generations.
pub fn conclude(planned: &Duel, entries: &[Entry]) -> Duel {
    let mut duel = planned.clone();
    let candidates = duel.candidates.len();
    for (case, outcomes) in duel.cases.chunks_mut(candidates).enumerate() {
        let lost = entries.iter().filter(|entry| entry.case == case).find_map(|entry| entry.result.as_ref().err());
        outcomes.iter_mut().for_each(|outcome| outcome.loss = outcome.loss.take().or(lost.cloned()));
    }
    let generations: Vec<_> = (0..duel.cases.len() / candidates).map(|case| generations_of(entries, case)).collect();
    let paired: Vec<Paired> =
        generations.iter().enumerate().flat_map(|(case, generations)| paired(&duel, case, generations)).collect();
    let decided = decide_duet(&paired, duel.tolerance);
    for (outcome, found) in duel.cases.iter_mut().filter(|outcome| outcome.loss.is_none()).zip(decided) {
        outcome.comparison = found;
    }
    let seconds = |case| measured(entries, case).map(|it| it.start_seconds + it.row_seconds).sum::<f64>();
    let seconds: Vec<f64> = (0..generations.len()).map(seconds).collect();
    duel.seconds = seconds.iter().sum();
    duel.minutes_needed = minutes_needed(&duel, &seconds);
    duel.exit_code = duel_exit_code(&duel.cases, duel.undecided_is_allowed);
    duel
}

/// `digits/ort-cpu-f32/1: +0.3 % [-0.8, +1.2] after 12 of at most 40 generations: same`
pub fn progress(duel: &Duel, case: usize) -> String {
    let outcomes = outcomes_of(duel, case);
    let most = outcomes[0].plan.map_or(0, |plan| plan.generations);
    let now = |outcome: &CaseOutcome| match (&outcome.loss, &outcome.comparison) {
        (Some(loss), _) if loss.is_left_out => format!("left out: {}", loss.message),
        (Some(loss), _) => format!("lost: {}", loss.message),
        (None, Some(found)) => {
            let PairedChange { generations, verdict, .. } = found;
            let change = in_percent(&found.change.interval);
            let is_settled = outcomes[0].plan.is_some_and(|plan| plan.is_look(*generations))
                && (*generations == most || found.is_settled(duel.cases.len()));
            let verdict = if is_settled { verdict.to_string() } else { "no verdict yet".to_owned() };
            format!("{change} after {generations} of at most {most} generations: {verdict}")
        }
        (None, None) => "too few generations for an interval".into(),
    };
    format!("{}: {}", outcomes[0].id, outcomes.iter().map(now).collect::<Vec<_>>().join("; "))
}
