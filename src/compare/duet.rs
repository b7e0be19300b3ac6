//! The statistics of a paired (duet) benchmark: how large a change is, how sure that is, and how many slices it takes.
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
//! from 1 is the floor below which no change is believed. Where the interval excludes a ratio of 1 and the floor is larger
//! than the tolerance, nothing is said.
//!
//! A duel is looked at only as often as was planned. Each [`Look`] spends a part of the error rate, so that a duel that
//! stops at the first look that settles it is wrong no more often than one that goes on to the end (Jennison & Turnbull
//! 2000, "Group Sequential Methods", chapter 7; the parts are added up, which holds for any dependence between looks).

use super::verdict::{Limits, RatioEstimate, RatioInterval, Verdict, verdicts};
use crate::statistics::{SignedRank, discoveries, geometric_mean, mean, median, variance};
use serde::{Deserialize, Serialize};

/// Expected fraction of false ones among the changes that are shown, over all cases.
pub const FALSE_DISCOVERIES: f64 = 0.01;
const CONFIDENCE: f64 = 1.0 - FALSE_DISCOVERIES;
/// Times are not known better than this, whatever the figures say: 0.001 %, which is a clock's step of 10 ns in a millisecond.
const LEAST_LOG_ERROR: f64 = 1e-5;
/// The variance of a median over that of a mean, for normal figures.
const MEDIAN_PENALTY: f64 = std::f64::consts::FRAC_PI_2;
/// Fewer generations could miss a slow-down that strikes some processes only: one in three is missed by 12 in 1 of 130.
pub const FEWEST_GENERATIONS: usize = 12;
const MOST_GENERATIONS: usize = 400;
const FEWEST_SLICES: usize = 3;
const MOST_SLICES: usize = 40;
const EARLY_LOOKS: usize = 3;
/// The part of the error rate that each early look spends.
const EARLY_SHARE: f64 = 0.1;

/// What an arm is there for.
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
    fn log_ratios(&self, role: Role) -> Vec<f64> {
        self.rows.iter().map(|row| row[role.place()] - row[Role::Base.place()]).collect()
    }
}

/// What the generations say of an arm's time over the base's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DuetEstimate {
    pub estimate: RatioEstimate,
    /// The mean over all slices, in which a slow-down of some slices or processes shows.
    pub mean_ratio: f64,
}

/// Estimates the time of an arm over the base's from each generation's median log ratio. `error_rate` is what may be spent now
/// of the 1 % that all looks together may spend: interval and p-value are such that they hold at 99 % over all looks. Returns
/// `None` for too few generations.
pub fn estimate_duet(generations: &[Generation], role: Role, error_rate: f64) -> Option<DuetEstimate> {
    let ratios: Vec<Vec<f64>> = generations.iter().map(|generation| generation.log_ratios(role)).collect();
    let medians: Vec<f64> = ratios.iter().filter_map(|ratios| median(ratios)).collect();
    let means: Vec<f64> = ratios.iter().filter(|ratios| !ratios.is_empty()).map(|ratios| mean(ratios)).collect();
    let found = SignedRank::of(&medians, error_rate)?;
    let interval = RatioInterval {
        ratio: found.estimate.exp(),
        lower: (found.lower - LEAST_LOG_ERROR).exp(),
        upper: (found.upper + LEAST_LOG_ERROR).exp(),
        confidence: CONFIDENCE,
    };
    let p_value = (found.p_value * FALSE_DISCOVERIES / error_rate).min(1.0);
    Some(DuetEstimate { estimate: RatioEstimate { interval, p_value }, mean_ratio: geometric_mean(&means) })
}

/// A change with its interval: `+0.3 % [-0.8, +1.2]`.
pub fn in_percent(change: &RatioInterval) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    format!("{:+.1} % [{:+.1}, {:+.1}]", percent(change.ratio), percent(change.lower), percent(change.upper))
}

/// What is asked of a duel: how one of the candidates does in one case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired<'a> {
    pub generations: &'a [Generation],
    /// The place of the candidate among those that were measured.
    pub candidate: usize,
    /// Whether it is the same executable as the base, so that their layouts do not differ.
    pub is_same_build: bool,
    /// What may be spent now of the error rate; see [`Look`].
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
    /// The null control shows a change that could be larger than the tolerance: nothing can be said of the candidate.
    pub is_null_changed: bool,
    /// The change is sure and above the floor, and within the tolerance.
    pub is_small_change: bool,
    /// Changes up to this fraction are not believed.
    pub floor: f64,
    /// The candidate's mean over all slices, over the base's.
    pub mean_ratio: f64,
    /// The medians show no change that would matter and the mean over all slices does: some slices or processes are slower.
    pub is_mean_apart: bool,
    pub generations: usize,
    pub slices: usize,
    /// Geometric means of the slices' medians.
    pub base_ns: f64,
    pub candidate_ns: f64,
}

