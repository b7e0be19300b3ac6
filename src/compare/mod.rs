//! "Is A faster than B?": the estimates of a ratio of times, and the verdicts about them.
//!
//! It takes two sides of records with their calls. It gives an interval for each ratio, and a verdict. Nothing is
//! measured here (`duel`, `harness`), and nothing is printed (`report`).
//!
//! Each estimator makes a [`RatioEstimate`] with its limits: [`estimate`] (in `runs`) from stored runs, for
//! `compare` and the variants of a model, and the paired one of a duel (in `duet`). [`verdicts`] decides for all of them in the
//! same way. [`compare`] does it for two sides of stored runs:
//!
//! ```text
//! sides ─▶ pairs ─┬▶ runs (within + noise) ─▶ verdict
//!                 └▶ changes
//! ```
//!
//! The samples of one process say how exactly its median is known ([`Within`]); only other processes say how far the medians of
//! two processes of the same program are apart ([`Noise`]). An interval has both components, unless the row itself is of
//! several processes: then their scatter has both.

#[cfg(feature = "http-load")]
mod added;
mod changes;
mod conditions;
mod duel_result;
mod duet;
mod duet_plan;
mod filter;
mod gate;
mod machines;
mod noise;
mod pairs;
mod rates;
mod runs;
mod sides;
#[cfg(test)]
mod tests;
mod verdict;

#[cfg(feature = "http-load")]
pub use added::add_local;
pub use changes::{ACCURACY, Allowance, Change, Effect, Value};
pub use conditions::{Condition, Difference};
pub(crate) use conditions::{is_like, is_repetition};
pub use duel_result::{CaseOutcome, DUEL_FORMAT, Duel, DuelStanding, Loss, Program, duel_exit_code};
pub use duet::{FALSE_DISCOVERIES, Generation, Paired, PairedChange, Role, decide_duet, in_percent};
pub use duet_plan::{
    Components, Costs, DuetPlan, FEWEST_GENERATIONS, Look, SliceLength, deciding_half_width, fewest_generations,
};
pub use filter::{CaseFilter, measured_backend};
pub use gate::{Found, Gate};
pub use machines::{Figures, MachineDifference, Quantity, Tested, differing_machines, spread};
pub use noise::{ASSUMED_DEVIATION, EarlierRuns, Noise, Source};
pub use rates::{RateChange, lost_in_words, lost_searches, rate_changes};
pub use runs::{CaseRuns, Within, estimate, floor};
pub use sides::Side;
pub use verdict::{Finding, LAYOUT_FLOOR, Limits, MOST_FLOOR, RatioEstimate, RatioInterval, Verdict, verdicts};

use clap::{Args, FromArgMatches as _};
use serde::Serialize;

use crate::definition::{Case, Status};
use crate::exit_codes;
use crate::run_data::{LoadResult, Record};
use crate::selection::values::{confidence, fraction_below_one};
use crate::statistics::{geometric_mean, mean, median};
use changes::{changes, metric_changes, worst_status};
use noise::is_disturbed;
use pairs::{Pair, pair};

/// How two sides are compared.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    pub filter: CaseFilter,
    /// Also compare cases in which these conditions differ, separated by commas
    #[arg(long = "allow-different", value_enum, value_delimiter = ',', value_name = "CONDITION,…")]
    pub allowed: Vec<Condition>,
    /// Do not count a case that the candidate lacks as a regression
    #[arg(long = "allow-missing")]
    pub missing_is_allowed: bool,
    /// Exit with 0 even if some cases are open, as long as one is decided
    #[arg(long = "allow-undecided")]
    pub undecided_is_allowed: bool,
    /// Smaller changes in time are not regressions; those that are certain are shown as notices
    #[arg(long, value_name = "PERCENT", default_value = "5%", allow_hyphen_values = true, value_parser = fraction_below_one)]
    pub tolerance: f64,
    #[command(flatten)]
    pub allowance: Allowance,
    /// Confidence of the intervals; 100 % minus this is the rate of false alarms among the changes found in all cases
    #[arg(long, value_name = "PERCENT", default_value = "99%", value_parser = confidence)]
    pub confidence: f64,
}

