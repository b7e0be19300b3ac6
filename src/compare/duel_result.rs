//! The results of a duel for every case, and the exit code that follows from them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::duet::{PairedChange, Role};
use super::duet_plan::DuetPlan;
use super::verdict::Verdict;
use crate::definition::Status;
use crate::exit_codes;
use crate::machine::Machine;

/// Changes when an older reader would misunderstand the files of a duel.
pub const DUEL_FORMAT: u32 = 4;

/// A program that takes part in a duel: an executable, and the project that it works with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// As the user named it: `HEAD~1`, `.`, a path.
    pub name: String,
    pub commit: Option<String>,
    /// Takes the place of the suite that the command line names.
    pub suite: Option<PathBuf>,
    /// Of the suite's file; of the model's file if the user named one.
    pub suite_sha256: Option<String>,
    pub executable: PathBuf,
    pub sha256: String,
    /// The project's folder.
    pub root: PathBuf,
    /// The Python environment whose runtimes it uses, if it was named.
    pub environment: Option<PathBuf>,
    /// The backends that it measures, with the versions of their libraries.
    #[serde(default)]
    pub libraries: BTreeSet<String>,
}

impl Program {
    /// Whether both do the same work by the same machine code. The paths in a suite are relative to its folder: a suite with the same
    /// text in another folder may have other models.
    pub fn is_same_as(&self, other: &Program) -> bool {
        (&self.sha256, &self.root, &self.environment) == (&other.sha256, &other.root, &other.environment)
            && (&self.suite, &self.suite_sha256) == (&other.suite, &other.suite_sha256)
    }
}

/// Why a case has no figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// The arm that lost the case. If it is the base, which stands for all programs, nothing can be compared. A loss
    /// while the case is measured ends the case for the other candidates, too.
    pub role: Role,
    pub status: Status,
    pub message: String,
    /// Whether the candidate has no such case to compare, so that no program has lost it. Absent in older duels.
    #[serde(default)]
    pub is_left_out: bool,
}

/// One case of a duel with one of its candidates: it has a comparison, or a loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseOutcome {
    pub id: String,
    /// The ids of the case in the base and in the candidate, if `id` is made of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_ids: Option<[String; 2]>,
    /// The place of the candidate in [`Duel::candidates`].
    pub candidate: usize,
    pub plan: Option<DuetPlan>,
    pub comparison: Option<PairedChange>,
    pub loss: Option<Loss>,
}

/// Where a case stands with one candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuelStanding {
    /// The case became slower, or only this candidate lost it.
    Regression,
    /// A slow-down beyond the tolerance is excluded.
    Well,
    /// Undecided for a reason other than scatter: the null control moved, or the base or another candidate lost the
    /// case.
    Void,
    /// Undecided because the times scatter too much.
    Scattered,
    /// Not compared: the candidate has no such case, or no generation was measured yet.
    Unmeasured,
}

impl CaseOutcome {
    /// Where the case stands, by itself.
    pub fn standing(&self) -> DuelStanding {
        match (&self.loss, &self.comparison) {
            (Some(loss), _) if loss.is_left_out => DuelStanding::Unmeasured,
            (Some(loss), _) if loss.role == Role::Candidate(self.candidate) => DuelStanding::Regression,
            (Some(_), _) => DuelStanding::Void,
            (None, None) => DuelStanding::Unmeasured,
            (None, Some(found)) if found.is_null_changed => DuelStanding::Void,
            (None, Some(found)) if found.verdict == Verdict::Slower => DuelStanding::Regression,
            (None, Some(found)) if found.verdict.excludes_regression() => DuelStanding::Well,
            (None, Some(_)) => DuelStanding::Scattered,
        }
    }

    /// Whether neither a regression nor its absence is shown, for either reason.
    pub fn is_open(&self) -> bool {
        matches!(self.standing(), DuelStanding::Scattered | DuelStanding::Void)
    }
}

/// A duel that has come to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Duel {
    pub format: u32,
    pub name: String,
    pub base: Program,
    pub candidates: Vec<Program>,
    /// The fraction by which the candidates were slowed down on purpose.
    pub null_slowdown: Option<f64>,
    pub seed: u64,
    pub tolerance: f64,
    /// Whether different executables were said to have the same machine code.
    pub is_same_code: bool,
    /// Whether cases that scatter too much do not fail the duel if another case is decided.
    pub undecided_is_allowed: bool,
    /// The processors that the arms' threads are pinned to; empty if they are not pinned.
    pub processors: Vec<usize>,
    /// Seconds before the first generation that counts.
    pub preparation_seconds: f64,
    /// Seconds of all generations that count.
    pub seconds: f64,
    /// About how many minutes a duel of the same question would need for a verdict of every case; absent if no case is
    /// open that more time would decide.
    pub minutes_needed: Option<f64>,
    pub machine: Machine,
    /// Every case with every candidate, the candidates of one case beside each other.
    pub cases: Vec<CaseOutcome>,
    /// One of [`exit_codes`].
    pub exit_code: u8,
}

