//! The plan of a duel: how its slices are taken, how many generations it has, and when it is looked at.
//!
//! A pilot shows what the scatter is made of ([`Components`]) and what generations and rows cost ([`Costs`]). From
//! these follow the plan of a case, the expected width of its interval, and the time that a narrower interval would
//! take.
//!
//! A duel is looked at only as often as was planned. Each [`Look`] spends a part of the error rate, so that a duel that
//! stops at the first look that settles it is wrong no more often than one that goes on to the end (Jennison & Turnbull
//! 2000, "Group Sequential Methods", chapter 7; the parts are added up, which holds for any dependence between looks).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duet::{FALSE_DISCOVERIES, Generation, Role};
use super::noise::DEVIATION_OVER_MAD;
use crate::statistics::{StudentT, median, variance};

/// Fewer generations could miss a slow-down of only some processes. If it strikes one in three, 12 generations miss it
/// in 1 of 130 duels.
pub const FEWEST_GENERATIONS: usize = 12;
pub(super) const MOST_GENERATIONS: usize = 400;
/// One slice would not show the scatter within a generation.
const FEWEST_SLICES: usize = 2;
/// So many short rows cost as much as starting a library that takes seconds.
const MOST_SLICES: usize = 100;
/// Each look comes after about this multiple of the generations of the look before.
const BETWEEN_LOOKS: f64 = 1.5;
const MOST_EARLY_LOOKS: usize = 5;
/// The first look, which finds large changes, comes after so long, unless processes start too slowly.
const FIRST_LOOK_SECONDS: f64 = 30.0;
/// The part of the error rate that each early look spends.
const EARLY_SHARE: f64 = 0.1;
/// The variance of a mean over that of the Hodges–Lehmann estimate, for normal figures.
const EFFICIENCY: f64 = 3.0 / std::f64::consts::PI;
/// An interval whose half-width is this fraction of the tolerance excludes a slow-down in 24 of 25 duels of equal
/// programs.
const DECIDING_WIDTH: f64 = 0.6;
/// A duel may take this multiple of the time that its pilot predicts, since a pilot may scatter less by chance.
const PILOT_SAFETY: f64 = 2.0;

/// How long one arm runs before it is another arm's turn. The text form is the three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceLength {
    /// Calls are made for at least so long. The first quarter fills the caches and is not counted, if it is longer than
    /// a call.
    pub ns: u64,
    /// Calls at the beginning that are not counted.
    pub dropped: usize,
    /// At least so many calls are counted.
    pub counted: usize,
}

impl SliceLength {
    const USUAL: Duration = Duration::from_millis(2);
    /// All slices of a row take so long together, as far as calls allow. Other work and changes of the machine's speed
    /// strike the arms of a short row alike.
    const ROW: Duration = Duration::from_millis(10);
    /// If at least so many calls fit into a slice, it lasts for a time; slices of longer calls have a number of calls.
    const MANY_CALLS: f64 = 6.0;
    const MOST_COUNTED: usize = 3;
    /// From this length on, single calls are enough.
    const LONG_CALL: Duration = Duration::from_millis(10);

    /// A slice of calls that are made for this time.
    pub fn of_time(length: Duration) -> Self {
        SliceLength { ns: length.as_nanos() as u64, dropped: 0, counted: 1 }
    }

    /// A slice that makes so many calls and counts each.
    pub fn of_calls(counted: usize) -> Self {
        SliceLength { ns: 0, dropped: 0, counted }
    }

    /// A slice of the time that the user has `asked` for, or else of 2 ms. Returns `None` if the longest call is too
    /// long for it.
    pub fn by_time(longest_call: Duration, asked: Option<Duration>) -> Option<Self> {
        let length = asked.unwrap_or(Self::USUAL);
        (longest_call.mul_f64(Self::MANY_CALLS) <= length).then(|| Self::of_time(length))
    }

    /// The slices of `arms` arms with calls between the `shortest` and the `longest`. The first `dropped` calls of a
    /// slice are not counted.
    pub fn planned(
        shortest: Duration,
        longest: Duration,
        arms: usize,
        dropped: usize,
        asked: Option<Duration>,
    ) -> Self {
        if let Some(by_time) = Self::by_time(longest, asked) {
            return by_time;
        }
        let length = asked.unwrap_or(Self::ROW / arms.max(1) as u32);
        let calls = (length.as_secs_f64() / longest.as_secs_f64()) as usize;
        let is_single = asked.is_some() || longest >= Self::LONG_CALL || dropped > 0;
        let least = if is_single { 1 } else { 2 };
        let most = if asked.is_some() { calls.max(1) } else { Self::MOST_COUNTED };
        let counted = calls.saturating_sub(dropped).clamp(least, most);
        // A much faster arm makes as many calls as it has time for.
        let has_fast_arm = shortest * 2 < longest;
        let ns = if has_fast_arm { asked.unwrap_or(Self::USUAL).as_nanos() as u64 } else { 0 };
        SliceLength { ns, dropped, counted }
    }
}

