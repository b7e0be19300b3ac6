//! One run, from the plan to the exit code: prepares the artifacts, writes the manifest, and has the children do the work.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::Parser;
use jiff::Timestamp;

use super::calibration;
use super::expected_time::PastTimes;
use super::lock::lock;
use super::plan::{Plan, Request, make_plan};
use super::protocol::{Preparations, PreparedKey, Purpose};
use super::resume::stopped_run;
use super::supervisor::{RunEnd, Supervisor, WorkerGroup};
use crate::backend;
use crate::definition::{Case, CaseFailure, Cost, DataSource, Dtype, Effort, Model, Phase, Sizes, Status, Suite};
use crate::exit_codes;
use crate::fixture::{self, Artifacts};
use crate::machine::{Machine, Revision};
use crate::onnx::cost;
use crate::paths::Paths;
use crate::run_data::{CriterionArguments, MANIFEST_FORMAT, Manifest, ManifestCase, Mode, RunFolder};
use crate::selection::PlannedCase;

/// A run that has come to its end, one way or another.
pub struct FinishedRun {
    /// Absent where nothing was to be run (`--list`, or no case matches).
    pub folder: Option<RunFolder>,
    /// One of [`exit_codes`].
    pub exit_code: u8,
}

/// Runs the cases that suite, filters and Criterion's arguments select.
///
/// # Errors
/// What was asked for is wrong or impossible; nothing was measured then.
pub fn run(request: &Request) -> Result<FinishedRun> {
    run_in(&Paths::find(), request, false)
}

/// The same in other paths and without a word, for figures about the machine and not about a model; nothing but time
/// is measured.
///
/// # Errors
/// As [`run`].
pub fn run_silently(paths: &Paths, request: &Request) -> Result<FinishedRun> {
    run_in(paths, request, true)
}

fn run_in(paths: &Paths, request: &Request, is_silent: bool) -> Result<FinishedRun> {
    let parsed = CriterionArguments::parse_from(&request.criterion_arguments);
    let Plan { mut suite, cases } = make_plan(paths, &request.selection, &request.effort)?;
    suite.effort.watch &= !is_silent;
    let filter = parsed.id_filter()?;
    let selected: Vec<&PlannedCase> =
        cases.iter().filter(|planned| filter.matches(&planned.case.to_string())).collect();
    let is_measured = request.purpose != Purpose::Verify;
    let is_cold = request.purpose == Purpose::Load;
    if is_measured && parsed.mode() == Mode::List {
        list(&selected, &parsed);
        return Ok(FinishedRun { folder: None, exit_code: exit_codes::OK });
    }
    if selected.is_empty() {
        eprintln!("inferbench: no case matches; `cargo bench -- --list` shows those that there are");
        return Ok(FinishedRun { folder: None, exit_code: exit_codes::OK });
    }
    say_what_is_left_out(&selected);
    let is_kept = is_measured && !is_cold && parsed.mode() == Mode::Measure && !parsed.discard_baseline;
    let runs = if is_kept { paths.runs() } else { paths.unkept_runs() };
    let _lock = lock(&runs)?;
    let mut preparations = Preparations::default();
    let (runnable, failures) = prepare(&selected, paths, &mut preparations);
    if is_measured && !is_cold {
        check_samples(&runnable, suite.data_source.as_ref())?;
    }
    let criterion_root = if is_cold { paths.cold_starts() } else { paths.criterion() };
    check_baseline(&parsed, &runnable, &criterion_root)?;

    let mut facts = Facts::new(paths, &preparations, is_kept && !is_silent);
    let manifest_cases = selected.iter().map(|planned| manifest_case(planned, &failures, &mut facts)).collect();
    let planned = new_manifest(request, &parsed, paths, &runs, criterion_root, suite, manifest_cases);
    let (folder, mut manifest) = if request.resume {
        stopped_run(&runs, &planned)?
    } else {
        (RunFolder::new(runs.join(&planned.run_id)), planned)
    };
    if is_kept && !is_silent && manifest.peaks.is_none() && runnable.iter().any(|(case, _)| has_roofline(case)) {
        // A run without them is still a run.
        let peaks = calibration::peaks(paths, &manifest.machine, manifest.threads);
        manifest.peaks = peaks.inspect_err(|error| eprintln!("no roofline: {error}")).ok();
    }
    folder.write_manifest(&manifest)?;
    let effort = Effort { threads: Some(manifest.threads), ..manifest.suite.effort.clone() };
    let supervisor = Supervisor {
        purpose: request.purpose,
        folder: &folder,
        criterion_root: &manifest.criterion_root,
        effort: &effort,
        prepared: &preparations,
        groups: WorkerGroup::by_backend_and_device(&runnable),
        registered: cases.iter().filter(|planned| planned.model.is_ok()).map(|planned| planned.case.clone()).collect(),
        arguments: request.criterion_arguments.clone(),
        parsed: &parsed,
        is_silent,
        debug: request.effort.debug,
        expected_seconds: PastTimes::read(&runs, &manifest.suite.effort, Some(manifest.run_id.as_str())).measured,
    };
    let end = supervisor.run()?;
    if request.effort.debug {
        eprintln!("what the runtimes have logged is in {}", folder.path().join("debug.log").display());
    }
    manifest.finished = Some(Timestamp::now());
    manifest.is_interrupted = end == RunEnd::Interrupted;
    folder.write_manifest(&manifest)?;
    let (exit_code, conclusion) = conclude(&manifest, &folder, is_measured && parsed.mode() == Mode::Load);
    if let Some(conclusion) = conclusion.filter(|_| !is_silent) {
        eprintln!("\n{conclusion}");
    }
    Ok(FinishedRun { folder: Some(folder), exit_code })
}

