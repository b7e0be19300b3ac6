//! Outputs of one backend, against which the others are checked where a model has no reference.
//!
//! They live in the run's folder, so they are never older than the run. Values are stored as i64 where they are whole
//! numbers and as f64 otherwise.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::definition::Case;
use crate::fixture::{HostTensor, TensorData};

fn path(run_folder: &Path, case: &Case) -> PathBuf {
    let id = case.benchmark_id();
    run_folder.join("peers").join(format!("{}-batch{}.safetensors", id.group, id.value))
}

/// The outputs of another backend for the same inputs.
pub struct Peer {
    pub backend: String,
    /// With their names.
    pub outputs: Vec<(String, HostTensor)>,
}

/// What a case is to be compared with, if a backend of this run has left something.
pub fn read(run_folder: &Path, case: &Case) -> Result<Option<Peer>, String> {
    let path = path(run_folder, case);
    let Ok(bytes) = std::fs::read(&path) else { return Ok(None) };
    let named = |error: safetensors::SafeTensorError| format!("{}: {error}", path.display());
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(named)?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(named)?;
    let backend = header.metadata().as_ref().and_then(|map| map.get("backend")).cloned().unwrap_or_default();
    let mut outputs = Vec::new();
    for index in 0..tensors.len() {
        let view = tensors.tensor(&format!("{index}")).map_err(named)?;
        let (chunks, _) = view.data().as_chunks::<8>();
        let data = match view.dtype() {
            Dtype::I64 => TensorData::I64(chunks.iter().map(|chunk| i64::from_le_bytes(*chunk)).collect()),
            _ => TensorData::F64(chunks.iter().map(|chunk| f64::from_le_bytes(*chunk)).collect()),
        };
        let name = header.metadata().as_ref().and_then(|map| map.get(&format!("name{index}"))).cloned();
        let tensor = HostTensor { shape: view.shape().to_vec(), data };
        outputs.push((name.unwrap_or_else(|| index.to_string()), tensor));
    }
    Ok(Some(Peer { backend, outputs }))
}

/// Leaves a case's outputs for the backends that come after it.
pub fn write(run_folder: &Path, case: &Case, names: &[String], outputs: &[HostTensor]) -> Result<(), String> {
    let path = path(run_folder, case);
    let named = |error: String| format!("{}: {error}", path.display());
    let mut metadata = HashMap::from([("backend".to_owned(), case.backend.clone())]);
    for (index, name) in names.iter().enumerate() {
        metadata.insert(format!("name{index}"), name.clone());
    }
    let bytes = |output: &HostTensor| -> Vec<u8> {
        let values = output.to_f64().into_iter();
        if output.is_integer() {
            values.flat_map(|value| (value as i64).to_le_bytes()).collect()
        } else {
            values.flat_map(f64::to_le_bytes).collect()
        }
    };
    let bytes: Vec<Vec<u8>> = outputs.iter().map(bytes).collect();
    let mut views = Vec::new();
    for (index, (output, bytes)) in outputs.iter().zip(&bytes).enumerate() {
        let dtype = if output.is_integer() { Dtype::I64 } else { Dtype::F64 };
        let view = TensorView::new(dtype, output.shape.clone(), bytes).map_err(|error| named(error.to_string()))?;
        views.push((index.to_string(), view));
    }
    let file = safetensors::serialize(views, Some(metadata)).map_err(|error| named(error.to_string()))?;
    std::fs::create_dir_all(run_folder.join("peers")).map_err(|error| named(error.to_string()))?;
    std::fs::write(&path, file).map_err(|error| named(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_come_back_with_their_backend() {
        let folder = std::env::temp_dir().join(format!("inferbench-peer-{}", std::process::id()));
        let case = Case::new("m", "ort", 2);
        assert!(read(&folder, &case).unwrap().is_none());
        let output = HostTensor { shape: vec![2], data: TensorData::F32(vec![1.5, -2.0]) };
        write(&folder, &case, &["y".to_owned()], std::slice::from_ref(&output)).unwrap();
        let peer = read(&folder, &case).unwrap().unwrap();
        assert_eq!((peer.backend.as_str(), peer.outputs[0].1.to_f64()), ("ort", output.to_f64()));
    }
}
