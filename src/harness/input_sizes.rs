//! Finds sizes for dynamic dimensions of users' files: tries typical sizes in a worker process until the model runs.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Error, Result, bail};

use super::activation_ranges::measure_ranges;
use super::protocol::{Preparations, Purpose, WorkItem};
use super::supervisor::{Supervisor, of_case};
use crate::catalogue::{Entry, Place, attempts, flags, inherit_inputs};
use crate::definition::{Case, CaseFailure, Effort, Model, ORIGINAL, Origin, Status};
use crate::fixture;
use crate::onnx;
use crate::paths::Paths;
use crate::selection::PlannedCase;

/// Seconds that all attempts of a model may take.
const PATIENCE: f64 = 300.0;

/// Sets the input sizes of users' models to those of their references, and the sizes of variants to those of their
/// original. If a reference fits only some of the sizes at which a model is measured, the other sizes have no
/// reference. A reference that fits none, or cannot be read, is the model's failure.
pub fn take_sizes_of_references(catalogue: &mut [Entry]) {
    let sized = |entry: &Entry| {
        let model = entry.model.as_ref().ok().filter(|_| entry.place != Place::Zoo)?;
        let Origin::Files { reference: Some(path), .. } = &model.origin else { return None };
        Some(fixture::with_sizes_of_reference(model.clone(), path))
    };
    let sized: Vec<Option<Result<Model>>> = catalogue.iter().map(sized).collect();
    let name = |entry: &Entry| (entry.name.clone(), entry.variant.clone());
    let fitting = catalogue.iter().zip(&sized).filter(|(_, sized)| matches!(sized, Some(Ok(_))));
    let fitting: Vec<(String, String)> = fitting.map(|(entry, _)| name(entry)).collect();
    for (entry, sized) in catalogue.iter_mut().zip(sized) {
        match (sized, &mut entry.model) {
            (None, _) | (_, Err(_)) => {}
            (Some(Ok(sized)), model) => *model = Ok(sized),
            (Some(Err(_)), Ok(Model { origin: Origin::Files { reference, .. }, .. }))
                if fitting.contains(&(entry.name.clone(), entry.variant.clone())) =>
            {
                *reference = None;
            }
            (Some(Err(why)), model) => *model = Err(CaseFailure::failed(format!("{why:#}"))),
        }
    }
    let is_users =
        |entry: &Entry, is_original: bool| entry.place != Place::Zoo && (entry.variant == ORIGINAL) == is_original;
    let originals: Vec<Entry> = catalogue.iter().filter(|entry| is_users(entry, true)).cloned().collect();
    for entry in catalogue.iter_mut().filter(|entry| is_users(entry, false)) {
        let first = originals.iter().find(|first| (&first.name, &first.dims) == (&entry.name, &entry.dims));
        if let (Ok(model), Some(Ok(first))) = (&mut entry.model, first.map(|first| &first.model)) {
            let said = model.inputs.clone();
            inherit_inputs(model, first);
            // The suite's tables have set these two fields already.
            if entry.place == Place::Suite {
                let mut inputs = model.inputs.clone();
                for (input, said) in inputs.iter_mut().zip(said) {
                    (input.below, input.constant) = (said.below, said.constant);
                }
                *model = model.clone().with_inputs(inputs);
            }
        }
    }
}

