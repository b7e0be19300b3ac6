//! The manifest of a new run, and whether a stopped run can be resumed: cases, files, samples, machine and build have
//! to be the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;

use super::plan::Request;
use super::protocol::{Purpose, WorkItem};
use crate::backend::registry;
use crate::definition::{Boundary, Case, CaseFailure, Effort, Suite, SuiteModel, TimedOn};
use crate::fixture;
use crate::machine::processes::own_executable;
use crate::machine::{Machine, Revision};
use crate::onnx::count;
use crate::paths::Paths;
use crate::report::numbers::plural;
use crate::run_data::files::unused_name;
use crate::run_data::{CriterionArguments, Event, Manifest, ManifestCase, RunFolder};
use crate::selection::PlannedCase;

/// The manifest of a run that begins now.
pub fn new_manifest(
    request: &Request,
    parsed: &CriterionArguments,
    paths: &Paths,
    runs: &Path,
    criterion_root: PathBuf,
    suite: Suite,
    cases: Vec<ManifestCase>,
) -> Manifest {
    let started = Timestamp::now();
    let run_id = request.run_id.clone().unwrap_or_else(|| unused_name(runs, started));
    Manifest {
        arguments: request.criterion_arguments.clone(),
        inferbench_version: env!("CARGO_PKG_VERSION").into(),
        rustc_version: env!("INFERBENCH_RUSTC").into(),
        program: own_program(),
        revision: Revision::read(paths.root()),
        machine: Machine::read(),
        criterion_root,
        saved_baseline: parsed.save_baseline.clone(),
        compared_baseline: parsed.baseline.clone().or(parsed.baseline_lenient.clone()),
        is_quick: parsed.quick,
        is_unverified: request.purpose == Purpose::MeasureUnverified,
        ..Manifest::begun(run_id, started, suite, cases)
    }
}

/// The size and the time of the running executable, which differ for a later build at the same path.
fn own_program() -> Option<String> {
    let metadata = own_executable().ok()?.metadata().ok()?;
    let changed = metadata.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(format!("{} bytes of {}", metadata.len(), changed.as_nanos()))
}

/// The cases of a manifest. `work` has the work item of each case, or why it cannot run. Files and samples are hashed
/// only for runs that may be resumed.
pub fn manifest_cases(
    selected: &[&PlannedCase],
    work: &[Result<WorkItem, CaseFailure>],
    prepared: &Path,
    may_be_resumed: bool,
) -> Vec<ManifestCase> {
    // These take long, so each is found only once: most cases share files, samples or graphs.
    let (mut costs, mut nonzero_parameters) = (BTreeMap::new(), BTreeMap::new());
    let (mut files, mut samples, mut identities) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut networks = BTreeMap::new();
    let manifest_case = |(planned, work): (&&PlannedCase, &Result<WorkItem, CaseFailure>)| {
        let case = planned.case.clone();
        let (described, model) = (planned.definition.as_ref().ok(), planned.model.as_ref().ok());
        let hashed = work.as_ref().ok().filter(|_| may_be_resumed);
        let counted = model.filter(|_| is_cost_known(&case)).and_then(|model| {
            let sizes = (case.batch_size, case.dims.clone(), case.sequence_length);
            let key = (model.artifact_folder_name(), model.blocks().is_some(), case.phase, sizes);
            costs.entry(key).or_insert_with(|| count(model, case.phase, case.sizes()).ok()).clone()
        });
        let (cost, operators) = counted.unzip();
        ManifestCase {
            framework: registry::framework(&case.backend).into(),
            family: described.map(|model| model.family.clone()).unwrap_or_default(),
            modality: described.map(|model| model.modality.clone()).unwrap_or_default(),
            parameters: model.and_then(|model| model.parameters),
            nonzero_parameters: model.and_then(|model| {
                let count = || fixture::nonzero_parameters(model, prepared).ok().flatten();
                *nonzero_parameters.entry(model.artifact_folder_name()).or_insert_with(count)
            }),
            cost,
            operators: operators.into_iter().flatten().collect(),
            files_sha256: hashed.and_then(|WorkItem { artifacts, .. }| {
                let hash = || artifacts.sha256_of_all().ok();
                files.entry(format!("{artifacts:?}")).or_insert_with(hash).clone()
            }),
            model_sha256: hashed.and_then(|WorkItem { model, .. }| {
                let hash = || fixture::sha256_of_network(model).ok();
                networks.entry(model.artifact_folder_name()).or_insert_with(hash).clone()
            }),
            definition_sha256: hashed.map(|WorkItem { model, .. }| {
                // Without paths, which may be others where a scheduler starts a part again.
                let said =
                    (&model.inputs, &model.parts, &model.phases, &model.generation, &model.tolerance, &model.judge);
                fixture::sha256_of_bytes(format!("{said:?}").as_bytes())
            }),
            samples_sha256: hashed.and_then(|WorkItem { model, .. }| {
                let hash = || fixture::sha256_of_samples(&model.data_source).ok().flatten();
                samples.entry(format!("{:?}", model.data_source)).or_insert_with(hash).clone()
            }),
            timed_samples: model.filter(|_| case.timed_on == TimedOn::Samples).and_then(|model| {
                let identity = || fixture::identity_of_samples(&model.data_source).ok();
                identities.entry(format!("{:?}", model.data_source)).or_insert_with(identity).clone()
            }),
            failure: work.as_ref().err().cloned(),
            case,
        }
    };
    selected.iter().zip(work).map(manifest_case).collect()
}

