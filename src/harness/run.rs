//! One run, from the plan to the exit code: prepares the artifacts, writes the manifest, and starts the workers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use jiff::Timestamp;

use super::asked_cases::NoCase;
use super::conditions::say_variables;
use super::expected_time::ExpectedTimes;
use super::input_sizes::find_sizes_and_ranges;
use super::lock::{keep_others_out, wait_for_other_parts};
use super::manifest::{check_asked, last_run, manifest_cases, new_manifest, resumed_part};
use super::plan::{Plan, Request, make_plan};
use super::protocol::{Job, Purpose, WorkItem};
use super::shard;
use super::supervisor::{Interrupted, Supervisor, grouped};
use crate::backend;
use crate::catalogue::tensor_names;
use crate::definition::{CLOSURE, Case, CaseFailure, DataSource, Dtype, Effort, Origin, Status, is_shortened};
use crate::exit_codes;
use crate::fixture;
use crate::measurement::calibration::CalibrationWatch;
use crate::measurement::peaks::peaks_of;
use crate::paths::Paths;
use crate::report::numbers::plural;
use crate::run_data::{CriterionArguments, Event, Manifest, ManifestCase, Mode, Outcome, RunFolder};
use crate::selection::PlannedCase;

/// A run that has come to its end, one way or another.
pub struct FinishedRun {
    /// `None` if nothing was to run, as with `--list`, or for a part without a case.
    pub folder: Option<RunFolder>,
    /// Whether a run was to be resumed that is complete. Always false for a part.
    pub was_complete: bool,
    /// One of [`exit_codes`].
    pub exit_code: u8,
    /// The folder of the part, relative to that of all parts, if it is a part of a suite.
    pub part: Option<PathBuf>,
}