/// The exit code of a duel with these cases, which is the first of these that is true:
///
/// - 1: a case is a regression. It became slower while its own null control was still, or only a candidate lost it,
///   which no noise explains.
/// - 4: a case is undecided. If `undecided_is_allowed`, cases that scatter too much do not count beside a decided one.
/// - 0: a slow-down beyond the tolerance is excluded for every case that was compared.
/// - 3: no case was compared.
pub fn duel_exit_code(cases: &[CaseOutcome], undecided_is_allowed: bool) -> u8 {
    let has = |standing| cases.iter().any(|case| case.standing() == standing);
    let may_scatter = undecided_is_allowed && has(DuelStanding::Well);
    let is_undecided = has(DuelStanding::Void) || has(DuelStanding::Scattered) && !may_scatter;
    if has(DuelStanding::Regression) {
        exit_codes::REGRESSION_OR_WRONG
    } else if is_undecided {
        exit_codes::UNSTABLE
    } else if has(DuelStanding::Well) {
        exit_codes::OK
    } else {
        exit_codes::NOTHING_MEASURED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{RatioEstimate, RatioInterval};

    fn compared(verdict: Verdict, is_null_changed: bool) -> CaseOutcome {
        let interval = RatioInterval { ratio: 1.0, lower: 1.0, upper: 1.0, confidence: 0.99 };
        let estimate = RatioEstimate { interval, p_value: 1.0 };
        let comparison = PairedChange {
            verdict,
            change: estimate,
            null: estimate,
            is_null_changed,
            is_small_change: false,
            is_within_layout: false,
            floor: 0.0,
            layout: 0.0,
            mean_ratio: 1.0,
            is_mean_apart: false,
            generations: 12,
            slices: 60,
            base_ns: 1.0,
            candidate_ns: 1.0,
        };
        let comparison = Some(comparison);
        CaseOutcome { id: "m/x/1".into(), own_ids: None, candidate: 0, plan: None, comparison, loss: None }
    }

    fn lost(role: Role) -> CaseOutcome {
        let loss = Some(Loss { role, status: Status::Failed, message: "killed".into(), is_left_out: false });
        CaseOutcome { id: "m/x/2".into(), own_ids: None, candidate: 0, plan: None, comparison: None, loss }
    }

    #[test]
    fn suites_of_one_text_in_two_folders_are_not_the_same_work() {
        let with_suite = |suite: &str| Program {
            name: suite.into(),
            commit: None,
            suite: Some(suite.into()),
            suite_sha256: Some("01".into()),
            executable: "inferbench".into(),
            sha256: "23".into(),
            root: ".".into(),
            environment: None,
            libraries: BTreeSet::new(),
        };
        let old = with_suite("old/suite.toml");
        assert!(old.is_same_as(&Program { name: "again".into(), ..old.clone() }));
        // Each of them names the file `net.onnx` beside it.
        assert!(!old.is_same_as(&with_suite("new/suite.toml")));
    }

    /// Every outcome that a case can have, with the exit code of a duel of this case alone.
    fn all_outcomes() -> [(CaseOutcome, u8); 10] {
        [
            (CaseOutcome { loss: None, ..lost(Role::Base) }, 3),
            (compared(Verdict::Same, false), 0),
            (compared(Verdict::Faster, false), 0),
            (compared(Verdict::NotSlower, false), 0),
            (compared(Verdict::Slower, false), 1),
            (lost(Role::Candidate(0)), 1),
            (compared(Verdict::CannotSay, false), 4),
            (compared(Verdict::CannotSay, true), 4),
            (lost(Role::Base), 4),
            (lost(Role::Null), 4),
        ]
    }

    #[test]
    fn every_mixture_of_verdicts_has_the_code_of_its_worst_case() {
        let all = all_outcomes();
        // A regression is worse than no verdict, which is worse than no regression. Cases that were not compared do not
        // count.
        let rank = |code: u8| [3, 0, 4, 1].iter().position(|known| *known == code).unwrap();
        for mixture in 1..1 << all.len() {
            let chosen = || all.iter().enumerate().filter(|(place, _)| mixture >> place & 1 == 1).map(|(_, it)| it);
            let cases: Vec<CaseOutcome> = chosen().map(|(case, _)| case.clone()).collect();
            let expected = chosen().map(|(_, code)| *code).max_by_key(|code| rank(*code)).unwrap();
            assert_eq!(duel_exit_code(&cases, false), expected, "{cases:?}");
        }
        assert_eq!(duel_exit_code(&[], false), exit_codes::NOTHING_MEASURED);
    }

    #[test]
    fn a_case_that_one_candidate_loses_is_no_regression_of_the_others() {
        let of = |candidate| CaseOutcome { candidate, ..lost(Role::Candidate(1)) };
        assert_eq!([0, 1].map(|candidate| of(candidate).standing()), [DuelStanding::Void, DuelStanding::Regression]);
        assert_eq!(duel_exit_code(&[of(0), of(1)], false), exit_codes::REGRESSION_OR_WRONG);
    }

    #[test]
    fn a_case_that_one_candidate_does_not_have_is_neither_its_loss_nor_open() {
        let mut left_out = lost(Role::Candidate(0));
        left_out.loss.as_mut().unwrap().is_left_out = true;
        assert!(!left_out.is_open());
        let other = CaseOutcome { candidate: 1, ..compared(Verdict::Same, false) };
        assert_eq!(duel_exit_code(&[left_out.clone(), other], false), exit_codes::OK);
        assert_eq!(duel_exit_code(&[left_out], false), exit_codes::NOTHING_MEASURED);
    }

    #[test]
    fn open_cases_can_be_allowed_beside_one_that_is_decided() {
        let code = |cases: &[CaseOutcome]| duel_exit_code(cases, true);
        let open = || compared(Verdict::CannotSay, false);
        for (decided, _) in all_outcomes().into_iter().filter(|(_, code)| *code == 0) {
            assert_eq!(code(&[decided.clone(), open()]), exit_codes::OK);
            assert_eq!(code(&[decided.clone(), compared(Verdict::CannotSay, true)]), exit_codes::UNSTABLE);
            assert_eq!(code(&[decided, lost(Role::Base)]), exit_codes::UNSTABLE);
        }
        assert_eq!(code(&[open()]), exit_codes::UNSTABLE);
        assert_eq!(code(&[open(), compared(Verdict::Slower, false)]), exit_codes::REGRESSION_OR_WRONG);
    }
}