fn new_manifest(
    request: &Request,
    parsed: &CriterionArguments,
    paths: &Paths,
    runs: &Path,
    criterion_root: PathBuf,
    suite: Suite,
    cases: Vec<ManifestCase>,
) -> Manifest {
    let started = Timestamp::now();
    Manifest {
        format: MANIFEST_FORMAT,
        run_id: new_run_id(started, runs),
        started,
        finished: None,
        is_interrupted: false,
        arguments: request.criterion_arguments.clone(),
        suite_name: suite.name.clone(),
        threads: suite.effort.effective_threads(),
        inferbench_version: env!("CARGO_PKG_VERSION").into(),
        rustc_version: env!("INFERBENCH_RUSTC").into(),
        revision: Revision::read(paths.root()),
        machine: Machine::read(),
        peaks: None,
        criterion_root,
        saved_baseline: parsed.save_baseline.clone(),
        compared_baseline: parsed.baseline.clone().or(parsed.baseline_lenient.clone()),
        is_quick: parsed.quick,
        suite,
        cases,
    }
}

fn list(selected: &[&PlannedCase], parsed: &CriterionArguments) {
    let runnable: Vec<_> = selected.iter().filter(|planned| planned.model.is_ok()).collect();
    for planned in &runnable {
        println!("{}: benchmark", planned.case);
    }
    if parsed.format == "pretty" {
        eprintln!("{} cases", runnable.len());
    }
}

/// One line a reason, so that a fresh clone says what a native library would add.
fn say_what_is_left_out(selected: &[&PlannedCase]) {
    let mut reasons: BTreeMap<(String, String), usize> = BTreeMap::new();
    for planned in selected {
        if let Err(failure) = &planned.model {
            let configuration = match failure.status {
                Status::Unavailable => format!("{} on {}", planned.case.backend, planned.case.device),
                _ => format!("{} on {} {}", planned.case.model, planned.case.backend, planned.case.device),
            };
            *reasons.entry((configuration, failure.to_string())).or_default() += 1;
        }
    }
    say_reasons(reasons);
}

/// What is left out and why, with its number of cases.
fn say_reasons(reasons: BTreeMap<(String, String), usize>) {
    for ((what, reason), count) in reasons {
        let cases = if count == 1 { "1 case" } else { &format!("{count} cases") };
        eprintln!("left out: {what} ({cases}): {reason}");
    }
}

