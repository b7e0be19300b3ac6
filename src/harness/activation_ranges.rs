//! Measures the activation ranges for the static quantisation of a user's graph. A worker process runs a form of the
//! graph with these activations as outputs over samples.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::protocol::{Purpose, WorkItem};
use super::supervisor::{Supervisor, of_case};
use crate::definition::{
    CALIBRATION, Case, CaseFailure, DataSource, Dtype, Effort, ElementType, Model, ORIGINAL, Origin, Quantization,
    TensorSpec, whole,
};
use crate::fixture::{Artifacts, PartFiles, sha256_of_samples};
use crate::graph_dtype::{Calibration, write_with_ranged_values};
use crate::paths::Paths;
use crate::run_data::write_whole;
use crate::selection::PlannedCase;

/// Measures the activation ranges for the selected cases of users' graphs that are statically quantised, and keeps them
/// in the folders of the prepared files. Each graph is measured once, over all sizes of its inputs. If that fails, its
/// cases get the failure.
///
/// # Errors
/// The user has stopped it, no process can be started, or a folder cannot be written.
pub fn measure_ranges(
    cases: &mut [PlannedCase],
    is_selected: impl Fn(&Case) -> bool,
    effort: &Effort,
    paths: &Paths,
) -> Result<()> {
    for (folder_name, of_graph) in sizes_of_graphs(cases.iter().filter(|planned| is_selected(&planned.case))) {
        let measured = ranges_of(&of_graph, &paths.prepared().join(&folder_name), effort);
        let Err(failure) = of_case(measured)? else { continue };
        for planned in cases.iter_mut().filter(|planned| is_selected(&planned.case)) {
            if planned.model.as_ref().is_ok_and(|model| is_ranged(model) && model.artifact_folder_name() == folder_name)
            {
                planned.model = Err(failure.clone());
            }
        }
    }
    Ok(())
}

/// A model with inputs of one size, and one case for each backend and device that runs it at that size.
type OfSize = (Model, Vec<Case>);

/// The sizes that each statically quantised graph runs with, by the folder of its prepared files. A prepared file
/// serves all sizes, so its ranges cover all of them.
fn sizes_of_graphs<'a>(cases: impl Iterator<Item = &'a PlannedCase>) -> BTreeMap<String, Vec<OfSize>> {
    let mut sizes: BTreeMap<String, Vec<OfSize>> = BTreeMap::new();
    for PlannedCase { case, model, .. } in cases {
        let Some(model) = model.as_ref().ok().filter(|model| is_ranged(model)) else { continue };
        let of_graph = sizes.entry(model.artifact_folder_name()).or_default();
        // The sequence length is a size, too, and only the case has it.
        let is_same =
            |(known, of): &&mut OfSize| known.inputs == model.inputs && of[0].sequence_length == case.sequence_length;
        match of_graph.iter_mut().find(is_same) {
            None => of_graph.push((model.clone(), vec![case.clone()])),
            Some((_, cases)) => {
                if !cases.iter().any(|it| (&it.backend, &it.device) == (&case.backend, &case.device)) {
                    cases.push(case.clone());
                }
            }
        }
    }
    sizes
}

fn is_ranged(model: &Model) -> bool {
    matches!(model.origin, Origin::Files { onnx: Some(_), quantization: Some(Quantization::Static), .. })
}

/// The files of a case that runs this graph.
fn artifacts_of(graph: &Path) -> Artifacts {
    let graph = PartFiles { onnx: Some(graph.to_owned()), torchscript: None };
    Artifacts { parts: vec![graph], ..Artifacts::default() }
}

/// What a calibration of a graph is made from: the file, the samples, and the sizes.
fn made_from(file: &Path, sizes: &[OfSize]) -> Result<String> {
    let inputs: Vec<&[TensorSpec]> = sizes.iter().map(|(model, _)| model.inputs.as_slice()).collect();
    let inputs = if let [only] = inputs[..] { format!("{only:?}") } else { format!("{inputs:?}") };
    let lengths: Vec<usize> = sizes.iter().filter_map(|(_, cases)| cases[0].sequence_length).collect();
    let lengths = if lengths.is_empty() { String::new() } else { format!(" {lengths:?}") };
    let samples = sha256_of_samples(&sizes[0].0.data_source)?.unwrap_or_default();
    Ok(format!("{} {samples} {inputs}{lengths}", artifacts_of(file).sha256_of_all()?))
}