impl Default for Options {
    /// Returns the options of a command line without flags.
    fn default() -> Self {
        let without_flags = Options::augment_args(clap::Command::new("compare")).get_matches_from(["compare"]);
        Options::from_arg_matches(&without_flags).expect("no flag is required")
    }
}

/// The result of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub base: SideSummary,
    pub candidate: SideSummary,
    pub confidence: f64,
    pub tolerance: f64,
    pub allowance: Allowance,
    pub conclusion: Conclusion,
    pub exit_code: u8,
    pub cases: Vec<ComparedCase>,
    /// The highest rates of the sides' load tests.
    pub rates: Vec<RateChange>,
    /// The searches that found a rate in the base, and that the candidate has broken off.
    #[serde(skip)]
    pub(crate) lost: Vec<LoadResult>,
    /// Pairs that are not compared, because the conditions differ.
    pub refused: Vec<RefusedPair>,
    /// The largest number of earlier runs of a case that say nothing about its noise, since other work disturbed them.
    pub disturbed_runs: usize,
    /// Notes for the reader, such as what could not be used.
    pub notes: Vec<String>,
    /// Cases whose measurement cannot be read, or has no time.
    #[serde(skip)]
    pub(crate) unread: Vec<String>,
    /// Whether there are cases of both sides that are not compared: they were refused, or cannot be read.
    #[serde(skip)]
    pub(crate) is_left_out: bool,
}

/// What is known of a side as a whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideSummary {
    pub name: String,
    pub run_ids: Vec<String>,
    pub git_commit: Option<String>,
    pub git_dirty: Option<bool>,
    pub host_id: Option<String>,
    /// The mean over the records for which it is known.
    pub disturbed_share: Option<f64>,
}

/// A case on both sides, or on one.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedCase {
    /// The id of the case. If it is compared machine by machine, as the anchor of merged runs is, ` on ` and the machine follow.
    pub id: String,
    pub case: Case,
    /// Absent if one of the sides has no valid measurement.
    pub latency: Option<LatencyChange>,
    pub changes: Vec<Change>,
    /// Conditions that differ and were allowed to.
    pub allowed_differences: Vec<Difference>,
    /// Whether the case should have been compared, and a side has no times to compare.
    #[serde(skip)]
    pub(crate) is_open: bool,
    /// The records of the base and of the candidate; none if one of the sides has no valid measurement.
    #[serde(skip)]
    pub records: [Vec<Record>; 2],
}

/// The change of the median time of a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyChange {
    /// Geometric mean of the runs' medians.
    pub base_ms: f64,
    pub candidate_ms: f64,
    pub base_runs: usize,
    pub candidate_runs: usize,
    pub interval: RatioInterval,
    pub p_value: f64,
    /// Changes up to this are noise, as a fraction of the base's time.
    pub floor: f64,
    pub base_noise: Noise,
    pub candidate_noise: Noise,
    pub verdict: Verdict,
    /// A sure change that the tolerance allows: a notice, and no regression.
    pub is_small_change: bool,
    /// Why there is no verdict, if the interval is not the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_because: Option<&'static str>,
}

/// What a case is on a side that lacks it, if it is a new one.
const NOT_THERE: &str = "not there";
const BY_LOAD: &str = "other load affected most samples of a side";
const BY_MEAN: &str = "the mean call became longer by more than the tolerance, and the median did not";

/// A pair that was not compared, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RefusedPair {
    pub id: String,
    pub differences: Vec<Difference>,
}