impl fmt::Display for SliceLength {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} {}", self.ns, self.dropped, self.counted)
    }
}

impl FromStr for SliceLength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<u64>> = text.split(' ').map(|number| number.parse().ok()).collect();
        let Some(&[ns, dropped, counted]) = numbers.as_deref() else {
            return Err(format!("{text:?} is not the length of a slice: nanoseconds, dropped calls, counted calls"));
        };
        Ok(SliceLength { ns, dropped: dropped as usize, counted: counted as usize })
    }
}

/// What the scatter of slices is made of: standard deviations of log ratios.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Components {
    /// Of a row within its generation.
    pub within: f64,
    /// Of a generation, beyond what its rows explain.
    pub between: f64,
}

/// What a duel costs, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Of a generation without its slices: starting, loading and warming up every arm.
    pub start: f64,
    /// Of a row: one slice of each arm.
    pub row: f64,
}

impl Costs {
    /// Seconds of a generation with so many slices per arm.
    pub fn generation(&self, slices: usize) -> f64 {
        self.start + slices as f64 * self.row
    }

    /// The seconds of the fewest generations, with slices for a quarter of their time.
    fn least_seconds(&self) -> f64 {
        FEWEST_GENERATIONS as f64 * (self.start / 0.75).max(self.generation(FEWEST_SLICES))
    }

    /// Divides `seconds` among cases, each with the seconds that are likely to lead to a verdict, if that is known. A
    /// case that needs more than an equal part for the fewest generations gets what it needs. A case that is likely to
    /// need less than an equal part leaves the rest to the others.
    pub fn divide(cases: &[(Costs, Option<f64>)], seconds: f64) -> Vec<f64> {
        let mut parts = vec![0.0; cases.len()];
        let mut open: Vec<usize> = (0..cases.len()).collect();
        let mut left = seconds;
        let least = |case: usize| cases[case].0.least_seconds();
        let enough =
            |case: usize| cases[case].1.map_or(f64::INFINITY, |needed| (PILOT_SAFETY * needed).max(least(case)));
        while !open.is_empty() {
            let equal = left / open.len() as f64;
            let bound = open.iter().position(|&case| least(case) > equal);
            let Some(place) = bound.or_else(|| open.iter().position(|&case| enough(case) < equal)) else {
                open.drain(..).for_each(|case| parts[case] = equal);
                return parts;
            };
            let case = open.swap_remove(place);
            parts[case] = least(case).max(enough(case).min(equal));
            left -= parts[case];
        }
        let rest = left.max(0.0) / cases.len().max(1) as f64;
        parts.iter().map(|part| part + rest).collect()
    }

    /// The seconds of which [`divide`](Self::divide) gives each case as many as it needs.
    pub fn enough_for(cases: &[(Costs, f64)]) -> f64 {
        let longest = cases.iter().map(|(_, needed)| *needed).fold(0.0, f64::max);
        let part = |(costs, needed): &(Costs, f64)| (PILOT_SAFETY * needed).min(longest).max(costs.least_seconds());
        cases.iter().map(part).sum()
    }
}

/// How a case is measured, fixed before its first counted slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DuetPlan {
    pub generations: usize,
    /// Slices of each arm per generation.
    pub slices: usize,
    pub slice: SliceLength,
    /// Whether the case may end early, at one of the planned looks.
    pub may_stop_early: bool,
}

/// A number of generations at which a case is looked at, and the probability of an error that is spent there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    pub generations: usize,
    pub error_rate: f64,
}

/// The fewest generations that can show a change in one alone of so many comparisons. If all `n` generations agree, the
/// p-value is `2 / 2^n`, and the strictest step of the false-discovery rate is that rate over the number of
/// comparisons.
pub fn fewest_generations(comparisons: usize) -> usize {
    let agreeing = (2.0 * comparisons.max(1) as f64 / FALSE_DISCOVERIES).log2().ceil() as usize;
    agreeing.max(FEWEST_GENERATIONS)
}

