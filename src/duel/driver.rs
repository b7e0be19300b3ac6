//! Drives a duel: asks the programs what they can measure, tries each case, fixes the plan, and measures the generations.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use jiff::Timestamp;

use super::conclusion::{conclude, progress};
use super::generation::{ArmsOfCase, Attempt, MeasuredGeneration};
use super::journal::{Agreement, Entry, Journal, Length, PlannedDuel, Question};
use super::pairing::{Pairing, pair};
use super::planning::{Arena, Instructions, ask, plan_arguments};
use crate::compare::{
    Components, Costs, DUEL_FORMAT, Duel, DuetPlan, FEWEST_GENERATIONS, Generation, Loss, Program, Role,
};
use crate::harness::{Handicap, is_interrupted};
use crate::machine::{Machine, can_fix_addresses, processor_order, share_a_core};
use crate::paths::Paths;
use crate::selection::Selection;

/// Generations and slices that only tell how large the scatter is, and count for nothing else.
const PILOT: DuetPlan = DuetPlan { generations: 4, slices: 6, may_stop_early: false };
/// Generations of the pilot are numbered from here, so that their orders are not those of the generations that count.
const PILOT_NUMBERS: usize = 1_000_000;
/// The fraction of the time that is planned for; the rest is for generations that take longer than those of the pilot.
const PLANNED: f64 = 0.9;

/// How a duel is measured.
#[derive(Clone, Debug)]
pub struct Terms {
    pub selection: Selection,
    pub threads: Option<usize>,
    /// Whether the arms' threads are pinned to processors.
    pub is_pinned: bool,
    /// Length of a slice of short calls.
    pub slice: Duration,
    pub length: Length,
    /// Drawn from the clock if it is absent.
    pub seed: Option<u64>,
    /// Changes up to this fraction do not matter.
    pub tolerance: f64,
    /// The fraction by which the candidate is made slower, to see whether that is found.
    pub null_slowdown: Option<f64>,
    /// Nanoseconds that each call takes at least.
    pub least_call_ns: u64,
    /// Go on with the last duel of the same question.
    pub resume: bool,
    /// Whether nothing is said on standard error.
    pub is_silent: bool,
}

/// How a duel ended.
#[derive(Clone, Debug, PartialEq)]
pub enum DuelEnd {
    Complete(Box<Duel>),
    /// By the user. So many generations are kept, of so many that were planned; `None` if none were planned yet.
    Interrupted {
        kept: Option<(usize, usize)>,
    },
}

/// Measures a duel. The caller keeps other measurements out ([`keep_others_out`](crate::harness::keep_others_out)).
///
/// # Errors
/// A program refuses, there are too few generations to show anything, or the target folder cannot be written.
pub fn duel_between(paths: &Paths, base: &Program, candidates: &[Program], terms: &Terms) -> Result<DuelEnd> {
    is_interrupted();
    if let Length::Generations(generations) = terms.length
        && generations < FEWEST_GENERATIONS
    {
        bail!("{generations} generations show nothing: at least {FEWEST_GENERATIONS} are needed");
    }
    let arena = Arena::lay_out(paths.duels().join("arena"), base, candidates)?;
    let ended = Driver::new(paths, &arena, base, candidates, terms).run();
    arena.remove();
    ended
}

struct Driver<'a> {
    duels: std::path::PathBuf,
    arena: &'a Arena,
    terms: &'a Terms,
    instructions: Instructions,
    question: Question,
}

/// The user stopped the duel.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
struct Interrupted;

impl<'a> Driver<'a> {
    fn new(paths: &Paths, arena: &'a Arena, base: &Program, candidates: &[Program], terms: &'a Terms) -> Self {
        let processors = if terms.is_pinned { processor_order() } else { Vec::new() };
        let instructions = Instructions { selection: terms.selection.clone(), threads: terms.threads, processors };
        let question = Question {
            base: base.clone(),
            candidates: candidates.to_vec(),
            flags: plan_arguments(Path::new("jobs"), base, &instructions),
            null_slowdown: terms.null_slowdown,
            least_call_ns: terms.least_call_ns,
            length: terms.length,
            tolerance: terms.tolerance,
            slice_ms: terms.slice.as_secs_f64() * 1e3,
            is_pinned: terms.is_pinned,
        };
        Driver { duels: paths.duels(), arena, terms, instructions, question }
    }

    fn run(&self) -> Result<DuelEnd> {
        let resumed =
            if self.terms.resume { Some(Journal::last(&self.duels, &self.question, self.terms.seed)?) } else { None };
        let mut kept = None;
        match self.run_from(resumed, &mut kept) {
            Ok(duel) => Ok(DuelEnd::Complete(Box::new(duel))),
            Err(error) if error.is::<Interrupted>() => Ok(DuelEnd::Interrupted { kept }),
            Err(error) => Err(error),
        }
    }

