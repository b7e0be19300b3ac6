//! The changes that a duel will detect and the time that a verdict would take, predicted at its beginning from the
//! pilot, and at its end from the measured generations.

use super::driver::PLANNED;
use super::pilot::Pilot;
use crate::compare::{CaseOutcome, Costs, Duel, DuetPlan, FEWEST_GENERATIONS, deciding_half_width, fewest_generations};
use crate::report::numbers::{plural, short_percent};

/// Longer duels are not advised.
const MOST_MINUTES: f64 = 24.0 * 60.0;

/// A pilot cannot distinguish half-widths that differ by less than this factor.
const NEARLY: f64 = 1.2;

/// `m/x/1: about ± 1.2 % in 40 s (at most 40 generations of 20 slices per arm)`.
pub fn of_case(id: &str, pilot: &Pilot, plan: &DuetPlan) -> String {
    let seconds = plan.generations as f64 * pilot.costs.generation(plan.slices);
    let half_width = percent(pilot.components.half_width(plan));
    format!(
        "{id}: about ± {half_width} in {seconds:.0} s (at most {} generations of {} slices of {} per arm)",
        plan.generations,
        plan.slices,
        length_of_slice(plan)
    )
}

/// `2 ms`, `1 call`, or `2 calls after 1 that fill the caches`.
fn length_of_slice(plan: &DuetPlan) -> String {
    let counted = plural(plan.slice.counted, "call", "calls");
    match plan.slice.dropped {
        _ if plan.slice.ns > 0 => format!("{:.3} ms", plan.slice.ns as f64 / 1e6).replace(".000", ""),
        0 => counted,
        dropped => format!("{counted} after {dropped} that fill the caches"),
    }
}

/// The warning that the user's number of generations is too small for so many comparisons, with the number that
/// suffices. Returns `None` if it is not.
pub fn too_few(generations: usize, comparisons: usize) -> Option<String> {
    let fewest = fewest_generations(comparisons);
    (generations < fewest).then(|| {
        format!(
            "if one alone of {comparisons} comparisons changed, {generations} generations could not show it, however large it is: that \
             needs at least {fewest}: `--generations {fewest}`"
        )
    })
}

/// How long the duel would have to be to decide every case, such as `± 0.6 %, … needs about 3 min`. Returns `None` if
/// the plans are long enough. `spent` is the time before the first generation that counts, in seconds.
pub fn advice(planned: &[(Pilot, DuetPlan)], tolerance: f64, spent: f64) -> Option<String> {
    let deciding = deciding_half_width(tolerance);
    let is_enough = |(pilot, plan): &(Pilot, DuetPlan)| pilot.components.half_width(plan) <= NEARLY * deciding;
    if planned.iter().all(is_enough) {
        return None;
    }
    let needed = |(pilot, plan): &(Pilot, DuetPlan)| {
        let fewest = FEWEST_GENERATIONS as f64 * pilot.costs.generation(plan.slices);
        Some((pilot.costs, pilot.components.seconds_for(deciding, pilot.costs, plan.slice)?.max(fewest)))
    };
    let cases: Option<Vec<(Costs, f64)>> = planned.iter().map(needed).collect();
    let minutes = cases.and_then(|cases| minutes(spent + Costs::enough_for(&cases)));
    let width = format!("± {}, with which equal programs get a verdict,", percent(deciding));
    Some(match minutes {
        Some(minutes) => format!("{width} needs about {minutes} min: `--minutes {minutes}`"),
        None => format!("{width} is out of reach on this machine: it scatters too much between processes"),
    })
}

/// The `--minutes` that would decide the cases that more time can decide, from the measured scatter. `seconds` has the
/// time of each case's generations.
pub fn minutes_needed(duel: &Duel, seconds: &[f64]) -> Option<f64> {
    let needed = |outcome: &CaseOutcome| {
        let found = outcome.comparison.as_ref()?;
        Some(found.generations_needed(duel.tolerance)? / found.generations as f64)
    };
    let factors =
        duel.cases.chunks(duel.candidates.len()).map(|outcomes| outcomes.iter().filter_map(needed).reduce(f64::max));
    // A case that ends early leaves nothing to the others: each case may get as much as the one that needs most.
    let longest = factors.zip(seconds).filter_map(|(factor, seconds)| Some(factor? * seconds)).reduce(f64::max)?;
    let total: f64 = seconds.iter().filter(|seconds| **seconds > 0.0).map(|seconds| longest.max(*seconds)).sum();
    minutes(duel.preparation_seconds + total)
}

/// The minutes whose planned fraction is so many seconds, rounded up. Returns `None` if they are more than
/// [`MOST_MINUTES`].
fn minutes(seconds: f64) -> Option<f64> {
    let minutes = seconds / PLANNED / 60.0;
    let step = match minutes {
        few if few < 2.0 => 0.1,
        some if some < 10.0 => 0.5,
        _ => 1.0,
    };
    let rounded = ((minutes / step).ceil() * step * 10.0).round() / 10.0;
    (rounded <= MOST_MINUTES).then_some(rounded)
}

fn percent(logarithm: f64) -> String {
    let fraction = logarithm.exp_m1();
    // More than two digits are not certain.
    let decimals = if fraction < 0.1 { 1000.0 } else { 100.0 };
    short_percent((fraction * decimals).round() / decimals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Components, SliceLength};

    fn planned(between: f64, seconds: f64) -> (Pilot, DuetPlan) {
        let (costs, slice) = (Costs { start: 0.5, row: 0.01 }, SliceLength { ns: 0, dropped: 1, counted: 2 });
        let components = Components { within: 0.05, between };
        (Pilot { components, costs, slice }, components.plan(costs, seconds, slice, true))
    }

    #[test]
    fn a_duel_says_what_it_will_see_and_what_more_would_take() {
        let (pilot, plan) = planned(0.02, 34.0);
        let text = of_case("m/x/1", &pilot, &plan);
        assert!(text.starts_with("m/x/1: about ± 1 % in 34 s (at most "), "{text}");
        assert!(text.ends_with("slices of 2 calls after 1 that fill the caches per arm)"), "{text}");
        let advice = |planned: &[(Pilot, DuetPlan)]| advice(planned, 0.01, 5.0);
        let one = advice(&[planned(0.02, 34.0)]).unwrap();
        assert_eq!(one, "± 0.6 %, with which equal programs get a verdict, needs about 2.5 min: `--minutes 2.5`");
        assert_eq!(advice(&[planned(0.002, 34.0)]), None);
        assert!(advice(&[planned(0.3, 34.0)]).unwrap().contains("out of reach"));
    }

    #[test]
    fn too_few_generations_for_so_many_comparisons_are_said_with_the_number_that_is_enough() {
        assert_eq!([too_few(12, 1), too_few(12, 20), too_few(13, 24), too_few(40, 24)], [None, None, None, None]);
        let said = too_few(12, 24).unwrap();
        assert!(said.starts_with("if one alone of 24 comparisons changed, 12 generations could not show it"), "{said}");
        assert!(said.ends_with("that needs at least 13: `--generations 13`"), "{said}");
        assert!(too_few(12, 41).unwrap().ends_with("`--generations 14`"));
    }

    #[test]
    fn minutes_are_rounded_up_and_end_with_a_day() {
        let found = [10.0, 60.0, 170.0, 3000.0, 1e6].map(|seconds| minutes(PLANNED * seconds));
        assert_eq!(found, [Some(0.2), Some(1.0), Some(3.0), Some(50.0), None]);
    }
}
