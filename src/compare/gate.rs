//! How far the verdicts can be trusted on one machine: very many duels, made from the generations of a program against
//! itself.
//!
//! If all three arms are the same program, the arms of a generation are different only in name. Drawing the names of
//! each generation anew makes another duel of equal programs from the same real times, with all disturbances of the
//! machine. With the candidate's times made longer, it is a duel with a slow-down of known size. This is randomisation
//! (Fisher 1935, "The Design of Experiments"), used to count errors.

use serde::{Deserialize, Serialize};

use super::duet::{FALSE_DISCOVERIES, Generation, Paired, PairedChange, decide_duet};
use super::duet_plan::FEWEST_GENERATIONS;
use super::verdict::Verdict;
use crate::fixture::seeded::Stream;

const DUELS: u64 = 400;
const SLOWDOWNS: [f64; 4] = [0.01, 0.02, 0.05, 0.10];

/// How often duels of one case are right on a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// The id of the case.
    pub case: String,
    /// Generations that were really measured.
    pub generations: usize,
    /// Generations of a made-up duel.
    pub generations_per_duel: usize,
    /// Made-up duels of each kind.
    pub duels: u64,
    /// Fraction of the duels of equal programs that ended in `slower` or `faster`.
    pub false_alarms: f64,
    /// Fraction of these in which the null control moved, so that there was no verdict.
    pub void: f64,
    /// Fraction of these in which a slow-down beyond the tolerance was excluded, so that a gate opens.
    pub cleared: f64,
    pub found: Vec<Found>,
    /// The verdict of the duel that was really measured. Absent in older self-tests.
    #[serde(default)]
    pub measured: Option<Verdict>,
}

/// The fraction of the duels with a slow-down that ended in `slower`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// 0.05 is 5 %.
    pub slowdown: f64,
    pub share: f64,
}

impl Gate {
    /// Makes duels from the generations of a duel between equal programs. Returns `None` if there are too few
    /// generations.
    pub fn out_of(case: String, measured: &[Generation], tolerance: f64) -> Option<Self> {
        if measured.len() < FEWEST_GENERATIONS {
            return None;
        }
        // The fewest that a duel has, since fewer generations can be drawn in more ways.
        let per_duel = FEWEST_GENERATIONS;
        let decide = |generations: &[Generation]| {
            let paired = Paired { generations, candidate: 0, is_same_build: true, error_rate: FALSE_DISCOVERIES };
            decide_duet(&[paired], tolerance).remove(0)
        };
        let decided = |slowdown: f64| -> Vec<PairedChange> {
            (0..DUELS).filter_map(|seed| decide(&renamed(measured, per_duel, seed, slowdown))).collect()
        };
        let share = |decided: &[PairedChange], is_so: fn(&PairedChange) -> bool| {
            decided.iter().filter(|change| is_so(change)).count() as f64 / DUELS as f64
        };
        let equal = decided(0.0);
        let is_slower = |change: &PairedChange| change.verdict == Verdict::Slower;
        Some(Gate {
            case,
            measured: decide(measured).map(|change| change.verdict),
            generations: measured.len(),
            generations_per_duel: per_duel,
            duels: DUELS,
            false_alarms: share(&equal, |it| it.verdict.is_change()),
            void: share(&equal, |it| it.is_null_changed),
            cleared: share(&equal, |it| it.verdict.excludes_regression()),
            found: SLOWDOWNS.map(|slowdown| Found { slowdown, share: share(&decided(slowdown), is_slower) }).to_vec(),
        })
    }
}

/// Some of the generations, with randomly renamed arms, and with longer times of the candidate.
fn renamed(measured: &[Generation], count: usize, seed: u64, slowdown: f64) -> Vec<Generation> {
    let (names, places) = (Stream::new(seed, "names"), Stream::new(seed, "generations"));
    let mut chosen: Vec<usize> = (0..measured.len()).collect();
    chosen.sort_by_key(|generation| places.at(*generation as u64));
    chosen.truncate(count);
    let rename = |generation: usize| {
        let draw = names.at(generation as u64);
        let row = |row: &Vec<f64>| {
            let mut row = row.clone();
            row.swap(2, (draw % 3) as usize);
            row.swap(1, (draw >> 32 & 1) as usize);
            row[2] += slowdown.ln_1p();
            row
        };
        Generation { rows: measured[generation].rows.iter().map(row).collect() }
    };
    chosen.into_iter().map(rename).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::seeded::{Fill, values};

    fn equal(generations: usize, deviation: f64) -> Vec<Generation> {
        let normal: Vec<f64> =
            values(1, "generation", Fill::Normal(deviation), 0, 3 * generations).map(f64::from).collect();
        let (own, _) = normal.as_chunks::<3>();
        own.iter().map(|own| Generation { rows: vec![own.to_vec(); 5] }).collect()
    }

    #[test]
    fn a_quiet_machine_finds_more_than_a_noisy_one_and_neither_cries_wolf() {
        let gate = |deviation| Gate::out_of("m".into(), &equal(60, deviation), 0.015).unwrap();
        let (quiet, noisy) = (gate(0.003), gate(0.03));
        for gate in [&quiet, &noisy] {
            assert!(gate.false_alarms <= 0.02, "{gate:?}");
            assert!(gate.found.is_sorted_by(|smaller, larger| smaller.share <= larger.share), "{gate:?}");
        }
        assert!(quiet.cleared > 0.95 && noisy.cleared < 0.5, "{quiet:?} {noisy:?}");
        assert!(quiet.found[1].share > 0.95 && noisy.found[1].share < 0.5, "{quiet:?} {noisy:?}");
        assert!(noisy.found[3].share > 0.9, "{noisy:?}");
        assert_eq!(Gate::out_of("m".into(), &equal(5, 0.01), 0.015), None);
        assert!(!quiet.measured.unwrap().is_change());
        // An arm that is always slower is seen under its own name only.
        let mut biased = equal(60, 0.003);
        biased.iter_mut().flat_map(|generation| &mut generation.rows).for_each(|row| row[2] += 0.03);
        let biased = Gate::out_of("m".into(), &biased, 0.015).unwrap();
        assert_eq!((biased.measured, biased.false_alarms <= 0.02), (Some(Verdict::Slower), true));
    }

    #[test]
    fn every_arm_comes_under_every_name() {
        let measured = vec![Generation { rows: vec![vec![1.0, 2.0, 3.0]] }; 300];
        let renamed = renamed(&measured, 60, 1, 0.0);
        for name in 0..3 {
            let seen: Vec<f64> = renamed.iter().map(|generation| generation.rows[0][name]).collect();
            assert!([1.0, 2.0, 3.0].iter().all(|figure| seen.contains(figure)));
        }
    }
}
