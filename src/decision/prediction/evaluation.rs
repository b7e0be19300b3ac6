//! How far predictions are off on a history itself, and how much recommendations from half of the history lose.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::example::{Example, Lessons, Runtime, Site};
use super::fitted::{LeftOut, Miss, Quantity, Widths};
use super::predictor::{Estimate, Predictor, for_others, rows_of_phase};
use crate::definition::Phase;
use crate::run_data::Works;
use crate::statistics::{mean, median, uniform};

/// The errors of one kind of prediction for one runtime on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Errors {
    pub backend: String,
    pub device: String,
    pub dtype: String,
    /// Absent where several machines are compared.
    pub host_id: Option<String>,
    pub threads: Option<usize>,
    /// `family`, `batch` or `machine`.
    pub left_out: &'static str,
    pub rows: usize,
    pub families: usize,
    /// As a fraction of the measured latency.
    pub median_error: f64,
    pub mean_error: f64,
    /// The share of the rows that were predicted within 25 %.
    pub within_quarter: f64,
    /// The factor by which the worst one is off.
    pub worst_factor: f64,
    /// The share of the rows within the 80 % interval that the misses of the other families, or machines, give. As in
    /// predictions, it is wider for third-party networks.
    pub coverage: f64,
}

/// How much slower the recommended cases are than the best ones, if half of the measured cases have to be predicted.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Loss {
    /// How many decisions there were: each chooses the fastest runtime of a work, for several random halves.
    pub decisions: usize,
    /// Hidden rows whose prediction was refused. They are neither chosen nor counted as the fastest.
    pub refused: usize,
    /// Predictions that were chosen over a measured row, but were slower than it.
    pub contradictions: usize,
    /// The share of the decisions that chose the fastest.
    pub right: f64,
    /// The latency of the chosen over that of the fastest, less 1.
    pub mean_loss: f64,
    pub largest_loss: f64,
}

/// All errors of a history.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Evaluation {
    pub errors: Vec<Errors>,
    pub recommendations: Option<Loss>,
}

/// Groups with fewer rows are not evaluated.
const LEAST_ROWS: usize = 6;
/// How many random halves are drawn.
const HALVES: u64 = 5;

/// Leaves out families, batch sizes and machines in turn, and hides half of the rows from recommendations.
pub fn evaluate(lessons: &Lessons) -> Evaluation {
    let is_like = |one: &Example, other: &Example| one.subject.runtime.is_like(&other.subject.runtime);
    let mut groups: Vec<Vec<&Example>> = Vec::new();
    for example in &lessons.examples {
        let own = groups.iter_mut().find(|rows| is_like(rows[0], example) && rows[0].site == example.site);
        match own {
            Some(rows) => rows.push(example),
            None => groups.push(vec![example]),
        }
    }
    let mut all = Vec::new();
    for rows in groups.iter().filter(|rows| rows.len() >= LEAST_ROWS) {
        let first = rows[0];
        for left_out in [LeftOut::Family, LeftOut::Batch] {
            let [misses, of_sizes] = [left_out, LeftOut::Sizes].map(|it| by_phase(rows, lessons, it));
            all.extend(errors(&first.subject.runtime, Some(&first.site), left_out, &misses, &of_sizes));
        }
    }
    for (number, group) in groups.iter().enumerate() {
        let first = group[0];
        let is_first = !groups[..number].iter().any(|other| is_like(other[0], first));
        // For a machine without measurements, only the CPU can be predicted.
        let is_meant = |it: &&Example| {
            is_like(it, first) && lessons.peaks.contains_key(&it.site) && it.subject.runtime.device == "cpu"
        };
        let rows: Vec<&Example> = lessons.examples.iter().filter(is_meant).collect();
        if is_first && rows.iter().any(|row| row.site != rows[0].site) {
            let [misses, of_sizes] = [LeftOut::Machine, LeftOut::Sizes].map(|it| by_phase(&rows, lessons, it));
            all.extend(errors(&first.subject.runtime, None, LeftOut::Machine, &misses, &of_sizes));
        }
    }
    Evaluation { errors: all, recommendations: loss(lessons) }
}

type ByPhase = BTreeMap<Phase, Vec<Miss>>;

/// The misses that give the intervals of each phase. They are those of the rows that a prediction of the phase learns
/// from: its own rows, or those of all phases if it has too few.
fn by_phase(rows: &[&Example], lessons: &Lessons, left_out: LeftOut) -> ByPhase {
    let phases: BTreeSet<Phase> = rows.iter().map(|row| row.subject.runtime.phase).collect();
    let misses = |phase: Phase| left_out.misses(&rows_of_phase(rows, phase), Quantity::Time, &lessons.peaks);
    phases.into_iter().map(|phase| (phase, misses(phase))).collect()
}

