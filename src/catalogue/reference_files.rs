//! Finds the reference that comes with a graph: inputs, and the outputs that are right for them.

use std::path::{Path, PathBuf};

use super::sample_fit::tensor_names;

/// The reference beside a graph: `NAME_output_0.pb`, `NAME.npz`, `NAME.safetensors` with outputs, or a folder `test_data_set_0`
/// as ONNX's own tests have it.
pub(super) fn reference_of(graph: &Path) -> Option<PathBuf> {
    let folder = graph.parent()?;
    let stem = graph.file_stem()?.to_str()?;
    let [outputs, arrays] = [format!("{stem}_output_0.pb"), format!("{stem}.npz")].map(|name| folder.join(name));
    let tensors = graph.with_extension("safetensors");
    let is_reference =
        |path: &Path| tensor_names(path).is_some_and(|names| names.iter().any(|name| name.starts_with("output.")));
    [outputs, arrays]
        .into_iter()
        .find(|path| path.is_file())
        .or_else(|| Some(tensors).filter(|path| is_reference(path)))
        .or_else(|| Some(folder.to_owned()).filter(|folder| folder.join("test_data_set_0/output_0.pb").is_file()))
}
