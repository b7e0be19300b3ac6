//! How a case answered the samples by which its model is evaluated, `evaluations/<case>.safetensors` in the run's folder.
//!
//! The answers are kept as they are; how often they are right and how they differ from the original's is computed when the
//! run is converted. Tensors: `largest`, i64 `[samples, 5 or fewer]`, the indices of the largest outputs in descending
//! order, or -1 if outputs are not finite; `label`, i64 `[samples]`, if samples have one; `outputs`, f32 `[rows, width]`,
//! of samples that lie evenly among all.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fs_err as fs;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::definition::BenchmarkId;

const FOLDER: &str = "evaluations";
/// Stands for an index where there is none.
const NO_INDEX: i64 = -1;
/// How many of the largest outputs are kept per sample.
pub const LARGEST: usize = 5;

/// The answers of a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    pub data_source: String,
    pub samples: usize,
    /// The right class of each sample.
    pub labels: Option<Vec<i64>>,
    /// The indices of the largest outputs of each sample in descending order, and none if outputs are not finite. Absent
    /// if outputs are no classes.
    pub largest: Option<Vec<Vec<i64>>>,
    /// The outputs of samples that lie evenly among all.
    pub outputs: Vec<Vec<f32>>,
    /// Samples that could not be read, and why.
    pub unreadable: Vec<String>,
    /// Samples whose outputs are not finite.
    pub not_finite: usize,
}

impl Evaluation {
    /// Keeps it in the run's folder.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, run_folder: &Path, id: &BenchmarkId) -> Result<()> {
        let path = path(run_folder, id);
        let integers = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let mut tensors: Vec<(&str, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
        if let Some(labels) = &self.labels {
            tensors.push(("label", Dtype::I64, vec![labels.len()], integers(labels)));
        }
        if let Some(largest) = &self.largest {
            // At least one, so that samples whose outputs are not finite are counted.
            let width = largest.iter().map(Vec::len).max().unwrap_or(0).max(1);
            let padded = |indices: &Vec<i64>| [indices.as_slice(), &[NO_INDEX; LARGEST]].concat()[..width].to_vec();
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
        let views = tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| Ok((*name, TensorView::new(*dtype, shape.clone(), bytes)?)))
            .collect::<Result<Vec<_>>>()?;
        fs::create_dir_all(run_folder.join(FOLDER))?;
        fs::write(&path, safetensors::serialize(views, Some(metadata))?)?;
        Ok(())
    }

    /// Reads the answers of a case. Returns `None` if the case was not evaluated.
    ///
    /// # Errors
    /// The file cannot be read, or is not whole.
    pub fn read(run_folder: &Path, id: &BenchmarkId) -> Result<Option<Self>> {
        let path = path(run_folder, id);
        match fs::read(&path) {
            Ok(bytes) => Self::parse(&bytes).with_context(|| path.display().to_string()).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let (_, header) = SafeTensors::read_metadata(bytes)?;
        let tensors = SafeTensors::deserialize(bytes)?;
        let metadata = |key: &str| header.metadata().as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default();
        let integers = |name: &str| {
            let view = tensors.tensor(name).ok()?;
            let values = view.data().as_chunks::<8>().0.iter().map(|chunk| i64::from_le_bytes(*chunk));
            Some((view.shape().get(1).copied().unwrap_or(1).max(1), values.collect::<Vec<i64>>()))
        };
        let outputs = tensors.tensor("outputs")?;
        let width = outputs.shape().get(1).copied().unwrap_or(1).max(1);
        let floats: Vec<f32> =
            outputs.data().as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect();
        let indices = |row: &[i64]| row.iter().copied().filter(|&index| index != NO_INDEX).collect::<Vec<_>>();
        Ok(Evaluation {
            data_source: metadata("data_source"),
            samples: metadata("samples").parse().unwrap_or_default(),
            labels: integers("label").map(|(_, labels)| labels),
            largest: integers("largest").map(|(width, all)| all.chunks(width).map(indices).collect()),
            outputs: floats.chunks(width).map(<[f32]>::to_vec).collect(),
            unreadable: serde_json::from_str(&metadata("unreadable")).unwrap_or_default(),
            not_finite: metadata("not_finite").parse().unwrap_or_default(),
        })
    }
}

fn path(run_folder: &Path, id: &BenchmarkId) -> PathBuf {
    run_folder.join(FOLDER).join(format!("{}-{}-batch{}.safetensors", id.group, id.function, id.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Case;

    #[test]
    fn an_evaluation_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let id = Case::new("m", "ort", 2).benchmark_id();
        assert_eq!(Evaluation::read(folder.path(), &id).unwrap(), None);
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
        assert_eq!(Evaluation::read(folder.path(), &id).unwrap(), Some(labelled.clone()));
        let embedding = Evaluation { labels: None, largest: None, unreadable: Vec::new(), ..labelled };
        embedding.write(folder.path(), &id).unwrap();
        assert_eq!(Evaluation::read(folder.path(), &id).unwrap(), Some(embedding));
    }
}