impl DuetPlan {
    /// The looks of this plan, the last one at its end. Early looks find large changes, and end cases that are settled.
    /// Most of the error rate is left for the last look, so its interval is hardly wider.
    pub fn looks(&self) -> Vec<Look> {
        let (first, last) = (FEWEST_GENERATIONS as f64, self.generations as f64);
        let times = (last / first).ln() / BETWEEN_LOOKS.ln();
        let count =
            if self.may_stop_early && times >= 1.0 { (times.round() as usize).min(MOST_EARLY_LOOKS) } else { 0 };
        let early = |place: usize| first * (last / first).powf(place as f64 / count as f64);
        let early: Vec<usize> = (0..count).map(|place| early(place).round() as usize).collect();
        let spent = EARLY_SHARE * early.len() as f64;
        let look = |generations| Look { generations, error_rate: EARLY_SHARE * FALSE_DISCOVERIES };
        let last = Look { generations: self.generations, error_rate: (1.0 - spent) * FALSE_DISCOVERIES };
        early.into_iter().map(look).chain([last]).collect()
    }

    /// Whether the result is looked at after so many generations.
    pub fn is_look(&self, generations: usize) -> bool {
        self.looks().iter().any(|look| look.generations == generations)
    }

    /// The part of the error rate that may be spent after so many generations, which is that of the next look.
    pub fn error_rate(&self, generations: usize) -> f64 {
        let looks = self.looks();
        let next = looks.iter().find(|look| look.generations >= generations).or(looks.last());
        next.map_or(FALSE_DISCOVERIES, |look| look.error_rate)
    }
}

impl Components {
    /// Finds the components from the ratios of the null control and of every candidate in a pilot's generations, which
    /// have the same number of rows. Returns `None` for fewer than two generations or rows.
    pub fn of(pilot: &[Generation]) -> Option<Self> {
        let rows = pilot.iter().map(|generation| generation.rows.len()).min()?;
        if pilot.len() < 2 || rows < 2 {
            return None;
        }
        let candidates = pilot[0].rows[0].len() - 2;
        let others = (1 + candidates) as f64;
        let mut scatter = Vec::new();
        let mut of_medians = 0.0;
        for role in Role::all(candidates).skip(1) {
            let ratios: Vec<Vec<f64>> = pilot.iter().map(|generation| generation.log_ratios(role)).collect();
            let medians: Vec<f64> = ratios.iter().filter_map(|ratios| median(ratios)).collect();
            of_medians += variance(&medians) / others;
            // Distances from each generation's median hardly change with a burst in single rows. With an odd number of
            // rows, the distance of the middle one is 0: `n / (n - 1)` corrects for that approximately.
            for (ratios, middle) in ratios.iter().zip(&medians) {
                scatter.extend(ratios.iter().map(|ratio| (ratio - middle).abs()));
            }
        }
        let within = DEVIATION_OVER_MAD * median(&scatter)? * (rows as f64 / (rows as f64 - 1.0)).sqrt();
        let between = (of_medians - median_penalty(rows) * within.powi(2) / rows as f64).max(0.0).sqrt();
        Some(Components { within, between })
    }

    /// The slices per generation that spend the time where the scatter comes from (Kalibera & Jones 2013, section 6:
    /// the square root of the ratio of costs times the ratio of deviations). At least a quarter of the time goes to
    /// slices: the machine may change its speed from one slice to the next, which a short pilot need not show, and a
    /// median of many slices does not mind. If the fewest generations would not fit into the time, or into that of the
    /// first look, they have fewer slices.
    fn slices(&self, costs: Costs, seconds: f64) -> usize {
        let row_error = median_penalty(MOST_SLICES).sqrt() * self.within;
        let best = (costs.start / costs.row.max(1e-9)).sqrt() * row_error / self.between.max(1e-9);
        let least = costs.start / (3.0 * costs.row.max(1e-9));
        let seconds = seconds.min(FIRST_LOOK_SECONDS.max(costs.least_seconds()));
        let fit = (seconds / FEWEST_GENERATIONS as f64 - costs.start) / costs.row.max(1e-9);
        (best.max(least).ceil().min(fit) as usize).clamp(FEWEST_SLICES, MOST_SLICES)
    }

    /// Chooses the slices per generation, and as many generations as fit into `seconds`.
    pub fn plan(&self, costs: Costs, seconds: f64, slice: SliceLength, may_stop_early: bool) -> DuetPlan {
        let slices = self.slices(costs, seconds);
        let generations = (seconds / costs.generation(slices).max(1e-9)) as usize;
        DuetPlan { generations: generations.clamp(FEWEST_GENERATIONS, MOST_GENERATIONS), slices, slice, may_stop_early }
    }

