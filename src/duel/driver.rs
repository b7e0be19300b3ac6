//! Drives a duel: asks the programs what they can measure, tries each case, fixes the plan, and measures the generations.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use jiff::Timestamp;

use super::conclusion::{conclude, progress};
use super::generation::{ArmsOfCase, Attempt, MeasuredGeneration};
use super::journal::{Agreement, Entry, Journal, Length, PlannedDuel, Question};
use super::pairing::{Pair, pair};
use super::planning::{Arena, Instructions, ask, plan_arguments};
use crate::compare::{
    Components, Costs, DUEL_FORMAT, Duel, DuetPlan, FEWEST_GENERATIONS, Generation, Loss, Program, Role,
};
use crate::harness::{ArmStart, Handicap, is_interrupted};
use crate::machine::{Machine, processor_order, share_a_core};
use crate::paths::Paths;
use crate::selection::Selection;

/// Generations and slices that only tell how large the scatter is, and count for nothing else.
const PILOT: DuetPlan = DuetPlan { generations: 4, slices: 6 };
/// Generations of the pilot are numbered from here, so that their orders are not those of the generations that count.
const PILOT_NUMBERS: usize = 1_000_000;
/// The interval is to be so narrow, as a fraction of the tolerance.
const HALF_WIDTH: f64 = 2.0 / 3.0;
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
pub fn duel_between(paths: &Paths, base: &Program, candidate: &Program, terms: &Terms) -> Result<DuelEnd> {
    is_interrupted();
    if let Length::Generations(generations) = terms.length
        && generations < FEWEST_GENERATIONS
    {
        bail!("{generations} generations show nothing: at least {FEWEST_GENERATIONS} are needed");
    }
    let arena = Arena::lay_out(paths.duels().join("arena"), base, candidate)?;
    let ended = Driver::new(paths, &arena, base, candidate, terms).and_then(|driver| driver.run());
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
    fn new(paths: &Paths, arena: &'a Arena, base: &Program, candidate: &Program, terms: &'a Terms) -> Result<Self> {
        let processors = if terms.is_pinned { processor_order() } else { Vec::new() };
        let instructions = Instructions { selection: terms.selection.clone(), threads: terms.threads, processors };
        let question = Question {
            base: base.clone(),
            candidate: candidate.clone(),
            flags: plan_arguments(Path::new("jobs"), base, &instructions),
            null_slowdown: terms.null_slowdown,
            least_call_ns: terms.least_call_ns,
            length: terms.length,
            tolerance: terms.tolerance,
            slice_ms: terms.slice.as_secs_f64() * 1e3,
            is_pinned: terms.is_pinned,
        };
        Ok(Driver { duels: paths.duels(), arena, terms, instructions, question })
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
        self.say("comparing the outputs of both programs with the reference, once, and preparing what they need");
        let pairs = self.pairs()?;
        let (journal, agreement) = match resumed {
            Some(resumed) => resumed,
            None => self.agree(&pairs)?,
        };
        let mut entries = journal.entries();
        if self.terms.resume {
            self.say(&format!("resuming duel {}: {} generations are kept", agreement.name, entries.len()));
        }
        let total = agreement.cases.iter().filter_map(|case| Some(case.plan.as_ref().ok()?.generations)).sum();
        *kept = Some((entries.len(), total));
        for (case, number, slices) in schedule(&agreement) {
            let is_settled = |entry: &Entry| entry.case == case && (entry.number == number || entry.result.is_err());
            if entries.iter().any(is_settled) {
                continue;
            }
            let id = &agreement.cases[case].id;
            let pair = pairs.iter().find(|pair| pair.name() == *id);
            let Some(starts) = pair.and_then(|pair| pair.starts.as_ref().ok()) else {
                bail!("{id} cannot be measured any more; start the duel anew, without --resume");
            };
            let result = match self.arms(id, starts, agreement.seed).measure(number, slices)? {
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

    /// Asks both programs what they can measure, or one for both if they are the same.
    fn pairs(&self) -> Result<Vec<Pair>> {
        let Question { base, candidate, .. } = &self.question;
        let of_base = ask(self.arena, Role::Base, base, &self.instructions)?.ok_or(Interrupted)?;
        let of_candidate = if candidate.is_same_as(base) {
            of_base.clone()
        } else {
            ask(self.arena, Role::Candidate, candidate, &self.instructions)?.ok_or(Interrupted)?
        };
        let (pairs, left_out) = pair(&of_base, &of_candidate, base.suite.is_some() || candidate.suite.is_some());
        for reason in left_out {
            self.say(&format!("left out: {reason}"));
        }
        for pair in &pairs {
            if let Err(loss) = &pair.starts {
                self.say_loss(&pair.name(), loss);
            }
        }
        self.warn_of_pins(&processors_of(&pairs));
        Ok(pairs)
    }

    fn say_loss(&self, id: &str, loss: &Loss) {
        let Question { base, candidate, .. } = &self.question;
        let whose = if loss.role == Role::Candidate { &candidate.name } else { &base.name };
        self.say(&format!("lost: {id}: {} in {whose}: {}", loss.status, loss.message));
    }

    fn warn_of_pins(&self, processors: &[usize]) {
        if self.terms.is_pinned && processors.is_empty() {
            self.say("threads are not pinned: there are fewer processors than threads, or the system has no pins");
        } else if share_a_core(processors) {
            self.say("some threads share a core; with fewer of them (--threads) the intervals are narrower");
        }
    }

    fn arms<'b>(&'b self, id: &'b str, starts: &'b [ArmStart; 2], seed: u64) -> ArmsOfCase<'b> {
        let is_handicapped = self.terms.null_slowdown.is_some() || self.terms.least_call_ns > 0;
        let handicap = |role| {
            let slowdown = if role == Role::Candidate { self.terms.null_slowdown.unwrap_or_default() } else { 0.0 };
            let slowdown_ppm = (slowdown * 1e6).round() as u32;
            is_handicapped.then_some(Handicap { slowdown_ppm, least_call_ns: self.terms.least_call_ns })
        };
        ArmsOfCase {
            arena: self.arena,
            starts: [&starts[0], &starts[0], &starts[1]],
            handicaps: Role::ALL.map(handicap),
            slice: self.terms.slice,
            seed,
            id,
        }
    }

    /// Tries every case, and settles how it is measured.
    fn agree(&self, pairs: &[Pair]) -> Result<(Journal, Agreement)> {
        let started = Timestamp::now();
        let seed = self.terms.seed.unwrap_or(started.as_nanosecond() as u64 % 1_000_000_000);
        let measurable = pairs.iter().filter(|pair| pair.starts.is_ok()).count();
        let mut cases = Vec::new();
        let mut seconds = 0.0;
        for pair in pairs {
            let id = pair.name();
            let plan = match &pair.starts {
                Err(loss) => Err(loss.clone()),
                Ok(starts) => match self.pilot(&self.arms(&id, starts, seed), measurable)? {
                    Ok((plan, costs)) => {
                        let case_seconds = plan.generations as f64 * (costs.start + plan.slices as f64 * costs.row);
                        seconds += case_seconds;
                        self.say(&format!(
                            "{id}: {} generations of {} slices per arm, about {case_seconds:.0} s",
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
            cases.push(PlannedDuel { id, plan });
        }
        let journal = Journal::begin(&self.duels, started)?;
        let agreement = Agreement {
            format: DUEL_FORMAT,
            name: journal.name(),
            started,
            question: self.question.clone(),
            seed,
            processors: processors_of(pairs),
            cases,
            machine: Machine::read(),
        };
        journal.write(&agreement)?;
        self.say(&format!(
            "duel {}: {measurable} cases, about {:.1} min, seed {seed}; kept in {}",
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
            Length::SecondsPerCase(seconds) => seconds,
            Length::Minutes(minutes) | Length::WholeMinutes(minutes) => 60.0 * minutes / cases as f64,
            Length::Generations(_) => f64::INFINITY,
        };
        let left = PLANNED * seconds - begin.elapsed().as_secs_f64();
        let pilot: Vec<Generation> = measured.iter().map(Generation::from).collect();
        let Some(components) = Components::of(&pilot) else { bail!("{}: the pilot has no figures", arms.id) };
        let is_whole = matches!(self.terms.length, Length::WholeMinutes(_));
        let half_width = if is_whole { 0.0 } else { HALF_WIDTH * self.terms.tolerance };
        let plan = components.plan(costs, half_width, left);
        let plan = match self.terms.length {
            Length::Generations(generations) => DuetPlan { generations, ..plan },
            _ => plan,
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
fn processors_of(pairs: &[Pair]) -> Vec<usize> {
    let first = pairs.iter().find_map(|pair| pair.starts.as_ref().ok());
    first.map(|[base, _]| base.processors.clone()).unwrap_or_default()
}