impl PairedChange {
    /// Whether more generations would change nothing, if the duel makes so many comparisons: a verdict that has passed the
    /// strictest step of the false-discovery rate, so that no other comparison can take it back.
    pub fn is_settled(&self, comparisons: usize) -> bool {
        match self.verdict {
            Verdict::CannotSay => false,
            Verdict::Same => true,
            Verdict::Faster | Verdict::Slower => self.change.p_value <= FALSE_DISCOVERIES / comparisons as f64,
        }
    }
}

/// Decides all comparisons of a duel at once, with the false-discovery rate controlled over them. Changes up to the fraction
/// `tolerance` do not matter. With too few generations nothing is compared yet.
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
    let null_p_values: Vec<f64> = known().map(|(_, [null, _])| null.estimate.p_value).collect();
    let mut findings = verdicts(&changes, FALSE_DISCOVERIES).into_iter();
    let mut nulls_changed = discoveries(&null_p_values, FALSE_DISCOVERIES).into_iter();
    let mut decide = |(it, estimates): (&Paired, &Option<[DuetEstimate; 2]>)| {
        let [null, candidate] = (*estimates)?;
        let (finding, floor) = (findings.next()?, limits(it, &null).floor);
        let is_null_changed = nulls_changed.next()? && floor > tolerance;
        // The machine moves the null control's mean, too.
        let noise = null.mean_ratio.ln().abs();
        let is_mean_apart =
            finding.verdict == Verdict::Same && candidate.mean_ratio.ln().abs() > tolerance.ln_1p() + noise;
        let logarithms = |role: Role| -> Vec<f64> {
            it.generations.iter().flat_map(|generation| &generation.rows).map(|row| row[role.place()]).collect()
        };
        let (base, of_candidate) = (logarithms(Role::Base), logarithms(Role::Candidate(it.candidate)));
        Some(PairedChange {
            verdict: if is_null_changed || is_mean_apart { Verdict::CannotSay } else { finding.verdict },
            change: candidate.estimate,
            null: null.estimate,
            is_null_changed,
            is_small_change: finding.is_small_change,
            floor,
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
    /// The seconds of the fewest generations, with slices for a quarter of their time.
    fn least_seconds(&self) -> f64 {
        FEWEST_GENERATIONS as f64 * (self.start / 0.75).max(self.start + FEWEST_SLICES as f64 * self.row)
    }

    /// Divides `seconds` among cases: a case that needs more than an equal part for the fewest generations gets what it needs, and
    /// the others share the rest.
    pub fn divide(cases: &[Costs], seconds: f64) -> Vec<f64> {
        let mut parts = vec![0.0; cases.len()];
        let mut order: Vec<usize> = (0..cases.len()).collect();
        order.sort_by(|&one, &other| cases[other].least_seconds().total_cmp(&cases[one].least_seconds()));
        let mut left = seconds;
        for (before, place) in order.into_iter().enumerate() {
            let equal = left / (cases.len() - before) as f64;
            parts[place] = cases[place].least_seconds().max(equal);
            left -= parts[place];
        }
        parts
    }
}

/// How a case is measured, fixed before its first counted slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DuetPlan {
    pub generations: usize,
    /// Slices of each arm per generation.
    pub slices: usize,
    /// Whether it may end before, at one of the planned looks.
    pub may_stop_early: bool,
}

/// A number of generations at which a case is looked at, and the probability of an error that is spent there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    pub generations: usize,
    pub error_rate: f64,
}

impl DuetPlan {
    /// The looks of this plan, the last one at its end. Early ones find large changes, and end what is settled; most of the
    /// error rate is left for the last, whose interval is hardly wider for them.
    pub fn looks(&self) -> Vec<Look> {
        let (first, last) = (FEWEST_GENERATIONS as f64, self.generations as f64);
        let early = |place: usize| first * (last / first).powf(place as f64 / EARLY_LOOKS as f64);
        let is_worth_it = self.may_stop_early && last >= 1.5 * first;
        let early: Vec<usize> =
            (0..EARLY_LOOKS).filter(|_| is_worth_it).map(|place| early(place).round() as usize).collect();
        let spent = EARLY_SHARE * early.len() as f64;
        let look = |generations| Look { generations, error_rate: EARLY_SHARE * FALSE_DISCOVERIES };
        let last = Look { generations: self.generations, error_rate: (1.0 - spent) * FALSE_DISCOVERIES };
        early.into_iter().map(look).chain([last]).collect()
    }

    /// What may be spent of the error rate after so many generations: that of the look to which they lead.
    pub fn error_rate(&self, generations: usize) -> f64 {
        let looks = self.looks();
        let next = looks.iter().find(|look| look.generations >= generations).or(looks.last());
        next.map_or(FALSE_DISCOVERIES, |look| look.error_rate)
    }
}