    /// The expected half-width of the interval at the end of the plan, as a logarithm.
    pub fn half_width(&self, plan: &DuetPlan) -> f64 {
        let DuetPlan { generations, slices, .. } = *plan;
        let deviation = (self.between.powi(2) + median_penalty(slices) * self.within.powi(2) / slices as f64).sqrt();
        let quantile = StudentT::new(generations as f64 - 1.0).two_sided_quantile(1.0 - plan.error_rate(generations));
        quantile * deviation / (EFFICIENCY * generations as f64).sqrt()
    }

    /// The seconds after which the interval is expected to have this half-width. Returns `None` if no duel has so many
    /// generations.
    pub fn seconds_for(&self, half_width: f64, costs: Costs, slice: SliceLength) -> Option<f64> {
        let slices = self.slices(costs, f64::INFINITY);
        let plan = |generations| DuetPlan { generations, slices, slice, may_stop_early: true };
        let all: Vec<usize> = (FEWEST_GENERATIONS..=MOST_GENERATIONS).collect();
        let needed = all.partition_point(|&generations| self.half_width(&plan(generations)) > half_width);
        all.get(needed).map(|&generations| generations as f64 * costs.generation(slices))
    }
}

/// The variance of a median over that of a mean, for so many normal figures. A median of two is their mean.
fn median_penalty(figures: usize) -> f64 {
    if figures > 2 { std::f64::consts::FRAC_PI_2 } else { 1.0 }
}

