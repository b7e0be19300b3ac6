//! The only code that drives Criterion.
//!
//! `cargo bench` and `inferbench run` both end up in [`run`]. It plans the cases, prepares their artifacts, writes the
//! run's manifest, and starts this executable once more for each backend and device; in such a child [`run_as_child`] does
//! the work.

mod arguments;
mod assignment;
mod calibration;
mod child;
mod cold_start;
mod conditions;
mod container;
mod doctor;
mod estimate;
mod evaluation;
mod machine;
mod manifest;
mod parent;
mod peer;
mod preparation;
mod proof;
mod relay;
mod resume;
mod round;
mod run;
mod trial;

pub use arguments::{CriterionArguments, IdFilter, Mode};
pub use assignment::Purpose;
pub use calibration::calibrate;
pub use conditions::Conditions;
pub use doctor::{Finding, State, examine};
pub use estimate::{Estimate, estimate};
pub use evaluation::Evaluation;
pub use machine::{Machine, Revision};
pub use manifest::{
    ColdStart, Event, Judgement, MANIFEST_FORMAT, Manifest, ManifestCase, Observed, Outcome, Outcomes, RunFolder,
};
pub use parent::{is_interrupted, is_interrupted_with};
pub use preparation::prepare_model;
pub use round::{CallFigures, ROUND_FORMAT, RoundCase, RoundReport, RoundRequest, RoundTerms, run_round};
pub use run::{FinishedRun, Request, keep_others_out, run, run_silently};

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::backend::{self, Registry};
use crate::definition::{
    EffortArguments, PlannedCase, Selection, Suite, add_models_of_suite, plan, read_catalogue, read_suite,
};
use crate::exit_codes;
use crate::paths::Paths;

/// Does what another process has started this one for, and says how it ended; nothing in a process that a user has
/// started.
pub fn run_as_child() -> Option<ExitCode> {
    if let Some(asked) = backend::asked_by_probe() {
        return Some(backend::answer_probe(&asked));
    }
    let assignment = std::env::var_os(assignment::ASSIGNMENT)?;
    Some(child::run(Path::new(&assignment)))
}

/// The suite and the filters, planned on this machine.
pub struct Plan {
    pub suite: Suite,
    pub cases: Vec<PlannedCase>,
}

/// Reads suite and catalogue and plans the cases.
///
/// # Errors
/// The suite, a model name or a filter is wrong.
pub fn make_plan(paths: &Paths, selection: &Selection, effort: &EffortArguments) -> Result<Plan, String> {
    let suite = read_suite(&selection.suite, &paths.models())?.with_arguments(selection, effort)?;
    let mut catalogue =
        read_catalogue(&paths.models()).map_err(|error| format!("{}: {error}", paths.models().display()))?;
    add_models_of_suite(&mut catalogue, &suite)?;
    let cases = plan(&suite, selection, &catalogue, &Registry)?;
    Ok(Plan { suite, cases })
}

/// What the flags and variables of a bench executable say; `cargo bench` passes only Criterion's flags, so these are
/// read from the environment.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct BenchVariables {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    effort: EffortArguments,
}

/// `main` of the bench executable `inference`.
pub fn bench_main() -> ExitCode {
    run_benchmarks(Purpose::Measure, |_| {})
}

/// `main` of the bench executable `load`: cold starts. The medians of their parts are printed at the end, separated by
/// tabs.
pub fn load_main() -> ExitCode {
    run_benchmarks(Purpose::Load, |folder| {
        let outcomes = folder.read_outcomes().finished;
        println!("case\tload_time_ms\tcompilation_time_ms\tfirst_inference_ms");
        for (id, Observed { load_ms, compilation_ms, first_inference_ms, .. }) in
            outcomes.into_iter().map(|(id, outcome)| (id, outcome.observed))
        {
            let cell = |ms: Option<f64>| ms.map(|ms| format!("{ms:.3}")).unwrap_or_default();
            println!("{id}\t{}\t{}\t{}", cell(load_ms), cell(compilation_ms), cell(first_inference_ms));
        }
    })
}

fn run_benchmarks(purpose: Purpose, show: impl FnMut(&RunFolder)) -> ExitCode {
    if let Some(code) = run_as_child() {
        return code;
    }
    let BenchVariables { selection, effort } = BenchVariables::parse_from(std::iter::empty::<&str>());
    let criterion_arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&Request { purpose, selection, effort, criterion_arguments, resume: false }) {
        Ok(finished) => {
            finished.folder.iter().for_each(show);
            ExitCode::from(finished.exit_code)
        }
        Err(error) => {
            eprintln!("inferbench: {error}");
            ExitCode::from(exit_codes::USAGE)
        }
    }
}