/// Whether each call is exactly the graph's operations: a pipeline does more, and texts have different lengths.
fn is_cost_known(case: &Case) -> bool {
    case.boundary != Boundary::Pipeline && (case.timed_on == TimedOn::Seeded || case.sequence_length.is_none())
}

/// The last run, if it was started for the same cases. It is complete if nothing is left to do; otherwise it continues,
/// and its failed cases are opened again.
///
/// # Errors
/// There is no run, it is unreadable, or it was started for something else; the message says what differs.
pub fn last_run(runs: &Path, planned: &Manifest) -> Result<(RunFolder, Manifest)> {
    let (folder, last) = read_last(runs)?;
    check_same(&last, difference(&last, planned))?;
    let can_run_now =
        last.cases.iter().zip(&planned.cases).any(|(before, now)| before.failure.is_some() && now.failure.is_none());
    let outcomes = folder.read_outcomes()?;
    let failed = outcomes.failed(last.suite.effort.processes);
    if last.is_complete() && failed.is_empty() && !can_run_now {
        return Ok((folder, last));
    }
    // Written before cases are opened again: a process killed in between must not leave a run that looks complete.
    folder.write_manifest(&Manifest { finished: None, ..last.clone() })?;
    for id in &failed {
        eprintln!("measuring again what failed: {id}");
        folder.append(&Event::Reopened { id: (*id).to_owned() })?;
    }
    resumed(folder, last, planned)
}

/// Checks that the last run was asked for the same, as far as this can be said before anything is prepared: `planned`
/// has no more of its cases than their ids.
///
/// # Errors
/// There is no run, it is unreadable, or it was started for something else; the message says what differs.
pub fn check_asked(runs: &Path, planned: &Manifest) -> Result<()> {
    let (_, last) = read_last(runs)?;
    check_same(&last, other_request(&last, planned))
}

fn read_last(runs: &Path) -> Result<(RunFolder, Manifest)> {
    let folder = RunFolder::find(runs, None)?;
    let last = folder.read_manifest().context("the last run cannot be resumed; a new one needs no `--resume`")?;
    Ok((folder, last))
}

/// Continues a stopped run. Cases that could not run then are planned again.
fn resumed(folder: RunFolder, stopped: Manifest, planned: &Manifest) -> Result<(RunFolder, Manifest)> {
    let (finished, cases) = (folder.read_outcomes()?.finished.len(), plural(stopped.cases.len(), "case", "cases"));
    eprintln!("resuming run {}: {finished} of {cases} finished", stopped.run_id);
    let known = stopped.cases.into_iter().zip(&planned.cases);
    let cases = known.map(|(before, now)| if before.failure.is_some() { now.clone() } else { before });
    Ok((folder, Manifest { finished: None, is_interrupted: false, cases: cases.collect(), ..stopped }))
}

