//! The pilot of a case finds the length of its slices, the components of the scatter, and the costs of generations. Its
//! figures are not part of the result.

use std::time::Duration;

use anyhow::{Result, bail};

use super::generation::{ArmsOfCase, MeasuredGeneration};
use crate::compare::{Components, Costs, Generation, Loss, SliceLength};
use crate::statistics::{mean, median};

const GENERATIONS: usize = 4;
const SLICES: usize = 6;
/// If the slices of a generation take longer than this, the pilot has fewer slices and generations.
const LONG_GENERATION: Duration = Duration::from_secs(1);
const FEWER_GENERATIONS: usize = 3;
const FEWER_SLICES: usize = 2;
/// Generations of the pilot are numbered from here, so that their orders are not those of the generations that count.
const FIRST_NUMBER: usize = 1_000_000;
/// Calls per slice if calls are long. The first half may be slower, because another arm has used the caches, but not
/// the second.
const CALLS: usize = 6;
/// The longest time of a slice that has more than one call.
const MOST_TIME: Duration = Duration::from_millis(100);
/// A call has settled if it is longer than the second half of the calls by at most this fraction.
const SETTLED: f64 = 0.02;

/// What the pilot has shown of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pilot {
    pub components: Components,
    pub costs: Costs,
    pub slice: SliceLength,
}

/// Measures the pilot of a case. Slices have the length that is `asked` for, if one is.
pub fn measure(arms: &ArmsOfCase<'_>, asked: Option<Duration>) -> Result<Result<Pilot, Loss>> {
    let length = |longest: Duration| {
        let calls = MOST_TIME.as_nanos() / longest.as_nanos().max(1);
        let counted = || SliceLength::of_calls((calls as usize).clamp(1, CALLS));
        SliceLength::by_time(longest, asked).unwrap_or_else(counted)
    };
    let slices = |longest: Duration| {
        let is_long = longest * (SLICES * arms.starts.len()) as u32 > LONG_GENERATION;
        (if is_long { FEWER_SLICES } else { SLICES }, length(longest))
    };
    let mut measured: Vec<MeasuredGeneration> = Vec::new();
    let is_enough = |measured: &[MeasuredGeneration]| match measured.len() {
        GENERATIONS => true,
        FEWER_GENERATIONS => measured.iter().all(|it| it.rows.len() == FEWER_SLICES),
        _ => false,
    };
    while !is_enough(&measured) {
        match arms.measure(FIRST_NUMBER + measured.len(), &slices)? {
            Ok(generation) => measured.push(generation),
            Err(loss) => return Ok(Err(loss)),
        }
    }
    match Pilot::out_of(measured, asked) {
        Some(pilot) => Ok(Ok(pilot)),
        None => bail!("{}: the pilot has no figures", arms.id),
    }
}

impl Pilot {
    fn out_of(mut measured: Vec<MeasuredGeneration>, asked: Option<Duration>) -> Option<Self> {
        let slices = || measured.iter().flat_map(|generation| generation.calls_ns.iter().flatten());
        let told = slices().map(Vec::len).min().unwrap_or_default();
        let dropped = unsettled(slices(), told);
        let arms = measured.first()?.rows.first()?.len();
        let of_arm = |arm: usize| -> Option<f64> {
            median(&measured.iter().flat_map(|generation| &generation.rows).map(|row| row[arm]).collect::<Vec<_>>())
        };
        let calls: Vec<f64> = (0..arms).filter_map(of_arm).collect();
        let call = |ns: Option<f64>| ns.map(|ns| Duration::from_nanos(ns as u64));
        let shortest = call(calls.iter().copied().reduce(f64::min))?;
        let longest = call(calls.iter().copied().reduce(f64::max))?;
        let slice = SliceLength::planned(shortest, longest, arms, dropped, asked);
        let seconds = |of: fn(&MeasuredGeneration) -> f64| mean(&measured.iter().map(of).collect::<Vec<_>>());
        let mut costs = Costs {
            start: seconds(|it| it.start_seconds),
            row: seconds(|it| it.row_seconds / it.rows.len().max(1) as f64),
        };
        let rows = measured.iter().map(|it| it.rows.len()).min()?;
        measured.iter_mut().for_each(|it| it.rows.truncate(rows));
        // What rows would cost with the planned slices, which may be longer than the pilot's.
        let planned = slice.dropped + slice.counted;
        if slice.ns == 0 && told > 0 {
            costs.row += (planned as f64 - told as f64) * calls.iter().sum::<f64>() / 1e9;
        }
        let least = |call_ns: &f64| (planned as f64 * call_ns).max(slice.ns as f64) / 1e9;
        costs.row = costs.row.max(calls.iter().map(least).sum());
        if slice.ns == 0 && planned <= told {
            // The rows as they would be with the planned slices.
            for generation in &mut measured {
                for (row, calls) in generation.rows.iter_mut().zip(&generation.calls_ns) {
                    let counted = calls.iter().filter_map(|calls| median_of(calls.get(slice.dropped..planned)?));
                    *row = counted.collect();
                }
            }
        }
        let generations: Vec<Generation> = measured.iter().map(Generation::from).collect();
        Some(Pilot { components: Components::of(&generations)?, costs, slice })
    }
}