/// The conclusion over all cases; its number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Conclusion {
    Well = exit_codes::OK,
    Regression = exit_codes::REGRESSION_OR_WRONG,
    NothingToCompare = exit_codes::NOTHING_MEASURED,
    /// For at least one case, a slow-down beyond the tolerance is neither shown nor excluded, or the case was refused.
    CannotSay = exit_codes::UNSTABLE,
}

impl LatencyChange {
    /// The change as it was estimated, without a verdict, which takes all cases.
    fn new(base: &CaseRuns, candidate: &CaseRuns, estimate: RatioEstimate, floor: f64) -> Self {
        LatencyChange {
            base_ms: geometric_mean(&base.log_medians),
            candidate_ms: geometric_mean(&candidate.log_medians),
            base_runs: base.log_medians.len(),
            candidate_runs: candidate.log_medians.len(),
            interval: estimate.interval,
            p_value: estimate.p_value,
            floor,
            base_noise: base.noise,
            candidate_noise: candidate.noise,
            verdict: Verdict::CannotSay,
            is_small_change: false,
            open_because: None,
        }
    }
}

impl SideSummary {
    fn new(side: &Side) -> Self {
        let shares: Vec<f64> = side.records.iter().filter_map(|record| record.disturbed_share).collect();
        let last = side.records.last();
        SideSummary {
            name: side.name.clone(),
            run_ids: side.run_ids().into_iter().map(str::to_owned).collect(),
            git_commit: last.and_then(|record| record.git_commit.clone()),
            git_dirty: last.and_then(|record| record.git_dirty),
            host_id: last.map(|record| record.host_id.clone()),
            // A few cases say nothing about the others.
            disturbed_share: (2 * shares.len() > side.records.len()).then(|| mean(&shares)),
        }
    }
}

impl Comparison {
    /// The cases that are slower in the candidate.
    pub fn slower(&self) -> impl Iterator<Item = &ComparedCase> {
        self.cases.iter().filter(|case| case.verdict() == Some(Verdict::Slower))
    }

    /// Whether identical code differs so much in every case that there are no verdicts.
    pub fn is_too_noisy(&self) -> bool {
        let mut latencies = self.cases.iter().filter_map(|case| case.latency.as_ref()).peekable();
        latencies.peek().is_some() && latencies.all(|latency| latency.floor > MOST_FLOOR)
    }
}

impl ComparedCase {
    pub fn verdict(&self) -> Option<Verdict> {
        self.latency.as_ref().map(|latency| latency.verdict)
    }

    pub fn is_regression(&self) -> bool {
        self.verdict() == Some(Verdict::Slower) || self.changes.iter().any(|change| change.effect == Effect::Regression)
    }
}

