//! Finds sizes for dynamic dimensions of users' files: tries typical sizes in a worker process until the model runs.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Error, Result, bail};

use super::activation_ranges::measure_ranges;
use super::protocol::{Preparations, Purpose, WorkItem};
use super::supervisor::{Supervisor, of_case};
use crate::catalogue::{Entry, Place, attempts, flags, inherit_inputs};
use crate::definition::{Case, CaseFailure, DataSource, Effort, Model, ORIGINAL, Origin, Status, TensorSpec};
use crate::fixture;
use crate::onnx;
use crate::paths::Paths;
use crate::selection::PlannedCase;

/// Seconds that all attempts of a model may take.
const PATIENCE: f64 = 300.0;

/// Sets the input sizes of users' models to those of their references, and the sizes of variants to those of their
/// original. If a reference fits only some of the sizes at which a model is measured, the other sizes have no
/// reference. A reference that fits none, or cannot be read, is the model's failure. If all cases time samples
/// (`is_of_samples`), texts keep lengths of their own.
pub fn take_sizes_of_references(catalogue: &mut [Entry], is_of_samples: bool) {
    let sized = |entry: &Entry| {
        let model = entry.model.as_ref().ok().filter(|_| entry.place != Place::Zoo)?;
        if is_of_samples && matches!(model.data_source, DataSource::Text(_)) {
            return None;
        }
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
        // A file that does not say its shapes may take a batch of one only, which a batch of two shows.
        let has_unknown = wanted.2.iter().any(TensorSpec::has_any_shape);
        let is_of_two = has_unknown && cases.iter().filter(is_meant).any(|planned| planned.case.batch_size > 1);
        let try_item = |mut item: WorkItem| {
            item.case.batch_size = if is_of_two { 2 } else { item.case.batch_size };
            try_sizes(&item, effort)
        };
        for planned in cases.iter().filter(is_meant) {
            if found.is_none() && !failures.iter().any(|(tried, _)| *tried == target(planned)) {
                let item = preparations.work_item(planned, paths).map_err(Error::from);
                match of_case(item.and_then(try_item))? {
                    Ok(model) => found = Some(model),
                    Err(failure) => failures.push((target(planned), failure)),
                }
            }
        }
        for planned in cases.iter_mut().filter(|planned| key(planned) == wanted) {
            match &found {
                Some(sized) => {
                    let models = [planned.model.as_mut().ok(), planned.definition.as_mut().ok()];
                    for model in models.into_iter().flatten() {
                        *model = model.clone().with_inputs(sized.inputs.clone());
                    }
                    let other = sized.fixed_batch().filter(|batch| *batch != planned.case.batch_size);
                    if let (Some(batch), true) = (other, planned.model.is_ok()) {
                        planned.model = Err(CaseFailure::unsupported(format!(
                            "typical shapes ran only at batch size {batch}: give others with `--input 'x:f32[batch,…]'`, or trace it \
                             with an open batch"
                        )));
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
    let of_attempt = |model: &Model| {
        let batch_size = model.fixed_batch().unwrap_or(item.case.batch_size);
        let case = Case { batch_size, ..item.case.clone() };
        WorkItem { model: model.clone(), case, ..item.clone() }
    };
    let work = attempts.iter().map(of_attempt).collect();
    let name = item.case.benchmark_id().group;
    let answer: Result<usize, CaseFailure> = Supervisor::ask(Purpose::TrySizes, work, None, &effort)?;
    let backend = &item.case.backend;
    match answer {
        Ok(number) => {
            let flags = flags(open, &attempts[number]);
            eprintln!(
                "{name}: the file leaves sizes open; the first typical ones that {backend} accepts: {flags} (to choose other sizes, pass these flags)"
            );
            Ok(attempts[number].clone())
        }
        Err(failure) if failure.status == Status::Unsupported => Err(failure.into()),
        Err(CaseFailure { status, message }) => {
            let example = attempts.first().map(|first| flags(open, first)).unwrap_or_default();
            let path = open.origin.files().next().map(|file| file.display().to_string()).unwrap_or_default();
            let open = match open.inputs.iter().any(TensorSpec::has_any_shape) {
                true => "does not say the shapes of its inputs",
                false => "leaves sizes open",
            };
            let message = format!(
                "the file {open}, and none of the typical ones ran on {backend}: pass them, as in `inferbench run {path} \
                 {example}`; the last error was: {message}"
            );
            bail!(CaseFailure::new(status, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::TensorView;

    use super::*;

    #[test]
    fn texts_have_the_length_of_a_reference_only_if_it_is_timed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("net.safetensors");
        let view = TensorView::new(safetensors::Dtype::I64, vec![1, 2], &[0; 16]).unwrap();
        let tensors = [("input.ids", view.clone()), ("output.y", view)];
        fs_err::write(&file, safetensors::serialize(tensors, None).unwrap()).unwrap();
        let [ids, y] = ["ids:i64[batch,sequence]", "y:i64[batch,2]"].map(|text| text.parse().unwrap());
        let model = Model {
            data_source: DataSource::Text("texts.txt".into()),
            origin: Origin::Files { onnx: None, torchscript: None, reference: Some(file), quantization: None },
            ..Model::of_tensors("net", vec![ids], vec![y])
        };
        let sized = |is_of_samples: bool| {
            let mut catalogue = [Entry::new("net".into(), ORIGINAL.into(), Place::Suite, Ok(model.clone()))];
            take_sizes_of_references(&mut catalogue, is_of_samples);
            catalogue[0].model.as_ref().unwrap().inputs[0].to_string()
        };
        assert_eq!(sized(true), "ids:i64[batch,sequence]");
        assert_eq!(sized(false), "ids:i64[batch,2]");
    }
}
