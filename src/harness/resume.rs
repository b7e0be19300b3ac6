//! Whether a run that was stopped can go on: it has to be of the same cases, files and samples, on the same machine, by the
//! same build.

use std::path::Path;

use anyhow::{Result, bail};

use crate::definition::{DataSource, Effort, SuiteModel};
use crate::run_data::{Manifest, ManifestCase, RunFolder};

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
    let differs = [
        ("cases", ids(stopped) != ids(planned)),
        ("settings", stopped.suite.effort != settings(&planned.suite.effort) || stopped.threads != planned.threads),
        ("arguments of Criterion", stopped.arguments != planned.arguments),
        ("revision", stopped.revision.commit != planned.revision.commit),
        ("machine", stopped.machine.host_id != planned.machine.host_id),
    ];
    let differs = differs.into_iter().find(|(_, differs)| *differs).map(|(what, _)| what.to_owned());
    differs.or_else(|| other_models(stopped, planned)).or_else(|| other_files(stopped, planned))
}

/// The first model that is another by what the suite or the flags say of it.
fn other_models(stopped: &Manifest, planned: &Manifest) -> Option<String> {
    let samples = |manifest: &Manifest| samples_of(manifest.suite.data_source.as_ref());
    if stopped.suite.data_source != planned.suite.data_source {
        return Some(format!("samples ({}, and now {})", samples(stopped), samples(planned)));
    }
    let of = |model: &SuiteModel| (model.name.clone(), model.path.clone(), model.weights.clone());
    let mut pairs = stopped.suite.models.iter().zip(&planned.suite.models);
    if let Some((one, other)) = pairs.clone().find(|(one, other)| of(one) != of(other)) {
        return Some(format!("models ({}, and now {})", described(one), described(other)));
    }
    let (one, other) = pairs.find(|(one, other)| one.data_source != other.data_source)?;
    let [before, now] = [one, other].map(|model| samples_of(model.data_source.as_ref()));
    Some(format!("samples of {} ({before}, and now {now})", one.name))
}

fn described(model: &SuiteModel) -> String {
    match (&model.path, &model.weights) {
        (Some(path), _) => format!("{} of {}", model.name, path.display()),
        (None, Some(weights)) => format!("{} with the weights {}", model.name, weights.display()),
        (None, None) => format!("{} with its own weights", model.name),
    }
}

fn samples_of(source: Option<&DataSource>) -> String {
    match source {
        Some(DataSource::Recorded(path)) => path.display().to_string(),
        Some(source) => source.name(),
        None => "each model's own".into(),
    }
}

/// The first model whose files or samples have changed since the run was stopped.
fn other_files(stopped: &Manifest, planned: &Manifest) -> Option<String> {
    let is_other = |before: &Option<String>, now: &Option<String>| before.is_some() && before != now;
    let mut pairs = stopped.cases.iter().zip(&planned.cases);
    pairs.find_map(|(before, now): (&ManifestCase, &ManifestCase)| {
        let what = if is_other(&before.files_sha256, &now.files_sha256) {
            "files"
        } else if is_other(&before.samples_sha256, &now.samples_sha256) {
            "samples"
        } else {
            return None;
        };
        Some(format!("{what} of {} (they have changed since)", now.case.model))
    })
}