    /// Measures what is left of a duel. `kept` are the generations that the journal holds, and those that were planned.
    fn run_from(&self, resumed: Option<(Journal, Agreement)>, kept: &mut Option<(usize, usize)>) -> Result<Duel> {
        self.say("comparing the programs' outputs with the reference, once, and preparing what they need");
        let pairings = self.pairings()?;
        let (journal, agreement) = match resumed {
            Some(resumed) => resumed,
            None => self.agree(&pairings)?,
        };
        let mut entries = journal.entries();
        if self.terms.resume {
            self.say(&format!("resuming duel {}: {} generations are kept", agreement.name, entries.len()));
        }
        let total = agreement.cases.iter().filter_map(|case| Some(case.plan.as_ref().ok()?.generations)).sum();
        *kept = Some((entries.len(), total));
        let mut settled = BTreeSet::new();
        for (case, number, slices) in schedule(&agreement) {
            let is_known = |entry: &Entry| entry.case == case && (entry.number == number || entry.result.is_err());
            if entries.iter().any(is_known) || settled.contains(&case) {
                continue;
            }
            if agreement.is_settled(&entries, case) {
                settled.insert(case);
                continue;
            }
            let planned = &agreement.cases[case];
            let pairing = pairings.iter().find(|pairing| pairing.name() == planned.id);
            let Some(arms) = pairing
                .filter(|pairing| pairing.losses().into_iter().eq(&planned.losses))
                .and_then(|pairing| self.arms(&planned.id, pairing, agreement.seed))
            else {
                bail!("{} cannot be measured any more; start the duel anew, without --resume", planned.id);
            };
            let result = match arms.measure(number, slices)? {
                Attempt::Measured(generation) => Ok(generation),
                Attempt::Lost(loss) => Err(loss),
                Attempt::Interrupted => bail!(Interrupted),
            };
            let entry = Entry { case, number, result };
            journal.append(&entry)?;
            entries.push(entry);
            *kept = Some((entries.len(), total));
            if !self.terms.is_silent {
                eprintln!("{}", progress(&conclude(&agreement, &entries), case, entries.len(), total));
            }
        }
        Ok(conclude(&agreement, &entries))
    }

    fn say(&self, text: &str) {
        if !self.terms.is_silent {
            eprintln!("{text}");
        }
    }

    /// Asks the programs what they can measure, once for all that are the same.
    fn pairings(&self) -> Result<Vec<Pairing>> {
        let Question { base, candidates, .. } = &self.question;
        let mut known = vec![(base, ask(self.arena, Role::Base, base, &self.instructions)?.ok_or(Interrupted)?)];
        let mut plans = Vec::new();
        for (number, candidate) in candidates.iter().enumerate() {
            let plan = match known.iter().find(|(program, _)| candidate.is_same_as(program)) {
                Some((_, plan)) => plan.clone(),
                None => {
                    let role = Role::Candidate(number);
                    ask(self.arena, role, candidate, &self.instructions)?.ok_or(Interrupted)?
                }
            };
            known.push((candidate, plan.clone()));
            plans.push(plan);
        }
        let may_differ = base.suite.is_some() || candidates.iter().any(|candidate| candidate.suite.is_some());
        let (pairings, left_out) = pair(&known[0].1, &plans, may_differ);
        for reason in left_out {
            self.say(&format!("left out: {reason}"));
        }
        for pairing in &pairings {
            pairing.losses().into_iter().for_each(|loss| self.say_loss(&pairing.name(), loss));
        }
        self.warn_of_pins(&processors_of(&pairings));
        Ok(pairings)
    }

    fn say_loss(&self, id: &str, loss: &Loss) {
        let Question { base, candidates, .. } = &self.question;
        let whose = if let Role::Candidate(number) = loss.role { &candidates[number].name } else { &base.name };
        self.say(&format!("lost: {id}: {} in {whose}: {}", loss.status, loss.message));
    }

    fn warn_of_pins(&self, processors: &[usize]) {
        if self.terms.is_pinned && processors.is_empty() {
            self.say("threads are not pinned: there are fewer processors than threads, or the system has no pins");
        } else if share_a_core(processors) {
            self.say("some threads share a core; with fewer of them (--threads) the intervals are narrower");
        }
        if !can_fix_addresses() {
            self.say("the arms' memory lies at random addresses, because the system does not let it be otherwise: the intervals are wider");
        }
    }

