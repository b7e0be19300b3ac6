//! Duels on simulated machines: how often verdicts are wrong, how often changes are found, whether intervals hold.
//!
//! The model has the two components of variance of a real duel (a generation's own speed of each arm, and that of a slice)
//! and what all arms share: a drift over the whole duel, slow waves, and bursts of other work that strike single slices.

use crate::compare::duet::{FALSE_DISCOVERIES, Generation, Paired, PairedChange, Role, decide_duet, estimate_duet};
use crate::compare::duet_plan::{Components, DuetPlan, SliceLength};
use crate::compare::verdict::Verdict;
use crate::fixture::seeded::{Fill, values};

const TOLERANCE: f64 = 0.015;
const CANDIDATE: Role = Role::Candidate(0);
const SLICE: SliceLength = SliceLength { ns: 2_000_000, dropped: 0, counted: 1 };

/// A machine: standard deviations of logarithms.
#[derive(Clone, Copy)]
struct Machine {
    /// Of an arm in a generation.
    generation: f64,
    /// Of a slice.
    slice: f64,
    /// From the first slice to the last.
    drift: f64,
    /// Of slow waves: each slice keeps most of what disturbed the one before.
    wave: f64,
    /// Fraction of the slices that other work makes longer, by up to a half.
    bursts: f64,
    /// Fraction of the generations in which other work strikes one arm throughout, and makes it up to a half longer.
    struck: f64,
}

/// One thread on a quiet machine, as it was seen.
const QUIET: Machine = Machine { generation: 0.004, slice: 0.01, drift: 0.02, wave: 0.01, bursts: 0.02, struck: 0.01 };
/// Two pinned threads with a busy neighbour.
const BUSY: Machine = Machine { generation: 0.013, slice: 0.03, drift: 0.10, wave: 0.03, bursts: 0.15, struck: 0.1 };

/// A slow-down of the candidate.
#[derive(Clone, Copy)]
struct Change {
    /// The fraction by which calls become longer.
    size: f64,
    /// The fraction of the processes that it strikes.
    processes: f64,
}

const NO_CHANGE: Change = Change { size: 0.0, processes: 1.0 };

fn always(size: f64) -> Change {
    Change { size, processes: 1.0 }
}

fn generations(seed: u64, count: usize, slices: usize, machine: Machine, change: Change) -> Vec<Generation> {
    let total = 3 * count * slices;
    let normal = |name: &str, count: usize| -> Vec<f64> {
        values(seed, name, Fill::Normal(1.0), 0, count).map(f64::from).collect()
    };
    let uniform = |name: &str, count: usize| -> Vec<f64> {
        values(seed, name, Fill::Uniform(0.0, 1.0), 0, count).map(f64::from).collect()
    };
    let (own, noise, shock) = (normal("generation", 3 * count), normal("slice", total), normal("wave", total));
    let (luck, length, struck) = (uniform("luck", total), uniform("length", total), uniform("struck", count));
    let (other_work, victim) = (uniform("other work", count), uniform("victim", 2 * count));
    let mut wave = 0.0;
    let mut slice = |generation: usize, row: usize, arm: usize| {
        let now = 3 * (generation * slices + row) + arm;
        wave = 0.95 * wave + (1.0 - 0.95_f64.powi(2)).sqrt() * machine.wave * shock[now];
        let burst = if luck[now] < machine.bursts { 0.5 * length[now] } else { 0.0 };
        let is_victim = other_work[generation] < machine.struck && (3.0 * victim[2 * generation]) as usize == arm;
        let is_slowed = arm == CANDIDATE.place() && struck[generation] < change.processes;
        machine.generation * own[3 * generation + arm]
            + machine.slice * noise[now]
            + machine.drift * now as f64 / total as f64
            + if is_slowed { change.size.ln_1p() } else { 0.0 }
            + if is_victim { 0.4 * victim[2 * generation + 1] } else { 0.0 }
            + wave
            + burst
    };
    let mut row = |generation, row| [0, 1, 2].map(|arm| slice(generation, row, arm)).to_vec();
    (0..count)
        .map(|generation| Generation { rows: (0..slices).map(|index| row(generation, index)).collect() })
        .collect()
}