/// Runs the cases that the suite, filters and Criterion's arguments select.
///
/// # Errors
/// The request is wrong or impossible, no case matches ([`NoCase`]), a process cannot be started, or a folder cannot be
/// written.
pub fn run(paths: &Paths, request: &Request) -> Result<FinishedRun> {
    let parsed = CriterionArguments::parse_from(&request.criterion_arguments);
    let Plan { mut suite, mut cases } =
        make_plan(paths, request.own_suite.as_ref(), &request.selection, &request.effort)?;
    let filter = parsed.id_filter()?;
    let is_measured = request.purpose != Purpose::Verify;
    let part = shard::keep_part(&mut suite, &mut cases, request.part, &filter)?;
    let paths = &part.as_deref().map_or_else(|| paths.clone(), |folder| paths.of_part(folder));
    let is_listed = is_measured && parsed.mode() == Mode::List;
    let goes_on = part.as_deref().filter(|_| request.resume);
    let elsewhere = goes_on.map(|_| shard::begun_elsewhere(&paths.runs())).unwrap_or_default();
    let finished = shard::finished_in(&elsewhere)?;
    let is_selected = |planned: &&PlannedCase| {
        let id = planned.case.to_string();
        filter.is_match(&id) && !finished.contains(&id)
    };
    let selected: Vec<&PlannedCase> = cases.iter().filter(is_selected).collect();
    let is_cold = request.purpose == Purpose::Load;
    let nothing = Ok(FinishedRun { folder: None, was_complete: false, exit_code: exit_codes::OK, part: None });
    if is_listed {
        list(&selected, &parsed);
        return nothing;
    }
    if let (Some(part), Some(keep), false) = (goes_on, request.keep_of_others, request.is_dry) {
        elsewhere.iter().for_each(|(folder, _)| keep(folder, part));
    }
    if selected.is_empty() {
        if part.is_none() {
            bail!(NoCase::new(parsed.filter.as_deref(), &suite.name, &request.selection, &cases));
        }
        let why = match finished.is_empty() {
            true => "no case of this part matches",
            false => "other machines have measured all cases of this part",
        };
        eprintln!("inferbench: {why}");
        return nothing;
    }
    if selected.iter().any(|planned| planned.case.backend == backend::LLAMA_CPP) {
        backend::check_llama_settings()?;
    }
    let is_kept = is_measured && !is_cold && parsed.mode() == Mode::Measure && !parsed.discard_baseline;
    let runs = if is_kept { paths.runs() } else { paths.unkept_runs() };
    if request.is_dry {
        ExpectedTimes::read(&runs, &suite.effort, None).print(&selected);
        return nothing;
    }
    if is_kept {
        paths.check_writable()?;
    }
    let _turn = part.is_some().then(|| wait_for_other_parts(paths)).transpose()?;
    let _lock = keep_others_out(paths)?;
    if request.resume && part.is_none() {
        let asked = selected.iter().map(|planned| ManifestCase::new(planned.case.clone(), "")).collect();
        check_asked(&runs, &new_manifest(request, &parsed, paths, &runs, PathBuf::new(), suite.clone(), asked))?;
    }
    // This computes, so it needs the lock.
    let mut preparations =
        find_sizes_and_ranges(&mut cases, |case| filter.is_match(&case.to_string()), &suite.effort, paths)?;
    let selected: Vec<&PlannedCase> = cases.iter().filter(is_selected).collect();
    let work: Vec<_> = selected.iter().map(|planned| preparations.work_item(planned, paths)).collect();
    say_what_is_left_out(&selected, &work);
    if !request.is_silent {
        say_fixed_batches(&selected, &suite.batch_sizes);
        say_short_names(&selected);
    }
    let runnable: Vec<&WorkItem> = work.iter().flatten().collect();
    if is_measured && !is_cold {
        check_samples(&runnable, suite.data_source.as_ref())?;
    }
    let criterion_root = if is_cold { paths.cold_starts() } else { paths.criterion() };
    check_baseline(&parsed, &runnable, &criterion_root)?;

    let is_reported = is_kept && !request.is_silent;
    let manifest_cases = manifest_cases(&selected, &work, &paths.prepared(), is_reported);
    let planned = new_manifest(request, &parsed, paths, &runs, criterion_root, suite, manifest_cases);
    if !request.is_silent {
        say_variables(&planned.machine);
    }
    let new = |planned: Manifest| (RunFolder::new(runs.join(&planned.run_id)), planned);
    let (folder, mut manifest) = match (request.resume, &part) {
        (false, _) => new(planned),
        (true, None) => last_run(&runs, &planned)?,
        // A scheduler starts a part with the same command every time, so `--resume` also begins a new run.
        (true, Some(_)) => match RunFolder::of_machine(&runs, &planned.machine.host_id) {
            None => new(planned),
            Some(known) if known.1.is_complete() => known,
            Some(stopped) => resumed_part(stopped, &planned, &finished)?,
        },
    };
    if manifest.is_complete() {
        match &part {
            None => eprintln!("run {}, the last one, is complete: nothing is left to do", folder.id()),
            Some(_) => eprintln!("run {}: this part is finished", folder.id()),
        }
        let exit_code = conclude(&manifest, &folder, (false, request.effort.allow_failed))?.0;
        return Ok(FinishedRun { folder: Some(folder), was_complete: part.is_none(), exit_code, part });
    }
    if is_reported && manifest.peaks.is_none() && runnable.iter().any(|item| has_roofline(&item.case)) {
        manifest.peaks = Some(peaks_of(paths, &manifest.machine, manifest.threads));
    }
    let begun = (request.calibrates || part.is_some()).then(|| CalibrationWatch::begin(&manifest, request.selftest));
    manifest.calibrations.extend(begun.as_ref().map(|watch| watch.so_far().clone()));
    folder.write_manifest(&manifest)?;
    let times = ExpectedTimes::read(&runs, &manifest.suite.effort, Some(manifest.run_id.as_str()));
    let mut runnable = Vec::new();
    for (item, planned) in work.into_iter().zip(&manifest.cases) {
        let Ok(item) = item else { continue };
        let expected_seconds = times.of_process(&fixture::work_of(&item.case, &item.model));
        runnable.push(WorkItem { row: manifest.row(planned), expected_seconds, ..item });
    }
    let effort = Effort { threads: Some(manifest.threads), ..manifest.suite.effort.clone() };
    let registered = cases.iter().filter(|planned| planned.model.is_ok()).map(|planned| planned.case.clone()).collect();
    let supervisor = Supervisor {
        job: Job { registered, ..Job::new(request.purpose, &folder, &manifest.criterion_root, &effort) },
        groups: grouped(runnable),
        arguments: request.criterion_arguments.clone(),
        parsed: parsed.clone(),
        is_silent: request.is_silent,
        debug: request.effort.debug,
    };
    let ended = supervisor.run();
    manifest.is_interrupted = ended.as_ref().is_err_and(|error| error.is::<Interrupted>());
    let ended = ended.or_else(|error| if manifest.is_interrupted { Ok(()) } else { Err(error) });
    let stopped = || format!("run {} stopped; the same command with `--resume` continues it", folder.id());
    if is_reported && request.can_resume {
        ended.with_context(stopped)?
    } else {
        ended?
    }
    if is_reported {
        fail_changed(&manifest, &supervisor.groups, &folder)?;
    }
    if request.effort.debug {
        eprintln!("what the runtimes have logged is in {}", folder.path().join("debug.log").display());
    }
    if let Some(watch) = begun.filter(|_| !manifest.is_interrupted) {
        manifest.calibrations.pop();
        manifest.calibrations.push(watch.end(manifest.threads));
    }
    manifest.finished = Some(Timestamp::now());
    folder.write_manifest(&manifest)?;
    let is_loaded = is_measured && parsed.mode() == Mode::Load;
    let (exit_code, conclusion) = conclude(&manifest, &folder, (is_loaded, request.effort.allow_failed))?;
    let goes_on = manifest.is_interrupted && is_reported && request.can_resume;
    let go_on = if goes_on { "; the same command with `--resume` continues" } else { "" };
    if let Some(conclusion) = conclusion.filter(|_| !request.is_silent) {
        eprintln!("\n{conclusion}{go_on}");
    }
    Ok(FinishedRun { folder: Some(folder), was_complete: false, exit_code, part })
}

