//! Outputs of one backend, with which those of the others are compared if a model has no reference.
//!
//! They lie in the run's folder, so they are never older than the run. A case is compared with outputs in f32, or else in its
//! own dtype. Values are stored as i64 if they are whole numbers and as f64 otherwise; the tensor `<binding>.<index>` has
//! its name in the metadata.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fs_err as fs;
use safetensors::tensor::TensorView;
use safetensors::{Dtype as StoredDtype, SafeTensors};

use crate::definition::{Case, Dtype};
use crate::fixture::{HostTensor, TensorData};

/// Outputs with their names, in the order in which a session gives them.
pub type NamedTensors = Vec<(String, HostTensor)>;

/// The outputs of another backend for the same inputs.
pub struct OtherOutputs {
    pub backend: String,
    pub dtype: Dtype,
    /// By binding.
    pub bindings: Vec<NamedTensors>,
}

fn path(run_folder: &Path, case: &Case, dtype: Dtype) -> PathBuf {
    let id = case.benchmark_id();
    run_folder.join("other-outputs").join(format!("{}-{dtype}-batch{}.safetensors", id.group, id.value))
}

/// Reads what a case is to be compared with. Returns `None` if no other backend has left its outputs.
///
/// # Errors
/// The file is damaged.
pub fn read(run_folder: &Path, case: &Case) -> Result<Option<OtherOutputs>> {
    for dtype in [Dtype::F32, case.dtype] {
        let path = path(run_folder, case, dtype);
        if path.is_file() {
            return parse(&fs::read(&path)?, dtype).with_context(|| path.display().to_string()).map(Some);
        }
    }
    Ok(None)
}

fn parse(bytes: &[u8], dtype: Dtype) -> Result<OtherOutputs> {
    let (_, header) = SafeTensors::read_metadata(bytes)?;
    let tensors = SafeTensors::deserialize(bytes)?;
    let metadata = |key: &str| header.metadata().as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default();
    let read_binding = |binding: usize| {
        let keys = (0..).map(|index| format!("{binding}.{index}"));
        let views = keys.map_while(|key| Some((tensors.tensor(&key).ok()?, metadata(&key))));
        views.map(|(view, name)| (name, read_tensor(&view))).collect::<NamedTensors>()
    };
    let bindings = (0..).map(read_binding).take_while(|outputs| !outputs.is_empty()).collect();
    Ok(OtherOutputs { backend: metadata("backend"), dtype, bindings })
}

fn read_tensor(view: &TensorView<'_>) -> HostTensor {
    let (chunks, _) = view.data().as_chunks::<8>();
    let data = match view.dtype() {
        StoredDtype::I64 => TensorData::I64(chunks.iter().map(|chunk| i64::from_le_bytes(*chunk)).collect()),
        _ => TensorData::F64(chunks.iter().map(|chunk| f64::from_le_bytes(*chunk)).collect()),
    };
    HostTensor { shape: view.shape().to_vec(), data }
}

/// Leaves a case's outputs for the backends that come after it.
///
/// # Errors
/// The file cannot be written.
pub fn write(run_folder: &Path, case: &Case, bindings: &[NamedTensors]) -> Result<()> {
    let mut metadata = HashMap::from([("backend".to_owned(), case.backend.clone())]);
    let mut tensors = Vec::new();
    for (binding, outputs) in bindings.iter().enumerate() {
        for (index, (name, output)) in outputs.iter().enumerate() {
            let key = format!("{binding}.{index}");
            metadata.insert(key.clone(), name.clone());
            let values = output.to_f64().into_iter();
            let (dtype, bytes): (_, Vec<u8>) = if output.is_integer() {
                (StoredDtype::I64, values.flat_map(|value| (value as i64).to_le_bytes()).collect())
            } else {
                (StoredDtype::F64, values.flat_map(f64::to_le_bytes).collect())
            };
            tensors.push((key, dtype, output.shape.clone(), bytes));
        }
    }
    let views =
        tensors.iter().map(|(key, dtype, shape, bytes)| Ok((key, TensorView::new(*dtype, shape.clone(), bytes)?)));
    let views = views.collect::<Result<Vec<_>>>()?;
    let path = path(run_folder, case, case.dtype);
    fs::create_dir_all(path.parent().unwrap_or(run_folder))?;
    Ok(fs::write(&path, safetensors::serialize(views, Some(metadata))?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(value: f64) -> Vec<NamedTensors> {
        let tensor = |data, shape: &[usize]| HostTensor { shape: shape.to_vec(), data };
        vec![
            vec![
                ("logits".into(), tensor(TensorData::F64(vec![value, -1.0]), &[1, 2])),
                ("token".into(), tensor(TensorData::I64(vec![7]), &[1])),
            ],
            vec![("logits".into(), tensor(TensorData::F64(vec![0.0, value]), &[1, 2]))],
        ]
    }

    #[test]
    fn a_case_is_compared_with_f32_or_with_its_own_dtype() {
        let folder = tempfile::tempdir().unwrap();
        let case = |backend, dtype| Case { dtype, ..Case::new("m", backend, 1) };
        let read = |dtype| read(folder.path(), &case("tch", dtype)).unwrap();
        assert!(read(Dtype::F32).is_none());
        write(folder.path(), &case("ort", Dtype::Bf16), &outputs(1.0)).unwrap();
        assert!(read(Dtype::F32).is_none());
        let same = read(Dtype::Bf16).unwrap();
        assert_eq!((same.backend.as_str(), same.dtype, same.bindings), ("ort", Dtype::Bf16, outputs(1.0)));
        write(folder.path(), &case("candle", Dtype::F32), &outputs(2.0)).unwrap();
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let other = read(dtype).unwrap();
            assert_eq!((other.backend.as_str(), other.dtype, other.bindings), ("candle", Dtype::F32, outputs(2.0)));
        }
    }
}
