//! Asks a worker process about each selected case, one case after the other.

use anyhow::{Error, Result, ensure};
use clap::Parser;

use super::input_sizes::find_sizes_and_ranges;
use super::plan::{Plan, Request, make_plan};
use super::protocol::{Preparations, WorkItem};
use super::supervisor::{Interrupted, of_case};
use crate::definition::{Case, CaseFailure, Effort};
use crate::paths::Paths;
use crate::run_data::CriterionArguments;
use crate::selection::PlannedCase;

/// The message if no case passes the filter.
pub(super) const NO_CASE: &str =
    "no case matches; `inferbench run --dry-run` or `cargo bench -- --list` lists the cases";

/// The cases that the suite, filters and Criterion's arguments select, ready to run.
pub struct AskedCases {
    pub effort: Effort,
    cases: Vec<PlannedCase>,
    preparations: Preparations,
}

impl AskedCases {
    /// # Errors
    /// The request is wrong, or no case matches.
    pub fn select(paths: &Paths, request: &Request) -> Result<Self> {
        let filter = CriterionArguments::parse_from(&request.criterion_arguments).id_filter()?;
        let own = request.own_suite.as_ref();
        let Plan { suite, mut cases } = make_plan(paths, own, &request.selection, &request.effort)?;
        cases.retain(|planned| filter.is_match(&planned.case.to_string()));
        ensure!(!cases.is_empty(), NO_CASE);
        let preparations = find_sizes_and_ranges(&mut cases, |_| true, &suite.effort, paths)?;
        Ok(AskedCases { effort: suite.effort, cases, preparations })
    }

    /// Calls `ask` for each case, and prints a progress line that begins with `doing`. A [`CaseFailure`], also of
    /// `ask`, is the answer for its case. If the user stops it, the answers until then are returned.
    ///
    /// # Errors
    /// Any other error of `ask`; or the user has stopped it before a case succeeded.
    pub fn ask_each<T>(
        mut self,
        paths: &Paths,
        doing: &str,
        mut ask: impl FnMut(WorkItem) -> Result<T>,
    ) -> Result<Vec<(Case, Result<T, CaseFailure>)>> {
        let (mut answers, count) = (Vec::new(), self.cases.len());
        for (number, planned) in self.cases.iter().enumerate() {
            eprintln!("{doing} [{}/{count}] {}", number + 1, planned.case);
            let item = self.preparations.work_item(planned, paths).map_err(Error::from);
            let answer = of_case(item.and_then(&mut ask));
            if answer.as_ref().is_err_and(|error| error.is::<Interrupted>())
                && answers.iter().any(|(_, it): &(_, Result<T, _>)| it.is_ok())
            {
                eprintln!("interrupted: {number} of {count} cases are finished");
                break;
            }
            let answer = answer?;
            if let Err(failure) = &answer {
                eprintln!("  {failure}");
            }
            answers.push((planned.case.clone(), answer));
        }
        Ok(answers)
    }
}
