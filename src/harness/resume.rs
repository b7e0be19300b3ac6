//! Whether a run that was stopped can go on: it has to be of the same cases, files and samples, on the same machine, by the
//! same build.

use std::path::Path;

use anyhow::{Result, bail};

use crate::definition::{Effort, SuiteModel};
use crate::run_data::{Manifest, RunFolder};

/// The last run, if it was stopped and was to do the same.
///
/// # Errors
/// There is none, it came to its end, or it was to do something else; the message says what differs.
pub fn stopped_run(runs: &Path, planned: &Manifest) -> Result<(RunFolder, Manifest)> {
    let folder = RunFolder::find(runs, None)?;
    let stopped = folder.read_manifest()?;
    let id = &stopped.run_id;
    if stopped.finished.is_some() && !stopped.is_interrupted {
        bail!("run {id}, the last one, came to its end: there is nothing to resume");
    }
    if let Some(what) = difference(&stopped, planned) {
        bail!("run {id}, the last one, had other {what}: it cannot be resumed by this command");
    }
    eprintln!("resuming run {id}: {} cases are finished", folder.read_outcomes().finished.len());
    Ok((folder, Manifest { finished: None, is_interrupted: false, ..stopped }))
}

/// What two runs have not in common, if they are not of the same.
fn difference(stopped: &Manifest, planned: &Manifest) -> Option<String> {
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
        ("machine", stopped.machine.host_id != planned.machine.host_id),
        ("samples", stopped.suite.data_source != planned.suite.data_source),
        ("models", is_other(|a, b| (&a.name, &a.path, &a.weights) != (&b.name, &b.path, &b.weights))),
        ("inputs", is_other(|a, b| (&a.inputs, &a.dims, &a.reference) != (&b.inputs, &b.dims, &b.reference))),
        ("samples", is_other(|a, b| a.data_source != b.data_source)),
    ];
    let differs = differs.into_iter().find(|(_, differs)| *differs).map(|(what, _)| what.to_owned());
    differs.or_else(|| other_files(stopped, planned))
}

/// The first model whose files or samples have changed since the run was stopped.
fn other_files(stopped: &Manifest, planned: &Manifest) -> Option<String> {
    let is_other = |before: &Option<String>, now: &Option<String>| before.is_some() && before != now;
    stopped.cases.iter().zip(&planned.cases).find_map(|(before, now)| {
        let files = is_other(&before.files_sha256, &now.files_sha256).then_some("files");
        let changed = files.or(is_other(&before.samples_sha256, &now.samples_sha256).then_some("samples"))?;
        Some(format!("{changed} of {} (they have changed since)", now.case.model))
    })
}