/// Continues a stopped run of a part, without the cases that other machines have finished since.
///
/// # Errors
/// It was started for something else; the message says what differs.
pub fn resumed_part(
    (folder, mut stopped): (RunFolder, Manifest),
    planned: &Manifest,
    finished_elsewhere: &BTreeSet<String>,
) -> Result<(RunFolder, Manifest)> {
    stopped.cases.retain(|known| !finished_elsewhere.contains(&known.case.to_string()));
    check_same(&stopped, difference(&stopped, planned))?;
    resumed(folder, stopped, planned)
}

fn check_same(stopped: &Manifest, difference: Option<String>) -> Result<()> {
    let Some(what) = difference else { return Ok(()) };
    bail!(
        "run {}, the last one, had other {what}: it cannot be resumed by this command; repeat its own command, or leave out `--resume`",
        stopped.run_id
    )
}

/// What differs between a stopped run and the planned one. Returns `None` if the stopped run can continue.
fn difference(stopped: &Manifest, planned: &Manifest) -> Option<String> {
    let request = other_request(stopped, planned);
    request.or_else(|| no_longer_runnable(stopped, planned)).or_else(|| other_files(stopped, planned))
}

/// What differs in the command, the build, the machine or the definitions of the models.
fn other_request(stopped: &Manifest, planned: &Manifest) -> Option<String> {
    let settings =
        |effort: &Effort| Effort { shuffle: effort.shuffle.and(stopped.suite.effort.shuffle), ..effort.clone() };
    let ids = |manifest: &Manifest| manifest.cases.iter().map(|planned| planned.case.to_string()).collect::<Vec<_>>();
    let is_other = |is_other: fn(&SuiteModel, &SuiteModel) -> bool| {
        let mut models = stopped.suite.models.iter().zip(&planned.suite.models);
        models.any(|(before, now)| is_other(before, now))
    };
    let differs = [
        ("cases", ids(stopped) != ids(planned)),
        ("settings", stopped.suite.effort != settings(&planned.suite.effort) || stopped.threads != planned.threads),
        ("arguments of Criterion", stopped.arguments != planned.arguments),
        ("revision", stopped.revision.commit != planned.revision.commit),
        ("builds of inferbench", stopped.program.is_some() && stopped.program != planned.program),
        ("machine", stopped.machine.host_id != planned.machine.host_id),
        (
            "variables of the environment",
            stopped.machine.variables.is_some()
                && stopped.machine.lasting_variables() != planned.machine.lasting_variables(),
        ),
        ("comparison of outputs (`--benchmark-only`)", stopped.is_unverified != planned.is_unverified),
        ("numbers of tokens", stopped.suite.tokens != planned.suite.tokens),
        ("samples", stopped.suite.data_source != planned.suite.data_source),
        ("models", is_other(|a, b| (&a.name, &a.path, &a.weights) != (&b.name, &b.path, &b.weights))),
        ("inputs", is_other(|a, b| (&a.inputs, &a.dims, &a.reference) != (&b.inputs, &b.dims, &b.reference))),
        ("samples", is_other(|a, b| a.data_source != b.data_source)),
    ];
    differs.into_iter().find(|(_, differs)| *differs).map(|(what, _)| what.to_owned())
}

/// The first case that could run then and cannot run now. The results would lack it, and nothing could add it later.
fn no_longer_runnable(stopped: &Manifest, planned: &Manifest) -> Option<String> {
    stopped.cases.iter().zip(&planned.cases).filter(|(before, _)| before.failure.is_none()).find_map(|(_, now)| {
        let failure = now.failure.as_ref()?;
        Some(format!("cases that can run ({} cannot now: {failure})", now.case))
    })
}

