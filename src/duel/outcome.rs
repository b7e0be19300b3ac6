//! What a duel has shown, and the exit code that it means.

use serde::{Deserialize, Serialize};

use super::fighter::Side;
use super::journal::{Agreement, DUEL_FORMAT, Round};
use super::judgement::{CaseRounds, Judgement, Rule, judge};
use super::order::Contestant;
use super::pairing::{Pair, Trouble, Whose, trouble};
use crate::compare::Verdict;
use crate::definition::Status;
use crate::exit_codes;
use crate::harness::{Machine, RoundCase};

/// A duel that has come to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Duel {
    pub format: u32,
    pub name: String,
    pub base: Side,
    pub candidate: Side,
    pub null_slowdown: Option<f64>,
    pub seed: u64,
    pub rounds: usize,
    /// Of a sequential test: the most that there could have been.
    pub planned_rounds: usize,
    pub is_sequential: bool,
    pub tolerance: f64,
    /// Of measured calls a case and process.
    pub seconds_a_case: f64,
    /// Of all rounds.
    pub seconds: f64,
    pub machine: Machine,
    pub cases: Vec<CaseOutcome>,
    /// One of [`exit_codes`].
    pub exit_code: u8,
}

/// One case: either judged, or with a reason why not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseOutcome {
    pub id: String,
    pub judgement: Option<Judgement>,
    pub trouble: Option<Trouble>,
}

impl Duel {
    /// What the rounds so far say.
    pub fn of(agreement: &Agreement, rounds: &[Round]) -> Self {
        let question = &agreement.question;
        let series: Vec<Result<CaseRounds, Trouble>> =
            agreement.pairs.iter().map(|pair| series(pair, rounds)).collect();
        let judged: Vec<CaseRounds> = series.iter().filter_map(|series| series.clone().ok()).collect();
        let rule = Rule { is_sequential: question.is_sequential, tolerance: question.tolerance };
        let mut judgements = judge(&judged, rule).into_iter();
        let outcome = |(pair, series): (&Pair, Result<CaseRounds, Trouble>)| match series {
            Ok(_) => CaseOutcome { id: pair.name(), judgement: judgements.next(), trouble: None },
            Err(trouble) => CaseOutcome { id: pair.name(), judgement: None, trouble: Some(trouble) },
        };
        let cases: Vec<CaseOutcome> = agreement.pairs.iter().zip(series).map(outcome).collect();
        Duel {
            format: DUEL_FORMAT,
            name: agreement.name.clone(),
            base: question.base.clone(),
            candidate: question.candidate.clone(),
            null_slowdown: question.null_slowdown,
            seed: agreement.seed,
            rounds: rounds.len(),
            planned_rounds: agreement.rounds,
            is_sequential: question.is_sequential,
            tolerance: question.tolerance,
            seconds_a_case: question.seconds_a_case,
            machine: agreement.machine.clone(),
            seconds: rounds.iter().map(|round| round.seconds).sum(),
            exit_code: exit_code(&cases),
            cases,
        }
    }

    /// Whether every case has its verdict: a sequential duel stops then.
    pub fn is_decided(&self) -> bool {
        self.cases
            .iter()
            .filter_map(|case| case.judgement.as_ref())
            .all(|judgement| judgement.verdict != Verdict::CannotSay)
    }
}

fn exit_code(cases: &[CaseOutcome]) -> u8 {
    let judgements: Vec<&Judgement> = cases.iter().filter_map(|case| case.judgement.as_ref()).collect();
    let verdicts = |verdict: Verdict| judgements.iter().filter(|judgement| judgement.verdict == verdict).count();
    let is_lost = |case: &CaseOutcome| case.trouble.as_ref().is_some_and(|trouble| trouble.whose == Whose::Candidate);
    if cases.iter().any(is_lost) {
        // No noise explains that.
        exit_codes::REGRESSION_OR_WRONG
    } else if judgements.is_empty() {
        exit_codes::NOTHING_MEASURED
    } else if judgements.iter().any(|judgement| judgement.is_null_changed) {
        exit_codes::UNSTABLE
    } else if verdicts(Verdict::Slower) > 0 {
        exit_codes::REGRESSION_OR_WRONG
    } else if verdicts(Verdict::CannotSay) == judgements.len() {
        exit_codes::UNSTABLE
    } else {
        exit_codes::OK
    }
}

/// The figures of a pair in every round; its trouble, where it has one in any of them.
pub(super) fn series(pair: &Pair, rounds: &[Round]) -> Result<CaseRounds, Trouble> {
    if let Some(trouble) = &pair.trouble {
        return Err(trouble.clone());
    }
    let mut series = CaseRounds::default();
    for round in rounds {
        let own = |contestant: Contestant| {
            let id = if contestant == Contestant::Candidate { &pair.candidate } else { &pair.base };
            let reports = round.processes.iter().filter(move |(who, _)| *who == contestant);
            reports.map(move |(_, report)| {
                report.cases.iter().find(|case| case.id == *id).cloned().unwrap_or_else(|| absent(id))
            })
        };
        let bases: Vec<RoundCase> = own(Contestant::Base).chain(own(Contestant::Null)).collect();
        let candidates: Vec<RoundCase> = own(Contestant::Candidate).collect();
        let pairs = bases.iter().flat_map(|base| candidates.iter().map(move |candidate| (base, candidate)));
        let mut troubles: Vec<Trouble> = pairs.filter_map(|(base, own)| trouble(base, Some(own))).collect();
        troubles.sort_by_key(|trouble| trouble.whose == Whose::Candidate);
        if let Some(first) = troubles.into_iter().next() {
            return Err(Trouble { message: format!("in round {}: {}", round.number + 1, first.message), ..first });
        }
        for (contestant, figures) in [
            (Contestant::Base, &mut series.base),
            (Contestant::Null, &mut series.null),
            (Contestant::Candidate, &mut series.candidate),
        ] {
            let medians = own(contestant).filter_map(|case| Some(case.figures?.median_ns));
            figures.extend(medians.min_by(f64::total_cmp).map(f64::ln));
        }
    }
    Ok(series)
}

fn absent(id: &str) -> RoundCase {
    RoundCase {
        id: id.to_owned(),
        status: Status::Failed,
        message: Some("its process did not report it".into()),
        figures: None,
    }
}
