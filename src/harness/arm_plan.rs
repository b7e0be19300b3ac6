//! Plans the arms of a duel: everything that is done once for an executable, and not in each of its processes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;

use super::input_sizes::find_sizes;
use super::plan::{Plan, make_plan};
use super::protocol::{ARM_PROTOCOL, ArmCase, ArmPlan, ArmStart, Job, Preparations, Purpose, WorkItem};
use super::supervisor::{RunEnd, Supervisor, grouped, worker_environment};
use crate::definition::{CaseFailure, Effort, Status};
use crate::paths::Paths;
use crate::run_data::{CriterionArguments, RunFolder};
use crate::selection::{EffortArguments, PlannedCase, Selection};

/// What an executable is asked to plan.
#[derive(clap::Args, Clone, Debug)]
pub struct ArmRequest {
    #[command(flatten)]
    pub selection: Selection,
    #[command(flatten)]
    pub effort: EffortArguments,
    /// Where the jobs go
    #[arg(long, value_name = "PATH")]
    pub folder: PathBuf,
    /// Processors that threads are pinned to, in the order in which threads get them
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub processors: Vec<usize>,
}

/// Plans the cases, prepares their artifacts, compares their outputs once, and writes a job for each case that can be
/// measured. Returns `None` if the user stopped it.
///
/// # Errors
/// The suite or a filter is wrong, or the folder cannot be written.
pub fn plan_arms(paths: &Paths, request: &ArmRequest) -> Result<Option<ArmPlan>> {
    let Plan { suite, mut cases } = make_plan(paths, &request.selection, &request.effort)?;
    let mut failures: BTreeMap<String, CaseFailure> = BTreeMap::new();
    let mut runnable = Vec::new();
    let mut prepared = Preparations::default();
    find_sizes(&mut cases, |_| true, &suite.effort, paths, &mut prepared)?;
    let effort = Effort { watch: false, threads: Some(suite.effort.effective_threads()), ..suite.effort };
    for planned in &cases {
        match prepared.work_item(planned, paths) {
            Ok(item) => runnable.push(item),
            Err(failure) => drop(failures.insert(planned.case.to_string(), failure)),
        }
    }
    let folder = RunFolder::new(request.folder.join("verification"));
    fs_err::create_dir_all(folder.path())?;
    let supervisor = Supervisor {
        job: Job::new(Purpose::Verify, &folder, &paths.criterion(), &effort),
        folder: &folder,
        groups: grouped(runnable.clone()),
        arguments: Vec::new(),
        parsed: &CriterionArguments::default(),
        is_silent: true,
        debug: false,
        expected_seconds: BTreeMap::new(),
    };
    if supervisor.run()? == RunEnd::Interrupted {
        return Ok(None);
    }
    let outcomes = folder.read_outcomes().finished;
    let mut planned = Vec::new();
    for PlannedCase { case, .. } in &cases {
        let id = case.to_string();
        let (status, message) = match (failures.get(&id), outcomes.get(&id)) {
            (Some(failure), _) => (failure.status, Some(failure.message.clone())),
            (None, Some(outcome)) => (outcome.status, outcome.message.clone()),
            (None, None) => (Status::Failed, Some("its process ended before it".into())),
        };
        let verified = runnable.iter().find(|item| item.case == *case).filter(|_| status == Status::Ok);
        let start = verified.map(|work| start(request, &effort, work, planned.len())).transpose()?;
        planned.push(ArmCase { id, status, message, start });
    }
    Ok(Some(ArmPlan { protocol: ARM_PROTOCOL, cases: planned }))
}

/// Writes the job of a case, and says how an arm is started with it.
fn start(request: &ArmRequest, effort: &Effort, item: &WorkItem, number: usize) -> Result<ArmStart> {
    let processors = request.processors.get(..effort.effective_threads()).unwrap_or_default().to_vec();
    let path = request.folder.join(format!("{number:04}.json"));
    let folder = RunFolder::new(request.folder.clone());
    let job = Job::new(Purpose::MeasureUnverified, &folder, folder.path(), effort);
    let job = Job { work: vec![item.clone()], processors, ..job };
    job.write(&path)?;
    let environment = worker_environment(&job).into_iter();
    let environment =
        environment.map(|(name, value)| (name.to_owned(), value.to_string_lossy().into_owned())).collect();
    let processors = job.processors;
    Ok(ArmStart { job: path, environment, processors, timeout_seconds: effort.timeout_seconds })
}
