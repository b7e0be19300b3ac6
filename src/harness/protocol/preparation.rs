//! The artifacts that a run prepares before its first case and its workers load.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::definition::{Dtype, Model};
use crate::fixture::{self, Artifacts, Held};
use crate::paths::Paths;

/// Prepared artifacts are the same for all cases with these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PreparedKey {
    folder_name: String,
    variant: String,
    dtype: Dtype,
}

impl PreparedKey {
    pub fn new(model: &Model, dtype: Dtype) -> Self {
        PreparedKey { folder_name: model.artifact_folder_name(), variant: model.variant.clone(), dtype }
    }
}

/// The artifacts of a run, each prepared once. As long as this is not dropped, no other process replaces them.
#[derive(Debug, Default)]
pub struct Preparations(BTreeMap<PreparedKey, Result<Held, String>>);

impl Preparations {
    /// Prepares a model for a dtype, if it is not yet.
    ///
    /// # Errors
    /// As [`fixture::prepare_and_hold`], each time again.
    pub fn add(&mut self, model: &Model, paths: &Paths, dtype: Dtype) -> Result<(), String> {
        let held = self
            .0
            .entry(PreparedKey::new(model, dtype))
            .or_insert_with(|| prepare_model(model, paths, dtype).map_err(|error| format!("{error:#}")));
        held.as_ref().map(drop).map_err(Clone::clone)
    }

    /// What could be prepared.
    pub fn artifacts(&self) -> BTreeMap<&PreparedKey, &Artifacts> {
        self.0.iter().filter_map(|(key, held)| Some((key, &held.as_ref().ok()?.artifacts))).collect()
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
