//! Asks a worker process about each selected case, one case after the other.

use std::path::Path;

use anyhow::{Error, Result, bail};
use clap::Parser;

use super::input_sizes::find_sizes_and_ranges;
use super::plan::{Plan, Request, make_plan};
use super::protocol::{Preparations, WorkItem};
use super::supervisor::{Interrupted, of_case};
use crate::definition::{Case, CaseFailure, Effort};
use crate::paths::Paths;
use crate::report::numbers::plural;
use crate::run_data::CriterionArguments;
use crate::selection::{PlannedCase, Selection};

/// No case passes the filter.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoCase(String);

impl NoCase {
    /// The most ids in the message.
    const MOST_IDS: usize = 3;

    /// The message names the filter, and the nearest of all cases that the suite and the flags leave.
    pub(super) fn new(filter: Option<&str>, suite: &str, selection: &Selection, cases: &[PlannedCase]) -> Self {
        let filter = filter.unwrap_or_default();
        let likeness = |id: &String| strsim::jaro_winkler(filter, id);
        let mut ids: Vec<String> = cases.iter().map(|planned| planned.case.to_string()).collect();
        ids.sort_by(|one, other| likeness(other).total_cmp(&likeness(one)));
        ids.truncate(Self::MOST_IDS);
        let path = Path::new(filter);
        let looks_like_path = filter.contains('/') || path.extension().is_some();
        let onnx = format!("{filter}.onnx");
        let file = match () {
            () if Path::new(&onnx).is_file() => format!(", but there is a file {onnx}"),
            () if looks_like_path && !path.exists() => ", and there is no such file or folder".to_owned(),
            () => String::new(),
        };
        // Named files replace the suite's models.
        let has_files = !selection.files.is_empty() || !selection.path.is_empty();
        let files = if has_files { "the named files and " } else { "" };
        let matched =
            if filter.is_empty() { "no case matches".to_owned() } else { format!("no case matches {filter:?}{file}") };
        NoCase(format!(
            "{matched}. The suite {suite} with {files}the given flags has {}; most like the filter: {}. \
             `inferbench run --dry-run` or `cargo bench -- --list` lists the cases; `--suite` and `--model` choose others",
            plural(cases.len(), "case", "cases"),
            ids.join(", ")
        ))
    }
}

/// The cases that the suite, filters and Criterion's arguments select, ready to run.
pub struct AskedCases {
    pub effort: Effort,
    cases: Vec<PlannedCase>,
    preparations: Preparations,
}

impl AskedCases {
    /// # Errors
    /// The request is wrong, or no case matches ([`NoCase`]).
    pub fn select(paths: &Paths, request: &Request) -> Result<Self> {
        let parsed = CriterionArguments::parse_from(&request.criterion_arguments);
        let filter = parsed.id_filter()?;
        let own = request.own_suite.as_ref();
        let Plan { suite, mut cases } = make_plan(paths, own, &request.selection, &request.effort)?;
        if !cases.iter().any(|planned| filter.is_match(&planned.case.to_string())) {
            bail!(NoCase::new(parsed.filter.as_deref(), &suite.name, &request.selection, &cases));
        }
        cases.retain(|planned| filter.is_match(&planned.case.to_string()));
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
                eprintln!("interrupted: {number} of {} finished", plural(count, "case", "cases"));
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
