//! The artifacts that a run prepares before its first case and its workers load.

use std::collections::BTreeMap;

use super::job::WorkItem;
use crate::backend;
use crate::definition::{CaseFailure, Dtype, Model};
use crate::fixture::{self, Held, Reads};
use crate::paths::Paths;
use crate::selection::PlannedCase;

/// The artifacts of a run, each prepared once. As long as this is not dropped, no other process replaces them.
#[derive(Debug, Default)]
pub struct Preparations(BTreeMap<PreparedKey, Result<Held, CaseFailure>>);

/// Cases share prepared artifacts if they have the same folder, variant and dtype, either all or none have a reference,
/// and their backends load the same files.
type PreparedKey = (String, String, Dtype, bool, Reads);

impl Preparations {
    /// The work item of a planned case. Prepares its artifacts if they are not prepared yet.
    ///
    /// # Errors
    /// The failure with which it was planned, or those of [`fixture::prepare_and_hold`].
    pub fn work_item(&mut self, planned: &PlannedCase, paths: &Paths) -> Result<WorkItem, CaseFailure> {
        let (case, model) = (planned.case.clone(), planned.model.clone()?);
        let reads = backend::find(&case.backend)?.reads();
        let key = (model.artifact_folder_name(), model.variant.clone(), case.dtype, model.has_reference(), reads);
        let failure = |why: anyhow::Error| why.downcast().unwrap_or_else(|why| CaseFailure::failed(format!("{why:#}")));
        let prepare = || prepare_model(&model, paths, case.dtype, reads).map_err(failure);
        let held = self.0.entry(key).or_insert_with(prepare).as_ref().map_err(Clone::clone)?;
        Ok(WorkItem::new(case, model, held.artifacts.clone()))
    }
}

/// Prepares a model's artifacts for a dtype, and prints a line if there is something to write.
pub fn prepare_model(model: &Model, paths: &Paths, dtype: Dtype, reads: Reads) -> anyhow::Result<Held> {
    let bytes = fixture::bytes_to_prepare(model, &paths.prepared(), dtype, reads)?;
    if bytes > 0 {
        eprintln!(
            "preparing {} in {dtype} ({:.1} MB in {})",
            model.artifact_folder_name(),
            bytes as f64 / 1e6,
            paths.prepared().display()
        );
    }
    fixture::prepare_for(reads, model, &paths.prepared(), dtype)
}
