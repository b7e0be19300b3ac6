//! Drives a duel: asks the programs what they can measure, tries each case, fixes the plan, and measures the generations.

use std::collections::BTreeSet;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use jiff::Timestamp;

use super::conclusion::{conclude, generations_of, is_settled, outcomes_of, progress};
use super::foresight;
use super::generation::ArmsOfCase;
use super::journal::{Agreement, DUEL, Entry, GENERATIONS, last};
use super::pairing::{Pairing, pair};
use super::pilot;
use super::planning::{Arena, ask, plan_arguments};
use super::terms::{Rules, Terms};
use crate::compare::{
    CaseOutcome, Costs, DUEL_FORMAT, Duel, DuetPlan, Generation, Loss, Program, Role, deciding_half_width,
    fewest_generations,
};
use crate::exit_codes;
use crate::fixture::sha256_of_file;
use crate::harness::{ArmCase, ArmPlan, Handicap, is_interrupted, say_variables};
use crate::machine::{Machine, are_of_several_kinds, can_fix_addresses, equal_groups, processor_order, share_a_core};
use crate::paths::Paths;
use crate::report::numbers::plural;
use crate::run_data::files::{append_line, read_lines, unused_name, write_json};

/// The fraction of the time that is planned; the rest is a reserve for generations that take longer than in the pilot.
pub(super) const PLANNED: f64 = 0.85;

/// Measures a duel, and returns it with the generations of each of its cases. The caller keeps other measurements out
/// ([`keep_others_out`](crate::harness::keep_others_out)).
///
/// # Errors
/// The user stops it ([`Interrupted`](crate::harness::Interrupted)), a program refuses, or the target folder
/// cannot be written.
pub fn duel_between(
    paths: &Paths,
    base: &Program,
    candidates: &[Program],
    terms: &Terms,
) -> Result<(Duel, Vec<Vec<Generation>>)> {
    is_interrupted();
    let arena = Arena::lay_out(paths.duels().join("arena"), base, candidates)?;
    let processors = if terms.rules.no_pin { Vec::new() } else { processor_order() };
    let flags = plan_arguments(Path::new("jobs"), base, terms, &processors)?;
    let ended = Driver { duels: paths.duels(), arena: &arena, base, candidates, terms, processors, flags }.run();
    arena.remove();
    ended
}

struct Driver<'a> {
    duels: PathBuf,
    arena: &'a Arena,
    base: &'a Program,
    candidates: &'a [Program],
    terms: &'a Terms,
    /// The processors to which an arm's threads may be pinned; empty if they are not pinned.
    processors: Vec<usize>,
    /// The arguments of `arm plan` for the base.
    flags: Vec<String>,
}

