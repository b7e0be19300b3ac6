//! One generation of one case: a fresh process per arm, and slices in random order.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::arm::LiveArm;
use super::planning::Arena;
use crate::compare::{Generation, Loss, Role, SliceLength};
use crate::definition::CaseFailure;
use crate::fixture::seeded::Stream;
use crate::harness::{ArmStart, Handicap, SliceFigures};
use crate::machine::MOST_DISPLACEMENT;

/// Stands in place of a row for a generation's other draws.
const NO_ROW: usize = u32::MAX as usize;

/// An arm, how it is started, and how it is made slower.
pub type Start<'a> = (Role, &'a ArmStart, Option<Handicap>);

/// What a generation has measured, or why the case is lost from here on.
pub type Measured = Result<MeasuredGeneration, Loss>;

/// The number of slices per arm and their length, from the expected time of the longest call.
type Slices<'a> = &'a dyn Fn(Duration) -> (usize, SliceLength);

/// The arms of one case.
pub struct ArmsOfCase<'a> {
    pub arena: &'a Arena,
    /// The arms that are measured, in the order of a row's figures.
    pub starts: Vec<Start<'a>>,
    /// Groups of processors on which arms may load side by side; the first is the one that arms measure on. Fewer than
    /// two if they may not.
    pub groups: Vec<Vec<usize>>,
    /// Draws every order.
    pub seed: u64,
    pub id: &'a str,
}

/// The slices of a generation, as the journal keeps them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredGeneration {
    /// Median nanoseconds of the slices' calls, in rows of one slice per arm that is measured: base, null control, candidates.
    pub rows: Vec<Vec<f64>>,
    /// Seconds until all arms were ready.
    pub start_seconds: f64,
    /// Seconds of the slices.
    pub row_seconds: f64,
    /// The processors that the threads of the base's process could use, as the kernel lists them.
    pub affinities: Vec<String>,
    /// Nanoseconds of each call, by row and arm, if a slice has few calls. Only the pilot uses them.
    #[serde(skip)]
    pub calls_ns: Vec<Vec<Vec<u64>>>,
}

impl From<&MeasuredGeneration> for Generation {
    fn from(measured: &MeasuredGeneration) -> Self {
        let logarithms = |row: &Vec<f64>| row.iter().map(|ns| ns.ln()).collect();
        Generation { rows: measured.rows.iter().map(logarithms).collect() }
    }
}

impl ArmsOfCase<'_> {
    /// Measures generation `number`. A lost generation is repeated once. Only what ends the whole duel is an error.
    pub fn measure(&self, number: usize, slices: Slices<'_>) -> Result<Measured> {
        let measured = self.attempt(number, slices)?;
        let Err(loss) = &measured else { return Ok(measured) };
        eprintln!("  {}: a generation is repeated: {}", self.id, loss.message);
        self.attempt(number, slices)
    }

    fn attempt(&self, number: usize, slices: Slices<'_>) -> Result<Measured> {
        let begin = Instant::now();
        let mut arms: Vec<(usize, LiveArm)> = Vec::new();
        let mut affinities = Vec::new();
        let mut call_ns = 0;
        let displacement = draws(self.seed, self.id, number, NO_ROW).at(0) as usize % MOST_DISPLACEMENT;
        // The order is random, since the order in which processes start may decide where their memory lies.
        let mut places = order(self.seed, self.id, self.starts.len(), number, 0).into_iter();
        let alone = [None];
        let groups: Vec<Option<&[usize]>> = self.groups.iter().map(|group| Some(group.as_slice())).collect();
        let mut free = if groups.len() < 2 { &alone[..] } else { &groups[..] };
        let mut loaded: Vec<(usize, LiveArm)> = Vec::new();
        while arms.len() < self.starts.len() {
            let mut loading = Vec::new();
            for (place, group) in places.by_ref().take(free.len()).zip(free) {
                loading.push((place, LiveArm::start(self.arena, self.starts[place], displacement, *group)?));
            }
            // One after the other, because all have the same processors. From now on, no arm can load there.
            for (place, mut arm) in loaded.drain(..) {
                match arm.warm_up() {
                    Ok(ready) => {
                        call_ns = call_ns.max(ready.call_ns);
                        if self.starts[place].0 == Role::Base {
                            affinities = ready.affinities.into_keys().collect();
                        }
                    }
                    Err(error) => return lost(self.starts[place].0, error).map(Err),
                }
                arms.push((place, arm));
            }
            for (place, mut arm) in loading {
                if let Err(error) = arm.wait_until_loaded() {
                    return lost(self.starts[place].0, error).map(Err);
                }
                loaded.push((place, arm));
            }
            if groups.len() > 1 {
                free = &groups[1..];
            }
        }
        arms.sort_by_key(|(place, _)| *place);
        let (slices, length) = slices(Duration::from_nanos(call_ns));
        let started = Instant::now();
        let (mut rows, mut calls_ns) = (Vec::with_capacity(slices), Vec::with_capacity(slices));
        for row in 0..slices {
            let (mut medians, mut calls) = (vec![0.0; arms.len()], vec![Vec::new(); arms.len()]);
            for place in order(self.seed, self.id, arms.len(), number, row + 1) {
                match arms[place].1.slice(length) {
                    Ok(SliceFigures { median_ns, calls_ns, .. }) => {
                        (medians[place], calls[place]) = (median_ns, calls_ns);
                    }
                    Err(error) => return lost(self.starts[place].0, error).map(Err),
                }
            }
            rows.push(medians);
            calls_ns.push(calls);
        }
        Ok(Ok(MeasuredGeneration {
            rows,
            start_seconds: (started - begin).as_secs_f64(),
            row_seconds: started.elapsed().as_secs_f64(),
            affinities,
            calls_ns,
        }))
    }
}

/// Why an arm has failed; any other error is passed on.
fn lost(role: Role, error: anyhow::Error) -> Result<Loss> {
    let CaseFailure { status, message } = error.downcast()?;
    Ok(Loss { role, status, message, is_left_out: false })
}

/// The draws of a row depend on these arguments only, so that a resumed duel continues as it would have without the
/// interruption.
fn draws(seed: u64, id: &str, generation: usize, row: usize) -> Stream {
    Stream::new(Stream::new(seed, id).at((generation as u64) << 32 | row as u64), "order")
}

/// A random order of the arms, different for each row.
fn order(seed: u64, id: &str, arms: usize, generation: usize, row: usize) -> Vec<usize> {
    let draws = draws(seed, id, generation, row);
    let mut places: Vec<usize> = (0..arms).collect();
    places.sort_by_key(|place| draws.at(*place as u64));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_comes_first_about_as_often() {
        let mut firsts = [0; 3];
        for row in 0..3000 {
            firsts[order(7, "m/x/1", 3, 1, row)[0]] += 1;
        }
        assert!(firsts.iter().all(|count| (900..1100).contains(count)), "{firsts:?}");
        assert_eq!(order(7, "m", 4, 3, 12), order(7, "m", 4, 3, 12));
        assert!((0..20).any(|row| order(7, "m", 3, 1, row) != order(7, "m", 3, 2, row)));
    }
}