type Runnable = Vec<(Case, Model)>;

/// Makes the artifacts of the selected models; a model that cannot be made costs its cases only.
fn prepare(
    selected: &[&PlannedCase],
    paths: &Paths,
    preparations: &mut Preparations,
) -> (Runnable, BTreeMap<String, CaseFailure>) {
    let mut runnable = Vec::new();
    let mut failures = BTreeMap::new();
    let mut reasons: BTreeMap<(String, String), usize> = BTreeMap::new();
    for planned in selected {
        let Ok(model) = &planned.model else { continue };
        match preparations.add(model, paths, planned.case.dtype) {
            Ok(()) => runnable.push((planned.case.clone(), model.clone())),
            Err(reason) => {
                *reasons.entry((format!("{} {}", model.name, model.variant), reason.clone())).or_default() += 1;
                failures.insert(planned.case.to_string(), CaseFailure::failed(reason));
            }
        }
    }
    say_reasons(reasons);
    (runnable, failures)
}

/// Samples that are not there, or are for none of the models, are said before hours are spent on the cases.
fn check_samples(runnable: &Runnable, of_suite: Option<&DataSource>) -> Result<()> {
    if let Some(source) = of_suite.filter(|_| !runnable.is_empty())
        && !runnable.iter().any(|(_, model)| model.data_source == *source)
    {
        bail!("none of the models can be evaluated by {}: {}", source.name(), source.needs());
    }
    let mut checked: Vec<&Model> = Vec::new();
    for (_, model) in runnable {
        let is_same = |other: &&Model| {
            (&other.data_source, &other.inputs, &other.phases) == (&model.data_source, &model.inputs, &model.phases)
        };
        if !checked.iter().any(|other| other.name == model.name && is_same(other)) {
            checked.push(model);
            fixture::Samples::open(model, None).map_err(|why| anyhow!("{}: {why:#}", model.name))?;
        }
    }
    Ok(())
}

/// Criterion would panic in the middle of the run.
fn check_baseline(parsed: &CriterionArguments, runnable: &Runnable, criterion_root: &Path) -> Result<()> {
    let wanted = parsed.baseline.iter().chain(&parsed.load_baseline);
    for name in wanted {
        let has_baseline = |case: &Case| {
            let id = case.benchmark_id();
            criterion_root.join(id.group).join(id.function).join(id.value).join(name).join("estimates.json").is_file()
        };
        let missing: Vec<String> =
            runnable.iter().map(|(case, _)| case).filter(|case| !has_baseline(case)).map(Case::to_string).collect();
        if let Some(first) = missing.first() {
            bail!(
                "{} of {} cases have no baseline {name:?} in {} (the first is {first}); make one with `cargo bench -- \
                 --save-baseline {name}`, or compare those that have one with `--baseline-lenient {name}`",
                missing.len(),
                runnable.len(),
                criterion_root.display()
            );
        }
    }
    Ok(())
}

/// The time, and a number where two runs begin in the same second.
fn new_run_id(started: Timestamp, runs: &Path) -> String {
    let time = started.strftime("%Y%m%dT%H%M%SZ").to_string();
    let mut candidates = std::iter::once(time.clone()).chain((2..).map(|number| format!("{time}-{number}")));
    candidates.find(|id| !runs.join(id).exists()).unwrap_or(time)
}

/// Whether the peaks are what a case can be compared with.
fn has_roofline(case: &Case) -> bool {
    case.device == "cpu" && case.dtype == Dtype::F32 && case.backend != backend::NULL
}

/// What is known of models, each found out once: most cases differ in other things.
struct Facts<'a> {
    prepared: PathBuf,
    artifacts: BTreeMap<&'a PreparedKey, &'a Artifacts>,
    /// Whether the run may be resumed, and has to know its files then.
    knows_files: bool,
    costs: BTreeMap<(String, Phase, usize, Option<usize>), Option<Cost>>,
    nonzero: BTreeMap<String, Option<u64>>,
    files: BTreeMap<PreparedKey, Option<String>>,
    samples: Vec<(DataSource, Option<String>)>,
}

