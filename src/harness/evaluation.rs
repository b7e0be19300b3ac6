//! How good a case's answers are: its session over all samples, after it was measured.
//!
//! What a case answers is kept in the run's folder, `evaluations/<case>.safetensors`, as it is; how often it is right and
//! how it differs from the original is computed when the run is converted. Tensors: `largest`, i64 `[samples, 5 or
//! fewer]`, the places of the largest outputs in their order; `label`, i64 `[samples]`, where samples have one; `outputs`,
//! f32 `[samples, size]`, of the first of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::backend::Session;
use crate::definition::{BenchmarkId, Case, Dimension, Model, Phase, Shortfall, TensorSpec};
use crate::fixture::{HostTensor, Sample, Samples};

/// Places of largest outputs that are kept.
const LARGEST: usize = 5;
/// Samples whose outputs are kept whole.
const KEPT_OUTPUTS: usize = 64;
/// The name of outputs that say which class it is.
const LOGITS: &str = "logits";

/// What a case has answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    pub data_source: String,
    pub samples: usize,
    /// What is right, for each sample.
    pub labels: Option<Vec<i64>>,
    /// The places of the largest outputs of each sample, the largest first; none where outputs are no classes.
    pub largest: Option<Vec<Vec<i64>>>,
    /// The outputs of the first samples.
    pub outputs: Vec<Vec<f32>>,
    /// Samples that could not be read, and why.
    pub unreadable: Vec<String>,
}

/// Whether a case can be judged by samples at all: what it answers is for a sample, and not a part of generating.
pub fn can_be_judged(case: &Case, model: &Model) -> bool {
    let is_of_batch =
        |input: &TensorSpec| input.is_batched() || input.shape.first() == Some(&Dimension::Fixed(case.batch_size));
    case.phase == Phase::Forward && model.inputs.iter().all(is_of_batch)
}

/// Lets the session of a case answer all samples, in batches of the case's size; the inputs of binding 0 are others then.
///
/// # Errors
/// A call fails, or no sample can be read.
pub fn evaluate(
    session: &mut dyn Session,
    case: &Case,
    model: &Model,
    samples: &Samples,
) -> Result<Evaluation, Shortfall> {
    let is_classifier = samples.has_labels() || model.output_names(case.phase).first().is_some_and(|it| it == LOGITS);
    let mut evaluation = Evaluation {
        data_source: samples.name().to_owned(),
        labels: samples.has_labels().then(Vec::new),
        largest: is_classifier.then(Vec::new),
        ..Evaluation::default()
    };
    let mut batch = Vec::with_capacity(case.batch_size);
    for place in 0..samples.len() {
        match samples.sample(place) {
            Ok(sample) => batch.push(sample),
            Err(why) => evaluation.unreadable.push(why),
        }
        if batch.len() == case.batch_size {
            evaluation.answer(session, case.batch_size, &batch)?;
            batch.clear();
        }
    }
    if !batch.is_empty() {
        evaluation.answer(session, case.batch_size, &batch)?;
    }
    if evaluation.samples == 0 {
        let first = evaluation.unreadable.first().cloned().unwrap_or_default();
        return Err(Shortfall::failed(format!("no sample of {} can be read: {first}", evaluation.data_source)));
    }
    Ok(evaluation)
}

