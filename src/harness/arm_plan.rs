//! Plans the arms of a duel: everything that is done once for an executable, and not in each of its processes.

use std::path::PathBuf;

use anyhow::Result;

use super::input_sizes::find_sizes_and_ranges;
use super::plan::{Plan, make_plan};
use super::protocol::{ARM_PROTOCOL, ArmCase, ArmPlan, ArmStart, Job, Purpose, WorkItem};
use super::supervisor::{Supervisor, grouped, worker_environment};
use crate::definition::{CaseFailure, Dimension, Effort, Sizes, Status, Suite, TensorSpec};
use crate::paths::Paths;
use crate::run_data::files::write_json;
use crate::run_data::{Outcome, RunFolder};
use crate::selection::{EffortArguments, PlannedCase, Selection};

/// What an executable is asked to plan.
#[derive(clap::Args, Clone, Debug)]
pub struct ArmRequest {
    #[command(flatten)]
    pub selection: Selection,
    #[command(flatten)]
    pub effort: EffortArguments,
    /// The folder for the jobs
    #[arg(long, value_name = "PATH")]
    pub folder: PathBuf,
    /// Processors that threads are pinned to, in the order in which threads get them
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub processors: Vec<usize>,
}

/// Plans the cases, prepares their artifacts, compares their outputs once, and writes a job for each case that can be
/// measured. `own_suite` replaces the default suite.
///
/// # Errors
/// The suite or a filter is wrong, the user has stopped it ([`Interrupted`](super::Interrupted)), or the folder cannot be
/// written.
pub fn plan_arms(paths: &Paths, own_suite: Option<&Suite>, request: &ArmRequest) -> Result<ArmPlan> {
    let Plan { suite, mut cases } = make_plan(paths, own_suite, &request.selection, &request.effort)?;
    let mut prepared = find_sizes_and_ranges(&mut cases, |_| true, &suite.effort, paths)?;
    let effort = Effort { watch: false, threads: Some(suite.effort.effective_threads()), ..suite.effort };
    let work: Vec<_> = cases.iter().map(|planned| prepared.work_item(planned, paths)).collect();
    let folder = RunFolder::new(request.folder.join("verification"));
    fs_err::create_dir_all(folder.path())?;
    let job = Job::new(Purpose::Verify, &folder, &paths.criterion(), &effort);
    Supervisor::silent(job, grouped(work.iter().flatten().cloned().collect())).run()?;
    let outcomes = folder.read_outcomes()?.finished;
    let mut planned = Vec::new();
    for (PlannedCase { case, model, .. }, work) in cases.iter().zip(&work) {
        let id = case.to_string();
        let inputs = model.as_ref().ok().and_then(|model| describe_inputs(&model.inputs, case.sizes()));
        let verified = work.as_ref().map_err(CaseFailure::clone).and_then(|item| match outcomes.get(&id) {
            Some(Outcome { row, .. }) if row.status == Status::Ok => Ok(item),
            Some(Outcome { row, .. }) => Err(CaseFailure::new(row.status, row.message.clone().unwrap_or_default())),
            None => Err(CaseFailure::failed("the process ended before this case")),
        });
        let version = outcomes.get(&id).and_then(|outcome| outcome.row.library_version.as_ref());
        let library = version.map(|version| format!("{} {version}", case.backend));
        let files_sha256 = work.as_ref().ok().and_then(|item| item.artifacts.sha256_of_all().ok());
        let (status, message, start) = match verified {
            Ok(item) => (Status::Ok, None, Some(start(request, &effort, item, planned.len())?)),
            Err(CaseFailure { status, message }) => (status, Some(message), None),
        };
        let is_verified = outcomes.get(&id).map(|outcome| outcome.row.verified == Some(true));
        planned.push(ArmCase { id, status, message, start, inputs, library, files_sha256, is_verified });
    }
    Ok(ArmPlan { protocol: ARM_PROTOCOL, cases: planned })
}

/// The inputs without their names, which do not change the work: `f32[1,3,224,224] i64[1,7]<100`.
fn describe_inputs(inputs: &[TensorSpec], sizes: Sizes) -> Option<String> {
    let text = |input: &TensorSpec| {
        let shape = input.concrete_shape(sizes).ok()?.into_iter().map(Dimension::Fixed).collect();
        let text = TensorSpec { name: String::new(), shape, ..input.clone() }.to_string();
        Some(text.trim_start_matches(':').to_owned())
    };
    Some(inputs.iter().map(text).collect::<Option<Vec<_>>>()?.join(" "))
}

/// Writes the job of a case, and returns how an arm is started with it.
fn start(request: &ArmRequest, effort: &Effort, item: &WorkItem, number: usize) -> Result<ArmStart> {
    let processors = request.processors.get(..effort.effective_threads()).unwrap_or_default().to_vec();
    let path = request.folder.join(format!("{number:04}.json"));
    let folder = RunFolder::new(request.folder.clone());
    let job = Job::new(Purpose::MeasureAgain, &folder, folder.path(), effort);
    let job = Job { work: vec![item.clone()], processors, ..job };
    write_json(&path, &job)?;
    let environment = worker_environment(&job).into_iter();
    let environment =
        environment.map(|(name, value)| (name.to_owned(), value.to_string_lossy().into_owned())).collect();
    let processors = job.processors;
    Ok(ArmStart { job: path, environment, processors, timeout_seconds: effort.timeout_seconds, loads_elsewhere: true })
}
