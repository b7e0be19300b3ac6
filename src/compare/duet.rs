//! The statistics of a paired (duet) benchmark: how large a change is, and how sure that is.
//!
//! The arms (base, base again as the null control, one or more candidates) stay alive beside each other and take short
//! slices of calls in random order. A *slice* row holds one median for each arm, so that the machine's drift, which is
//! slower than a row, cancels in the ratio (Bulej et al. 2020, "Duet benchmarking: improving measurement accuracy in the
//! cloud"). What is decided when a process starts (where its memory lies, where its threads run) does not cancel: it lasts
//! for a *generation* of processes. So the generation is the unit of replication (Kalibera & Jones 2013, "Rigorous
//! benchmarking in reasonable time"): each one gives the median of its rows' log ratios. Other work strikes some generations
//! as a whole, which makes long tails; so the estimate is that of Hodges and Lehmann, with Wilcoxon's interval.
//!
//! The null control shows what the machine does to a program that has not changed. The bound of its interval that is farther
//! from 1 is the floor below which no change is believed. If the interval excludes a ratio of 1 and the floor is larger
//! than the tolerance, there is no verdict.

use serde::{Deserialize, Serialize};

use super::duet_plan::MOST_GENERATIONS;
use super::verdict::{Limits, RatioEstimate, RatioInterval, Verdict, verdicts};
use crate::statistics::{SignedRank, geometric_mean, mean, median};

/// The expected fraction of false discoveries among the changes that are shown, over all cases.
pub const FALSE_DISCOVERIES: f64 = 0.01;
const CONFIDENCE: f64 = 1.0 - FALSE_DISCOVERIES;
/// Times are not known better than this, whatever the figures say: 0.001 %, which is a clock's step of 10 ns in a millisecond.
const LEAST_LOG_ERROR: f64 = 1e-5;

/// What an arm runs in a duel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Base,
    /// The base once more: the null control.
    Null,
    /// One of the candidates, counted from 0.
    Candidate(usize),
}

impl Role {
    /// The arms of a duel with so many candidates, in the order of a row's figures.
    pub fn all(candidates: usize) -> impl Iterator<Item = Role> {
        [Role::Base, Role::Null].into_iter().chain((0..candidates).map(Role::Candidate))
    }

    /// The place of the arm's figure in a row.
    pub fn place(self) -> usize {
        match self {
            Role::Base => 0,
            Role::Null => 1,
            Role::Candidate(number) => 2 + number,
        }
    }
}

/// The slices of one generation: rows of the logarithms of the arms' median nanoseconds, in the order of [`Role::all`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    pub rows: Vec<Vec<f64>>,
}

impl Generation {
    /// For each row, the logarithm of an arm's time over the base's. The base's time is not averaged with the null
    /// control's: disturbances of single slices strike a mean of two arms more often than one arm, so equal programs
    /// would differ.
    pub(super) fn log_ratios(&self, role: Role) -> Vec<f64> {
        self.rows.iter().map(|row| row[role.place()] - row[Role::Base.place()]).collect()
    }
}

/// An estimate of an arm's time over the base's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DuetEstimate {
    pub estimate: RatioEstimate,
    /// The mean over all slices, in which a slow-down of some slices or processes shows.
    pub mean_ratio: f64,
}

/// Estimates the time of an arm over the base's from each generation's median log ratio. `error_rate` is the part that
/// may be spent now of the 1 % for all looks together, so that interval and p-value hold at 99 % over all looks.
/// Returns `None` for too few generations.
pub fn estimate_duet(generations: &[Generation], role: Role, error_rate: f64) -> Option<DuetEstimate> {
    let ratios: Vec<Vec<f64>> = generations.iter().map(|generation| generation.log_ratios(role)).collect();
    let medians: Vec<f64> = ratios.iter().filter_map(|ratios| median(ratios)).collect();
    let means: Vec<f64> = ratios.iter().filter(|ratios| !ratios.is_empty()).map(|ratios| mean(ratios)).collect();
    let found = SignedRank::of(&medians, error_rate)?;
    let logarithms = [found.estimate, found.lower - LEAST_LOG_ERROR, found.upper + LEAST_LOG_ERROR];
    let interval = RatioInterval::of_logarithms(logarithms, CONFIDENCE);
    let p_value = (found.p_value * FALSE_DISCOVERIES / error_rate).min(1.0);
    Some(DuetEstimate { estimate: RatioEstimate { interval, p_value }, mean_ratio: geometric_mean(&means) })
}