fn list(selected: &[&PlannedCase], parsed: &CriterionArguments) {
    let runnable: Vec<_> = selected.iter().filter(|planned| planned.model.is_ok()).collect();
    for planned in &runnable {
        println!("{}: benchmark", planned.case);
    }
    if parsed.format == "pretty" {
        eprintln!("{}", plural(runnable.len(), "case", "cases"));
    }
}

/// Prints one line per reason why cases are left out, such as a missing native library.
fn say_what_is_left_out(selected: &[&PlannedCase], work: &[Result<WorkItem, CaseFailure>]) {
    let mut reasons: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (PlannedCase { case, model, .. }, work) in selected.iter().zip(work) {
        let Err(failure) = work else { continue };
        let reason = match failure.status {
            _ if model.is_ok() => (format!("{} {}", case.model, case.variant), failure.message.clone()),
            Status::Unavailable => (format!("{} on {}", case.backend, case.device), failure.to_string()),
            _ => (format!("{} on {} {}", case.model, case.backend, case.device), failure.to_string()),
        };
        *reasons.entry(reason).or_default() += 1;
    }
    for ((what, reason), count) in reasons {
        eprintln!("left out: {what} ({}): {reason}", plural(count, "case", "cases"));
    }
}

/// A model that takes one batch size runs at that, whatever the suite says. Code without inputs has no batch.
fn say_fixed_batches(selected: &[&PlannedCase], asked: &[usize]) {
    let mut said = BTreeSet::new();
    for PlannedCase { case, model, .. } in selected {
        let is_fixed = model.as_ref().is_ok_and(|model| model.fixed_batch().is_some() && case.backend != CLOSURE);
        if is_fixed && asked != [case.batch_size] && said.insert((&case.model, &case.variant)) {
            let is_length_first = model.as_ref().is_ok_and(|model| model.has_length_first());
            let hint = if is_length_first { "; `--input` can name one, as in `x:f32[128,batch,20]`" } else { "" };
            let Case { model, variant, batch_size, .. } = case;
            eprintln!(
                "{model} {variant}: its inputs have no open dimension called batch: it runs at batch size {batch_size}{hint}"
            );
        }
    }
}