impl Components {
    /// Finds the components from a pilot's generations, which have the same number of rows; the null control and every
    /// candidate tell them. Returns `None` for fewer than two generations or rows.
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
            // Around each generation's median, without what a burst does to single rows. Half of the middle one of an odd
            // number is lost: `n / (n - 1)` makes up for it about.
            for (ratios, middle) in ratios.iter().zip(&medians) {
                scatter.extend(ratios.iter().map(|ratio| (ratio - middle).abs()));
            }
        }
        const DEVIATION_OF_MAD: f64 = 1.4826;
        let within = DEVIATION_OF_MAD * median(&scatter)? * (rows as f64 / (rows as f64 - 1.0)).sqrt();
        let between = (of_medians - MEDIAN_PENALTY * within.powi(2) / rows as f64).max(0.0).sqrt();
        Some(Components { within, between })
    }

    /// Chooses the slices per generation so that time is spent where the scatter comes from (Kalibera & Jones 2013,
    /// section 6: the square root of the ratio of costs times the ratio of deviations), and as many generations as fit into
    /// `seconds`. At least a quarter of the time goes to slices: the machine may change its speed from one slice to the next,
    /// which a short pilot need not show, and a median of many slices does not mind. Where the fewest generations would not fit,
    /// they have fewer slices.
    pub fn plan(&self, costs: Costs, seconds: f64, may_stop_early: bool) -> DuetPlan {
        let row_error = MEDIAN_PENALTY.sqrt() * self.within;
        let best = (costs.start / costs.row.max(1e-9)).sqrt() * row_error / self.between.max(1e-9);
        let least = costs.start / (3.0 * costs.row.max(1e-9));
        let fit = (seconds / FEWEST_GENERATIONS as f64 - costs.start) / costs.row.max(1e-9);
        let slices = (best.max(least).ceil().min(fit) as usize).clamp(FEWEST_SLICES, MOST_SLICES);
        let generation = costs.start + slices as f64 * costs.row;
        let generations = (seconds / generation.max(1e-9)) as usize;
        DuetPlan { generations: generations.clamp(FEWEST_GENERATIONS, MOST_GENERATIONS), slices, may_stop_early }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn cases_that_need_more_than_an_equal_part_take_it_from_the_others() {
        let costs = |start: f64| Costs { start, row: 0.001 };
        let parts = Costs::divide(&[costs(0.1), costs(2.0), costs(0.1)], 52.0);
        assert_eq!(parts, [10.0, 32.0, 10.0]);
        assert_eq!(Costs::divide(&[costs(0.1), costs(0.2)], 60.0), [30.0, 30.0]);
        // The fewest generations are measured even where there is no time for them.
        assert_eq!(Costs::divide(&[costs(3.0), costs(3.0)], 10.0), [48.0, 48.0]);
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
    }

    #[test]
    fn equal_figures_are_the_same_and_layout_is_no_slow_down() {
        let decided = decide(&flat(&[0.0; 12]), TOLERANCE, true).unwrap();
        assert_eq!((decided.verdict, decided.generations, decided.slices), (Verdict::Same, 12, 36));
        let slower = |is_same_build| decide(&flat(&[0.009; 12]), 0.005, is_same_build).unwrap().verdict;
        assert_eq!([slower(true), slower(false)], [Verdict::Slower, Verdict::CannotSay]);
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
    fn more_scatter_between_generations_takes_more_of_them_and_fewer_slices_each() {
        let costs = Costs { start: 0.5, row: 0.06 };
        let plan = |within, between, seconds| Components { within, between }.plan(costs, seconds, true);
        let (quiet, noisy) = (plan(0.01, 0.003, 60.0), plan(0.01, 0.03, 60.0));
        assert!(noisy.generations > 50 && noisy.slices < quiet.slices, "{quiet:?} {noisy:?}");
        assert_eq!(plan(0.01, 0.03, 1.0).generations, FEWEST_GENERATIONS);
    }

    #[test]
    fn looks_spend_the_error_rate_once_and_leave_most_of_it_for_the_last() {
        let plan = |generations, may_stop_early| DuetPlan { generations, slices: 10, may_stop_early };
        let looks = plan(40, true).looks();
        assert_eq!(looks.iter().map(|look| look.generations).collect::<Vec<_>>(), [12, 18, 27, 40]);
        assert_near(looks.iter().map(|look| look.error_rate).sum(), FALSE_DISCOVERIES);
        assert!(looks[3].error_rate > 0.6 * FALSE_DISCOVERIES);
        for single in [plan(40, false), plan(14, true)] {
            let [last] = single.looks()[..] else { panic!("{:?}", single.looks()) };
            assert_eq!((last.generations, last.error_rate), (single.generations, FALSE_DISCOVERIES));
        }
        assert_near(plan(40, true).error_rate(27), looks[2].error_rate);
        assert_near(plan(40, true).error_rate(28), looks[3].error_rate);
    }
}
