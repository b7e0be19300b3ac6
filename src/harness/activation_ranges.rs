//! Measures the ranges of activations that a user's graph is quantised by: in a worker process that runs the graph over samples
//! and shows all its values.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::protocol::{Job, Purpose, WorkItem};
use super::supervisor::Supervisor;
use crate::definition::{
    CALIBRATION, Case, CaseFailure, Dtype, Effort, ElementType, Model, ORIGINAL, Origin, Quantization, TensorSpec,
    whole,
};
use crate::fixture::{Artifacts, PartFiles, sha256_of_samples};
use crate::graph_dtype::{Calibration, write_with_ranged_values};
use crate::paths::Paths;
use crate::run_data::{RunFolder, write_whole};
use crate::selection::PlannedCase;

/// Measures the ranges for the selected cases of users' graphs that are quantised by them, each graph once, and keeps them in the
/// folders of the prepared files. A case whose graph has none cannot run.
///
/// # Errors
/// The user has stopped it, no process can be started, or a folder cannot be written.
pub fn measure_ranges(
    cases: &mut [PlannedCase],
    is_selected: impl Fn(&Case) -> bool,
    effort: &Effort,
    paths: &Paths,
) -> Result<()> {
    let mut failures: BTreeMap<String, CaseFailure> = BTreeMap::new();
    for planned in cases.iter_mut().filter(|planned| is_selected(&planned.case)) {
        let Ok(model) = &planned.model else { continue };
        let Origin::Files { onnx: Some(file), quantization: Some(Quantization::Static), .. } = &model.origin else {
            continue;
        };
        let folder_name = model.artifact_folder_name();
        let folder = paths.prepared().join(&folder_name);
        let kept = failures.get(&folder_name).cloned();
        let found =
            kept.map_or_else(|| ranges_of(model, file, &planned.case, &folder, effort), |kept| Ok(Err(kept)))?;
        if let Err(failure) = found {
            failures.insert(folder_name, failure.clone());
            planned.model = Err(failure);
        }
    }
    Ok(())
}

/// Writes the calibration of a graph into the folder, unless it is there.
fn ranges_of(
    model: &Model,
    file: &Path,
    case: &Case,
    folder: &Path,
    effort: &Effort,
) -> Result<Result<(), CaseFailure>> {
    let graph = PartFiles { onnx: Some(file.to_owned()), torchscript: None };
    let graph = Artifacts { parts: vec![graph], ..Artifacts::default() };
    let made_from = (|| {
        let samples = sha256_of_samples(&model.data_source)?;
        anyhow::Ok(format!("{} {} {:?}", graph.sha256_of_all()?, samples.unwrap_or_default(), model.inputs))
    })();
    let made_from = match made_from {
        Ok(made_from) => Some(made_from),
        Err(why) => return Ok(Err(CaseFailure::failed(format!("{why:#}")))),
    };
    let path = folder.join(CALIBRATION);
    if Calibration::read(&path).is_ok_and(|kept| kept.made_from == made_from) {
        return Ok(Ok(()));
    }
    let place = tempfile::tempdir()?;
    let shown = place.path().join("model.onnx");
    let names = match write_with_ranged_values(file, &shown) {
        Ok(names) => names,
        Err(why) => return Ok(Err(CaseFailure::unsupported(format!("{why:#}")))),
    };
    let outputs = names.into_iter().map(|name| TensorSpec::new(name, ElementType::F32, Vec::new())).collect();
    let (parts, phases) = whole(&model.inputs, outputs);
    let origin = Origin::Files { onnx: Some(shown.clone()), torchscript: None, reference: None, quantization: None };
    let model = Model { parts, phases, origin, dtype: Dtype::F32, ..model.clone() };
    let case = Case {
        variant: ORIGINAL.into(),
        dtype: Dtype::F32,
        batch_size: model.fixed_batch().unwrap_or(1),
        ..case.clone()
    };
    let artifacts =
        Artifacts { parts: vec![PartFiles { onnx: Some(shown), torchscript: None }], ..Artifacts::default() };
    let run_folder = RunFolder::new(place.path().to_owned());
    let item = WorkItem::new(case, model.clone(), artifacts);
    let job = Job { work: vec![item], ..Job::new(Purpose::Calibrate, &run_folder, place.path(), effort) };
    eprintln!(
        "{} {}: measuring the ranges of its activations by {}",
        model.name,
        model.variant,
        model.data_source.name()
    );
    let ranges: Result<BTreeMap<String, [f32; 2]>, CaseFailure> = Supervisor::ask(job)?;
    Ok(match ranges {
        Ok(ranges) => {
            fs_err::create_dir_all(folder)?;
            write_whole(&path, toml::to_string(&Calibration { made_from, ranges })?.as_bytes())?;
            Ok(())
        }
        Err(CaseFailure { status, message }) => {
            Err(CaseFailure::new(status, format!("its activations have no ranges: {message}")))
        }
    })
}
