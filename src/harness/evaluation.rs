//! How good a case's answers are: its session over all samples, after it was measured.
//!
//! What a case answers is kept in the run's folder, `evaluations/<case>.safetensors`, as it is; how often it is right and
//! how it differs from the original is computed when the run is converted. Tensors: `largest`, i64 `[samples, 5 or
//! fewer]`, the paths of the largest outputs in their order, or -1 where outputs are not finite; `label`, i64 `[samples]`,
//! where samples have one; `outputs`, f32 `[rows, size]`, of samples that lie evenly among all.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::backend::Session;
use crate::definition::{BenchmarkId, Case, CaseFailure, Dimension, Model, Phase, TensorSpec};
use crate::fixture::{HostTensor, Sample, Samples};

/// Paths of largest outputs that are kept.
const LARGEST: usize = 5;
/// How many samples' outputs are kept whole: as many as have these numbers, and no fewer than these samples.
const KEPT_NUMBERS: usize = 4 << 20;
const KEPT_AT_LEAST: usize = 64;
/// What the names of outputs have in them that say which class it is.
const CLASSES: [&str; 2] = ["logits", "prob"];

/// What a case has answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    pub data_source: String,
    pub samples: usize,
    /// What is right, for each sample.
    pub labels: Option<Vec<i64>>,
    /// The paths of the largest outputs of each sample, the largest first, and no place where outputs are not finite;
    /// none where outputs are no classes.
    pub largest: Option<Vec<Vec<i64>>>,
    /// The outputs of samples that lie evenly among all.
    pub outputs: Vec<Vec<f32>>,
    /// Samples that could not be read, and why.
    pub unreadable: Vec<String>,
    /// Samples whose outputs are not finite.
    pub not_finite: usize,
}

/// Whether a case can be judged by samples at all: what it answers is for a sample, and not a part of generating.
pub fn can_be_judged(case: &Case, model: &Model) -> bool {
    let is_of_batch =
        |input: &TensorSpec| input.is_batched() || input.shape.first() == Some(&Dimension::Fixed(case.batch_size));
    case.phase == Phase::Forward && model.inputs.iter().all(is_of_batch)
}

/// Lets the session of a case answer all samples, in batches of the case's size; the inputs of binding 0 are others then.
/// After each batch `progress` is told how many samples were looked at.
///
/// # Errors
/// A call or `progress` fails, no sample can be read, or the outputs are not what the labels are about.
pub fn evaluate(
    session: &mut dyn Session,
    case: &Case,
    model: &Model,
    samples: &Samples,
    progress: &mut dyn FnMut(usize) -> Result<(), CaseFailure>,
) -> Result<Evaluation, CaseFailure> {
    let names = model.output_names(case.phase);
    let mut evaluation = Evaluation {
        data_source: samples.name().to_owned(),
        labels: samples.has_labels().then(Vec::new),
        ..Evaluation::default()
    };
    let mut batch = Vec::with_capacity(case.batch_size);
    for place in 0..samples.len() {
        match samples.sample(place) {
            Ok(sample) => batch.push(sample),
            Err(why) => evaluation.unreadable.push(why),
        }
        let is_last = place + 1 == samples.len();
        if batch.len() == case.batch_size || is_last && !batch.is_empty() {
            let output = answer(session, case.batch_size, &batch, samples, &names)?;
            evaluation.add(&output, &batch, samples.len());
            batch.clear();
        }
        progress(place + 1)?;
    }
    if evaluation.samples == 0 {
        let first = evaluation.unreadable.first().cloned().unwrap_or_default();
        return Err(CaseFailure::failed(format!("no sample of {} can be read: {first}", evaluation.data_source)));
    }
    Ok(evaluation)
}

/// What a call makes of a batch: the output that is judged.
struct Output {
    /// Of all samples, one after the other.
    values: Vec<f64>,
    /// Numbers of a sample.
    width: usize,
    is_classes: bool,
}