/// Compares the sides. `known` is the noise of a host as far as it is known without the case's own runs.
pub fn compare(
    base: &Side,
    candidate: &Side,
    earlier: &EarlierRuns,
    known: &dyn Fn(&str) -> Noise,
    options: &Options,
) -> Comparison {
    let (mut cases, mut refused, mut estimates) = (Vec::new(), Vec::new(), Vec::new());
    let mut notes = [base.notes.as_slice(), &candidate.notes].concat();
    notes.extend(sides::other_settings(base, candidate));
    let (mut disturbed_runs, mut unread) = (0, Vec::new());
    let (mut has_pair, mut has_unread) = (false, false);
    // If machines may differ, the runs of all machines are compared together.
    let is_of_any_machine = options.allowed.contains(&Condition::Host);
    let pairs = pair(base, candidate, &options.filter);
    if pairs.is_empty() && !(base.records.is_empty() && candidate.records.is_empty()) {
        notes.push("no case passes the filters; `inferbench compare` without filters compares all cases".into());
    }
    for mut pair in pairs.into_iter().flat_map(|pair| if is_of_any_machine { vec![pair] } else { pair.by_machine() }) {
        let id = pair.id();
        if [base, candidate].iter().any(|side| side.unread.contains(&pair.case)) {
            notes.push(format!("{id}: not compared: its measurement cannot be read"));
            has_unread = true;
            unread.push(id);
            continue;
        }
        // A case that ran in some runs of the base did run: a failure in another run excuses nothing.
        let runs_of_base = pair.base.len();
        if pair.base.iter().any(|record| record.status == Status::Ok) {
            pair.base.retain(|record| record.status == Status::Ok);
        }
        if pair.base.len() < runs_of_base {
            let left_out = runs_of_base - pair.base.len();
            notes.push(format!("{id}: {left_out} of {runs_of_base} runs of the base are not ok, and are left out"));
        }
        let case = |changes| ComparedCase {
            id: id.clone(),
            case: pair.case.clone(),
            latency: None,
            changes,
            allowed_differences: Vec::new(),
            is_open: false,
            records: Default::default(),
        };
        if pair.base.is_empty() || pair.candidate.is_empty() {
            if pair.host_id.is_some() {
                // The case itself is not gone: both sides have it on another machine.
                let side = if pair.base.is_empty() { candidate } else { base };
                notes.push(format!("{id}: not compared: of the two sides, only {} has this machine", side.name));
                continue;
            }
            let change = of_one_side(&pair, candidate, options);
            // A case that is gone is a regression even if no other case is on both sides.
            has_pair |= change.effect == Effect::Regression;
            // The interrupted run might have measured it.
            let is_lost = pair.candidate.is_empty()
                && candidate.did_not_reach(&pair.case)
                && worst_status(&pair.base).is_measured();
            let is_open = is_lost && !options.missing_is_allowed;
            has_unread |= is_open;
            cases.push(ComparedCase { is_open, ..case(vec![change]) });
            continue;
        }
        if let Some(run_id) = pair.shared_run() {
            notes.push(format!("{id}: not compared: both sides have its measurement of run {run_id}"));
            continue;
        }
        let is_compared = |it: &Difference| {
            options.allowed.contains(&it.condition) || it.condition.may_change() && !pair.is_mixed(it.condition)
        };
        let (allowed_differences, differences): (Vec<_>, Vec<_>) =
            pair.differences().into_iter().partition(is_compared);
        let other_library = pair.other_library().filter(|note| !notes.contains(note));
        notes.extend(other_library);
        let mut changes = changes(&pair.base, &pair.candidate, options.allowance);
        if worst_status(&pair.base) != Status::Ok || worst_status(&pair.candidate) != Status::Ok {
            // A case that fails on both sides, in whatever way, has nothing to compare.
            has_pair |= changes.iter().any(|change| change.effect != Effect::Notice);
            // Its times are not compared, so no slow-down is excluded.
            let is_open = worst_status(&pair.candidate) == Status::Suspicious && worst_status(&pair.base).is_measured();
            has_unread |= is_open;
            cases.push(ComparedCase { allowed_differences, is_open, ..case(changes) });
            continue;
        }
        if !differences.is_empty() {
            refused.push(RefusedPair { id: id.clone(), differences });
            continue;
        }
        changes.extend(metric_changes([&pair.base, &pair.candidate], [&base.metrics, &candidate.metrics]));
        let latency = runs_of_both(&pair, earlier, known).map(|(base, candidate)| {
            disturbed_runs = disturbed_runs.max(earlier.disturbed_like(pair.base[0]));
            let layout = Limits::layout(pair.is_same_build());
            let floor = floor(&base, &candidate, options.confidence).max(layout);
            let estimate = estimate(&base, &candidate, options.confidence);
            estimates.push((estimate, Limits { floor, layout, tolerance: options.tolerance }));
            LatencyChange::new(&base, &candidate, estimate, floor)
        });
        if latency.is_none() {
            notes.push(format!("{id}: not compared: a measurement has no time"));
            has_unread = true;
            unread.push(id.clone());
        }
        has_pair |= latency.is_some() || !changes.is_empty();
        let records = [&pair.base, &pair.candidate].map(|side| side.iter().copied().cloned().collect());
        cases.push(ComparedCase { latency, allowed_differences, records, ..case(changes) });
    }
    let findings = verdicts(&estimates, 1.0 - options.confidence);
    let (mut disturbed, mut of_mean) = (Vec::new(), Vec::new());
    for (case, finding) in cases.iter_mut().filter(|case| case.latency.is_some()).zip(findings) {
        let is_by_load = may_be_by_load(finding.verdict, &case.records);
        disturbed.extend(is_by_load.then(|| case.id.clone()));
        if let Some(latency) = case.latency.as_mut() {
            let excludes_slow_down = finding.verdict.excludes_regression();
            let is_open = excludes_slow_down && has_longer_mean(&case.records, options.tolerance.max(latency.floor));
            of_mean.extend((is_open && !is_by_load).then(|| case.id.clone()));
            latency.verdict = if is_by_load || is_open { Verdict::CannotSay } else { finding.verdict };
            latency.open_because = match (is_by_load, is_open) {
                (true, _) => Some(BY_LOAD),
                (false, true) => Some(BY_MEAN),
                (false, false) => None,
            };
            latency.is_small_change = finding.is_small_change && !is_by_load && !is_open;
        }
    }
    for (why, cases) in [(BY_MEAN, of_mean), (BY_LOAD, disturbed)].into_iter().filter(|(_, cases)| !cases.is_empty()) {
        notes.push(format!("{why}, so that there is no verdict: {}", cases.join(", ")));
    }
    let is_left_out = has_unread || !refused.is_empty();
    let conclusion = conclude(&cases, has_pair, is_left_out, options.undecided_is_allowed);
    if conclusion == Conclusion::NothingToCompare {
        notes.extend(other_dtype(&cases));
    }
    Comparison {
        base: SideSummary::new(base),
        candidate: SideSummary::new(candidate),
        confidence: options.confidence,
        tolerance: options.tolerance,
        allowance: options.allowance,
        conclusion,
        exit_code: conclusion as u8,
        cases,
        rates: Vec::new(),
        lost: Vec::new(),
        refused,
        disturbed_runs,
        notes,
        unread,
        is_left_out,
    }
}