impl Driver<'_> {
    fn run(&self) -> Result<(Duel, Vec<Vec<Generation>>)> {
        let is_same = |Agreement { flags, rules, duel, .. }: &Agreement| {
            (&duel.base, duel.candidates.as_slice()) == (self.base, self.candidates)
                && (flags, rules) == (&self.flags, &self.terms.rules)
                && self.terms.seed.is_none_or(|seed| seed == duel.seed)
        };
        let resumed = if self.terms.resume { Some(last(&self.duels, is_same)?) } else { None };
        let begin = Instant::now();
        self.say(
            "comparing the programs' outputs with their references, where there are some, and preparing what they need",
        );
        let (pairings, plans) = self.pairings()?;
        let loaded: Vec<BTreeSet<String>> = plans.iter().map(loaded_by).collect();
        let is_resumed = resumed.is_some();
        let agreed = resumed.map_or_else(|| self.agree(&pairings, loaded.clone(), begin), Ok)?;
        let (folder, Agreement { mut duel, loaded: before, .. }) = agreed;
        ensure!(
            before.is_empty() || before == loaded,
            "libraries or model files have changed since: start the duel anew, without --resume"
        );
        let machine = Machine::read();
        say_variables(&machine);
        let has_same_variables =
            duel.machine.variables.is_none() || duel.machine.lasting_variables() == machine.lasting_variables();
        ensure!(
            duel.machine.host_id == machine.host_id && has_same_variables,
            "it was begun on another machine, or with other environment variables: start the duel anew, without --resume"
        );
        for (program, plan) in std::iter::once(&mut duel.base).chain(&mut duel.candidates).zip(plans) {
            program.libraries = plan.cases.into_iter().filter_map(|case| case.library).collect();
        }
        duel.undecided_is_allowed = self.terms.allow_undecided;
        let journal = folder.join(GENERATIONS);
        let mut entries: Vec<Entry> = read_lines(&journal)?;
        if is_resumed {
            let kept = plural(entries.len(), "generation is kept", "generations are kept");
            self.say(&format!("resuming duel {}: {kept}", duel.name));
        }
        let schedule = schedule(&duel);
        let total = schedule.len();
        let mut settled = BTreeSet::new();
        for (case, number, plan) in schedule {
            let is_known = |entry: &Entry| entry.case == case && (entry.number == number || entry.result.is_err());
            if entries.iter().any(is_known) || settled.contains(&case) {
                continue;
            }
            if is_settled(&duel, &entries, case) {
                settled.insert(case);
                continue;
            }
            let outcomes = outcomes_of(&duel, case);
            let has_same_losses =
                |pairing: &&Pairing| outcomes.iter().all(|it| pairing.loss_of(it.candidate) == it.loss.as_ref());
            let pairing = pairings.iter().find(|pairing| pairing.id == outcomes[0].id).filter(has_same_losses);
            let Some(arms) = pairing.and_then(|pairing| self.arms(pairing, duel.seed)) else {
                bail!("{} cannot be measured any more; start the duel anew, without --resume", outcomes[0].id);
            };
            let kept = format!(
                "{} of {total} generations are kept; the same command with `--resume` continues",
                entries.len()
            );
            let result = arms.measure(number, &|_| (plan.slices, plan.slice)).inspect_err(|_| self.say(&kept))?;
            let entry = Entry { case, number, result };
            append_line(&journal, &entry)?;
            entries.push(entry);
            let done = generations_of(&entries, case).len();
            // A log only gets the generations after which a case may be decided, or is lost.
            if stderr().is_terminal() || plan.is_look(done) || entries.last().is_some_and(|it| it.result.is_err()) {
                self.say(&progress(&conclude(&duel, &entries), case));
            }
        }
        for Program { name, executable, sha256, .. } in [self.base].into_iter().chain(self.candidates) {
            ensure!(
                sha256_of_file(executable)? == *sha256,
                "{name}: {} was replaced during the duel, so nothing is known about either program",
                executable.display()
            );
        }
        let cases = duel.cases.len() / duel.candidates.len();
        Ok((conclude(&duel, &entries), (0..cases).map(|case| generations_of(&entries, case)).collect()))
    }

    fn say(&self, text: &str) {
        if !self.terms.is_silent {
            eprintln!("{text}");
        }
    }

    /// Asks each distinct program what it can measure. The second list has the answer of every program.
    fn pairings(&self) -> Result<(Vec<Pairing>, Vec<ArmPlan>)> {
        let ask = |role: Role, program: &Program| ask(self.arena, role, program, self.terms, &self.processors);
        let mut programs = vec![self.base];
        let mut plans = vec![ask(Role::Base, self.base)?];
        for (number, candidate) in self.candidates.iter().enumerate() {
            let plan = match programs.iter().position(|program| candidate.is_same_as(program)) {
                Some(place) => plans[place].clone(),
                None => ask(Role::Candidate(number), candidate)?,
            };
            programs.push(candidate);
            plans.push(plan);
        }
        // A candidate that is the same program as the base has the same outputs.
        let others = programs.iter().zip(&plans).skip(1).filter(|(program, _)| !program.is_same_as(self.base));
        for (program, plan) in others {
            let is_unverified = |it: &&ArmCase| it.start.is_some() && it.is_verified == Some(false);
            let ids: Vec<&str> = plan.cases.iter().filter(is_unverified).map(|it| it.id.as_str()).collect();
            if !ids.is_empty() {
                let ids = ids.join(", ");
                self.say(&format!("{}: no reference, so wrong outputs would go unnoticed: {ids}", program.name));
            }
        }
        let may_differ = programs.iter().any(|program| program.suite.is_some());
        let (pairings, left_out) = pair(&plans[0], &plans[1..], may_differ);
        for reason in left_out {
            self.say(&format!("left out: {reason}"));
        }
        for pairing in &pairings {
            pairing.losses().into_iter().for_each(|loss| self.say_loss(&pairing.id, loss));
        }
        if pairings.iter().any(|pairing| pairing.candidate_starts().count() > 0) {
            self.warn_of_pins(&processors_of(&pairings));
        }
        Ok((pairings, plans))
    }

    fn say_loss(&self, id: &str, loss: &Loss) {
        let whose = if let Role::Candidate(number) = loss.role { &self.candidates[number] } else { self.base };
        let what = if loss.is_left_out { "left out" } else { "lost" };
        self.say(&format!("{what}: {id}: {} in {}: {}", loss.status, whose.name, loss.message));
    }

    fn warn_of_pins(&self, processors: &[usize]) {
        if !self.terms.rules.no_pin && processors.is_empty() {
            self.say(
                "threads are not pinned: there are fewer processors than threads, or the system cannot pin threads",
            );
        } else if share_a_core(processors) {
            self.say("some threads share a core; fewer threads (--threads) give narrower intervals");
        }
        if are_of_several_kinds(processors) {
            self.say("some threads run on efficient cores and others on fast ones; fewer threads (--threads) run on fast cores only");
        }
        if !can_fix_addresses() {
            self.say("the arms' memory is at random addresses, because the system does not allow fixed ones: the intervals are wider");
        }
    }

    /// The arms of a case. Returns `None` if the base or every candidate is lost.
    fn arms<'b>(&'b self, pairing: &'b Pairing, seed: u64) -> Option<ArmsOfCase<'b>> {
        let Rules { null_slowdown, least_call_ns, .. } = self.terms.rules;
        let is_handicapped = null_slowdown.is_some() || least_call_ns > 0;
        let handicap = |slowdown: f64| {
            let slowdown_ppm = (slowdown * 1e6).round() as u32;
            is_handicapped.then_some(Handicap { slowdown_ppm, least_call_ns })
        };
        let (base, _) = pairing.starts.as_ref().ok()?;
        let own = [Role::Base, Role::Null].map(|role| (role, base, handicap(0.0)));
        let slowed = handicap(null_slowdown.unwrap_or_default());
        let candidates = pairing.candidate_starts().map(|(number, start)| (Role::Candidate(number), start, slowed));
        let starts: Vec<_> = own.into_iter().chain(candidates).collect();
        let can_load_elsewhere =
            starts.iter().all(|(_, start, _)| start.loads_elsewhere && start.processors == base.processors);
        let groups = match base.processors.len() {
            1.. if can_load_elsewhere => equal_groups(&self.processors, base.processors.len()),
            _ => Vec::new(),
        };
        (starts.len() > 2).then_some(ArmsOfCase { arena: self.arena, starts, groups, seed, id: &pairing.id })
    }

    /// Measures the pilot of every case, and fixes its plan.
    fn agree(
        &self,
        pairings: &[Pairing],
        loaded: Vec<BTreeSet<String>>,
        begin: Instant,
    ) -> Result<(PathBuf, Agreement)> {
        let started = Timestamp::now();
        let seed = self.terms.seed.unwrap_or(started.as_nanosecond() as u64 % 1_000_000_000);
        let measurable = pairings.iter().filter(|pairing| pairing.candidate_starts().count() > 0).count();
        let comparisons = pairings.iter().map(|pairing| pairing.candidate_starts().count()).sum();
        let fewest = fewest_generations(comparisons);
        let rules = &self.terms.rules;
        let too_few = rules.generations.and_then(|asked| foresight::too_few(usize::from(asked), comparisons));
        too_few.iter().for_each(|text| self.say(text));
        let asked = rules.slice_ms.map(|ms| Duration::from_secs_f64(ms / 1e3));
        let mut pilots = Vec::new();
        for pairing in pairings {
            let tried = match (self.arms(pairing, seed), pairing.losses().first()) {
                (None, Some(&loss)) => Err(loss.clone()),
                (None, None) => continue,
                (Some(arms), _) => pilot::measure(&arms, asked)?.inspect_err(|loss| self.say_loss(&pairing.id, loss)),
            };
            pilots.push((pairing, tried));
        }
        let deciding = deciding_half_width(rules.tolerance);
        let known = pilots.iter().filter_map(|(_, tried)| tried.as_ref().ok());
        let costs: Vec<(Costs, Option<f64>)> =
            known.map(|it| (it.costs, it.components.seconds_for(deciding, it.costs, it.slice))).collect();
        let preparation_seconds = begin.elapsed().as_secs_f64();
        let left = PLANNED * self.seconds(measurable) - preparation_seconds;
        let mut parts = Costs::divide(&costs, left).into_iter();
        let (mut cases, mut planned) = (Vec::new(), Vec::new());
        for (pairing, tried) in pilots {
            let id = &pairing.id;
            let plan = tried.map(|pilot| {
                let may_stop_early = rules.generations.is_none() && !rules.are_minutes_used_up;
                let seconds = parts.next().unwrap_or_default();
                let plan = pilot.components.plan(pilot.costs, seconds, pilot.slice, may_stop_early);
                let generations = rules.generations.map_or(plan.generations.max(fewest), usize::from);
                let plan = DuetPlan { generations, ..plan };
                self.say(&foresight::of_case(id, &pilot, &plan));
                planned.push((pilot, plan));
                plan
            });
            cases.extend((0..self.candidates.len()).map(|candidate| CaseOutcome {
                id: id.clone(),
                own_ids: pairing.own_ids(candidate),
                candidate,
                plan: plan.as_ref().ok().copied(),
                comparison: None,
                loss: pairing.loss_of(candidate).or(plan.as_ref().err()).cloned(),
            }));
        }
        let name = unused_name(&self.duels, started);
        let folder = self.duels.join(&name);
        let duel = Duel {
            format: DUEL_FORMAT,
            name,
            base: self.base.clone(),
            candidates: self.candidates.to_vec(),
            null_slowdown: rules.null_slowdown,
            seed,
            tolerance: rules.tolerance,
            is_same_code: rules.same_code,
            undecided_is_allowed: self.terms.allow_undecided,
            processors: processors_of(pairings),
            preparation_seconds,
            seconds: 0.0,
            minutes_needed: None,
            machine: Machine::read(),
            cases,
            exit_code: exit_codes::OK,
        };
        let seconds: f64 =
            planned.iter().map(|(pilot, plan)| plan.generations as f64 * pilot.costs.generation(plan.slices)).sum();
        if rules.generations.is_none() {
            foresight::advice(&planned, rules.tolerance, preparation_seconds)
                .iter()
                .for_each(|advice| self.say(advice));
        }
        let agreement = Agreement { flags: self.flags.clone(), rules: rules.clone(), loaded, duel };
        write_json(&folder.join(DUEL), &agreement)?;
        if measurable > 0 {
            self.say(&format!(
                "duel {}: {}, at most about {:.1} min, seed {seed}; kept in {}",
                agreement.duel.name,
                plural(measurable, "case", "cases"),
                seconds / 60.0,
                folder.display()
            ));
        }
        Ok((folder, agreement))
    }

    /// The seconds that so many cases may take together, with all preparations. By default, 15 s per case, but at least
    /// three minutes.
    fn seconds(&self, cases: usize) -> f64 {
        const NO_LIMIT: f64 = 1e9;
        let cases = cases as f64;
        match (self.terms.rules.generations, self.terms.rules.minutes) {
            (Some(_), _) => NO_LIMIT,
            (None, Some(minutes)) => 60.0 * minutes,
            (None, None) => 180.0_f64.max(15.0 * cases),
        }
    }
}