/// Prints the shortened names of models whose own names Criterion would cut.
fn say_short_names(selected: &[&PlannedCase]) {
    let mut said = BTreeSet::new();
    for PlannedCase { case, model, .. } in selected {
        let group = case.benchmark_id().group;
        if is_shortened(&group) && said.insert((&case.model, &case.variant)) {
            let of_user = model.as_ref().ok().filter(|model| !matches!(model.origin, Origin::Packaged { .. }));
            let file = of_user.and_then(|model| model.origin.files().next());
            let what = file.map_or_else(|| case.model.clone(), |file| file.display().to_string());
            eprintln!(
                "{what}: Criterion keeps 64 characters of a name, so the results call it {group}; `NAME=FILE` sets another name"
            );
        }
    }
}

/// Fails before hours are spent on the cases, if samples are missing or fit none of the models.
fn check_samples(runnable: &[&WorkItem], of_suite: Option<&DataSource>) -> Result<()> {
    if let Some(source) = of_suite.filter(|_| !runnable.is_empty())
        && !runnable.iter().any(|item| item.model.data_source == *source)
    {
        bail!(
            "none of the models can take {}: {}recorded samples need a file with each input of the model, as a tensor \
             `input.<name>`, pictures need a model whose only input is f32, f16 or bf16 [batch, 3, height, width] with fixed sizes, and texts need a \
             model that takes tokens",
            source.name(),
            lacking(runnable, source)
        );
    }
    let (mut checked, mut ignored) = (BTreeSet::new(), BTreeSet::new());
    for WorkItem { model, .. } in runnable {
        let what = (&model.name, format!("{:?}", (&model.data_source, &model.inputs, &model.phases)));
        if checked.insert(what) {
            fixture::Samples::open(model, None).map_err(|why| anyhow!("{}: {why:#}", model.name))?;
            if let DataSource::Recorded(path) = &model.data_source {
                ignored.extend(ignored_labels(path));
            }
        }
    }
    ignored.iter().for_each(|line| eprintln!("{line}"));
    Ok(())
}

/// The inputs that a file of samples lacks for the only model. Empty if there are several models, or no such file.
fn lacking(runnable: &[&WorkItem], source: &DataSource) -> String {
    let DataSource::Recorded(path) = source else { return String::new() };
    let model = &runnable[0].model;
    let is_only = runnable.iter().all(|item| item.model.name == model.name);
    let Some(names) = tensor_names(path).filter(|_| is_only) else { return String::new() };
    let keys = model.inputs.iter().map(|input| format!("input.{}", input.name));
    let missing: Vec<String> = keys.filter(|key| !names.contains(key)).collect();
    if missing.is_empty() {
        return String::new();
    }
    let (missing, names) = (missing.join("`, `"), names.join("`, `"));
    format!("{} needs `{missing}`, and the file has `{names}`; ", model.name)
}

/// A line about the arrays of a file without labels that are not read, such as `labels`.
fn ignored_labels(path: &Path) -> Option<String> {
    let names = tensor_names(path)?;
    let is_label = |name: &String| name == "label" || name.starts_with("label.");
    let is_read = |name: &String| ["input.", "output."].iter().any(|kind| name.starts_with(kind));
    let ignored: Vec<String> = names.iter().filter(|name| !is_read(name)).cloned().collect();
    (!ignored.is_empty() && !names.iter().any(is_label)).then(|| {
        let (path, ignored) = (path.display(), ignored.join("`, `"));
        format!("{path}: there is no accuracy: labels are called `label`, and `{ignored}` is not read")
    })
}

