//! The requested suite, with flags and variables applied, planned as cases on this machine.

use std::path::Path;

use anyhow::{Result, anyhow};

use super::input_sizes::take_sizes_of_references;
use super::protocol::Purpose;
use crate::backend::{Registry, registry};
use crate::catalogue::{add_models_of_suite, operators, read_catalogue, read_suite};
use crate::definition::{PartNumber, Suite, TimedOn};
use crate::paths::Paths;
use crate::run_data::{ProcessSpread, RunFolder};
use crate::selection::{EffortArguments, PlannedCase, Selection, plan};

/// The suite that runs if none is named.
const DEFAULT_SUITE: &str = "quick";

/// A requested run.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub purpose: Purpose,
    /// The suite that runs if none is named, instead of the default one.
    pub own_suite: Option<Suite>,
    pub selection: Selection,
    pub effort: EffortArguments,
    /// Criterion's command line, with its FILTER. Nothing is measured unless `--bench` is in it.
    pub criterion_arguments: Vec<String>,
    /// The id of the run, if the caller has chosen it. Its folder may exist already, without a manifest.
    pub run_id: Option<String>,
    /// Continue the last run where it was stopped.
    pub resume: bool,
    /// The command has `--resume`.
    pub can_resume: bool,
    /// The part of the suite that is measured, if it is not all of it.
    pub part: Option<PartNumber>,
    /// Gets each run of the part that another machine has begun, and the part's folder relative to that of all parts.
    /// It saves that machine's measurements of the anchor before they are replaced, because a killed machine has not
    /// saved them.
    pub keep_of_others: Option<fn(&RunFolder, &Path)>,
    /// Print the expected time of each case, and run nothing.
    pub is_dry: bool,
    /// Measure the speed of the machine before and after the cases, to compare machines. This takes about two seconds.
    pub calibrates: bool,
    /// What the self-test of this machine has found.
    pub selftest: Option<ProcessSpread>,
    /// Print nothing, and measure only times: for figures about the machine, not about a model.
    pub is_silent: bool,
}

impl Request {
    /// A request to measure the cases that the flags choose and whose ids match the filter.
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

/// The requested suite, without the flags: the one that the selection names, or else `own`, or else the default suite.
///
/// # Errors
/// There is no such suite, it is wrong, or the operator models that it includes cannot be written.
pub fn asked_suite(paths: &Paths, own: Option<&Suite>, selection: &Selection) -> Result<Suite> {
    let mut suite = match (own, &selection.suite) {
        (Some(own), None) => own.clone(),
        (_, named) => read_suite(named.as_deref().unwrap_or(DEFAULT_SUITE), &paths.models()?)?,
    };
    // The operators are models with files from here on.
    if std::mem::take(&mut suite.include_operators) {
        suite.models.extend(operators(&paths.operators())?);
    }
    Ok(suite)
}

/// Reads suite and catalogue and plans the cases. The suite is that of [`asked_suite`].
///
/// # Errors
/// The suite, a model name or a filter is wrong.
pub fn make_plan(paths: &Paths, own: Option<&Suite>, selection: &Selection, effort: &EffortArguments) -> Result<Plan> {
    for name in &selection.backend {
        registry::entry(name).map_err(|failure| anyhow!(failure.message))?;
    }
    let mut suite = asked_suite(paths, own, selection)?.with_arguments(selection, effort)?;
    let mut catalogue = read_catalogue(&paths.models()?)?;
    add_models_of_suite(&mut catalogue, &mut suite)?;
    let is_of_samples = suite.boundaries.iter().all(|boundary| suite.inputs_of(*boundary) == TimedOn::Samples);
    take_sizes_of_references(&mut catalogue, is_of_samples);
    let cases = plan(&suite, selection, &catalogue, &Registry)?;
    Ok(Plan { suite, cases })
}
