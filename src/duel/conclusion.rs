//! What the generations of a duel say, so far or at its end.

use super::journal::{Agreement, Entry, PlannedDuel, Question};
use crate::compare::{
    CaseOutcome, DUEL_FORMAT, Duel, FALSE_DISCOVERIES, Generation, Loss, Paired, PairedChange, Role, decide_duet,
    duel_exit_code, in_percent,
};

/// What the generations of a case have measured.
pub fn generations_of(entries: &[Entry], case: usize) -> Vec<Generation> {
    let own = entries.iter().filter(|entry| entry.case == case);
    own.filter_map(|entry| entry.result.as_ref().ok()).map(Generation::from).collect()
}

impl Agreement {
    /// The case with each candidate that is measured in it. Those that are not have no place in the rows.
    fn paired<'a>(&self, case: usize, generations: &'a [Generation]) -> Vec<Paired<'a>> {
        let Question { base, candidates, .. } = &self.question;
        let planned = &self.cases[case];
        let error_rate = planned.plan.as_ref().map_or(FALSE_DISCOVERIES, |plan| plan.error_rate(generations.len()));
        let measured = candidates.iter().enumerate().filter(|(number, _)| planned.loss_of(*number).is_none());
        measured
            .enumerate()
            .map(|(place, (_, candidate))| Paired {
                generations,
                candidate: place,
                is_same_build: base.sha256 == candidate.sha256,
                error_rate,
            })
            .collect()
    }

    /// Whether the generations of a case are enough: they lead to one of its looks, and every candidate's verdict is settled.
    pub fn is_settled(&self, entries: &[Entry], case: usize) -> bool {
        let generations = generations_of(entries, case);
        let Ok(plan) = &self.cases[case].plan else { return true };
        let comparisons = self.cases.len() * self.question.candidates.len();
        let is_enough = |found: &Option<PairedChange>| found.as_ref().is_some_and(|it| it.is_settled(comparisons));
        plan.looks().iter().any(|look| look.generations == generations.len())
            && decide_duet(&self.paired(case, &generations), self.question.tolerance).iter().all(is_enough)
    }
}

impl PlannedDuel {
    fn loss_of(&self, candidate: usize) -> Option<&Loss> {
        self.losses.iter().find(|loss| loss.role == Role::Candidate(candidate))
    }
}

/// What the generations so far say of every case.
pub fn conclude(agreement: &Agreement, entries: &[Entry]) -> Duel {
    let question = &agreement.question;
    let generations: Vec<Vec<Generation>> =
        (0..agreement.cases.len()).map(|case| generations_of(entries, case)).collect();
    let mut paired = Vec::new();
    let mut cases = Vec::new();
    for (case, planned) in agreement.cases.iter().enumerate() {
        let later = entries.iter().filter(|entry| entry.case == case).find_map(|entry| entry.result.as_ref().err());
        let of_all = planned.plan.as_ref().err().or(later);
        for candidate in 0..question.candidates.len() {
            cases.push(CaseOutcome {
                id: planned.id.clone(),
                candidate,
                plan: planned.plan.clone().ok(),
                comparison: None,
                loss: planned.loss_of(candidate).or(of_all).cloned(),
            });
        }
        if of_all.is_none() {
            paired.extend(agreement.paired(case, &generations[case]));
        }
    }
    let decided = decide_duet(&paired, question.tolerance);
    for (outcome, found) in cases.iter_mut().filter(|outcome| outcome.loss.is_none()).zip(decided) {
        outcome.comparison = found;
    }
    let measured = entries.iter().filter_map(|entry| entry.result.as_ref().ok());
    Duel {
        format: DUEL_FORMAT,
        name: agreement.name.clone(),
        base: question.base.clone(),
        candidates: question.candidates.clone(),
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

/// `generation 7 of at most 40: digits/ort-cpu-f32/1: +0.3 % [-0.8, +1.2], no verdict yet`
pub fn progress(duel: &Duel, case: usize, done: usize, total: usize) -> String {
    let of_case = &duel.cases[case * duel.candidates.len()..][..duel.candidates.len()];
    let now = |outcome: &CaseOutcome| match (&outcome.loss, &outcome.comparison) {
        (Some(loss), _) => format!("lost: {}", loss.message),
        (None, Some(found)) => in_percent(&found.change.interval),
        (None, None) => "too few generations for an interval".into(),
    };
    let now: Vec<String> = of_case.iter().map(now).collect();
    format!("generation {done} of at most {total}: {}: {}, no verdict yet", of_case[0].id, now.join("; "))
}