/// Writes the calibration of a graph with inputs of these sizes into the folder, unless it is there.
///
/// # Errors
/// A [`CaseFailure`] if the graph cannot be calibrated; any other error ends the run.
fn ranges_of(sizes: &[OfSize], folder: &Path, effort: &Effort) -> Result<()> {
    let Some((model, Origin::Files { onnx: Some(file), .. })) = sizes.first().map(|(model, _)| (model, &model.origin))
    else {
        return Ok(());
    };
    let made_from = Some(made_from(file, sizes).map_err(|why| CaseFailure::failed(format!("{why:#}")))?);
    let path = folder.join(CALIBRATION);
    if Calibration::read(&path).is_ok_and(|kept| kept.made_from == made_from) {
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    let shown = place.path().join("model.onnx");
    let names = write_with_ranged_values(file, &shown).map_err(|why| CaseFailure::unsupported(format!("{why:#}")))?;
    let outputs: Vec<TensorSpec> =
        names.into_iter().map(|name| TensorSpec::new(name, ElementType::F32, Vec::new())).collect();
    let over = if sizes.len() > 1 { format!(" at {} sizes of its inputs", sizes.len()) } else { String::new() };
    let (name, variant) = (&model.name, &model.variant);
    let samples = match &model.data_source {
        DataSource::Synthetic => "seeded samples".to_owned(),
        other => format!("the samples of {}", other.name()),
    };
    eprintln!("{name} {variant}: measuring the ranges of its activations on {samples}{over}");
    let mut all: BTreeMap<String, [f32; 2]> = BTreeMap::new();
    for (model, cases) in sizes {
        let (parts, phases) = whole(&model.inputs, outputs.clone());
        let origin =
            Origin::Files { onnx: Some(shown.clone()), torchscript: None, reference: None, quantization: None };
        let model = Model { parts, phases, origin, dtype: Dtype::F32, ..model.clone() };
        let mut ranges: Result<BTreeMap<String, [f32; 2]>, CaseFailure> = Err(CaseFailure::failed("nothing was tried"));
        for (place, case) in cases.iter().enumerate() {
            let case = Case {
                variant: ORIGINAL.into(),
                dtype: Dtype::F32,
                batch_size: model.fixed_batch().unwrap_or(1),
                ..case.clone()
            };
            let work = vec![WorkItem::new(case, model.clone(), artifacts_of(&shown))];
            let now = Supervisor::ask(Purpose::Calibrate, work, None, effort)?;
            // If no backend runs it, the failure of the first one is reported.
            if now.is_ok() || place == 0 {
                ranges = now;
            }
            if ranges.is_ok() {
                break;
            }
        }
        let without = |CaseFailure { status, message }| {
            CaseFailure::new(status, format!("its activations have no ranges: {message}"))
        };
        for (name, [least, most]) in ranges.map_err(without)? {
            let known = all.entry(name).or_insert([least, most]);
            *known = [known[0].min(least), known[1].max(most)];
        }
    }
    fs_err::create_dir_all(folder)?;
    write_whole(&path, toml::to_string(&Calibration { made_from, ranges: all })?.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_of_all_lengths_that_are_asked_for() {
        let inputs = vec!["ids:i64[batch,sequence]".parse().unwrap()];
        let quantization = Some(Quantization::Static);
        let origin = Origin::Files { onnx: Some("net.onnx".into()), torchscript: None, reference: None, quantization };
        let model = Model { origin, ..Model::of_tensors("net", inputs, Vec::new()) };
        let planned = |length: usize, batch: usize| PlannedCase {
            case: Case { sequence_length: Some(length), ..Case::new("net", "ort", batch) },
            definition: Ok(model.clone()),
            model: Ok(model.clone()),
        };
        let cases = [planned(8, 1), planned(8, 4), planned(512, 1)];
        let graphs = sizes_of_graphs(cases.iter());
        let lengths: Vec<_> = graphs["net"].iter().map(|(_, cases)| cases[0].sequence_length).collect();
        assert_eq!(lengths, [Some(8), Some(512)]);
    }
}