impl<'a> Facts<'a> {
    fn new(paths: &Paths, preparations: &'a Preparations, knows_files: bool) -> Self {
        Facts {
            prepared: paths.prepared(),
            artifacts: preparations.artifacts(),
            knows_files,
            costs: BTreeMap::new(),
            nonzero: BTreeMap::new(),
            files: BTreeMap::new(),
            samples: Vec::new(),
        }
    }

    fn nonzero_parameters(&mut self, model: &Model) -> Option<u64> {
        let count = || fixture::nonzero_parameters(model, &self.prepared).ok().flatten();
        *self.nonzero.entry(model.artifact_folder_name()).or_insert_with(count)
    }

    fn cost(&mut self, model: &Model, case: &Case) -> Option<Cost> {
        let sizes = Sizes { batch: case.batch_size, sequence: case.sequence_length };
        let key = (model.artifact_folder_name(), case.phase, sizes.batch, sizes.sequence);
        *self.costs.entry(key).or_insert_with(|| cost(model, case.phase, sizes).ok())
    }

    fn files_sha256(&mut self, model: &Model, dtype: Dtype) -> Option<String> {
        let key = PreparedKey::new(model, dtype);
        let artifacts = self.artifacts.get(&key).filter(|_| self.knows_files)?;
        self.files.entry(key).or_insert_with(|| artifacts.sha256_of_all().ok()).clone()
    }

    fn samples_sha256(&mut self, model: &Model) -> Option<String> {
        if !self.knows_files {
            return None;
        }
        if let Some((_, known)) = self.samples.iter().find(|(source, _)| *source == model.data_source) {
            return known.clone();
        }
        let hash = fixture::sha256_of_samples(&model.data_source).ok().flatten();
        self.samples.push((model.data_source.clone(), hash.clone()));
        hash
    }
}

fn manifest_case(
    planned: &PlannedCase,
    failures: &BTreeMap<String, CaseFailure>,
    facts: &mut Facts<'_>,
) -> ManifestCase {
    let framework = backend::registry::framework(&planned.case.backend);
    let (described, model) = (planned.definition.as_ref().ok(), planned.model.as_ref().ok());
    ManifestCase {
        case: planned.case.clone(),
        framework: framework.into(),
        family: described.map(|model| model.family.clone()).unwrap_or_default(),
        modality: described.map(|model| model.modality.clone()).unwrap_or_default(),
        parameters: model.and_then(|model| model.parameters),
        nonzero_parameters: model.and_then(|model| facts.nonzero_parameters(model)),
        cost: model.and_then(|model| facts.cost(model, &planned.case)),
        files_sha256: model.and_then(|model| facts.files_sha256(model, planned.case.dtype)),
        samples_sha256: model.and_then(|model| facts.samples_sha256(model)),
        failure: planned.model.as_ref().err().cloned().or_else(|| failures.get(&planned.case.to_string()).cloned()),
    }
}

/// The exit code, and what is said last.
fn conclude(manifest: &Manifest, folder: &RunFolder, is_loaded: bool) -> (u8, Option<String>) {
    let outcomes = folder.read_outcomes().finished;
    let count = |status: Status| outcomes.values().filter(|outcome| outcome.status == status).count();
    let measured = count(Status::Ok) + count(Status::Suspicious);
    if manifest.is_interrupted {
        let runnable = manifest.cases.iter().filter(|case| case.failure.is_none()).count();
        let kept = format!("interrupted: {measured} of {runnable} cases are finished and kept");
        return (exit_codes::INTERRUPTED, Some(kept));
    }
    if is_loaded {
        return (exit_codes::OK, None);
    }
    let exit_code = match (measured, count(Status::WrongOutput)) {
        (_, 1..) => exit_codes::REGRESSION_OR_WRONG,
        (0, 0) => exit_codes::NOTHING_MEASURED,
        _ => exit_codes::OK,
    };
    (exit_code, Some(format!("{measured} of {} cases ran", manifest.cases.len())))
}