/// The half-width of an interval, as a logarithm, with which most cases of equal programs are decided at this
/// tolerance.
pub fn deciding_half_width(tolerance: f64) -> f64 {
    DECIDING_WIDTH * tolerance.ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: SliceLength = SliceLength { ns: 2_000_000, dropped: 0, counted: 1 };

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-4 * expected.abs(), "{found} is not {expected}");
    }

    #[test]
    fn one_slow_case_among_many_takes_more_generations() {
        assert_eq!([1, 20, 21, 40, 41, 96].map(fewest_generations), [12, 12, 13, 13, 14, 15]);
    }

    #[test]
    fn cases_that_need_more_than_an_equal_part_take_it_from_the_others() {
        let costs = |start: f64| (Costs { start, row: 0.001 }, None);
        let parts = Costs::divide(&[costs(0.1), costs(2.0), costs(0.1)], 52.0);
        assert_eq!(parts, [10.0, 32.0, 10.0]);
        assert_eq!(Costs::divide(&[costs(0.1), costs(0.2)], 60.0), [30.0, 30.0]);
        // The fewest generations are measured even where there is no time for them.
        assert_eq!(Costs::divide(&[costs(3.0), costs(3.0)], 10.0), [48.0, 48.0]);
    }

    #[test]
    fn cases_that_are_soon_decided_leave_their_time_to_the_others() {
        let case = |needed: f64| (Costs { start: 0.1, row: 0.001 }, Some(needed));
        assert_eq!(Costs::divide(&[case(5.0), case(100.0), case(200.0)], 90.0), [10.0, 40.0, 40.0]);
        assert_eq!(Costs::divide(&[case(5.0), case(10.0)], 40.0), [15.0, 25.0], "the rest is shared");
        assert!(Costs::divide(&[], 40.0).is_empty());
        // With the time that is advised, the case that needs most gets it.
        let needs = [[5.0; 4].as_slice(), &[100.0, 50.0]].concat();
        let costs = case(0.0).0;
        let enough = Costs::enough_for(&needs.iter().map(|&needed| (costs, needed)).collect::<Vec<_>>());
        let parts = Costs::divide(&needs.iter().map(|&needed| case(needed)).collect::<Vec<_>>(), enough);
        assert!(parts.iter().zip(&needs).all(|(part, needed)| part >= needed), "{enough}: {parts:?}");
    }

    #[test]
    fn more_scatter_between_generations_takes_more_of_them_and_fewer_slices_each() {
        let costs = Costs { start: 0.5, row: 0.06 };
        let plan = |within, between, seconds| Components { within, between }.plan(costs, seconds, SLICE, true);
        let (quiet, noisy) = (plan(0.01, 0.003, 60.0), plan(0.01, 0.03, 60.0));
        assert!(noisy.generations > 50 && noisy.slices < quiet.slices, "{quiet:?} {noisy:?}");
        assert_eq!(plan(0.01, 0.03, 1.0).generations, FEWEST_GENERATIONS);
    }

    #[test]
    fn a_narrower_interval_takes_the_square_of_the_time() {
        let costs = Costs { start: 0.5, row: 0.01 };
        let components = Components { within: 0.05, between: 0.02 };
        let seconds = |half_width: f64| components.seconds_for(half_width, costs, SLICE);
        let (wide, narrow) = (seconds(0.012).unwrap(), seconds(0.006).unwrap());
        assert!((3.2..4.2).contains(&(narrow / wide)), "{wide} {narrow}");
        // A plan of that time keeps what was promised.
        let plan = components.plan(costs, narrow, SLICE, true);
        assert!(components.half_width(&plan) <= 0.006 * 1.01, "{}", components.half_width(&plan));
        assert_eq!(seconds(1e-5), None);
        assert_near(deciding_half_width(0.01), 0.6 * 0.01_f64.ln_1p());
    }

    #[test]
    fn looks_spend_the_error_rate_once_and_leave_most_of_it_for_the_last() {
        let plan = |generations, may_stop_early| DuetPlan { generations, slices: 10, slice: SLICE, may_stop_early };
        let looks = plan(40, true).looks();
        assert_eq!(looks.iter().map(|look| look.generations).collect::<Vec<_>>(), [12, 18, 27, 40]);
        assert_near(looks.iter().map(|look| look.error_rate).sum(), FALSE_DISCOVERIES);
        assert!(looks[3].error_rate > 0.6 * FALSE_DISCOVERIES);
        let long = plan(150, true).looks();
        assert_eq!(long.iter().map(|look| look.generations).collect::<Vec<_>>(), [12, 20, 33, 55, 91, 150]);
        assert_near(long.iter().map(|look| look.error_rate).sum(), FALSE_DISCOVERIES);
        for single in [plan(40, false), plan(14, true)] {
            let [last] = single.looks()[..] else { panic!("{:?}", single.looks()) };
            assert_eq!((last.generations, last.error_rate), (single.generations, FALSE_DISCOVERIES));
        }
        assert_near(plan(40, true).error_rate(27), looks[2].error_rate);
        assert_near(plan(40, true).error_rate(28), looks[3].error_rate);
    }

    #[test]
    fn slices_of_long_calls_have_few_of_them() {
        let calls = |us: u64, arms, dropped, asked: Option<u64>| {
            let call = Duration::from_micros(us);
            SliceLength::planned(call, call, arms, dropped, asked.map(Duration::from_millis))
        };
        let counted = |dropped, counted| SliceLength { ns: 0, dropped, counted };
        assert_eq!(calls(15, 3, 1, None), SLICE);
        assert_eq!(calls(300, 3, 1, None), SLICE);
        assert_eq!([calls(500, 3, 1, None), calls(800, 3, 2, None)], [counted(1, 3), counted(2, 2)]);
        assert_eq!([calls(2200, 3, 0, None), calls(2200, 3, 1, None)], [counted(0, 2), counted(1, 1)]);
        assert_eq!(calls(50_000, 3, 0, None), counted(0, 1));
        // As the user wants it.
        assert_eq!([calls(2200, 3, 1, Some(3)), calls(2200, 3, 0, Some(9))], [counted(1, 1), counted(0, 4)]);
        assert_eq!(calls(2200, 3, 1, Some(20)), SliceLength::of_time(Duration::from_millis(20)));
        let [fast, slow] = [100, 10_000].map(Duration::from_micros);
        assert_eq!(SliceLength::planned(fast, slow, 3, 0, None), SliceLength { ns: 2_000_000, dropped: 0, counted: 1 });
    }

    #[test]
    fn a_length_is_read_as_it_is_written() {
        let length = SliceLength { ns: 2_000_000, dropped: 1, counted: 2 };
        assert_eq!(length.to_string().parse(), Ok(length));
        assert!("1000".parse::<SliceLength>().is_err() && "1 2 x".parse::<SliceLength>().is_err());
    }

    #[test]
    fn a_pilot_of_two_slices_tells_both_components_and_short_duels_have_fewer_slices() {
        let row = |ratio: f64| vec![0.0, ratio, ratio];
        let generation = |middle: f64| Generation { rows: vec![row(middle + 0.01), row(middle - 0.01)] };
        let found = Components::of(&[generation(0.1), generation(-0.1)]).unwrap();
        let within = 1.4826 * 0.01 * 2.0_f64.sqrt();
        assert_near(found.within, within);
        assert_near(found.between, (0.02 - within.powi(2) / 2.0).sqrt());
        let plan = |between, seconds| {
            let plan = Components { within: 0.01, between }.plan(Costs { start: 0.5, row: 0.06 }, seconds, SLICE, true);
            (plan.slices, plan.generations)
        };
        assert_eq!([plan(0.003, 10.0), plan(0.03, 60.0)], [(5, 12), (3, 88)]);
    }
}