/// A change with its interval: `+0.3 % [-0.8, +1.2]`.
pub fn in_percent(change: &RatioInterval) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    format!("{:+.1} % [{:+.1}, {:+.1}]", percent(change.ratio), percent(change.lower), percent(change.upper))
}

/// One comparison of a duel: one of the candidates in one case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired<'a> {
    pub generations: &'a [Generation],
    /// The place of the candidate among those that were measured.
    pub candidate: usize,
    /// Whether it is the same executable as the base, or has the same machine code, so that their layouts do not differ.
    pub is_same_build: bool,
    /// The part of the error rate that may be spent now; see [`Look`](super::duet_plan::Look).
    pub error_rate: f64,
}

/// The result of a duel for one candidate in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairedChange {
    pub verdict: Verdict,
    /// The candidate's time over the base's.
    pub change: RatioEstimate,
    /// The null control's time over the base's.
    pub null: RatioEstimate,
    /// The null control shows a change that could be larger than the tolerance, so there is no verdict about the
    /// candidate.
    pub is_null_changed: bool,
    /// The change is sure and above the floor, and within the tolerance.
    pub is_small_change: bool,
    /// The change is sure, and there is no verdict because builds of equal code may differ by as much.
    pub is_within_layout: bool,
    /// Changes up to this fraction are not believed.
    pub floor: f64,
    /// Changes up to this fraction may come from the layout of the machine code alone. Absent in older duels.
    #[serde(default)]
    pub layout: f64,
    /// The candidate's mean over all slices, over the base's.
    pub mean_ratio: f64,
    /// The medians exclude a slow-down that would matter, but the mean over all slices shows one: some slices or
    /// processes are slower.
    pub is_mean_apart: bool,
    pub generations: usize,
    pub slices: usize,
    /// Geometric means of the slices' medians.
    pub base_ns: f64,
    pub candidate_ns: f64,
}

impl PairedChange {
    /// Whether more generations would not change the verdict in a duel of so many comparisons. A change has to pass the
    /// strictest step of the false-discovery rate, so that no other comparison can take it back.
    pub fn is_settled(&self, comparisons: usize) -> bool {
        match self.verdict {
            Verdict::CannotSay => false,
            Verdict::Same | Verdict::NotSlower => true,
            Verdict::Faster | Verdict::Slower => self.change.p_value <= FALSE_DISCOVERIES / comparisons as f64,
        }
    }

    /// About how many generations would lead to a verdict if they scattered like the measured ones. Returns `None` if
    /// there is a verdict, if more generations would not lead to one, or if no duel has so many.
    pub fn generations_needed(&self, tolerance: f64) -> Option<f64> {
        /// The change is known only as well as its interval.
        const SAFETY: f64 = 1.5;
        if self.verdict != Verdict::CannotSay || self.is_null_changed || self.is_mean_apart {
            return None;
        }
        let RatioInterval { ratio, lower, upper, .. } = self.change.interval;
        let (change, half_width, tolerance) = (ratio.ln(), (upper / lower).ln() / 2.0, tolerance.ln_1p());
        // To show a change beyond the tolerance, the interval has to exclude what the layout may do. To exclude a
        // slow-down, it has to exclude the tolerance.
        let slower = change - self.layout.ln_1p();
        let wanted = if change > tolerance { slower } else { (tolerance - change).max(tolerance / 4.0) };
        if wanted <= 0.0 {
            return None;
        }
        let likely = self.generations as f64 * (half_width / wanted).powi(2).max(1.0);
        // A duel of any number of minutes has no more generations than these.
        let most = MOST_GENERATIONS as f64;
        (likely < most).then(|| (SAFETY * likely).min(most))
    }
}

