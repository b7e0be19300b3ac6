//! Fights a duel: a trial round, which is proven and counts for nothing, then the rounds.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::fighter::{Fought, Instructions, Side, arguments, fight, line_up};
use super::journal::{Agreement, DUEL_FORMAT, Journal, Length, Question, Round};
use super::judgement::FALSE_DISCOVERIES;
use super::order::{Contestant, order};
use super::outcome::Duel;
use super::pairing::{Pair, Whose, pair};
use super::{progress, signed_rank};
use crate::definition::{Selection, Status};
use crate::harness::{Machine, RoundReport, is_interrupted};
use crate::paths::Paths;

/// More say no more; the intervals are made of all pairs of rounds.
const MOST_ROUNDS: usize = 1000;

/// How a duel is fought.
#[derive(Clone, Debug)]
pub struct Terms {
    pub selection: Selection,
    pub threads: Option<usize>,
    /// Measured calls a case and process.
    pub duration: Duration,
    pub length: Length,
    pub is_sequential: bool,
    /// Drawn from the clock where it is not given.
    pub seed: Option<u64>,
    /// Changes up to this part do not matter.
    pub tolerance: f64,
    /// Part by which the candidate is made slower, to see whether that is found.
    pub null_slowdown: Option<f64>,
    /// Go on with the last duel of the same question.
    pub resume: bool,
    /// Whether rounds are told on standard error.
    pub is_silent: bool,
}

/// How a duel ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    Complete(Box<Duel>),
    /// By the user; `rounds` are kept.
    Interrupted {
        rounds: usize,
        planned: Option<usize>,
    },
}

/// Fights a duel. The caller keeps other measurements out ([`keep_others_out`](crate::harness::keep_others_out)).
///
/// # Errors
/// A contestant refuses, there are too few rounds to show anything, or the target folder cannot be written.
pub fn between(paths: &Paths, base: &Side, candidate: &Side, terms: &Terms) -> Result<Ending, String> {
    is_interrupted();
    let instructions = Instructions {
        selection: terms.selection.clone(),
        threads: terms.threads,
        duration: terms.duration,
        null_slowdown: terms.null_slowdown,
    };
    let question = Question {
        base: base.clone(),
        candidate: candidate.clone(),
        flags: arguments(Contestant::Base, base, &instructions, &[], true),
        null_slowdown: terms.null_slowdown,
        length: terms.length,
        is_sequential: terms.is_sequential,
        tolerance: terms.tolerance,
        seconds_a_case: terms.duration.as_secs_f64(),
    };
    let arena = paths.duels().join("arena");
    line_up(&arena, base, candidate)?;
    let started = if terms.resume {
        Journal::last(&paths.duels(), &question, terms.seed).map(Some)?
    } else {
        let rehearsal = Rehearsal { arena: &arena, question: &question, instructions: &instructions, terms };
        rehearsal.agree(paths)?
    };
    let Some((journal, agreement)) = started else { return Ok(Ending::Interrupted { rounds: 0, planned: None }) };
    let mut rounds = journal.rounds()?;
    if terms.resume && !terms.is_silent {
        eprintln!("resuming duel {}: {} of {} rounds are fought", agreement.name, rounds.len(), agreement.rounds);
    }
    let begin = Instant::now();
    let before = rounds.len();
    let measured = agreement.pairs.iter().filter(|pair| pair.trouble.is_none()).count();
    while rounds.len() < agreement.rounds && measured > 0 {
        if agreement.question.is_sequential && !rounds.is_empty() && Duel::of(&agreement, &rounds).is_decided() {
            break;
        }
        let fight = |contestant| {
            let side = if contestant == Contestant::Candidate { candidate } else { base };
            fight(&arena, contestant, side, &instructions, &ids(&agreement.pairs, contestant), false)
        };
        let Some(round) = fight_round(agreement.seed, rounds.len(), fight)? else {
            return Ok(Ending::Interrupted { rounds: rounds.len(), planned: Some(agreement.rounds) });
        };
        journal.append(&round)?;
        rounds.push(round);
        if !terms.is_silent {
            let each = begin.elapsed().as_secs_f64() / (rounds.len() - before) as f64;
            let left = each * (agreement.rounds - rounds.len()) as f64;
            eprintln!("{}", progress::line(&Duel::of(&agreement, &rounds), left));
        }
    }
    let _ = std::fs::remove_dir_all(&arena);
    Ok(Ending::Complete(Box::new(Duel::of(&agreement, &rounds))))
}

/// The six processes of a round; `None` where the user stopped it.
fn fight_round(
    seed: u64,
    number: usize,
    fight: impl Fn(Contestant) -> Result<Fought, String>,
) -> Result<Option<Round>, String> {
    let begin = Instant::now();
    let mut processes = Vec::new();
    for contestant in order(seed, number) {
        match fight(contestant)? {
            Fought::Reported(report) => processes.push((contestant, report)),
            Fought::Interrupted => return Ok(None),
        }
    }
    Ok(Some(Round { number, seconds: begin.elapsed().as_secs_f64(), processes }))
}

