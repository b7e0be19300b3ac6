//! What a manifest says of the cases that a run was asked for.

use std::collections::BTreeMap;
use std::path::Path;

use super::protocol::WorkItem;
use crate::backend::registry;
use crate::definition::{CaseFailure, Cost, Dtype, Phase};
use crate::fixture;
use crate::onnx::cost;
use crate::run_data::ManifestCase;
use crate::selection::PlannedCase;

/// What takes long to find out, each once: most cases differ in other things.
#[derive(Default)]
struct Facts {
    costs: BTreeMap<(String, Phase, usize, Option<usize>), Option<Cost>>,
    nonzero_parameters: BTreeMap<String, Option<u64>>,
    files: BTreeMap<(String, String, Dtype), Option<String>>,
    /// By the source, as it is printed for debugging.
    samples: BTreeMap<String, Option<String>>,
}

/// The cases of a manifest. `work` has for each what it is run with, or why it cannot run. The hashes of files and samples are
/// found out for runs that may be resumed.
pub fn manifest_cases(
    selected: &[&PlannedCase],
    work: &[Result<WorkItem, CaseFailure>],
    prepared: &Path,
    may_be_resumed: bool,
) -> Vec<ManifestCase> {
    let mut facts = Facts::default();
    let manifest_case = |(planned, work): (&&PlannedCase, &Result<WorkItem, CaseFailure>)| {
        let case = planned.case.clone();
        let (described, model) = (planned.definition.as_ref().ok(), planned.model.as_ref().ok());
        let hashed = work.as_ref().ok().filter(|_| may_be_resumed);
        ManifestCase {
            framework: registry::framework(&case.backend).into(),
            family: described.map(|model| model.family.clone()).unwrap_or_default(),
            modality: described.map(|model| model.modality.clone()).unwrap_or_default(),
            parameters: model.and_then(|model| model.parameters),
            nonzero_parameters: model.and_then(|model| {
                let count = || fixture::nonzero_parameters(model, prepared).ok().flatten();
                *facts.nonzero_parameters.entry(model.artifact_folder_name()).or_insert_with(count)
            }),
            cost: model.and_then(|model| {
                let key = (model.artifact_folder_name(), case.phase, case.batch_size, case.sequence_length);
                *facts.costs.entry(key).or_insert_with(|| cost(model, case.phase, case.sizes()).ok())
            }),
            files_sha256: hashed.and_then(|item| {
                let key = (item.model.artifact_folder_name(), case.variant.clone(), case.dtype);
                facts.files.entry(key).or_insert_with(|| item.artifacts.sha256_of_all().ok()).clone()
            }),
            samples_sha256: hashed.and_then(|WorkItem { model, .. }| {
                let hash = || fixture::sha256_of_samples(&model.data_source).ok().flatten();
                facts.samples.entry(format!("{:?}", model.data_source)).or_insert_with(hash).clone()
            }),
            failure: work.as_ref().err().cloned(),
            case,
        }
    };
    selected.iter().zip(work).map(manifest_case).collect()
}