/// Case, number and plan of every generation: first generation 0 of every case, then generation 1, and so on, so that
/// each case is measured over the whole time.
fn schedule(duel: &Duel) -> Vec<(usize, usize, DuetPlan)> {
    let cases = duel.cases.chunks(duel.candidates.len()).enumerate();
    let plans = cases.filter_map(|(case, outcomes)| Some((case, outcomes[0].plan?)));
    let mut schedule: Vec<(usize, usize, DuetPlan)> =
        plans.flat_map(|(case, plan)| (0..plan.generations).map(move |number| (case, number, plan))).collect();
    schedule.sort_by_key(|&(case, number, _)| (number, case));
    schedule
}

/// Each case of a program with the library and files that it loads.
fn loaded_by(plan: &ArmPlan) -> BTreeSet<String> {
    let text = |ArmCase { id, library, files_sha256, .. }: &ArmCase| {
        [Some(id), library.as_ref(), files_sha256.as_ref()].into_iter().flatten().cloned().collect::<Vec<_>>().join(" ")
    };
    plan.cases.iter().map(text).collect()
}

fn processors_of(pairings: &[Pairing]) -> Vec<usize> {
    let first = pairings.iter().find_map(|pairing| pairing.starts.as_ref().ok());
    first.map(|(base, _)| base.processors.clone()).unwrap_or_default()
}