/// Finds sizes for the selected cases whose models have dynamic dimensions, on the first of their backends that runs
/// one, and prints them. If no backend runs a model, its cases get the failure. Then measures the ranges for static
/// quantisation. Returns the artifacts that were prepared for this.
///
/// # Errors
/// The user has stopped it, no process can be started, or a folder cannot be written.
pub fn find_sizes_and_ranges(
    cases: &mut [PlannedCase],
    is_selected: impl Fn(&Case) -> bool,
    effort: &Effort,
    paths: &Paths,
) -> Result<Preparations> {
    let mut preparations = Preparations::default();
    say_outputs_left_out(cases.iter().filter(|planned| is_selected(&planned.case)));
    // Variants of one model with the same inputs get the same sizes.
    let key = |planned: &PlannedCase| {
        let PlannedCase { case, definition, .. } = planned;
        let inputs = definition.as_ref().map(|model| model.inputs.clone()).unwrap_or_default();
        (case.model.clone(), case.sequence_length, inputs)
    };
    let is_open = |planned: &PlannedCase| {
        let model = planned.model.as_ref().ok();
        model.is_some_and(|model| !model.open_dimensions(planned.case.sequence_length).is_empty())
    };
    while let Some(first) = cases.iter().position(|planned| is_open(planned) && is_selected(&planned.case)) {
        let wanted = key(&cases[first]);
        let target = |planned: &PlannedCase| (planned.case.backend.clone(), planned.case.device.clone());
        let mut failures: Vec<((String, String), CaseFailure)> = Vec::new();
        let mut found = None;
        let is_meant =
            |planned: &&PlannedCase| key(planned) == wanted && is_open(planned) && is_selected(&planned.case);
        for planned in cases.iter().filter(is_meant) {
            if found.is_none() && !failures.iter().any(|(tried, _)| *tried == target(planned)) {
                let item = preparations.work_item(planned, paths).map_err(Error::from);
                match of_case(item.and_then(|item| try_sizes(&item, effort)))? {
                    Ok(model) => found = Some(model),
                    Err(failure) => failures.push((target(planned), failure)),
                }
            }
        }
        for planned in cases.iter_mut().filter(|planned| key(planned) == wanted) {
            match &found {
                Some(Model { inputs, .. }) => {
                    let models = [planned.model.as_mut().ok(), planned.definition.as_mut().ok()];
                    for model in models.into_iter().flatten() {
                        *model = model.clone().with_inputs(inputs.clone());
                    }
                }
                None if planned.model.is_ok() => {
                    let own = failures.iter().find(|(tried, _)| *tried == target(planned)).or(failures.first());
                    let failure = own.map(|(_, failure)| failure.clone());
                    planned.model = Err(failure.unwrap_or_else(|| CaseFailure::failed("nothing was tried")));
                }
                None => {}
            }
        }
    }
    measure_ranges(cases, is_selected, effort, paths)?;
    Ok(preparations)
}

/// Prints which outputs of users' files are not compared, because they are not tensors of numbers.
fn say_outputs_left_out<'a>(cases: impl Iterator<Item = &'a PlannedCase>) {
    let mut files: BTreeMap<&Path, &str> = BTreeMap::new();
    for planned in cases {
        if let Ok(Model { name, origin: Origin::Files { onnx: Some(file), .. }, .. }) = &planned.model {
            files.entry(file).or_insert(name);
        }
    }
    for (file, name) in files {
        // If the file cannot be read, loading the model reports that.
        for output in onnx::outputs_left_out(file).unwrap_or_default() {
            eprintln!("{name}: the output {output}; it is left out of the comparison");
        }
    }
}

/// Tries typical sizes on the backend of the item.
fn try_sizes(item: &WorkItem, effort: &Effort) -> Result<Model> {
    let open = &item.model;
    let attempts = attempts(open, item.case.sequence_length);
    let effort = Effort { timeout_seconds: effort.timeout_seconds.min(PATIENCE), ..effort.clone() };
    let work = attempts.iter().map(|model| WorkItem { model: model.clone(), ..item.clone() }).collect();
    let name = item.case.benchmark_id().group;
    let answer: Result<usize, CaseFailure> = Supervisor::ask(Purpose::TrySizes, work, None, &effort)?;
    let backend = &item.case.backend;
    match answer {
        Ok(number) => {
            let flags = flags(open, &attempts[number]);
            eprintln!(
                "{name}: the file leaves sizes open; the first typical ones that {backend} accepts: {flags} (pass these flags to change them)"
            );
            Ok(attempts[number].clone())
        }
        Err(failure) if failure.status == Status::Unsupported => Err(failure.into()),
        Err(CaseFailure { status, message }) => {
            let example = attempts.first().map(|first| flags(open, first)).unwrap_or_default();
            let path = open.origin.files().next().map(|file| file.display().to_string()).unwrap_or_default();
            let message = format!(
                "the file leaves sizes open, and none of the typical ones ran on {backend}: pass them, as in `inferbench run {path} \
                 {example}`; the last error was: {message}"
            );
            bail!(CaseFailure::new(status, message))
        }
    }
}
