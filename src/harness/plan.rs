//! What is asked for: the suite with flags and variables on top, planned as cases on this machine.

use std::path::Path;

use anyhow::Result;

use super::input_sizes::take_sizes_of_references;
use super::protocol::Purpose;
use crate::backend::Registry;
use crate::catalogue::{add_models_of_suite, operators, read_catalogue, read_suite};
use crate::definition::{PartNumber, Suite};
use crate::paths::Paths;
use crate::run_data::{ProcessSpread, RunFolder};
use crate::selection::{EffortArguments, PlannedCase, Selection, plan};

/// The suite that runs where none is named.
const DEFAULT_SUITE: &str = "quick";

/// A run as it is asked for.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub purpose: Purpose,
    /// The suite that runs where none is named, in place of the default one.
    pub own_suite: Option<Suite>,
    pub selection: Selection,
    pub effort: EffortArguments,
    /// Criterion's command line, with its FILTER. Nothing is measured unless `--bench` is in it.
    pub criterion_arguments: Vec<String>,
    /// The id of the run, for a program that has chosen it. Its folder may be there already, without a manifest.
    pub run_id: Option<String>,
    /// Go on with the last run from where it was stopped.
    pub resume: bool,
    /// The part of the suite that is measured, if it is not all of it.
    pub part: Option<PartNumber>,
    /// Gets each run of the part that another machine has begun, and the folder of the part among all parts, before its measurements of the
    /// anchor are replaced: a machine that was killed has not put them anywhere.
    pub keep_of_others: Option<fn(&RunFolder, &Path)>,
    /// Print about how long each case takes, and run nothing.
    pub is_dry: bool,
    /// Look at the speed of the machine before and after the cases, for a comparison with other machines. It takes about two seconds.
    pub calibrates: bool,
    /// What the self-test of this machine has found.
    pub selftest: Option<ProcessSpread>,
    /// Without a word, for figures about the machine and not about a model; nothing but time is measured.
    pub is_silent: bool,
}

impl Request {
    /// To measure what the flags choose, and of that the cases whose ids match a filter.
    pub fn of(selection: Selection, effort: &EffortArguments, filter: Option<String>) -> Self {
        let criterion_arguments = std::iter::once("--bench".to_owned()).chain(filter).collect();
        Request { selection, effort: effort.clone(), criterion_arguments, ..Request::default() }
    }
}

/// The suite and the filters, planned on this machine.
pub struct Plan {
    pub suite: Suite,
    pub cases: Vec<PlannedCase>,
}

/// The suite that is asked for, as it is written: `own`, if there is one, unless the selection names another.
///
/// # Errors
/// There is no such suite, it is wrong, or the files that it includes cannot be made.
pub fn asked_suite(paths: &Paths, own: Option<&Suite>, selection: &Selection) -> Result<Suite> {
    let mut suite = match (own, &selection.suite) {
        (Some(own), None) => own.clone(),
        (_, named) => read_suite(named.as_deref().unwrap_or(DEFAULT_SUITE), &paths.models()?)?,
    };
    // From here on they are models with files.
    if std::mem::take(&mut suite.include_operators) {
        suite.models.extend(operators(&paths.operators())?);
    }
    Ok(suite)
}

/// Reads suite and catalogue and plans the cases. The suite is `own`, if there is one, unless the selection names another.
///
/// # Errors
/// The suite, a model name or a filter is wrong.
pub fn make_plan(paths: &Paths, own: Option<&Suite>, selection: &Selection, effort: &EffortArguments) -> Result<Plan> {
    let mut suite = asked_suite(paths, own, selection)?.with_arguments(selection, effort)?;
    let mut catalogue = read_catalogue(&paths.models()?)?;
    add_models_of_suite(&mut catalogue, &mut suite)?;
    take_sizes_of_references(&mut catalogue);
    let cases = plan(&suite, selection, &catalogue, &Registry)?;
    Ok(Plan { suite, cases })
}