fn errors(
    runtime: &Runtime,
    site: Option<&Site>,
    left_out: LeftOut,
    misses: &ByPhase,
    of_sizes: &ByPhase,
) -> Option<Errors> {
    let own: Vec<&Miss> =
        misses.iter().flat_map(|(phase, misses)| misses.iter().filter(move |miss| miss.phase == *phase)).collect();
    let found: Vec<f64> = own.iter().map(|miss| miss.error()).collect();
    let count = own.len() as f64;
    let families: BTreeSet<&str> = own.iter().map(|miss| miss.family.as_str()).collect();
    let is_held = |miss: &&&Miss| {
        // No row of a machine that is left out may count. The units of the misses of sizes are families, not machines.
        let is_other = |other: &&Miss| match left_out {
            LeftOut::Machine => other.host_id != miss.host_id,
            _ => other.unit != miss.unit,
        };
        let others = |misses: &ByPhase| {
            let of_phase = misses.get(&miss.phase).into_iter().flatten();
            of_phase.filter(is_other).cloned().collect::<Vec<Miss>>()
        };
        let is_of_others = left_out != LeftOut::Batch && !miss.is_packaged;
        let (misses, power) = if is_of_others { for_others(others(misses)) } else { (others(misses), 1.0) };
        let widths = Widths::of(&misses, &others(of_sizes));
        widths.is_some_and(|widths| miss.logarithm.abs() <= power * widths.half(miss.beyond))
    };
    Some(Errors {
        backend: runtime.backend.clone(),
        device: runtime.device.clone(),
        dtype: runtime.dtype.to_string(),
        host_id: site.map(|site| site.host_id.clone()),
        threads: site.and_then(|site| site.threads),
        left_out: left_out.into(),
        rows: own.len(),
        families: families.len(),
        median_error: median(&found)?,
        mean_error: mean(&found),
        within_quarter: found.iter().filter(|error| **error <= 0.25).count() as f64 / count,
        worst_factor: own.iter().map(|miss| miss.logarithm.abs()).fold(0.0, f64::max).exp(),
        coverage: own.iter().filter(is_held).count() as f64 / count,
    })
}