fn decide(cases: &[Vec<Generation>], error_rate: f64) -> Vec<PairedChange> {
    let paired: Vec<Paired> =
        cases.iter().map(|generations| Paired { generations, candidate: 0, is_same_build: true, error_rate }).collect();
    decide_duet(&paired, TOLERANCE).into_iter().flatten().collect()
}

fn duel(seed: u64, count: usize, machine: Machine, change: Change) -> PairedChange {
    decide(&[generations(seed, count, 16, machine, change)], FALSE_DISCOVERIES).remove(0)
}

/// A duel that ends at the first of its looks that settles it, and the generations that it took.
fn duel_with_looks(seed: u64, machine: Machine, change: Change) -> PairedChange {
    let plan = DuetPlan { generations: 36, slices: 12, slice: SLICE, may_stop_early: true };
    let all = generations(seed, plan.generations, plan.slices, machine, change);
    let looks = plan.looks();
    let mut found = looks.iter().map(|look| decide(&[all[..look.generations].to_vec()], look.error_rate).remove(0));
    let mut last = found.next().unwrap();
    while !last.is_settled(1) {
        match found.next() {
            Some(next) => last = next,
            None => break,
        }
    }
    last
}

fn count(duels: u64, is_so: impl Fn(u64) -> bool) -> usize {
    (0..duels).filter(|seed| is_so(*seed)).count()
}

#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    const DUELS: u64 = 1000;
    for machine in [QUIET, BUSY] {
        let holds = |seed| {
            let found =
                estimate_duet(&generations(seed, 14, 12, machine, always(0.03)), CANDIDATE, FALSE_DISCOVERIES).unwrap();
            (found.estimate.interval.lower..=found.estimate.interval.upper).contains(&1.03)
        };
        // 990 are expected; fewer than 981 have a probability below 1 in 300.
        let held = count(DUELS, holds);
        assert!(held >= 981, "{held} of {DUELS}");
    }
}

#[test]
fn equal_programs_raise_an_alarm_in_less_than_one_duel_of_a_hundred() {
    const DUELS: u64 = 500;
    for machine in [QUIET, BUSY] {
        let duels: Vec<PairedChange> = (0..DUELS).map(|seed| duel(seed, 14, machine, NO_CHANGE)).collect();
        let alarms = duels.iter().filter(|duel| duel.verdict.is_change()).count();
        let void = duels.iter().filter(|duel| duel.is_null_changed).count();
        assert!(alarms <= 5 && void <= 12, "{alarms} alarms, {void} void");
    }
}

#[test]
fn two_per_cent_are_found_on_a_quiet_machine_and_five_on_a_busy_one() {
    const DUELS: u64 = 60;
    for (machine, size) in [(QUIET, 0.02), (BUSY, 0.05)] {
        let found = count(DUELS, |seed| duel(seed, 30, machine, always(size)).verdict == Verdict::Slower);
        assert!(found >= 55, "{found} of {DUELS} at {size}");
    }
    let same = count(DUELS, |seed| duel(seed, 30, QUIET, NO_CHANGE).verdict == Verdict::Same);
    let faster = count(DUELS, |seed| duel(seed, 30, QUIET, always(-0.03)).verdict == Verdict::Faster);
    assert!(same >= 55 && faster >= 55, "{same} same, {faster} faster");
}

#[test]
fn a_slow_down_that_strikes_some_processes_only_is_not_called_the_same() {
    const DUELS: u64 = 300;
    let sometimes = Change { size: 0.20, processes: 0.3 };
    // A duel of twelve generations in which no process was struck has a probability of 1.4 %: four of 300 are expected.
    let same = count(DUELS, |seed| duel(seed, 12, QUIET, sometimes).verdict == Verdict::Same);
    assert!(same <= 10, "{same} of {DUELS}");
}