/// The ids that a contestant is still asked for.
fn ids(pairs: &[Pair], contestant: Contestant) -> Vec<String> {
    let open = pairs.iter().filter(|pair| pair.trouble.is_none());
    let id = |pair: &Pair| if contestant == Contestant::Candidate { pair.candidate.clone() } else { pair.base.clone() };
    open.map(id).collect()
}

/// What comes before the first round.
struct Rehearsal<'a> {
    arena: &'a std::path::Path,
    question: &'a Question,
    instructions: &'a Instructions,
    terms: &'a Terms,
}

impl Rehearsal<'_> {
    /// Proves both sides, measures what a process takes, and settles the number of rounds. `None` where the user
    /// stopped it.
    ///
    /// # Errors
    /// As [`between`].
    fn agree(&self, paths: &Paths) -> Result<Option<(Journal, Agreement)>, String> {
        let Question { base, candidate, .. } = self.question;
        if !self.terms.is_silent {
            eprintln!("comparing the outputs of both sides with the reference, once, and preparing what they need");
        }
        let begin = Instant::now();
        let Some(base_report) = self.run(Contestant::Base, base, &[], true)? else { return Ok(None) };
        let Some(candidate_report) = self.run(Contestant::Candidate, candidate, &[], true)? else { return Ok(None) };
        let may_differ = base.suite.is_some() || candidate.suite.is_some();
        let pairs = pair(&base_report, &candidate_report, may_differ);
        self.say_what_is_left_out(&pairs);
        // What neither side can run is nobody's loss, and no case of this duel.
        let pairs: Vec<Pair> = pairs.into_iter().filter(|pair| !is_out_of_reach(pair)).collect();
        let open = ids(&pairs, Contestant::Base);
        let mut seconds_a_round = 0.0;
        if !open.is_empty() {
            let processes = Instant::now();
            for (contestant, side) in [(Contestant::Base, base), (Contestant::Candidate, candidate)] {
                if self.run(contestant, side, &ids(&pairs, contestant), false)?.is_none() {
                    return Ok(None);
                }
            }
            seconds_a_round = 3.0 * processes.elapsed().as_secs_f64();
        }
        let rounds = self.rounds(open.len(), seconds_a_round, begin.elapsed().as_secs_f64())?;
        let started = Timestamp::now();
        let journal = Journal::begin(&paths.duels(), started)?;
        let agreement = Agreement {
            format: DUEL_FORMAT,
            name: journal.name(),
            started,
            question: self.question.clone(),
            seed: self.terms.seed.unwrap_or(started.as_nanosecond() as u64 % 1_000_000_000),
            rounds,
            seconds_a_round,
            pairs,
            machine: Machine::read(),
        };
        journal.write(&agreement)?;
        if !self.terms.is_silent {
            eprintln!(
                "duel {}: {} cases, {rounds} rounds of six processes, about {:.1} min, seed {}; kept in {}",
                agreement.name,
                open.len(),
                rounds as f64 * seconds_a_round / 60.0,
                agreement.seed,
                journal.path().display()
            );
        }
        Ok(Some((journal, agreement)))
    }

    fn run(
        &self,
        contestant: Contestant,
        side: &Side,
        ids: &[String],
        is_proven: bool,
    ) -> Result<Option<RoundReport>, String> {
        match fight(self.arena, contestant, side, self.instructions, ids, is_proven)? {
            Fought::Reported(report) => Ok(Some(report)),
            Fought::Interrupted => Ok(None),
        }
    }

    /// The fixed number of rounds, or the most that a sequential duel has.
    fn rounds(&self, cases: usize, seconds_a_round: f64, seconds_spent: f64) -> Result<usize, String> {
        let fewest = signed_rank::fewest(FALSE_DISCOVERIES / cases.max(1) as f64);
        let in_minutes = |minutes: f64| {
            let fit = (60.0 * minutes - seconds_spent) / seconds_a_round.max(1e-3);
            (fit as usize).clamp(fewest, MOST_ROUNDS)
        };
        match self.question.length {
            Length::Rounds(rounds) if rounds < fewest => Err(format!(
                "{rounds} rounds can show nothing of {cases} cases, whatever they measure: at least {fewest} are needed"
            )),
            Length::Rounds(rounds) => Ok(rounds),
            Length::Minutes(minutes) => Ok(in_minutes(minutes)),
            Length::AtLeast(rounds) => Ok(rounds.max(fewest)),
        }
    }

    fn say_what_is_left_out(&self, pairs: &[Pair]) {
        for pair in pairs.iter().filter(|_| !self.terms.is_silent) {
            if let Some(trouble) = &pair.trouble {
                let whose = match trouble.whose {
                    Whose::Base => &self.question.base.name,
                    Whose::Candidate => &self.question.candidate.name,
                };
                eprintln!("left out: {}: {} in {whose}: {}", pair.name(), trouble.status, trouble.message);
            }
        }
    }
}

/// The base cannot run it on this machine or in this build.
fn is_out_of_reach(pair: &Pair) -> bool {
    pair.trouble.as_ref().is_some_and(|trouble| {
        trouble.whose == Whose::Base && matches!(trouble.status, Status::Unavailable | Status::Unsupported)
    })
}