/// Lets the session answer some samples; there may be fewer than a batch has.
///
/// # Errors
/// The call fails, there is no such output, or the labels are not for it.
fn answer(
    session: &mut dyn Session,
    batch_size: usize,
    batch: &[Sample],
    samples: &Samples,
    names: &[String],
) -> Result<Output, CaseFailure> {
    // The last batch is filled up with what it begins with.
    let filled: Vec<&Sample> = batch.iter().cycle().take(batch_size).collect();
    let input = |place: usize| {
        let rows: Vec<HostTensor> = filled.iter().map(|sample| sample.inputs[place].clone()).collect();
        HostTensor::stacked(&rows).map_err(CaseFailure::failed)
    };
    let inputs = (0..filled[0].inputs.len()).map(input).collect::<Result<Vec<_>, _>>()?;
    session.rebind(0, &inputs)?;
    let outputs = session.outputs(0)?;
    let is_of_samples = |output: &HostTensor| !output.is_integer() && output.shape.first() == Some(&batch_size);
    let is_judged = |output: &HostTensor| is_of_samples(output) && (!samples.has_labels() || has_classes(output));
    let Some(place) = outputs.iter().position(is_judged) else {
        let shapes: Vec<String> = outputs.iter().map(|output| format!("{:?}", output.shape)).collect();
        let what = if samples.has_labels() { "a number for each class" } else { "floating-point numbers" };
        let shapes = shapes.join(", ");
        return Err(CaseFailure::unsupported(format!("no output has {what} of each sample; there are {shapes}")));
    };
    let name = names.get(place).map(|name| name.to_lowercase()).unwrap_or_default();
    let is_named_so = CLASSES.iter().any(|part| name.contains(part));
    let values = outputs[place].to_f64();
    let width = values.len() / batch_size;
    samples.check_width(width).map_err(CaseFailure::failed)?;
    let is_classes = samples.has_labels() || is_named_so && has_classes(&outputs[place]);
    Ok(Output { values, width, is_classes })
}

/// Whether a sample's part of an output is a vector, and not a table or a single number.
fn has_classes(output: &HostTensor) -> bool {
    output.shape[1..].iter().filter(|&&size| size > 1).count() == 1
}

impl Evaluation {
    fn add(&mut self, output: &Output, batch: &[Sample], samples_in_all: usize) {
        let kept = (KEPT_NUMBERS / output.width.max(1)).max(KEPT_AT_LEAST);
        let every = samples_in_all.div_ceil(kept);
        for (row, sample) in output.values.chunks_exact(output.width.max(1)).zip(batch) {
            let is_finite = row.iter().all(|value| value.is_finite());
            self.not_finite += usize::from(!is_finite);
            if output.is_classes {
                let paths = if is_finite { places_of_largest(row) } else { Vec::new() };
                self.largest.get_or_insert_default().push(paths);
            }
            if let Some(labels) = &mut self.labels {
                labels.push(sample.label.unwrap_or(-1));
            }
            if self.samples.is_multiple_of(every) {
                self.outputs.push(row.iter().map(|&value| value as f32).collect());
            }
            self.samples += 1;
        }
    }

    /// Keeps it in the run's folder.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, run_folder: &Path, id: &BenchmarkId) -> Result<(), String> {
        let path = path(run_folder, id);
        let named = |error: String| format!("{}: {error}", path.display());
        let integers = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let mut tensors: Vec<(&str, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
        if let Some(labels) = &self.labels {
            tensors.push(("label", Dtype::I64, vec![labels.len()], integers(labels)));
        }
        if let Some(largest) = &self.largest {
            let width = largest.iter().map(Vec::len).max().unwrap_or(0);
            let padded = |paths: &Vec<i64>| [paths.as_slice(), &[NO_PLACE; LARGEST]].concat()[..width].to_vec();
            let rows = largest.iter().flat_map(padded).collect::<Vec<_>>();
            tensors.push(("largest", Dtype::I64, vec![largest.len(), width], integers(&rows)));
        }
        let width = self.outputs.first().map_or(0, Vec::len);
        let bytes = self.outputs.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
        tensors.push(("outputs", Dtype::F32, vec![self.outputs.len(), width], bytes));
        let metadata = HashMap::from([
            ("data_source".to_owned(), self.data_source.clone()),
            ("samples".to_owned(), self.samples.to_string()),
            ("unreadable".to_owned(), serde_json::json!(self.unreadable).to_string()),
            ("not_finite".to_owned(), self.not_finite.to_string()),
        ]);
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            TensorView::new(*dtype, shape.clone(), bytes)
                .map(|view| (*name, view))
                .map_err(|error| named(error.to_string()))
        });
        let views = views.collect::<Result<Vec<_>, _>>()?;
        let file = safetensors::serialize(views, Some(metadata)).map_err(|error| named(error.to_string()))?;
        std::fs::create_dir_all(run_folder.join(FOLDER)).map_err(|error| named(error.to_string()))?;
        std::fs::write(&path, file).map_err(|error| named(error.to_string()))
    }

    /// What a case of the run has answered, if it was judged.
    ///
    /// # Errors
    /// The file cannot be read, or is not whole.
    pub fn read(run_folder: &Path, id: &BenchmarkId) -> Result<Option<Self>, String> {
        let path = path(run_folder, id);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let named = |error: safetensors::SafeTensorError| format!("{}: {error}", path.display());
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(named)?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(named)?;
        let said = |key: &str| header.metadata().as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default();
        let integers = |name: &str| {
            let view = tensors.tensor(name).ok()?;
            let values = view.data().as_chunks::<8>().0.iter().map(|chunk| i64::from_le_bytes(*chunk));
            Some((view.shape().get(1).copied().unwrap_or(1).max(1), values.collect::<Vec<i64>>()))
        };
        let outputs = tensors.tensor("outputs").map_err(named)?;
        let width = outputs.shape().get(1).copied().unwrap_or(1).max(1);
        let floats: Vec<f32> =
            outputs.data().as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect();
        let paths = |row: &[i64]| row.iter().copied().filter(|&place| place != NO_PLACE).collect::<Vec<_>>();
        Ok(Some(Evaluation {
            data_source: said("data_source"),
            samples: said("samples").parse().unwrap_or_default(),
            labels: integers("label").map(|(_, labels)| labels),
            largest: integers("largest").map(|(width, all)| all.chunks(width).map(paths).collect()),
            outputs: floats.chunks(width).map(<[f32]>::to_vec).collect(),
            unreadable: serde_json::from_str(&said("unreadable")).unwrap_or_default(),
            not_finite: said("not_finite").parse().unwrap_or_default(),
        }))
    }
}