/// Fails the measured cases whose files no longer have the hashes in the manifest. Unreadable files are not compared.
fn fail_changed(manifest: &Manifest, groups: &[Vec<WorkItem>], folder: &RunFolder) -> Result<()> {
    let outcomes = folder.read_outcomes()?;
    let before = |planned: &ManifestCase| Some((planned.case.to_string(), planned.files_sha256.clone()?));
    let before: BTreeMap<String, String> = manifest.cases.iter().filter_map(before).collect();
    // Most cases share their files.
    let mut hashes: BTreeMap<String, Option<String>> = BTreeMap::new();
    for WorkItem { case, artifacts, .. } in groups.iter().flatten() {
        let id = case.to_string();
        let hash = hashes.entry(format!("{artifacts:?}")).or_insert_with(|| artifacts.sha256_of_all().ok());
        let is_changed = before.get(&id).zip(hash.as_ref()).is_some_and(|(before, now)| before != now);
        let Some(row) = outcomes.row(&id).filter(|row| is_changed && row.status.is_measured()) else { continue };
        let why = CaseFailure::failed("its files have changed during the run, so its calls may be of either version");
        eprintln!("  {id}: {why}");
        let mut row = row.clone();
        row.fail(why);
        folder.append(&Event::Finished(Box::new(Outcome::new(row.clone()))))?;
        folder.append(&Event::Observed { row: Box::new(row), watch_seconds: None })?;
    }
    Ok(())
}

/// Fails if a case lacks the baseline: Criterion would panic in the middle of the run.
fn check_baseline(parsed: &CriterionArguments, runnable: &[&WorkItem], criterion_root: &Path) -> Result<()> {
    let wanted = parsed.baseline.iter().chain(&parsed.load_baseline);
    for name in wanted {
        let has_baseline = |id: &String| criterion_root.join(id).join(name).join("estimates.json").is_file();
        let missing: Vec<String> = runnable.iter().map(|item| item.id()).filter(|id| !has_baseline(id)).collect();
        if let Some(first) = missing.first() {
            bail!(
                "no baseline {name:?} in {} for {} of {} (the first is {first}); make one with `--save-baseline \
                 {name}`. `cargo bench -- --baseline-lenient {name}` compares those that have one",
                criterion_root.display(),
                missing.len(),
                plural(runnable.len(), "case", "cases")
            );
        }
    }
    Ok(())
}

/// Whether the case can be compared with the machine's peaks, which are those of f32 on the CPU.
pub(super) fn has_roofline(case: &Case) -> bool {
    case.device == "cpu" && case.dtype == Dtype::F32 && case.backend != backend::NULL
}

/// The exit code, and the last line that the run prints.
fn conclude(
    manifest: &Manifest,
    folder: &RunFolder,
    (is_loaded, may_fail): (bool, bool),
) -> Result<(u8, Option<String>)> {
    let outcomes = folder.read_outcomes()?.finished;
    let unprepared = manifest.cases.iter().filter_map(|case| case.failure.as_ref()).map(|failure| failure.status);
    let statuses: Vec<Status> = unprepared.chain(outcomes.values().map(|outcome| outcome.row.status)).collect();
    let count = |is_meant: fn(Status) -> bool| statuses.iter().filter(|status| is_meant(**status)).count();
    let (wrong, failed) = (count(|status| status == Status::WrongOutput), count(Status::is_failure));
    let ran = count(Status::is_measured) + wrong;
    if manifest.is_interrupted {
        let runnable = manifest.cases.iter().filter(|case| case.failure.is_none()).count();
        let kept = format!("interrupted: {ran} of {} finished and kept", plural(runnable, "case", "cases"));
        return Ok((exit_codes::INTERRUPTED, Some(kept)));
    }
    if is_loaded {
        return Ok((exit_codes::OK, None));
    }
    let failed = if failed > 0 { format!("; {failed} failed") } else { String::new() };
    let wrong = match wrong {
        0 => String::new(),
        _ => format!("; {}", plural(wrong, "has wrong outputs", "have wrong outputs")),
    };
    let said = format!("{ran} of {} ran{wrong}{failed}", plural(manifest.cases.len(), "case", "cases"));
    Ok((exit_code_of(&statuses, may_fail), Some(said)))
}

/// The exit code of a command whose cases have these statuses.
pub fn exit_code_of(statuses: &[Status], may_fail: bool) -> u8 {
    let has = |is_meant: fn(Status) -> bool| statuses.iter().any(|status| is_meant(*status));
    match has(Status::is_measured) {
        _ if statuses.contains(&Status::WrongOutput) => exit_codes::REGRESSION_OR_WRONG,
        false => exit_codes::NOTHING_MEASURED,
        true if has(Status::is_failure) && !may_fail => exit_codes::CASE_FAILED,
        true => exit_codes::OK,
    }
}