/// Decides all comparisons of a duel at once, with the false-discovery rate controlled over them. Changes up to the
/// fraction `tolerance` do not matter. A comparison with too few generations is `None`.
pub fn decide_duet(compared: &[Paired<'_>], tolerance: f64) -> Vec<Option<PairedChange>> {
    let estimate = |it: &Paired, role| estimate_duet(it.generations, role, it.error_rate);
    let estimates: Vec<Option<[DuetEstimate; 2]>> = compared
        .iter()
        .map(|it| Some([estimate(it, Role::Null)?, estimate(it, Role::Candidate(it.candidate))?]))
        .collect();
    let known = || compared.iter().zip(&estimates).filter_map(|(it, estimates)| Some((it, (*estimates)?)));
    let limits =
        |it: &Paired, null: &DuetEstimate| Limits::of_null(&null.estimate.interval, it.is_same_build, tolerance);
    let changes: Vec<(RatioEstimate, Limits)> =
        known().map(|(it, [null, candidate])| (candidate.estimate, limits(it, &null))).collect();
    let mut findings = verdicts(&changes, FALSE_DISCOVERIES).into_iter();
    let mut decide = |(it, estimates): (&Paired, &Option<[DuetEstimate; 2]>)| {
        let [null, candidate] = (*estimates)?;
        let (finding, floor) = (findings.next()?, limits(it, &null).floor);
        // A null control decides about its own case only, however many cases there are.
        let is_null_changed = null.estimate.interval.excludes_one() && floor > tolerance;
        // The machine moves the null control's mean, too.
        let noise = null.mean_ratio.ln().abs();
        let (of_mean, most_of_mean) = (candidate.mean_ratio.ln(), tolerance.ln_1p() + noise);
        let is_mean_apart = finding.verdict.excludes_regression() && of_mean > most_of_mean;
        let verdict = match finding.verdict {
            _ if is_null_changed || is_mean_apart => Verdict::CannotSay,
            // Some slices or processes are faster, which is neither the same nor a slow-down.
            Verdict::Same if of_mean < -most_of_mean => Verdict::NotSlower,
            verdict => verdict,
        };
        let logarithms = |role: Role| -> Vec<f64> {
            it.generations.iter().flat_map(|generation| &generation.rows).map(|row| row[role.place()]).collect()
        };
        let (base, of_candidate) = (logarithms(Role::Base), logarithms(Role::Candidate(it.candidate)));
        Some(PairedChange {
            verdict,
            change: candidate.estimate,
            null: null.estimate,
            is_null_changed,
            is_small_change: finding.is_small_change,
            is_within_layout: finding.is_within_layout,
            floor,
            layout: Limits::layout(it.is_same_build),
            mean_ratio: candidate.mean_ratio,
            is_mean_apart,
            generations: it.generations.len(),
            slices: base.len(),
            base_ns: geometric_mean(&base),
            candidate_ns: geometric_mean(&of_candidate),
        })
    };
    compared.iter().zip(&estimates).map(&mut decide).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::fewest_generations;

    const TOLERANCE: f64 = 0.015;
    const CANDIDATE: Role = Role::Candidate(0);

    fn flat(ratios: &[f64]) -> Vec<Generation> {
        ratios.iter().map(|ratio| Generation { rows: vec![vec![0.0, 0.0, *ratio]; 3] }).collect()
    }

    fn estimate(generations: &[Generation]) -> Option<DuetEstimate> {
        estimate_duet(generations, CANDIDATE, FALSE_DISCOVERIES)
    }

    fn decide(generations: &[Generation], tolerance: f64, is_same_build: bool) -> Option<PairedChange> {
        let paired = Paired { generations, candidate: 0, is_same_build, error_rate: FALSE_DISCOVERIES };
        decide_duet(&[paired], tolerance).remove(0)
    }

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-4 * expected.abs(), "{found} is not {expected}");
    }

    #[test]
    fn the_interval_is_that_of_the_signed_ranks_of_generations() {
        let ratios: Vec<f64> = (1..=12).map(|number| 0.01 * f64::from(number)).collect();
        let found = estimate(&flat(&ratios)).unwrap();
        assert_near(found.estimate.interval.ratio.ln(), 0.065);
        assert_near(found.estimate.p_value, 2.0 / 4096.0);
        // A tenth of the error rate: the same ranks are worth less, and the interval is wider.
        let early = estimate_duet(&flat(&ratios), CANDIDATE, 0.1 * FALSE_DISCOVERIES).unwrap();
        assert_near(early.estimate.p_value, 20.0 / 4096.0);
        assert!(early.estimate.interval.upper > found.estimate.interval.upper);
        assert_eq!(estimate(&flat(&[0.01; 7])), None);
        assert_eq!(decide(&flat(&[0.01; 7]), TOLERANCE, true), None);
    }

    #[test]
    fn one_slow_case_among_many_is_found_with_the_fewest_generations_for_so_many() {
        let verdict = |count: usize| {
            let (slow, equal) = (flat(&vec![0.7; count]), flat(&vec![0.0; count]));
            let of =
                |generations| Paired { generations, candidate: 0, is_same_build: true, error_rate: FALSE_DISCOVERIES };
            let mut cases = vec![of(&equal[..]); 24];
            cases[3] = of(&slow[..]);
            decide_duet(&cases, TOLERANCE)[3].as_ref().unwrap().verdict
        };
        assert_eq!([verdict(12), verdict(fewest_generations(24))], [Verdict::CannotSay, Verdict::Slower]);
    }

    #[test]
    fn a_generation_that_was_struck_as_a_whole_does_not_hide_a_change() {
        let mut ratios = vec![0.03; 24];
        (ratios[3], ratios[15]) = (-0.4, -0.4);
        assert_eq!(decide(&flat(&ratios), TOLERANCE, true).unwrap().verdict, Verdict::Slower);
    }

    #[test]
    fn a_change_is_shown_in_per_cent_with_its_sign() {
        let change = RatioInterval { ratio: 1.003, lower: 0.992, upper: 1.012, confidence: 0.99 };
        assert_eq!(in_percent(&change), "+0.3 % [-0.8, +1.2]");
    }

    #[test]
    fn a_row_that_was_struck_alone_moves_the_mean_and_not_the_median() {
        let mut generations = flat(&[0.0; 12]);
        generations.iter_mut().for_each(|generation| generation.rows[0][2] = 0.3);
        let found = estimate(&generations).unwrap();
        assert_eq!(found.estimate.interval.ratio, 1.0);
        assert_near(found.mean_ratio.ln(), 0.1);
        let decided = decide(&generations, TOLERANCE, true).unwrap();
        assert_eq!((decided.verdict, decided.is_mean_apart), (Verdict::CannotSay, true));
        // Slices that are faster are no slow-down.
        generations.iter_mut().for_each(|generation| generation.rows[0][2] = -0.3);
        let decided = decide(&generations, TOLERANCE, true).unwrap();
        assert_eq!((decided.verdict, decided.is_mean_apart), (Verdict::NotSlower, false));
    }

    #[test]
    fn equal_figures_are_the_same_and_layout_is_no_slow_down() {
        let decided = decide(&flat(&[0.0; 12]), TOLERANCE, true).unwrap();
        assert_eq!((decided.verdict, decided.generations, decided.slices), (Verdict::Same, 12, 36));
        let slower = |is_same_build| decide(&flat(&[0.009; 12]), 0.005, is_same_build).unwrap().verdict;
        assert_eq!([slower(true), slower(false)], [Verdict::Slower, Verdict::CannotSay]);
    }

    #[test]
    fn a_candidate_that_may_be_faster_is_not_slower_unless_its_mean_is() {
        let ratios: Vec<f64> = (0..12).map(|number| -0.03 + 0.003 * f64::from(number)).collect();
        let decided = decide(&flat(&ratios), TOLERANCE, true).unwrap();
        assert_eq!((decided.verdict, decided.is_settled(1000)), (Verdict::NotSlower, true));
        let mut generations = flat(&ratios);
        generations.iter_mut().for_each(|generation| generation.rows[0][2] = 0.3);
        let decided = decide(&generations, TOLERANCE, true).unwrap();
        assert_eq!((decided.verdict, decided.is_mean_apart), (Verdict::CannotSay, true));
    }

    #[test]
    fn faster_medians_do_not_hide_slices_that_are_much_slower() {
        let mut generations = flat(&[-0.05; 12]);
        assert_eq!(decide(&generations, TOLERANCE, true).unwrap().verdict, Verdict::Faster);
        generations.iter_mut().for_each(|generation| generation.rows[0][2] = 0.5);
        let decided = decide(&generations, TOLERANCE, true).unwrap();
        assert!(decided.change.interval.upper < 1.0 && decided.mean_ratio > 1.1, "{decided:?}");
        assert_eq!((decided.verdict, decided.is_mean_apart), (Verdict::CannotSay, true));
    }

    #[test]
    fn a_case_without_a_verdict_says_how_many_generations_it_takes() {
        let scattered = |middle: f64| -> Vec<f64> { (-6..6).map(|n| middle + 0.012 * (f64::from(n) + 0.5)).collect() };
        let needed =
            |middle: f64| decide(&flat(&scattered(middle)), TOLERANCE, true).unwrap().generations_needed(TOLERANCE);
        let equal = needed(0.0).unwrap();
        assert!((60.0..250.0).contains(&equal), "{equal}");
        assert!(needed(0.005).unwrap() > equal, "nearer to the tolerance");
        assert_eq!(needed(0.01), None, "more than a duel ever has");
        assert!(needed(0.03).unwrap() < equal, "a large change is easier to show");
        assert_eq!(decide(&flat(&[0.0; 12]), TOLERANCE, true).unwrap().generations_needed(TOLERANCE), None);
        let longest = decide(&flat(&scattered(0.0)), TOLERANCE, true).unwrap();
        let longest = PairedChange { generations: MOST_GENERATIONS, ..longest };
        assert_eq!(longest.generations_needed(TOLERANCE), None);
        let of_builds = decide(&flat(&scattered(0.03)), TOLERANCE, false).unwrap();
        let (own, same) = (of_builds.generations_needed(TOLERANCE).unwrap(), needed(0.03).unwrap());
        assert!(own > 1.5 * same, "{own} is to exclude the layout, and {same} none");
        let layout = decide(&flat(&[0.009; 12]), 0.005, false).unwrap();
        assert_eq!((layout.is_within_layout, layout.generations_needed(0.005)), (true, None));
    }

    #[test]
    fn a_null_control_that_moves_is_seen_among_many_cases() {
        let still = flat(&[0.0; 12]);
        let mut moved = still.clone();
        moved.iter_mut().flat_map(|generation| &mut generation.rows).for_each(|row| row[1] = 0.05);
        let paired =
            |generations| Paired { generations, candidate: 0, is_same_build: true, error_rate: FALSE_DISCOVERIES };
        let mut cases = vec![paired(&still[..]); 30];
        cases[7] = paired(&moved[..]);
        let decided: Vec<PairedChange> = decide_duet(&cases, TOLERANCE).into_iter().flatten().collect();
        assert_eq!((decided[7].verdict, decided[7].is_null_changed), (Verdict::CannotSay, true));
        assert!((0..30).filter(|case| *case != 7).all(|case| decided[case].verdict == Verdict::Same));
    }

    #[test]
    fn a_null_control_that_moves_leaves_nothing_to_say() {
        let mut generations = flat(&[0.2; 12]);
        generations.iter_mut().flat_map(|generation| &mut generation.rows).for_each(|row| row[1] = 0.03);
        let decided = decide(&generations, TOLERANCE, true).unwrap();
        assert_eq!((decided.verdict, decided.is_null_changed), (Verdict::CannotSay, true));
        // A change of the null control that is sure and too small to matter is only a floor.
        generations.iter_mut().flat_map(|generation| &mut generation.rows).for_each(|row| row[1] = 0.003);
        let decided = decide(&generations, TOLERANCE, true).unwrap();
        assert_eq!((decided.verdict, decided.is_null_changed), (Verdict::Slower, false));
    }

    #[test]
    fn a_null_control_that_is_faster_leaves_nothing_to_say_either() {
        let mut generations = flat(&[0.2; 12]);
        generations.iter_mut().flat_map(|generation| &mut generation.rows).for_each(|row| row[1] = -0.05);
        let decided = decide(&generations, TOLERANCE, true).unwrap();
        assert_eq!((decided.verdict, decided.is_null_changed), (Verdict::CannotSay, true));
    }

    #[test]
    fn a_change_is_settled_at_the_strictest_step_and_only_scatter_needs_more_generations() {
        let slower = decide(&flat(&[0.05; 12]), TOLERANCE, true).unwrap();
        let change = PairedChange { change: RatioEstimate { p_value: 0.004, ..slower.change }, ..slower };
        assert_eq!([1, 2, 3].map(|comparisons| change.is_settled(comparisons)), [true, true, false]);
        let scattered: Vec<f64> = (-6..6).map(|n| 0.012 * (f64::from(n) + 0.5)).collect();
        let open = decide(&flat(&scattered), TOLERANCE, true).unwrap();
        assert!(open.generations_needed(TOLERANCE).is_some());
        let null = PairedChange { is_null_changed: true, ..open.clone() };
        let mean = PairedChange { is_mean_apart: true, ..open };
        assert_eq!([null, mean].map(|it| it.generations_needed(TOLERANCE)), [None, None]);
    }
}