/// Hides half of the rows, and chooses the fastest runtime of each work by the other half. A prediction is chosen over
/// the measured rows if its whole interval is below all of them.
fn loss(lessons: &Lessons) -> Option<Loss> {
    let (mut losses, mut refused, mut contradictions) = (Vec::new(), 0, 0);
    for half in 0..HALVES {
        let mut state = 1 + half;
        let (hidden, seen): (Vec<Example>, Vec<Example>) =
            lessons.examples.iter().cloned().partition(|it| !it.subject.is_of_operators() && uniform(&mut state) < 0.5);
        let known = Lessons { examples: seen, peaks: lessons.peaks.clone(), ..Lessons::default() };
        let predictor = Predictor::new(&known);
        // The rows of each work that are seen, and those that are hidden.
        let mut works: BTreeMap<(usize, &Site), [Vec<&Example>; 2]> = BTreeMap::new();
        let mut numbers = Works::default();
        for (half, rows) in [&known.examples, &hidden].into_iter().enumerate() {
            for row in rows.iter().filter(|row| !row.subject.is_of_operators()) {
                let number = numbers.number(row.subject.work.clone().on_any_runtime());
                works.entry((number, &row.site)).or_default()[half].push(row);
            }
        }
        let is_choice = |[seen, hidden]: &&[Vec<&Example>; 2]| seen.len() + hidden.len() > 1 && !hidden.is_empty();
        for [seen, hidden] in works.values().filter(is_choice) {
            let least = |rows: &[&Example]| rows.iter().map(|row| row.ms).fold(f64::INFINITY, f64::min);
            let measured = least(seen);
            let predicted = |row: &&Example| {
                let found = predictor.predict(&row.subject, &row.site).ok()?;
                Some((found.latency_ms, row.ms))
            };
            let answered: Vec<(Estimate, f64)> = hidden.iter().filter_map(predicted).collect();
            refused += hidden.len() - answered.len();
            let better = answered.iter().filter(|(estimate, _)| estimate.upper < measured);
            let best = better.min_by(|one, other| one.0.value.total_cmp(&other.0.value));
            let chosen = best.map_or(measured, |(_, ms)| *ms);
            contradictions += usize::from(chosen > measured);
            let fastest = answered.iter().map(|(_, ms)| *ms).fold(measured, f64::min);
            if chosen.is_finite() && seen.len() + answered.len() > 1 {
                losses.push(chosen / fastest - 1.0);
            }
        }
    }
    (!losses.is_empty()).then(|| Loss {
        decisions: losses.len(),
        refused,
        contradictions,
        right: losses.iter().filter(|loss| **loss == 0.0).count() as f64 / losses.len() as f64,
        mean_loss: mean(&losses),
        largest_loss: losses.iter().copied().fold(0.0, f64::max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Dtype;

    fn miss(unit: &str, host_id: &str, logarithm: f64, beyond: f64) -> Miss {
        Miss {
            family: unit.into(),
            unit: unit.into(),
            host_id: host_id.into(),
            phase: Phase::Forward,
            is_packaged: true,
            logarithm,
            beyond,
        }
    }

    fn errors_of(left_out: LeftOut, misses: &ByPhase, of_sizes: &ByPhase) -> Errors {
        let runtime =
            Runtime { backend: "tract".into(), device: "cpu".into(), dtype: Dtype::F32, phase: Phase::Forward };
        errors(&runtime, None, left_out, misses, of_sizes).unwrap()
    }

    #[test]
    fn the_interval_of_a_phase_with_one_family_is_made_of_the_misses_of_all_phases() {
        let forward = ["a", "b", "c", "d", "e"].map(|family| miss(family, "h", 0.1, 0.0));
        let of_all = [&forward[..], &[Miss { phase: Phase::Prefill, ..miss("f", "h", 0.05, 0.0) }]].concat();
        let misses = ByPhase::from([(Phase::Forward, forward.to_vec()), (Phase::Prefill, of_all)]);
        let found = errors_of(LeftOut::Family, &misses, &ByPhase::new());
        assert_eq!((found.rows, found.families, found.coverage), (6, 6, 1.0));
    }

    #[test]
    fn the_interval_of_a_machine_grows_with_sizes_as_other_machines_show() {
        let of = |misses: Vec<Miss>| ByPhase::from([(Phase::Forward, misses)]);
        let hosts = ["a", "b", "c", "d"].map(|host| miss(host, host, 0.0, 0.0));
        let misses = of([&hosts[..], &[miss("e", "e", 0.5, 1.0)]].concat());
        let families = ["v", "w", "x", "y"].map(|family| miss(family, "a", 0.1, 1.0));
        let of_sizes = of([&families[..], &[miss("z", "e", 9.0, 1.0)]].concat());
        let coverage = |of_sizes: &ByPhase| errors_of(LeftOut::Machine, &misses, of_sizes).coverage;
        assert_eq!([coverage(&ByPhase::new()), coverage(&of_sizes)], [1.0, 0.8]);
    }

    #[test]
    fn the_interval_of_a_third_party_network_is_as_wide_as_in_predictions() {
        let mut rows = ["a", "b", "c", "d", "e"].map(|family| miss(family, "h", 0.1, 0.0)).to_vec();
        rows.push(Miss { is_packaged: false, ..miss("f", "h", 0.2, 0.0) });
        let misses = ByPhase::from([(Phase::Forward, rows)]);
        let coverage = |left_out: LeftOut| errors_of(left_out, &misses, &ByPhase::new()).coverage;
        assert_eq!([LeftOut::Family, LeftOut::Batch].map(coverage), [1.0, 5.0 / 6.0]);
    }

    #[test]
    fn the_figures_of_errors_are_those_of_rows_that_were_not_seen() {
        let mut rows = ["a", "b", "c", "d", "e"].map(|family| miss(family, "h", 0.1, 0.0)).to_vec();
        rows.push(miss("f", "h", 0.5, 0.0));
        let found = errors_of(LeftOut::Family, &ByPhase::from([(Phase::Forward, rows)]), &ByPhase::new());
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
        near(found.coverage, 5.0 / 6.0);
        near(found.within_quarter, 5.0 / 6.0);
        near(found.worst_factor, 0.5_f64.exp());
        near(found.median_error, 1.0 - (-0.1_f64).exp());
        near(found.mean_error, (5.0 * (1.0 - (-0.1_f64).exp()) + 1.0 - (-0.5_f64).exp()) / 6.0);
    }

    #[test]
    fn intervals_grow_as_larger_rows_show_and_no_row_counts_twice() {
        let misses = [("a", 0.1, 0.0), ("b", 0.1, 0.0), ("c", 0.1, 0.0), ("d", 0.9, 2.0)];
        let misses = misses.map(|(unit, logarithm, beyond)| miss(unit, "h", logarithm, beyond));
        let of_sizes = ["a", "b", "c", "d"].map(|unit| miss(unit, "h", 1.7, 2.0));
        let widths = Widths::of(&misses, &of_sizes).unwrap();
        assert!((widths.half(0.0) - 0.1).abs() < 1e-9 && (widths.half(2.0) - 0.9).abs() < 1e-9, "{widths:?}");
    }
}