/// A line about a case of the base and one of the candidate that differ only in their dtype, as those of a file and its
/// quantised successor do.
fn other_dtype(cases: &[ComparedCase]) -> Option<String> {
    let is_new = |it: &&ComparedCase| it.changes.iter().any(|change| change.base == Value::Text(NOT_THERE.into()));
    let (new, old): (Vec<_>, Vec<_>) = cases.iter().partition(is_new);
    let is_like = |one: &Case, other: &Case| Case { dtype: one.dtype, ..other.clone() } == *one;
    let mut pairs = old.iter().flat_map(|one| new.iter().map(move |other| (&one.case, &other.case)));
    let (one, other) = pairs.find(|(one, other)| is_like(one, other))?;
    Some(format!(
        "{one} and {other} differ in their dtype; `inferbench run --path A,B` and `inferbench report --variants` compare \
         forms of a model"
    ))
}

/// `is_left_out` says whether there are cases of both sides that are not compared.
fn conclude(cases: &[ComparedCase], has_pair: bool, is_left_out: bool, undecided_is_allowed: bool) -> Conclusion {
    let verdicts = || cases.iter().filter_map(ComparedCase::verdict);
    let open = verdicts().filter(|verdict| *verdict == Verdict::CannotSay).count();
    let has_decided = verdicts().count() > open;
    let is_undecided = (open > 0 || is_left_out) && !(undecided_is_allowed && has_decided);
    if !has_pair {
        Conclusion::NothingToCompare
    } else if cases.iter().any(ComparedCase::is_regression) {
        Conclusion::Regression
    } else if is_undecided {
        Conclusion::CannotSay
    } else {
        Conclusion::Well
    }
}

