//! The artifacts that a run prepares before its first case and its workers load.

use std::collections::BTreeMap;

use crate::definition::{Dtype, Model};
use crate::fixture::{self, Artifacts, Held};
use crate::paths::Paths;

/// The artifacts of a run, each prepared once. As long as this is not dropped, no other process replaces them.
#[derive(Debug, Default)]
pub struct Preparations(BTreeMap<PreparedKey, Result<Held, String>>);

/// Prepared artifacts are the same for all cases with the same folder, variant and dtype.
type PreparedKey = (String, String, Dtype);

impl Preparations {
    /// The artifacts of a model for a dtype, which are prepared if they are not yet.
    ///
    /// # Errors
    /// As [`fixture::prepare_and_hold`], each time again.
    pub fn artifacts(&mut self, model: &Model, paths: &Paths, dtype: Dtype) -> Result<&Artifacts, String> {
        let key = (model.artifact_folder_name(), model.variant.clone(), dtype);
        let prepare = || prepare_model(model, paths, dtype).map_err(|error| format!("{error:#}"));
        let held = self.0.entry(key).or_insert_with(prepare);
        held.as_ref().map(|held| &held.artifacts).map_err(|error| error.clone())
    }
}

/// Makes a model's artifacts for a dtype and says so when that takes work.
///
/// # Errors
/// As [`fixture::prepare_and_hold`].
pub fn prepare_model(model: &Model, paths: &Paths, dtype: Dtype) -> anyhow::Result<Held> {
    let bytes = fixture::bytes_to_prepare(model, &paths.prepared(), dtype)?;
    if bytes > 0 {
        eprintln!(
            "preparing {} in {dtype} ({:.1} MB in {})",
            model.artifact_folder_name(),
            bytes as f64 / 1e6,
            paths.prepared().display()
        );
    }
    fixture::prepare_and_hold(model, &paths.prepared(), dtype)
}