fn median_of(calls_ns: &[u64]) -> Option<f64> {
    median(&calls_ns.iter().map(|&ns| ns as f64).collect::<Vec<_>>())
}

/// The number of calls at the beginning of a slice that are slower than its second half. `told` is the number of calls
/// that each slice reports.
fn unsettled<'a>(slices: impl Iterator<Item = &'a Vec<u64>> + Clone, told: usize) -> usize {
    let late = told - told / 2;
    let slower = |place: usize| {
        let ratios: Vec<f64> =
            slices.clone().filter_map(|calls| Some(calls[place] as f64 / median_of(&calls[told - late..])?)).collect();
        median(&ratios).is_some_and(|ratio| ratio > 1.0 + SETTLED)
    };
    (0..told / 2).rev().find(|place| slower(*place)).map_or(0, |place| place + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generations of a pilot whose calls take 2 ms, times the factor of their place in the slice.
    fn generations(factors: [f64; 6]) -> Vec<MeasuredGeneration> {
        let generation = |number: usize| {
            let call = |arm: usize, place: usize, row: usize| {
                (2e6 * factors[place] * (1.0 + 0.001 * ((number + 2 * arm + row + place) % 4) as f64)) as u64
            };
            let slice = |arm, row| (0..6).map(|place| call(arm, place, row)).collect::<Vec<u64>>();
            let calls_ns: Vec<Vec<Vec<u64>>> =
                (0..SLICES).map(|row| (0..3).map(|arm| slice(arm, row)).collect()).collect();
            MeasuredGeneration {
                rows: calls_ns.iter().map(|row| row.iter().map(|calls| median_of(calls).unwrap()).collect()).collect(),
                start_seconds: 1.5,
                row_seconds: SLICES as f64 * 0.037,
                affinities: Vec::new(),
                calls_ns,
            }
        };
        (0..GENERATIONS).map(generation).collect()
    }

    #[test]
    fn calls_that_fill_the_caches_are_dropped_as_the_pilot_shows_it() {
        let pilot = |factors| Pilot::out_of(generations(factors), None).unwrap();
        let settled = pilot([1.0; 6]);
        assert_eq!(settled.slice, SliceLength { ns: 0, dropped: 0, counted: 2 });
        let first = pilot([1.3, 1.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(first.slice, SliceLength { ns: 0, dropped: 1, counted: 1 });
        assert_eq!(pilot([1.3, 1.0, 1.05, 1.0, 1.0, 1.0]).slice.dropped, 3);
        // With two of six calls per slice, a row takes 13 ms instead of 37 ms.
        assert!((first.costs.row - 0.013).abs() < 2e-4, "{:?}", first.costs);
        assert!(first.components.within < 0.01 && (first.costs.start - 1.5).abs() < 1e-9, "{first:?}");
    }

    #[test]
    fn generations_of_fewer_slices_count_as_much_as_the_first() {
        let all = generations([1.0; 6]);
        let mut shorter = all.clone();
        for generation in &mut shorter[1..] {
            generation.rows.truncate(FEWER_SLICES);
            generation.calls_ns.truncate(FEWER_SLICES);
            generation.row_seconds *= FEWER_SLICES as f64 / SLICES as f64;
        }
        let [all, shorter] = [all, shorter].map(|generations| Pilot::out_of(generations, None).unwrap());
        assert!((shorter.costs.row - all.costs.row).abs() < 1e-9, "{shorter:?} {all:?}");
        assert_eq!(shorter.slice, all.slice);
        assert!(shorter.components.within < 0.01, "{shorter:?}");
    }

    #[test]
    fn slices_that_were_asked_for_are_taken() {
        let asked = |ms| Pilot::out_of(generations([1.3, 1.0, 1.0, 1.0, 1.0, 1.0]), Some(Duration::from_millis(ms)));
        assert_eq!(asked(3).unwrap().slice, SliceLength { ns: 0, dropped: 1, counted: 1 });
        assert_eq!(asked(20).unwrap().slice, SliceLength::of_time(Duration::from_millis(20)));
    }

    #[test]
    fn rows_of_longer_slices_than_those_of_the_pilot_cost_more() {
        let mut single = generations([1.0; 6]);
        single.iter_mut().flat_map(|it| it.calls_ns.iter_mut().flatten()).for_each(|calls| calls.truncate(1));
        single.iter_mut().for_each(|it| it.row_seconds = SLICES as f64 * 0.007);
        let pilot = Pilot::out_of(single, Some(Duration::from_millis(10))).unwrap();
        assert_eq!(pilot.slice, SliceLength { ns: 0, dropped: 0, counted: 4 });
        // Three arms with three more calls of 2 ms.
        assert!((pilot.costs.row - 0.025).abs() < 2e-4, "{:?}", pilot.costs);
        let timed = Pilot::out_of(generations([1.0; 6]), Some(Duration::from_millis(20))).unwrap();
        assert!((timed.costs.row - 0.06).abs() < 1e-9, "{:?}", timed.costs);
    }

    #[test]
    fn arms_that_tell_no_single_calls_have_figures_nevertheless() {
        let mut silent = generations([1.0; 6]);
        silent.iter_mut().for_each(|generation| generation.calls_ns.iter_mut().flatten().for_each(Vec::clear));
        assert_eq!(Pilot::out_of(silent, None).unwrap().slice.dropped, 0);
    }
}