/// Whether other load, which makes times longer, may have caused the verdict: load on the candidate can cause `slower`,
/// and load on the base any verdict that excludes a slow-down. The noise, which is from undisturbed runs, does not
/// cover this.
fn may_be_by_load(verdict: Verdict, [base, candidate]: &[Vec<Record>; 2]) -> bool {
    match verdict {
        Verdict::Slower => candidate.iter().any(is_disturbed),
        Verdict::CannotSay => false,
        _ => base.iter().any(is_disturbed),
    }
}

/// Whether the candidate's mean call is longer by more than this fraction. If the rates have intervals, these must show
/// it, too.
fn has_longer_mean([base, candidate]: &[Vec<Record>; 2], fraction: f64) -> bool {
    let middle =
        |side: &[Record], of: fn(&Record) -> Option<f64>| median(&side.iter().map(of).collect::<Option<Vec<f64>>>()?);
    let least = middle(base, |record| record.throughput_lower_ips);
    let most = middle(candidate, |record| record.throughput_upper_ips);
    let means = [base, candidate].map(|side| middle(side, |record| record.latency_mean_ms));
    let is_longer = |(before, after): (f64, f64)| before * (1.0 + fraction) < after;
    means[0].zip(means[1]).is_some_and(is_longer) && most.zip(least).is_none_or(is_longer)
}

/// A case that is gone is a regression if it ran before and was asked for again.
fn of_one_side(pair: &Pair<'_>, candidate: &Side, options: &Options) -> Change {
    let shown = |side: &[&Record]| Value::Text(worst_status(side).to_string());
    let absent = |why: &str| Value::Text(why.to_owned());
    let (base, candidate, is_regression) = match pair.base.first() {
        None => (absent(NOT_THERE), shown(&pair.candidate), false),
        Some(record) => {
            let was_asked_for = candidate.was_asked_for(&pair.case, &record.suite);
            let did_run = worst_status(&pair.base).is_measured();
            let why = match was_asked_for {
                true => "gone",
                false if candidate.did_not_reach(&pair.case) => "not measured before the run was interrupted",
                false => "not asked for",
            };
            (shown(&pair.base), absent(why), was_asked_for && did_run && !options.missing_is_allowed)
        }
    };
    let effect = if is_regression { Effect::Regression } else { Effect::Notice };
    Change { quantity: "case".into(), base, candidate, effect }
}

/// Medians and noise of both sides. Returns `None` if a record has no median.
fn runs_of_both(pair: &Pair<'_>, earlier: &EarlierRuns, known: &dyn Fn(&str) -> Noise) -> Option<(CaseRuns, CaseRuns)> {
    let logarithms = |side: &[&Record]| -> Option<Vec<f64>> {
        let median = |record: &Record| record.latency_p50_ms.filter(|ms| *ms > 0.0 && ms.is_finite());
        side.iter().map(|record| median(record).map(f64::ln)).collect()
    };
    let (base, candidate) = logarithms(&pair.base).zip(logarithms(&pair.candidate))?;
    let like = [pair.base[0], pair.candidate[0]];
    let mut groups = like.map(|record| earlier.groups_like(record));
    let is_one_noise = groups[0] == groups[1] && like[0].host_id == like[1].host_id;
    if is_one_noise {
        groups[0].extend([base.clone(), candidate.clone()]);
        groups[1] = groups[0].clone();
    } else {
        groups[0].push(base.clone());
        groups[1].push(candidate.clone());
    }
    let sides = [&pair.base, &pair.candidate];
    let [of_base, of_candidate] = [0, 1].map(|side| {
        let own = Noise::of_processes(sides[side].iter().copied());
        Noise::of_groups(&groups[side], own.unwrap_or_else(|| known(&like[side].host_id)))
    });
    Some((CaseRuns::new(&pair.base, base, of_base), CaseRuns::new(&pair.candidate, candidate, of_candidate)))
}
