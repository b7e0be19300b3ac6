//! What a duel has shown of every case, and the exit code that follows from it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::duet::{DuetPlan, PairedChange, Role};
use super::verdict::Verdict;
use crate::definition::Status;
use crate::exit_codes;
use crate::machine::Machine;

/// Changes when an older reader would misunderstand the files of a duel.
pub const DUEL_FORMAT: u32 = 3;

/// A program that takes part in a duel: an executable, and the project that it works with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// As the user named it: `HEAD~1`, `.`, a path.
    pub name: String,
    pub commit: Option<String>,
    /// Takes the place of the suite that the command line names.
    pub suite: Option<PathBuf>,
    pub suite_sha256: Option<String>,
    pub executable: PathBuf,
    pub sha256: String,
    /// The project's folder.
    pub root: PathBuf,
    /// The Python environment whose runtimes it uses, if it was named.
    #[serde(default)]
    pub environment: Option<PathBuf>,
}

impl Program {
    /// Whether both do the same work by the same machine code.
    pub fn is_same_as(&self, other: &Program) -> bool {
        let work = |of: &Program| (of.sha256.clone(), of.root.clone(), of.suite_sha256.clone(), of.environment.clone());
        work(self) == work(other)
    }
}

/// Why a case has no figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Whose it is: the base's (or all programs'), so that nothing can be compared, or a candidate's alone.
    pub role: Role,
    pub status: Status,
    pub message: String,
}

impl Loss {
    /// Whether only a candidate cannot run the case.
    pub fn is_candidates(&self) -> bool {
        matches!(self.role, Role::Candidate(_))
    }
}

/// One case of a duel with one of its candidates: it has a comparison, or a loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseOutcome {
    pub id: String,
    /// The place of the candidate in [`Duel::candidates`].
    pub candidate: usize,
    pub plan: Option<DuetPlan>,
    pub comparison: Option<PairedChange>,
    pub loss: Option<Loss>,
}

/// A duel that has come to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Duel {
    pub format: u32,
    pub name: String,
    pub base: Program,
    pub candidates: Vec<Program>,
    pub null_slowdown: Option<f64>,
    pub seed: u64,
    pub tolerance: f64,
    /// Length of a slice of short calls.
    pub slice_ms: f64,
    /// The processors that the arms' threads are pinned to; empty if they are not pinned.
    pub processors: Vec<usize>,
    /// Seconds of all generations.
    pub seconds: f64,
    pub machine: Machine,
    /// Every case with every candidate, the candidates of one case beside each other.
    pub cases: Vec<CaseOutcome>,
    /// One of [`exit_codes`].
    pub exit_code: u8,
}

/// The exit code of a duel with these cases.
///
/// A case that only a candidate lost is a regression that no noise explains. A case that the base lost can neither
/// confirm nor deny anything, and a null control that moved makes every verdict of the duel doubtful.
pub fn duel_exit_code(cases: &[CaseOutcome]) -> u8 {
    let compared: Vec<&PairedChange> = cases.iter().filter_map(|case| case.comparison.as_ref()).collect();
    let has_verdict = |verdict| compared.iter().any(|found| found.verdict == verdict);
    let is_lost = |by_candidate: bool| {
        cases.iter().filter_map(|case| case.loss.as_ref()).any(|loss| loss.is_candidates() == by_candidate)
    };
    if is_lost(true) {
        exit_codes::REGRESSION_OR_WRONG
    } else if compared.iter().any(|found| found.is_null_changed) {
        exit_codes::UNSTABLE
    } else if has_verdict(Verdict::Slower) {
        exit_codes::REGRESSION_OR_WRONG
    } else if is_lost(false) {
        exit_codes::UNSTABLE
    } else if compared.is_empty() {
        exit_codes::NOTHING_MEASURED
    } else if compared.iter().all(|found| found.verdict == Verdict::CannotSay) {
        exit_codes::UNSTABLE
    } else {
        exit_codes::OK
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
            floor: 0.0,
            mean_ratio: 1.0,
            is_mean_apart: false,
            generations: 12,
            slices: 60,
            base_ns: 1.0,
            candidate_ns: 1.0,
        };
        CaseOutcome { id: "m/x/1".into(), candidate: 0, plan: None, comparison: Some(comparison), loss: None }
    }

    fn lost(role: Role) -> CaseOutcome {
        let loss = Loss { role, status: Status::Failed, message: "killed".into() };
        CaseOutcome { id: "m/x/2".into(), candidate: 0, plan: None, comparison: None, loss: Some(loss) }
    }

    #[test]
    fn a_lost_case_never_vanishes_behind_the_others() {
        let same = || compared(Verdict::Same, false);
        assert_eq!(duel_exit_code(&[same()]), exit_codes::OK);
        assert_eq!(duel_exit_code(&[same(), lost(Role::Base)]), exit_codes::UNSTABLE);
        assert_eq!(duel_exit_code(&[lost(Role::Null)]), exit_codes::UNSTABLE);
        assert_eq!(duel_exit_code(&[same(), lost(Role::Candidate(0))]), exit_codes::REGRESSION_OR_WRONG);
        let slower = || compared(Verdict::Slower, false);
        assert_eq!(duel_exit_code(&[slower(), lost(Role::Base)]), exit_codes::REGRESSION_OR_WRONG);
        assert_eq!(duel_exit_code(&[slower(), compared(Verdict::CannotSay, true)]), exit_codes::UNSTABLE);
        assert_eq!(duel_exit_code(&[]), exit_codes::NOTHING_MEASURED);
    }
}