/// The first model whose files, samples or definition have changed since the run was stopped.
fn other_files(stopped: &Manifest, planned: &Manifest) -> Option<String> {
    let is_other = |before: &Option<String>, now: &Option<String>| before.is_some() && before != now;
    stopped.cases.iter().zip(&planned.cases).find_map(|(before, now)| {
        let hashes = [
            ("files", &before.files_sha256, &now.files_sha256),
            ("samples", &before.samples_sha256, &now.samples_sha256),
            ("inputs or settings", &before.definition_sha256, &now.definition_sha256),
        ];
        let (changed, ..) = hashes.into_iter().find(|(_, before, now)| is_other(before, now))?;
        Some(format!("{changed} of {} (they have changed since)", now.case.model))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::TokenTests;
    use crate::run_data::Outcome;

    fn manifest(tg: Option<usize>, failure: Option<CaseFailure>) -> Manifest {
        let tokens = TokenTests { tg, ..TokenTests::default() };
        let suite = Suite { tokens, ..Suite::new("s", vec!["ort".into()]) };
        let files_sha256 = failure.is_none().then(|| "a".to_owned());
        let case = ManifestCase { files_sha256, failure, ..ManifestCase::new(Case::new("m", "ort", 1), "ort") };
        Manifest::begun("r".into(), Timestamp::UNIX_EPOCH, suite, vec![case])
    }

    #[test]
    fn a_run_of_other_numbers_of_tokens_is_another_one() {
        let stopped = manifest(Some(16), None);
        assert_eq!(difference(&stopped, &manifest(Some(16), None)), None);
        for other in [Some(128), None] {
            assert_eq!(difference(&stopped, &manifest(other, None)).as_deref(), Some("numbers of tokens"));
        }
    }

    #[test]
    fn a_program_that_was_built_since_does_not_go_on() {
        let of = |program: Option<&str>| Manifest { program: program.map(str::to_owned), ..manifest(None, None) };
        assert!(own_program().is_some_and(|own| difference(&of(Some(&own)), &of(Some(&own))).is_none()));
        assert_eq!(difference(&of(Some("a")), &of(Some("b"))).as_deref(), Some("builds of inferbench"));
        assert_eq!(difference(&of(None), &of(Some("b"))), None);
    }

    #[test]
    fn a_case_that_cannot_run_any_more_is_said_with_its_reason() {
        let (could, cannot) = (manifest(None, None), manifest(None, Some(CaseFailure::unavailable("no library"))));
        let said = "cases that can run (m/ort-cpu-f32/1 cannot now: unavailable: no library)";
        assert_eq!(difference(&could, &cannot).as_deref(), Some(said));
        assert_eq!(difference(&cannot, &could), None);
    }

    #[test]
    fn a_complete_run_is_open_before_what_has_failed_in_it_is_opened_again() {
        let runs = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(runs.path().join("r"));
        let complete = Manifest { finished: Some(Timestamp::UNIX_EPOCH), ..manifest(None, None) };
        folder.write_manifest(&complete).unwrap();
        let mut row = complete.row(&complete.cases[0]);
        row.fail(CaseFailure::failed("killed"));
        folder.append(&Event::Finished(Box::new(Outcome::new(row)))).unwrap();
        last_run(runs.path(), &manifest(None, None)).unwrap();
        // If the process is killed here, the files stay as they are now.
        assert!(folder.read_outcomes().unwrap().finished.is_empty());
        assert!(!folder.read_manifest().unwrap().is_complete());
    }

    #[test]
    fn a_part_goes_on_without_the_cases_that_another_machine_has_finished_since() {
        let folder = tempfile::tempdir().unwrap();
        let (mut stopped, left) = (manifest(None, None), manifest(None, None));
        stopped.cases.push(ManifestCase::new(Case::new("m", "tch", 1), "tch"));
        let run = || (RunFolder::new(folder.path().to_owned()), stopped.clone());
        assert!(resumed_part(run(), &left, &BTreeSet::new()).is_err());
        let finished = BTreeSet::from(["m/tch-cpu-f32/1".to_owned()]);
        assert_eq!(resumed_part(run(), &left, &finished).unwrap().1.cases.len(), 1);
    }
}
