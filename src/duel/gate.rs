//! How far the verdicts can be trusted on one machine: out of rounds of a program against itself, very many duels.
//!
//! Where all three contestants are the same program, who was who in a round is only a name. So the names of each round are
//! drawn anew, which makes another duel of equal programs out of the same real times, with all that the machine did to them;
//! with the candidate's times made longer, it is a duel with a slow-down whose size is known. That is the randomisation
//! behind the rank test itself (Fisher 1935, "The Design of Experiments"), used to count.

use serde::{Deserialize, Serialize};

use super::ROUNDS;
use super::journal::Journal;
use super::judgement::{CaseRounds, Judgement, Rule, judge};
use super::outcome::{Duel, series};
use crate::compare::Verdict;
use crate::fixture::seeded::Stream;
use crate::paths::Paths;

const DUELS: u64 = 400;
/// Fewer rounds have hardly another order.
const FEWEST_ROUNDS: usize = 12;
const SLOWDOWNS: [f64; 4] = [0.01, 0.02, 0.05, 0.10];

/// What duels of one case say on a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// The id of the case.
    pub case: String,
    /// That were really fought.
    pub rounds: usize,
    /// Rounds of a made-up duel, and how many of those there are of each kind.
    pub rounds_a_duel: usize,
    pub duels: u64,
    /// Part of the duels of equal programs that ended in `slower` or `faster`, from 0 to 1.
    pub false_alarms: f64,
    /// Part of them in which the null control moved, so that nothing was said.
    pub void: f64,
    pub found: Vec<Found>,
}

/// Part of the duels with a slow-down that ended in `slower`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// 0.05 is 5 %.
    pub slowdown: f64,
    pub share: f64,
}

impl Gate {
    /// Out of a duel that was fought between equal programs; none for too few rounds.
    ///
    /// # Errors
    /// Its rounds cannot be read.
    pub fn of(paths: &Paths, duel: &Duel) -> Result<Option<Self>, String> {
        let (journal, agreement) = Journal::open(paths.duels().join(&duel.name))?;
        let rounds = journal.rounds()?;
        let Some(pair) = agreement.pairs.iter().find(|pair| pair.trouble.is_none()) else { return Ok(None) };
        let case = series(pair, &rounds).map_err(|trouble| format!("{}: {}", pair.name(), trouble.message))?;
        Ok(Gate::out_of(pair.name(), &case, duel.tolerance))
    }

    fn out_of(id: String, case: &CaseRounds, tolerance: f64) -> Option<Self> {
        let rounds = case.base.len();
        if rounds < FEWEST_ROUNDS {
            return None;
        }
        let rule = Rule { is_sequential: false, tolerance };
        let judged = |slowdown: f64| -> Vec<Judgement> {
            (0..DUELS).map(|seed| judge(&[renamed(case, seed, slowdown)], rule).remove(0)).collect()
        };
        let share = |judgements: &[Judgement], is_so: fn(&Judgement) -> bool| {
            judgements.iter().filter(|judgement| is_so(judgement)).count() as f64 / DUELS as f64
        };
        let equal = judged(0.0);
        let is_slower = |judgement: &Judgement| judgement.verdict == Verdict::Slower;
        Some(Gate {
            case: id,
            rounds,
            rounds_a_duel: rounds.min(ROUNDS),
            duels: DUELS,
            false_alarms: share(&equal, |it| matches!(it.verdict, Verdict::Slower | Verdict::Faster)),
            void: share(&equal, |it| it.is_null_changed),
            found: SLOWDOWNS.map(|slowdown| Found { slowdown, share: share(&judged(slowdown), is_slower) }).to_vec(),
        })
    }
}

/// Some of the rounds, each with its three figures under names that are drawn, and the candidate's longer.
fn renamed(case: &CaseRounds, seed: u64, slowdown: f64) -> CaseRounds {
    let (names, paths) = (Stream::new(seed, "names"), Stream::new(seed, "rounds"));
    let mut chosen: Vec<usize> = (0..case.base.len()).collect();
    chosen.sort_by_key(|round| paths.at(*round as u64));
    chosen.truncate(ROUNDS);
    let mut renamed = CaseRounds::default();
    for round in chosen {
        let mut figures = [case.base[round], case.null[round], case.candidate[round]];
        let draw = names.at(round as u64);
        figures.swap(2, (draw % 3) as usize);
        figures.swap(1, (draw >> 32 & 1) as usize);
        renamed.base.push(figures[0]);
        renamed.null.push(figures[1]);
        renamed.candidate.push(figures[2] + slowdown.ln_1p());
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::seeded::{Fill, values};

    fn equal(rounds: usize, deviation: f64) -> CaseRounds {
        let normal = |name: &str| values(1, name, Fill::Normal(deviation), 0, rounds).map(f64::from).collect();
        CaseRounds { base: normal("base"), null: normal("null"), candidate: normal("candidate") }
    }

    #[test]
    fn a_quiet_machine_finds_more_than_a_noisy_one_and_neither_cries_wolf() {
        let gate = |deviation| Gate::out_of("m".into(), &equal(60, deviation), 0.01).unwrap();
        let (quiet, noisy) = (gate(0.005), gate(0.05));
        for gate in [&quiet, &noisy] {
            assert!(gate.false_alarms <= 0.02 && gate.rounds_a_duel == ROUNDS, "{gate:?}");
            assert!(gate.found.is_sorted_by(|smaller, larger| smaller.share <= larger.share), "{gate:?}");
        }
        assert!(quiet.found[1].share > 0.95 && noisy.found[1].share < 0.5, "{quiet:?} {noisy:?}");
        assert!(noisy.found[3].share > 0.9, "{noisy:?}");
    }

    #[test]
    fn every_figure_comes_under_every_name() {
        let case = CaseRounds { base: vec![1.0; 300], null: vec![2.0; 300], candidate: vec![3.0; 300] };
        let renamed = renamed(&case, 1, 0.0);
        assert_eq!(renamed.base.len(), ROUNDS);
        for series in [renamed.base, renamed.null, renamed.candidate] {
            assert!([1.0, 2.0, 3.0].iter().all(|figure| series.contains(figure)));
        }
    }

    #[test]
    fn too_few_rounds_are_no_gate() {
        assert_eq!(Gate::out_of("m".into(), &equal(5, 0.01), 0.03), None);
    }
}