const FOLDER: &str = "evaluations";
/// Stands for a place where there is none.
const NO_PLACE: i64 = -1;

fn path(run_folder: &Path, id: &BenchmarkId) -> PathBuf {
    run_folder.join(FOLDER).join(format!("{}-{}-batch{}.safetensors", id.group, id.function, id.value))
}

/// The paths of the largest numbers, the largest first, and of equal ones the first.
fn places_of_largest(row: &[f64]) -> Vec<i64> {
    let mut paths: Vec<usize> = (0..row.len()).collect();
    paths.sort_by(|&one, &other| row[other].total_cmp(&row[one]));
    paths.into_iter().take(LARGEST).map(|place| place as i64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TensorData;

    #[test]
    fn the_largest_outputs_are_in_order() {
        assert_eq!(places_of_largest(&[0.0, 3.0, -1.0, 3.0, -2.0, 2.0, 1.0]), [1, 3, 5, 6, 0]);
        assert_eq!(places_of_largest(&[1.0, 2.0]), [1, 0]);
    }

    #[test]
    fn a_class_has_a_number_of_its_own() {
        let output = |shape: &[usize]| HostTensor { shape: shape.to_vec(), data: TensorData::F32(Vec::new()) };
        assert!(has_classes(&output(&[4, 10])) && has_classes(&output(&[4, 10, 1, 1])));
        assert!(!has_classes(&output(&[4])) && !has_classes(&output(&[4, 1])) && !has_classes(&output(&[4, 100, 92])));
    }

    #[test]
    fn what_is_not_finite_is_no_class_and_outputs_are_kept_evenly() {
        let sample = Sample { inputs: Vec::new(), label: Some(0) };
        let width = KEPT_NUMBERS / KEPT_AT_LEAST;
        let mut values = vec![0.0; width];
        let mut evaluation = Evaluation { labels: Some(Vec::new()), ..Evaluation::default() };
        for place in 0..2 * KEPT_AT_LEAST {
            values[0] = if place == 3 { f64::NAN } else { place as f64 + 1.0 };
            let output = Output { values: values.clone(), width, is_classes: true };
            evaluation.add(&output, std::slice::from_ref(&sample), 2 * KEPT_AT_LEAST);
        }
        assert_eq!((evaluation.samples, evaluation.not_finite), (2 * KEPT_AT_LEAST, 1));
        let largest = evaluation.largest.unwrap();
        assert_eq!((largest[2][0], largest[3].len()), (0, 0));
        let first: Vec<f32> = evaluation.outputs.iter().map(|row| row[0]).collect();
        assert_eq!((first.len(), &first[..3]), (KEPT_AT_LEAST, &[1.0, 3.0, 5.0][..]));
    }

    #[test]
    fn an_evaluation_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let id = Case::new("m", "ort", 2).benchmark_id();
        assert_eq!(Evaluation::read(folder.path(), &id), Ok(None));
        let labelled = Evaluation {
            data_source: "held-out".into(),
            samples: 2,
            labels: Some(vec![1, 0]),
            largest: Some(vec![vec![1, 0], vec![]]),
            outputs: vec![vec![0.5, 1.5], vec![0.0, 2.0]],
            unreadable: vec!["a.jpg: cut\nshort".into()],
            not_finite: 1,
        };
        labelled.write(folder.path(), &id).unwrap();
        assert_eq!(Evaluation::read(folder.path(), &id), Ok(Some(labelled.clone())));
        let embedding = Evaluation { labels: None, largest: None, unreadable: Vec::new(), ..labelled };
        embedding.write(folder.path(), &id).unwrap();
        assert_eq!(Evaluation::read(folder.path(), &id), Ok(Some(embedding)));
    }
}