impl Evaluation {
    fn answer(&mut self, session: &mut dyn Session, batch_size: usize, samples: &[Sample]) -> Result<(), Shortfall> {
        // The last batch is filled up with what it begins with.
        let filled: Vec<&Sample> = samples.iter().cycle().take(batch_size).collect();
        let input = |place: usize| {
            let rows: Vec<HostTensor> = filled.iter().map(|sample| sample.inputs[place].clone()).collect();
            HostTensor::stacked(&rows).map_err(Shortfall::failed)
        };
        let inputs = (0..filled[0].inputs.len()).map(input).collect::<Result<Vec<_>, _>>()?;
        session.rebind(0, &inputs)?;
        let outputs = session.outputs(0)?;
        let is_judged = |output: &&HostTensor| !output.is_integer() && output.shape.first() == Some(&batch_size);
        let output = outputs
            .iter()
            .find(is_judged)
            .ok_or_else(|| Shortfall::unsupported("no output has a row of floating-point numbers for each sample"))?;
        let values = output.to_f64();
        let width = values.len() / batch_size;
        for (row, sample) in values.chunks_exact(width.max(1)).zip(samples) {
            self.samples += 1;
            if let Some(largest) = &mut self.largest {
                largest.push(places_of_largest(row));
            }
            if let Some(labels) = &mut self.labels {
                labels.push(sample.label.unwrap_or(-1));
            }
            if self.outputs.len() < KEPT_OUTPUTS {
                self.outputs.push(row.iter().map(|&value| value as f32).collect());
            }
        }
        Ok(())
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
            let width = largest.first().map_or(0, Vec::len);
            tensors.push(("largest", Dtype::I64, vec![largest.len(), width], integers(&largest.concat())));
        }
        let width = self.outputs.first().map_or(0, Vec::len);
        let bytes = self.outputs.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
        tensors.push(("outputs", Dtype::F32, vec![self.outputs.len(), width], bytes));
        let metadata = HashMap::from([
            ("data_source".to_owned(), self.data_source.clone()),
            ("samples".to_owned(), self.samples.to_string()),
            ("unreadable".to_owned(), self.unreadable.join("\n")),
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
    /// The file is not whole.
    pub fn read(run_folder: &Path, id: &BenchmarkId) -> Result<Option<Self>, String> {
        let path = path(run_folder, id);
        let Ok(bytes) = std::fs::read(&path) else { return Ok(None) };
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
        Ok(Some(Evaluation {
            data_source: said("data_source"),
            samples: said("samples").parse().unwrap_or_default(),
            labels: integers("label").map(|(_, labels)| labels),
            largest: integers("largest").map(|(width, all)| all.chunks(width).map(<[i64]>::to_vec).collect()),
            outputs: floats.chunks(width).map(<[f32]>::to_vec).collect(),
            unreadable: said("unreadable").lines().map(str::to_owned).collect(),
        }))
    }
}

const FOLDER: &str = "evaluations";

fn path(run_folder: &Path, id: &BenchmarkId) -> PathBuf {
    run_folder.join(FOLDER).join(format!("{}-{}-batch{}.safetensors", id.group, id.function, id.value))
}

/// The places of the largest numbers, the largest first, and of equal ones the first; what is no number is the smallest.
fn places_of_largest(row: &[f64]) -> Vec<i64> {
    let mut places: Vec<usize> = (0..row.len()).collect();
    let key = |place: &usize| if row[*place].is_nan() { f64::NEG_INFINITY } else { row[*place] };
    places.sort_by(|one, other| key(other).total_cmp(&key(one)));
    places.into_iter().take(LARGEST).map(|place| place as i64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_outputs_are_in_order() {
        assert_eq!(places_of_largest(&[0.0, 3.0, -1.0, 3.0, f64::NAN, 2.0, 1.0]), [1, 3, 5, 6, 0]);
        assert_eq!(places_of_largest(&[1.0, 2.0]), [1, 0]);
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
            largest: Some(vec![vec![1, 0], vec![1, 0]]),
            outputs: vec![vec![0.5, 1.5], vec![0.0, 2.0]],
            unreadable: vec!["a.jpg: cut short".into()],
        };
        labelled.write(folder.path(), &id).unwrap();
        assert_eq!(Evaluation::read(folder.path(), &id), Ok(Some(labelled.clone())));
        let embedding = Evaluation { labels: None, largest: None, unreadable: Vec::new(), ..labelled };
        embedding.write(folder.path(), &id).unwrap();
        assert_eq!(Evaluation::read(folder.path(), &id), Ok(Some(embedding)));
    }
}
