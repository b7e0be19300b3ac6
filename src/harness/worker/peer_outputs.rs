//! The outputs of one backend, with which those of other backends are compared if a model has no reference. They lie in
//! the run's folder, so they are never older than the run.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::definition::{Case, Dtype};
use crate::fixture::NamedTensors;
use crate::run_data::files::{read_cbor, write_cbor};

/// The outputs of a case by binding, and the case that they are from.
#[derive(Serialize, Deserialize)]
pub struct PeerOutputs {
    pub backend: String,
    #[serde(default)]
    pub device: String,
    pub dtype: Dtype,
    /// By binding.
    pub bindings: Vec<NamedTensors>,
    /// The first tokens after the prompts, by binding, for a case that decodes; empty if they are not known.
    #[serde(default)]
    pub first_tokens: Vec<Vec<i64>>,
}

impl PeerOutputs {
    fn path(run_folder: &Path, case: &Case, dtype: Dtype) -> PathBuf {
        let id = case.benchmark_id();
        run_folder.join("other-outputs").join(format!("{}-{dtype}-batch{}.cbor", id.group, id.value))
    }

    /// Reads what a case is to be compared with: outputs in f32, or else in its own dtype. Returns `None` if no other
    /// backend has left outputs.
    pub fn read(run_folder: &Path, case: &Case) -> anyhow::Result<Option<Self>> {
        for dtype in [Dtype::F32, case.dtype] {
            let found: Option<Self> = read_cbor(&Self::path(run_folder, case, dtype))?;
            // After `--resume`, the file may be one that this case itself wrote before the interruption.
            let is_own = |it: &Self| (&it.backend, &it.device, it.dtype) == (&case.backend, &case.device, case.dtype);
            if let Some(found) = found.filter(|it| !is_own(it)) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Leaves a case's outputs and first tokens for the backends that come after it.
    pub fn write(
        run_folder: &Path,
        case: &Case,
        bindings: &[NamedTensors],
        first_tokens: Vec<Vec<i64>>,
    ) -> anyhow::Result<()> {
        let outputs = PeerOutputs {
            backend: case.backend.clone(),
            device: case.device.clone(),
            dtype: case.dtype,
            bindings: bindings.to_vec(),
            first_tokens,
        };
        write_cbor(&Self::path(run_folder, case, case.dtype), &outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{HostTensor, TensorData};

    fn left(value: f64) -> Vec<NamedTensors> {
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
        let read = |dtype| PeerOutputs::read(folder.path(), &case("tch", dtype)).unwrap();
        assert!(read(Dtype::F32).is_none());
        PeerOutputs::write(folder.path(), &case("ort", Dtype::Bf16), &left(1.0), vec![vec![3]]).unwrap();
        assert!(read(Dtype::F32).is_none());
        let same = read(Dtype::Bf16).unwrap();
        assert_eq!((same.backend.as_str(), same.dtype, same.bindings), ("ort", Dtype::Bf16, left(1.0)));
        assert_eq!(same.first_tokens, [[3]]);
        PeerOutputs::write(folder.path(), &case("candle", Dtype::F32), &left(2.0), Vec::new()).unwrap();
        let own = PeerOutputs::read(folder.path(), &case("candle", Dtype::F32)).unwrap();
        assert!(own.is_none(), "a case is not compared with itself");
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let other = read(dtype).unwrap();
            assert_eq!((other.backend.as_str(), other.dtype, other.bindings), ("candle", Dtype::F32, left(2.0)));
        }
    }

    #[test]
    fn a_file_of_an_older_version_has_no_first_tokens() {
        #[derive(Serialize)]
        struct Older {
            backend: String,
            dtype: Dtype,
            bindings: Vec<NamedTensors>,
        }
        let folder = tempfile::tempdir().unwrap();
        let case = Case::new("m", "ort", 1);
        let older = Older { backend: "tch".into(), dtype: case.dtype, bindings: left(1.0) };
        write_cbor(&PeerOutputs::path(folder.path(), &case, case.dtype), &older).unwrap();
        let read = PeerOutputs::read(folder.path(), &case).unwrap().unwrap();
        assert_eq!((read.bindings, read.first_tokens), (left(1.0), Vec::new()));
    }
}