#[test]
fn many_equal_cases_raise_no_more_alarms_than_one() {
    const DUELS: u64 = 60;
    let alarms = count(DUELS, |seed| {
        let cases: Vec<Vec<Generation>> =
            (0..12).map(|case| generations(100 * seed + case, 12, 10, BUSY, NO_CHANGE)).collect();
        decide(&cases, FALSE_DISCOVERIES).iter().any(|it| it.verdict.is_change())
    });
    assert!(alarms <= 2, "{alarms} of {DUELS}");
}

#[test]
fn a_pilot_recovers_the_components() {
    let still = Machine { drift: 0.0, wave: 0.0, bursts: 0.0, struck: 0.0, ..BUSY };
    let many = Components::of(&generations(1, 400, 10, still, NO_CHANGE)).unwrap();
    // A ratio has the scatter of two arms.
    let expected = |deviation: f64| 2.0_f64.sqrt() * deviation;
    assert!((many.within / expected(still.slice) - 1.0).abs() < 0.15, "{many:?}");
    assert!((many.between / expected(still.generation) - 1.0).abs() < 0.15, "{many:?}");
}

#[test]
fn a_slow_down_of_the_tolerance_is_excluded_in_at_most_one_duel_of_a_hundred() {
    const DUELS: u64 = 600;
    for machine in [QUIET, BUSY] {
        let is_cleared = |size| move |seed| duel_with_looks(seed, machine, always(size)).verdict.excludes_regression();
        // At most 6 are expected; more than 12 have a probability below 1 in 100.
        let missed = count(DUELS, is_cleared(1.001 * TOLERANCE));
        assert!(missed <= 12, "{missed} of {DUELS}");
    }
    // A gate opens for equal programs about as often as the plan promises, and more often than they are shown to be equal.
    let of_equal: Vec<Verdict> = (0..100).map(|seed| duel_with_looks(seed, BUSY, NO_CHANGE).verdict).collect();
    let cleared = of_equal.iter().filter(|verdict| verdict.excludes_regression()).count();
    let same = of_equal.iter().filter(|verdict| **verdict == Verdict::Same).count();
    assert!(cleared >= same + 10, "{cleared} cleared, {same} the same");
}

#[test]
fn intervals_are_about_as_wide_as_the_pilot_lets_expect() {
    let plan = DuetPlan { generations: 36, slices: 12, slice: SLICE, may_stop_early: false };
    for machine in [QUIET, BUSY] {
        let ratios: Vec<f64> = (0..40)
            .map(|seed| {
                let expected =
                    Components::of(&generations(1000 + seed, 4, 6, machine, NO_CHANGE)).unwrap().half_width(&plan);
                let found = duel(seed, plan.generations, machine, NO_CHANGE).change.interval;
                (found.upper / found.lower).ln() / 2.0 / expected
            })
            .collect();
        let middle = crate::statistics::median(&ratios).unwrap();
        assert!((0.6..1.6).contains(&middle), "{middle}");
    }
}

#[test]
fn duels_that_may_stop_early_are_wrong_no_more_often_and_find_large_changes_sooner() {
    const DUELS: u64 = 600;
    for machine in [QUIET, BUSY] {
        let is_alarm = |seed| duel_with_looks(seed, machine, NO_CHANGE).verdict.is_change();
        let alarms = count(DUELS, is_alarm);
        // At most 6 are expected; more than 12 have a probability below 1 in 100.
        assert!(alarms <= 12, "{alarms} of {DUELS}");
        let holds = |seed| {
            let interval = duel_with_looks(seed, machine, always(0.03)).change.interval;
            (interval.lower..=interval.upper).contains(&1.03)
        };
        let held = count(DUELS, holds);
        assert!(held >= 585, "{held} of {DUELS}");
    }
    let found =
        |size| -> Vec<PairedChange> { (0..60).map(|seed| duel_with_looks(seed, QUIET, always(size))).collect() };
    let (large, equal) = (found(0.05), found(0.0));
    assert!(large.iter().all(|it| it.verdict == Verdict::Slower));
    let early = large.iter().filter(|it| it.generations == 12).count();
    let cleared = equal.iter().filter(|it| it.verdict.excludes_regression()).count();
    assert!(early >= 45 && cleared >= 55, "{early} early, {cleared} cleared");
}