    /// The arms of a case. Returns `None` if the base or every candidate is lost.
    fn arms<'b>(&'b self, id: &'b str, pairing: &'b Pairing, seed: u64) -> Option<ArmsOfCase<'b>> {
        let is_handicapped = self.terms.null_slowdown.is_some() || self.terms.least_call_ns > 0;
        let handicap = |slowdown: f64| {
            let slowdown_ppm = (slowdown * 1e6).round() as u32;
            is_handicapped.then_some(Handicap { slowdown_ppm, least_call_ns: self.terms.least_call_ns })
        };
        let (base, _) = pairing.starts.as_ref().ok()?;
        let slowdown = self.terms.null_slowdown.unwrap_or_default();
        let own = [Role::Base, Role::Null].map(|role| (role, base, handicap(0.0)));
        let candidates =
            pairing.candidate_starts().map(|(number, start)| (Role::Candidate(number), start, handicap(slowdown)));
        let starts: Vec<_> = own.into_iter().chain(candidates).collect();
        (starts.len() > 2).then_some(ArmsOfCase { arena: self.arena, starts, slice: self.terms.slice, seed, id })
    }

    /// Tries every case, and settles how it is measured.
    fn agree(&self, pairings: &[Pairing]) -> Result<(Journal, Agreement)> {
        let started = Timestamp::now();
        let seed = self.terms.seed.unwrap_or(started.as_nanosecond() as u64 % 1_000_000_000);
        let measurable = pairings.iter().filter(|pairing| pairing.candidate_starts().count() > 0).count();
        let mut cases = Vec::new();
        let mut seconds = 0.0;
        for pairing in pairings {
            let id = pairing.name();
            let losses: Vec<Loss> = pairing.losses().into_iter().cloned().collect();
            let plan = match (self.arms(&id, pairing, seed), losses.first()) {
                (None, Some(loss)) => Err(loss.clone()),
                (None, None) => continue,
                (Some(arms), _) => match self.pilot(&arms, measurable)? {
                    Ok((plan, costs)) => {
                        let case_seconds = plan.generations as f64 * (costs.start + plan.slices as f64 * costs.row);
                        seconds += case_seconds;
                        self.say(&format!(
                            "{id}: at most {} generations of {} slices per arm, about {case_seconds:.0} s",
                            plan.generations, plan.slices
                        ));
                        Ok(plan)
                    }
                    Err(loss) => {
                        self.say_loss(&id, &loss);
                        Err(loss)
                    }
                },
            };
            cases.push(PlannedDuel { id, losses, plan });
        }
        let journal = Journal::begin(&self.duels, started)?;
        let agreement = Agreement {
            format: DUEL_FORMAT,
            name: journal.name(),
            started,
            question: self.question.clone(),
            seed,
            processors: processors_of(pairings),
            cases,
            machine: Machine::read(),
        };
        journal.write(&agreement)?;
        self.say(&format!(
            "duel {}: {measurable} cases, at most about {:.1} min, seed {seed}; kept in {}",
            agreement.name,
            seconds / 60.0,
            journal.path().display()
        ));
        Ok((journal, agreement))
    }

    /// Measures the pilot of a case, and plans the case by the components of its scatter.
    fn pilot(&self, arms: &ArmsOfCase<'_>, cases: usize) -> Result<Result<(DuetPlan, Costs), Loss>> {
        let begin = Instant::now();
        let mut measured: Vec<MeasuredGeneration> = Vec::new();
        for number in 0..PILOT.generations {
            match arms.measure(PILOT_NUMBERS + number, PILOT.slices)? {
                Attempt::Measured(generation) => measured.push(generation),
                Attempt::Lost(loss) => return Ok(Err(loss)),
                Attempt::Interrupted => bail!(Interrupted),
            }
        }
        let mean = |of: fn(&MeasuredGeneration) -> f64| measured.iter().map(of).sum::<f64>() / measured.len() as f64;
        let costs = Costs { start: mean(|it| it.start_seconds), row: mean(|it| it.row_seconds) / PILOT.slices as f64 };
        let seconds = match self.terms.length {
            Length::Usual => usual_seconds(cases) / cases as f64,
            Length::Minutes(minutes) | Length::WholeMinutes(minutes) => 60.0 * minutes / cases as f64,
            Length::Generations(_) => f64::INFINITY,
        };
        let left = PLANNED * seconds - begin.elapsed().as_secs_f64();
        let pilot: Vec<Generation> = measured.iter().map(Generation::from).collect();
        let Some(components) = Components::of(&pilot) else { bail!("{}: the pilot has no figures", arms.id) };
        let plan = match self.terms.length {
            Length::WholeMinutes(_) => components.plan(costs, left, false),
            Length::Generations(generations) => DuetPlan { generations, ..components.plan(costs, left, false) },
            _ => components.plan(costs, left, true),
        };
        Ok(Ok((plan, costs)))
    }
}

/// Case, number and slices of every generation: the first one of every case, then the second, and so on, so that each case is
/// measured over the whole time.
fn schedule(agreement: &Agreement) -> Vec<(usize, usize, usize)> {
    let plans =
        agreement.cases.iter().enumerate().filter_map(|(case, planned)| Some((case, planned.plan.clone().ok()?)));
    let mut schedule: Vec<(usize, usize, usize)> =
        plans.flat_map(|(case, plan)| (0..plan.generations).map(move |number| (case, number, plan.slices))).collect();
    schedule.sort_by_key(|&(case, number, _)| (number, case));
    schedule
}

/// The processors that the arms' threads are pinned to.
fn processors_of(pairings: &[Pairing]) -> Vec<usize> {
    let first = pairings.iter().find_map(|pairing| pairing.starts.as_ref().ok());
    first.map(|(base, _)| base.processors.clone()).unwrap_or_default()
}

/// Seconds that a duel of so many cases may take if nobody says how long: 40 for one, and three minutes for up to twelve.
fn usual_seconds(cases: usize) -> f64 {
    let cases = cases as f64;
    (40.0 * cases).min(180.0_f64.max(15.0 * cases))
}
